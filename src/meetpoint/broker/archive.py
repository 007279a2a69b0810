"""The archive of a broker: writing what it accepts, and answering the queries of clients.

Accepted events are collected, and written every second or so, in a thread. An event stays on the broker's disks until
it is in the archive, so that nothing is lost whatever happens to this process. Writing to a disk that takes no files,
or has a file that cannot be read, is tried again and again. Meanwhile events wait, and when too many do, publishers are
held up as they are by any other disk that is too slow.

Queries read files in threads, few at a time, so that clients that read history do not hold up live events. A client
with a token reads what it may subscribe to, of its own tenant.

A broker imports this module where it has an archive, since it needs pyarrow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from meetpoint.api.client_messages import (
    EVERYTHING,
    HistoryReply,
    HistoryRequest,
    ResponseBody,
    Stream,
    StreamsReply,
    StreamsRequest,
)
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.outcomes import Refused
from meetpoint.archive import AcceptedEvent, Archive, ArchiveError
from meetpoint.archive.reader import ArchiveReader
from meetpoint.broker.clients.authorization import SessionPolicy
from meetpoint.broker.clients.broker_queries import FairQueue
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clients.session import Session
from meetpoint.broker.clients.tenancy import event_outside
from meetpoint.broker.clock import Clock
from meetpoint.broker.config import Archiving
from meetpoint.broker.observe.logs import Log
from meetpoint.broker.observe.metrics import Counts
from meetpoint.errors import FilterError
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import Schema
from meetpoint.node.node import Node
from meetpoint.node.runtime import effects
from meetpoint.node.runtime.inputs import Archived, Input

__all__ = ["ArchiveQueries", "Archiver"]

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
        self._waiting: list[AcceptedEvent] = []
        self._writing = 0
        self._known: set[tuple[HomeId, int]] = set()
        """The streams whose position in the archive is known."""
        self._wake = asyncio.Event()
        self._is_closing = False
        self._is_failing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def take(self, effect: effects.Accepted) -> None:
        """Take an event that was accepted."""
        self._waiting.append(AcceptedEvent(effect.event, self._clock.now(), effect.content))
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

    def _write(self, events: list[AcceptedEvent], schema: Schema | None) -> int:
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


def _outside(each: AcceptedEvent) -> AcceptedEvent:
    tenant, content = event_outside(each.content)
    return AcceptedEvent(each.key, each.at_us, content, tenant)


READERS_MAX: Final = 2
"""Number of pages that are read at a time."""


class ArchiveQueries:
    """Answers queries from one broker's archive."""

    def __init__(self, node: Node, archive: Archive, clients: ClientRegistry) -> None:
        self._node = node
        self._id = archive.id
        self._pages = ArchiveReader(archive.folder)
        self._clients = clients
        self._queue = FairQueue(READERS_MAX)
        clients.query_handlers[StreamsRequest] = self._streams
        clients.query_handlers[HistoryRequest] = self._history

    def _streams(self, session: Session, request: int, what: StreamsRequest) -> None:
        here = {(home, stream): Stream(bytes(home), stream, True, last, archived)
                for home, stream, last, archived in self._node.archived()}  # fmt: skip

        def work() -> ResponseBody:
            found = {key: Stream(bytes(key[0]), key[1], False, last, last)
                     for key, last in self._pages.streams().items()}  # fmt: skip
            found |= here
            return StreamsReply(self._id, tuple(found[key] for key in sorted(found)))

        self._read(session, request, work)

    def _history(self, session: Session, request: int, what: HistoryRequest) -> None:
        try:
            wanted = _wanted(what.filter, session.policy)
        except FilterError as error:
            session.answer(request, Refused(str(error), retry=False))
            return
        key = HomeId(what.home), what.stream
        here = {(home, stream): archived for home, stream, _, archived in self._node.archived()}

        def work() -> ResponseBody:
            # Nothing is said of what is on its way to the archive, be it another broker's.
            upto = min(what.upto, here[key] if key in here else self._pages.streams().get(key, 0))
            if upto <= what.after:
                return HistoryReply((), what.after)
            rows, reached = self._pages.page(key, what.after, upto, what.since_us, wanted)
            return HistoryReply(tuple((row.number, row.at_us, row.content) for row in rows), reached)

        self._read(session, request, work)

    def _read(self, session: Session, request: int, work: Callable[[], ResponseBody]) -> None:
        self._queue.read(session, request, lambda: self._found(work))

    def _found(self, work: Callable[[], ResponseBody]) -> ResponseBody:
        """Run a query, in a thread; return its answer, or the refusal where it fails."""
        try:
            return work()
        except Exception as error:  # whoever asked must be told, whatever it is
            said = str(error) if isinstance(error, OSError | ArchiveError) else f"{type(error).__name__}: {error}"
            self._clients.log.write(logging.ERROR, "archive_unreadable", problem=said)
            return Refused(f"the archive could not be read: {said}", retry=True)

    async def close(self) -> None:
        """Wait for queries that are being read."""
        await self._queue.close()


def _wanted(text: str, policy: SessionPolicy | None) -> Callable[[str, Event], bool]:
    accepts = None if text == EVERYTHING else parse_filter(text).accepts
    if policy is None:
        return lambda tenant, event: accepts is None or accepts(event.attributes)
    may_read = policy.may_read
    return lambda tenant, event: may_read(tenant, event) and (accepts is None or accepts(event.attributes))
