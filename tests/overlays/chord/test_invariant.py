"""The checker of the corrected invariant: what it must see, and that it agrees with the definition, taken literally."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.chord.invariant import broken, departures
from meetpoint.overlays.chord.rules import ChordRules, ChordState

RING = Ring(8)


def ids(*numbers: int) -> tuple[bytes, ...]:
    return tuple(RING.key(number) for number in numbers)


def network(length: int, *numbers: int) -> dict[bytes, ChordState]:
    """Members with ideal pointers."""
    rules = ChordRules(length, lambda node: RING.add(node, 1))
    order = ids(*sorted(numbers))
    states = {}
    for at, me in enumerate(order):
        states[me] = rules.found(me, order[at + 1 :] + order[:at], order[at - 1])
    return states


def point(states: dict[bytes, ChordState], member: int, *succ: int) -> dict[bytes, ChordState]:
    key = RING.key(member)
    return {**states, key: states[key]._replace(succ=ids(*succ))}


def test_an_ideal_network_has_nothing_wrong() -> None:
    for count in range(1, 9):
        states = network(3, *range(0, 240, 30)[:count])
        assert departures(states, 3) is None
        assert broken(states, 4 if count > 3 else 0) is None


def test_a_member_without_a_live_successor_is_seen() -> None:
    states = point(network(2, 0, 50, 100, 150), 50, 60, 61)
    assert broken(states, 3) == "32 has no live successor in 3c 3d"


def test_too_few_principals_are_seen_at_exactly_one_below_the_base() -> None:
    states = network(2, 0, 50, 100, 150)
    assert broken(states, 4) is None
    skipping = point(states, 0, 100, 150)  # skips 50
    assert broken(skipping, 3) is None
    assert broken(skipping, 4) == "3 principals, 4 needed; skipped: 32"


def test_a_list_out_of_order_is_seen() -> None:
    states = network(2, 0, 50, 100, 150)
    assert "does not run clockwise" in str(broken(point(states, 0, 100, 50), 0))
    assert "does not run clockwise" in str(broken(point(states, 0, 50, 50), 0))
    assert "does not run clockwise" in str(broken(point(states, 0, 50, 0), 0))


def test_two_rings_are_seen() -> None:
    states = network(1, 0, 50, 100, 150)
    for a, b in ((0, 100), (100, 0), (50, 150), (150, 50)):
        states = point(states, a, b)
    assert broken(states, 0) == "2 rings: 00 64; 32 96"


def test_a_ring_that_goes_round_twice_is_seen() -> None:
    states = network(1, 0, 50, 100, 150)
    for a, b in ((0, 100), (100, 50), (50, 150), (150, 0)):
        states = point(states, a, b)
    assert broken(states, 0) == "the ring is not in order: 00 64 32 96"


def test_one_that_leads_to_the_ring_is_no_ring_of_its_own() -> None:
    states = point(network(2, 0, 50, 100, 150), 0, 100, 150)  # nobody leads to 50
    assert broken(states, 3) is None


def test_each_pointer_counts_for_the_ideal() -> None:
    states = network(2, 0, 50, 100, 150)
    assert "successors" in str(departures(point(states, 0, 50, 150), 2))
    key = RING.key(100)
    assert "predecessor" in str(departures({**states, key: states[key]._replace(prdc=RING.key(0))}, 2))


def test_an_artificial_entry_is_no_departure_and_a_member_in_its_place_is_one() -> None:
    states = network(3, 0, 50)
    assert states[RING.key(0)].succ == ids(50, 51, 52)
    assert departures(states, 3) is None
    assert departures(point(states, 0, 50, 51, 0), 3) is not None


@given(st.data())
def test_the_checker_says_what_the_definition_says(data: st.DataObject) -> None:
    ring = Ring(4)
    numbers = data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=7, unique=True))
    states: dict[bytes, ChordState] = {}
    for number in numbers:
        me = ring.key(number)
        steps = data.draw(st.lists(st.integers(1, 15), min_size=1, max_size=3, unique=True))
        states[me] = ChordState(me, tuple(ring.add(me, step) for step in sorted(steps)), me)
    live = all(any(entry in states for entry in state.succ) for state in states.values())
    principals = [
        member
        for member in states
        if not any(
            between(a, member, b)
            for state in states.values()
            for a, b in zip((state.me, *state.succ), state.succ, strict=False)
        )
    ]
    for base in range(len(states) + 1):
        wrong = broken(states, base)
        if not live:
            assert wrong is not None
            assert "no live successor" in wrong
        elif len(principals) < base:
            assert wrong is not None
            assert wrong.startswith(f"{len(principals)} principals")
        else:
            assert wrong is None or "ring" in wrong
