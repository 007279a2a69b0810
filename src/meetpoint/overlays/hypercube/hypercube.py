"""The hypercube of paper C as a running overlay: one node's part of the network.

`rules` and `routing` have the paper's steps as pure functions, `claims` what makes them safe with messages; `upkeep`,
`joining`, `tidying`, `finding` and `merging` are what their names say; `table` holds what is known. A node knows only
what messages tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Handler, Places, Span, Upcalls
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.assembled import Assembled
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.hypercube.claims import FIRST, Claim
from meetpoint.overlays.hypercube.heal import Healing
from meetpoint.overlays.hypercube.join import Joining
from meetpoint.overlays.hypercube.key_lookup import Finding
from meetpoint.overlays.hypercube.keys import key_of, point_of, span_of
from meetpoint.overlays.hypercube.messages import (
    Beat,
    Find,
    Join,
    Kept,
    Leaving,
    Located,
    Offer,
    Refuse,
    Routed,
    StandBy,
    Walk,
)
from meetpoint.overlays.hypercube.region_merge import RegionMerge
from meetpoint.overlays.hypercube.regions import are_neighbours
from meetpoint.overlays.hypercube.rules import founding_regions
from meetpoint.overlays.hypercube.settings import HypercubeSettings
from meetpoint.overlays.hypercube.table import HypercubeView, Piece, Table
from meetpoint.overlays.hypercube.upkeep import Upkeep

__all__ = ["Hypercube"]


class HypercubePlaces:
    """The keys that nodes have: those of their regions."""

    __slots__ = ("_finding", "_services", "_table")

    def __init__(self, services: Runtime, table: Table, finding: Finding) -> None:
        self._services = services
        self._table = table
        self._finding = finding

    def founding(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, Span]:
        """The keys of nodes that begin a network together."""
        regions = founding_regions(len(nodes), self._table.dimensions)
        spans = (span_of(self._services.ring, region) for region in regions)
        return dict(zip(sorted(nodes), spans, strict=False))

    def mine(self) -> tuple[Span, ...] | None:
        """The keys of this node now; None where it has yet to find its place."""
        table = self._table
        if not table.joined or (not table.pieces and table.sponsor is None):
            return None
        return tuple(sorted(span_of(self._services.ring, region) for region in table.pieces))

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the node that has a key, and its region around it."""
        self._finding.host_of(key, then)


