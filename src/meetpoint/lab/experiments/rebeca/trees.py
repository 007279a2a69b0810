"""Trees of the graph: how deep they are, who hands how much on, how many edges members have. A model, by the real code.

Nobody is down and all edges are right (`schemes.rebeca.graph` says which these are): what is counted is the graph, not
a network. That a running network's events go the same ways is a test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from statistics import mean
from typing import NamedTuple

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.rebeca.graph import Graph, GraphPart, Range, fingered_by, fingers, reserve_count

__all__ = ["SIZE", "Walk", "even", "graphs", "hashed", "leading_to", "run_load", "run_notices", "run_trees", "walk"]

SIZE = 1 << 64
LOCATED = 16
"""Keys that each asker looks for."""


def even(count: int, size: int = SIZE) -> list[int]:
    """Members at equal distances."""
    return [at * size // count for at in range(count)]


def hashed(count: int, seed: int, size: int = SIZE) -> list[int]:
    """Members whose places look drawn at random."""
    ring = Ring((size - 1).bit_length())
    return sorted({ring.number(ring.hash(f"{seed}/{at}".encode())) for at in range(count)})


def graphs(members: Sequence[int], size: int = SIZE) -> dict[int, Graph]:
    """Each member's edges, all of them right; keys end at places, as on a network."""
    begins = {place: (members[at - 1] + 1) % size for at, place in enumerate(members)}
    return {
        place: Graph(
            size,
            place,
            Range(begin, (place - begin) % size + 1),
            {node: begins[node] for node in fingers(place, members, size)},
        )
        for place, begin in begins.items()
    }


class Walk(NamedTuple):
    """How often each was reached, at which depth, and who handed it on to whom."""

    times: Counter[int]
    depths: dict[int, int]
    edges: list[tuple[int, int]]


def walk(
    nodes: Mapping[int, Graph],
    root: int,
    is_wanted: Callable[[int, GraphPart], bool] = lambda here, part: True,
) -> Walk:
    """An event from a member to all others."""
    times: Counter[int] = Counter({root: 1})
    depths = {root: 0}
    edges: list[tuple[int, int]] = []
    waiting = [(root, Range(nodes[root].own.begin, nodes[root].size))]
    for here, range_ in waiting:  # grows as we go
        for part in nodes[here].split(range_).parts:
            if is_wanted(here, part):
                times[part.node] += 1
                depths[part.node] = depths[here] + 1
                edges.append((here, part.node))
                waiting.append((part.node, part.range))
    return Walk(times, depths, edges)


def _members(parameters: Parameters, seed: int) -> list[int]:
    count = int(parameters["nodes"])
    return even(count) if parameters["ids"] == "even" else hashed(count, seed)


def run_trees(parameters: Parameters, seed: int) -> Metrics:
    """Depths, edges, and whether anybody is reached twice, or never; from so many roots."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    roots = random.Random(f"roots/{seed}").sample(members, min(int(parameters["roots"]), len(members)))
    depths, deepest = [], []
    twice = never = off = 0
    for root in roots:
        walked = walk(nodes, root)
        depths.append(mean(walked.depths.values()))
        deepest.append(max(walked.depths.values()))
        twice += sum(times > 1 for times in walked.times.values())
        never += len(members) - len(walked.times)
        off += _off_binomial(walked.depths)
    into = Counter(node for graph in nodes.values() for node in graph.nodes)
    return {
        "depth_mean": mean(depths),
        "deepest_mean": mean(deepest),
        "deepest": max(deepest),
        "reached_twice": twice,
        "never_reached": never,
        "off_binomial": off,
        "edges_out_mean": mean(len(graph.responsible) for graph in nodes.values()),
        "edges_out_most": max(len(graph.responsible) for graph in nodes.values()),
        "edges_in_least": min(into[node] for node in nodes),
        "edges_in_most": max(into[node] for node in nodes),
        "known_by_least": _known_by_least(members, nodes, 1),
        "known_by_least_twice": _known_by_least(members, nodes, 2),
    }


def _off_binomial(depths: Mapping[int, int]) -> int:
    """How many members lie at another depth than in a binomial tree of as many."""
    levels = (len(depths) - 1).bit_length()
    found = Counter(depths.values())
    return sum(abs(found[depth] - comb(levels, depth)) for depth in range(max(levels, *found) + 1))


def _known_by_least(members: Sequence[int], nodes: Mapping[int, Graph], per_level: float) -> int:
    """Of all members, the fewest that one is an edge of, or in the reserve of: so many failed edges cut it off."""
    reserve = min(reserve_count(len(members), per_level), len(members) - 1)
    known: dict[int, set[int]] = {member: set() for member in members}
    for at, member in enumerate(members):
        following = (members[(at + step) % len(members)] for step in range(1, reserve + 1))
        for other in (*nodes[member].nodes, *following):
            known[other].add(member)
    return min(map(len, known.values()))


def run_load(parameters: Parameters, seed: int) -> Metrics:
    """Everybody publishes once, and everybody wants it: who hands how much on."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    sends: Counter[int] = Counter()
    for root in members:
        sends.update(here for here, _ in walk(nodes, root).edges)
    average = sends.total() / len(members)
    one = Counter(here for here, _ in walk(nodes, members[0]).edges)
    return {
        "busiest_to_mean": max(sends.values()) / average,
        "idlest_to_mean": min(sends[member] for member in members) / average,
        "one_tree_busiest_to_mean": max(one.values()) / (one.total() / len(members)),
        "one_tree_idle_share": 1 - len(one) / len(members),
    }


def run_notices(parameters: Parameters, seed: int) -> Metrics:
    """Messages of a node-location to whoever has a key, and of a node-join to all that it is for."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    rng = random.Random(f"notices/{seed}")
    hops, meant, messages = [], [], []
    for place in rng.sample(members, min(int(parameters["askers"]), len(members))):
        keys = [Range(rng.randrange(SIZE), 1) for _ in range(LOCATED)]
        hops += [len(walk(nodes, place, leading_to([key])).edges) for key in keys]
        targets = fingered_by(nodes[place].own, SIZE)
        meant.append(sum(each != place and _holds(targets, each) for each in members))
        messages.append(len(walk(nodes, place, leading_to(targets)).edges))
    return {
        "location_mean": mean(hops),
        "location_most": max(hops),
        "join_for": mean(meant),
        "join_mean": mean(messages),
        "join_most": max(messages),
    }


def leading_to(targets: Iterable[Range]) -> Callable[[int, GraphPart], bool]:
    """Whether a part has a key of some ranges: the range inclusion test of notices."""
    wanted = list(targets)
    return lambda here, part: any(part.range.meets(each, SIZE) for each in wanted)


def _holds(targets: Iterable[Range], key: int) -> bool:
    return any(each.holds(key, SIZE) for each in targets)
