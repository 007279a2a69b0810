"""How regions change: each step, all orders of steps in small worlds, long ways through larger ones, and mutants."""

from __future__ import annotations

import msgspec
import pytest

from meetpoint.schemes.dmm import rules
from meetpoint.schemes.dmm.rules import ROOT_RECORD, RegionRecord, RegionState
from tests.schemes.dmm.search import Rules, Search, beginning, search, wander, wrong


def child(state: RegionState, parent_epoch: int, *, is_informed: bool = True) -> RegionRecord:
    return RegionRecord(state, epoch=5, parent_epoch=parent_epoch, is_informed=is_informed)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_split_and_a_merge_go_through_all_states() -> None:
    kept = rules.begin_split(ROOT_RECORD)
    assert (kept.state, kept.epoch, kept.serves) == (RegionState.SPLITTING, 1, True)
    kept = rules.finish_split(kept)
    assert (kept.state, kept.epoch, kept.is_informed, kept.is_split) == (RegionState.INTERIOR, 1, False, True)
    kept = rules.begin_merge(rules.inform_children(kept))
    assert (kept.state, kept.epoch, kept.is_split) == (RegionState.MERGING, 2, True)
    kept = rules.finish_merge(kept)
    assert (kept.state, kept.epoch, kept.is_informed, kept.serves, kept.is_at_rest) == (
        RegionState.LEAF,
        2,
        False,
        True,
        False,
    )
    assert rules.inform_children(kept).is_at_rest
    assert rules.reopen(RegionRecord(RegionState.INTERIOR, 3)) == RegionRecord(
        RegionState.INTERIOR, 4, is_informed=False
    )


def test_what_is_given_up_goes_back_in_a_way_that_children_can_tell() -> None:
    splitting = rules.begin_split(ROOT_RECORD)
    assert rules.give_up(splitting) == RegionRecord(RegionState.LEAF, 1, 0, is_informed=False)
    assert rules.give_up(splitting, parent_epoch=7) == RegionRecord(RegionState.LEAF, 7, 0, is_informed=False), (
        "next time it begins with 8"
    )
    merging = rules.begin_merge(rules.inform_children(rules.finish_split(splitting)))
    assert rules.give_up(merging) == RegionRecord(RegionState.INTERIOR, 3, 0, is_informed=False)
    assert rules.give_up(merging, parent_epoch=7) == RegionRecord(RegionState.INTERIOR, 8, 0, is_informed=False)


@pytest.mark.parametrize("state", [RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE])
def test_what_does_not_serve_is_sown_anew_in_a_later_turn_only(state: RegionState) -> None:
    assert rules.preload(child(state, 3), 4) == child(RegionState.EMBRYO, 4)
    assert rules.preload(child(state, 3), 2) is None
    again = rules.preload(child(state, 3), 3)
    assert again == (None if state is RegionState.GONE else child(state, 3)), (
        "a split that was given up does not come back"
    )


@pytest.mark.parametrize("state", [RegionState.LEAF, RegionState.SPLITTING, RegionState.INTERIOR, RegionState.MERGING])
def test_what_is_open_is_not_sown(state: RegionState) -> None:
    assert rules.preload(child(state, 3), 3) == child(state, 3), "a late message, which did what it should"
    assert rules.preload(child(state, 3), 2) is None
    assert rules.preload(child(state, 3), 4) is None


def test_open_opens_what_waits_and_says_so_to_what_is_open() -> None:
    for state in (RegionState.EMBRYO, RegionState.FROZEN):
        assert rules.open_(child(state, 3), 3) == child(RegionState.LEAF, 3)
        assert rules.open_(child(state, 3), 4) == child(RegionState.LEAF, 4)
        assert rules.open_(child(state, 3), 2) is None
    for state in (RegionState.LEAF, RegionState.SPLITTING, RegionState.INTERIOR, RegionState.MERGING):
        assert rules.open_(child(state, 3, is_informed=False), 4) == child(state, 4, is_informed=False)
        assert rules.open_(child(state, 3), 2) is None
    assert rules.open_(child(RegionState.GONE, 3), 4) is None
    assert rules.open_(None, 4) == RegionRecord(RegionState.LEAF, 0, 4), "what was lost begins anew"


