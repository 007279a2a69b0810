"""Rings of members in one process: the paper's, where a node's keys begin at its place."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from meetpoint.lab.experiments.rebeca import model
from meetpoint.schemes.rebeca.graph import Graph, GraphPart, Range, fingers

__all__ = ["SIZE", "Walk", "even", "graphs", "hashed", "walk"]

SIZE = 1 << 32

even = partial(model.even, size=SIZE)
hashed = partial(model.hashed, size=SIZE)


def graphs(members: Sequence[int], size: int = SIZE) -> dict[int, Graph]:
    """Each member's edges, all of them right."""
    made = {}
    for at, place in enumerate(members):
        following = members[(at + 1) % len(members)]
        own = Range(place, (following - place) % size or size)
        made[place] = Graph(size, place, own, {node: node for node in fingers(place, members, size)})
    return made


class Walk(NamedTuple):
    """How often each was reached, at which depth at last, who handed it on to whom, and what nobody answered for."""

    times: Counter[int]
    depths: dict[int, int]
    edges: list[tuple[int, int]]
    left: list[Range]


def walk(
    nodes: Mapping[int, Graph],
    root: int,
    is_wanted: Callable[[int, GraphPart], bool] = lambda here, part: True,
) -> Walk:
    """An event from a member to all others."""
    size = nodes[root].size
    times: Counter[int] = Counter()
    depths = {root: 0}
    edges: list[tuple[int, int]] = []
    left: list[Range] = []
    waiting = [(root, Range(nodes[root].own.begin, size))]
    for here, range_ in waiting:  # grows as we go
        split = nodes[here].split(range_)
        times[here] += split.mine.holds(here, size)
        left += split.left
        for part in split.parts:
            if part.node not in nodes:
                left.append(part.range)
            elif is_wanted(here, part):
                depths[part.node] = depths[here] + 1
                edges.append((here, part.node))
                waiting.append((part.node, part.range))
    return Walk(times, depths, edges, left)


def churned(seed: int, count: int) -> dict[int, Graph]:
    """Edges of a time of change: what each node knows is right, old or missing."""
    rng = random.Random(seed)
    members = hashed(count, seed)
    made = {}
    for place, graph in graphs(members).items():
        some = rng.sample(members, rng.randint(1, count))
        links = {node: (node - rng.randrange(SIZE // count)) % SIZE for node in (*graph.nodes, *some)}
        kept = {node: begin for node, begin in links.items() if rng.random() < 0.7}
        made[place] = Graph(SIZE, place, graph.own, kept)
    return made
