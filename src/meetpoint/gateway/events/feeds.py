"""Live events for many readers: equal requests share one subscription and one text of each event.

A feed remembers its last events for a while, also when nobody reads it any more, so that a reader who comes back soon
goes on exactly where it was. Events that a reader does not take in time are dropped and counted, and the reader is told
how many.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import RefusedError
from meetpoint.client.subscription import Subscription
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.cloud_events import write
from meetpoint.gateway.http.errors import ApiError
from meetpoint.language.events.json import to_json

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Counters, Gateway


__all__ = ["Feed", "FeedRegistry", "Format", "Position", "ReaderBuffer", "encode", "encode_frame", "notice_frame"]


_TEXT: Final = re.compile(r"([0-9a-f]{2,128})-([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,16})", re.ASCII)


class Position(NamedTuple):
    """A reader's place in a stream, as the header Last-Event-ID brings it back.

    It is an event's key, and when the gateway got the event (microseconds since 1970).
    """

    key: EventKey
    at_us: int

    def __str__(self) -> str:
        return f"{self.key.home.hex()}-{self.key.stream}-{self.key.number}-{self.at_us}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read a position; raise ApiError where the text is none."""
        match = _TEXT.fullmatch(text)
        if match is None or len(match[1]) % 2:
            raise ApiError(400, "position", "the header Last-Event-ID is none that this gateway gave; leave it out")
        home, stream, number, at_us = match.groups()
        return cls(EventKey(HomeId(bytes.fromhex(home)), int(stream), int(number)), int(at_us))


Format: TypeAlias = Literal["json", "cloudevents"]

RING_EVENTS_MAX: Final = 1000
RING_BYTES_MAX: Final = 1 << 20
"""The most bytes of sent events that a feed remembers."""
FRAME_CACHE_BYTES_MAX: Final = 4 << 20
"""The most bytes of events that several feeds share."""
CHUNK_BYTES: Final = 256 << 10
"""The size of a chunk for readers; one batch of events may exceed it."""
BATCH_EVENTS: Final = 100
"""Events that are encoded before other tasks run."""
LINGER_S: Final = 20.0
"""The time for which a feed goes on without readers."""
REST_S: Final = 0.01
"""The pause of a feed after a write: faster events go out together, an event after a pause goes out at once."""
WRITES_PER_S: Final = 400.0
"""The writes a second of all streams together: where many are busy, each waits longer and gets more at a time."""
OVERLAP_US: Final = 5_000_000
"""History is read from this long before a position: brokers' clocks differ, and events take their time."""


def encode(delivered: Delivery, form: Format) -> bytes:
    """Encode an event as one line."""
    if form == "cloudevents":
        return write(delivered.event)
    text = to_json(delivered.event)
    return text[:-1] + b',"redelivered":true}' if delivered.redelivered else text


class Frame(NamedTuple):
    """A server-sent event and its id."""

    id: str
    text: bytes


