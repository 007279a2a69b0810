"""Everything that can happen to a few nodes, searched exhaustively; and mutants that the search must catch.

No Pastry with failures is proven, so this is what stands behind ours: in every reachable state no ready node lies
nearer to a ready node than the neighbour it believes in, at most one ready node covers a key, and a network that is
left in peace becomes ideal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from meetpoint.overlays.pastry.rules import PastryRules
from tests.overlays.pastry.mutants import DropsEarly, HelpsAnyone, ReadyUnleased, Trusting, TwoAtOnce
from tests.overlays.pastry.pieces import Found, spread
from tests.overlays.pastry.searching import Circle

STATES_MAX = 3_000_000

ALL = frozenset(range(4))
DOUBTED = frozenset({(0, 1), (2, 1)})
"""Both neighbours of a node take it for dead, wrongly, as often as they like."""


def explore(rules: type[PastryRules], count: int, founders: Sequence[int], half: int = 1, **choices: Any) -> Found:
    circle = Circle(rules(half), spread(count), **choices)
    return circle.search([circle.founded(*founders)], STATES_MAX)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "founders", "half", "choices", "states"),
    [
        pytest.param(3, (0,), 1, {}, 35_198, id="two join one that is alone"),
        pytest.param(4, (0, 3), 1, {}, 126_293, id="two join in one gap"),
        pytest.param(3, (0, 1), 1, {"letters_max": 1, "expires": {0}}, 14_114, id="one joins while leases expire"),
        pytest.param(3, (0, 1, 2), 1, {"letters_max": 1, "expires": ALL, "crashes": 1}, 34_182, id="leases, a crash"),
        pytest.param(4, (0, 1, 2), 2, {"letters_max": 1, "crashes": 1}, 41_631, id="one joins while another crashes"),
        pytest.param(
            3, (0, 1, 2), 1, {"expires": {1}, "doubts": DOUBTED}, 89_157, id="one is doubted by its neighbours"
        ),
    ],
)
def test_the_invariant_holds_in_every_reachable_state_and_a_quiet_network_becomes_ideal(
    count: int, founders: Sequence[int], half: int, choices: dict[str, Any], states: int | None
) -> None:
    found = explore(PastryRules, count, founders, half, **choices)
    assert found.wrong is None, found
    assert states is None or found.states == states, "the search sees another protocol than it did"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("count", "founders", "half", "choices"),
    [
        pytest.param(4, (0,), 1, {"letters_max": 1}, id="three join one that is alone"),
        pytest.param(4, (0, 3), 1, {"letters_max": 3}, id="two join in one gap, three letters"),
        pytest.param(3, (0, 1), 1, {"letters_max": 1, "expires": ALL}, id="one joins while all leases expire"),
        pytest.param(3, (0, 1, 2), 1, {"letters_max": 1, "expires": ALL, "doubts": DOUBTED}, id="doubts, all expire"),
        pytest.param(3, (0, 1, 2), 1, {"letters_max": 1, "crashes": 1, "restarts": True}, id="one comes back"),
    ],
)
def test_the_invariant_holds_in_larger_searches(
    count: int, founders: Sequence[int], half: int, choices: dict[str, Any]
) -> None:
    found = explore(PastryRules, count, founders, half, **choices)
    assert found.wrong is None, found


@pytest.mark.slow
def test_two_joiners_let_in_at_once_break_it() -> None:
    """The mutant of published Pastry: both think that nobody is between them and the far end of the gap."""
    found = explore(TwoAtOnce, 4, (0, 3))
    assert found.wrong == "80 is ready, nearer to 40 than its right neighbour c0"
    assert found.story[:2] == ("00 helps 40", "00 helps 80")


@pytest.mark.soak
def test_helping_two_at_once_is_not_what_keeps_them_apart() -> None:
    """A node that names another neighbour than the present one gets no lease, however many are helped."""
    found = explore(HelpsAnyone, 4, (0, 3))
    assert found.wrong is None, found


def test_a_node_that_is_ready_without_leases_breaks_it() -> None:
    found = explore(ReadyUnleased, 4, (0, 3))
    assert found.wrong == "40 is ready, nearer to 00 than its right neighbour c0"


def test_a_neighbour_that_is_dropped_before_its_lease_ended_breaks_it() -> None:
    found = explore(DropsEarly, 3, (0, 1, 2), expires={1}, doubts=DOUBTED)
    assert found.wrong == "55 is ready, nearer to 00 than its right neighbour aa"


def test_nodes_that_take_others_on_trust_never_get_rid_of_a_dead_one() -> None:
    found = explore(Trusting, 4, (0, 1, 2, 3), half=2, letters_max=0, crashes=1)
    assert found.wrong is not None
    assert found.wrong.startswith("a quiet network is never ideal")
    assert found.story == ("00 crashes",)
    assert explore(PastryRules, 4, (0, 1, 2, 3), half=2, letters_max=0, crashes=1).wrong is None
