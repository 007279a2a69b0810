"""Placing without what is covered, at one home with a planter and a disk of its own: at every moment, whatever crashes,
each acknowledged conjunction is covered by something placed. And what is placed in the end are the maximal ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from meetpoint.language.syntax.render import render
from meetpoint.node.runtime.flow import DONE, Signal
from meetpoint.placement.entries import covered_placement, placement
from meetpoint.placement.entries.covered_placement import Barrier, CoveredPlacement
from meetpoint.placement.entries.placement import Placed, PlacedSubscription, Placement
from tests.placement.one_home import HOME, World
from tests.placement.test_covering import FILTERS
from tests.tiers import SOAK


class Lives(RuleBasedStateMachine):
    """All that may happen to one home, in any order."""

    names = st.sampled_from("pqrst")
    texts = st.sampled_from(
        [*FILTERS[:4], "a >= 0 AND a <= 15", "a > 1", "a > 2", "a > 2 OR b < 9", "b < 9", "TRUE", "a = 3 OR b = 1"]
    )

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(name=names, text=texts, flushed=st.integers(0, 3))
    def put(self, name: str, text: str, flushed: int) -> None:
        self.world.change(name, text)
        self.world.flush(flushed)

    @rule(name=names, flushed=st.integers(0, 3))
    def end(self, name: str, flushed: int) -> None:
        self.world.change(name, None)
        self.world.flush(flushed)

    @rule(name=names)
    def ask(self, name: str) -> None:
        if name in self.world.home.subscriptions:
            self.world.ask(name)

    @rule()
    def write(self) -> None:
        self.world.flush(3)

    @rule(at=st.integers(0, 5), heard=st.booleans())
    def arrive(self, at: int, heard: bool) -> None:
        self.world.arrive(at, heard=heard)

    @rule()
    def all_arrive(self) -> None:
        for _ in range(len(self.world.installing)):
            self.world.arrive(0)

    @rule(at=st.integers(0, 5))
    def is_crowded(self, at: int) -> None:
        self.world.arrive(at, crowded=True)

    @rule(seconds=st.sampled_from([1, 7, 19, 21]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)

    @rule()
    def are_gone(self) -> None:
        self.world.are_gone()

    @rule(moved=st.booleans(), old=st.none() | st.integers(0, 3))
    def crash(self, moved: bool, old: int | None) -> None:
        self.world.crash(moved=moved, old=old)

    @rule()
    def settle(self) -> None:
        self.world.settle()
        self.world.check_settled()

    @invariant()
    def what_was_acknowledged_is_covered(self) -> None:
        self.world.check()
        assert isinstance(self.world.placement, CoveredPlacement)
        self.world.placement._here[HOME].covering.check()

    def teardown(self) -> None:
        self.world.settle()
        self.world.check_settled()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=1000 if SOAK else 150, stateful_step_count=50, deadline=None)


# -- one order of things each ------------------------------------------------------------------------------------------


def held(world: World) -> list[str]:
    """What is placed."""
    return sorted(render(each.filter.conjunctions) for each in world.present.values())


def subscribed(**texts: str) -> World:
    """Subscriptions that are placed and acknowledged."""
    world = World()
    for name, text in texts.items():
        world.change(name, text)
    world.settle()
    assert acknowledged(world) == sorted(texts)
    return world


def acknowledged(world: World) -> list[str]:
    return sorted(name for name, (promised, _) in world.acked.items() if promised)


def all_written(world: World) -> None:
    while world.disk.pending:
        world.flush()


def test_what_was_covered_is_placed_before_what_covered_it_goes() -> None:
    world = subscribed(wide="a > 1", narrow="a > 2", narrower="a > 3")
    assert held(world) == ["a > 1"]
    world.change("wide", None)
    all_written(world)
    world.wait(1000)
    assert held(world) == ["a > 1"]
    assert len(world.installing) == 1
    world.arrive(0)
    world.wait(19)
    assert held(world) == ["a > 1", "a > 2"]
    world.wait(2)
    assert held(world) == ["a > 2"]


def test_what_is_covered_is_withdrawn_when_what_covers_it_is_placed() -> None:
    world = subscribed(narrow="a > 2")
    world.change("wide", "a > 1")
    all_written(world)
    world.wait(1000)
    assert acknowledged(world) == ["narrow"]
    world.arrive(0)
    assert acknowledged(world) == ["narrow", "wide"]
    world.wait(19)
    assert held(world) == ["a > 1", "a > 2"]
    world.wait(2)
    assert held(world) == ["a > 1"]


def test_what_is_covered_is_acknowledged_with_what_covers_it() -> None:
    world = World()
    world.change("wide", "a > 1")
    all_written(world)
    world.change("narrow", "a > 2 OR b = 1")
    all_written(world)
    assert len(world.installing) == 2
    world.arrive(1)
    assert acknowledged(world) == []
    world.arrive(0)
    assert acknowledged(world) == ["narrow", "wide"]


class Uncovered(World):
    """The same, and everything is placed."""

    def make_placing(self, home_manager: Any) -> Placement:
        return Placement(self.runtime, home_manager, self, self)


@pytest.mark.parametrize("kind", [World, Uncovered])
def test_who_asks_is_told_when_it_is_placed_and_at_once_where_it_is(kind: type[World]) -> None:
    world = kind()
    world.change("wide", "a > 1 OR b = 1")
    before = world.ask("wide")
    all_written(world)
    late = world.ask("wide")
    world.arrive(0)
    assert (before, late) == ([], [])
    world.arrive(0)
    assert (before, late) == ([True], [True])
    world.change("other", "b > 7")  # which no disk takes
    assert world.ask("wide") == [True]
    world.settle()
    world.crash(moved=False)
    assert world.disk.pending or kind is Uncovered
    assert world.ask("wide") == [True], "what is known to be placed is so after a restart, and no write is waited for"
    world.change("wide", "a > 0")
    ended = world.ask("wide")
    world.change("wide", None)
    world.settle()
    assert ended == [True], "nobody is left without an answer"


def test_what_covers_and_shrinks_is_not_withdrawn_too_soon() -> None:
    world = subscribed(wide="a > 1", narrow="a > 2")
    world.change("wide", "a > 9")
    all_written(world)
    world.wait(1000)
    assert held(world) == ["a > 1"]
    world.settle()
    assert held(world) == ["a > 2"], "which covers the rest of what is wide no longer"


def test_steady_subscribing_delays_no_withdrawal_for_ever() -> None:
    """At no moment is all placed, yet what was open when it was given up is in the end."""
    world = subscribed(wide="a > 1", narrow="a > 2")
    world.change("wide", None)
    for number in range(60):
        world.change(f"other{number}", f"b = {number}")
        all_written(world)
        world.wait(1)
        if number:
            world.arrive(0)
        assert world.installing
    assert "a > 1" not in held(world)


def restarted(world: World) -> list[str]:
    """The home crashes when what was covered is to be placed, and is not: what is there long after."""
    world.change("wide", None)
    all_written(world)
    world.crash(moved=False)
    all_written(world)
    world.wait(1000)
    return held(world)


def test_a_home_that_restarts_withdraws_nothing_before_what_is_open_is_placed() -> None:
    world = subscribed(wide="a > 1", narrow="a > 2")
    assert restarted(world) == ["a > 1"]
    world.settle()
    assert held(world) == ["a > 2"]


def test_a_mutant_that_withdraws_after_a_restart_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = subscribed(wide="a > 1", narrow="a > 2")
    monkeypatch.setattr(CoveredPlacement, "home_started", forgetful)
    with pytest.raises(AssertionError, match="uninstalled too soon"):
        restarted(world)


def test_an_old_copy_of_what_was_placed_once_is_not_believed() -> None:
    """What is covered was placed before, and withdrawn. It is to be placed again when its home restarts."""
    world = subscribed(narrow="a > 2")
    world.change("wide", "a > 1")
    world.settle()
    assert held(world) == ["a > 1"]
    world.change("wide", None)
    world.flush()
    world.crash(moved=False, old=1)
    all_written(world)
    world.wait(1000)
    assert held(world) == ["a > 1"]
    world.settle()
    assert held(world) == ["a > 2"]


def test_what_ended_is_not_planted_again_when_an_old_copy_comes_back() -> None:
    world = subscribed(wide="a > 1")
    world.change("wide", None)
    world.settle()
    world.crash(moved=False, old=0)
    all_written(world)
    assert world.installing == []
    world.settle()
    world.check_settled()


def test_nothing_goes_before_that_is_on_disk() -> None:
    world = subscribed(wide="a > 1")
    world.change("wide", None)
    world.flush()
    world.wait(1000)
    assert held(world) == ["a > 1"]
    world.flush()
    world.wait(19)
    assert held(world) == ["a > 1"]
    world.wait(2)
    assert held(world) == []


def test_an_unwritten_end_of_what_covers_is_as_if_it_had_not_been() -> None:
    world = subscribed(wide="a > 1", narrow="a > 2")
    world.change("wide", None)
    world.crash(moved=False)
    world.settle()
    assert held(world) == ["a > 1"]


@pytest.mark.slow
def test_thousands_that_come_to_light_are_planted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered_placement, "AT_ONCE_MAX", 10)
    world = subscribed(wide="TRUE", **{f"s{number}": f"b = {number}" for number in range(100)})
    assert held(world) == ["TRUE"]
    world.change("wide", None)
    all_written(world)
    assert len(world.installing) == 10
    world.arrive(3)
    assert len(world.installing) == 10
    world.settle()
    world.check_settled()
    world.change("wide", "TRUE")
    all_written(world)
    world.arrive(0)
    world.wait(21)
    assert len(world.uninstalling) == 10
    world.settle()
    world.check_settled()


# -- mutants -----------------------------------------------------------------------------------------------------------


def at_once(self: Barrier) -> Signal[None]:
    return DONE


def own_only(self: CoveredPlacement, home: Any, here: Any, name: str) -> list[Signal[None]]:
    places = self._places[home.id].get(name)
    return [] if places is None else [opened.placed for opened in places.open.values()]


def stopped(self: CoveredPlacement, home: Any, name: str, places: PlacedSubscription, placed: Placed) -> None:
    Placement._leave(self, home, name, places, placed)
    self._here[home.id].left.append((name, places, placed.number))


def forgetful(self: CoveredPlacement, home: Any) -> None:
    """After a restart it withdraws what was to be withdrawn, without waiting for what is still open."""
    here = self._here[home.id] = covered_placement._Here(self._coverage)
    for name in home.filters:
        self._change(home, here, name)
    self._recover(home)
    places = self._places[home.id]
    self._withdraw_later(home, [(name, each, number) for name, each in places.items() for number in each.leaving])
    self._follow(home, here, list(dict.fromkeys((*home.filters, *places))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "attribute", "mutant"),
    [
        (Barrier, "all_closed", at_once),
        (CoveredPlacement, "_awaited", own_only),
        (CoveredPlacement, "_leave", stopped),
        (placement, "RETAIN_US", 0),
    ],
    ids=[
        "withdraws while others are open",
        "acknowledges too soon",
        "stops what others wait for",
        "at once",
    ],
)
@pytest.mark.slow
def test_a_mutant_is_seen(owner: Any, attribute: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, attribute, mutant)
    once = settings(max_examples=300, stateful_step_count=50, deadline=None, phases=(Phase.generate,))
    with pytest.raises(Exception):  # noqa: B017, PT011 - one failure, or a group of them
        run_state_machine_as_test(Lives, settings=once)
