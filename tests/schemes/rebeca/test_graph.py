"""Paper E, sections 4.1 and 4.3: ranges, edges, trees."""

from __future__ import annotations

import random
from collections import Counter
from math import comb

import pytest

from meetpoint.schemes.rebeca.graph import Graph, GraphPart, Range, fingered_by, fingers, level
from tests.schemes.rebeca.rings import SIZE, churned, even, graphs, hashed, walk

# -- ranges ------------------------------------------------------------------------------------------------------------


def test_a_range_from_a_key_to_itself_says_whether_it_is_everything_or_nothing() -> None:
    everything, nothing = Range(3, 16), Range(3, 0)
    assert everything.end(16) == nothing.end(16) == 3, "as printed they are the same"
    assert all(everything.holds(key, 16) for key in range(16))
    assert not any(nothing.holds(key, 16) for key in range(16))


def test_ranges_meet_and_enclose_as_their_keys_do() -> None:
    size = 7
    ranges = [Range(begin, length) for begin in range(size) for length in range(size + 1)]
    keys = {each: {key for key in range(size) if each.holds(key, size)} for each in ranges}
    for a in ranges:
        assert keys[a] == {(a.begin + step) % size for step in range(a.length)}
        for b in ranges:
            assert a.meets(b, size) == bool(keys[a] & keys[b])
            assert a.encloses(b, size) == (keys[a] >= keys[b])
            parts = [keys[each] for each in a.common(b, size)]
            assert set().union(*parts) == keys[a] & keys[b]
            assert sum(map(len, parts)) == len(keys[a] & keys[b]), "no key twice"


# -- one node ----------------------------------------------------------------------------------------------------------


def test_the_edges_are_chords_fingers_and_the_successor() -> None:
    members = [0, 1, 3, 4, 6, 9, 14]
    assert fingers(0, members, 16) == [1, 3, 4, 9]
    assert fingers(9, members, 16) == [14, 1]
    assert fingers(5, [5], 16) == []


@pytest.mark.parametrize("seed", range(8))
def test_those_whose_edge_a_member_is_lie_where_its_keys_say(seed: int) -> None:
    """Section 5.1, where each subscribes for joins between its place + 2^k and its edge; seen from who joins."""
    rng = random.Random(seed)
    size = 1 << rng.randint(3, 12)
    members = sorted(rng.sample(range(size), rng.randint(2, min(40, size // 2))))
    for at, place in enumerate(members):
        own = Range((members[at - 1] + 1) % size, (place - members[at - 1]) % size)
        targets = fingered_by(own, size)
        for other in members:
            if other != place:
                is_meant = any(each.holds(other, size) for each in targets)
                assert is_meant == (place in fingers(other, members, size))


def test_a_node_parts_its_range_the_longest_first() -> None:
    graph = Graph(16, 0, Range(0, 1), {1: 1, 3: 3, 4: 4, 9: 9})
    assert graph.split(Range(0, 16)).parts == [
        GraphPart(9, Range(9, 7)),
        GraphPart(4, Range(4, 5)),
        GraphPart(1, Range(1, 2)),
        GraphPart(3, Range(3, 1)),
    ]
    cut = graph.split(Range(0, 6))
    assert cut.parts == [GraphPart(1, Range(1, 2)), GraphPart(4, Range(4, 2)), GraphPart(3, Range(3, 1))]
    assert cut.mine == Range(0, 1)
    assert cut.left == []


def test_what_no_edge_answers_for_is_left() -> None:
    graph = Graph(16, 4, Range(3, 2), {9: 8})
    assert graph.split(Range(3, 16)).left == [Range(5, 3)], "between here and where the keys of 9 begin"
    assert graph.split(Range(1, 4)).left == [Range(1, 2)], "before this node's own keys"
    assert graph.split(Range(9, 2)) == (Range(3, 0), [], [Range(9, 2)])
    assert graph.split(Range(4, 16)).left == [Range(3, 1), Range(5, 3)], "own keys, but round the circle"


def test_keys_that_cannot_be_a_nodes_are_not_taken_for_its() -> None:
    graph = Graph(16, 0, Range(15, 2), {4: 2, 9: 3, 12: 15})
    assert graph.responsible == {4: Range(2, 7), 9: Range(9, 3), 12: Range(12, 3)}
    assert list(Graph(16, 5, Range(2, 4), {3: 3, 8: 6}).nodes) == [8], (
        "one whose place is among this node's keys is gone"
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_split_has_every_key_of_a_range_once_whatever_is_known(seed: int) -> None:
    rng = random.Random(seed)
    size = 24
    for _ in range(40):
        place = rng.randrange(size)
        length = rng.randint(1, 6)
        own = Range((place - rng.randrange(length)) % size, length)
        links = {rng.randrange(size): rng.randrange(size) for _ in range(rng.randrange(6))}
        asked = Range(rng.randrange(size), rng.randrange(size + 1))
        split = Graph(size, place, own, links).split(asked)
        times = Counter(
            (each.begin + step) % size
            for each in (split.mine, *(part.range for part in split.parts), *split.left)
            for step in range(each.length)
        )
        assert times == Counter((asked.begin + step) % size for step in range(asked.length))
        assert own.encloses(split.mine, size)
        assert all(part.range.length > 0 and part.node in links for part in split.parts)


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", range(8))
def test_on_evenly_spaced_members_the_tree_is_binomial(order: int) -> None:
    members = even(1 << order)
    found = walk(graphs(members), members[0])
    assert Counter(found.depths.values()) == {depth: comb(order, depth) for depth in range(order + 1)}
    children: dict[int, list[int]] = {member: [] for member in members}
    for here, there in found.edges:
        children[here].append(there)

    def shape(member: int) -> list[object]:
        return sorted((shape(child) for child in children[member]), key=str)

    def binomial(rank: int) -> list[object]:
        return sorted((binomial(lower) for lower in range(rank)), key=str)

    assert shape(members[0]) == binomial(order)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [1, 2, 3, 17, 64])
def test_every_member_is_reached_exactly_once_from_every_root(seed: int, count: int) -> None:
    nodes = graphs(hashed(count, seed))
    for root in nodes:
        found = walk(nodes, root)
        assert found.times == Counter(list(nodes))
        assert len(found.edges) == len(nodes) - 1
        assert not found.left


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_served_twice_whatever_is_believed_and_who_is_not_lies_in_what_was_left(seed: int) -> None:
    nodes = churned(seed, 24)
    missed = 0
    for root in nodes:
        found = walk(nodes, root)
        assert max(found.times.values()) == 1
        for node in nodes:
            if not found.times[node]:
                missed += 1
                assert any(range_.holds(node, SIZE) for range_ in found.left)
    assert missed, "the edges are bad enough"


def test_depth_grows_with_the_logarithm_of_the_number_of_members() -> None:
    for count, most in ((16, 7), (64, 10), (256, 13)):
        for seed in range(3):
            nodes = graphs(hashed(count, seed))
            depths = [max(walk(nodes, root).depths.values()) for root in list(nodes)[:: max(1, count // 16)]]
            assert max(depths) <= most
            assert min(depths) >= count.bit_length() - 2


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [2, 3, 8, 40])
def test_what_an_edge_answers_for_is_parted_among_edges_of_lower_levels(seed: int, count: int) -> None:
    nodes = graphs(hashed(count, seed))
    for u, upper in nodes.items():
        for v in upper.nodes:
            for w in nodes[v].nodes:
                if upper.responsible[v].meets(nodes[v].responsible[w], SIZE):
                    assert level(v, w, SIZE) < level(u, v, SIZE)
