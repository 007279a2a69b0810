"""Coming: a joiner's way to a place, and what it is offered there.

A join goes to the host of the id that the joiner's own id stands for, so that one who comes back comes near to where it
was, and from there to ever lighter neighbours (`rules.pass_join`). The last of them offers half of its region, and goes
on hosting it until the joiner claims it: a lost offer costs a retry. Where ids are as long as can be the joiner stands
by: it has a member that it goes through, its *sponsor*, and is the first to get a region.

A region that was taken over from a silent node is kept for it for a while. Its keeper tells so to the host of the id at
which that node will ask first; so one that restarts has its region back, and nothing need be moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meetpoint.api.ids import Key
from meetpoint.overlays.hypercube.claims import TAKEN, UNHEARD, Claim, settled
from meetpoint.overlays.hypercube.keys import point_of
from meetpoint.overlays.hypercube.messages import Join, Kept, Life, Offer, Refuse, StandBy
from meetpoint.overlays.hypercube.regions import WHOLE, Region, are_neighbours, packed
from meetpoint.overlays.hypercube.rules import STANDBYS_MAX, Link, pass_join

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.settings import HypercubeSettings
    from meetpoint.overlays.hypercube.table import Table, Word
    from meetpoint.overlays.hypercube.upkeep import Upkeep

__all__ = ["Joining"]

CONTACTS_MAX = 8
"""How many members a joiner asks in turn."""
WALK_MAX = 64
"""A join that came so far goes no further."""
KEPT_MAX = 256
KEPT_TICKS = 4
"""Every so many periods a keeper says what it keeps."""
OTHERS = 4
"""Every so many tries a joiner asks one that it knew before."""
WISHES = 3
"""After so many tries in vain a joiner asks anywhere."""


class Offered(msgspec.Struct):
    """To whom a region was offered, and until when it is waited for."""

    to: Peer
    life: Life
    until: int


class Joining:
    """How one node finds a place, and helps others to."""

    __slots__ = (
        "_alone_at", "_contacts", "_kept", "_last", "_offered", "_patient", "_seeking", "_services", "_settings",
        "_table", "_ticks", "_told", "_tries", "_turn", "_upkeep", "_waiting",
    )  # fmt: skip

    def __init__(self, services: Runtime, table: Table, upkeep: Upkeep, settings: HypercubeSettings) -> None:
        self._services = services
        self._table = table
        self._upkeep = upkeep
        self._settings = settings
        self._contacts: dict[bytes, Peer] = {}
        self._seeking: int | None = None
        self._turn = self._tries = self._ticks = 0
        self._alone_at = 0  # when a member that finds nobody takes it that nobody hosts anything
        self._last: Word | None = None  # of the sponsor
        self._patient = False  # the next try is far off, as this node stands by
        self._offered: dict[Region, Offered] = {}
        self._waiting: dict[bytes, Join] = {}
        self._kept: dict[bytes, tuple[Peer, int]] = {}  # who keeps the region of a node, and how long that is believed
        self._told: dict[bytes, None] = {}  # for whom something is kept here, and was said so lately
        upkeep.placeless = self._placeless

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for a place through a member; again and again until there is one."""
        assert contact.id != self._table.id, "nobody joins through itself"
        rest = [peer for peer in self._contacts.values() if peer.id != contact.id]
        self._contacts = {peer.id: peer for peer in (contact, *rest)[:CONTACTS_MAX]}
        self._turn = -1  # the newest first
        if self._seeking is not None:
            self._services.cancel(self._seeking)
            self._seek()
        elif self._services.me.incarnation:  # those who knew this node may still think that it hosts what it did
            self._seeking = self._services.after(self._settings.period_us * 5 // 4, self._seek)
        else:
            self._seek()

    def join_again(self) -> None:
        """There is no place any more: look for another through whomever this node knows."""
        if self._seeking is None or self._patient:
            self.stop()
            self._hope()
            self._later(self._settings.again_us)

    def _hope(self) -> None:
        """There may be others who host something: so long a member goes on looking for them."""
        wait = 2 * self._settings.claim_us
        self._alone_at = self._services.now + wait + self._services.random.randrange(wait)

    def stop(self) -> None:
        """Seek no longer: this node has a place, or leaves."""
        self._tries = 0
        if self._seeking is not None:
            self._services.cancel(self._seeking)
            self._seeking = None

    def _later(self, wait: int) -> None:
        self._patient = self._table.sponsor is not None
        self._seeking = self._services.after(wait - wait // 4 + self._services.random.randrange(wait // 2), self._seek)

    def _seek(self) -> None:
        table = self._table
        self._seeking = None
        stands = table.sponsor is not None
        if table.joined and not stands and self._services.now >= self._alone_at:
            self._begin_anew()
            return
        contact = self._contact()
        if contact is None:
            self._later(self._settings.join_retry_us)
            return
        ring = self._services.ring
        anywhere = stands or self._tries >= WISHES
        wish = ring.key(self._services.random.randrange(ring.size)) if anywhere else Key(table.id)
        self._tries += 1
        self._services.send(contact, Join(self._services.me, self._upkeep.life, wish, 1, stands=stands))
        self._later(self._settings.rejoin_us if stands else self._settings.join_retry_us)

    def _begin_anew(self) -> None:
        """None but those who stood by are left: claim what the sponsor hosted, or everything, with the least right."""
        self._services.observe("hypercube_begun_anew")
        last, self._last = self._last, None
        for peer in self._contacts.values():
            self._table.contacts.remember(peer)
        claims = () if last is None else last.claims
        for claim in claims:
            self._upkeep.claim(claim.region, claim.epoch - TAKEN, last.links if last else (), claim.kept or claim.node)
        if not claims:
            self._upkeep.claim(WHOLE, UNHEARD, ())
        self._upkeep.settle()

    def _contact(self) -> Peer | None:
        """Whom to ask next: one after another of those that this node last knew, and now and then one from before."""
        table = self._table
        if table.sponsor is not None:
            return table.live(table.sponsor)
        self._turn += 1
        peers = [peer for peer in self._contacts.values() if peer.id not in table.contacts.suspects]
        if not peers or self._turn % OTHERS == OTHERS - 1:
            other = table.contacts.take_turn()
            peers = peers or list(self._contacts.values())
            if other is not None or not peers:
                return other
        return peers[self._turn % len(peers)]

    def on_offer(self, source: Peer, message: Offer) -> None:
        """This node may claim a region: it does if it has none, or has the other half and the two can be one."""
        region = self._upkeep.read_region(message.region, message.epoch)
        links = self._upkeep.read(message.links)
        if region is None or links is None:
            self._services.observe("hypercube_malformed")
        elif message.life != self._upkeep.life:
            self._services.observe("hypercube_former_life")
        else:
            pieces = self._table.pieces
            if pieces and (region.length == 0 or region.sibling not in pieces):
                self._services.observe("hypercube_offer_unused")
                return
            self._upkeep.learn(message.links)
            for peer in message.passive[: self._settings.passive_told]:
                if self._services.ring.holds(peer.id):
                    self._table.contacts.remember(peer)
            self._upkeep.claim(region, message.epoch, links)

    def on_stand_by(self, source: Peer, message: StandBy) -> None:
        """There is no region for this node, but a place."""
        table = self._table
        if message.life == self._upkeep.life and not table.pieces and table.sponsor is None:
            table.sponsor = source.id
            table.contacts.heard(source)
            self._upkeep.alter()
            self.stop()
            self._later(self._settings.rejoin_us)

    def on_refuse(self, source: Peer, message: Refuse) -> None:
        """There is no place here; one whose sponsor says so looks for another."""
        table = self._table
        if message.life == self._upkeep.life:
            self._hope()
        if message.life == self._upkeep.life and table.sponsor == source.id:
            table.sponsor = None
            table.touch()

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_join(self, source: Peer, message: Join) -> None:
        """A joiner looks for a place."""
        joiner, holds = message.joiner, self._services.ring.holds
        if not holds(joiner.id) or not joiner.address or joiner.id == self._table.id or not holds(message.wish):
            self._services.observe("hypercube_malformed")
        elif self._upkeep.meet(joiner, message.life):
            self._place(message)

    def _place(self, message: Join) -> None:
        table, joiner = self._table, message.joiner
        if message.hops >= self._settings.hops_max:
            self._services.observe("hypercube_hops_exceeded")
            return
        if self._give_back(joiner, message.life):
            return
        keeper = self._keeper(joiner.id)
        if keeper is not None:
            self._pass(keeper, message, walks=True)
            return
        point = point_of(self._services.ring, message.wish, table.dimensions)
        if not table.pieces or not (message.walks or table.hosts(point)):
            to = table.next_hop(point)
            if to is None:
                self._services.observe("hypercube_unroutable")
            else:
                self._pass(to, message, walks=False)
            return
        self._admit(message)

    def _pass(self, to: Peer, message: Join, walks: bool) -> None:
        if to.id != message.joiner.id:
            onward = msgspec.structs.replace(message, hops=message.hops + 1, walks=walks)
            self._services.send(to, onward)

    def _admit(self, message: Join) -> None:
        """Give a joiner a region that is too many here, half of the only one, or let it stand by."""
        table, joiner = self._table, message.joiner
        word = table.words.get(joiner.id)
        if word is not None and word.claims and word.life == message.life:
            self._services.observe("hypercube_late")  # it has a place
            return
        main = table.main
        extra = [each for each, piece in table.pieces.items() if not piece.kept and each != main]
        far = message.hops >= WALK_MAX  # then two may each take the other for lighter
        lightest = None if far else pass_join(self.shown(main), self.live_near(main))
        if extra:
            self.offer(extra[0], extra[0], joiner, message.life)
        elif lightest is not None and (to := table.live(lightest.host)) is not None:
            self._pass(to, message, walks=True)
        elif main.length < table.dimensions:
            if (
                not self.offer(main, main.half(1), joiner, message.life)
                and len(self._waiting) < self._settings.joiners_max
            ):
                self._waiting[joiner.id] = message
        elif not message.stands:
            self._let_stand_by(joiner, message.life)

    def shown(self, region: Region) -> Link[bytes]:
        """A piece as neighbours know it."""
        return Link(region, self._table.id, len(self._table.standbys))

    def live_near(self, region: Region) -> list[Link[bytes]]:
        """What others who are live host next to a piece."""
        table = self._table
        return [link for link in table.near(region) if table.live(link.host) is not None]

    def _let_stand_by(self, joiner: Peer, life: Life) -> None:
        table = self._table
        if joiner.id not in table.standbys and len(table.standbys) >= STANDBYS_MAX:
            self._services.send(joiner, Refuse(life))
            return
        table.standbys[joiner.id] = life
        table.contacts.heard(joiner)
        table.touch()
        self._services.send(joiner, StandBy(life))

    def _placeless(self, peer: Peer, life: Life, here: bool) -> None:
        """One says that it hosts nothing: it may have something back, or would stand by here."""
        table = self._table
        if self._give_back(peer, life) or not here:
            return
        if table.pieces and len(table.standbys) < STANDBYS_MAX:
            table.standbys[peer.id] = life
            table.touch()
        else:
            self._services.send(peer, Refuse(life))

    # -- offers --------------------------------------------------------------------------------------------------------

    def offer(self, piece: Region, region: Region, to: Peer, life: Life) -> bool:
        """Offer a piece, or half of it, unless another was just now."""
        now, table = self._services.now, self._table
        before = self._offered.get(region)
        if before is not None and before.until > now and (before.to.id, before.life) != (to.id, life):
            return False
        self._offered[region] = Offered(to, life, now + self._settings.offer_us)
        self._services.after(self._settings.offer_us, self._expire)
        links = self._upkeep.links(self.links_of(region))
        passive = table.contacts.next_turns(self._settings.passive_told)
        self._services.send(to, Offer(life, packed(region), table.pieces[piece].epoch + 1, links, passive))
        return True

    def is_offered(self, region: Region) -> bool:
        """Whether a region was offered to someone, who may claim it yet."""
        offered = self._offered.get(region)
        return offered is not None and offered.until > self._services.now

    def links_of(self, region: Region) -> list[Claim]:
        """What will be next to a region, a piece or half of one, when another has it."""
        table = self._table
        table.refresh()
        mine = [Claim(each, piece.epoch, table.id) for each, piece in table.pieces.items()]
        return [each for each in (*table.links, *settled(mine, [region])) if are_neighbours(each.region, region)]

    def _expire(self) -> None:
        self.go_on()
        self._upkeep.settle()

    def go_on(self) -> None:
        """Offers are claimed, or over: see to those who wait."""
        now, table = self._services.now, self._table
        self._tell_kept()
        for region, offered in list(self._offered.items()):
            if offered.until <= now or not any(each.holds(region) for each in table.pieces):
                del self._offered[region]
        if self._offered and len(self._offered) >= len(table.pieces):
            return
        waiting, self._waiting = self._waiting, {}
        for message in waiting.values():
            self._place(message)

    # -- what is kept --------------------------------------------------------------------------------------------------

    def _give_back(self, peer: Peer, life: Life) -> bool:
        """A node that fell silent is back."""
        for region, piece in self._table.pieces.items():
            if piece.kept == peer.id:
                self.offer(region, region, peer, life)
                return True
        return False

    def _keeper(self, node: bytes) -> Peer | None:
        """Who keeps the region of a node, if it is known."""
        for word in self._table.words.values():
            for claim in word.claims:
                if claim.kept == node:
                    return self._table.live(claim.node)
        keeper, until = self._kept.get(node, (None, 0))
        if keeper is None or until < self._services.now:
            return None
        return self._table.live(keeper.id) or (keeper if keeper.id not in self._table.contacts.suspects else None)

    def tick(self) -> None:
        """Note whom to ask should this place be lost, and say now and then what is kept here."""
        self._ticks += 1
        table = self._table
        if table.sponsor is not None:
            self._last = table.words.get(table.sponsor)
        elif table.pieces:
            self._last = None
        fellows = () if self._last is None else self._last.fellows
        peers = [peer for node in fellows if (peer := table.live(node)) is not None][: CONTACTS_MAX // 2]
        near = table.neighbours()[: CONTACTS_MAX - len(peers)]
        if near:
            self._contacts = {peer.id: peer for peer in (*near, *peers)}
        if self._ticks % KEPT_TICKS == 0:
            self._told.clear()

    def _tell_kept(self) -> None:
        """Tell the hosts of the ids at which those who fell silent would ask first."""
        for node in sorted({piece.kept for piece in self._table.pieces.values() if piece.kept}):
            if node not in self._told:
                self._told[node] = None
                self._route_kept(Kept(node, self._services.me, 0))

    def _route_kept(self, message: Kept) -> None:
        point = point_of(self._services.ring, message.node, self._table.dimensions)
        if self._table.hosts(point):
            if len(self._kept) >= KEPT_MAX:
                now = self._services.now
                self._kept = {node: each for node, each in self._kept.items() if each[1] > now}
            if len(self._kept) < KEPT_MAX and message.keeper.id != self._table.id:
                until = self._services.now + 2 * KEPT_TICKS * self._settings.period_us
                self._kept[message.node] = (message.keeper, until)
            return
        to = self._table.next_hop(point)
        if to is not None and message.hops < self._settings.hops_max:
            self._services.send(to, Kept(message.node, message.keeper, message.hops + 1))

    def on_kept(self, source: Peer, message: Kept) -> None:
        """A region is kept for a node that may ask here."""
        holds = self._services.ring.holds
        if not holds(message.node) or not holds(message.keeper.id) or not message.keeper.address:
            self._services.observe("hypercube_malformed")
        else:
            self._route_kept(message)
