"""The hypercube of paper C as a running overlay: one node's part of the network.

`rules` has the paper's steps as pure functions, and the claims that make them safe with messages. `maintenance` sends
heartbeats, `takeover` sees to the regions of dead nodes, `region_merge` evens out, `membership` joins and heals, and
`routing` holds what is known and routes. A node knows only what messages tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Handler, Places, Span, Upcalls
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.base import OverlayBase
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.hypercube.maintenance import HypercubeMaintenance
from meetpoint.overlays.hypercube.membership import HypercubeHealing, HypercubeMembership
from meetpoint.overlays.hypercube.messages import (
    Heartbeat,
    HostSearch,
    HypercubeFind,
    HypercubeFound,
    HypercubeJoin,
    HypercubeLeaving,
    HypercubeRouted,
    JoinRefused,
    Life,
    Offer,
    RegionReserved,
    StandBy,
)
from meetpoint.overlays.hypercube.region_merge import RegionMerge
from meetpoint.overlays.hypercube.regions import are_neighbours, key_of, point_of, span_of
from meetpoint.overlays.hypercube.routing import HypercubeRouter, HypercubeTable, HypercubeView, Piece
from meetpoint.overlays.hypercube.rules import FIRST_EPOCH, Claim, HypercubeSettings, founding_regions

__all__ = ["Hypercube"]


class HypercubePlaces:
    """The keys that nodes have: those of their regions."""

    __slots__ = ("_router", "_runtime", "_table")

    def __init__(self, runtime: Runtime, table: HypercubeTable, router: HypercubeRouter) -> None:
        self._runtime = runtime
        self._table = table
        self._router = router

    def founding(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, Span]:
        """Return the keys of nodes that begin a network together."""
        regions = founding_regions(len(nodes), self._table.dimensions)
        spans = (span_of(self._runtime.ring, region) for region in regions)
        return dict(zip(sorted(nodes), spans, strict=False))

    def mine(self) -> tuple[Span, ...] | None:
        """Return the keys of this node now; None where it has yet to find its place."""
        table = self._table
        if not table.joined or (not table.pieces and table.sponsor is None):
            return None
        return tuple(sorted(span_of(self._runtime.ring, region) for region in table.pieces))

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the node that has a key, and its region around it."""
        self._router.host_of(key, then)


