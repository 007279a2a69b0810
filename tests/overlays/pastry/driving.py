"""The small driver, for Pastry."""

from __future__ import annotations

import random
from typing import Any

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.pastry import MESSAGES, Pastry, PastrySettings
from meetpoint.overlays.pastry.invariant import broken, closest, departures, stands
from meetpoint.overlays.pastry.rules import PastryRules
from tests.overlays import driving
from tests.overlays.driving import Text, drawn, peer

__all__ = ["PACKER", "Host", "Text", "World", "drawn", "peer"]

PACKER = Codec((*MESSAGES, Text))


class Host(driving.Host[Pastry]):
    """A node that is nothing but Pastry."""

    def __init__(
        self, me: Peer, ring: Ring, seed: int, settings: PastrySettings, rules: type[PastryRules] = PastryRules
    ) -> None:
        super().__init__(me, ring, seed, PACKER, lambda runtime, upcalls: Pastry(runtime, upcalls, settings, rules))


class World(driving.World[Host]):
    """Such hosts, and the network between them."""

    def __init__(
        self,
        ring: Ring | None = None,
        seed: int = 0,
        settings: PastrySettings | None = None,
        rules: type[PastryRules] = PastryRules,
        **network: Any,
    ) -> None:
        super().__init__(ring or Ring(128), PACKER, seed, **network)
        self.settings = settings or PastrySettings()
        self.rules = rules

    def make(self, me: Peer, seed: int) -> Host:
        return Host(me, self.ring, seed, self.settings, self.rules)

    def departed(self, members: dict[bytes, Any]) -> str | None:
        return departures(members, self.settings.half)

    def wrong(self) -> str | None:
        return broken(self.members(), self.ring.size)

    def owner(self, key: bytes) -> NodeId:
        return NodeId(Key(closest(sorted(self.members()), key, self.ring.size)))

    def crash_one(self, chance: random.Random) -> None:
        """Crash a node, if the rest stands without it."""
        members = self.members()
        gone = chance.choice(sorted(members))
        if stands({node: view for node, view in members.items() if node != gone}):
            self.crash(gone)
