"""When an event that has come to a home has its turn: in its publisher's order (`ordering`), or after a while.

Of the events of one stream the lowest number goes first, once it is safe and nothing that may come before it need be
waited for. Of a publisher that has moved to another broker two streams may be held here: what it published there last
was settled before it went on here (`inputs.Publish.after`), so if that is for this home it has come; it goes first.

A publisher that got no answer sends its events again, and they get later numbers, maybe of the same stream. Of the two
that are one event the first to come is taken, and it may be the later: it goes where the earlier one would have gone.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.node.home.publisher_order import Source, Watermark, Watermarked, Watermarks
from meetpoint.node.home.sequence_set import SequenceSet
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["ReorderBuffer"]

ASK_US: Final = 5_000
"""How long a home waits before it asks what may come before an event: most often the next one brings the answer."""

StreamKey = tuple[HomeId, int]


class _Held:
    """An event that waits for its turn."""

    __slots__ = ("publisher", "safe", "sequence", "since")

    def __init__(self, publisher: str, sequence: int, since: int, safe: bool) -> None:
        self.publisher = publisher
        self.sequence = sequence
        self.since = since
        self.safe = safe


class ReorderBuffer:
    """What one home has taken of all streams, and what of it waits for its turn; `has_turn` is told when it comes."""

    def __init__(
        self,
        home: HomeId,
        services: Runtime,
        settings: NodeSettings,
        watermarks: Watermarks,
        has_turn: Callable[[EventKey], None],
    ) -> None:
        self._home = home
        self._services = services
        self._settings = settings
        self._watermarks = watermarks
        self._has_turn = has_turn
        self._sources: dict[StreamKey, Source] = {}
        self._held: dict[EventKey, _Held] = {}
        self._publishers: dict[str, dict[StreamKey, list[tuple[int, int]]]] = {}
        """What is held of each publisher, by streams: sequence and number, a heap; the first of it is held still."""
        self.serving = False

    def recover(self, home: HomeId, stream: int, seen: SequenceSet) -> None:
        """Take back what was on disk."""
        self._sources[home, stream] = Source(seen)

    def start(self) -> None:
        """Turns are given from now on."""
        self.serving = True
        for key in list(self._sources):
            self._go_on(key)

    def source(self, event: EventKey) -> Source:
        """The stream of an event."""
        source = self._sources.get((event.home, event.stream))
        if source is None:
            source = self._sources[event.home, event.stream] = Source()
        return source

    def has_taken(self, event: EventKey) -> bool:
        """Whether the event has come here before."""
        source = self._sources.get((event.home, event.stream))
        return source is not None and event.number in source.seen

    def skip_to(self, event: EventKey, floor: int) -> None:
        """All events of the stream up to a number are settled: none of them will come."""
        source = self.source(event)
        if floor > source.seen.floor:
            source.skip_to(floor)
            if source.held:
                self._go_on((event.home, event.stream))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def pass_by(self, event: EventKey) -> None:
        """An event has come that nobody here wants."""
        source = self.source(event)
        source.take(event.number)
        if source.held:
            self._go_on((event.home, event.stream))

    def hold(self, event: EventKey, publisher: str, sequence: int, *, safe: bool) -> None:
        """An event has come, and waits for its turn."""
        source = self.source(event)
        source.take(event.number)
        source.hold(event.number)
        self._held[event] = _Held(publisher, sequence, self._services.now, safe)
        streams = self._publishers.setdefault(publisher, {})
        heappush(streams.setdefault((event.home, event.stream), []), (sequence, event.number))
        if safe:
            self._go_on((event.home, event.stream))

    def is_safe(self, event: EventKey) -> None:
        """An event that is held may be notified, as far as disks are concerned."""
        held = self._held.get(event)
        if held is not None:
            held.safe = True
        self._go_on((event.home, event.stream))

    def drop(self, event: EventKey) -> None:
        """Nobody wants an event any more, whether it is held or not."""
        if event in self._held:
            self._let_go(event)

    def _let_go(self, event: EventKey) -> list[StreamKey]:
        """An event is held no longer; returns which other streams may have waited for that."""
        publisher = self._held.pop(event).publisher
        key = event.home, event.stream
        streams = self._publishers[publisher]
        held = streams[key]
        while held and EventKey(*key, held[0][1]) not in self._held:
            heappop(held)
        if not held:
            del streams[key]
        if not streams:
            del self._publishers[publisher]
        return [other for other in streams if other != key]

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    def _go_on(self, key: StreamKey) -> None:
        """Give turns as far as possible; what waits for others makes this home ask for them."""
        todo = [key]
        while todo and self.serving:
            key = todo.pop()
            source = self._sources[key]
            while source.held:
                event = EventKey(*key, source.held[0])
                held = self._held.get(event)
                if held is None:
                    source.release()
                    continue
                if not self._may_go(key, event, held, source):
                    break
                first = EventKey(*key, self._publishers[held.publisher][key][0][1])
                if not self._held[first].safe:
                    break
                todo += self._let_go(first)
                self._has_turn(first)

    def _may_go(self, key: StreamKey, event: EventKey, held: _Held, source: Source) -> bool:
        if not held.safe:
            return False
        wait = ASK_US
        if not source.is_clear(event.number):
            told = self._watermarks.here(self._question(key, source))
            if told is not None:
                source.learn(told)
                wait = 0
        is_clear = source.is_clear(event.number)
        if is_clear and not self._is_behind(key, held):
            return True
        if self._services.now - held.since >= self._settings.hold_us:
            self._services.observe("order_given_up")
            source.give_up(event.number)
            return True
        self._ask_soon(key, source, self._settings.query_timeout_us // 4 if is_clear else wait)
        return False

    def _is_behind(self, key: StreamKey, mine: _Held) -> bool:
        """Whether an earlier event of the same publisher is held that came by another broker."""
        streams = self._publishers[mine.publisher]
        return len(streams) > 1 and any(
            other != key and held[0][0] < mine.sequence for other, held in streams.items()
        )  # fmt: skip

    def _ask_soon(self, key: StreamKey, source: Source, delay_us: int) -> None:
        if not source.asking:
            source.asking = True
            self._services.after(delay_us, lambda: self._ask(key, source))

    def _ask(self, key: StreamKey, source: Source) -> None:
        if not self.serving or not source.held or source.is_clear(source.held[0]):
            source.asking = False
            self._go_on(key)
            return

        def answered(told: Watermarked | None) -> None:
            source.asking = False
            if told is not None:
                source.learn(told)
            else:  # never at once: whoever does not answer now would not in the next moment
                self._ask_soon(key, source, self._settings.query_timeout_us // 4)
            self._go_on(key)

        self._services.observe("order_asked")
        self._watermarks.ask(self._question(key, source), answered)

    def _question(self, key: StreamKey, source: Source) -> Watermark:
        """What may still come before the lowest that is held, apart from what need not be waited for."""
        return Watermark(0, *key, source.held[0], self._home, source.clear.floor)

    def holds(self, event: EventKey) -> bool:
        """Whether an event waits for its turn."""
        return event in self._held

    def check(self) -> None:
        """Assert what must hold at all times."""
        waiting = {EventKey(*key, number) for key, source in self._sources.items() for number in source.held}
        assert self._held.keys() <= waiting
        held = {EventKey(*key, number) for streams in self._publishers.values() for key, each in streams.items()
                for _, number in each}  # fmt: skip
        assert self._held.keys() <= held
