"""The kinds of simulated networks: how nodes are made, and the invariants of each overlay.

An overlay has one family here; any scheme runs on it. A family is given how its nodes are made (`NodeFactory`): whole,
or only their overlay. `BareNode` joins, keeps its pointers, and looks up keys, without homes, scheme or disk. It
serves questions about the overlay alone, such as the hops of a ring of 10,000 nodes: a whole node keeps a list of all
homes, which nobody needs there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Found, Refused, Stored
from meetpoint.api.requests import Leave, Lookup
from meetpoint.catalog import OVERLAYS, NetworkConfig, make_codec, make_node, network_config
from meetpoint.lab.sim.engine import Codec, SimulatedNode
from meetpoint.lab.sim.judge import Members, closest_to, first_from
from meetpoint.lab.sim.scenario import Family
from meetpoint.lab.sim.workload import SCHEMA
from meetpoint.node.runtime.effects import Effect
from meetpoint.node.runtime.inputs import (
    ClientRequest,
    Input,
    Instant,
    PeerUnreachable,
    Persisted,
    Received,
    Started,
    TimerFired,
)
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.chord import invariant as chord_invariant
from meetpoint.overlays.hypercube import invariant as hypercube_invariant
from meetpoint.overlays.hypercube.regions import point_of
from meetpoint.overlays.pastry import invariant as pastry_invariant

# -- nodes that are only their overlay ---------------------------------------------------------------------------------


JOIN_RETRY_US = 1_000_000
"""The time that a node tries to join through one contact before it tries another."""


class BareView(msgspec.Struct, frozen=True):
    """The visible state of a bare node."""

    waiting: int


class BareNode:
    """A node that is only its overlay."""

    def __init__(self, config: NetworkConfig, me: Peer, seed: int, codec: Codec) -> None:
        runtime = self._runtime = Runtime(me, config.ring, codec, seed)
        self.overlay = OVERLAYS[config.overlay](config, runtime, self)
        self.ready = False
        self._contacts: tuple[Peer, ...] = ()
        self._handlers = dict(self.overlay.handlers())

    @property
    def me(self) -> Peer:
        """The node as its peers know it."""
        return self._runtime.me

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        """Take one input; return what is to be done, in order."""
        effects = self._runtime.begin(now)
        match item:
            case Received():
                self._runtime.received(item, self._handlers)
            case TimerFired():
                self._runtime.fired(item.timer)
            case Persisted():
                self._runtime.persisted(item.ticket)
            case PeerUnreachable():
                self._runtime.lost(item.peer)
                self.overlay.suspect(item.peer)
            case ClientRequest():
                self._asked(item)
            case Started():
                self._start(item)
        return effects

    def _start(self, item: Started) -> None:
        # Nothing is on disk: the clock tells one life from the next.
        self._runtime.me = Peer(self.me.id, self.me.address, 0 if item.founders else int(self._runtime.now))
        if item.founders:
            self.overlay.found(item.founders)
            self.joined()
        else:
            self._contacts = item.contacts
            self._try(0)

    def _try(self, turn: int) -> None:
        if not self.ready:
            self.overlay.join(self._contacts[turn % len(self._contacts)])
            self._runtime.after(JOIN_RETRY_US, lambda: self._try(turn + 1))

    def _asked(self, item: ClientRequest) -> None:
        if isinstance(item.what, Lookup) and self.ready:
            self.overlay.lookup(Key(item.what.key), lambda peer, hops: self._found(item.request, peer, hops))
        elif isinstance(item.what, Leave):
            self.ready = False
            self.overlay.leave()
            self._runtime.answer(item.request, Stored())
            self._runtime.stop()
        else:
            self._runtime.answer(item.request, Refused("this node is only its overlay", retry=True))

    def _found(self, request: int, peer: Peer | None, hops: int) -> None:
        outcome = Refused("nobody answered for this key", retry=True) if peer is None else Found(peer, hops)
        self._runtime.answer(request, outcome)

    # -- upcalls of the overlay ----------------------------------------------------------------------------------------

    def joined(self) -> None:
        self.ready = True

    def neighbours_changed(self) -> None:
        """Do nothing: no part depends on them."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Do nothing: no message is routed."""

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.overlay.check()

    def snapshot(self) -> BareView:
        return BareView(self._runtime.waiting)


class BareNodeFactory:
    """A factory of nodes that are only their overlay."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Codec) -> SimulatedNode:
        return BareNode(config, peer, seed, codec)

    def is_ready(self, node: Any) -> bool:
        return bool(node.ready)


# -- families ----------------------------------------------------------------------------------------------------------


DMM: Final = {"schema": SCHEMA, "threshold": 4, "depth": 5, "growth": 0.75, "relief": 0.0}
"""The settings of `dmm` in small runs. It knows the workload's attributes, its regions bear so few entries that they
split, and splits are refused less often, since half of the workload's filters meet nearly every region. For the same
reason its space is halved only a few times: `dmm:always` makes a region of every part."""
REACH: Final = {"schema": SCHEMA}
"""The settings of `reach` in small runs: the workload's attributes are the bits of its ids."""


