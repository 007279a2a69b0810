"""Suffixes, regions and the links between them: paper C, sections 2 and 3.3, a claim a test."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.overlays.hypercube.regions import WHOLE, Region, apart, are_neighbours, distance

REGIONS = st.integers(0, 6).flatmap(
    lambda length: st.builds(Region, st.integers(0, (1 << length) - 1), st.just(length))
)


def test_node_01_of_four_hosts_the_ids_of_the_papers_section_2() -> None:
    hosted = [f"{point:04b}" for point in range(16) if Region.read("01").hosts(point)]
    assert hosted == ["0001", "0101", "1001", "1101"]


def test_a_node_that_is_alone_hosts_everything() -> None:
    assert all(WHOLE.hosts(point) for point in range(16))
    assert str(WHOLE) == "*"
    assert str(Region.read("001")) == "001"


def test_node_1011_has_the_neighbours_of_the_papers_section_3_1() -> None:
    near = [str(Region(bits, 4)) for bits in range(16) if are_neighbours(Region.read("1011"), Region(bits, 4))]
    assert near == ["0011", "1001", "1010", "1111"]


def test_a_split_parts_neighbours_that_had_only_the_shorter_id_in_common() -> None:
    assert are_neighbours(Region.read("001"), Region.read("1011"))
    assert not are_neighbours(Region.read("0001"), Region.read("1011")), "the paper's example of a link that is dropped"
    assert are_neighbours(Region.read("11"), Region.read("101"))


@given(REGIONS)
def test_halves_part_their_region(region: Region) -> None:
    lower, upper = region.half(0), region.half(1)
    assert lower.parent == upper.parent == region
    assert lower.sibling == upper
    assert upper.sibling == lower
    assert are_neighbours(lower, upper)
    for point in range(256):
        assert region.hosts(point) == (lower.hosts(point) or upper.hosts(point))
        assert not (lower.hosts(point) and upper.hosts(point))


@given(REGIONS, REGIONS)
def test_regions_either_hold_one_another_or_share_no_id(one: Region, other: Region) -> None:
    shared = [point for point in range(64) if one.hosts(point) and other.hosts(point)]
    assert bool(shared) == (one.holds(other) or other.holds(one)) == (apart(one, other) == 0)


@given(REGIONS, st.integers(0, 63))
def test_distance_is_to_the_nearest_id_of_a_region(region: Region, point: int) -> None:
    assert distance(region, point) == min((point ^ other).bit_count() for other in range(64) if region.hosts(other))