def encode_frame(delivered: Delivery, form: Format) -> Frame:
    """Encode an event as a server-sent event."""
    id_ = str(Position(delivered.key, time.time_ns() // 1000))
    return Frame(id_, b"id: %b\ndata: %b\n\n" % (id_.encode(), encode(delivered, form)))


class FrameCache:
    """Encoded events that several feeds send, so that each is encoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[EventKey, Format, bool], Frame] = {}
        self._bytes = 0

    def of(self, delivered: Delivery, form: Format) -> Frame:
        """Return an event as a server-sent event."""
        if len(delivered.matched_by) < 2:
            return encode_frame(delivered, form)
        key = delivered.key, form, delivered.redelivered
        frame = self._known.get(key)
        if frame is None:
            frame = self._known[key] = encode_frame(delivered, form)
            self._bytes += len(frame.text)
            while self._bytes > FRAME_CACHE_BYTES_MAX:
                self._bytes -= len(self._known.pop(next(iter(self._known))).text)
        return frame


def notice_frame(kind: str, content: dict[str, object]) -> bytes:
    """Encode a message that is no event of the network: `dropped`, `gap`, `ended`."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(content))


class ReaderBuffer:
    """The bounded buffer of one reader."""

    def __init__(self, bytes_max: int, counters: Counters) -> None:
        self._bytes_max = bytes_max
        self._counters = counters
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._dropped = 0
        self._is_over = False
        self._arrived = asyncio.Event()

    def put(self, chunk: bytes, events: int) -> None:
        """Add a chunk; drop and count it where the buffer is full."""
        if self._size and self._size + len(chunk) > self._bytes_max:
            self._dropped += events
            self._counters.add("events_dropped", events)
            return
        self._chunks.append((chunk, events))
        self._size += len(chunk)
        self._arrived.set()

    def end(self, reason: str) -> None:
        """Let the reader finish, with a reason."""
        self._chunks.append((notice_frame("ended", {"reason": reason}), 0))
        self._is_over = True
        self._arrived.set()

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Return all that waits, with its number of events; empty after `timeout_s`; None at the end."""
        if not self._chunks and not self._dropped:
            if self._is_over:
                return None
            self._arrived.clear()
            timer = asyncio.get_running_loop().call_later(timeout_s, self._arrived.set)  # half of what a timeout costs
            try:
                await self._arrived.wait()
            finally:
                timer.cancel()
            if not self._chunks and not self._dropped:
                return b"", 0
        chunks, self._chunks, self._size = self._chunks, deque(), 0
        events = sum(count for _, count in chunks)
        parts = [chunk for chunk, _ in chunks]
        if self._dropped:
            parts.append(notice_frame("dropped", {"count": self._dropped}))
            self._dropped = 0
        return (parts[0] if len(parts) == 1 else b"".join(parts)), events


class LeakyBucket:
    """A leaky bucket that all writes fill: its level decides how long feeds pause."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._level = 0.0

    def add(self, writes: int) -> None:
        """Add some writes to the level."""
        now = self._clock()
        self._level = max(0.0, self._level - WRITES_PER_S * (now - self._at)) + writes
        self._at = now

    def rest_s(self) -> float:
        """Return the pause of a feed that has just written."""
        return REST_S + self._level / WRITES_PER_S


class Feed:
    """An ephemeral subscription and its readers.

    Between two writes it pauses: events wait in the subscription meanwhile and are taken all at once, so that each
    event of a fast stream costs its text and little else.
    """

    def __init__(
        self,
        gateway: Gateway,
        subscription: Subscription,
        resources: AsyncExitStack,
        form: Format,
        cache: FrameCache,
        bucket: LeakyBucket,
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._bucket = bucket
        self._subscription = subscription
        self._resources = resources
        self._form = form
        self._loop = asyncio.get_running_loop()
        self._ring: deque[Frame] = deque()
        self._ring_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._readers: dict[ReaderBuffer, None] = {}
        self._dropped = 0
        self.skip: Position | None = None
        """The position of the only reader: events of that home's stream up to there are not repeated."""
        self.is_over = False
        self.empty_since: float | None = self._loop.time()
        self._reading = asyncio.create_task(self._read())

    def join(self, after: str | None) -> ReaderBuffer | None:
        """Add a reader after a position; return None where that is not remembered."""
        while self._take_some():
            pass
        self._flush()  # what came before belongs to those who were here
        past: list[bytes] = []
        if after is not None:
            ids = [frame.id for frame in self._ring]
            if after not in ids:
                return None
            past = [frame.text for frame in list(self._ring)[ids.index(after) + 1 :]]
        reader = ReaderBuffer(self._gateway.settings.limits.stream_bytes, self._gateway.counters)
        if past:
            reader.put(b"".join(past), len(past))
        if self.is_over:
            reader.end(self._subscription.ended or "it ended")
        self._readers[reader] = None
        self.empty_since = None
        return reader

    def leave(self, reader: ReaderBuffer) -> None:
        """Remove a reader."""
        self._readers.pop(reader, None)
        if not self._readers:
            self.empty_since = self._loop.time()

    async def close(self) -> None:
        self.is_over = True
        self._reading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for reader in self._readers:
            reader.end("the gateway closed it")
        await self._subscription.close()
        await self._resources.aclose()

    async def _read(self) -> None:
        while (delivered := await self._subscription.next_()) is not None:
            self._take(delivered)
            while self._take_some():
                if self._pending_bytes > CHUNK_BYTES:
                    self._flush()
                await asyncio.sleep(0)  # others have their turn: readers, and those who publish
            if (replay := self._subscription.replay) is not None and not replay.is_over:
                if self._timer is None:
                    self._timer = self._loop.call_later(REST_S, self._flush)
            else:
                self._flush()
                await asyncio.sleep(self._bucket.rest_s())
        self._flush()
        self.is_over = True
        for reader in self._readers:
            reader.end(self._subscription.ended or "it ended")

    def _take_some(self) -> bool:
        """Take a batch of waiting events; return whether there may be more."""
        for _ in range(BATCH_EVENTS):
            delivered = self._subscription.poll()
            if delivered is None:
                return False
            self._take(delivered)
        return True

    def _take(self, delivered: Delivery) -> None:
        if self.skip is not None and _is_seen(delivered, self.skip):
            return
        frame = self._cache.of(delivered, self._form)
        self._pending.append(frame.text)
        self._pending_bytes += len(frame.text)
        self._ring.append(frame)
        self._ring_bytes += len(frame.text)
        while len(self._ring) > RING_EVENTS_MAX or self._ring_bytes > RING_BYTES_MAX:
            self._ring_bytes -= len(self._ring.popleft().text)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending:
            chunk = b"".join(pending)
            self._bucket.add(len(self._readers))
            for reader in self._readers:
                reader.put(chunk, len(pending))
        if self._subscription.dropped > self._dropped:
            missed = self._subscription.dropped - self._dropped
            self._dropped += missed
            self._gateway.counters.add("events_dropped", missed)
            for reader in self._readers:
                reader.put(notice_frame("dropped", {"count": missed}), 0)


def _is_seen(delivered: Delivery, position: Position) -> bool:
    one, other = delivered.key, position.key
    return (one.home, one.stream) == (other.home, other.stream) and one.number <= other.number


class FeedRegistry:
    """All feeds of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._shared: dict[tuple[str, str, Format], Feed] = {}
        self._locks: dict[tuple[str, str, Format], asyncio.Lock] = {}
        self._private: set[Feed] = set()
        self._cache = FrameCache()
        self._bucket = LeakyBucket(asyncio.get_running_loop().time)
        self._sweeper = asyncio.create_task(self._sweep())
        gateway.counters.gauges.append(lambda: {"feeds": float(len(self._shared) + len(self._private))})

    async def open(
        self, caller: Caller, filter_: str, form: Format, since: datetime | None, after: Position | None
    ) -> tuple[Feed, ReaderBuffer]:
        """Add a reader of a filter: from now on, from a moment, or from its last position."""
        if since is None:
            key = caller.token, filter_, form
            # Readers of one filter that come together must share one subscription.
            async with self._locks.setdefault(key, asyncio.Lock()):
                feed = self._shared.get(key)
                if feed is not None and feed.is_over:
                    del self._shared[key]
                    await feed.close()
                    feed = None
                if feed is not None and after is not None:
                    reader = feed.join(str(after))
                    if reader is not None:
                        self._gateway.counters.add("streams_resumed")
                        return feed, reader
                if after is None:
                    if feed is None:
                        feed = self._shared[key] = await self._create(caller, filter_, form, None)
                    return feed, _join_new(feed)
        return await self._open_private(caller, filter_, form, since, after)

    async def _open_private(
        self, caller: Caller, filter_: str, form: Format, since: datetime | None, after: Position | None
    ) -> tuple[Feed, ReaderBuffer]:
        moment = since
        if after is not None:
            moment = datetime.fromtimestamp(max(0, after.at_us - OVERLAP_US) / 1e6, UTC)
        try:
            feed = await self._create(caller, filter_, form, moment)
            is_gap = False
        except RefusedError:
            if after is None or since is not None:
                raise
            feed, is_gap = await self._create(caller, filter_, form, None), True  # no broker has an archive
        self._private.add(feed)
        feed.skip = after
        reader = _join_new(feed)
        if is_gap:
            reader.put(
                notice_frame("gap", {"reason": "what came since then is not known here; this goes on with now"}), 0
            )
        elif after is not None:
            self._gateway.counters.add("streams_resumed")
        return feed, reader

    async def _create(self, caller: Caller, filter_: str, form: Format, since: datetime | None) -> Feed:
        resources = AsyncExitStack()
        try:
            lease = await resources.enter_async_context(self._gateway.connections.use(caller))
            subscription = await lease.net.subscribe(filter_, since=since)
            return Feed(self._gateway, subscription, resources, form, self._cache, self._bucket)
        except BaseException:
            await resources.aclose()
            raise

    async def leave(self, feed: Feed, reader: ReaderBuffer) -> None:
        """Remove a reader; close a feed that only it used."""
        feed.leave(reader)
        if feed in self._private:
            self._private.discard(feed)
            await feed.close()

    async def close(self) -> None:
        """Close all feeds."""
        self._sweeper.cancel()
        for feed in (*self._shared.values(), *self._private):
            await feed.close()
        self._shared.clear()
        self._private.clear()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(LINGER_S / 4)
            now = asyncio.get_running_loop().time()
            for key, feed in list(self._shared.items()):
                lock = self._locks[key]
                if feed.empty_since is not None and now - feed.empty_since > LINGER_S and not lock.locked():
                    del self._shared[key], self._locks[key]
                    await feed.close()
            for key in [key for key, lock in self._locks.items() if key not in self._shared and not lock.locked()]:
                del self._locks[key]


def _join_new(feed: Feed) -> ReaderBuffer:
    reader = feed.join(None)
    assert reader is not None, "who wants nothing of the past is let in"
    return reader