class NodeFactory(Protocol):
    """A factory of nodes, whatever their overlay is."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Codec) -> SimulatedNode: ...

    def is_ready(self, node: Any) -> bool:
        """Return whether a node serves clients."""


class WholeNodeFactory:
    """A factory of nodes as brokers run them: with homes, a scheme and a disk."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Any) -> SimulatedNode:
        return make_node(config, peer, seed, codec)

    def is_ready(self, node: Any) -> bool:
        return bool(node.state == "ready")


class OverlayFamily:
    """The common part of the families of all overlays."""

    def __init__(self, config: NetworkConfig, factory: NodeFactory | None = None) -> None:
        self.config = config
        self.codec = make_codec()
        self.ring = config.ring
        self._factory = WholeNodeFactory() if factory is None else factory

    def make(self, peer: Peer, seed: int) -> SimulatedNode:
        return self._factory.make(self.config, peer, seed, self.codec)

    def is_ready(self, node: Any) -> bool:
        return self._factory.is_ready(node)

    def is_member(self, view: Any) -> bool:
        return bool(view.joined)

    def place(self, view: Any) -> object:
        """Return None: in most overlays a member's keys follow from the ids."""
        return None

    def read_view(self, node: Any) -> Callable[[], object]:
        view: Callable[[], object] = node.overlay.view
        return view


class ChordFamily(OverlayFamily):
    """Chord, judged by Zave's invariant."""

    def __init__(self, config: NetworkConfig, factory: NodeFactory | None = None) -> None:
        super().__init__(config, factory)
        self._length = config.chord.successors
        self.base = 0
        """The required number of principals; as many as the founders make possible."""

    def founders(self, count: int) -> None:
        self.base = self._length + 1 if count > self._length else 0

    def differ(self, old: Any, new: Any) -> bool:
        """Return whether membership or successor lists differ, which the invariant is about."""
        return bool(old.succ != new.succ or old.joined != new.joined)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return chord_invariant.broken(views, min(self.base, len(views)))

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Return whether these alone would still be a ring, with as many principals as proven.

        Each must keep one successor more than the proof asks for: an answer on its way may carry an older list.
        """
        spare = min(2, len(views) - 1)
        return (
            len(views) > max(self.base, 1)
            and self.broken(views) is None
            and all(sum(node in views for node in view.succ) >= spare for view in views.values())
        )

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return chord_invariant.departures(views, self._length)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Return the owner of a key: the first member at or after it."""
        return (first_from(members.ids, key),)


class PastryFamily(OverlayFamily):
    """Pastry, judged after Lu, Merz and Weidenbach, and with leases that end."""

    def founders(self, count: int) -> None:
        """Accept any number."""

    def differ(self, old: Any, new: Any) -> bool:
        """Return whether readiness or believed neighbours differ, which the invariant is about."""
        return (old.joined, old.ready, old.left, old.right) != (new.joined, new.ready, new.left, new.right)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return pastry_invariant.broken(views, self.ring.size)

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Return whether each of these alone would know the next one on either side."""
        return len(views) > 1 and self.broken(views) is None and pastry_invariant.stands(views)

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return pastry_invariant.departures(views, self.config.pastry.half)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Return the owner of a key: the member nearest to it."""
        return (closest_to(members.ids, key, self.ring.size),)


class HypercubeFamily(OverlayFamily):
    """The hypercube: a member's place is its claim, and claims are resolved one by one."""

    def founders(self, count: int) -> None:
        """Accept any number."""

    def place(self, view: Any) -> object:
        """Return the member's claim."""
        return view.pieces

    def differ(self, old: Any, new: Any) -> bool:
        return bool(old != new)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return hypercube_invariant.broken(views, self.config.dimensions)

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Return whether these alone host a region and are connected."""
        return len(views) > 1 and self.broken(views) is None and hypercube_invariant.stands(views)

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return hypercube_invariant.departures(views, self.config.dimensions)

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Return the hosts of a key's id. For a while two may: the giver hosts it until it was taken."""
        point = point_of(self.ring, key, self.config.dimensions)
        places: Mapping[bytes, Any] = members.places
        return [id_ for id_ in members.ids if any(region.hosts(point) for region, _ in places[id_])]


FAMILIES: Final[Mapping[str, Callable[[NetworkConfig, NodeFactory | None], Family]]] = {
    "chord": ChordFamily,
    "pastry": PastryFamily,
    "hypercube": HypercubeFamily,
}
"""The families of all overlays of the catalog."""


def family_of(config: NetworkConfig, factory: NodeFactory | None = None) -> Family:
    """Return the family of a configuration; `factory` makes its nodes, if not as brokers do."""
    return FAMILIES[config.overlay](config, factory)


def simulated(overlay: str, scheme: str) -> NetworkConfig:
    """Return the network of an overlay and a scheme in one word, with the settings that small runs need."""
    config = network_config(overlay, scheme)
    dmm, reach = (
        msgspec.structs.replace(settings, **changed) for settings, changed in ((config.dmm, DMM), (config.reach, REACH))
    )
    return msgspec.structs.replace(config, dmm=dmm, reach=reach)
