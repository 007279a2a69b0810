"""The table of what a hypercube's node hosts and whom it knows, and its router.

A node hosts *pieces*: mostly one region; more for a while, after it took one over; none where it stands by, or looks
for a place. Of others it knows the last heartbeat (`PeerState`): what they claim, and their own neighbours. Its links
are what is left of those claims when they are resolved against each other (`rules`), as far as they are next to a
piece.

A standby routes through its sponsor. The answer to a lookup names the owner's region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.overlays.base import LinkTable
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.hypercube.messages import HypercubeFind, HypercubeFound, HypercubeRouted, Life
from meetpoint.overlays.hypercube.regions import (
    WHOLE,
    Region,
    apart,
    are_neighbours,
    distance,
    packed,
    point_of,
    span_of,
    unpacked,
)
from meetpoint.overlays.hypercube.rules import Claim, Link, next_hop, overlap, resolved
from meetpoint.overlays.routing import Deliver, FindOwner, OwnerFound, Router

if TYPE_CHECKING:
    from meetpoint.node.overlay import Span
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.rules import HypercubeSettings

__all__ = ["HypercubeRouter", "HypercubeTable", "HypercubeView", "PeerState", "Piece"]

NOBODY: Final = b""
"""The scope of a broadcast that goes no further."""


@dataclass(frozen=True, slots=True)
class HypercubeView:
    """A snapshot of a node; it stays the same while `version` does."""

    joined: bool
    id: NodeId
    pieces: tuple[tuple[Region, int], ...]
    """The regions that the node hosts, each with its epoch; in order."""
    reserved_for: tuple[tuple[Region, NodeId], ...]
    """The ones among them that are reserved for the node that had them before."""
    sponsor: NodeId | None
    """The member at which the node stands by."""
    standbys: tuple[NodeId, ...]
    """The standbys here."""
    links: tuple[tuple[Region, NodeId], ...]
    """The regions next to its own and who hosts them, in order."""
    version: int


class Piece(msgspec.Struct):
    """A region that this node hosts: since when, and for whom it is reserved until when."""

    epoch: int
    since: int
    reserved_for: bytes = b""
    until: int = 0


class PeerState(msgspec.Struct):
    """The last heartbeat of another node, or what was said of it."""

    life: Life
    version: int
    claims: tuple[Claim, ...]
    standby_count: int = 0
    links: tuple[Claim, ...] = ()
    seen: int = 0
    """The version of which the links are."""
    standby_peers: tuple[bytes, ...] = ()
    """The standbys there, other than this node."""
    hearsay: bool = False
    """Whether the node has not spoken itself."""


class HypercubeTable(LinkTable):
    """The pieces, partners and links of one node."""

    __slots__ = (
        "_hosts", "_shape", "dimensions", "joined", "links", "peer_states", "pieces", "sponsor", "standbys",
    )  # fmt: skip

    _view: HypercubeView | None

    def __init__(self, me: NodeId, dimensions: int, contacts: Contacts, on_change: Callable[[], None]) -> None:
        super().__init__(me, contacts, on_change)
        self.version = 1  # 0 is the version of links that were never told
        self._is_stale = False
        self.dimensions = dimensions
        self.joined = False
        """Whether this node has had a place and has not left; one that looks for another is still a member."""
        self.pieces: dict[Region, Piece] = {}
        self.peer_states: dict[bytes, PeerState] = {}
        """The states of all nodes that are next to this one, stand by here, or sponsor it."""
        self.links: list[Claim] = []
        """The claims of others next to this node; in order."""
        self._hosts: dict[Region, bytes] = {}  # the same
        self.sponsor: NodeId | None = None
        self.standbys: dict[bytes, Life] = {}
        self._shape: object = None

    # -- changes -------------------------------------------------------------------------------------------------------

    def invalidate(self) -> None:
        """Note a change; `refresh` sees to what follows from it."""
        self._is_stale = True

    def refresh(self) -> bool:
        """Rebuild the links; return whether anything that others can see has changed."""
        if not self._is_stale:
            return False
        self._is_stale = False
        claims = (claim for state in self.peer_states.values() for claim in state.claims)
        self.links = [each for each in resolved(claims, list(self.pieces)) if self.is_near(each.region)]
        self._hosts = {each.region: each.node for each in self.links}
        standby_count = [(node, state.standby_count) for node, state in self.peer_states.items() if state.standby_count]
        pieces = sorted((region, piece.epoch, piece.reserved_for) for region, piece in self.pieces.items())
        shape = (self.joined, pieces, self.links, self.sponsor, list(self.standbys), standby_count)
        if shape == self._shape:
            return False
        self._shape = shape
        self.version += 1
        self._view = None
        self._changed = True
        return True

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def main(self) -> Region:
        """The piece that this node has had longest, of those that are not reserved for others."""
        return min(self.pieces, key=lambda each: (bool(self.pieces[each].reserved_for), self.pieces[each].since, each))

    def is_near(self, region: Region) -> bool:
        """Return whether a region is next to a piece."""
        return any(are_neighbours(piece, region) for piece in self.pieces)

    def concerns(self, claims: Iterable[Claim]) -> bool:
        """Return whether any of these is next to a piece, or overlaps it."""
        regions = [claim.region for claim in claims]
        return any(overlap(piece, each) or are_neighbours(piece, each) for piece in self.pieces for each in regions)

    def hosts(self, point: int) -> bool:
        """Return whether an id is hosted here."""
        return any(piece.hosts(point) for piece in self.pieces)

    def around(self, point: int) -> Region:
        """Return the piece that has an id."""
        return next(piece for piece in self.pieces if piece.hosts(point))

    def host_of(self, point: int) -> Claim | None:
        """Return the link that has an id."""
        return next((link for link in self.links if link.region.hosts(point)), None)

    def near(self, region: Region) -> list[Link[bytes]]:
        """Return what is next to a region, a piece or a part of one; other pieces of this node, too."""
        links = [Link[bytes](each.region, each.node, self._standby_count(each.node)) for each in self.links]
        links += [Link(each, self.id, len(self.standbys)) for each in self.pieces]
        return [link for link in links if are_neighbours(link.region, region)]

    def _standby_count(self, node: bytes) -> int:
        state = self.peer_states.get(node)
        return state.standby_count if state is not None else 0

    def live(self, node: bytes) -> Peer | None:
        """Return the peer of an id, unless it is suspected."""
        return self.contacts.live(node)

    # -- routing -------------------------------------------------------------------------------------------------------

    def next_hop(self, point: int, attempt: int = 0) -> Peer | None:
        """Return the link to pass a message for an id on to; with each attempt another one that leads nearer."""
        if not self.pieces:
            return None if self.sponsor is None else self.live(self.sponsor)
        start = min(self.pieces, key=lambda each: (distance(each, point), each))
        hosts = self._hosts
        regions = list(hosts)
        suspects = self.contacts.suspects
        avoid = [each for each, node in hosts.items() if node in suspects] if suspects else []
        best: Peer | None = None
        for _ in range(attempt + 1):
            region = next_hop(start, regions, point, avoid)
            if region is None:
                break
            best = self.live(hosts[region])
            avoid.append(region)
        return best

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self) -> list[Peer]:
        """Return all live links, siblings first, then the standbys, or the sponsor with its links."""
        order: dict[bytes, None] = {}
        pieces = sorted(self.pieces)
        for each in sorted(self.links, key=lambda link: (-_across(pieces, link.region), link.region)):
            order.setdefault(each.node)
        order.update(dict.fromkeys(self.standbys))
        if self.sponsor is not None:
            state = self.peer_states.get(self.sponsor)
            order.setdefault(self.sponsor)
            order.update(dict.fromkeys(each.node for each in (() if state is None else state.links)))
        order.pop(self.id, None)
        return [peer for node in order if (peer := self.live(node)) is not None]

    def peers(self) -> tuple[Peer, ...]:
        """Return all live links, the standbys, and the sponsor; ordered by id."""
        nodes = {*(each.node for each in self.links), *self.standbys}
        if self.sponsor is not None:
            nodes.add(self.sponsor)
        return tuple(peer for node in sorted(nodes) if (peer := self.live(node)) is not None)

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Return the parts of a broadcast; a scope is a region, and behind it who has the broadcast already."""
        if scope == NOBODY:
            return []
        if not self.pieces:
            peer = None if self.sponsor is None or scope is not None else self.live(self.sponsor)
            return [] if peer is None else [(peer, packed(WHOLE) + self.id)]
        region, but = (WHOLE, b"") if scope is None else _read(scope, self.dimensions)
        if region is None:
            return []
        parts: list[tuple[Peer, bytes]] = []
        first = next((each for each in sorted(self.pieces) if region.holds(each)), None)
        if first is not None:
            self._part(region, first, parts)
        elif not any(overlap(region, each) for each in self.pieces):
            self._hand(region, [each for each in self.links if region.holds(each.region)], parts)
        standbys = (self.live(node) for node in self.standbys if node != but)
        return parts + [(peer, NOBODY) for peer in standbys if peer is not None]

    def _part(self, scope: Region, piece: Region, parts: list[tuple[Peer, bytes]]) -> None:
        """Hand on all of a scope but a piece in it: half by half, each to a neighbour in it."""
        for length in range(scope.length, piece.length):
            half = Region(piece.bits & (1 << length + 1) - 1 ^ 1 << length, length + 1)
            mine = next((each for each in sorted(self.pieces) if half.holds(each)), None)
            if mine is not None:
                self._part(half, mine, parts)
                continue
            across = piece.bits ^ 1 << length
            links = [each for each in self.links if half.holds(each.region)]
            links.sort(key=lambda each: (not each.region.hosts(across), each.region))
            self._hand(half, links, parts)

    def _hand(self, scope: Region, links: Sequence[Claim], parts: list[tuple[Peer, bytes]]) -> None:
        for link in links:
            peer = self.live(link.node)
            if peer is not None:
                parts.append((peer, packed(scope)))
                return

    # -- watching ------------------------------------------------------------------------------------------------------

    def view(self) -> HypercubeView:
        """Return the table as it is; the same object until it changes."""
        if self._view is None:
            self._view = HypercubeView(
                joined=self.joined,
                id=self.id,
                pieces=tuple(sorted((region, piece.epoch) for region, piece in self.pieces.items())),
                reserved_for=tuple(
                    sorted(
                        (each, _node(piece.reserved_for)) for each, piece in self.pieces.items() if piece.reserved_for
                    )
                ),
                sponsor=self.sponsor,
                standbys=tuple(sorted(map(_node, self.standbys))),
                links=tuple((link.region, _node(link.node)) for link in self.links),
                version=self.version,
            )
        return self._view

    def check(self) -> None:
        """Assert what must hold of a node's table."""
        pieces = list(self.pieces)
        for at, one in enumerate(pieces):
            assert one.length <= self.dimensions, "an id is too long"
            assert not any(overlap(one, other) for other in pieces[:at]), "pieces overlap"
        assert self.sponsor is None or not self.pieces, "one that stands by hosts nothing"


