"""The routing table of a Chord node, and its router.

The links are the state of the ring's maintenance (`rules.ChordState`), the fingers (Stoica et al., "Chord", section 4:
finger k is the first member at or after me + 2^k, kept only where that lies beyond the first successor) and the
contacts. What routing needs of them is kept sorted and rebuilt only after a change: a hop is one bisection. The
pointers cut the circle into arcs; all keys of an arc take the same route, which is computed once.

A key belongs to the first member at or after it: this one, for the keys after its predecessor up to its own id.

A message goes to the link nearest before its key until a node finds the key between itself and its first live
successor; that one gets it as *final*. Under churn the sender of a final message may be behind the times:

- the receiver's predecessor lies between: it is new to the sender. The message goes back to it, still final;
- the receiver knows its predecessor to be dead: the key has fallen to the receiver.

Any other node that gets a message for a key that is not its own passes it on, at most `hops_max` times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meetpoint.api.codec import WireError
from meetpoint.api.ids import NodeId, Peer
from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.base import RingTable
from meetpoint.overlays.chord.messages import ChordFind, ChordFound, ChordRouted
from meetpoint.overlays.chord.rules import ChordState
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.routing import KeyLookups

if TYPE_CHECKING:
    from meetpoint.api.ids import Key
    from meetpoint.api.messages import Message
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.rules import ChordSettings
    from meetpoint.overlays.routing import Deliver, PendingLookup

__all__ = ["ChordRouter", "ChordTable", "ChordView"]


@dataclass(frozen=True, slots=True)
class ChordView:
    """A snapshot of a Chord node; it stays the same while `version` does."""

    joined: bool
    id: NodeId
    succ: tuple[bytes, ...]
    prdc: bytes
    fingers: tuple[bytes, ...]
    version: int


class ChordTable(RingTable):
    """The pointers of one node."""

    __slots__ = ("_checked", "_cuts", "_head", "_hops", "_ids", "_routes", "_shortcuts", "fingers", "state")

    _view: ChordView | None

    def __init__(
        self, me: NodeId, ring: Ring, contacts: Contacts, shortcuts: bool, on_change: Callable[[], None]
    ) -> None:
        super().__init__(me, ring, contacts, on_change)
        self.state: ChordState | None = None
        self.fingers: dict[int, bytes] = {}
        self._shortcuts = shortcuts
        self._ids: list[bytes] = []  # the links to route over and this node, sorted
        self._hops: list[Peer | None] = []  # the peers of these ids; None is this node
        self._cuts: list[bytes] = []  # these ids and the predecessor, sorted: where the arcs begin
        self._routes: list[tuple[Peer | None, bool] | None] = []  # where the keys of each arc go, once that was asked
        self._head: Peer | None = None
        self._checked: ChordState | None = None

    # -- changes -------------------------------------------------------------------------------------------------------

    def commit(self, state: ChordState | None) -> None:
        """Take over the state after a step of maintenance."""
        before, self.state = self.state, state
        if before is None or state is None or before.succ != state.succ or before.prdc != state.prdc:
            self._invalidate()
            self._changed = True
        if before is not None and state is not None and before.succ != state.succ:
            self._remember_skipped(before, state)

    def _remember_skipped(self, before: ChordState, after: ChordState) -> None:
        """Remember live nodes that fell out of the list, and not off its end: their part of the ring may have been torn
        away.
        """
        last = after.succ[-1]
        short = self.contacts.peer(last) is None
        for node in before.succ:
            if node not in after.succ and (short or between(self.id, node, last)):
                peer = self.contacts.live(node)
                if peer is not None:
                    self.contacts.remember(peer)

    def point(self, exponent: int, node: bytes | None) -> None:
        """Set a finger, or remove it."""
        if self.fingers.get(exponent) != node:
            if node is None:
                del self.fingers[exponent]
            else:
                self.fingers[exponent] = node
            self._invalidate()

    def _is_neighbour(self, node: bytes) -> bool:
        return self.state is not None and (node == self.state.prdc or node in self.state.succ)

    def _drop(self, node: bytes) -> None:
        for exponent in [k for k, finger in self.fingers.items() if finger == node]:
            del self.fingers[exponent]

    # -- routing -------------------------------------------------------------------------------------------------------

    def owns(self, key: bytes) -> bool:
        """Return whether a key belongs to this node."""
        state = self.state
        if state is None:
            return False
        prdc, me = state.prdc, self.id
        return prdc < key <= me if prdc < me else key > prdc or key <= me

    def route_of(self, key: bytes) -> tuple[Peer | None, bool]:
        """Return where a message for a key goes from here, and whether as final; None is this node."""
        if self._is_stale:
            self._sort()
        at = bisect_right(self._cuts, key) - 1
        route = self._routes[at]
        if route is None or self._cuts[at] == key:
            route = (None, True) if self.owns(key) else self.next_hop(key)
            if self._cuts[at] != key:
                self._routes[at] = route
        return route

    def next_hop(self, key: bytes, attempt: int = 0) -> tuple[Peer | None, bool]:
        """Return the link nearest before a key of another node, and whether it should be the owner.

        With `attempt`, one of the links before that: a repeated lookup takes other routes.
        """
        if self._is_stale:
            self._sort()
        at = bisect_right(self._ids, key) - 1
        peer = self._hops[at]
        if peer is None:
            return self._head, True
        if self._ids[at] == key:
            return peer, True
        while attempt and (before := self._hops[at - 1]) is not None:
            at, peer = at - 1, before
            attempt -= 1
        return peer, False

    def next_after(self, node: bytes) -> Peer | None:
        """Return the first link after an id; None where this node comes first."""
        if self._is_stale:
            self._sort()
        return self._hops[bisect_right(self._ids, node) % len(self._ids)]

    def head(self) -> Peer | None:
        """Return the first live successor; None where this node knows no other."""
        if self._is_stale:
            self._sort()
        return self._head

    def prdc(self) -> Peer | None:
        """Return the predecessor, unless it is suspected or this node itself."""
        return None if self.state is None else self.contacts.live(self.state.prdc)

    def successors(self) -> Iterator[Peer]:
        """Yield the live successors, nearest first."""
        if self.state is not None:
            for node in self.state.succ:
                peer = self.contacts.live(node)
                if peer is not None:
                    yield peer

    def _sort(self) -> None:
        """Rebuild what is kept sorted."""
        successors = list(self.successors())
        self._head = successors[0] if successors else None
        links: dict[bytes, Peer] = {peer.id: peer for peer in successors[: None if self._shortcuts else 1]}
        for node in self.fingers.values():
            peer = self.contacts.live(node)
            if peer is not None:
                links[peer.id] = peer
        self._ids = sorted([*links, self.id])
        self._hops = [links.get(node) for node in self._ids]
        self._cuts = self._ids if self.state is None else sorted({*self._ids, self.state.prdc})
        self._routes = [None] * len(self._cuts)
        links.update((peer.id, peer) for peer in successors)
        self._cut(links)
        self._is_stale = False

    # -- what others see -----------------------------------------------------------------------------------------------

    def peers(self) -> tuple[Peer, ...]:
        """Return all live links and the predecessor, ordered by id."""
        known = {peer.id: peer for peer in self.clockwise()}
        prdc = self.prdc()
        if prdc is not None:
            known[prdc.id] = prdc
        return tuple(known[node] for node in sorted(known))

    def prune(self) -> None:
        """Forget contacts that no pointer names, when they have become too many."""
        if self.contacts.needs_pruning:
            self.contacts.prune(self._needed())

    def _needed(self) -> set[bytes]:
        """Return all ids that some pointer names."""
        needed = set(self.fingers.values())
        if self.state is not None:
            needed.update(self.state.succ, (self.state.prdc,))
            needed.update(node for node in (self.state.saved, self.state.candidate) if node is not None)
        return needed

    def view(self) -> ChordView:
        """Return the pointers as they are."""
        if self._view is None:
            state = self.state
            fingers = tuple(self.fingers[k] for k in sorted(self.fingers))
            succ, prdc = ((), b"") if state is None else (state.succ, state.prdc)
            self._view = ChordView(state is not None, self.id, succ, prdc, fingers, self.version)
        return self._view

    def check(self) -> None:
        """Assert what must hold of a node's pointers."""
        assert len(self.fingers) <= self.ring.bits, "a finger for each bit at most"
        if self.state is None or self.state is self._checked:  # a state never changes: it is replaced
            return
        last: bytes = self.id
        for place, node in enumerate(self.state.succ):
            alone = place == 0 and node == self.id
            assert alone or (node != self.id and between(last, node, self.id)), f"a list out of order: {self.state}"
            last = last if alone else node
        self._checked = self.state


