"""One event is brought once, whoever asks meanwhile; several things are waited for in any order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.fanout import HomeFanout, Recipients, SingleFlight, when_all
from meetpoint.placement.entries.entry_table import Matched, add_to

A, B = HomeId(b"a"), HomeId(b"b")
EVENT = EventKey(HomeId(b"h"), 1, 1)


class Brought:
    """Stands for `HomeFanout.bring`: what was begun, to be ended by hand."""

    def __init__(self) -> None:
        self.begun: list[Recipients] = []

    def bring(self, event: EventKey, floor: int, content: bytes, recipients: Recipients, us: int) -> None:
        self.begun.append(recipients)


@pytest.mark.parametrize("well", [True, False])
def test_all_who_ask_for_the_same_wait_for_one_bringing(well: bool) -> None:
    brought = Brought()
    joint: SingleFlight[str] = SingleFlight(brought.bring)
    heard: list[tuple[str, object]] = []

    def ask(who: str, key: str) -> None:
        def then(well: bool) -> None:
            heard.append((who, well))

        def slow(to: tuple[HomeId, ...]) -> None:
            heard.append((who, to))

        if not joint.join(key, then, slow):
            joint.begin(key, EVENT, 0, b"", {A: (1,), B: (2,)}, then, slow)

    ask("one", "here")
    first = brought.begun[0]
    first.has(A)
    ask("two", "here")
    ask("three", "elsewhere")
    assert len(brought.begun) == 2
    assert heard == [("two", (B,))], "what is waited for is said at once"
    first.has(B) if well else first.give_up()
    assert heard[1:] == [("one", well), ("two", well)]
    ask("four", "here")
    assert len(brought.begun) == 3, "what is over is begun anew"


def test_the_last_of_several_calls_back_once() -> None:
    calls: list[int] = []
    one_is_done = when_all(3, lambda: calls.append(1))
    for _ in range(2):
        one_is_done()
    assert calls == []
    for _ in range(3):
        one_is_done()
    assert calls == [1]


def test_recipients_are_told_of_once() -> None:
    told: list[object] = []
    recipients = Recipients({A: (1,), B: (2,)})
    recipients.ended.then(told.append)
    recipients.slow.then(told.append)
    recipients.is_slow()
    recipients.has(A)
    recipients.is_slow()
    recipients.has(A)
    assert told == [(A, B)]
    recipients.has(B)
    recipients.give_up()
    assert told == [(A, B), True]


@pytest.mark.parametrize("well", [True, False])
def test_a_part_of_the_recipients_tells_the_whole(well: bool) -> None:
    whole = Recipients({A: (1,), B: (2,)})
    part = Recipients({B: (2,)}, whole)
    part.is_slow()
    assert whole.slow.is_set
    if well:
        part.has(B)
        assert list(whole.open) == [A]
        assert part.ended.is_set
        assert not whole.ended.is_set
    else:
        part.give_up()
        assert whole.ended.is_set


class Some(HomeFanout):
    """Brings to those that are said to have it."""

    def __init__(self, runtime: Runtime, has: set[HomeId]) -> None:
        self._runtime = runtime
        self._has = has

    def bring(self, event: EventKey, floor: int, content: bytes, recipients: Recipients, within_us: int) -> None:
        for home in self._has:
            recipients.has(home)


@pytest.mark.parametrize("has", [set(), {A}, {A, B}])
def test_what_has_not_said_in_time_that_it_has_an_event_is_left(has: set[HomeId]) -> None:
    ring = Ring()
    runtime = Runtime(Peer(ring.node(1), "n1", 1), ring, None, 1)  # type: ignore[arg-type]
    effects = runtime.begin(Instant(0))
    left: list[Mapping[HomeId, tuple[int, ...]]] = []
    to = {A: (1,), B: (2, 3)}
    Some(runtime, has).bring_soon(EVENT, 0, b"", to, 500).then(left.append)
    (timer,) = {effect.timer for effect in effects}  # type: ignore[union-attr]
    if has == {A, B}:
        assert left == [{}]
        assert len(effects) == 2, "there is nothing to wait for"
        return
    assert left == []
    runtime.begin(Instant(500))
    runtime.fired(timer)
    assert left == [{home: to[home] for home in (A, B) if home not in has}]


def test_what_a_home_wants_by_several_is_one() -> None:
    matched: Matched = {A: (3, 5)}
    add_to(matched, [(A, (4, 5)), (B, (1,))])
    assert matched == {A: (3, 4, 5), B: (1,)}
