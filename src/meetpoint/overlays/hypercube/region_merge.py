"""Merging of regions: each node gets one, none much smaller than its neighbours, whatever takeovers and races leave.

A node with two halves makes them one, where no neighbour is longer. A region that is too many gets another host, as the
rules have it for one whose host leaves: a standby here, or else the search goes to the heaviest neighbour, and on from
there, until there is a standby or a pair that can be one. The upper of the two then offers its own region to the lower
one. When that has claimed it, the upper one is free and claims the region that was in search of a host; the search
carries the offer. Should any step be lost nothing has happened, and it is tried again.

A node with a neighbour that is two bits longer, as races of joins and leaves can make it, sends half of its own region
on the same search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meetpoint.overlays.hypercube.messages import HostSearch, Offer
from meetpoint.overlays.hypercube.regions import Region, packed, unpacked
from meetpoint.overlays.hypercube.rules import Claim, pass_leave

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.maintenance import HypercubeMaintenance
    from meetpoint.overlays.hypercube.membership import HypercubeMembership
    from meetpoint.overlays.hypercube.routing import HypercubeTable
    from meetpoint.overlays.hypercube.rules import HypercubeSettings

__all__ = ["RegionMerge"]


class PendingMove(msgspec.Struct):
    """The region that this node claims when it has given its own away, if that is soon."""

    region: Region
    epoch: int
    links: list[Claim]
    until: int


class RegionMerge:
    """Merging and moving of one node's regions."""

    __slots__ = ("_maintenance", "_membership", "_move", "_next", "_runtime", "_settings", "_table")

    def __init__(
        self,
        runtime: Runtime,
        table: HypercubeTable,
        maintenance: HypercubeMaintenance,
        membership: HypercubeMembership,
        settings: HypercubeSettings,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._maintenance = maintenance
        self._membership = membership
        self._settings = settings
        self._move: PendingMove | None = None
        self._next = 0  # when to look for a host again

    def finish_step(self) -> None:
        """Merge halves, and claim the region that this node moves to."""
        table, move = self._table, self._move
        if move is not None and not table.pieces:
            self._move = None
            if self._runtime.now < move.until:
                self._runtime.observe("hypercube_moved")
                self._maintenance.claim(move.region, move.epoch, move.links)
        while (pair := self._pair()) is not None:
            self._merge(pair)

    def _pair(self) -> Region | None:
        """Return a piece whose other half is here, too, and no neighbour of the two longer."""
        table = self._table
        if len(table.pieces) < 2:
            return None
        table.refresh()
        for region, piece in sorted(table.pieces.items()):
            other = None if region.length == 0 else table.pieces.get(region.sibling)
            if other is None or piece.reserved_for or other.reserved_for or region > region.sibling:
                continue
            near = [*table.near(region), *table.near(region.sibling)]
            if all(link.region.length <= region.length for link in near):
                return region
        return None

    def _merge(self, lower: Region) -> None:
        pieces = self._table.pieces
        one, other = pieces.pop(lower), pieces.pop(lower.sibling)
        epoch, since = max(one.epoch, other.epoch) + 1, min(one.since, other.since)
        pieces[lower.parent] = msgspec.structs.replace(one, epoch=epoch, since=since)
        self._maintenance.mark_changed()

    # -- looking for a host --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look for a host for what is too many, now and then."""
        now, table, wait = self._runtime.now, self._table, self._settings.tidy_us
        if now < self._next or not table.pieces:
            return
        self._next = now + wait - wait // 8 + self._runtime.random.randrange(wait // 4 + 1)
        main = table.main
        extra = [each for each, piece in table.pieces.items() if not piece.reserved_for and each != main]
        if extra:
            self._seek_host(extra[-1], extra[-1])
        elif not table.pieces[main].reserved_for and main.length < table.dimensions and self._is_large(main):
            self._seek_host(main, main.half(1))

    def _is_large(self, region: Region) -> bool:
        """Return whether half of a region had better be another's."""
        return bool(self._table.standbys) or any(
            link.region.length > region.length + 1 for link in self._table.near(region)
        )

    def _seek_host(self, piece: Region, region: Region) -> None:
        if self._membership.is_offered(region) or self._offer_to_standby(piece, region):
            return
        epoch = self._table.pieces[piece].epoch + 1
        links = self._maintenance.links(self._membership.links_of(region))
        self._search(HostSearch(self._runtime.me, packed(region), epoch, links, packed(piece), 0), piece)

    def _offer_to_standby(self, piece: Region, region: Region) -> bool:
        for node, life in self._table.standbys.items():
            peer = self._table.live(node)
            if peer is not None and self._membership.offer(piece, region, peer, life):
                return True
        return False

    def on_host_search(self, source: Peer, message: HostSearch) -> None:
        """Take one step of a search for a host."""
        holds = self._runtime.ring.holds
        at = unpacked(message.at, self._table.dimensions)
        region = self._maintenance.read_region(message.region, message.epoch)
        links = self._maintenance.read(message.links)
        if at is None or region is None or links is None or not holds(message.origin.id) or not message.origin.address:
            self._runtime.observe("hypercube_malformed")
            return
        if message.hops >= self._settings.hops_max:
            self._runtime.observe("hypercube_hops_exceeded")
        elif at in self._table.pieces:
            self._search(message, at)
        else:
            self._runtime.observe("hypercube_walk_astray")

    def _search(self, message: HostSearch, at: Region) -> None:
        """Pass a search on to the heaviest neighbour or the sibling, or finish it here."""
        table, piece = self._table, self._table.pieces[at]
        heaviest = pass_leave(self._membership.link_of(at), table.near(at))
        if heaviest is not None:
            self._pass(message, heaviest.region, asked=False)
        elif table.standbys and message.origin.id != table.id:
            self._send_standby(message)
        elif piece.reserved_for or at.length == 0:
            self._runtime.observe("hypercube_walk_astray")
        elif not message.asked:
            self._pass(message, at.sibling, asked=True)
        else:
            self._finish_search(message, at)

    def _pass(self, message: HostSearch, at: Region, asked: bool) -> None:
        table = self._table
        onward = msgspec.structs.replace(message, at=packed(at), hops=message.hops + 1, asked=asked)
        link = table.host_of(at.bits)
        if at in table.pieces:
            if message.hops < self._settings.hops_max:
                self._search(onward, at)
        elif link is not None and link.region == at and (peer := table.live(link.node)) is not None:
            self._runtime.send(peer, onward)
        else:
            self._runtime.observe("hypercube_walk_astray")

    def _send_standby(self, message: HostSearch) -> None:
        """Offer a standby the region, on behalf of its host."""
        for node, life in self._table.standbys.items():
            peer = self._table.live(node)
            if peer is not None:
                self._runtime.send(peer, Offer(life, message.region, message.epoch, message.links))
                return

    def _finish_search(self, message: HostSearch, at: Region) -> None:
        """Free one of this piece and its sibling, which can be one, for the region in search of a host."""
        table = self._table
        region = unpacked(message.region, table.dimensions)
        links = self._maintenance.read(message.links)
        sibling = table.host_of(at.sibling.bits)
        assert region is not None, "it was read before"
        assert links is not None, "it was read before"
        if at.sibling == region:
            self._maintenance.learn(message.links)
            self._maintenance.claim(region, message.epoch, links)
        elif sibling is None or sibling.region != at.sibling or (peer := table.live(sibling.node)) is None:
            self._runtime.observe("hypercube_walk_astray")
        elif message.origin.id == table.id:
            self._offer_to_sibling(at, peer)
        elif sibling.node == message.origin.id or at < at.sibling:
            self._pass(message, at.sibling, asked=True)
        elif len(table.pieces) == 1 and self._offer_to_sibling(at, peer):
            self._maintenance.learn(message.links)
            self._move = PendingMove(region, message.epoch, links, self._runtime.now + self._settings.offer_us)

    def _offer_to_sibling(self, piece: Region, to: Peer) -> bool:
        """Offer a piece to the host of its other half."""
        state = self._table.peer_states.get(to.id)
        return state is not None and self._membership.offer(piece, piece, to, state.life)
