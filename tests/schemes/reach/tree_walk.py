"""Subset routing over a network of members in one process: it only carries duties between neighbours."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach.ids import EVERYTHING, Duty, Tree, head_point, is_required, parts
from tests.overlays.hypercube.growing import Cube, path

__all__ = ["Walk", "required", "walk"]


class Walk(NamedTuple):
    """How often each node was reached, from whom in which order, and by how many sends in all."""

    times: Counter[Region]
    edges: list[tuple[Region, Region]]
    sends: int


def required(cube: Cube, event: int) -> set[Region]:
    """The nodes that host a subset of an event's id, by looking at every id."""
    subsets = [point for point in range(1 << cube.dimensions) if point & ~event == 0]
    found = {region for region in cube.members if any(map(region.hosts, subsets))}
    assert found == {region for region in cube.members if is_required(region, event)}
    return found


def walk(cube: Cube, start: Region, event: int, tree: Tree) -> Walk:
    """From where an event is published to the host of its id, and down the tree."""
    way = path(cube, start, event)
    times: Counter[Region] = Counter((way[-1],))
    edges: list[tuple[Region, Region]] = []
    waiting: list[tuple[Region, Duty]] = [(way[-1], EVERYTHING)]
    for here, duty in waiting:  # grows as we go
        for part in parts(here, event, duty, tree):
            point = head_point(event, part)
            [there] = [link for link in cube.links(here) if link.hosts(point)]  # it is a neighbour: one hop
            times[there] += 1
            edges.append((here, there))
            waiting.append((there, part))
    return Walk(times, edges, len(way) - 1 + len(edges))
