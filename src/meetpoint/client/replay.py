"""Replay: events from before a subscription, read from the archives of brokers and joined to the live ones.

The boundary is exact. Once the subscription is acknowledged, brokers are asked for the highest number of every stream.
An event with a number up to that is history, and is read from archives; one with a higher number was published later,
and comes by the subscription. An event that comes both ways is delivered once; an event that waited in the subscription
from before the moment that history begins at is delivered. So there is no gap and no duplicate, whatever goes on
meanwhile.

Streams are read side by side and delivered in the order in which brokers accepted events.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from meetpoint.api.client_messages import HistoryRequest, Stream
from meetpoint.api.history_dedup import HistoryDedup
from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.client.admin_queries import AdminQueries
from meetpoint.client.connection_pool import Backoff
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["Replay", "Replayed"]

IDS_MAX = 100_000
"""The number of ids that are remembered: an event that was published twice comes once, as it does from a home."""
PAUSE_S = 0.05
"""The pause before an event that is not in an archive yet is asked for again."""

StreamKey = tuple[HomeId, int]


class Replayed(NamedTuple):
    """An event of history, its key, and when a broker accepted it."""

    key: EventKey
    at_us: int
    event: Event


class _Reader:
    """A reader of one stream in one archive, which one broker has or several share."""

    def __init__(self, stream: StreamKey) -> None:
        self.stream = stream
        self.holders: list[Peer] = []
        """The brokers with this archive; the one that hosts the stream is the first."""
        self.reached = 0
        self.upto = 0
        self.page: deque[Replayed] = deque()
        self.numbers = array("Q")
        """The numbers of all events that were read, in order."""

    def has_read(self, number: int) -> bool:
        at = bisect_left(self.numbers, number)
        return at < len(self.numbers) and self.numbers[at] == number

    def learn(self, peer: Peer, stream: Stream) -> None:
        if peer in self.holders:
            self.holders.remove(peer)
        self.holders.insert(0 if stream.is_here else len(self.holders), peer)


class Replay:
    """The history of one subscription, for one reader at a time."""

    def __init__(self, queries: AdminQueries, filter_: str, since_us: int, timeout_s: float) -> None:
        self._queries = queries
        self._filter = filter_
        self._since_us = since_us
        self._timeout_s = timeout_s
        self._readers: dict[tuple[str, StreamKey], _Reader] = {}
        self._dedup = HistoryDedup(IDS_MAX)
        self._filling: asyncio.Task[None] | None = None
        self.is_over = False
        """Whether all of it was delivered."""
        self.has_gap = False
        """Whether a live event was dropped because nobody read it: then history must be read up to a later point."""

    async def extend(self) -> None:
        """Move the boundary to where streams are now."""
        self.has_gap = self.is_over = False
        for peer, told in (await self._queries.streams()).items():
            for stream in told.streams:
                key = HomeId(stream.home), stream.stream
                reader = self._readers.setdefault((told.archive, key), _Reader(key))
                reader.learn(peer, stream)
                reader.upto = max(reader.upto, stream.last)

    def covers(self, key: EventKey, event: Event) -> bool:
        """Return whether a live event came as history, under its key or, published twice, under another."""
        return self.has_read(key) or self._dedup.knows(event.id, event, time.time_ns() // 1000)

    def has_read(self, key: EventKey) -> bool:
        """Return whether an event was read from an archive."""
        stream = key.home, key.stream
        return any(reader.has_read(key.number) for reader in self._readers.values() if reader.stream == stream)

    async def next(self) -> Replayed | None:
        """Wait for the next event of history; None when there are no more. A cancelled call loses no event."""
        while True:
            if any(not reader.page and reader.reached < reader.upto for reader in self._readers.values()):
                if self._filling is None:
                    self._filling = asyncio.get_running_loop().create_task(self._fill())
                filling = self._filling
                await asyncio.shield(filling)
                self._filling = None
            pages = [reader.page for reader in self._readers.values() if reader.page]
            if not pages:
                self.is_over = True
                return None
            found = min(pages, key=lambda page: page[0].at_us).popleft()
            is_again = self._dedup.knows(found.event.id, found.event, found.at_us)
            self._dedup.note(found.event.id, found.event, found.at_us)
            if not is_again:
                return found

    async def _fill(self) -> None:
        """Read a page of every stream that is not at its end."""
        empty = [reader for reader in self._readers.values() if not reader.page]
        await asyncio.gather(*map(self._fill_one, empty))

    async def _fill_one(self, reader: _Reader) -> None:
        backoff = Backoff()
        problem = "it is not in the archive yet"
        until = asyncio.get_running_loop().time() + self._timeout_s
        while not reader.page and reader.reached < reader.upto:
            home, stream = reader.stream
            what = HistoryRequest(bytes(home), stream, reader.reached, reader.upto, self._since_us, self._filter)
            before = reader.reached
            try:
                told = await self._queries.history(reader.holders[0], what)
            except RefusedError:
                raise
            except NetworkError as error:
                problem = str(error)
                reader.holders.append(reader.holders.pop(0))
                await backoff.wait()
            else:
                problem = "it is not in the archive yet"
                reader.reached = max(before, told.reached)
                for number, at_us, content in told.events:
                    reader.page.append(Replayed(EventKey(home, stream, number), at_us, from_msgpack(content)))
                    reader.numbers.append(number)
            if reader.reached > before:
                until = asyncio.get_running_loop().time() + self._timeout_s
            elif asyncio.get_running_loop().time() > until:
                raise NetworkError(
                    f"history of {home.hex()[:8]} from number {reader.reached + 1} on could not be read within "
                    f"{self._timeout_s:g} s: {problem}; try again when all brokers are up"
                )
            elif not reader.page:
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Read no more."""
        if self._filling is not None:
            self._filling.cancel()