def _node(node: bytes) -> NodeId:
    return NodeId(Key(node))


def _across(pieces: Sequence[Region], region: Region) -> int:
    """Return the highest bit across which a region is next to a piece."""
    return max((apart(piece, region).bit_length() for piece in pieces if are_neighbours(piece, region)), default=0)


def _read(scope: bytes, dimensions: int) -> tuple[Region | None, bytes]:
    """Return a scope's region, and who has the broadcast already."""
    size = 2 + (int.from_bytes(scope[:2], "big") + 7) // 8
    return unpacked(scope[:size], dimensions), scope[size:]


class HypercubeRouter(Router):
    """Routing and lookups of one node."""

    __slots__ = ("_named", "_table")

    name = "hypercube"
    find = HypercubeFind
    routed = HypercubeRouted

    def __init__(self, runtime: Runtime, table: HypercubeTable, settings: HypercubeSettings, deliver: Deliver) -> None:
        self._table = table
        self._named: Region | None = None  # the region that the answer names which is being taken just now
        super().__init__(runtime, settings, deliver)

    def _point(self, key: bytes) -> int:
        return point_of(self._runtime.ring, key, self._table.dimensions)

    def _is_member(self) -> bool:
        return self._table.joined

    def _is_here(self, key: bytes) -> bool:
        return self._table.hosts(self._point(key))

    def _next_hop(self, key: bytes, attempt: int) -> Peer | None:
        return self._table.next_hop(self._point(key), attempt)

    def _answer(self, message: FindOwner) -> HypercubeFound:
        return HypercubeFound(message.number, message.hops, packed(self._table.around(self._point(message.key))))

    def on_located(self, source: Peer, message: OwnerFound) -> None:
        """End a lookup with its answer."""
        assert isinstance(message, HypercubeFound), "as handlers have it"
        self._named = unpacked(message.region, self._table.dimensions)
        if self._named is None:
            self._observe("malformed")
        else:
            super().on_located(source, message)
        self._named = None

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the host of a key, and its region around it."""

        def found(peer: Peer | None, hops: int) -> None:
            region, point = self._named, self._point(key)
            if peer is not None and peer.id == self._table.id:
                region = self._table.around(point)
            if peer is None or region is None or not region.hosts(point):
                then(None, None)
            else:
                then(peer, span_of(self._runtime.ring, region))

        self.lookup(key, found)
