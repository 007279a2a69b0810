"""An overlay that always knows who is there, from nowhere: to test nodes and schemes apart from any real overlay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.lab.sim.judge import Members, first_from
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.message_kinds import MESSAGES
from meetpoint.node.node import Node
from meetpoint.node.overlay import Handler, Overlay, Places, Upcalls
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings
from meetpoint.schemes import flood

LOOK_US = 300_000


class View(msgspec.Struct):
    """What is seen of it."""

    joined: bool


class IdealOverlay:
    """One node's part; the family knows the rest."""

    def __init__(self, family: IdealFamily, services: Runtime, upcalls: Upcalls) -> None:
        self.family = family
        self.services = services
        self.upcalls = upcalls
        self.places: Places | None = None
        self.joined = False
        self.shown = View(False)
        self.known: list[bytes] = []

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {}

    def found(self, peers: Sequence[Peer]) -> None:
        self.joined = True
        self.look()

    def join(self, contact: Peer) -> None:
        self.services.after(LOOK_US, self.enter)

    def enter(self) -> None:
        self.joined = True
        self.upcalls.joined()
        self.look()

    def look(self) -> None:
        if self.joined:
            ring = sorted(self.family.ring_now())
            if ring != self.known:
                self.known = ring
                self.upcalls.neighbours_changed()
            self.services.after(LOOK_US, self.look)

    def leave(self) -> None:
        self.joined = False

    def remember(self, peers: Sequence[Peer]) -> None:
        """It knows everyone."""

    def suspect(self, peer: Peer) -> None:
        """It knows better."""

    def route(self, key: Key, body: Message) -> None:
        raise NotImplementedError

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        ring = self.family.ring_now()
        then(ring[first_from(sorted(ring), key)], 0)

    def next_hop(self, key: Key) -> Peer | None:
        ring = self.family.ring_now()
        owner = ring[first_from(sorted(ring), key)]
        return None if owner.id == self.services.me.id else owner

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        ring = self.family.ring_now()
        me = self.services.me.id
        after = sorted(id_ for id_ in ring if id_ > me) + sorted(id_ for id_ in ring if id_ < me)
        return tuple(ring[id_] for id_ in after[:count])

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        ring = self.family.ring_now()
        return [(ring[id_], b"") for id_ in sorted(ring) if id_ != self.services.me.id] if scope is None else []

    def peers(self) -> tuple[Peer, ...]:
        return tuple(peer for _, peer in sorted(self.family.ring_now().items()))

    def check(self) -> None:
        """It is ideal."""

    def view(self) -> View:
        if self.shown.joined is not self.joined:
            self.shown = View(self.joined)
        return self.shown


class IdealFamily:
    """The flood scheme on the ideal overlay."""

    def __init__(self, settings: NodeSettings | None = None) -> None:
        self.codec = Codec([*MESSAGES, *flood.MESSAGES])
        self.ring = Ring()
        self.settings = NodeSettings() if settings is None else settings
        self.nodes: dict[bytes, Node] = {}
        self.is_up: Callable[[str], bool] = lambda address: True

    def make(self, peer: Peer, seed: int) -> Node:
        def overlay(services: Runtime, upcalls: Upcalls) -> Overlay:
            return IdealOverlay(self, services, upcalls)

        def scheme(services: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
            return flood.Flood(services, overlay, hosting)

        self.nodes[peer.id] = Node(peer, self.ring, seed, self.codec, overlay, scheme, self.settings)
        return self.nodes[peer.id]

    def ring_now(self) -> dict[bytes, Peer]:
        return {
            id_: node.me
            for id_, node in self.nodes.items()
            if node.overlay.view().joined and self.is_up(node.me.address)
        }

    def founders(self, count: int) -> None:
        """Any number will do."""

    def is_member(self, view: Any) -> bool:
        return bool(view.joined)

    def is_ready(self, node: Any) -> bool:
        return bool(node.state == "ready")

    def place(self, view: Any) -> object:
        return None

    def read_view(self, node: Any) -> Callable[[], object]:
        return node.overlay.view  # type: ignore[no-any-return]

    def differ(self, old: Any, new: Any) -> bool:
        return True

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return None

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        return len(views) > 2

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return None

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        return [first_from(members.ids, key)]