class Hypercube(Assembled):
    """An `Overlay`."""

    __slots__ = (
        "_finding", "_joining", "_left", "_merging", "_services", "_settings", "_table", "_tidying", "_timer",
        "_upcalls", "_upkeep", "places", "view",
    )  # fmt: skip

    def __init__(
        self, services: Runtime, upcalls: Upcalls, settings: HypercubeSettings | None = None, dimensions: int = 16
    ) -> None:
        assert 1 <= dimensions <= services.ring.bits, "an id has a bit at least, and no more than a key"
        settings = settings or HypercubeSettings()
        self._services = services
        self._settings = settings
        self._upcalls = upcalls
        contacts = Contacts(services.me.id, settings.known_max, settings.passive_max)
        self._table = Table(services.me.id, dimensions, contacts, upcalls.neighbours_changed)
        self._finding = Finding(services, self._table, settings, upcalls.delivered)
        self._upkeep = Upkeep(services, self._table, settings)
        self._joining = Joining(services, self._table, self._upkeep, settings)
        self._tidying = RegionMerge(services, self._table, self._upkeep, self._joining, settings)
        self._merging = Healing(services, self._table, self._finding, self._upkeep, settings)
        self._upkeep.look = self._look
        self._upkeep.lost = self._lost
        self._upkeep.see_to = self._see_to
        self.places: Places | None = HypercubePlaces(services, self._table, self._finding)
        """Which keys nodes have."""
        self.view: Callable[[], HypercubeView] = self._table.view
        """The table as it is; the same object until it changes."""
        self._timer: int | None = None
        self._left = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Which messages are the hypercube's, and who takes them."""
        taken: dict[type[Message], Any] = {
            Beat: self._upkeep.on_beat,
            Find: self._finding.on_find,
            Join: self._joining.on_join,
            Kept: self._joining.on_kept,
            Leaving: self._upkeep.on_leaving,
            Located: self._finding.on_located,
            Offer: self._joining.on_offer,
            Refuse: self._joining.on_refuse,
            Routed: self._finding.on_routed,
            StandBy: self._joining.on_stand_by,
            Walk: self._tidying.on_walk,
        }
        return {kind: partial(self._take, handler) for kind, handler in taken.items()}

    def _take(self, handler: Handler, source: Peer, message: Message) -> None:
        if self._timer is None:
            self._services.observe("hypercube_not_ready")  # it has left, or not begun
            return
        handler(source, message)
        self._upkeep.settle()

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; each has its region at once."""
        table = self._table
        assert not table.joined, "a member founds nothing"
        self._joining.stop()
        self._upkeep.begin_life()
        self._begin()
        regions = founding_regions(len(peers), table.dimensions)
        places = dict(zip((peer.id for peer in peers), regions, strict=False))
        hosts = peers[: len(regions)]
        at = [peer.id for peer in peers].index(table.id)
        for peer in peers:
            table.contacts.learn(peer)
        if table.id in places:
            table.pieces[places[table.id]] = Piece(FIRST, self._services.now)
            table.touch()
            claims = [Claim(places[peer.id], FIRST, peer.id) for peer in hosts]
            for claim in claims:
                if claim.node != table.id and self._upkeep.assume(claim, self._settings.silent_us):
                    near = (each for each in claims if are_neighbours(each.region, claim.region))
                    table.words[claim.node].links = tuple(near)
        else:
            table.sponsor = hosts[at % len(hosts)].id
            table.contacts.remember_former(hosts)  # should the sponsor be lost before it has told its neighbours
            table.touch()
        self._upkeep.settle()

    def join(self, contact: Peer) -> None:
        """Become a member through one. A member takes it as a hint to where others may be."""
        table = self._table
        if table.pieces or table.sponsor is not None:
            self.remember((contact,))
        elif not self._left:
            if self._timer is None:
                self._upkeep.begin_life()
            self._begin()
            self._joining.join(contact)

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""
        self._left = True
        self._joining.stop()
        self._upkeep.leave()
        self._table.joined = False
        self._table.touch()
        self._table.refresh()
        self._table.tell()
        if self._timer is not None:
            self._services.cancel(self._timer)
            self._timer = None

    def _begin(self) -> None:
        # The first period ends at any point of it, so that nodes that begin together do not go on together.
        if self._timer is None:
            self._timer = self._services.after(
                1 + self._services.random.randrange(self._settings.period_us), self._tick
            )

    def _see_to(self) -> None:
        """What follows from a step."""
        table = self._table
        self._tidying.see_to()
        if table.pieces:
            self._joining.stop()
        self._joining.go_on()
        if not table.joined and (table.pieces or table.sponsor is not None):
            table.joined = True
            table.touch()
            table.refresh()
            self._upcalls.joined()

    def _lost(self) -> None:
        """This node has no place any more: it joins anew."""
        if not self._left:
            self._joining.join_again()

    def _look(self, point: int, then: Callable[[Peer], None]) -> None:
        """Find the host of an id."""
        key = key_of(self._services.ring, point, self._table.dimensions)
        self._finding.lookup(key, lambda peer, hops: None if peer is None else then(peer))

    def _tick(self) -> None:
        period = self._settings.period_us
        delay = period - period // 8 + self._services.random.randrange(period // 4 + 1)
        self._timer = self._services.after(delay, self._tick)
        self._upkeep.tick()
        self._joining.tick()
        self._tidying.tick()
        self._merging.tick()
        self._upkeep.settle()

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Someone found a peer silent or unreachable."""
        if self._timer is not None:
            self._upkeep.suspect(peer)

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another network among them make the two one."""
        self._merging.remember(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def next_hop(self, key: Key) -> Peer | None:
        """The link that a message for a key would go to; None where this node has it, or knows no way."""
        point = point_of(self._services.ring, key, self._table.dimensions)
        return None if self._table.hosts(point) else self._table.next_hop(point)

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """The hosts of what is next to this node, siblings first; at most as many as there are."""
        return tuple(self._table.neighbours()[:count])