class Hypercube(OverlayBase):
    """The hypercube as an `Overlay`."""

    __slots__ = (
        "_healing", "_left", "_maintenance", "_membership", "_region_merge", "_router", "_runtime", "_settings",
        "_table", "_upcalls", "places", "view",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, upcalls: Upcalls, settings: HypercubeSettings | None = None, dimensions: int = 16
    ) -> None:
        assert 1 <= dimensions <= runtime.ring.bits, "an id has a bit at least, and no more than a key"
        settings = settings or HypercubeSettings()
        self._runtime = runtime
        self._settings = settings
        self._upcalls = upcalls
        contacts = Contacts(runtime.me.id, settings.known_max, settings.passive_max)
        self._table: HypercubeTable = HypercubeTable(runtime.me.id, dimensions, contacts, upcalls.neighbours_changed)
        self._router: HypercubeRouter = HypercubeRouter(runtime, self._table, settings, upcalls.delivered)
        self._maintenance: HypercubeMaintenance = HypercubeMaintenance(runtime, self._table, settings)
        self._membership = HypercubeMembership(runtime, self._table, self._maintenance, settings)
        self._region_merge = RegionMerge(runtime, self._table, self._maintenance, self._membership, settings)
        self._healing = HypercubeHealing(runtime, self._table, self._router, self._maintenance, settings)
        self._maintenance.overlay = self
        self.places: Places | None = HypercubePlaces(runtime, self._table, self._router)
        """The keys that nodes have."""
        self.view: Callable[[], HypercubeView] = self._table.view
        """Returns the table as it is; the same object until it changes."""
        self._timer: int | None = None
        self._left = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Return the handlers of the hypercube's messages."""
        taken: dict[type[Message], Any] = {
            Heartbeat: self._maintenance.on_heartbeat,
            HypercubeFind: self._router.on_find,
            HypercubeJoin: self._membership.on_join,
            RegionReserved: self._membership.on_region_reserved,
            HypercubeLeaving: self._maintenance.on_leaving,
            HypercubeFound: self._router.on_located,
            Offer: self._membership.on_offer,
            JoinRefused: self._membership.on_join_refused,
            HypercubeRouted: self._router.on_routed,
            StandBy: self._membership.on_stand_by,
            HostSearch: self._region_merge.on_host_search,
        }
        return {kind: partial(self._dispatch, handler) for kind, handler in taken.items()}

    def _dispatch(self, handler: Handler, source: Peer, message: Message) -> None:
        if self._timer is None:
            self._runtime.observe("hypercube_not_ready")  # it has left, or not begun
            return
        handler(source, message)
        self._maintenance.finish_step()

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; each has its region at once."""
        table = self._table
        assert not table.joined, "a member founds nothing"
        self._membership.stop()
        self._maintenance.begin_life()
        self._begin()
        regions = founding_regions(len(peers), table.dimensions)
        places = dict(zip((peer.id for peer in peers), regions, strict=False))
        hosts = peers[: len(regions)]
        at = [peer.id for peer in peers].index(table.id)
        for peer in peers:
            table.contacts.learn(peer)
        if table.id in places:
            table.pieces[places[table.id]] = Piece(FIRST_EPOCH, self._runtime.now)
            table.invalidate()
            claims = [Claim(places[peer.id], FIRST_EPOCH, peer.id) for peer in hosts]
            for claim in claims:
                if claim.node != table.id and self._maintenance.assume(claim, self._settings.silent_us):
                    near = (each for each in claims if are_neighbours(each.region, claim.region))
                    table.peer_states[claim.node].links = tuple(near)
        else:
            table.sponsor = hosts[at % len(hosts)].id
            table.contacts.remember_former(hosts)  # should the sponsor be lost before it has told its neighbours
            table.invalidate()
        self._maintenance.finish_step()

    def join(self, contact: Peer) -> None:
        """Become a member through a contact; a member takes the contact as a hint to where others may be."""
        table = self._table
        if table.pieces or table.sponsor is not None:
            self.remember((contact,))
        elif not self._left:
            if self._timer is None:
                self._maintenance.begin_life()
            self._begin()
            self._membership.join(contact)

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""
        self._left = True
        self._membership.stop()
        self._maintenance.leave()
        self._table.joined = False
        self._table.invalidate()
        self._table.refresh()
        self._table.report_changes()
        self._stop_ticks()

    def _begin(self) -> None:
        self._start_ticks(self._settings.period_us)

    def _tick(self) -> None:
        self._schedule_tick(self._settings.period_us, 8)
        self._maintenance.tick()
        self._membership.tick()
        self._region_merge.tick()
        self._healing.tick()
        self._maintenance.finish_step()

    # -- for its maintenance -------------------------------------------------------------------------------------------

    def on_step(self) -> None:
        """Do what follows from a step: merge regions, stop or go on joining, report the first place."""
        table = self._table
        self._region_merge.finish_step()
        if table.pieces:
            self._membership.stop()
        self._membership.serve_waiting()
        if not table.joined and (table.pieces or table.sponsor is not None):
            table.joined = True
            table.invalidate()
            table.refresh()
            self._upcalls.joined()

    def on_place_lost(self) -> None:
        """Join anew: this node has no place any more."""
        if not self._left:
            self._membership.join_again()

    def find_host(self, point: int, then: Callable[[Peer], None]) -> None:
        """Find the host of an id."""
        key = key_of(self._runtime.ring, point, self._table.dimensions)
        self._router.lookup(key, lambda peer, hops: None if peer is None else then(peer))

    def on_placeless(self, peer: Peer, life: Life, here: bool) -> None:
        """Give a node that hosts nothing its region back, or let it stand by here."""
        self._membership.on_placeless(peer, life, here)

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Suspect a peer that someone found silent or unreachable."""
        if self._timer is not None:
            self._maintenance.suspect(peer)

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another network among them make the two one."""
        self._healing.remember(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def next_hop(self, key: Key) -> Peer | None:
        """Return the link that a message for a key would go to; None where this node has it, or knows no route."""
        point = point_of(self._runtime.ring, key, self._table.dimensions)
        return None if self._table.hosts(point) else self._table.next_hop(point)

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """Return the hosts of what is next to this node, siblings first; at most as many as there are."""
        return tuple(self._table.neighbours()[:count])
