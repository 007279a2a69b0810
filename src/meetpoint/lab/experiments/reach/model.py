"""A hypercube as a model (paper C): regions with the tables that their hosts would have, and no messages.

Tables, steps of routing and the parts of a tree are by the rules that nodes run. A model may be larger than the
simulator has time for, and may be one that nodes would never make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from meetpoint.overlays.hypercube import WHOLE, Region, are_neighbours, next_hop
from meetpoint.overlays.hypercube.regions import apart
from meetpoint.overlays.hypercube.rules import Link, founding_regions, pass_join
from meetpoint.schemes.reach.ids import EVERYTHING, Duty, Tree, head_point, parts


class Cube:
    """Regions that part all ids, each with those next to it."""

    def __init__(self, regions: Iterable[Region], links: Mapping[Region, Sequence[Region]] | None = None) -> None:
        self.regions = tuple(sorted(regions))
        self.links = {each: _next_to(each, self.regions) for each in self.regions} if links is None else links

    @property
    def gap(self) -> int:
        """The global gap: the largest difference between the lengths of two ids."""
        lengths = [region.length for region in self.regions]
        return max(lengths) - min(lengths)

    def host(self, point: int) -> Region:
        """Return the region that hosts an id."""
        return next(region for region in self.regions if region.hosts(point))

    def way(self, start: Region, target: int) -> list[Region]:
        """Return the hosts on a message's way to an id, from the first to the last."""
        way = [start]
        while (further := next_hop(way[-1], self.links[way[-1]], target)) is not None:
            way.append(further)
            assert len(way) <= len(self.regions), "round in circles"
        return way

    def thinned(self, chance: Random) -> Cube:
        """Return a cube with one link for each bit of an id, to any of those across it."""
        thin = {}
        for region, links in self.links.items():
            across: dict[int, list[Region]] = {}
            for link in links:
                across.setdefault(apart(region, link), []).append(link)
            thin[region] = tuple(chance.choice(each) for _, each in sorted(across.items()))
        return Cube(self.regions, thin)

    def way_by_lowest(self, start: Region, target: int) -> list[Region]:
        """Return the way by any link across the lowest wrong bit, wherever it leads to beyond: bits below stay
        right.
        """
        way = [start]
        while wrong := (way[-1].bits ^ target) & way[-1].mask:
            way.append(next(link for link in self.links[way[-1]] if apart(way[-1], link) == wrong & -wrong))
        return way

    def handed(self, event: int, tree: Tree) -> list[tuple[Region, Region]]:
        """Return the edges on which an event is handed on, from the host of its id down."""
        edges: list[tuple[Region, Region]] = []
        waiting: list[tuple[Region, Duty]] = [(self.host(event), EVERYTHING)]
        for here, duty in waiting:  # grows as we go
            for part in parts(here, event, duty, tree):
                point = head_point(event, part)
                (there,) = (link for link in self.links[here] if link.hosts(point))  # a neighbour: one hop
                edges.append((here, there))
                waiting.append((there, part))
        return edges


def even(nodes: int, dimensions: int) -> Cube:
    """Return nodes that begin together: of a power of two all ids have one length."""
    return Cube(founding_regions(nodes, dimensions))


def joined(nodes: int, dimensions: int, chance: Random) -> Cube:
    """Let each join through a random host, and pass joins on to the shortest id around (section 3.3)."""
    regions = [WHOLE]
    while len(regions) < nodes:
        at = Link(chance.choice(sorted(regions)), "")
        while (further := pass_join(at, [Link(each, "") for each in _next_to(at.region, regions)])) is not None:
            at = further
        _split(regions, at.region)
    return Cube(regions)


def split_anywhere(nodes: int, dimensions: int, chance: Random) -> Cube:
    """Let any host that is asked split, also where others have shorter ids: the case that the rule of joins
    prevents.
    """
    regions = [WHOLE]
    while len(regions) < nodes:
        _split(regions, chance.choice([each for each in sorted(regions) if each.length < dimensions]))
    return Cube(regions)


def _split(regions: list[Region], region: Region) -> None:
    regions.remove(region)
    regions += [region.half(0), region.half(1)]


def _next_to(region: Region, regions: Sequence[Region]) -> tuple[Region, ...]:
    return tuple(each for each in regions if are_neighbours(region, each))
