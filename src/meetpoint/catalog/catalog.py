"""Overlays and schemes by name, and a node made of one of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from meetpoint.api.codec import Codec
from meetpoint.api.handshake import IAm
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.errors import SetupError
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.message_kinds import MESSAGES
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay, Upcalls
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings
from meetpoint.overlays import chord, hypercube, pastry
from meetpoint.placement.messages import MESSAGES as PLACEMENT_MESSAGES
from meetpoint.schemes import dmm, flood, lists, meet, reach, rebeca

__all__ = ["BITS", "OVERLAYS", "SCHEMES", "NetworkConfig", "make_codec", "make_link_codec", "make_node"]


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes of one network share."""

    overlay: str = "chord"
    scheme: str = "meet"
    bits: int | None = None
    """The width of ids; None: the overlay's own (`BITS`)."""
    node: NodeSettings = NodeSettings()
    chord: chord.ChordSettings = chord.ChordSettings()
    pastry: pastry.PastrySettings = pastry.PastrySettings()
    hypercube: hypercube.HypercubeSettings = hypercube.HypercubeSettings()
    lists: lists.ListsSettings = lists.ListsSettings()
    meet: meet.MeetSettings = meet.MeetSettings()
    dmm: dmm.DmmSettings = dmm.DmmSettings()
    reach: reach.ReachSettings = reach.ReachSettings()
    rebeca: rebeca.RebecaSettings = rebeca.RebecaSettings()

    def __post_init__(self) -> None:
        for what, name, known in (("overlay", self.overlay, OVERLAYS), ("scheme", self.scheme, SCHEMES)):
            if name not in known:
                raise SetupError(f"{what}: there is no {name!r}; choose from: {', '.join(known)}")

    @property
    def ring(self) -> Ring:
        """The circle of the network's ids."""
        return Ring(BITS[self.overlay] if self.bits is None else self.bits)

    @property
    def dimensions(self) -> int:
        """How many bits choose a node of the hypercube: those of the scheme's ids, where it places things by them."""
        of_ids = reach.dimensions_of(self.reach) if self.scheme == "reach" else self.hypercube.dimensions
        return min(of_ids, self.ring.bits)


def _chord(config: NetworkConfig, services: Runtime, upcalls: Upcalls) -> Overlay:
    return chord.Chord(services, upcalls, config.chord)


def _pastry(config: NetworkConfig, services: Runtime, upcalls: Upcalls) -> Overlay:
    return pastry.Pastry(services, upcalls, config.pastry)


def _hypercube(config: NetworkConfig, services: Runtime, upcalls: Upcalls) -> Overlay:
    return hypercube.Hypercube(services, upcalls, config.hypercube, config.dimensions)


def _flood(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return flood.Flood(services, overlay, hosting)


def _lists(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return lists.Lists(services, overlay, hosting, config.node, config.lists)


def _meet(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return meet.Meet(services, overlay, hosting, config.node, config.meet)


def _dmm(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return dmm.Dmm(services, overlay, hosting, config.node, config.dmm)


def _reach(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return reach.Reach(services, overlay, hosting, config.node, config.reach)


def _rebeca(config: NetworkConfig, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
    return rebeca.Rebeca(services, overlay, hosting, config.node, config.rebeca)


OVERLAYS: Final[dict[str, Callable[[NetworkConfig, Runtime, Upcalls], Overlay]]] = {
    "chord": _chord,
    "pastry": _pastry,
    "hypercube": _hypercube,
}
BITS: Final[dict[str, int]] = {"chord": 160, "pastry": 128, "hypercube": 160}
"""The width of ids, as each overlay's paper has it; that of the hypercube leaves it open, and has Chord's."""
SCHEMES: Final[dict[str, Callable[[NetworkConfig, Runtime, Overlay, HomeManager], Scheme]]] = {
    "flood": _flood,
    "lists": _lists,
    "meet": _meet,
    "dmm": _dmm,
    "reach": _reach,
    "rebeca": _rebeca,
}
_KINDS: Final[tuple[type[Message], ...]] = (
    *MESSAGES,
    *PLACEMENT_MESSAGES,
    *chord.MESSAGES,
    *pastry.MESSAGES,
    *hypercube.MESSAGES,
    *flood.MESSAGES,
    *lists.MESSAGES,
    *meet.MESSAGES,
    *dmm.MESSAGES,
    *reach.MESSAGES,
    *rebeca.MESSAGES,
)


def make_codec() -> Codec:
    """Bytes and messages of every network: tags differ between all overlays and schemes."""
    return Codec(_KINDS)


def make_link_codec() -> Codec:
    """The same, and what brokers that speak over sockets say beside it."""
    return Codec((*_KINDS, IAm))


def make_node(config: NetworkConfig, me: Peer, seed: int, codec: Codec) -> Node:
    """A node that has not started."""
    return Node(
        me,
        config.ring,
        seed,
        codec,
        lambda services, upcalls: OVERLAYS[config.overlay](config, services, upcalls),
        lambda services, overlay, hosting: SCHEMES[config.scheme](config, services, overlay, hosting),
        config.node,
    )
