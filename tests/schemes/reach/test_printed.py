"""Paper C's subset routing as printed: which nodes it misses."""

from __future__ import annotations

import random
from typing import NamedTuple

from meetpoint.lab.printed.papers_cd import printed_children, printed_reach
from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach.ids import tree_of
from tests.overlays.hypercube.growing import even, grown
from tests.schemes.reach.tree_walk import required, walk


class Missed(NamedTuple):
    """Over many events: nodes that were required, and of those missed, with and without the one of no set bit."""

    required: int
    printed: int
    with_zero: int
    corrected: int


def simulated(networks: int, events: int) -> Missed:
    """Networks of 3 to 40 nodes grown by the join rule on ids of 7 bits, with random events."""
    wanted = printed = with_zero = corrected = 0
    for seed in range(networks):
        rng = random.Random(seed)
        cube = grown(7, rng.randint(3, 40), rng)
        for number in range(events):
            event = rng.randrange(128)
            all_required = required(cube, event)
            root = cube.owner(event)
            wanted += len(all_required)
            printed += len(all_required - set(printed_reach(root, cube.links)))
            with_zero += len(all_required - set(printed_reach(root, cube.links, with_zero=True)))
            floor = min(region.length for region in cube.members)
            corrected += len(all_required - set(walk(cube, root, event, tree_of(f"{seed}.{number}", floor)).times))
    return Missed(wanted, printed, with_zero, corrected)


def test_figure_2_as_printed_leaves_out_0000() -> None:
    cube = even(7, 4)
    reached = [str(node) for node in printed_reach(Region.read("0111"), cube.links)]
    assert sorted(reached) == ["0001", "0010", "0011", "0100", "0101", "0110", "0111"]
    assert Region.read("0000") in required(cube, 0b1100111)


def test_event_1001_as_printed_leaves_out_0000() -> None:
    reached = [str(node) for node in printed_reach(Region.read("1001"), even(4, 4).links)]
    assert sorted(reached) == ["0001", "1000", "1001"]


def test_with_ids_of_one_length_it_reaches_all_others() -> None:
    for length in range(6):
        cube = even(7, length)
        for event in range(0, 128, 5):
            reached = set(printed_reach(cube.owner(event), cube.links, with_zero=True))
            assert reached == required(cube, event)


def test_11_never_reaches_101() -> None:
    links = [Region.read(node) for node in ("10", "001", "101")]
    assert printed_children(Region.read("11"), links) == [Region.read("10"), Region.read("001")]


def test_with_ids_of_different_lengths_it_misses_nodes_and_ours_does_not() -> None:
    assert simulated(networks=60, events=10) == Missed(required=3425, printed=845, with_zero=292, corrected=0)
