"""Joining: a joiner's way to a place, what it is offered there, and healing of networks that were torn apart.

A join goes to the host of the id that the joiner's own id stands for, so that a node that comes back comes near to
where it was, and from there to ever lighter neighbours (`rules.pass_join`). The last of them offers half of its region,
and hosts it until the joiner claims it: a lost offer costs a retry. Where ids are as long as can be the joiner stands
by: it sends through a member, its *sponsor*, and is the first to get a region.

A region that was taken over from a silent node is reserved for it for a while. Its holder tells so to the host of the
id at which that node will ask first. So a node that restarts has its region back, and nothing need be moved.

To heal a network, a peer of the passive list is asked for an id of this node's own. If another hosts it there, the two
greet each other and resolve who has it. Since they tell their neighbours, and those compare claims, it spreads from
there (`maintenance`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meetpoint.api.ids import Key
from meetpoint.overlays.contacts import PartitionHealing
from meetpoint.overlays.hypercube.messages import HypercubeJoin, JoinRefused, Life, Offer, RegionReserved, StandBy
from meetpoint.overlays.hypercube.regions import WHOLE, Region, are_neighbours, key_of, packed, point_of
from meetpoint.overlays.hypercube.rules import (
    STANDBYS_MAX,
    TAKEOVER_EPOCHS,
    UNHEARD_EPOCH,
    Claim,
    Link,
    pass_join,
    resolved,
)

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.maintenance import HypercubeMaintenance
    from meetpoint.overlays.hypercube.routing import HypercubeRouter, HypercubeTable, PeerState
    from meetpoint.overlays.hypercube.rules import HypercubeSettings

__all__ = ["HypercubeHealing", "HypercubeMembership"]

CONTACTS_MAX = 8
"""Number of members that a joiner asks in turn."""
SEARCH_HOPS_MAX = 64
"""Number of hops after which a join goes no further."""
RESERVATIONS_MAX = 256
RESERVED_TICKS = 4
"""Number of periods after which a holder repeats what it reserves."""
OTHERS = 4
"""Number of tries of which one goes to a peer that was known before."""
TARGET_TRIES = 3
"""Number of tries in vain after which a joiner asks anywhere."""


class Offered(msgspec.Struct):
    """An offer of a region: to whom, and until when it is waited for."""

    to: Peer
    life: Life
    until: int


class HypercubeMembership:
    """Joining of one node, and the help it gives to joiners."""

    __slots__ = (
        "_announced", "_contacts", "_is_slow_retry", "_last", "_maintenance", "_next_contact", "_offered",
        "_reservations", "_restart_at", "_retry_timer", "_runtime", "_settings", "_table", "_ticks", "_tries",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, table: HypercubeTable, maintenance: HypercubeMaintenance, settings: HypercubeSettings
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._maintenance = maintenance
        self._settings = settings
        self._contacts: dict[bytes, Peer] = {}
        self._retry_timer: int | None = None
        self._next_contact = self._tries = self._ticks = 0
        self._restart_at = 0  # when a member that finds nobody takes it that nobody hosts anything
        self._last: PeerState | None = None  # of the sponsor
        self._is_slow_retry = False  # the next try is far off, as this node stands by
        self._offered: dict[Region, Offered] = {}
        self._waiting: dict[bytes, HypercubeJoin] = {}
        self._reservations: dict[
            bytes, tuple[Peer, int]
        ] = {}  # who reserves a node's region, and until when that is believed
        self._announced: dict[bytes, None] = {}  # whose reserved region was announced lately

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for a place through a member; repeat until there is one."""
        assert contact.id != self._table.id, "nobody joins through itself"
        rest = [peer for peer in self._contacts.values() if peer.id != contact.id]
        self._contacts = {peer.id: peer for peer in (contact, *rest)[:CONTACTS_MAX]}
        self._next_contact = -1  # the newest first
        if self._retry_timer is not None:
            self._runtime.cancel(self._retry_timer)
            self._send_join()
        elif self._runtime.me.incarnation:  # those who knew this node may still think that it hosts what it did
            self._retry_timer = self._runtime.after(self._settings.period_us * 5 // 4, self._send_join)
        else:
            self._send_join()

    def join_again(self) -> None:
        """Look for another place through any known node: there is none any more."""
        if self._retry_timer is None or self._is_slow_retry:
            self.stop()
            self._postpone_restart()
            self._retry_later(self._settings.again_us)

    def _postpone_restart(self) -> None:
        """Go on looking for others that host something, for a while longer."""
        wait = 2 * self._settings.claim_us
        self._restart_at = self._runtime.now + wait + self._runtime.random.randrange(wait)

    def stop(self) -> None:
        """Stop joining: this node has a place, or leaves."""
        self._tries = 0
        if self._retry_timer is not None:
            self._runtime.cancel(self._retry_timer)
            self._retry_timer = None

    def _retry_later(self, wait: int) -> None:
        self._is_slow_retry = self._table.sponsor is not None
        self._retry_timer = self._runtime.after(
            wait - wait // 4 + self._runtime.random.randrange(wait // 2), self._send_join
        )

    def _send_join(self) -> None:
        table = self._table
        self._retry_timer = None
        stands = table.sponsor is not None
        if table.joined and not stands and self._runtime.now >= self._restart_at:
            self._restart_network()
            return
        contact = self._contact()
        if contact is None:
            self._retry_later(self._settings.join_retry_us)
            return
        ring = self._runtime.ring
        anywhere = stands or self._tries >= TARGET_TRIES
        target_key = ring.key(self._runtime.random.randrange(ring.size)) if anywhere else Key(table.id)
        self._tries += 1
        self._runtime.send(
            contact, HypercubeJoin(self._runtime.me, self._maintenance.life, target_key, 1, is_standby=stands)
        )
        self._retry_later(self._settings.rejoin_us if stands else self._settings.join_retry_us)

    def _restart_network(self) -> None:
        """Claim what the sponsor hosted, or everything, with the least right: only standbys are left."""
        self._runtime.observe("hypercube_begun_anew")
        last, self._last = self._last, None
        for peer in self._contacts.values():
            self._table.contacts.remember(peer)
        claims = () if last is None else last.claims
        for claim in claims:
            self._maintenance.claim(
                claim.region,
                claim.epoch - TAKEOVER_EPOCHS,
                last.links if last else (),
                claim.reserved_for or claim.node,
            )
        if not claims:
            self._maintenance.claim(WHOLE, UNHEARD_EPOCH, ())
        self._maintenance.finish_step()

    def _contact(self) -> Peer | None:
        """Return the next peer to ask: those that this node last knew in turn, now and then an earlier one."""
        table = self._table
        if table.sponsor is not None:
            return table.live(table.sponsor)
        self._next_contact += 1
        peers = [peer for peer in self._contacts.values() if peer.id not in table.contacts.suspects]
        if not peers or self._next_contact % OTHERS == OTHERS - 1:
            other = table.contacts.next_passive()
            peers = peers or list(self._contacts.values())
            if other is not None or not peers:
                return other
        return peers[self._next_contact % len(peers)]

    def on_offer(self, source: Peer, message: Offer) -> None:
        """Claim an offered region, if this node has none, or has the other half and the two can be one."""
        region = self._maintenance.read_region(message.region, message.epoch)
        links = self._maintenance.read(message.links)
        if region is None or links is None:
            self._runtime.observe("hypercube_malformed")
        elif message.life != self._maintenance.life:
            self._runtime.observe("hypercube_former_life")
        else:
            pieces = self._table.pieces
            if pieces and (region.length == 0 or region.sibling not in pieces):
                self._runtime.observe("hypercube_offer_unused")
                return
            self._maintenance.learn(message.links)
            for peer in message.passive[: self._settings.passive_told]:
                if self._runtime.ring.holds(peer.id):
                    self._table.contacts.remember(peer)
            self._maintenance.claim(region, message.epoch, links)

    def on_stand_by(self, source: Peer, message: StandBy) -> None:
        """Stand by at a member: there is no region for this node."""
        table = self._table
        if message.life == self._maintenance.life and not table.pieces and table.sponsor is None:
            table.sponsor = source.id
            table.contacts.heard(source)
            self._maintenance.mark_changed()
            self.stop()
            self._retry_later(self._settings.rejoin_us)

    def on_join_refused(self, source: Peer, message: JoinRefused) -> None:
        """Look elsewhere: there is no place at this sponsor."""
        table = self._table
        if message.life == self._maintenance.life:
            self._postpone_restart()
        if message.life == self._maintenance.life and table.sponsor == source.id:
            table.sponsor = None
            table.invalidate()

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_join(self, source: Peer, message: HypercubeJoin) -> None:
        """Pass on a join, or see to it here."""
        joiner, holds = message.joiner, self._runtime.ring.holds
        if not holds(joiner.id) or not joiner.address or joiner.id == self._table.id or not holds(message.target_key):
            self._runtime.observe("hypercube_malformed")
        elif self._maintenance.accept_life(joiner, message.life):
            self._route_join(message)

    def _route_join(self, message: HypercubeJoin) -> None:
        table, joiner = self._table, message.joiner
        if message.hops >= self._settings.hops_max:
            self._runtime.observe("hypercube_hops_exceeded")
            return
        if self._return_reserved(joiner, message.life):
            return
        holder = self._holder_of(joiner.id)
        if holder is not None:
            self._pass(holder, message, to_lightest=True)
            return
        point = point_of(self._runtime.ring, message.target_key, table.dimensions)
        if not table.pieces or not (message.to_lightest or table.hosts(point)):
            to = table.next_hop(point)
            if to is None:
                self._runtime.observe("hypercube_unroutable")
            else:
                self._pass(to, message, to_lightest=False)
            return
        self._admit(message)

    def _pass(self, to: Peer, message: HypercubeJoin, to_lightest: bool) -> None:
        if to.id != message.joiner.id:
            onward = msgspec.structs.replace(message, hops=message.hops + 1, to_lightest=to_lightest)
            self._runtime.send(to, onward)

    def _admit(self, message: HypercubeJoin) -> None:
        """Give a joiner a superfluous region, or half of the only one, or let it stand by."""
        table, joiner = self._table, message.joiner
        state = table.peer_states.get(joiner.id)
        if state is not None and state.claims and state.life == message.life:
            self._runtime.observe("hypercube_late")  # it has a place
            return
        main = table.main
        extra = [each for each, piece in table.pieces.items() if not piece.reserved_for and each != main]
        far = message.hops >= SEARCH_HOPS_MAX  # then two may each take the other for lighter
        lightest = None if far else pass_join(self.link_of(main), self.live_near(main))
        if extra:
            self.offer(extra[0], extra[0], joiner, message.life)
        elif lightest is not None and (to := table.live(lightest.host)) is not None:
            self._pass(to, message, to_lightest=True)
        elif main.length < table.dimensions:
            if (
                not self.offer(main, main.half(1), joiner, message.life)
                and len(self._waiting) < self._settings.joiners_max
            ):
                self._waiting[joiner.id] = message
        elif not message.is_standby:
            self._admit_standby(joiner, message.life)

    def link_of(self, region: Region) -> Link[bytes]:
        """Return a piece as neighbours know it."""
        return Link(region, self._table.id, len(self._table.standbys))

    def live_near(self, region: Region) -> list[Link[bytes]]:
        """Return the regions next to a piece whose hosts are live."""
        table = self._table
        return [link for link in table.near(region) if table.live(link.host) is not None]

    def _admit_standby(self, joiner: Peer, life: Life) -> None:
        table = self._table
        if joiner.id not in table.standbys and len(table.standbys) >= STANDBYS_MAX:
            self._runtime.send(joiner, JoinRefused(life))
            return
        table.standbys[joiner.id] = life
        table.contacts.heard(joiner)
        table.invalidate()
        self._runtime.send(joiner, StandBy(life))

    def on_placeless(self, peer: Peer, life: Life, here: bool) -> None:
        """Give a node that hosts nothing its region back, or let it stand by here."""
        table = self._table
        if self._return_reserved(peer, life) or not here:
            return
        if table.pieces and len(table.standbys) < STANDBYS_MAX:
            table.standbys[peer.id] = life
            table.invalidate()
        else:
            self._runtime.send(peer, JoinRefused(life))

    # -- offers --------------------------------------------------------------------------------------------------------

    def offer(self, piece: Region, region: Region, to: Peer, life: Life) -> bool:
        """Offer a piece, or half of it, unless it was just offered to another; return whether it was."""
        now, table = self._runtime.now, self._table
        before = self._offered.get(region)
        if before is not None and before.until > now and (before.to.id, before.life) != (to.id, life):
            return False
        self._offered[region] = Offered(to, life, now + self._settings.offer_us)
        self._runtime.after(self._settings.offer_us, self._on_offer_expired)
        links = self._maintenance.links(self.links_of(region))
        passive = table.contacts.passive_sample(self._settings.passive_told)
        self._runtime.send(to, Offer(life, packed(region), table.pieces[piece].epoch + 1, links, passive))
        return True

    def is_offered(self, region: Region) -> bool:
        """Return whether a region was offered to a node that may claim it yet."""
        offered = self._offered.get(region)
        return offered is not None and offered.until > self._runtime.now

    def links_of(self, region: Region) -> list[Claim]:
        """Return what will be next to a region, a piece or half of one, when another has it."""
        table = self._table
        table.refresh()
        mine = [Claim(each, piece.epoch, table.id) for each, piece in table.pieces.items()]
        return [each for each in (*table.links, *resolved(mine, [region])) if are_neighbours(each.region, region)]

    def _on_offer_expired(self) -> None:
        self.serve_waiting()
        self._maintenance.finish_step()

    def serve_waiting(self) -> None:
        """See to waiting joiners, after offers were claimed or ran out."""
        now, table = self._runtime.now, self._table
        self._announce_reserved()
        for region, offered in list(self._offered.items()):
            if offered.until <= now or not any(each.holds(region) for each in table.pieces):
                del self._offered[region]
        if self._offered and len(self._offered) >= len(table.pieces):
            return
        waiting, self._waiting = self._waiting, {}
        for message in waiting.values():
            self._route_join(message)

    # -- reserved regions ----------------------------------------------------------------------------------------------

    def _return_reserved(self, peer: Peer, life: Life) -> bool:
        """Offer a node that fell silent and is back its region; return whether one is reserved for it."""
        for region, piece in self._table.pieces.items():
            if piece.reserved_for == peer.id:
                self.offer(region, region, peer, life)
                return True
        return False

    def _holder_of(self, node: bytes) -> Peer | None:
        """Return the node that reserves a region for another, if it is known."""
        for state in self._table.peer_states.values():
            for claim in state.claims:
                if claim.reserved_for == node:
                    return self._table.live(claim.node)
        holder, until = self._reservations.get(node, (None, 0))
        if holder is None or until < self._runtime.now:
            return None
        return self._table.live(holder.id) or (holder if holder.id not in self._table.contacts.suspects else None)

    def tick(self) -> None:
        """Note whom to ask should this place be lost, and repeat now and then what is reserved here."""
        self._ticks += 1
        table = self._table
        if table.sponsor is not None:
            self._last = table.peer_states.get(table.sponsor)
        elif table.pieces:
            self._last = None
        standby_peers = () if self._last is None else self._last.standby_peers
        peers = [peer for node in standby_peers if (peer := table.live(node)) is not None][: CONTACTS_MAX // 2]
        near = table.neighbours()[: CONTACTS_MAX - len(peers)]
        if near:
            self._contacts = {peer.id: peer for peer in (*near, *peers)}
        if self._ticks % RESERVED_TICKS == 0:
            self._announced.clear()

    def _announce_reserved(self) -> None:
        """Tell the hosts of the ids at which silent nodes would ask first what is reserved here."""
        for node in sorted({piece.reserved_for for piece in self._table.pieces.values() if piece.reserved_for}):
            if node not in self._announced:
                self._announced[node] = None
                self._route_reserved(RegionReserved(node, self._runtime.me, 0))

    def _route_reserved(self, message: RegionReserved) -> None:
        point = point_of(self._runtime.ring, message.node, self._table.dimensions)
        if self._table.hosts(point):
            if len(self._reservations) >= RESERVATIONS_MAX:
                now = self._runtime.now
                self._reservations = {node: each for node, each in self._reservations.items() if each[1] > now}
            if len(self._reservations) < RESERVATIONS_MAX and message.holder.id != self._table.id:
                until = self._runtime.now + 2 * RESERVED_TICKS * self._settings.period_us
                self._reservations[message.node] = (message.holder, until)
            return
        to = self._table.next_hop(point)
        if to is not None and message.hops < self._settings.hops_max:
            self._runtime.send(to, RegionReserved(message.node, message.holder, message.hops + 1))

    def on_region_reserved(self, source: Peer, message: RegionReserved) -> None:
        """Note a region that is reserved for a node that may ask here, or pass the message on."""
        holds = self._runtime.ring.holds
        if not holds(message.node) or not holds(message.holder.id) or not message.holder.address:
            self._runtime.observe("hypercube_malformed")
        else:
            self._route_reserved(message)


class HypercubeHealing(PartitionHealing):
    """The questions of one node to peers outside its network."""

    __slots__ = ("_table",)

    def __init__(
        self,
        runtime: Runtime,
        table: HypercubeTable,
        router: HypercubeRouter,
        maintenance: HypercubeMaintenance,
        settings: HypercubeSettings,
    ) -> None:
        super().__init__(runtime, table.contacts, router, maintenance, settings)
        self._table = table

    def _key(self) -> Key | None:
        table = self._table
        return key_of(self._runtime.ring, table.main.bits, table.dimensions) if table.pieces else None

    def _expects(self, found: Peer) -> bool:
        return found.id == self._table.id
