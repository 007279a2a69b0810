"""A node's pointers, and what follows from them: the next hop, the neighbours, the parts of a broadcast.

The pointers are the state of the ring's upkeep (`rules.State`), the fingers (Stoica et al., "Chord", section 4: finger
k is the first member at or after me + 2^k, kept only where that lies beyond the first successor) and the contacts. What
routing needs of them is kept sorted, made anew only after a change: a hop is one bisection. The pointers cut the circle
into arcs, and all keys of an arc go the same way, which is found once.

A key belongs to the first member at or after it: this one, for the keys after its predecessor up to its own id.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from meetpoint.api.ids import NodeId, Peer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.chord.rules import State
from meetpoint.overlays.contacts import Contacts

__all__ = ["ChordView", "Table"]


@dataclass(frozen=True, slots=True)
class ChordView:
    """What may be seen of a Chord node. While `version` stays the same, so does all of it."""

    joined: bool
    id: NodeId
    succ: tuple[bytes, ...]
    prdc: bytes
    fingers: tuple[bytes, ...]
    version: int


class Table:
    """One node's pointers."""

    __slots__ = (
        "_changed",
        "_checked",
        "_clockwise",
        "_cuts",
        "_first",
        "_head",
        "_hops",
        "_ids",
        "_order",
        "_parts",
        "_shortcuts",
        "_stale",
        "_tell",
        "_view",
        "_ways",
        "contacts",
        "fingers",
        "id",
        "ring",
        "state",
        "version",
    )

    def __init__(self, me: NodeId, ring: Ring, contacts: Contacts, shortcuts: bool, tell: Callable[[], None]) -> None:
        self.id = me
        self.ring = ring
        self.contacts = contacts
        self.state: State | None = None
        self.fingers: dict[int, bytes] = {}
        self.version = 0
        self._shortcuts = shortcuts
        self._tell = tell
        self._changed = False
        self._stale = True
        self._ids: list[bytes] = []  # the links to route over and this node, sorted
        self._hops: list[Peer | None] = []  # the peers of these ids; None is this node
        self._cuts: list[bytes] = []  # these ids and the predecessor, sorted: where the arcs begin
        self._ways: list[tuple[Peer | None, bool] | None] = []  # where the keys of each arc go, once that was asked
        self._order: list[bytes] = []  # the ids of all links, sorted
        self._first = 0  # where among them the first one after this node is
        self._clockwise: list[Peer] = []  # all links, clockwise from this node
        self._parts: list[tuple[Peer, bytes]] = []  # the same, each with the id of the next; the last with this node's
        self._head: Peer | None = None
        self._view: ChordView | None = None
        self._checked: State | None = None

    # -- changes -------------------------------------------------------------------------------------------------------

    def commit(self, state: State | None) -> None:
        """The upkeep has taken a step."""
        before, self.state = self.state, state
        if before is None or state is None or before.succ != state.succ or before.prdc != state.prdc:
            self._touch()
            self._changed = True
        if before is not None and state is not None and before.succ != state.succ:
            self._remember_skipped(before, state)

    def _remember_skipped(self, before: State, after: State) -> None:
        """Whoever fell out of the list, and not off its end, by the word of others: it may have been torn away."""
        last = after.succ[-1]
        short = self.contacts.peer(last) is None
        for node in before.succ:
            if node not in after.succ and (short or between(self.id, node, last)):
                peer = self.contacts.live(node)
                if peer is not None:
                    self.contacts.remember(peer)

    def point(self, exponent: int, node: bytes | None) -> None:
        """Set a finger, or take it away."""
        if self.fingers.get(exponent) != node:
            if node is None:
                del self.fingers[exponent]
            else:
                self.fingers[exponent] = node
            self._touch()

    def suspect(self, peer: Peer, now: Instant) -> bool:
        """A peer was silent or has left: it is no link any more; whether that is news."""
        if not self.contacts.suspect(peer, now):
            return False
        for exponent in [k for k, node in self.fingers.items() if node == peer.id]:
            del self.fingers[exponent]
        self._touch()
        self._changed = self._changed or self._names(peer.id)
        return True

    def heard(self, peer: Peer) -> None:
        """A peer spoke as a member."""
        if self.contacts.heard(peer):
            self._touch()
            self._changed = self._changed or self._names(peer.id)

    def tell(self) -> None:
        """Say that neighbours have changed, if they have: called when a step is complete."""
        if self._changed:
            self._changed = False
            self._tell()

    def _names(self, node: bytes) -> bool:
        return self.state is not None and (node == self.state.prdc or node in self.state.succ)

    def _touch(self) -> None:
        self.version += 1
        self._stale = True
        self._view = None

    # -- routing -------------------------------------------------------------------------------------------------------

    def owns(self, key: bytes) -> bool:
        """Whether a key belongs to this node."""
        state = self.state
        if state is None:
            return False
        prdc, me = state.prdc, self.id
        return prdc < key <= me if prdc < me else key > prdc or key <= me

    def way(self, key: bytes) -> tuple[Peer | None, bool]:
        """Where a message for a key goes from here, and whether that should be the key's owner; nowhere is here."""
        if self._stale:
            self._sort()
        at = bisect_right(self._cuts, key) - 1
        way = self._ways[at]
        if way is None or self._cuts[at] == key:
            way = (None, True) if self.owns(key) else self.next_hop(key)
            if self._cuts[at] != key:
                self._ways[at] = way
        return way

    def next_hop(self, key: bytes, care: int = 0) -> tuple[Peer | None, bool]:
        """The link nearest before a key that is not this node's, and whether it should be the key's owner.

        With `care`, one of the links before that: the ways of a repeated lookup differ.
        """
        if self._stale:
            self._sort()
        at = bisect_right(self._ids, key) - 1
        peer = self._hops[at]
        if peer is None:
            return self._head, True
        if self._ids[at] == key:
            return peer, True
        while care and (before := self._hops[at - 1]) is not None:
            at, peer = at - 1, before
            care -= 1
        return peer, False

    def next_after(self, node: bytes) -> Peer | None:
        """The first link after an id; None where this node comes first."""
        if self._stale:
            self._sort()
        return self._hops[bisect_right(self._ids, node) % len(self._ids)]

    def head(self) -> Peer | None:
        """The first live successor; None where this node knows no other."""
        if self._stale:
            self._sort()
        return self._head

    def prdc(self) -> Peer | None:
        """The predecessor, unless it is suspected or this node itself."""
        return None if self.state is None else self.contacts.live(self.state.prdc)

    def successors(self) -> Iterator[Peer]:
        """The live successors, nearest first."""
        if self.state is not None:
            for node in self.state.succ:
                peer = self.contacts.live(node)
                if peer is not None:
                    yield peer

    def clockwise(self) -> Sequence[Peer]:
        """All live links, clockwise from this node."""
        if self._stale:
            self._sort()
        return self._clockwise

    def _sort(self) -> None:
        """Make anew what is kept sorted."""
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
        self._ways = [None] * len(self._cuts)
        links.update((peer.id, peer) for peer in successors)
        order = self._order = sorted(links)
        at = self._first = bisect_right(order, self.id)
        self._clockwise = [links[node] for node in order[at:] + order[:at]]
        ends = [*(peer.id for peer in self._clockwise[1:]), self.id]
        self._parts = list(zip(self._clockwise, ends, strict=True)) if self._clockwise else []
        self._stale = False

    # -- what others see -----------------------------------------------------------------------------------------------

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """The links before the end of a scope, each with the end of its own part."""
        if self._stale:
            self._sort()
        if scope is None:
            return list(self._parts)
        if scope == self.id:
            return []  # nothing lies between; from a node to itself only an origin has the whole circle
        count = bisect_left(self._order, scope) - self._first
        if scope < self.id:  # the scope goes round past zero
            count += len(self._order)
        parts = self._parts[:count]
        if parts:
            parts[-1] = (parts[-1][0], scope)
        return parts

    def peers(self) -> tuple[Peer, ...]:
        """All live links and the predecessor, in the order of their ids."""
        known = {peer.id: peer for peer in self.clockwise()}
        prdc = self.prdc()
        if prdc is not None:
            known[prdc.id] = prdc
        return tuple(known[node] for node in sorted(known))

    def prune(self) -> None:
        """Forget contacts that no pointer names, when they have become too many."""
        if self.contacts.too_many:
            self.contacts.prune(self._needed())

    def _needed(self) -> set[bytes]:
        """All ids that some pointer names."""
        needed = set(self.fingers.values())
        if self.state is not None:
            needed.update(self.state.succ, (self.state.prdc,))
            needed.update(node for node in (self.state.saved, self.state.candidate) if node is not None)
        return needed

    def view(self) -> ChordView:
        """The pointers as they are."""
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
