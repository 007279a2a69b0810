"""Hamming routing on ids of equal and of different lengths: paper C, sections 3.1 and 3.3, a claim a test."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from meetpoint.overlays.hypercube.regions import Region, apart, distance
from meetpoint.overlays.hypercube.rules import next_hop
from tests.overlays.hypercube.growing import Cube, Made, even, grown, lopsided, path, taker

SIZES = [1, 2, 3, 5, 7, 11, 16, 23, 40, 63]


def churned(dimensions: int, count: int, rng: random.Random) -> Cube:
    """A network that has seen leaves too."""
    cube = grown(dimensions, 2 * count, rng)
    while len(cube.members) > count:
        cube.leave(rng.choice(cube.names))
    return cube


@pytest.mark.parametrize("length", range(6))
def test_with_ids_of_one_length_a_path_is_exactly_the_hamming_distance(length: int) -> None:
    cube = even(8, length)
    assert [region.length for region in cube.members] == [length] * (1 << length)
    for start in cube.members:
        for goal in cube.members:
            assert len(path(cube, start, goal.bits)) - 1 == (start.bits ^ goal.bits).bit_count()


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("made", [grown, churned, lopsided])
def test_with_ids_of_different_lengths_every_path_ends_at_the_host(made: Made, count: int) -> None:
    cube = made(7, count, random.Random(count))
    for start in cube.members:
        for target in range(128):
            way = path(cube, start, target)
            assert way[-1].hosts(target)
            assert len(way) - 1 <= distance(start, target), "each step puts a bit right and none wrong"


@pytest.mark.parametrize("count", SIZES)
def test_a_step_puts_the_lowest_wrong_bit_right(count: int) -> None:
    cube = churned(7, count, random.Random(count))
    for start in cube.members:
        for target in range(0, 128, 3):
            way = path(cube, start, target)
            for here, there in pairwise(way):
                wrong = (here.bits ^ target) & here.mask
                assert apart(here, there) == wrong & -wrong


@pytest.mark.parametrize("count", [3, 7, 16, 23])
@pytest.mark.parametrize("made", [churned, lopsided])
def test_routing_goes_round_any_one_node_that_is_down_and_takes_no_step_more(made: Made, count: int) -> None:
    cube = made(6, count, random.Random(count))
    for down in cube.members:
        for start in cube.members:
            for target in range(64):
                if down not in (start, cube.owner(target)):
                    way = path(cube, start, target, frozenset((down,)))
                    assert way[-1].hosts(target)
                    assert len(way) - 1 <= distance(start, target)


def test_a_message_for_a_node_that_is_down_stops_beside_it() -> None:
    cube = grown(6, 23, random.Random(1))
    for down in cube.members:
        for start in cube.members:
            if start != down:
                end = path(cube, start, down.bits, frozenset((down,)))[-1]
                assert not end.hosts(down.bits)
                assert next_hop(end, cube.links(end), down.bits, frozenset((down,))) is None


@pytest.mark.parametrize("count", [2, 3, 7, 16, 23])
def test_who_sees_to_a_silent_region_is_found_by_routing_round_it(count: int) -> None:
    cube = churned(6, count, random.Random(count))
    for silent in cube.members:
        assert silent.sibling.holds(taker(cube, silent))


def test_any_step_that_leads_nearer_will_do_where_the_right_links_are_missing() -> None:
    here = Region.read("000")
    assert next_hop(here, [Region.read("0100"), Region.read("001")], 0b0110) == Region.read("0100"), "not the lowest"
    assert next_hop(here, [Region.read("0100")], 0b0011) is None, "it leads away"
    assert next_hop(here, [Region.read("1110")], 0b1111) == Region.read("1110"), "out of date, and nearer"
    assert next_hop(here, [], 0b1000) is None, "it is here"
