"""Everything that can happen to a few nodes, searched exhaustively; and mutants that the search must catch.

Random walks nearly miss the bugs of published Chord; a breadth-first search over five ids finds them in a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.overlays.chord.rules import ChordRules
from tests.overlays.chord.mutants import NeverReplaced, PublishedJoin, PublishedRules, UncheckedNearer, Uncut
from tests.overlays.chord.searching import Circle, Claims, Found, Made, spread, tight
from tests.tiers import SOAK

STATES_MAX = 3_000_000


def explore(made: Made, base: int, founders: int, claims: Claims = Claims.AT_ONCE, fails: bool = True) -> Found:
    circle = Circle(made, base, claims, fails)
    return circle.search([circle.founded(founders)], STATES_MAX)


def hunt(made: Made, base: int, founders: int) -> Found:
    """Without turning the circle, so that the story can be read."""
    circle = Circle(made, base, turned=False)
    return circle.search([circle.founded(founders)], STATES_MAX)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "founders", "claims", "states"),
    [
        (spread(5, 2, Uncut), 3, Claims.AT_ONCE, 13_430),
        (tight(5, 2, Uncut), 3, Claims.AT_ONCE, 2_198),
        (spread(5, 3, Uncut), 4, Claims.AT_ONCE, 1_165),
        (spread(4, 2, Uncut), 3, Claims.KEPT, 5_228),
        (tight(4, 2, Uncut), 3, Claims.KEPT, 1_371),
        (spread(4, 2, Uncut), 3, Claims.ANY, None),
    ],
)
def test_the_invariant_holds_in_every_reachable_state_and_a_quiet_network_becomes_ideal(
    made: Made, founders: int, claims: Claims, states: int | None
) -> None:
    found = explore(made, founders, founders, claims)
    assert found.wrong is None, found
    assert states is None or found.states == states, "the search sees another protocol than it did"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("made", "founders", "claims"),
    [
        (tight(5, 2, Uncut), 3, Claims.ANY),
        (spread(5, 2, Uncut), 3, Claims.ANY),
        (spread(6, 3, Uncut), 4, Claims.AT_ONCE),
    ],
)
def test_the_invariant_holds_in_larger_searches(made: Made, founders: int, claims: Claims) -> None:
    found = explore(made, founders, founders, claims)
    assert found.wrong is None, found


@pytest.mark.parametrize("founders", [1, 2])
@pytest.mark.parametrize("make", [spread, tight])
def test_a_network_may_grow_from_a_single_member_by_joins(make: Callable[..., Made], founders: int) -> None:
    """Outside the proof, since there is no base: but as long as nobody fails, nothing goes wrong."""
    found = explore(make(5 if SOAK or founders > 1 else 4, 2, ChordRules), 0, founders, fails=False)
    assert found.wrong is None, found


def test_published_join_breaks_the_ring() -> None:
    """The successor it takes may be dead already, and then it has nobody."""
    found = hunt(spread(5, 2, PublishedJoin), 3, 3)
    assert found.wrong is not None
    assert "no live successor" in found.wrong
    assert found.story[-2:] == ("20 fails", "18 joins")


@pytest.mark.slow
def test_without_a_base_the_ring_breaks() -> None:
    """Two founders with lists of two, and failures that leave each member a live successor."""
    found = hunt(spread(5, 2), 0, 2)
    assert found.wrong == "the ring is not in order: 08 18 10"
    assert found.story[-1].endswith("fails")


def test_without_a_look_at_who_lives_the_ring_breaks() -> None:
    found = hunt(spread(5, 2, UncheckedNearer), 3, 3)
    assert found.wrong is not None
    assert "no live successor" in found.wrong


@pytest.mark.slow
def test_without_a_ping_a_quiet_network_is_never_ideal() -> None:
    found = hunt(spread(5, 2, NeverReplaced), 3, 3)
    assert found.wrong is not None
    assert "never ideal" in found.wrong
    assert found.story == ("18 joins", "18 stabilises", "18 fails")


@pytest.mark.parametrize("make", [spread, tight])
def test_the_published_rules_fail(make: Callable[..., Made]) -> None:
    found = hunt(make(5, 2, PublishedRules), 3, 3)
    assert found.wrong is not None
