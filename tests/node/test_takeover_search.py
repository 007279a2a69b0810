"""The rules of takeover hold in every state within bounds, and each mutant of them fails.

Bounds that take minutes are for soak: two takeovers with a crash, and changes of members.
"""

from __future__ import annotations

import pytest

from tests.node.takeover_search import MUTANTS, Bounds, search

SOAK = pytest.mark.soak

RULES = {
    "a takeover and a crash": Bounds(takeovers=1),
    "a takeover and a lost disk": Bounds(takeovers=1, crashes=0, losses=1),
}
LONG_RULES = {
    "a takeover, a record written and erased": Bounds(takeovers=1, writes=2, crashes=0),
    "two takeovers": Bounds(crashes=0),
    "two takeovers and a crash": Bounds(),
    "a takeover and a change of members": Bounds(takeovers=1, crashes=0, changes=1, nodes=4),
    "a lost disk that is let in again": Bounds(takeovers=1, crashes=0, losses=1, changes=1),
}
FAILING = {
    "promise in memory": Bounds(takeovers=1),
    "old name": Bounds(takeovers=1, crashes=0, losses=1),
    "merged by name": Bounds(takeovers=1, writes=2, crashes=0),
    "half a transfer": Bounds(crashes=0),
    "no lease": Bounds(writes=0, crashes=0),
    "no wait": Bounds(writes=0),
}
LONG_FAILING = {
    "neighbours": Bounds(takeovers=1, crashes=0, changes=1, nodes=4),
    "one step": Bounds(takeovers=1, crashes=0, changes=1, nodes=4),
    "without the former": Bounds(takeovers=1, crashes=0, changes=1, nodes=4),
}


def of(short: dict[str, Bounds], long: dict[str, Bounds]) -> list[object]:
    return [*short.items(), *(pytest.param(*each, marks=SOAK) for each in long.items())]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bounds"), of(RULES, LONG_RULES))
def test_nothing_is_wrong_in_any_state(name: str, bounds: Bounds) -> None:
    found = search(bounds)
    assert found.wrong == "", (name, found.story)
    assert found.complete or bounds.changes, "only changes of members have more states than are searched"


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "bounds"), of(FAILING, LONG_FAILING))
def test_a_mutant_fails(mutant: str, bounds: Bounds) -> None:
    assert search(bounds, mutant).wrong


def test_every_mutant_is_tried() -> None:
    assert {*FAILING, *LONG_FAILING} == set(MUTANTS)
