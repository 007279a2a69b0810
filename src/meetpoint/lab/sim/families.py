"""The kinds of networks there are, as the simulator sees them: how nodes are made, and each overlay's invariants.

An overlay has one family here, which oversees it; any scheme runs on it. Whether its nodes are whole or only their
overlay (`bare`) is another question, so it is a part that a family is given (`Making`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from meetpoint.api.ids import Peer
from meetpoint.catalog import NetworkConfig, make_codec, make_node, network_config
from meetpoint.lab.sim.engine import Codec, SimulatedNode
from meetpoint.lab.sim.judge.checkers import closest_to, first_from
from meetpoint.lab.sim.judge.history import Members
from meetpoint.lab.sim.scenario import Kin
from meetpoint.lab.sim.workload import SCHEMA
from meetpoint.overlays.chord import invariant as chord_invariant
from meetpoint.overlays.hypercube import invariant as hypercube_invariant
from meetpoint.overlays.hypercube.regions import point_of
from meetpoint.overlays.pastry import invariant as pastry_invariant

__all__ = [
    "FAMILIES",
    "ChordFamily",
    "HypercubeFamily",
    "Making",
    "OverlayFamily",
    "PastryFamily",
    "WholeNodes",
    "family_of",
    "simulated",
]


DMM: Final = {"schema": SCHEMA, "threshold": 4, "depth": 5, "growth": 0.75, "relief": 0.0}
"""How `dmm` is set in small runs: it knows the workload's attributes, its regions bear so few entries that they split,
and splits are refused less often, since half of the workload's filters meet nearly every region. For the same reason
its space is halved only a few times: `dmm:always` makes a region of every part."""
REACH: Final = {"schema": SCHEMA}
"""How `reach` is set in small runs: the workload's attributes are the bits of its ids."""


class Making(Protocol):
    """How nodes are made, whatever their overlay is."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Codec) -> SimulatedNode:
        """A new node."""

    def is_ready(self, node: Any) -> bool:
        """Whether it may be asked."""


class WholeNodes:
    """Nodes as brokers run them: with homes, a scheme and a disk."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Any) -> SimulatedNode:
        """A new node."""
        return make_node(config, peer, seed, codec)

    def is_ready(self, node: Any) -> bool:
        """Whether it serves clients."""
        return bool(node.state == "ready")


class OverlayFamily:
    """What the families of all overlays have in common."""

    def __init__(self, config: NetworkConfig, making: Making | None = None) -> None:
        self.config = config
        self.codec = make_codec()
        self.ring = config.ring
        self._making = WholeNodes() if making is None else making

    def make(self, peer: Peer, seed: int) -> SimulatedNode:
        """A new node."""
        return self._making.make(self.config, peer, seed, self.codec)

    def is_ready(self, node: Any) -> bool:
        """Whether a node serves clients."""
        return self._making.is_ready(node)

    def is_member(self, view: Any) -> bool:
        """Whether a node with such a view has become a member and still is one."""
        return bool(view.joined)

    def place(self, view: Any) -> object:
        """A member's keys follow from the ids, in most overlays."""
        return None

    def viewing(self, node: Any) -> Callable[[], object]:
        """What gives the node's pointers: the same object until they change."""
        view: Callable[[], object] = node.overlay.view
        return view


class ChordFamily(OverlayFamily):
    """Chord: after Zave's invariant."""

    def __init__(self, config: NetworkConfig, making: Making | None = None) -> None:
        super().__init__(config, making)
        self._length = config.chord.successors
        self.base = 0
        """How many principals there must be; as many as the founders make possible."""

    def founders(self, count: int) -> None:
        """So many nodes begin the network at once."""
        self.base = self._length + 1 if count > self._length else 0

    def differ(self, old: Any, new: Any) -> bool:
        """The invariant is about membership and successor lists."""
        return bool(old.succ != new.succ or old.joined != new.joined)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """What is wrong with the ring."""
        return chord_invariant.broken(views, min(self.base, len(views)))

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Whether these, if they were all that is left, would still be a ring, with as many principals as proven.

        Each must keep one successor more than the proof asks for: an answer on its way may carry an older list.
        """
        spare = min(2, len(views) - 1)
        return (
            len(views) > max(self.base, 1)
            and self.broken(views) is None
            and all(sum(node in views for node in view.succ) >= spare for view in views.values())
        )

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """Which pointer is not ideal."""
        return chord_invariant.departures(views, self._length)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Who has a key: the first member at or after it."""
        return (first_from(members.ids, key),)


class PastryFamily(OverlayFamily):
    """Pastry: after Lu, Merz and Weidenbach, and with leases that end."""

    def founders(self, count: int) -> None:
        """Any number will do."""

    def differ(self, old: Any, new: Any) -> bool:
        """The invariant is about who is ready, and the neighbours it believes in."""
        return (old.joined, old.ready, old.left, old.right) != (new.joined, new.ready, new.left, new.right)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """What is wrong with those that are ready."""
        return pastry_invariant.broken(views, self.ring.size)

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Whether each of these, if they were all that is left, would know the next one on either side."""
        return len(views) > 1 and self.broken(views) is None and pastry_invariant.stands(views)

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """Which leaf set is not ideal, or who is not ready."""
        return pastry_invariant.departures(views, self.config.pastry.half)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Who has a key: the member nearest to it."""
        return (closest_to(members.ids, key, self.ring.size),)


class HypercubeFamily(OverlayFamily):
    """The hypercube: a member's place is what it claims, and claims are settled one by one."""

    def founders(self, count: int) -> None:
        """Any number will do."""

    def place(self, view: Any) -> object:
        """What it claims."""
        return view.pieces

    def differ(self, old: Any, new: Any) -> bool:
        """The invariant is about all of a view."""
        return bool(old != new)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """What is wrong with who hosts what."""
        return hypercube_invariant.broken(views, self.config.dimensions)

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Whether these, if they were all that is left, host something and hang together."""
        return len(views) > 1 and self.broken(views) is None and hypercube_invariant.stands(views)

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """Which id has not one host, and who does not know its neighbours."""
        return hypercube_invariant.departures(views, self.config.dimensions)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Who hosts the id that a key stands for. For a while two may: one that gives it away, until it was taken."""
        point = point_of(self.ring, key, self.config.dimensions)
        places: Mapping[bytes, Any] = members.places
        return [id_ for id_ in members.ids if any(region.hosts(point) for region, _ in places[id_])]


FAMILIES: Final[Mapping[str, Callable[[NetworkConfig, Making | None], Kin]]] = {
    "chord": ChordFamily,
    "pastry": PastryFamily,
    "hypercube": HypercubeFamily,
}
"""By overlay; all that the catalog has."""


def family_of(config: NetworkConfig, making: Making | None = None) -> Kin:
    """How the networks of a configuration are simulated; `making` says how its nodes are made, if not as brokers."""
    return FAMILIES[config.overlay](config, making)


def simulated(overlay: str, scheme: str) -> NetworkConfig:
    """The network of an overlay and a scheme in one word, with such settings as small runs need to show anything."""
    config = network_config(overlay, scheme)
    dmm, reach = (
        msgspec.structs.replace(settings, **changed) for settings, changed in ((config.dmm, DMM), (config.reach, REACH))
    )
    return msgspec.structs.replace(config, dmm=dmm, reach=reach)
