"""The node: an overlay, a scheme and homes, driven from outside by one call.

`handle` is the only way in which anything here changes; it takes one input and the time, and returns what is to be
done. It never blocks, reads no clock, opens nothing, and draws only from its seed: the simulator and the broker run the
same code.

A node's life:

    starting    it asks those it knows for the directory, and whether they are members
    joining     the overlay finds its place
    recovering  its homes come back, from its disk or from replicas at others
    ready       it serves
    leaving     its homes move to the next node
    left        nothing is asked of it any more

When a whole network starts anew there is no member to join. Then, after a while, the lowest of the nodes that find each
other begins alone, and the others join it. Should two begin, apart, the overlay makes one ring of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import Acknowledge, Attach, Detach, Leave, Reject
from meetpoint.language.schema.schema import Schema
from meetpoint.node.client_requests import ClientRequests
from meetpoint.node.cluster.directory import Directory, Entry
from meetpoint.node.cluster.home_manager import HOSTED, MOVING, WITNESSES, HomeManager, HomeMove
from meetpoint.node.cluster.subscription_locator import SubscriptionLocator
from meetpoint.node.home.dead_letters import DeadLetter
from meetpoint.node.home.home import Home
from meetpoint.node.home.subscription_table import SubscriptionInfo
from meetpoint.node.overlay import Handler, Overlay, OverlayView, Upcalls
from meetpoint.node.publish_intake import PublishIntake
from meetpoint.node.runtime.effects import Effect
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.inputs import (
    Archived,
    ClientRequest,
    ContactsFound,
    Input,
    Instant,
    Measured,
    PeerUnreachable,
    Persisted,
    Received,
    Started,
    TimerFired,
    Withdrawn,
)
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Packing, Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings

__all__ = ["MakeOverlay", "MakeScheme", "Node", "NodeView"]

INCARNATION: Final = "incarnation"
OF_SUBSCRIBERS: Final = (Acknowledge, Reject, Attach, Detach)
"""Requests that are taken until the last home has gone, so that its subscribers get less a second time."""
PAGE_MAX: Final = 500
"""How many subscriptions or dead letters are listed at a time."""
GOSSIPS_PER_REMINDER: Final = 16
"""Every so many rounds the overlay is reminded of the directory: no pointer of its own need lead there."""

MakeOverlay = Callable[[Runtime, Upcalls], Overlay]
MakeScheme = Callable[[Runtime, Overlay, HomeManager], Scheme]


class NodeView(msgspec.Struct, frozen=True):
    """A node as it is seen from outside, for people and for checkers."""

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
    flows: tuple[tuple[str, int], ...] = ()
    """The names of the flows that run, and since when; the oldest first."""


class Node:
    """The protocol of one broker: takes inputs, returns effects, and goes through its life."""

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
        runtime = self._runtime = Runtime(me, ring, codec, seed)
        runtime.tracing = settings.trace
        self._settings = settings
        self.state = "new"
        self.overlay = make_overlay(runtime, self)
        self.directory = Directory(runtime, settings, self.overlay)
        self.home_manager = HomeManager(runtime, settings, self.directory, self.overlay, self)
        self.scheme = make_scheme(runtime, self.overlay, self.home_manager)
        self._locator = SubscriptionLocator(runtime, settings, self.home_manager)
        self._intake = PublishIntake(runtime, settings, self.home_manager, self.scheme)
        self._client_requests = ClientRequests(runtime, self.overlay, self.home_manager, self._locator, self._intake)
        self._handlers: dict[type[Message], Handler] = {}
        self._inputs: dict[type[Input], Callable[[Any], None]] = {
            TimerFired: self._timer_fired,
            Persisted: self._persisted,
            ClientRequest: self._asked,
            Withdrawn: lambda item: self._intake.withdraw(item.request),
            Archived: self._archived,
            Measured: lambda item: self.scheme.tune(item.feedback),
            PeerUnreachable: self._unreachable,
            Started: self._start,
            ContactsFound: self._contacts_found,
        }
        self._held: list[ClientRequest] = []
        self._records: tuple[Record, ...] = ()
        self._contacts: tuple[Peer, ...] = ()
        self._looked_from = 0
        self._has_begun = False
        self._seekers: dict[NodeId, Peer] = {}
        self._coming_back: dict[HomeId, None] = {}
        self._came_back: dict[HomeId, None] = {}
        self._gossips = 0

    @property
    def me(self) -> Peer:
        """The node as its peers know it."""
        return self._runtime.me

    # -- inputs --------------------------------------------------------------------------------------------------------

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        """Take one input; return what is to be done, in order."""
        effects = self._runtime.begin(now)
        if type(item) is Received:
            self._runtime.received(item, self._handlers)
        else:
            self._inputs[type(item)](item)
        return effects

    def _timer_fired(self, item: TimerFired) -> None:
        self._runtime.fired(item.timer)

    def _persisted(self, item: Persisted) -> None:
        self._runtime.persisted(item.ticket)

    def _asked(self, item: ClientRequest) -> None:
        if self.state == "ready" or (self.state == "leaving" and isinstance(item.what, OF_SUBSCRIBERS)):
            if isinstance(item.what, Leave):
                self._leave(item.request)
            else:
                self._client_requests.serve(item.request, item.what)
        elif self.state in ("leaving", "left"):
            self._runtime.answer(item.request, Refused("this broker is leaving; ask another", retry=True))
        elif len(self._held) >= self._settings.requests_held_max:
            self._runtime.answer(item.request, Refused("this broker is starting; ask again soon", retry=True))
        else:
            self._held.append(item)

    def _unreachable(self, item: PeerUnreachable) -> None:
        self._runtime.lost(item.peer)
        self.overlay.suspect(item.peer)

    def _archived(self, item: Archived) -> None:
        home = self.home_manager.homes.get(item.upto.home)
        if home is not None:
            home.archived(item.upto)

    def _contacts_found(self, item: ContactsFound) -> None:
        known = {peer.id: peer for peer in (*self._contacts, *item.contacts) if peer.id != self.me.id}
        self._contacts = tuple(known.values())

    # -- starting ------------------------------------------------------------------------------------------------------

    def _start(self, item: Started) -> None:
        assert self.state == "new", "a node starts once; a restart is another node"
        self.state = "starting"
        self._handlers = {
            **self.directory.handlers(),
            **self.home_manager.handlers(),
            **self._locator.handlers(),
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
        self.home_manager.replicas.recover(
            record for record in item.records if record.home != LOCAL and record.home not in hosted
        )
        self.home_manager.kept_disk = INCARNATION in known
        if INCARNATION in known:
            self._runtime.me = self._next(known[INCARNATION].version)
        contacts = {peer.id: peer for peer in (*item.contacts, *self.directory.others()) if peer.id != self.me.id}
        self._contacts = tuple(contacts[id_] for id_ in sorted(contacts))
        self._looked_from = self._runtime.now
        first = self._runtime.random.randrange(len(self._contacts)) if self._contacts else 0
        self._runtime.start("look for a member", self._look(first))

    def _found(self, founders: tuple[Peer, ...]) -> None:
        me = next(peer for peer in founders if peer.id == self.me.id)
        self._become(me)
        self.directory.learn(Entry(home_of(peer.id), 1, peer) for peer in founders)
        self.overlay.found(founders)
        self.scheme.found([home_of(peer.id) for peer in founders])
        self._entered()

    def _next(self, incarnation: int) -> Peer:
        return Peer(self.me.id, self.me.address, max(incarnation, self.me.incarnation) + 1)

    def _become(self, me: Peer) -> Signal[None]:
        self._runtime.me = me
        return self._runtime.persist((Record(LOCAL, INCARNATION, me.incarnation, b""),))

    def _is_mine(self, entry: Entry) -> bool:
        return entry.host.id == self.me.id and not entry.gone

    async def _look(self, turn: int) -> None:
        """Ask those this node knows, one after another, for a member and the directory, until it has joined."""
        while self.state in ("starting", "joining"):
            self._contacts = tuple({peer.id: peer for peer in (*self._contacts, *self.directory.others())}.values())
            looked_us = self._runtime.now - self._looked_from
            if self._is_lowest() and (looked_us >= self._settings.found_after_us or not self._contacts):
                self._enter(None)
                return
            if not self._contacts:
                await self._runtime.sleep(self._settings.query_timeout_us)
                continue
            contact = self._contacts[turn % len(self._contacts)]
            reply = await self.directory.compare(contact)
            if self.state not in ("starting", "joining"):
                return
            turn += 1
            if reply is None:
                self._seekers.pop(contact.id, None)
                continue
            pause = self._settings.query_timeout_us // 4
            if reply.member:
                self._seekers.clear()
                self._looked_from = self._runtime.now
                pause = self._settings.join_us  # should this one be lost before it has helped, another may
                self._enter(contact)
            else:
                self._seekers[contact.id] = contact
            await self._runtime.sleep(pause)

    def _is_lowest(self) -> bool:
        # A new node has no homes to bring back; beginning a network is for those that were in it.
        hosts = {entry.host.id for entry in self.directory.entries() if not entry.gone}
        return self.me.id in hosts and all(self.me.id < id_ for id_ in self._seekers if id_ in hosts)

    def _enter(self, contact: Peer | None) -> None:
        """Become a member through a contact; without one, begin a network alone."""
        if self.state == "starting":
            self.state = "joining"
            self._runtime.start("enter the network", self._begin(contact))
        elif self._has_begun:
            self._join(contact)

    async def _begin(self, contact: Peer | None) -> None:
        """Take an incarnation that no node has seen, on disk before any node hears of it; then join."""
        await self._hear_others()
        hosted = [entry.host.incarnation for entry in self.directory.entries() if entry.host.id == self.me.id]
        await self._become(self._next(max(hosted, default=0)))
        self._has_begun = True
        self._join(contact)

    def _join(self, contact: Peer | None) -> None:
        if self.state == "joining":
            if contact is None:
                self.overlay.found((self.me,))
            else:
                self.overlay.join(contact)
        if self.state == "joining" and self.overlay.view().joined:
            self._entered()

    async def _hear_others(self) -> None:
        """Merge all lists but one, before this node takes itself for new.

        A node that nobody lists may be new, or have lost its disk: a home that served is on two others' lists.
        """
        heard: set[NodeId] = set()
        while True:
            others = self.directory.others()
            silent = [peer for peer in others if peer.id not in heard]
            is_known = self.home_manager.kept_disk or self.directory.get(home_of(self.me.id)) is not None
            if is_known or len(silent) < min(WITNESSES, len(others)) or not others:
                return
            peer = self._runtime.random.choice(silent)
            if await self.directory.compare(peer):
                heard.add(peer.id)
            else:
                await self._runtime.sleep(self._settings.query_timeout_us // 4)

    def joined(self) -> None:
        """Take note that the overlay has found this node's place."""
        if self.state == "joining":
            self._entered()

    def _entered(self) -> None:
        self.state = "recovering"
        self._runtime.start("gossip", self._gossip())
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
        self._coming_back = {entry.home: None for entry in entries}
        for entry in entries:
            self._runtime.start("bring back a home", self._bring_back(entry, on_disk.get(entry.home, []), notes))
        if not entries:
            self._recovered()

    async def _bring_back(self, entry: Entry, records: list[Record], notes: dict[str, Record]) -> None:
        home, epoch = entry.home, entry.epoch
        is_new = self.directory.get(home) is None or entry.host == self.me
        move = notes.get(MOVING + home.hex())
        if move is not None and move.value is not None:
            offer = msgspec.msgpack.decode(move.value, type=HomeMove)
            if await self.home_manager.pursue(home, offer):
                self._is_back(home)
                return
            epoch = offer.epoch + 1
        if is_new or HOSTED + home.hex() in notes:
            await self.home_manager.host(home, epoch, records, anew=False)
            self._is_back(home)
        else:
            await self._restore(home, records)

    async def _restore(self, home: HomeId, records: list[Record]) -> None:
        await self.home_manager.restore(home, records)
        self._is_back(home)

    def _is_back(self, home: HomeId) -> None:
        """Take note that a home is back, or elsewhere; the node is ready with the last one."""
        del self._coming_back[home]
        self._came_back[home] = None
        # What came back without a disk has merged all lists by now: they may name more that was hosted here.
        known = {**self._coming_back, **self._came_back}
        for entry in [each for each in self.directory.entries() if self._is_mine(each) and each.home not in known]:
            self._coming_back[entry.home] = None
            replicas = self.home_manager.replicas.take_over(entry.home)
            self._runtime.start("bring back a home", self._restore(entry.home, replicas))
        if not self._coming_back:
            self._recovered()

    def _recovered(self) -> None:
        if not self.home_manager.homes:
            self.state = "leaving"  # all its homes moved away while it was down
            self._runtime.start("leave", self._move_away(None))
            return
        self.state = "ready"
        self.home_manager.begin()
        self.scheme.start()
        held, self._held = self._held, []
        for item in held:
            self._asked(item)

    async def _gossip(self) -> None:
        while True:
            others = self.directory.others()
            if others and self.state in ("recovering", "ready", "leaving"):
                self.directory.compare(self._runtime.random.choice(others))
                self._gossips += 1
                if self._gossips % GOSSIPS_PER_REMINDER == 0 or self._is_alone():
                    self.overlay.remember(others)
            jitter = self._runtime.random.randrange(self._settings.gossip_us // 2 + 1)
            await self._runtime.sleep(self._settings.gossip_us + jitter)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def _leave(self, request: int) -> None:
        if not self.directory.others():
            reason = "this is the last broker; nobody could take over what it keeps"
            self._runtime.answer(request, Refused(reason, retry=False))
            return
        self.state = "leaving"
        self._runtime.start("leave", self._move_away(request))

    async def _move_away(self, request: int | None) -> None:
        await self.home_manager.give_away()
        self.state = "left"
        self.overlay.leave()
        if request is not None:
            self._runtime.answer(request, Stored())
        self._runtime.stop()

    # -- what the home manager asks ------------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """Carry on what a home has published that is not fully acknowledged: it serves here."""
        self.scheme.home_started(home)
        home.end_strays()
        for event in sorted(home.outbox):
            self.scheme.publish(event, home.outbox[event])

    def home_stopped(self, home: HomeId) -> None:
        """Take note that a home serves here no longer."""
        self.scheme.home_stopped(home)

    def is_free(self, home: Home) -> bool:
        """Return whether a home without subscribers may end."""
        return self.scheme.is_free(home)

    def free(self, home: Home) -> None:
        """Do what lets a home end."""
        self.scheme.free(home)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event of a home here may still come to another."""
        return self.scheme.may_reach(event, home)

    def place(self, home: HomeId, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when every event published later meets it."""
        return self.scheme.place(home, name)

    def when_placed(self, home: HomeId, name: str) -> Signal[None]:
        """Return a signal that is set when every event published later meets a subscription."""
        return self.scheme.when_placed(home, name)

    # -- upcalls of the overlay ----------------------------------------------------------------------------------------

    def neighbours_changed(self) -> None:
        """Keep replicas at the neighbours of now, and let the scheme follow."""
        self.home_manager.neighbours_changed()
        if self.state == "ready":
            self.scheme.neighbours_changed()
        if self._is_alone():
            self.overlay.remember(self.directory.others())

    def _is_alone(self) -> bool:
        """Return whether this node has lost all that the overlay linked it to; the directory knows more nodes."""
        return self.state in ("recovering", "ready") and not self.overlay.neighbours(1)

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Take a routed message that has come to its place."""
        self.scheme.delivered(key, body, origin, hops)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
        self.overlay.check()
        self.home_manager.check()
        self.scheme.check()

    @property
    def is_traced(self) -> bool:
        """Whether each step of every event is traced."""
        return self._runtime.tracing

    @is_traced.setter
    def is_traced(self, traced: bool) -> None:
        self._runtime.tracing = traced

    @property
    def schema(self) -> Schema | None:
        """The schema that filters and events are checked against."""
        return self.directory.schema_gossip.schema

    def archived(self) -> list[tuple[HomeId, int, int, int]]:
        """Return, of every home here that has published, its stream, its highest number, and how far it is archived."""
        found = [(home.id, *home.position) for home in self.home_manager.homes.values()]
        return [each for each in found if each[2]]

    def progress(self, publisher: str) -> int:
        """Return the highest sequence of a batch publisher that homes here accepted."""
        return max((home.sequences.get(publisher) for home in self.home_manager.homes.values()), default=0)

    def held_subscriptions(
        self, owner: str = "", labels: tuple[tuple[str, str], ...] = (), after: str = "", most: int = PAGE_MAX
    ) -> list[SubscriptionInfo]:
        """Return subscriptions of homes here, by name: an owner's, with all these labels, those after a name."""
        found = [
            each
            for home in self.home_manager.homes.values()
            for each in home.held_subscriptions()
            if each.name > after and (not owner or each.terms.owner == owner) and set(labels) <= set(each.terms.labels)
        ]
        return sorted(found, key=lambda each: each.name)[:most]

    def dead_letters(
        self, name: str = "", after: EventKey | None = None, most: int = PAGE_MAX, within: str = ""
    ) -> list[DeadLetter]:
        """Return events that subscribers here did not take, by their keys: of one name or all, those after a key.

        `within`: of subscriptions whose names begin so, and what is said of those alone.
        """
        found = [
            each
            for home in self.home_manager.homes.values()
            for each in home.deliveries.dead_letters(within)
            if (not name or name in each.names) and (after is None or each.event > after)
        ]
        return sorted(found, key=lambda each: each.event)[:most]

    def owned_subscriptions(self, owner: str) -> int:
        """Return how many subscriptions of homes here an owner has."""
        return sum(home.table.owned.get(owner, 0) for home in self.home_manager.homes.values())

    def snapshot(self) -> NodeView:
        """Return the node as it is seen from outside."""
        homes = self.home_manager.homes
        return NodeView(
            me=self.me,
            state=self.state,
            overlay=self.overlay.view(),
            homes=tuple(sorted(homes)),
            subscriptions=sum(len(home.filters) for home in homes.values()),
            outbox=sum(len(home.outbox) for home in homes.values()),
            queued=sum(home.queued for home in homes.values()),
            unsafe=sum(home.replicator.unsafe for home in homes.values()),
            copies=sum(len(self.home_manager.replicas.records(home)) for home in self.home_manager.replicas.homes()),
            waiting=self._runtime.waiting,
            directory=self.directory.digest,
            flows=tuple((flow.name, flow.since) for flow in self._runtime.flows),
            dead=sum(home.deliveries.dead for home in homes.values()),
        )
