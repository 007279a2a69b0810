"""The archive queries of clients: how far its streams have come, and their events.

Files are read by threads, few at a time, so that clients that read history do not hold up live events. A client with a
token reads what it may subscribe to, of its own tenant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from meetpoint.api.client_messages import EVERYTHING, History, HistoryIs, Stream, Streams, StreamsAre, Word
from meetpoint.api.ids import HomeId
from meetpoint.api.outcomes import Refused
from meetpoint.archive import Archive, ArchiveError
from meetpoint.archive.reader import ArchiveShelf
from meetpoint.broker.clients.authorization import SessionPolicy
from meetpoint.broker.clients.broker_queries import FairQueue
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clients.session import Session
from meetpoint.errors import FilterError
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import parse_filter
from meetpoint.node.node import Node

__all__ = ["ArchiveQueries"]

READERS_MAX: Final = 2
"""Number of pages that are read at a time."""


class ArchiveQueries:
    """Answers queries from one broker's archive."""

    def __init__(self, node: Node, archive: Archive, clients: ClientRegistry) -> None:
        self._node = node
        self._id = archive.id
        self._pages = ArchiveShelf(archive.folder)
        self._clients = clients
        self._queue = FairQueue(READERS_MAX)
        clients.query_handlers[Streams] = self._streams
        clients.query_handlers[History] = self._history

    def _streams(self, session: Session, request: int, what: Streams) -> None:
        here = {(home, stream): Stream(bytes(home), stream, True, last, archived)
                for home, stream, last, archived in self._node.archived()}  # fmt: skip

        def work() -> Word:
            found = {key: Stream(bytes(key[0]), key[1], False, last, last)
                     for key, last in self._pages.streams().items()}  # fmt: skip
            found |= here
            return StreamsAre(self._id, tuple(found[key] for key in sorted(found)))

        self._read(session, request, work)

    def _history(self, session: Session, request: int, what: History) -> None:
        try:
            wanted = _wanted(what.filter, session.policy)
        except FilterError as error:
            session.answer(request, Refused(str(error), retry=False))
            return
        key = HomeId(what.home), what.stream
        here = {(home, stream): archived for home, stream, _, archived in self._node.archived()}

        def work() -> Word:
            # Nothing is said of what is on its way to the archive, be it another broker's.
            upto = min(what.upto, here[key] if key in here else self._pages.streams().get(key, 0))
            if upto <= what.after:
                return HistoryIs((), what.after)
            rows, reached = self._pages.page(key, what.after, upto, what.since_us, wanted)
            return HistoryIs(tuple((row.number, row.at_us, row.content) for row in rows), reached)

        self._read(session, request, work)

    def _read(self, session: Session, request: int, work: Callable[[], Word]) -> None:
        self._queue.read(session, request, lambda: self._found(work))

    def _found(self, work: Callable[[], Word]) -> Word:
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
