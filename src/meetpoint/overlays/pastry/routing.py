"""The routing table of a Pastry node, and its router.

The links are the leaves (`rules.PastryState`), the routing table (Rowstron and Druschel, "Pastry", section 2: in row r,
column d, one node that shares r digits with this one and has d as the next) and the route cache: nodes met in passing,
the latest kept. What routing needs of them is kept sorted and rebuilt only after a change. A hop is two bisections,
since the node that shares most digits with a key is next to it in the order of ids.

A key belongs to the numerically closest node; of two that are as near, to the one before the key. A node covers the
keys nearer to it than to its neighbours, whether these live or not: only maintenance lets go of a neighbour.

Only ready nodes deliver (`rules`). Nodes met on the way go into the route cache: the origin of a passing message, and
the node that answers.

Deviation: in LuPastry only ready nodes pass messages on, too; here any member does, and drops what would be its own
while it waits for a lease.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.base import RingTable
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.pastry.messages import PastryFind, PastryFound, PastryRouted
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastrySettings, PastryState, is_ready
from meetpoint.overlays.routing import Deliver, FindOwner, Router

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime

__all__ = ["PastryRouter", "PastryTable", "PastryView"]


@dataclass(frozen=True, slots=True)
class PastryView:
    """A snapshot of a Pastry node; it stays the same while `version` does."""

    joined: bool
    id: NodeId
    ready: bool
    left: bytes
    right: bytes
    leaves: tuple[bytes, ...]
    rows: tuple[bytes, ...]
    version: int


class PastryTable(RingTable):
    """The links of one node."""

    __slots__ = ("_cache", "_checked", "_covered", "_ids", "_leaves", "_peers", "_rows", "_settings", "joined", "state")

    _view: PastryView | None

    def __init__(
        self, me: NodeId, ring: Ring, contacts: Contacts, settings: PastrySettings, on_change: Callable[[], None]
    ) -> None:
        super().__init__(me, ring, contacts, on_change)
        self.state: PastryState | None = None
        self.joined = False
        """Whether this node has been ready and has not left; one that looks for another place is still a member."""
        self._settings = settings
        self._checked = -1  # the version that was found good
        self._rows: dict[tuple[int, int], bytes] = {}
        self._cache: dict[bytes, None] = {}  # the one met last comes last
        self._covered: tuple[int, int] = (0, 0)  # how far before and beyond this node its keys go
        self._ids: list[bytes] = []  # all live links, sorted
        self._peers: dict[bytes, Peer] = {}
        self._leaves: list[bytes] = []  # live leaves and this node, sorted

    # -- changes -------------------------------------------------------------------------------------------------------

    def commit(self, state: PastryState | None) -> None:
        """Take over the state after a step of maintenance."""
        before, self.state = self.state, state
        if before is None or state is None or _shape(before) != _shape(state):
            self._invalidate()
            self._changed = True

    def join(self) -> None:
        """Note that this node is ready for the first time."""
        self.joined = True
        self._invalidate()

    def leave(self) -> None:
        """Note that this node is no member any more."""
        self.joined = False
        self._invalidate()

    def found(self, peers: Sequence[Peer]) -> None:
        """Fill the table from the peers of a network that begins, sorted by id: one for each place."""
        bits, width = self._settings.digit_bits, len(self.id) * 8
        number = int.from_bytes(self.id, "big")
        for row in range(width // bits):
            below = width - bits * (row + 1)
            prefix = number >> (below + bits)
            low, high = (_key(each << (below + bits), len(self.id)) for each in (prefix, prefix + 1))
            first = bisect_left(peers, low or b"", key=lambda peer: peer.id)
            last = len(peers) if high is None else bisect_left(peers, high, key=lambda peer: peer.id)
            if last - first <= 1:
                return  # this node is the only one with so many digits of its own
            for digit in range(1 << bits):
                start = _key((prefix << bits | digit) << below, len(self.id))
                at = bisect_left(peers, start or b"", first, last, key=lambda peer: peer.id)
                if at < last and peers[at].id != self.id and self._slot(peers[at].id) == (row, digit):
                    self.learn_row(peers[at])

    def learn_row(self, peer: Peer) -> None:
        """Put a member into its place in the routing table, if that is free."""
        if peer.id == self.id:
            return
        self.contacts.learn(peer)
        slot = self._slot(peer.id)
        held = self._rows.get(slot)
        if held != peer.id and (held is None or self.contacts.live(held) is None):
            self._rows[slot] = peer.id
            self._invalidate()

    def learn_cache(self, peer: Peer) -> None:
        """Put a member that was met in passing into the route cache."""
        if peer.id == self.id or not self._settings.cache_max:
            return
        self.learn_row(peer)
        if self._cache.pop(peer.id, False) is False:
            self._invalidate()
            if len(self._cache) >= self._settings.cache_max:
                del self._cache[next(iter(self._cache))]
        self._cache[peer.id] = None

    def _is_neighbour(self, node: bytes) -> bool:
        return self.state is not None and node in self.state.leaves

    def _drop(self, node: bytes) -> None:
        for slot in [slot for slot, held in self._rows.items() if held == node]:
            del self._rows[slot]
        self._cache.pop(node, None)

    # -- digits --------------------------------------------------------------------------------------------------------

    def _shared(self, a: bytes, b: bytes) -> int:
        """Return how many digits two ids share from the first on."""
        differ = int.from_bytes(a, "big") ^ int.from_bytes(b, "big")
        return (len(a) * 8 - differ.bit_length()) // self._settings.digit_bits

    def _digit(self, node: bytes, place: int) -> int:
        bits = self._settings.digit_bits
        return int.from_bytes(node, "big") >> (len(node) * 8 - bits * (place + 1)) & ((1 << bits) - 1)

    def _slot(self, node: bytes) -> tuple[int, int]:
        row = self._shared(self.id, node)
        return row, self._digit(node, row)

    def vacant(self, random: Random) -> Key | None:
        """Return a key whose owner would fill a free place in the routing table, or None."""
        if self._is_stale:
            self._sort()
        if not self._ids:
            return None
        bits, width = self._settings.digit_bits, len(self.id) * 8
        rows = 1 + max(self._shared(self.id, node) for node in self._ids)
        row = random.randrange(min(rows, width // bits))
        own = self._digit(self.id, row)
        free = [digit for digit in range(1 << bits) if digit != own and (row, digit) not in self._rows]
        if not free:
            return None
        below = width - bits * (row + 1)
        prefix = int.from_bytes(self.id, "big") >> (below + bits) << bits | random.choice(free)
        return self.ring.key((prefix << below | random.getrandbits(below)) if below else prefix)

    # -- routing -------------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether this node delivers, and helps joiners."""
        return self.state is not None and is_ready(self.state)

    def covers(self, key: bytes) -> bool:
        """Return whether a key is nearer to this node than to its neighbours."""
        if self.state is None:
            return False
        if self.state.near[RIGHT] == self.id:
            return True
        if self._is_stale:
            self._sort()
        before, beyond = self._covered
        return self.ring.distance(self.id, key) <= beyond or self.ring.distance(key, self.id) <= before

    def next_hop(self, key: bytes, attempt: int = 0) -> Peer | None:
        """Return the link for a key of another node; None where no link is nearer to it.

        With `attempt`, one of the links after the best: a repeated lookup takes other routes, until it comes among
        leaves.
        """
        if self._is_stale:
            self._sort()
        if self._is_among_leaves(key):
            node = self._closest(self._leaves, key)
            return None if node == self.id else self._peers[node]
        if attempt and (other := self._second_best(key, attempt)) is not None:
            return other
        at = bisect_left(self._ids, key)
        around = [self._ids[at - 1], self._ids[at % len(self._ids)]] if self._ids else []
        best = max(around, key=lambda node: (self._shared(node, key), -self._apart(node, key)), default=None)
        if best is not None and self._is_progress(best, key):
            return self._peers[best]
        node = self._closest(self._leaves, key)  # the rare case: no link shares as many digits, and a leaf is nearer
        return None if node == self.id else self._peers[node]

    def _is_progress(self, node: bytes, key: bytes) -> bool:
        own, its = self._shared(self.id, key), self._shared(node, key)
        return its > own or (its == own and self._apart(node, key) < self._apart(self.id, key))

    def next_hop_beside(self, node: bytes) -> Peer | None:
        """Return the link nearest to a node's own id, except that node; None where this node is nearer than all."""
        if self._is_stale:
            self._sort()
        others = [each for each in self._ids if each != node]
        best = min(others, key=lambda each: self._apart(each, node), default=self.id)
        return self._peers[best] if self._apart(best, node) < self._apart(self.id, node) else None

    def _second_best(self, key: bytes, attempt: int) -> Peer | None:
        """Return one of the links that are nearer to a key, whatever their digits."""
        apart = self._apart(self.id, key)
        nearer = [node for node in self._ids if self._apart(node, key) < apart]
        nearer.sort(key=lambda node: self._apart(node, key))
        return self._peers[nearer[min(attempt, len(nearer) - 1)]] if nearer else None

    def _apart(self, a: bytes, b: bytes) -> int:
        way = self.ring.distance(a, b)
        return min(way, self.ring.size - way)

    def _is_among_leaves(self, key: bytes) -> bool:
        """Return whether a key lies between the outermost leaves: then the closest of them has it."""
        assert self.state is not None, "only a member routes"
        leaves = self.state.leaves
        if len(leaves) < 2 * self._settings.half:
            return True
        first, last = leaves[-self._settings.half], leaves[self._settings.half - 1]
        return self.ring.distance(first, key) <= self.ring.distance(first, last)

    def _closest(self, order: Sequence[bytes], key: bytes) -> bytes:
        """Return the numerically closest of some nodes, sorted, to a key; of two, the one before it."""
        at = bisect_right(order, key)
        before, after = order[at - 1], order[at % len(order)]
        return after if self.ring.distance(key, after) < self.ring.distance(before, key) else before

    def leaves(self) -> Iterator[Peer]:
        """Yield the live leaves, nearest first: those on the right, then those on the left.

        Deviation: Pastry keeps copies on both sides in turn. Here a node that leaves gives its homes to the first, who
        is then waited for, and two neighbours that were each other's first would wait for each other.
        """
        nodes = () if self.state is None else self.state.leaves
        half = self._settings.half
        for node in (*nodes[:half], *reversed(nodes[half:])):
            peer = self.contacts.live(node)
            if peer is not None:
                yield peer

    def told(self) -> tuple[tuple[Peer, ...], int]:
        """Return the leaves as others are told of them, and their version."""
        nodes = () if self.state is None else self.state.leaves
        leaves = tuple(peer for node in nodes if (peer := self.contacts.live(node)) is not None)
        return leaves, 1 + crc32(b"".join([peer.id for peer in leaves]))

    def _sort(self) -> None:
        """Rebuild what is kept sorted."""
        leaves: dict[bytes, Peer] = {peer.id: peer for peer in self.leaves()}
        links = self._live(self._rows.values())
        links.update(leaves)
        self._peers = self._live(self._cache)
        self._peers.update(links)
        self._ids = sorted(self._peers)
        self._leaves = sorted([*leaves, self.id])
        self._cut(links)
        if self.state is not None:
            left, right = self.state.near
            before = (self.ring.distance(left, self.id) - 1) // 2
            self._covered = (before, self.ring.distance(self.id, right) // 2)
        self._is_stale = False

    def _live(self, nodes: Iterable[bytes]) -> dict[bytes, Peer]:
        found: dict[bytes, Peer] = {}
        for node in nodes:
            peer = self.contacts.live(node)
            if peer is not None:
                found[node] = peer
        return found

    # -- what others see -----------------------------------------------------------------------------------------------

    def peers(self) -> tuple[Peer, ...]:
        """Return all live links, ordered by id."""
        if self._is_stale:
            self._sort()
        return tuple(self._peers[node] for node in self._ids)

    def prune(self) -> None:
        """Forget contacts that are no links, when they have become too many."""
        if self.contacts.needs_pruning:
            needed = {*self._rows.values(), *self._cache}
            if self.state is not None:
                needed.update(self.state.leaves, self.state.near, self.state.unprobed)
            self.contacts.prune(needed)

    def view(self) -> PastryView:
        """Return the links as they are; the same object until they change."""
        if self._view is None:
            state = self.state
            rows = tuple(self._rows[slot] for slot in sorted(self._rows))
            near = (self.id, self.id) if state is None else state.near
            self._view = PastryView(
                joined=self.joined,
                id=self.id,
                ready=self.is_ready,
                left=near[LEFT],
                right=near[RIGHT],
                leaves=() if state is None else state.leaves,
                rows=rows,
                version=self.version,
            )
        return self._view

    def check(self) -> None:
        """Assert what must hold of a node's links."""
        if self._checked == self.version:
            return
        self._checked = self.version
        assert len(self._cache) <= max(self._settings.cache_max, 0), "the cache has a limit"
        assert all(self._slot(node) == slot for slot, node in self._rows.items()), "a node in another's place"
        state = self.state
        if state is not None and state.leaves:
            distances = [self.ring.distance(self.id, node) for node in state.leaves]
            assert distances == sorted(set(distances)), f"leaves out of order: {state}"


def _key(number: int, width: int) -> bytes | None:
    """Return an id by its number; None beyond the last."""
    return number.to_bytes(width, "big") if number.bit_length() <= 8 * width else None


def _shape(state: PastryState) -> tuple[object, ...]:
    """Return the part of a state that others may see."""
    return state.near, state.leaves, state.member, is_ready(state)


class PastryRouter(Router):
    """Routing and lookups of one node."""

    __slots__ = ("_table",)

    name = "pastry"
    find = PastryFind
    routed = PastryRouted

    def __init__(self, runtime: Runtime, table: PastryTable, settings: PastrySettings, deliver: Deliver) -> None:
        self._table = table
        super().__init__(runtime, settings, deliver)

    def _is_member(self) -> bool:
        return self._table.joined

    def _may_look_up(self) -> bool:
        return self._table.state is not None

    def _is_here(self, key: bytes) -> bool:
        return self._table.is_ready and self._table.covers(key)

    def _may_pass_on(self, key: bytes) -> bool:
        table = self._table
        return table.state is not None and not table.state.waits and not table.covers(key)

    def _next_hop(self, key: bytes, attempt: int) -> Peer | None:
        return self._table.next_hop(key, attempt)

    def _note_members(self, source: Peer, other: Peer) -> None:
        self._table.heard(source)
        self._table.learn_cache(source)
        self._table.learn_cache(other)

    def _route_of_find(self, source: Peer, message: FindOwner) -> Peer | None:
        if message.key != message.asker.id:
            return super()._route_of_find(source, message)
        # A node asks about its own id: it goes to whoever has it here, where that node may be unknown.
        if not self._table.is_ready or message.hops >= self._settings.hops_max:
            return self._runtime.me
        return self._table.next_hop_beside(message.key)

    def _answer(self, message: FindOwner) -> PastryFound:
        return PastryFound(message.number, message.hops)
