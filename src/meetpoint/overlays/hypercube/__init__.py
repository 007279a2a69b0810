"""The pure core of a hypercube whose nodes host ids by their suffix (paper C); `docs/reach.md` has what is there."""

from meetpoint.overlays.hypercube.regions import DIMENSIONS_MAX, WHOLE, Region, are_neighbours, distance
from meetpoint.overlays.hypercube.routing import next_hop
from meetpoint.overlays.hypercube.rules import Change, Link, Member

__all__ = ["DIMENSIONS_MAX", "WHOLE", "Change", "Link", "Member", "Region", "are_neighbours", "distance", "next_hop"]
