"""Live events for many readers: those who ask for the same thing share one subscription and one text of each event.

A feed remembers its last events for a while, also when nobody reads it any more, so that a reader who comes back soon
goes on exactly where it was. What a reader does not take in time is dropped and counted, and it is told how many.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import RefusedError
from meetpoint.client.subscription import Subscription
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.cloud_events import write
from meetpoint.gateway.events.positions import Position
from meetpoint.language.events.json import to_json

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Gateway

__all__ = ["Feed", "Feeds", "Format", "Pipe", "encode", "frame", "notice"]

Format: TypeAlias = Literal["json", "cloudevents"]

RING_EVENTS_MAX: Final = 1000
RING_BYTES_MAX: Final = 1 << 20
"""What a feed remembers of what it has sent."""
FRAMES_BYTES_MAX: Final = 4 << 20
"""What is remembered of events that several feeds take."""
CHUNK_BYTES: Final = 256 << 10
"""What is handed to readers at a time, and some events more."""
TURN_EVENTS: Final = 100
"""Events that are written to text before others have their turn."""
LINGER_S: Final = 20.0
"""How long a feed goes on when nobody reads it."""
PACE_S: Final = 0.01
"""What comes faster than this goes out together. What comes after a pause goes out at once."""
WRITES_PER_S: Final = 400.0
"""Of all streams together: where many are busy, each waits longer and gets more at a time."""
OVERLAP_US: Final = 5_000_000
"""History is read from so long before the moment to go on at: brokers' clocks differ, and events take their time."""


def encode(delivered: Delivery, form: Format) -> bytes:
    """An event as one line."""
    if form == "cloudevents":
        return write(delivered.event)
    text = to_json(delivered.event)
    return text[:-1] + b',"redelivered":true}' if delivered.redelivered else text


class Framed(NamedTuple):
    """A server-sent event, and its id in it."""

    id: str
    text: bytes


