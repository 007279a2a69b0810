"""When a region is split: on both sides of every bound, and that no split makes the fullest peer fuller."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.language import Attribute, Schema, Type
from meetpoint.schemes.dmm.rules import DmmSettings, HolderLoad, ask_again_at, fullest_after, should_split, split_counts
from meetpoint.schemes.dmm.space import ROOT, Box, Code, Space

SETTINGS = DmmSettings(threshold=100, growth=0.125, relief=0.2)
HERE = HolderLoad(b"here", 200)
EMPTY = (HolderLoad(b"one", 0), HolderLoad(b"other", 0))


def delegation(how: Literal["probed", "always", "never"]) -> DmmSettings:
    return DmmSettings(threshold=100, delegation=how)


@pytest.mark.parametrize("how", ["probed", "always"])
def test_what_is_not_over_the_threshold_is_not_split(how: Literal["probed", "always"]) -> None:
    assert not should_split(100, 50, 50, HERE, EMPTY, delegation(how))
    assert should_split(101, 50, 51, HERE, EMPTY, delegation(how))


def test_never_means_never_and_always_looks_at_nothing_but_the_threshold() -> None:
    full = (HolderLoad(b"one", 10**6), HolderLoad(b"one", 10**6))
    assert not should_split(10**6, 1, 10**6, HERE, EMPTY, delegation("never"))
    assert should_split(200, 200, 200, HERE, full, delegation("always"))
    assert should_split(200, 200, 200, HERE, None, delegation("always"))


def test_a_split_that_adds_next_to_nothing_needs_no_probe() -> None:
    full = (HolderLoad(b"one", 10**6), HolderLoad(b"one", 10**6))
    for halves in (None, full):
        assert should_split(160, 90, 90, HERE, halves, SETTINGS)  # an eighth more
        assert not should_split(160, 90, 91, HERE, halves, SETTINGS)


def test_a_costly_split_is_made_where_the_fullest_peer_is_left_a_fifth_less_full() -> None:
    for load, expected in ((10, True), (11, False)):
        seats = (HolderLoad(b"one", load), HolderLoad(b"other", 0))
        assert should_split(200, 150, 150, HERE, seats, SETTINGS) == expected  # 160 of 200
        assert should_split(200, 150, 150, HERE, seats[::-1], SETTINGS) == expected


def test_two_halves_at_one_peer_count_together() -> None:
    both = (HolderLoad(b"one", 0), HolderLoad(b"one", 0))
    assert fullest_after(200, 150, 150, HERE, both) == 300
    assert not should_split(200, 150, 150, HERE, both, SETTINGS)
    assert should_split(200, 150, 150, HolderLoad(b"here", 400), both, SETTINGS) is (300 <= 0.8 * 400)


def test_a_half_that_stays_here_takes_the_place_of_the_region() -> None:
    seats = (HolderLoad(b"here", 200), HolderLoad(b"other", 0))
    assert fullest_after(200, 150, 140, HERE, seats) == 150
    assert fullest_after(150, 100, 100, HERE, seats) == 150, "with 50 entries of other regions"


loads = st.integers(0, 1000)
holders = st.sampled_from([b"here", b"one", b"other"])


@given(st.integers(1, 1000), st.data())
def test_no_costly_split_makes_the_fullest_of_the_peers_concerned_fuller(entries: int, data: st.DataObject) -> None:
    left = data.draw(st.integers(0, entries))
    right = data.draw(st.integers(entries - left, entries))
    load = dict.fromkeys([b"here", b"one", b"other"], 0)
    for holder in load:
        load[holder] = data.draw(loads)
    load[b"here"] += entries
    halves = (data.draw(holders), data.draw(holders))
    low, high = [HolderLoad(half, load[half]) for half in halves]
    here = HolderLoad(b"here", load[b"here"])
    before = max(load[holder] for holder in {b"here", *halves})
    load[b"here"] -= entries
    load[halves[0]] += left
    load[halves[1]] += right
    after = max(load[holder] for holder in {b"here", *halves})
    assert fullest_after(entries, left, right, here, (low, high)) == after
    settings = DmmSettings(threshold=1, growth=0, relief=0.2)
    if left + right > entries and should_split(entries, left, right, here, (low, high), settings):
        assert after < before


def test_a_region_that_was_not_split_asks_again_when_it_has_grown() -> None:
    assert ask_again_at(100) == 125
    assert ask_again_at(1) == 2


# -- how entries part --------------------------------------------------------------------------------------------------

SPACE = Space.of(Schema((Attribute("a", Type.INTEGER, minimum=1, maximum=15),)), 16)  # cells 0 to 15


def boxes(*spans: tuple[int, int]) -> list[Box]:
    return [((span,),) for span in spans]


def test_entries_part_where_the_first_halves_do() -> None:
    assert split_counts(SPACE, ROOT, boxes((1, 1), (2, 9), (12, 15))) == (("0", "1"), 2, 2)


def test_while_all_lie_in_one_half_its_halves_count() -> None:
    for code in ("", "1", "10"):
        assert split_counts(SPACE, Code(code), boxes((8, 8), (8, 9), (10, 10))) == (("100", "101"), 2, 1)


def test_what_is_alike_never_parts() -> None:
    assert split_counts(SPACE, ROOT, boxes((8, 8), (8, 8))) is None
    assert split_counts(Space.of(None, 16), ROOT, [(), ()]) is None


def test_what_parts_below_the_depth_limit_only_does_not() -> None:
    shallow = Space.of(Schema((Attribute("a", Type.INTEGER, minimum=1, maximum=15),)), 2)
    assert split_counts(shallow, ROOT, boxes((8, 8), (10, 10))) is None
    assert split_counts(shallow, ROOT, boxes((8, 8), (12, 12))) == (("10", "11"), 1, 1)
