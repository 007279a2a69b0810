"""The small driver, for Chord."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord import MESSAGES, Chord, ChordSettings
from meetpoint.overlays.chord.invariant import broken, departures
from meetpoint.overlays.chord.rules import ChordRules
from tests.overlays import driving
from tests.overlays.driving import Text, drawn, peer

__all__ = ["PACKER", "Host", "Text", "World", "drawn", "peer"]

PACKER = Codec((*MESSAGES, Text))


class Host(driving.Host[Chord]):
    """A node that is nothing but Chord."""

    def __init__(
        self, me: Peer, ring: Ring, seed: int, settings: ChordSettings, rules: type[ChordRules] = ChordRules
    ) -> None:
        super().__init__(me, ring, seed, PACKER, lambda runtime, upcalls: Chord(runtime, upcalls, settings, rules))


class World(driving.World[Host]):
    """Such hosts, and the network between them."""

    def __init__(
        self,
        ring: Ring | None = None,
        seed: int = 0,
        settings: ChordSettings | None = None,
        rules: type[ChordRules] = ChordRules,
        **network: Any,
    ) -> None:
        super().__init__(ring or Ring(), PACKER, seed, **network)
        self.settings = settings or ChordSettings()
        self.rules = rules
        self.base = 0  # how many principals there must be: the proof begins with as many founders

    def make(self, me: Peer, seed: int) -> Host:
        return Host(me, self.ring, seed, self.settings, self.rules)

    def found(self, peers: Iterable[Peer]) -> list[Host]:
        order = tuple(sorted(peers))
        if len(order) > self.settings.successors:
            self.base = self.settings.successors + 1
        return super().found(order)

    def departed(self, members: dict[bytes, Any]) -> str | None:
        return departures(members, self.settings.successors)

    def wrong(self) -> str | None:
        return broken(self.members(), self.base)

    def owner(self, key: bytes) -> NodeId:
        order = sorted(self.members())
        return NodeId(Key(next((node for node in order if node >= key), order[0])))
