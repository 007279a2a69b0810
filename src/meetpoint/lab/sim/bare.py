"""A node that is only its overlay: it joins, keeps its pointers, and looks up keys. No homes, no scheme, no disk.

For what is about the overlay alone, such as the hops of a ring of 10,000 nodes: a whole node keeps a list of all homes,
which nobody needs there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Found, Refused, Stored
from meetpoint.api.requests import Leave, Lookup
from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.lab.sim.engine import Codec, SimulatedNode
from meetpoint.node.runtime.driven import Driven
from meetpoint.node.runtime.inputs import ClientRequest, Started
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["BareNode", "BareNodes", "BareView"]

RETRY_US = 1_000_000
"""How long a node tries to join through one contact before it tries another."""


class BareView(msgspec.Struct, frozen=True):
    """What may be seen of it."""

    waiting: int


class BareNode(Driven):
    """One node's part of an overlay, and nothing else."""

    def __init__(self, config: NetworkConfig, me: Peer, seed: int, codec: Codec) -> None:
        services = Runtime(me, config.ring, codec, seed)
        super().__init__(services)
        self.overlay = OVERLAYS[config.overlay](config, services, self)
        self.ready = False
        self._contacts: tuple[Peer, ...] = ()
        self._handlers = dict(self.overlay.handlers())

    def _start(self, item: Started) -> None:
        # Nothing is on disk: the clock tells one life from the next.
        self._services.me = Peer(self.me.id, self.me.address, 0 if item.founders else int(self._services.now))
        if item.founders:
            self.overlay.found(item.founders)
            self.joined()
        else:
            self._contacts = item.contacts
            self._try(0)

    def _try(self, turn: int) -> None:
        if not self.ready:
            self.overlay.join(self._contacts[turn % len(self._contacts)])
            self._services.after(RETRY_US, lambda: self._try(turn + 1))

    def _asked(self, item: ClientRequest) -> None:
        if isinstance(item.what, Lookup) and self.ready:
            self.overlay.lookup(Key(item.what.key), lambda peer, hops: self._found(item.request, peer, hops))
        elif isinstance(item.what, Leave):
            self.ready = False
            self.overlay.leave()
            self._services.answer(item.request, Stored())
            self._services.stop()
        else:
            self._services.answer(item.request, Refused("this node is only its overlay", retry=True))

    def _found(self, request: int, peer: Peer | None, hops: int) -> None:
        outcome = Refused("nobody answered for this key", retry=True) if peer is None else Found(peer, hops)
        self._services.answer(request, outcome)

    # -- upcalls of the overlay ----------------------------------------------------------------------------------------

    def joined(self) -> None:
        """The node has become a member."""
        self.ready = True

    def neighbours_changed(self) -> None:
        """Nothing depends on them."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Nothing is routed."""

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
        self.overlay.check()

    def snapshot(self) -> BareView:
        """What may be seen from outside."""
        return BareView(self._services.waiting)


class BareNodes:
    """Any overlay alone (`families.Making`)."""

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Codec) -> SimulatedNode:
        """A new node."""
        return BareNode(config, peer, seed, codec)

    def is_ready(self, node: Any) -> bool:
        """Whether a node may be asked."""
        return bool(node.ready)
