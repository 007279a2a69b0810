"""The node: an overlay, a scheme and homes, driven from outside by one call.

`handle` is the only way in which anything here changes; it takes one input and the time, and returns what is to be
done. It never blocks, reads no clock, opens nothing, and draws only from its seed: the simulator and the sockets run
the same code.

A node's life:

    starting    it asks those it knows for the directory, and whether they are members
    joining     the overlay finds its place
    recovering  its homes come back, from its disk or from copies at others
    ready       it serves
    leaving     its homes move to the next node
    left        nothing is asked of it any more

When a whole network starts anew there is no member to join. Then, after a while, the lowest of the nodes that find each
other begins alone, and the others join it. Should two begin, apart, the overlay makes one ring of two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import Acknowledge, Attach, Detach, Leave, Reject
from meetpoint.language.schema.schema import Schema
from meetpoint.node.client_requests import ClientRequests
from meetpoint.node.cluster.directory import Directory, Entry, Synced
from meetpoint.node.cluster.home_manager import HOSTED, MOVING, WITNESSES, HomeManager, HomeMove
from meetpoint.node.cluster.subscription_locator import SubscriptionLocator
from meetpoint.node.home.dead_letters import DeadLetter
from meetpoint.node.home.home import Home
from meetpoint.node.home.publish_intake import PublishIntake
from meetpoint.node.home.subscription_table import SubscriptionInfo
from meetpoint.node.overlay import Overlay, OverlayView, Upcalls
from meetpoint.node.runtime.driven import Driven
from meetpoint.node.runtime.inputs import Archived, ClientRequest, ContactsFound, Measured, Started, Withdrawn
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Packing, Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings

__all__ = ["MakeOverlay", "MakeScheme", "Node", "NodeView"]

INCARNATION: Final = "incarnation"
OF_SUBSCRIBERS: Final = (Acknowledge, Reject, Attach, Detach)
"""What is taken until the last home has gone: its subscribers get less a second time."""
PAGE_MAX: Final = 500
"""How many things are listed at a time."""
GOSSIPS_PER_REMINDER: Final = 16
"""Every so often the overlay is reminded of whom the directory lists: no pointer of its own need lead to them."""

MakeOverlay = Callable[[Runtime, Upcalls], Overlay]
MakeScheme = Callable[[Runtime, Overlay, HomeManager], Scheme]


class NodeView(msgspec.Struct, frozen=True):
    """What may be seen of a node from outside, for people and for checkers."""

    me: Peer
    state: str
    overlay: OverlayView
    homes: tuple[HomeId, ...]
    subscriptions: int
    outbox: int
    queued: int
    unsafe: int
    copies: int
    waiting: int
    directory: bytes
    dead: int = 0


class Node(Driven):
    """One broker's protocol state."""

    def __init__(
        self,
        me: Peer,
        ring: Ring,
        seed: int,
        codec: Packing,
        make_overlay: MakeOverlay,
        make_scheme: MakeScheme,
        settings: NodeSettings,
    ) -> None:
        services = Runtime(me, ring, codec, seed)
        super().__init__(services)
        services.tracing = settings.trace
        self._settings = settings
        self.state = "new"
        self.overlay = make_overlay(services, self)
        self.directory = Directory(services, settings, lambda: self.overlay.view().joined)
        self.hosting = HomeManager(services, settings, self.directory, self.overlay)
        self.scheme = make_scheme(services, self.overlay, self.hosting)
        self.hosting.tenant = self
        self._locating = SubscriptionLocator(services, settings, self.hosting)
        self._publishing = PublishIntake(
            services, settings, self.hosting.watermarks, self._own_home, self.scheme.publish
        )
        self._serving = ClientRequests(
            services, self.overlay, self.hosting, self._locating, self._publishing, self._own_home
        )
        self._held: list[ClientRequest] = []
        self._records: tuple[Record, ...] = ()
        self._contacts: tuple[Peer, ...] = ()
        self._looked_from = 0
        self._has_begun = False
        self._seekers: dict[NodeId, Peer] = {}
        self._gossips = 0

    # -- inputs --------------------------------------------------------------------------------------------------------

    def _asked(self, item: ClientRequest) -> None:
        if self.state == "ready" or (self.state == "leaving" and isinstance(item.what, OF_SUBSCRIBERS)):
            if isinstance(item.what, Leave):
                self._leave(item.request)
            else:
                self._serving.serve(item.request, item.what)
        elif self.state in ("leaving", "left"):
            self._services.answer(item.request, Refused("this broker is leaving; ask another", retry=True))
        elif len(self._held) >= self._settings.requests_held_max:
            self._services.answer(item.request, Refused("this broker is starting; ask again soon", retry=True))
        else:
            self._held.append(item)

    def _withdrawn(self, item: Withdrawn) -> None:
        self._publishing.withdraw(item.request)

    def _measured(self, item: Measured) -> None:
        self.scheme.tune(item.feedback)

    def _archived(self, item: Archived) -> None:
        home = self.hosting.homes.get(item.upto.home)
        if home is not None:
            home.archived(item.upto)

    # -- starting ------------------------------------------------------------------------------------------------------

    def _start(self, item: Started) -> None:
        assert self.state == "new", "a node starts once; a restart is another node"
        self.state = "starting"
        self._handlers = {
            **self.directory.handlers(),
            **self.hosting.handlers(),
            **self._locating.handlers(),
            **self.overlay.handlers(),
            **self.scheme.handlers(),
        }
        local = [record for record in item.records if record.home == LOCAL]
        self.directory.recover(local)
        known = {record.name: record for record in local}
        self._records = item.records
        if item.founders and INCARNATION not in known:
            self._found(item.founders)
            return
        hosted = {entry.home for entry in self.directory.entries() if self._is_mine(entry)}
        self.hosting.copies.recover(
            record for record in item.records if record.home != LOCAL and record.home not in hosted
        )
        self.hosting.kept_disk = INCARNATION in known
        if INCARNATION in known:
            self._services.me = self._next(known[INCARNATION].version)
        contacts = {peer.id: peer for peer in (*item.contacts, *self.directory.others()) if peer.id != self.me.id}
        self._contacts = tuple(contacts[id_] for id_ in sorted(contacts))
        self._looked_from = self._services.now
        self._look(self._services.random.randrange(len(self._contacts)) if self._contacts else 0)

    def _met(self, item: ContactsFound) -> None:
        known = {peer.id: peer for peer in (*self._contacts, *item.contacts) if peer.id != self.me.id}
        self._contacts = tuple(known.values())

    def _found(self, founders: tuple[Peer, ...]) -> None:
        me = next(peer for peer in founders if peer.id == self.me.id)
        self._become(me, None)
        self.directory.learn(Entry(home_of(peer.id), 1, peer) for peer in founders)
        self.overlay.found(founders)
        self.scheme.found([home_of(peer.id) for peer in founders])
        self._entered()

    def _next(self, incarnation: int) -> Peer:
        return Peer(self.me.id, self.me.address, max(incarnation, self.me.incarnation) + 1)

    def _become(self, me: Peer, then: Callable[[], None] | None) -> None:
        self._services.me = me
        self._services.persist((Record(LOCAL, INCARNATION, me.incarnation, b""),), (), then)

    def _is_mine(self, entry: Entry) -> bool:
        return entry.host.id == self.me.id and not entry.gone

    def _look(self, turn: int) -> None:
        """Ask those this node knows, one after another, for a member and the directory, until it has joined."""
        if self.state not in ("starting", "joining"):
            return
        self._contacts = tuple({peer.id: peer for peer in (*self._contacts, *self.directory.others())}.values())
        looked_us = self._services.now - self._looked_from
        if self._is_lowest() and (looked_us >= self._settings.found_after_us or not self._contacts):
            self._enter(lambda: self.overlay.found((self.me,)))
            return
        if not self._contacts:
            self._services.after(self._settings.query_timeout_us, lambda: self._look(turn))
            return
        contact = self._contacts[turn % len(self._contacts)]

        def answered(reply: Synced | None) -> None:
            if self.state not in ("starting", "joining"):
                return
            if reply is None:
                self._seekers.pop(contact.id, None)
                self._look(turn + 1)
                return
            pause = self._settings.query_timeout_us // 4
            if reply.member:
                self._seekers.clear()
                self._looked_from = self._services.now
                pause = self._settings.join_us  # should this one be lost before it has helped, another may
                self._enter(lambda: self.overlay.join(contact))
            else:
                self._seekers[contact.id] = contact
            self._services.after(pause, lambda: self._look(turn + 1))

        self.directory.compare(contact, answered)

    def _is_lowest(self) -> bool:
        # A new node has no homes to bring back; beginning a network is for those that were in it.
        hosts = {entry.host.id for entry in self.directory.entries() if not entry.gone}
        return self.me.id in hosts and all(self.me.id < id_ for id_ in self._seekers if id_ in hosts)

    def _enter(self, how: Callable[[], None]) -> None:
        """Become a member, under an incarnation that nobody has seen: it is on disk before anyone hears of it."""

        def enter() -> None:
            if self.state == "joining":
                how()
            if self.state == "joining" and self.overlay.view().joined:
                self._entered()

        def become() -> None:
            hosted = [entry.host.incarnation for entry in self.directory.entries() if entry.host.id == self.me.id]
            self._become(self._next(max(hosted, default=0)), begin)

        def begin() -> None:
            self._has_begun = True
            enter()

        if self.state == "starting":
            self.state = "joining"
            self._ask_whether_new({}, become)
        elif self._has_begun:
            enter()

    def _ask_whether_new(self, heard: dict[NodeId, None], then: Callable[[], None]) -> None:
        """A node that nobody lists may be new, or have lost its disk: a home that served is on two others' lists.

        So all lists but one must have been merged, before this node takes itself for new.
        """
        others = self.directory.others()
        silent = [peer for peer in others if peer.id not in heard]
        is_known = self.hosting.kept_disk or self.directory.get(home_of(self.me.id)) is not None
        if is_known or len(silent) < min(WITNESSES, len(others)) or not others:
            then()
            return
        peer = self._services.random.choice(silent)

        def answered(reply: Synced | None) -> None:
            if reply is None:
                self._services.after(
                    self._settings.query_timeout_us // 4, lambda: self._ask_whether_new(heard, then)
                )  # fmt: skip
            else:
                self._ask_whether_new({**heard, peer.id: None}, then)

        self.directory.compare(peer, answered)

    def joined(self) -> None:
        """Upcall: the overlay has found this node's place."""
        if self.state == "joining":
            self._entered()

    def _entered(self) -> None:
        self.state = "recovering"
        self._gossip()
        self.overlay.remember(self.directory.others())
        on_disk: dict[HomeId, list[Record]] = {}
        notes: dict[str, Record] = {}
        for record in self._records:
            if record.home == LOCAL:
                notes[record.name] = record
            else:
                on_disk.setdefault(record.home, []).append(record)
        self._records = ()
        own = home_of(self.me.id)
        entries = [entry for entry in self.directory.entries() if self._is_mine(entry)]
        if self.directory.get(own) is None:
            entries.append(Entry(own, 1, self.me))
        open_ = {entry.home: None for entry in entries}

        ended: dict[HomeId, None] = {}

        def done(home: HomeId) -> None:
            del open_[home]
            ended[home] = None
            # What came back without a disk has merged all lists by now: they may name more that was hosted here.
            more = [e for e in self.directory.entries() if self._is_mine(e) and e.home not in {**open_, **ended}]
            for entry in more:
                open_[entry.home] = None
                self.hosting.restore(entry.home, self.hosting.copies.take_over(entry.home), partial(done, entry.home))
            if not open_:
                self._recovered()

        for entry in entries:
            self._bring_back(entry, on_disk.get(entry.home, []), notes, done)
        if not entries:
            self._recovered()

    def _bring_back(
        self, entry: Entry, records: list[Record], notes: dict[str, Record], done: Callable[[HomeId], None]
    ) -> None:
        home = entry.home
        is_new = self.directory.get(home) is None or entry.host == self.me

        def bring_back(epoch: int) -> None:
            if is_new or HOSTED + home.hex() in notes:
                self.hosting.host(home, epoch, records, anew=False, then=lambda: done(home))
            else:
                self.hosting.restore(home, records, lambda: done(home))

        move = notes.get(MOVING + home.hex())
        if move is None or move.value is None:
            bring_back(entry.epoch)
        else:
            offer = msgspec.msgpack.decode(move.value, type=HomeMove)
            self.hosting.pursue(home, offer, lambda moved: done(home) if moved else bring_back(offer.epoch + 1))

    def _recovered(self) -> None:
        if not self.hosting.homes:
            self.state = "leaving"  # all its homes moved away while it was down
            self.hosting.give_away(lambda: self._depart(None))
            return
        self.state = "ready"
        self.hosting.begin()
        self.scheme.start()
        held, self._held = self._held, []
        for item in held:
            self._asked(item)

    def _gossip(self) -> None:
        others = self.directory.others()
        if others and self.state in ("recovering", "ready", "leaving"):
            self.directory.compare(self._services.random.choice(others), lambda _: None)
            self._gossips += 1
            if self._gossips % GOSSIPS_PER_REMINDER == 0 or self._is_alone():
                self.overlay.remember(others)
        jitter = self._services.random.randrange(self._settings.gossip_us // 2 + 1)
        self._services.after(self._settings.gossip_us + jitter, self._gossip)

    def _own_home(self) -> Home | None:
        """Where what is new here belongs: the home that this node made, or, where that is elsewhere, another."""
        homes = self.hosting.homes
        return homes.get(home_of(self.me.id)) or next(iter(homes.values()), None)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def _leave(self, request: int) -> None:
        if not self.directory.others():
            reason = "this is the last broker; nobody could take over what it keeps"
            self._services.answer(request, Refused(reason, retry=False))
            return
        self.state = "leaving"
        self.hosting.give_away(lambda: self._depart(request))

    def _depart(self, request: int | None) -> None:
        self.state = "left"
        self.overlay.leave()
        if request is not None:
            self._services.answer(request, Stored())
        self._services.stop()

    # -- what hosting tells --------------------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """A home serves here: what it has published and not settled goes out again."""
        home.place = lambda name, then: self.scheme.place(home.id, name, then)
        home.when_placed = lambda name, then: self.scheme.when_placed(home.id, name, then)
        self.scheme.home_started(home)
        home.end_strays()
        for event in sorted(home.outbox):
            self.scheme.publish(event, home.outbox[event])

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""
        self.scheme.home_stopped(home)

    def is_free(self, home: Home) -> bool:
        """Whether a home without subscribers may end."""
        return self.scheme.is_free(home)

    def free(self, home: Home) -> None:
        """Do what lets it end."""
        self.scheme.free(home)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Whether an event of a home here may still come to another."""
        return self.scheme.may_reach(event, home)

    # -- upcalls of the overlay ----------------------------------------------------------------------------------------

    def neighbours_changed(self) -> None:
        """The overlay's neighbours are others now."""
        self.hosting.buddies_changed()
        if self.state == "ready":
            self.scheme.neighbours_changed()
        if self._is_alone():
            self.overlay.remember(self.directory.others())

    def _is_alone(self) -> bool:
        """Whether this node has lost all whom the overlay linked it to: the directory knows more, who may live."""
        return self.state in ("recovering", "ready") and not self.overlay.neighbours(1)

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """A routed message has come to its place."""
        self.scheme.delivered(key, body, origin, hops)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
        self.overlay.check()
        self.hosting.check()
        self.scheme.check()

    @property
    def is_traced(self) -> bool:
        """Whether it is told what becomes of each event."""
        return self._services.tracing

    @is_traced.setter
    def is_traced(self, traced: bool) -> None:
        self._services.tracing = traced

    @property
    def schema(self) -> Schema | None:
        """What filters and events are checked against."""
        return self.directory.spread.schema

    def archived(self) -> list[tuple[HomeId, int, int, int]]:
        """Of every home here that has published: its stream, the highest number, and how far it is archived."""
        found = [(home.id, *home.position) for home in self.hosting.homes.values()]
        return [each for each in found if each[2]]

    def progress(self, publisher: str) -> int:
        """The highest sequence of a publisher of batches that homes here accepted."""
        return max((home.progress.get(publisher) for home in self.hosting.homes.values()), default=0)

    def held_subscriptions(
        self, owner: str = "", labels: tuple[tuple[str, str], ...] = (), after: str = "", most: int = PAGE_MAX
    ) -> list[SubscriptionInfo]:
        """The subscriptions of homes here, by name: an owner's, with all these labels, those after a name."""
        found = [
            each
            for home in self.hosting.homes.values()
            for each in home.held_subscriptions()
            if each.name > after and (not owner or each.terms.owner == owner) and set(labels) <= set(each.terms.labels)
        ]
        return sorted(found, key=lambda each: each.name)[:most]

    def dead_letters(
        self, name: str = "", after: EventKey | None = None, most: int = PAGE_MAX, within: str = ""
    ) -> list[DeadLetter]:
        """Events that subscribers here did not take, by their keys: one subscription's or all, those after a key.

        `within`: of subscriptions whose names begin so, and what is said of those alone.
        """
        found = [
            each
            for home in self.hosting.homes.values()
            for each in home.delivering.dead_letters(within)
            if (not name or name in each.names) and (after is None or each.event > after)
        ]
        return sorted(found, key=lambda each: each.event)[:most]

    def owned_subscriptions(self, owner: str) -> int:
        """How many subscriptions of homes here an owner has."""
        return sum(home.standing.owned.get(owner, 0) for home in self.hosting.homes.values())

    def snapshot(self) -> NodeView:
        """What may be seen from outside."""
        homes = self.hosting.homes
        return NodeView(
            me=self.me,
            state=self.state,
            overlay=self.overlay.view(),
            homes=tuple(sorted(homes)),
            subscriptions=sum(len(home.filters) for home in homes.values()),
            outbox=sum(len(home.outbox) for home in homes.values()),
            queued=sum(home.queued for home in homes.values()),
            unsafe=sum(home.keeper.unsafe for home in homes.values()),
            copies=sum(len(self.hosting.copies.records(home)) for home in self.hosting.copies.homes()),
            waiting=self._services.waiting,
            directory=self.directory.digest,
            dead=sum(home.delivering.dead for home in homes.values()),
        )
