"""The small world of `tests/placement` with nodes that run any scheme, on an overlay that routes in one hop."""

from __future__ import annotations

from collections.abc import Iterable

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.inputs import Started
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.scheme import Scheme
from tests.node.world import RING, Table
from tests.placement.small_world import CODEC, MeetWorld

__all__ = ["RoutingTable", "SchemeWorld"]


class RoutingTable(Table):
    """Routes in one hop, to the member that follows a key."""

    def route(self, key: Key, body: Message) -> None:
        hop = self.next_hop(key)
        if hop is None:
            self._upcalls.delivered(key, body, self._runtime.me, 0)
        else:
            self._runtime.send(hop, body)

    def next_hop(self, key: Key) -> Peer | None:
        members = (*self._others(), self._runtime.me)
        first = min(members, key=lambda peer: RING.distance(key, peer.id))
        return None if first.id == self._runtime.me.id else first


class SchemeWorld(MeetWorld):
    """Nodes of these numbers, who begin together. What they run says whoever makes more of it (`make`)."""

    def __init__(self, numbers: Iterable[int], *, seed: int = 1) -> None:
        super().__init__(0, seed=seed)
        founders = tuple(Peer(RING.node(1000 * number), f"n{number}", 1) for number in numbers)
        for number in numbers:
            self.start(number, founders=founders)

    def make(self, runtime: Runtime, overlay: Overlay, hosting: HomeManager) -> Scheme:
        """A node's part of the scheme."""
        raise NotImplementedError

    def others(self, *but: int) -> list[int]:
        """Nodes that are not these."""
        return [number for number in sorted(self.nodes) if number not in but]

    def start(self, number: int, *, founders: tuple[Peer, ...] = (), contacts: Iterable[int] = ()) -> None:
        node = Node(
            Peer(RING.node(1000 * number), f"n{number}", 1),
            RING,
            self.random.getrandbits(30),
            CODEC,
            lambda runtime, upcalls: RoutingTable(self, runtime, upcalls),
            self.make,
            self.settings,
        )
        self.nodes[number] = node
        records = tuple(self.disks.setdefault(number, {}).values())
        peers = tuple(Peer(RING.node(1000 * each), f"n{each}", 0) for each in contacts)
        self._handle(number, node, Started(records, founders, peers))