def test_only_a_leaf_at_rest_is_closed_and_only_by_a_later_turn_than_it_was_opened_in() -> None:
    assert rules.close(child(RegionState.LEAF, 3), 4) == child(RegionState.FROZEN, 4)
    assert rules.close(child(RegionState.LEAF, 3), 3) is None
    assert rules.close(child(RegionState.FROZEN, 4), 4) == child(RegionState.FROZEN, 4)
    assert rules.close(child(RegionState.FROZEN, 4), 3) is None
    assert rules.close(child(RegionState.LEAF, 3, is_informed=False), 4) is None
    for state in (
        RegionState.SPLITTING,
        RegionState.INTERIOR,
        RegionState.MERGING,
        RegionState.EMBRYO,
        RegionState.GONE,
    ):
        assert rules.close(child(state, 3), 4) is None
    assert rules.close(None, 4) is None


def test_what_is_open_is_never_dissolved() -> None:
    for state in (RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE):
        assert rules.dissolve(child(state, 3), 3) == child(RegionState.GONE, 3)
        assert rules.dissolve(child(state, 3), 2) is None
    for state in (RegionState.LEAF, RegionState.SPLITTING, RegionState.INTERIOR, RegionState.MERGING):
        assert rules.dissolve(child(state, 3), 4) is None
    assert rules.dissolve(None, 4) == RegionRecord(RegionState.GONE, 0, 4), "so that what is late does not make it"


# -- all orders of steps -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "puts", "lag", "worlds"), [(1, "p0", 2, 11_002), (2, "", 1, 31_787)])
def test_no_order_of_steps_goes_wrong(turns: int, puts: str, lag: int, worlds: int) -> None:
    """No two serve, no entry is lost, no half is left behind."""
    found, parent_epoch = search(Search(turns, puts=puts, lag=lag), 10**6)
    assert parent_epoch is None, parent_epoch
    assert found == worlds, "all of them were looked at"


@pytest.mark.slow
def test_no_long_way_has_two_serve_or_loses_an_entry() -> None:
    seen: set[RegionState] = set()
    for seed in range(60):
        parent_epoch = wander(Search(9), seed, 300, seen)
        assert parent_epoch is None, parent_epoch
    assert seen == set(RegionState)


def _open_late(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Opens whatever waits, whenever it was told."""
    if kept is not None and kept.state in (RegionState.EMBRYO, RegionState.FROZEN):
        return msgspec.structs.replace(kept, state=RegionState.LEAF)
    return rules.open_(kept, turn)


def _close_late(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Closes what was opened again."""
    if kept is not None and kept.is_at_rest:
        return msgspec.structs.replace(kept, state=RegionState.FROZEN)
    return rules.close(kept, turn)


def _sow_late(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Takes what is open for an embryo."""
    return (
        None if kept is not None and turn < kept.parent_epoch else RegionRecord(RegionState.EMBRYO, parent_epoch=turn)
    )


def _give_up_silently(kept: RegionRecord) -> RegionRecord:
    """Begins no new turn."""
    given = rules.give_up(kept)
    return msgspec.structs.replace(given, epoch=kept.epoch)


MUTANTS = {
    "a state is told before it is safe": Rules(waits=False),
    "a child opens whenever it is told to": Rules(open_=_open_late),
    "a child takes late entries for new ones": Rules(sow=_sow_late),
    "a merge that is given up has no turn of its own": Rules(give_up=_give_up_silently, close=_close_late),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_missing_is_found(mutant: str) -> None:
    searched = Search(4, MUTANTS[mutant], puts="0", lag=1)
    parent_epoch = next(
        (parent_epoch for seed in range(400) if (parent_epoch := wander(searched, seed, 150)) is not None), None
    )
    assert parent_epoch is not None


def test_the_world_before_anything_happened_is_well() -> None:
    assert wrong(beginning()) is None
