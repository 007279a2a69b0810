"""Subset routing: paper C, section 3.2, as corrected, a claim a test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach.ids import Tree, is_required, tree_of
from tests.overlays.hypercube.growing import Cube, Made, even, grown, lopsided
from tests.schemes.reach.tree_walk import required, walk

FIGURE_2 = 0b1100111
"""The event of figure 2. It has seven bits, so that n is 7 and not 8."""


def churned(dimensions: int, count: int, rng: random.Random) -> Cube:
    """A network that has seen leaves and crashes too."""
    cube = grown(dimensions, 2 * count, rng)
    while len(cube.names) > count:
        if rng.random() < 0.5:
            cube.leave(rng.choice(cube.names))
        else:
            cube.crash(rng.choice(cube.names))
            cube.repair()
    return cube


def shortest(cube: Cube) -> int:
    return min(region.length for region in cube.members)


def names(regions: Iterable[Region]) -> list[str]:
    return sorted(map(str, regions))


# -- figure 2 ----------------------------------------------------------------------------------------------------------


def test_figure_2_node_by_node_with_0000() -> None:
    cube = even(7, 4)
    went = walk(cube, Region.read("0111"), FIGURE_2, Tree())
    below: dict[str, list[str]] = {}
    for here, there in went.edges:
        below.setdefault(str(here), []).append(str(there))
    assert below["0111"] == ["0110", "0101", "0011"], "its three immediate children"
    assert below["0110"] == ["0100", "0010"]
    assert below["0101"] == ["0001"]
    assert below["0100"] == ["0000"], "the node of the empty suffix, which the figure leaves out"
    assert names(went.times) == ["0000", "0001", "0010", "0011", "0100", "0101", "0110", "0111"]
    assert set(went.times.values()) == {1}
    assert went.sends == 2**3 - 1


def test_0000_hosts_subsets_of_the_event_of_figure_2() -> None:
    assert Region.read("0000").hosts(0b1000000)
    assert 0b1000000 & ~FIGURE_2 == 0
    assert is_required(Region.read("0000"), FIGURE_2)


def test_event_1001_reaches_0000_too() -> None:
    cube = even(4, 4)
    went = walk(cube, Region.read("1001"), 0b1001, Tree())
    assert names(went.times) == ["0000", "0001", "1000", "1001"]


# -- ids of one length -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(6))
def test_with_ids_of_one_length_an_event_takes_2_to_the_b_less_1_and_l_sends(length: int) -> None:
    cube = even(7, length)
    rng = random.Random(length)
    for number in range(60):
        event, start = rng.randrange(128), rng.choice(sorted(cube.members))
        went = walk(cube, start, event, tree_of(f"m{number}", length))
        suffix = event & (1 << length) - 1
        assert went.sends == 2 ** suffix.bit_count() - 1 + (start.bits ^ suffix).bit_count()
        assert set(went.times) == required(cube, event)
        assert set(went.times.values()) == {1}


def test_a_tree_is_chosen_by_the_messages_id_and_the_same_everywhere() -> None:
    assert tree_of("m1", 6) == tree_of("m1", 6)
    assert tree_of("one", 4).lowest == (1, 3, 2, 0), "as on every machine"
    assert len({tree_of(f"m{number}", 6) for number in range(100)}) > 80
    assert sorted(tree_of("m1", 6).positions(9)) == list(range(9))
    assert list(tree_of("m1", 6).positions(9))[6:] == [6, 7, 8]
    assert tree_of("m1", 0) == Tree()


def test_trees_by_hash_spread_the_load() -> None:
    cube = even(5, 5)
    root = Region.read("11111")

    def busiest(floor: int) -> int:
        sends: Counter[Region] = Counter()
        for number in range(400):
            sends.update(here for here, _ in walk(cube, root, 0b11111, tree_of(f"m{number}", floor)).edges)
        del sends[root]  # it always sends five
        return max(sends.values())

    assert busiest(0) == 400 * 4, "in one tree the same node hands on most, every time"
    assert busiest(5) < 400 * 2.4, "of five nodes, each hands on 0 to 4, 2 on average"


# -- ids of different lengths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [grown, churned, lopsided])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 11, 13, 22, 37])
def test_every_required_node_is_reached_exactly_once(made: Made, count: int) -> None:
    cube = made(7, count, random.Random(count))
    rng = random.Random(count)
    for event in range(128):
        for floor in {0, shortest(cube)}:
            went = walk(cube, rng.choice(sorted(cube.members)), event, tree_of(f"m{event}", floor))
            wanted = required(cube, event)
            assert went.times == Counter(dict.fromkeys(wanted, 1))
            assert len(went.edges) == len(wanted) - 1


@pytest.mark.parametrize("count", [3, 6, 11, 22])
def test_a_floor_that_is_too_high_costs_messages_and_never_a_node(count: int) -> None:
    cube = churned(7, count, random.Random(count))
    for event in range(128):
        went = walk(cube, min(cube.members), event, tree_of(f"m{event}", shortest(cube) + 2))
        assert set(went.times) == required(cube, event)


def test_a_floor_that_is_too_high_does_cost_messages() -> None:
    cube = grown(7, 11, random.Random(11))
    assert shortest(cube) == 3
    doubled = 0
    for event in range(128):
        went = walk(cube, min(cube.members), event, tree_of(f"m{event}", 5))
        doubled += went.times.total() - len(went.times)
    assert doubled > 0


def test_11_reaches_101_where_lengths_differ() -> None:
    cube = Cube(3, "a")
    cube.join("b", Region.read(""))
    cube.join("c", Region.read("0"))
    cube.join("d", Region.read("1"))
    cube.join("e", Region.read("01"))
    assert names(set(cube.members)) == ["00", "001", "10", "101", "11"]
    went = walk(cube, Region.read("11"), 0b111, Tree())
    assert names(went.times) == ["00", "001", "10", "101", "11"]
