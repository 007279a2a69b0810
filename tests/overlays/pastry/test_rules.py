"""The steps of Pastry with leases, one by one, both sides of each boundary; `test_search` has all of them together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastryRules, PastryState, PeerStatus, Side, is_ready

RING = Ring(8)
RULES = PastryRules(2)
SIDES: tuple[Side, Side] = (LEFT, RIGHT)


def key(number: int) -> bytes:
    return RING.key(number)


def ids(*numbers: int) -> tuple[bytes, ...]:
    return tuple(RING.key(number) for number in numbers)


def newcomer_of(me: int, left: int, right: int, *bound: int) -> PastryState:
    """A joiner that has heard from both neighbours, and has these bound on the left."""
    leaves = ids(right, left) if left != right else ids(left)
    return PastryState(key(me), (key(left), key(right)), grants=(ids(*bound), ()), leaves=leaves, member=False)


def founder(me: int, *others: int) -> PastryState:
    return RULES.found(key(me), ids(*others))


def status(me: int, left: int, right: int, *held: int, waits: bool = False, member: bool = True) -> PeerStatus:
    """Return the status of a node that holds the leases of these of its neighbours."""
    leases = tuple(key(near) if near in held else None for near in (left, right))
    return PeerStatus(key(me), (key(left), key(right)), (leases[LEFT], leases[RIGHT]), waits, member)


def joiner(me: int, left: int, right: int, *held: int) -> PeerStatus:
    """Return a joiner that has heard from all its leaves."""
    return status(me, left, right, *held, member=False)


# -- beginning ---------------------------------------------------------------------------------------------------------


def test_a_founder_alone_is_ready_by_its_own_lease() -> None:
    alone = founder(10)
    assert alone.near == ids(10, 10)
    assert is_ready(alone)
    assert RULES.expire(RULES.expire(alone, LEFT), RIGHT) == alone, "its own lease does not end"


def test_founders_know_those_around_them_and_hold_and_grant_all_leases() -> None:
    state = founder(10, 20, 30, 40, 50, 250)
    assert state.leaves == ids(20, 30, 50, 250), "two on each side"
    assert state.near == state.leases == ids(250, 20)
    assert state.grants == (ids(250), ids(20))
    assert is_ready(state)


def test_of_two_founders_each_is_the_neighbour_of_the_other_on_both_sides() -> None:
    assert founder(10, 200).near == ids(200, 200)


# -- helping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("joiner_", "helps"), [(10, False), (11, True), (19, True), (20, False), (25, False)])
def test_a_node_helps_whoever_lies_between_it_and_its_right_neighbour(joiner_: int, helps: bool) -> None:
    assert (RULES.help(founder(10, 20, 30), key(joiner_)) is not None) is helps


def test_a_node_helps_one_joiner_at_a_time_and_the_same_one_again() -> None:
    helping = RULES.help(founder(10, 20), key(15))
    assert helping is not None
    assert RULES.help(helping, key(15)) == helping
    assert RULES.help(helping, key(16)) is None
    assert RULES.helped(helping, key(16)) == helping
    assert RULES.help(RULES.helped(helping, key(15)), key(16)) is not None


@pytest.mark.parametrize("side", SIDES)
def test_a_node_without_a_lease_is_not_ready_and_helps_nobody(side: Side) -> None:
    state = RULES.expire(founder(10, 20, 30), side)
    assert not is_ready(state)
    assert RULES.help(state, key(15)) is None


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_joiner_takes_nobody_on_trust_and_waits_until_it_has_heard_from_all() -> None:
    state = RULES.welcome(key(15), key(10), ids(20, 30, 15))
    assert (state.waits, state.leaves, state.unprobed) == (True, (), ids(10, 20, 30))
    state = RULES.probe_answered(state, status(10, 30, 20, 30, 20), ids(20, 30))
    state = RULES.probe_failed(state, key(30))
    assert state.waits
    state = RULES.probe_answered(state, status(20, 10, 30, 10, 30), ids(10))
    assert not state.waits
    assert state.near == ids(10, 20)
    assert not is_ready(state)


def test_a_joiner_also_probes_whom_it_is_told_of_on_the_way_if_they_would_be_leaves() -> None:
    state = RULES.welcome(key(15), key(10), ids(20))
    state = RULES.probe_answered(state, status(10, 5, 20, 5, 20), ids(5, 20, 21, 100))
    assert state.unprobed == ids(5, 20, 21), "100 is farther than two on either side"


def test_a_joiner_does_not_count_other_joiners_as_leaves() -> None:
    state = RULES.welcome(key(15), key(10), ids(14))
    state = RULES.probe_answered(state, joiner(14, 10, 20), ())
    state = RULES.probe_answered(state, status(10, 20, 20, 20), ())
    assert state.leaves == ids(10)


def test_a_joiner_that_has_heard_from_nobody_waits_to_be_helped_again() -> None:
    state = RULES.probe_failed(RULES.welcome(key(15), key(10), ()), key(10))
    assert (state.waits, state.unprobed, state.leaves) == (True, (), ())


def test_a_joiner_becomes_ready_by_the_lease_of_its_left_and_then_of_its_right_neighbour() -> None:
    left, right = founder(10, 20, 30), founder(20, 10, 30)
    newcomer = RULES.welcome(key(15), key(10), left.leaves)
    for state in (left, right, founder(30, 10, 20)):
        newcomer = RULES.probe_answered(newcomer, RULES.status_of(state), state.leaves)
    _, refused = RULES.grant(right, RULES.status_of(newcomer))
    assert refused == (False, False), "the right one, before the left one has granted"
    left, given = RULES.grant(left, RULES.status_of(newcomer))
    assert given == (False, True)
    assert left.near == ids(30, 15)
    assert is_ready(left), "the lease of its former neighbour is still good"
    newcomer = RULES.granted(newcomer, key(10), given)
    assert not is_ready(newcomer)
    right, given = RULES.grant(right, RULES.status_of(newcomer))
    assert given == (True, False)
    assert right.near == ids(15, 30)
    newcomer = RULES.granted(newcomer, key(20), given)
    assert is_ready(newcomer)
    assert newcomer.member


def test_whoever_joins_one_that_is_alone_has_it_on_both_sides() -> None:
    alone = founder(10)
    newcomer = RULES.probe_answered(RULES.welcome(key(200), key(10), ()), RULES.status_of(alone), ())
    assert newcomer.near == ids(10, 10)
    for _ in range(2):
        alone, given = RULES.grant(alone, RULES.status_of(newcomer))
        newcomer = RULES.granted(newcomer, key(10), given)
    assert alone.near == ids(200, 200)
    assert is_ready(newcomer)


# -- who is granted a lease --------------------------------------------------------------------------------------------


def test_the_second_of_two_joiners_in_a_gap_is_refused_for_naming_whom_the_first_has_replaced() -> None:
    state, first = RULES.grant(founder(10, 30), joiner(20, 10, 30))
    assert first == (False, True)
    after, second = RULES.grant(state, joiner(15, 10, 30))
    assert (after, second) == (state, (False, False))
    _, second = RULES.grant(state, joiner(15, 10, 20))
    assert second == (False, True), "it may when it names the first"


def test_a_node_that_does_not_have_this_one_for_neighbour_gets_nothing() -> None:
    assert RULES.grant(founder(10, 20, 30), status(20, 15, 30, 15, 30))[1] == (False, False)


def test_one_that_waits_gets_nothing_and_one_that_has_never_been_ready_gives_nothing() -> None:
    waiting = status(20, 10, 30, waits=True)
    assert RULES.grant(founder(10, 20, 30), waiting)[1] == (False, False)
    newcomer = newcomer_of(15, 10, 20)
    assert RULES.grant(newcomer, status(20, 15, 30, 15, 30))[1] == (False, False)


def test_a_ready_node_of_another_ring_is_let_in_whomever_it_names() -> None:
    state, given = RULES.grant(founder(10, 30), status(20, 10, 200, 10, 200))
    assert given == (False, True)
    assert state.near == ids(30, 20)


def test_a_node_that_nobody_counts_on_lets_any_nearer_one_in_but_not_while_it_is_alone() -> None:
    stranger = status(20, 10, 200)
    state = RULES.grant_ended(founder(10, 30, 40), RIGHT, key(30))
    assert RULES.grant(state, stranger)[1] == (False, True)
    assert RULES.grant(founder(10, 30, 40), stranger)[1] == (False, False), "30 counts on it"
    assert RULES.grant(founder(10), stranger)[1] == (False, False)


def test_a_lease_binds_the_one_that_takes_it_as_well() -> None:
    newcomer = newcomer_of(15, 10, 20)
    newcomer = RULES.granted(newcomer, key(10), (False, True))
    assert newcomer.grants == (ids(10), ())
    assert RULES.drop(newcomer, key(10)) is None


def test_the_lease_of_one_that_is_no_neighbour_is_not_held() -> None:
    state = RULES.expire(founder(10, 20, 30), RIGHT)
    assert RULES.granted(state, key(30), (True, True)) == state._replace(leases=(key(30), None))


# -- the dead ----------------------------------------------------------------------------------------------------------


def test_a_neighbour_is_dropped_only_after_the_lease_granted_to_it_has_ended() -> None:
    state = founder(10, 20, 30)
    assert RULES.drop(state, key(20)) is None
    dropped = RULES.drop(RULES.grant_ended(state, RIGHT, key(20)), key(20))
    assert dropped is not None
    assert dropped.near == ids(30, 30)
    assert dropped.leases == (key(30), None), "the new neighbour must grant one first"


def test_a_leaf_that_is_no_neighbour_is_dropped_at_once() -> None:
    dropped = RULES.drop(founder(10, 20, 30, 40), key(30))
    assert dropped is not None
    assert dropped.leaves == ids(20, 40)
    assert is_ready(dropped)


def test_a_member_that_has_lost_all_goes_on_alone_and_a_joiner_begins_again() -> None:
    state = founder(10, 20)
    for side in SIDES:
        state = RULES.grant_ended(state, side, key(20))
    alone = RULES.drop(state, key(20))
    assert alone == founder(10)
    newcomer = RULES.drop(newcomer_of(15, 10, 10), key(10))
    assert newcomer is not None
    assert newcomer.waits
    assert not is_ready(newcomer)


def test_a_neighbour_is_not_dropped_past_a_joiner_that_may_be_a_member_by_now() -> None:
    state = RULES.probed(founder(10, 20, 40), joiner(30, 20, 40))
    assert state.joiners == ids(30)
    state = RULES.grant_ended(state, RIGHT, key(20))
    assert RULES.drop(state, key(20)) is None
    passed = RULES.drop(RULES.pass_over(state, key(30)), key(20))
    assert passed is not None
    assert passed.near[RIGHT] == key(40)
    member = RULES.drop(RULES.heard(state, status(30, 20, 40, 20, 40)), key(20))
    assert member is not None
    assert member.near[RIGHT] == key(30)


def test_one_that_comes_back_in_a_later_life_is_dropped_whatever_it_was_granted() -> None:
    state = RULES.drop_former(founder(10, 20, 30), key(20))
    assert state.near == ids(30, 30)
    assert state.grants == (ids(30), ())
    assert RULES.help(state, key(20)) is None, "not before the new neighbour has granted a lease"


def test_a_member_retires_only_when_nobody_counts_on_it_and_a_joiner_at_any_time() -> None:
    state = founder(10, 20)
    assert RULES.retire(state) is None
    for side in SIDES:
        state = RULES.grant_ended(state, side, key(20))
    retired = RULES.retire(state)
    assert retired is not None
    assert (retired.waits, retired.member, retired.leaves) == (True, False, ())
    newcomer = newcomer_of(15, 10, 20, 10)
    assert RULES.retire(newcomer) is not None


# -- leaves ------------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 255), min_size=1, max_size=12), st.integers(1, 4))
def test_leaves_are_the_nearest_on_each_side_clockwise(numbers: set[int], half: int) -> None:
    me, *others = numbers
    clockwise = sorted(others, key=lambda number: (number - me) % 256)
    wanted = clockwise if len(others) <= 2 * half else clockwise[:half] + clockwise[-half:]
    assert PastryRules(half).found(key(me), ids(*others)).leaves == ids(*wanted)


@given(st.sets(st.integers(0, 255), min_size=3, max_size=12), st.integers(1, 3), st.randoms(use_true_random=False))
def test_ready_nodes_heard_in_any_order_make_ideal_leaves_and_neighbours(
    numbers: set[int], half: int, chance: object
) -> None:
    me, *others = numbers
    rules = PastryRules(half)
    state = rules.found(key(me), ())
    chance.shuffle(others)  # type: ignore[attr-defined]
    for other in others:
        state = rules.heard(state, status(other, other, other, other))
    ideal = rules.found(key(me), ids(*others))
    assert (state.near, state.leaves) == (ideal.near, ideal.leaves)


def test_one_that_is_not_ready_does_not_replace_a_neighbour_by_being_heard() -> None:
    state = RULES.heard(founder(10, 30, 40), status(20, 10, 30))
    assert key(20) in state.leaves
    assert state.near[RIGHT] == key(30)
