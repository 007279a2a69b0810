"""The archiver: collects the events that a broker accepts, and writes them to its archive every second or so, in a
thread.

An event stays on the broker's disks until it is in the archive, so that nothing is lost whatever happens to this
process. Writing to a disk that takes no files, or has a file that cannot be read, is tried again and again. Meanwhile
events wait, and when too many do, publishers are held up as they are by any other disk that is too slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive import Accepted, Archive, ArchiveError
from meetpoint.broker.clients.tenancy import event_outside
from meetpoint.broker.clock import Clock
from meetpoint.broker.config import Archiving
from meetpoint.broker.observe.logs import Log
from meetpoint.broker.observe.metrics import Counts
from meetpoint.language.schema.schema import Schema
from meetpoint.node.node import Node
from meetpoint.node.runtime import effects
from meetpoint.node.runtime.inputs import Archived, Input

__all__ = ["Archiver"]

RETRY_S: Final = 1.0
"""Time after a failure until files are written again."""


class Archiver:
    """Writes what one broker accepts, and submits to the node what the archive has."""

    def __init__(
        self,
        config: Archiving,
        archive: Archive,
        clock: Clock,
        node: Node,
        counts: Counts,
        log: Log,
        submit: Callable[[Input], None],
        *,
        has_tenants: bool,
    ) -> None:
        self._config = config
        self._archive = archive
        self._clock = clock
        self._node = node
        self._counts = counts
        self._log = log
        self._submit = submit
        self._has_tenants = has_tenants
        self._waiting: list[Accepted] = []
        self._writing = 0
        self._known: set[tuple[HomeId, int]] = set()
        """The streams whose position in the archive is known."""
        self._wake = asyncio.Event()
        self._is_closing = False
        self._is_failing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def take(self, effect: effects.Accepted) -> None:
        """Take an event that was accepted."""
        self._waiting.append(Accepted(effect.event, self._clock.now(), effect.content))
        if len(self._waiting) == self._config.rows:
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of events that are not in the archive yet."""
        return len(self._waiting) + self._writing

    async def _run(self) -> None:
        while not (self._is_closing and not self._waiting):
            if not self._is_closing and len(self._waiting) < self._config.rows:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._config.flush_s)
            self._wake.clear()
            if self._waiting and not await self._write_some():
                if self._is_closing:
                    return  # it is on the broker's disk, and written when that starts again
                await asyncio.sleep(RETRY_S)

    async def _write_some(self) -> bool:
        events, self._waiting = self._waiting, []
        self._writing = len(events)
        try:
            files = await asyncio.to_thread(self._write, events, self._node.schema)
        except Exception as error:  # a disk, a damaged file, or a mistake of ours: no event may be forgotten for it
            self._waiting = events + self._waiting
            self._counts.totals["archive_failures"] += 1
            if not self._is_failing:
                self._is_failing = True
                is_told = isinstance(error, OSError | ArchiveError)
                self._log.write(
                    logging.ERROR, "archive_failed", folder=self._config.folder,
                    problem=str(error) if is_told else f"{type(error).__name__}: {error}",
                    todo="make room, or see to the folder; events wait on the broker's disk meanwhile",
                )  # fmt: skip
            return False
        finally:
            self._writing = 0
        if self._is_failing:
            self._is_failing = False
            self._log.write(logging.INFO, "archive_goes_on", folder=self._config.folder)
        self._counts.totals["archived"] += len(events)
        self._counts.totals["archive_files"] += files
        last: dict[tuple[HomeId, int], EventKey] = {}
        for each in events:
            last[each.key.home, each.key.stream] = each.key
        for upto in last.values():
            self._submit(Archived(upto))
        return True

    def _write(self, events: list[Accepted], schema: Schema | None) -> int:
        """Put events into the archive, in a thread; return the number of files written."""
        streams = {(each.key.home, each.key.stream) for each in events}
        fresh = [each for each in events if (each.key.home, each.key.stream) in self._known]
        unknown = [each for each in events if (each.key.home, each.key.stream) not in self._known]
        self._known -= streams  # until all is written: if it is cut short, some files are there, and must be looked at
        if unknown:
            fresh += self._archive.missing(unknown)
        if self._has_tenants:
            fresh = [_outside(each) for each in fresh]
        files = len(self._archive.write(fresh, schema))
        self._known |= streams
        return files

    async def close(self) -> None:
        """Write what waits, if that is possible, and end."""
        self._is_closing = True
        self._wake.set()
        await asyncio.wait([self._task])


def _outside(each: Accepted) -> Accepted:
    tenant, content = event_outside(each.content)
    return Accepted(each.key, each.at_us, content, tenant)
