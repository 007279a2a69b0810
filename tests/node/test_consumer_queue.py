"""Lines: one by one what they promise, and all steps in any order against a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US as SECOND
from meetpoint.node.home.consumer_queue import ConsumerQueue
from meetpoint.node.settings import DAY_US, NodeSettings, QueueLimits

PROMISED = NodeSettings().line
SMALL = QueueLimits(6, 100, 50 * SECOND, 3 * SECOND, (1 * SECOND, 4 * SECOND))


def key(number: int) -> EventKey:
    return EventKey(HomeId(b"h"), 1, number)


def filled(count: int, limits: QueueLimits = PROMISED, window: int = 256) -> ConsumerQueue:
    line = ConsumerQueue(limits, window)
    for number in range(1, count + 1):
        assert line.put(key(number), 10, 0) == []
    return line


def taken(line: ConsumerQueue, now: int) -> list[tuple[int, bool]]:
    return [(event.number, again) for event, again in line.take(now)]


# -- one by one --------------------------------------------------------------------------------------------------------


def test_what_is_promised_is_what_is_set() -> None:
    assert (
        QueueLimits(100_000, 256 << 20, 7 * DAY_US, 30 * SECOND, (SECOND, 5 * SECOND, 30 * SECOND, 120 * SECOND))
        == PROMISED
    )


def test_a_window_of_events_is_out_at_a_time() -> None:
    line = filled(5, window=2)
    assert taken(line, 0) == [(1, False), (2, False)]
    assert taken(line, 0) == []
    assert line.remove(key(2))
    assert taken(line, 0) == [(3, False)]
    line.attend(4)
    assert taken(line, 0) == [(4, False), (5, False)]


def test_what_is_not_acknowledged_comes_again_after_1_5_30_and_120_seconds_and_is_dead_then() -> None:
    line = filled(1)
    now, came = 0, []
    while len(line):
        came += [now // SECOND] * len(line.take(now))
        due = line.due()
        assert due is not None
        assert due > now
        now = due
        dead = line.tend(now)
    assert came == [0, 31, 66, 126, 276]
    assert [(each.event, each.reason) for each in dead] == [
        (key(1), "not acknowledged within 30 s, the last of 5 tries")
    ]
    assert now == 306 * SECOND


def test_what_is_rejected_is_set_aside_and_holds_nothing_up() -> None:
    line = filled(3, window=1)
    assert taken(line, 0) == [(1, False)]
    assert line.reject(key(1), "cannot read it", 0) is None
    assert taken(line, 0) == [(2, False)]
    line.remove(key(2))
    assert taken(line, 1 * SECOND) == [(1, True)], "its turn has come again"
    assert line.reject(key(3), "nobody has seen it yet", 0) is None
    assert taken(line, 1 * SECOND) == []


def test_the_last_reason_is_told() -> None:
    line = filled(1)
    for number in range(5):
        now = number * 1000 * SECOND
        assert taken(line, now) == [(1, number > 0)]
        dead = line.reject(key(1), f"reason {number}", now)
        assert (dead is None) == (number < 4)
    assert dead is not None
    assert dead.reason == "reason 4, the last of 5 tries"
    assert len(line) == 0


def test_while_nobody_is_there_nothing_goes_out_and_no_try_is_counted() -> None:
    line = filled(3)
    for _ in range(10):
        assert [number for number, _ in taken(line, 0)] == [1, 2, 3]
        line.leave()
        assert taken(line, 0) == []
        assert line.tend(40 * SECOND) == []
        line.attend(256)
    assert taken(line, 0) == [(1, True), (2, True), (3, True)]
    assert line.reject(key(1), "", 0) is None, "it was the first try"
    assert line.due() == SECOND


def test_an_event_that_is_set_aside_when_nobody_is_there_keeps_its_tries() -> None:
    line = filled(1)
    for _ in range(4):
        assert len(line.take(0)) == 1
        line.reject(key(1), "", 0)
        line._aside = [(0, key(1))]
        line._items[key(1)].due = 0
    line.leave()
    assert line.due() == PROMISED.age_us_max, "nothing is to be done until someone comes"
    line.attend(1)
    assert taken(line, 0) == [(1, True)]
    assert line.reject(key(1), "", 0) is not None


def test_a_paused_line_waits() -> None:
    line = filled(2)
    line.paused = True
    assert taken(line, 0) == []
    line.paused = False
    assert taken(line, 0) == [(1, False), (2, False)]


@pytest.mark.parametrize("is_out", [False, True])
def test_beyond_its_limits_the_oldest_leaves_with_a_reason(is_out: bool) -> None:
    line = filled(6, SMALL)
    if is_out:
        assert len(line.take(0)) == 6
    (dead,) = line.put(key(7), 10, 1)
    assert dead.event == key(1)
    assert "more than 6 events" in dead.reason
    (one, two) = line.put(key(8), 60, 1)
    assert [one.event, two.event] == [key(2), key(3)]
    assert "MiB" in two.reason
    assert line.tend(49 * SECOND) == []
    old = line.tend(50 * SECOND)
    assert {each.event for each in old} == {key(4), key(5), key(6)}
    assert "days" in old[0].reason
    line.check()


def test_one_event_larger_than_all_that_may_wait_waits_alone() -> None:
    line = filled(2, SMALL)
    assert len(line.put(key(3), 1000, 0)) == 2
    assert line.events == [key(3)]


def test_a_line_that_is_full_and_paused_is_not_looked_at_in_vain() -> None:
    line = filled(2, window=1)
    line.take(0)
    line.reject(key(1), "", 0)
    line.take(0)
    due = line.due()
    assert due == 30 * SECOND, "what is set aside has no room to come again, and nobody need look"


def test_a_long_line_stays_small_in_memory() -> None:
    line = ConsumerQueue(PROMISED, 10)
    for number in range(1, 20_000):
        line.put(key(number), 1, 0)
        line.take(0)
        line.remove(key(number))
    assert len(line._waiting) + len(line._notified) + len(line._aside) < 300
    line.put(key(20_000), 1, 0)
    for number in range(1, 10_000):
        line.take(number * 1000 * SECOND)
        line.leave()
        line.attend(10)
    assert len(line._waiting) + len(line._notified) + len(line._aside) < 300


# -- against a model ---------------------------------------------------------------------------------------------------


@dataclass
class Event:
    size: int
    since: int
    notified: bool
    tries: int = 0
    state: str = "waiting"
    due: int = 0


@dataclass
class Model:
    """Everything in plain lists, looked through from the front each time."""

    window: int
    present: bool = True
    paused: bool = False
    events: dict[int, Event] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    def out(self) -> list[int]:
        return [number for number, event in self.events.items() if event.state == "out"]

    def drop(self, number: int) -> None:
        del self.events[number]
        if number in self.waiting:
            self.waiting.remove(number)

    def put(self, number: int, size: int, now: int, notified: bool) -> list[int]:
        self.events[number] = Event(size, now, notified)
        self.waiting.append(number)
        dead = []
        while len(self.events) > SMALL.events_max or (
            sum(event.size for event in self.events.values()) > SMALL.bytes_max and len(self.events) > 1
        ):
            dead.append(next(iter(self.events)))
            self.drop(dead[-1])
        return dead

    def take(self, now: int) -> list[tuple[int, bool]]:
        came = []
        while self.present and not self.paused and len(self.out()) < self.window:
            aside = sorted((event.due, n) for n, event in self.events.items() if event.state == "aside")
            if aside and aside[0][0] <= now:
                number = aside[0][1]
            elif self.waiting:
                number = self.waiting.pop(0)
            else:
                break
            event = self.events[number]
            came.append((number, event.notified))
            event.state, event.notified, event.due = "out", True, now + SMALL.acknowledge_us
            event.tries += 1
        return came

    def fail(self, number: int, now: int) -> list[int]:
        event = self.events[number]
        if event.tries == SMALL.tries_max:
            self.drop(number)
            return [number]
        event.state, event.due = "aside", now + SMALL.retries_us[event.tries - 1]
        return []

    def tend(self, now: int) -> list[int]:
        late = sorted((self.events[number].due, number) for number in self.out() if self.events[number].due <= now)
        dead = [each for _, number in late for each in self.fail(number, now)]
        old = [number for number, event in self.events.items() if now - event.since >= SMALL.age_us_max]
        for number in old:
            self.drop(number)
        return dead + old

    def leave(self) -> None:
        self.present = False
        back = self.out()
        for number in back:
            self.events[number].state = "waiting"
            self.events[number].tries -= 1
        self.waiting = back + self.waiting


class Lines(RuleBasedStateMachine):
    """Whatever happens to a line, it does as the model does."""

    numbers = Bundle("numbers")

    def __init__(self) -> None:
        super().__init__()
        self.now = self.count = 0
        self.line = ConsumerQueue(SMALL, 2)
        self.model = Model(2)

    @rule(target=numbers, size=st.integers(1, 60), notified=st.booleans())
    def put(self, size: int, notified: bool) -> int:
        self.count += 1
        dead = self.line.put(key(self.count), size, self.now, notified=notified)
        assert sorted(each.event.number for each in dead) == sorted(
            self.model.put(self.count, size, self.now, notified)
        )
        return self.count

    @rule()
    def take(self) -> None:
        came = taken(self.line, self.now)
        wanted = self.model.take(self.now)
        first = [number for number, again in came if not again]
        assert first == sorted(first), "what goes out first goes out in order"
        assert sorted(came) == sorted(wanted)
        assert first == [number for number, again in wanted if not again]

    @rule(number=consumes(numbers))
    def acknowledge(self, number: int) -> None:
        assert self.line.remove(key(number)) == (number in self.model.events)
        if number in self.model.events:
            self.model.drop(number)

    @rule(number=numbers)
    def reject(self, number: int) -> None:
        dead = self.line.reject(key(number), "no", self.now)
        failed = self.model.fail(number, self.now) if number in self.model.out() else []
        assert ([] if dead is None else [dead.event.number]) == failed

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule()
    def wait_until_due(self) -> None:
        due = self.line.due()
        if due is not None:
            self.now = max(self.now, due)
            self.tend()

    @rule()
    def tend(self) -> None:
        dead = self.line.tend(self.now)
        assert sorted(each.event.number for each in dead) == sorted(self.model.tend(self.now))

    @rule()
    def leave(self) -> None:
        self.line.leave()
        self.model.leave()

    @rule(window=st.integers(1, 4))
    def attend(self, window: int) -> None:
        self.line.attend(window)
        self.model.present, self.model.window = True, window

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.line.paused = self.model.paused = paused

    @invariant()
    def holds(self) -> None:
        self.line.check()
        assert [event.number for event in self.line.events] == list(self.model.events)
        assert self.line.out == len(self.model.out())


TestLines = Lines.TestCase
