"""The small driver, for the hypercube."""

from __future__ import annotations

from typing import Any

from meetpoint.api.codec import Codec
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube import MESSAGES, Hypercube, HypercubeSettings
from meetpoint.overlays.hypercube.invariant import broken, departures
from meetpoint.overlays.hypercube.regions import point_of
from tests.overlays import driving
from tests.overlays.driving import Text, drawn, peer

__all__ = ["PACKER", "QUICK", "Host", "Text", "World", "drawn", "peer"]

PACKER = Codec((*MESSAGES, Text))
QUICK = HypercubeSettings(fallow_us=5 * SECOND_US, rejoin_us=3 * SECOND_US)
"""Settings with short waits."""


class Host(driving.Host[Hypercube]):
    """A node that is nothing but its part of the hypercube."""

    def __init__(self, me: Peer, ring: Ring, seed: int, settings: HypercubeSettings, dimensions: int) -> None:
        super().__init__(
            me, ring, seed, PACKER, lambda runtime, upcalls: Hypercube(runtime, upcalls, settings, dimensions)
        )


class World(driving.World[Host]):
    """Such hosts, and the network between them."""

    def __init__(
        self,
        ring: Ring | None = None,
        seed: int = 0,
        settings: HypercubeSettings | None = None,
        dimensions: int = 16,
        **network: Any,
    ) -> None:
        super().__init__(ring or Ring(128), PACKER, seed, **network)
        self.settings = settings or HypercubeSettings()
        self.dimensions = dimensions

    def make(self, me: Peer, seed: int) -> Host:
        return Host(me, self.ring, seed, self.settings, self.dimensions)

    def departed(self, members: dict[bytes, Any]) -> str | None:
        return departures(members, self.dimensions)

    def wrong(self) -> str | None:
        return broken(self.members(), self.dimensions)

    def owner(self, key: bytes) -> NodeId:
        point = point_of(self.ring, key, self.dimensions)
        return next(NodeId(view.id) for view in self.members().values() if any(r.hosts(point) for r, _ in view.pieces))
