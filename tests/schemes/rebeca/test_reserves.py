"""Paper E, section 5.1: half of the nodes may fail at once."""

from __future__ import annotations

from collections import Counter

import pytest

from meetpoint.lab.experiments.rebeca.model import SIZE, fail
from meetpoint.schemes.rebeca.graph import between, following, reserve_count
from meetpoint.schemes.rebeca.tables import make_table
from tests.schemes.rebeca.networks import SIZE as SMALL
from tests.schemes.rebeca.networks import Network
from tests.schemes.rebeca.rings import graphs, walk


def test_two_neighbours_are_in_reserve_for_each_doubling() -> None:
    assert [reserve_count(count) for count in (1, 2, 3, 128, 129, 1024)] == [1, 2, 4, 14, 16, 20]
    assert reserve_count(128, per_level=1) == 7
    assert [reserve_count(128, per_level=share) for share in (0, 0.1, 0.5)] == [1, 1, 4]


def test_the_next_ones_clockwise_follow_and_never_oneself() -> None:
    assert following(60, [61, 3, 10], 2, 64) == [61, 3]
    assert following(60, [3, 10, 3], 9, 64) == [3, 10]
    assert following(60, [60], 1, 64) == []


def test_a_candidate_names_those_that_lie_before_it_or_nobody() -> None:
    assert between(60, 10, [12, 9, 3, 50], 4, 64) == [3, 9]
    assert between(60, 10, [12, 9, 3, 50], 1, 64) == [3]
    assert between(60, 10, [10, 60], 4, 64) == []


def test_with_two_for_each_doubling_a_ring_of_64_survives_and_with_one_often_not() -> None:
    seeds = range(200)
    alone = Counter(per_level for seed in seeds for per_level in (1, 2) if not fail(64, seed, per_level).lost)
    assert 100 <= alone[1] <= 140, "e^-0.5 of 200 are 121"
    assert alone[2] >= 196, "1 - 1/128 of 200 are 198"


@pytest.mark.slow
@pytest.mark.parametrize("per_level", [1, 2])
def test_repair_through_fingers_and_incoming_edges_finds_every_successor(per_level: int) -> None:
    lost = [fail(64, seed, per_level) for seed in range(200)]
    assert sum(each.lost_for_good for each in lost) == 0
    if per_level == 1:
        assert sum(each.lost for each in lost) > 50, "there is something to repair"


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_where_the_ring_survived_every_survivor_is_reached_exactly_once(seed: int) -> None:
    live = fail(64, seed).live
    nodes = graphs(live, SIZE)
    for root in live[::8]:
        found = walk(nodes, root)
        assert found.times == Counter(live)
        assert not found.left


def test_delivery_is_exact_again_when_half_of_the_nodes_have_failed() -> None:
    network = Network([at * 4096 + 7 * at * at for at in range(16)], lambda: make_table("merging"))
    for at, place in enumerate(sorted(network.homes)):
        network.subscribe(place, f"a BETWEEN {at} AND {at + 3}")
    network.settle()
    for place in sorted(network.homes)[1::2]:
        network.crash(place)
    events = [{"a": value} for value in range(0, 20, 3)]
    assert network.lost(events, network.nodes) is None, "what does not arrive was left, and will be tried again"
    network.settle()
    for root in network.nodes:
        for event in events:
            served, left, _ = network.walk(root, event)
            assert not any(range_.holds(place, SMALL) for place in network.nodes for range_ in left)
            wanting = {place for place in network.nodes for each in network.homes[place].values()
                       if any(row.accepts(event) for row in each.rows)}  # fmt: skip
            assert wanting <= {place for place, times in served.items() if times == 1}
    for place in network.homes:
        if place not in network.nodes:
            network.restart(place)
    network.settle()
    assert network.not_kept() is None
    assert not any(network.walk(root, {"a": 5})[1] for root in network.nodes)
    assert network.lost(events, network.nodes) is None
