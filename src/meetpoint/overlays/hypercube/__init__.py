"""A hypercube whose nodes host ids by their suffix, after paper C: `docs/hypercube.md` has the protocol and limits."""

from meetpoint.overlays.hypercube.hypercube import Hypercube
from meetpoint.overlays.hypercube.messages import MESSAGES
from meetpoint.overlays.hypercube.regions import DIMENSIONS_MAX, WHOLE, Region, are_neighbours, distance
from meetpoint.overlays.hypercube.routing import HypercubeView
from meetpoint.overlays.hypercube.rules import HypercubeSettings, next_hop

__all__ = [
    "DIMENSIONS_MAX", "MESSAGES", "WHOLE", "Hypercube", "HypercubeSettings", "HypercubeView", "Region",
    "are_neighbours", "distance", "next_hop",
]  # fmt: skip
