"""What a home must know before it notifies of an event, where many of its publisher's events are on their way."""

from __future__ import annotations

import heapq
from types import SimpleNamespace
from typing import Any

import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.node.home.outbox import Outbox
from meetpoint.node.home.publisher_order import TOLD_MAX, ReorderBuffer, Watermark, Watermarks
from meetpoint.node.runtime.effects import SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from tests.node.world import CODEC, RING

PUBLISHING, HERE, OTHER = HomeId(b"p"), HomeId(b"h"), HomeId(b"o")
MANY = 3 * TOLD_MAX
SETTINGS = NodeSettings()


def key(number: int) -> EventKey:
    return EventKey(PUBLISHING, 1, number)


class Bench:
    """A home that takes some of a stream's events, all of which are on their way to another home that takes none."""

    def __init__(self, here: set[int]) -> None:
        self.runtime = Runtime(Peer(RING.node(1), "n1", 1), RING, CODEC, 1)
        self.outbox = Outbox(PUBLISHING)
        for number in range(1, MANY + 1):
            self.outbox.put(key(number), b"")
        self.had: list[int] = []
        directory: Any = SimpleNamespace(host=lambda home: None, get=lambda home: None)
        publisher: Any = SimpleNamespace(outbox=self.outbox)
        reach: Any = SimpleNamespace(may_reach=lambda event, home: event.number in here)
        self.watermarks = Watermarks(self.runtime, SETTINGS, directory, {PUBLISHING: publisher}, reach)
        self.turns = ReorderBuffer(
            HERE, self.runtime, SETTINGS, self.watermarks, lambda event: self.had.append(event.number)
        )
        self._timers: list[tuple[int, int]] = []
        self.now = 0
        self._effects = self.runtime.begin(Instant(0))
        self.turns.start()

    def take(self, number: int) -> None:
        self.turns.hold(key(number), "p", number, safe=True)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND_US)
        while True:
            for effect in self._effects:
                if isinstance(effect, SetTimer):
                    heapq.heappush(self._timers, (effect.at, effect.timer))
            self._effects = self.runtime.begin(Instant(self.now))
            if not self._timers or self._timers[0][0] > until:
                self.now = until
                return
            self.now, timer = heapq.heappop(self._timers)
            self._effects = self.runtime.begin(Instant(self.now))
            self.runtime.fired(timer)


@pytest.mark.parametrize("number", [1, TOLD_MAX, TOLD_MAX + 1, MANY])
def test_events_that_are_certainly_for_others_hold_up_none_however_many_they_are(number: int) -> None:
    bench = Bench(set())
    bench.take(number)
    bench.run(2)
    assert bench.had == [number]
    late = [each for each in range(1, MANY + 1) if each != number and bench.turns.has_taken(key(each))]
    assert late == [], "should one come after all, it is taken"


def test_an_event_that_may_come_is_waited_for_behind_however_many_that_are_for_others() -> None:
    before = 2 * TOLD_MAX
    bench = Bench({before})
    bench.take(MANY)
    bench.run(5)
    assert bench.had == []
    bench.take(before)
    bench.run(2)
    assert bench.had == [before, MANY]


def test_who_does_not_say_from_where_on_is_told_from_the_beginning() -> None:
    bench = Bench(set())
    told = bench.watermarks.tell(Watermark(0, PUBLISHING, 1, MANY, OTHER))
    assert (told.above, told.pending[0], len(told.pending), told.below) == (0, 1, TOLD_MAX, TOLD_MAX + 1)
    told = bench.watermarks.tell(Watermark(0, PUBLISHING, 1, MANY, OTHER, TOLD_MAX))
    assert (told.above, told.pending[0], told.below) == (TOLD_MAX, TOLD_MAX + 1, 2 * TOLD_MAX + 1)