def frame(delivered: Delivery, form: Format) -> Framed:
    """An event as a server-sent event."""
    id_ = str(Position(delivered.key, time.time_ns() // 1000))
    return Framed(id_, b"id: %b\ndata: %b\n\n" % (id_.encode(), encode(delivered, form)))


class Frames:
    """Events that several feeds take, by filters of their own, are written once, while they are remembered here."""

    def __init__(self) -> None:
        self._known: dict[tuple[EventKey, Format, bool], Framed] = {}
        self._bytes = 0

    def of(self, delivered: Delivery, form: Format) -> Framed:
        """An event as a server-sent event."""
        if len(delivered.matched_by) < 2:
            return frame(delivered, form)
        key = delivered.key, form, delivered.redelivered
        framed = self._known.get(key)
        if framed is None:
            framed = self._known[key] = frame(delivered, form)
            self._bytes += len(framed.text)
            while self._bytes > FRAMES_BYTES_MAX:
                self._bytes -= len(self._known.pop(next(iter(self._known))).text)
        return framed


def notice(kind: str, said: dict[str, object]) -> bytes:
    """A server-sent event that is no event of the network: `dropped`, `gap`, `ended`."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(said))


class Pipe:
    """What waits for one reader."""

    def __init__(self, bytes_max: int, count_dropped: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._count_dropped = count_dropped
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._dropped = 0
        self._is_over = False
        self._arrived = asyncio.Event()

    def put(self, chunk: bytes, events: int) -> None:
        """Some events; dropped where too much waits already."""
        if self._size and self._size + len(chunk) > self._bytes_max:
            self._dropped += events
            self._count_dropped(events)
            return
        self._chunks.append((chunk, events))
        self._size += len(chunk)
        self._arrived.set()

    def end(self, reason: str) -> None:
        """Nothing more comes."""
        self._chunks.append((notice("ended", {"reason": reason}), 0))
        self._is_over = True
        self._arrived.set()

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """All that waits, with how many events that is; nothing of it after `timeout_s`; None: nothing more comes."""
        if not self._chunks and not self._dropped:
            if self._is_over:
                return None
            self._arrived.clear()
            alarm = asyncio.get_running_loop().call_later(timeout_s, self._arrived.set)  # half of what a timeout costs
            try:
                await self._arrived.wait()
            finally:
                alarm.cancel()
            if not self._chunks and not self._dropped:
                return b"", 0
        chunks, self._chunks, self._size = self._chunks, deque(), 0
        events = sum(count for _, count in chunks)
        parts = [chunk for chunk, _ in chunks]
        if self._dropped:
            parts.append(notice("dropped", {"count": self._dropped}))
            self._dropped = 0
        return (parts[0] if len(parts) == 1 else b"".join(parts)), events


class Pace:
    """How long feeds rest when they have written: a bucket that leaks, and into which each write pours."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._level = 0.0

    def pour(self, writes: int) -> None:
        """A feed writes so often."""
        now = self._clock()
        self._level = max(0.0, self._level - WRITES_PER_S * (now - self._at)) + writes
        self._at = now

    def rest_s(self) -> float:
        """How long a feed rests that has just written."""
        return PACE_S + self._level / WRITES_PER_S


class Feed:
    """One ephemeral subscription and its readers.

    Between two turns at sending it rests: what comes meanwhile waits in the subscription and is taken all at once, so
    that of a fast stream each event costs its text and little else.
    """

    def __init__(
        self,
        gateway: Gateway,
        subscription: Subscription,
        held: AsyncExitStack,
        form: Format,
        frames: Frames,
        pace: Pace,
    ) -> None:
        self._gateway = gateway
        self._frames = frames
        self._pace = pace
        self._subscription = subscription
        self._held = held
        self._form = form
        self._loop = asyncio.get_running_loop()
        self._ring: deque[Framed] = deque()
        self._ring_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._pipes: dict[Pipe, None] = {}
        self._dropped = 0
        self.skip: Position | None = None
        """Where the only reader was: of that home's stream, what is up to there has been seen."""
        self.is_over = False
        self.empty_since: float | None = self._loop.time()
        self._reading = asyncio.create_task(self._read())

    def join(self, after: str | None) -> Pipe | None:
        """A new reader; `after` is the position it has seen, None of which is returned where that is not remembered."""
        while self._take_some():
            pass
        self._flush()  # what came before belongs to those who were here
        past: list[bytes] = []
        if after is not None:
            ids = [framed.id for framed in self._ring]
            if after not in ids:
                return None
            past = [framed.text for framed in list(self._ring)[ids.index(after) + 1 :]]
        counts = self._gateway.counts
        pipe = Pipe(self._gateway.settings.limits.stream_bytes, lambda events: counts.add("events_dropped", events))
        if past:
            pipe.put(b"".join(past), len(past))
        if self.is_over:
            pipe.end(self._subscription.ended or "it ended")
        self._pipes[pipe] = None
        self.empty_since = None
        return pipe

    def leave(self, pipe: Pipe) -> None:
        """A reader goes."""
        self._pipes.pop(pipe, None)
        if not self._pipes:
            self.empty_since = self._loop.time()

    async def close(self) -> None:
        """End it."""
        self.is_over = True
        self._reading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for pipe in self._pipes:
            pipe.end("the gateway closed it")
        await self._subscription.close()
        await self._held.aclose()

    async def _read(self) -> None:
        while (delivered := await self._subscription.next_()) is not None:
            self._take(delivered)
            while self._take_some():
                if self._pending_bytes > CHUNK_BYTES:
                    self._flush()
                await asyncio.sleep(0)  # others have their turn: readers, and those who publish
            if (replay := self._subscription.replay) is not None and not replay.is_over:
                if self._timer is None:
                    self._timer = self._loop.call_later(PACE_S, self._flush)
            else:
                self._flush()
                await asyncio.sleep(self._pace.rest_s())
        self._flush()
        self.is_over = True
        for pipe in self._pipes:
            pipe.end(self._subscription.ended or "it ended")

    def _take_some(self) -> bool:
        """Take some of what has come; whether there may be more."""
        for _ in range(TURN_EVENTS):
            delivered = self._subscription.poll()
            if delivered is None:
                return False
            self._take(delivered)
        return True

    def _take(self, delivered: Delivery) -> None:
        if self.skip is not None and _is_seen(delivered, self.skip):
            return
        framed = self._frames.of(delivered, self._form)
        self._pending.append(framed.text)
        self._pending_bytes += len(framed.text)
        self._ring.append(framed)
        self._ring_bytes += len(framed.text)
        while len(self._ring) > RING_EVENTS_MAX or self._ring_bytes > RING_BYTES_MAX:
            self._ring_bytes -= len(self._ring.popleft().text)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending:
            chunk = b"".join(pending)
            self._pace.pour(len(self._pipes))
            for pipe in self._pipes:
                pipe.put(chunk, len(pending))
        if self._subscription.dropped > self._dropped:
            missed = self._subscription.dropped - self._dropped
            self._dropped += missed
            self._gateway.counts.add("events_dropped", missed)
            for pipe in self._pipes:
                pipe.put(notice("dropped", {"count": missed}), 0)


def _is_seen(delivered: Delivery, position: Position) -> bool:
    one, other = delivered.key, position.key
    return (one.home, one.stream) == (other.home, other.stream) and one.number <= other.number


class Feeds:
    """All feeds of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._shared: dict[tuple[str, str, Format], Feed] = {}
        self._making: dict[tuple[str, str, Format], asyncio.Lock] = {}
        self._alone: set[Feed] = set()
        self._frames = Frames()
        self._pace = Pace(asyncio.get_running_loop().time)
        self._sweeper = asyncio.create_task(self._sweep())
        gateway.counts.gauges.append(lambda: {"feeds": float(len(self._shared) + len(self._alone))})

    async def open(
        self, caller: Caller, filter_: str, form: Format, since: datetime | None, after: Position | None
    ) -> tuple[Feed, Pipe]:
        """A reader of what a filter accepts, from now on, from a moment on, or from where it was."""
        if since is None:
            key = caller.token, filter_, form
            async with self._making.setdefault(key, asyncio.Lock()):
                feed = self._shared.get(key)
                if feed is not None and feed.is_over:
                    del self._shared[key]
                    await feed.close()
                    feed = None
                if feed is not None and after is not None:
                    pipe = feed.join(str(after))
                    if pipe is not None:
                        self._gateway.counts.add("streams_resumed")
                        return feed, pipe
                if after is None:
                    if feed is None:
                        feed = self._shared[key] = await self._make(caller, filter_, form, None)
                    return feed, _joined(feed)
        return await self._open_alone(caller, filter_, form, since, after)

    async def _open_alone(
        self, caller: Caller, filter_: str, form: Format, since: datetime | None, after: Position | None
    ) -> tuple[Feed, Pipe]:
        moment = since
        if after is not None:
            moment = datetime.fromtimestamp(max(0, after.at_us - OVERLAP_US) / 1e6, UTC)
        try:
            feed = await self._make(caller, filter_, form, moment)
            is_gap = False
        except RefusedError:
            if after is None or since is not None:
                raise
            feed, is_gap = await self._make(caller, filter_, form, None), True  # no broker has an archive
        self._alone.add(feed)
        feed.skip = after
        pipe = _joined(feed)
        if is_gap:
            pipe.put(notice("gap", {"reason": "what came since then is not known here; this goes on with now"}), 0)
        elif after is not None:
            self._gateway.counts.add("streams_resumed")
        return feed, pipe

    async def _make(self, caller: Caller, filter_: str, form: Format, since: datetime | None) -> Feed:
        held = AsyncExitStack()
        try:
            lease = await held.enter_async_context(self._gateway.connections.use(caller))
            subscription = await lease.net.subscribe(filter_, since=since)
            return Feed(self._gateway, subscription, held, form, self._frames, self._pace)
        except BaseException:
            await held.aclose()
            raise

    async def leave(self, feed: Feed, pipe: Pipe) -> None:
        """A reader goes."""
        feed.leave(pipe)
        if feed in self._alone:
            self._alone.discard(feed)
            await feed.close()

    async def close(self) -> None:
        """End all."""
        self._sweeper.cancel()
        for feed in (*self._shared.values(), *self._alone):
            await feed.close()
        self._shared.clear()
        self._alone.clear()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(LINGER_S / 4)
            now = asyncio.get_running_loop().time()
            for key, feed in list(self._shared.items()):
                lock = self._making[key]
                if feed.empty_since is not None and now - feed.empty_since > LINGER_S and not lock.locked():
                    del self._shared[key], self._making[key]
                    await feed.close()
            for key in [key for key, lock in self._making.items() if key not in self._shared and not lock.locked()]:
                del self._making[key]


def _joined(feed: Feed) -> Pipe:
    pipe = feed.join(None)
    assert pipe is not None, "who wants nothing of the past is let in"
    return pipe