class ChordRouter(KeyLookups):
    """Routing and lookups of one node."""

    __slots__ = ("_deliver", "_table", "_width")

    def __init__(self, runtime: Runtime, table: ChordTable, settings: ChordSettings, deliver: Deliver) -> None:
        super().__init__(runtime, settings)
        self._table = table
        self._deliver = deliver
        self._width = runtime.ring.width

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""
        table = self._table
        if table.owns(key):
            self._deliver(key, body, self._runtime.me, 0)
            return
        to, final = table.next_hop(key)
        if to is None:
            self._runtime.observe("chord_unroutable")
            return
        self._runtime.send(to, ChordRouted(key, self._runtime.me, 1, self._runtime.codec.encode(body), final))

    def on_routed(self, source: Peer, message: ChordRouted) -> None:
        """Deliver a routed message, or pass it on."""
        key = message.key
        if len(key) != self._width:
            self._runtime.observe("chord_malformed")
            return
        to, final = self._route(source, key, message.final, 0)
        if to is not None:
            if message.hops < self._settings.hops_max:
                self._runtime.send(to, ChordRouted(key, message.origin, message.hops + 1, message.body, final))
            else:
                self._runtime.observe("chord_hops_exceeded")
        elif final:
            try:
                body = self._runtime.codec.decode(message.body)
            except WireError:
                self._runtime.observe("chord_malformed")
                return
            self._deliver(key, body, message.origin, message.hops)

    def _route(self, source: Peer, key: bytes, final: bool, attempt: int) -> tuple[Peer | None, bool]:
        """Return where a message goes from here, and whether as final; None and final is this node."""
        table = self._table
        if table.state is None:
            self._runtime.observe("chord_not_a_member")
            return None, False
        if source.id in table.contacts.suspects:
            table.heard(source)
        if not final and not attempt:
            return table.route_of(key)
        if table.owns(key):
            return None, True
        if final:
            prdc = table.prdc()
            if prdc is None:
                return None, True
            if prdc.id != source.id:
                return prdc, True
        return table.next_hop(key, attempt)

    def _route_beyond(self, asker: Peer) -> tuple[Peer | None, bool]:
        """Return where a question goes that has come back to its asker: to the ones after it."""
        after = self._table.next_after(asker.id)
        if after is not None:
            return after, True
        prdc = self._table.prdc()
        return (None, True) if prdc is None or prdc.id == asker.id else (prdc, True)

    # -- lookups -------------------------------------------------------------------------------------------------------

    def _is_member(self) -> bool:
        return self._table.state is not None

    def _is_here(self, key: bytes) -> bool:
        return self._table.owns(key)

    def _ask(self, lookup: PendingLookup, number: int) -> None:
        to, final = lookup.via, False
        if to is None:
            to, final = self._table.next_hop(lookup.key, lookup.tried)
        if to is not None:
            self._runtime.send(to, ChordFind(lookup.key, self._runtime.me, number, 1, lookup.tried, final))

    def on_find(self, source: Peer, message: ChordFind) -> None:
        """Answer a question for the owner of a key, or pass it on."""
        key = message.key
        if len(key) != self._width or message.attempt < 0:
            self._runtime.observe("chord_malformed")
            return
        to, final = self._route(source, key, message.final, message.attempt)
        if to is not None and to.id == message.asker.id:
            to, final = self._route_beyond(message.asker)
        if to is not None:
            if message.hops < self._settings.hops_max:
                self._runtime.send(
                    to, ChordFind(key, message.asker, message.number, message.hops + 1, message.attempt, final)
                )
            else:
                self._runtime.observe("chord_hops_exceeded")
        elif final:
            if message.asker.id == self._table.id:
                self.on_located(self._runtime.me, ChordFound(message.number, message.hops))
            else:
                self._runtime.send(message.asker, ChordFound(message.number, message.hops))

    def on_located(self, source: Peer, message: ChordFound) -> None:
        """End a lookup with its answer."""
        if message.number in self._pending:
            self._table.heard(source)
        self._complete(source, message.number, message.hops)
