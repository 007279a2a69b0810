"""The steps of the corrected Chord, one by one (Zave, arXiv 1610.01140, section IV)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.chord.rules import ChordRules, ChordState

RING = Ring(8)
RULES = ChordRules(3, lambda node: RING.add(node, 1))


def ids(*numbers: int) -> tuple[bytes, ...]:
    return tuple(RING.key(number) for number in numbers)


def state(
    me: int, succ: tuple[int, ...], prdc: int, saved: int | None = None, candidate: int | None = None
) -> ChordState:
    return ChordState(
        RING.key(me),
        ids(*succ),
        RING.key(prdc),
        None if saved is None else RING.key(saved),
        None if candidate is None else RING.key(candidate),
    )


# -- join --------------------------------------------------------------------------------------------------------------


def test_a_joiner_takes_the_whole_list_and_the_member_as_its_predecessor() -> None:
    assert RULES.join(RING.key(15), RING.key(10), ids(20, 30, 40)) == state(15, (20, 30, 40), 10)


@pytest.mark.parametrize("joiner", [5, 10, 20, 25])
def test_a_joiner_must_lie_between_a_member_and_its_successor(joiner: int) -> None:
    assert RULES.join(RING.key(joiner), RING.key(10), ids(20, 30, 40)) is None


def test_a_joiner_may_lie_beyond_the_end_of_the_circle() -> None:
    assert RULES.join(RING.key(250), RING.key(240), ids(5, 6, 7)) == state(250, (5, 6, 7), 240)


def test_whoever_joins_one_that_is_alone_has_it_on_both_sides() -> None:
    alone = RULES.found(RING.key(10), (), RING.key(10))
    assert alone == state(10, (10, 11, 12), 10)
    assert RULES.join(RING.key(200), RING.key(10), alone.succ) == state(200, (10, 11, 12), 10)


# -- stabilise ---------------------------------------------------------------------------------------------------------


def test_a_live_successor_gives_its_list_and_is_told() -> None:
    after, told = RULES.first_live(state(10, (20, 30, 40), 5), *_answer(10, 25, 30, 45))
    assert after == state(10, (20, 25, 30), 5)
    assert told == RING.key(20)


def test_a_nearer_node_is_saved_and_nobody_is_told_yet() -> None:
    after, told = RULES.first_live(state(10, (20, 30, 40), 5), *_answer(15, 30, 40, 50))
    assert after == state(10, (20, 30, 40), 5, saved=15)
    assert told is None


@pytest.mark.parametrize("prdc", [10, 20, 5, 25])
def test_a_node_that_is_not_strictly_between_is_not_nearer(prdc: int) -> None:
    after, told = RULES.first_live(state(10, (20, 30, 40), 5), *_answer(prdc, 30, 40, 50))
    assert after.saved is None
    assert told == RING.key(20)


def test_a_dead_successor_makes_room_for_one_more_than_the_last() -> None:
    after, told = RULES.first_dead(state(10, (20, 30, 40), 5))
    assert after == state(10, (30, 40, 41), 5)
    assert told == RING.key(30)


def test_a_live_nearer_node_becomes_the_successor_and_is_told() -> None:
    after, told = RULES.second_live(state(10, (20, 30, 40), 5, saved=15), ids(18, 20, 30))
    assert after == state(10, (15, 18, 20), 5)
    assert told == RING.key(15)


def test_a_dead_nearer_node_changes_nothing_and_the_successor_is_told() -> None:
    after, told = RULES.second_dead(state(10, (20, 30, 40), 5, saved=15))
    assert after == state(10, (20, 30, 40), 5)
    assert told == RING.key(20)


def test_the_second_half_is_not_run_toward_one_beyond_the_successor() -> None:
    with pytest.raises(AssertionError):
        RULES.second_live(state(10, (20, 30, 40), 5, saved=25), ids(30, 40, 50))


# -- rectify -----------------------------------------------------------------------------------------------------------


def test_a_nearer_candidate_is_adopted_without_a_ping() -> None:
    before = RULES.notified(state(10, (20, 30, 40), 5), RING.key(7))
    assert not RULES.must_ping(before)
    assert RULES.rectify(before, prdc_lives=True) == state(10, (20, 30, 40), 7)


@pytest.mark.parametrize(("lives", "prdc"), [(True, 5), (False, 3)])
def test_a_farther_candidate_is_adopted_only_for_a_dead_predecessor(lives: bool, prdc: int) -> None:
    before = RULES.notified(state(10, (20, 30, 40), 5), RING.key(3))
    assert RULES.must_ping(before)
    assert RULES.rectify(before, lives) == state(10, (20, 30, 40), prdc)


def test_a_claim_does_not_touch_what_stabilise_has_saved() -> None:
    before = state(10, (20, 30, 40), 5, saved=15)
    after = RULES.rectify(RULES.notified(before, RING.key(7)), prdc_lives=True)
    assert after.saved == before.saved


def test_one_that_is_alone_takes_any_candidate() -> None:
    alone = RULES.found(RING.key(10), (), RING.key(10))
    assert RULES.rectify(RULES.notified(alone, RING.key(3)), prdc_lives=True).prdc == RING.key(3)


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "listed"),
    [
        ((20, 30, 40, 50), (20, 30, 40)),
        ((20, 30, 10, 20), (20, 30, 31)),  # cut at the member itself
        ((20, 30, 25, 40), (20, 30, 31)),  # cut where it turns back
        ((20, 20, 30), (20, 21, 22)),
        ((20, 250, 5), (20, 250, 5)),
        ((), (10, 11, 12)),
        ((9,), (9,)),  # no id lies between it and the member
        ((8,), (8, 9)),
    ],
)
def test_a_list_runs_clockwise_and_ends_before_its_owner(entries: tuple[int, ...], listed: tuple[int, ...]) -> None:
    assert RULES.listed(RING.key(10), ids(*entries)) == ids(*listed)


@given(st.integers(0, 255), st.lists(st.integers(0, 255), max_size=6), st.integers(1, 5))
def test_any_entries_make_an_ordered_list(me: int, entries: list[int], length: int) -> None:
    rules = ChordRules(length, lambda node: RING.add(node, 1))
    own = RING.key(me)
    succ = rules.listed(own, ids(*entries))
    assert 1 <= len(succ) <= length
    assert len(set(succ)) == len(succ)
    others = succ[1:] if succ[0] == own else succ
    for a, b in zip((own, *others), others, strict=False):
        assert b != own
        assert a == own or between(a, b, own)
    if len(succ) < length:
        assert RING.add(succ[-1], 1) == own, "a list is short only where the circle is full"


def _answer(prdc: int, *succ: int) -> tuple[bytes, tuple[bytes, ...]]:
    return RING.key(prdc), ids(*succ)
