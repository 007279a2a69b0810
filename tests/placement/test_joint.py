"""One event is brought once, whoever asks meanwhile; several things are waited for in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.fanout import HomeFanout, Recipients
from meetpoint.placement.dissemination.single_flight import SingleFlight
from meetpoint.placement.dissemination.wait_all import when_all
from meetpoint.placement.entries.entry_table import Matched, add_to

A, B = HomeId(b"a"), HomeId(b"b")
EVENT = EventKey(HomeId(b"h"), 1, 1)


class Brought:
    """Stands for `HomeFanout.bring`: what was begun, to be ended by hand."""

    def __init__(self) -> None:
        self.begun: list[tuple[dict[HomeId, None], Callable[[bool], None]]] = []

    def bring(
        self,
        event: EventKey,
        settled: int,
        content: bytes,
        to: Matched,
        us: int,
        then: Callable[[bool], None],
        slow: Any,
    ) -> Mapping[HomeId, None]:
        self.begun.append((dict.fromkeys(to), then))
        return self.begun[-1][0]


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
    (there, end), *_ = brought.begun
    del there[A]
    ask("two", "here")
    ask("three", "elsewhere")
    assert len(brought.begun) == 2
    assert heard == [("two", (B,))], "what is waited for is said at once"
    end(well)
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
    recipients = Recipients((A, B), told.append, told.append)
    recipients.tell_slow()
    recipients.has(A)
    recipients.tell_slow()
    recipients.has(A)
    assert told == [(A, B)]
    recipients.has(B)
    recipients.finish(False)
    assert told == [(A, B), True]
    assert Recipients((), told.append, None).ended
    assert told[2:] == [True]


class Some(HomeFanout):
    """Brings to those that are said to have it."""

    def __init__(self, services: Runtime, has: set[HomeId]) -> None:
        self._services = services
        self._has = has

    def bring(self, *args: Any, **named: Any) -> Mapping[HomeId, None]:
        _, _, _, to, _, then = args
        open_ = {home: None for home in to if home not in self._has}
        if not open_:
            then(True)
        return open_


@pytest.mark.parametrize("has", [set(), {A}, {A, B}])
def test_what_has_not_said_in_time_that_it_has_an_event_is_left(has: set[HomeId]) -> None:
    ring = Ring()
    services = Runtime(Peer(ring.node(1), "n1", 1), ring, None, 1)  # type: ignore[arg-type]
    effects = services.begin(Instant(0))
    left: list[Mapping[HomeId, tuple[int, ...]]] = []
    to = {A: (1,), B: (2, 3)}
    Some(services, has).bring_soon(EVENT, 0, b"", to, 500, left.append)
    (timer,) = {effect.timer for effect in effects}  # type: ignore[union-attr]
    if has == {A, B}:
        assert left == [{}]
        assert len(effects) == 2, "there is nothing to wait for"
        return
    assert left == []
    services.begin(Instant(500))
    services.fired(timer)
    assert left == [{home: to[home] for home in (A, B) if home not in has}]


def test_what_a_home_wants_by_several_is_one() -> None:
    matched: Matched = {A: (3, 5)}
    add_to(matched, [(A, (4, 5)), (B, (1,))])
    assert matched == {A: (3, 4, 5), B: (1,)}
