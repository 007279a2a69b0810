"""The homes that a node hosts: how they begin, come back, keep their replicas, and move to another node.

- A home *serves* once its records are safe and two other nodes know where it is (`Directory`).
- A node whose disk was lost learns from the directory which homes it hosted, and asks every member for replicas. It
  waits for all of them: any could have the latest. The home comes back under the next epoch.
- A node that leaves has its homes taken over by the next node, which has their records already, as replicas. The home
  stops here before it starts there; should the answer be lost, the directory says whether it did. The replicas that the
  node kept for others go to the next node too.
- A home that was taken over and has become empty is dissolved. A node that keeps replicas asks from time to time
  whether they are wanted. So nothing is kept for ever.

Each of these procedures is a flow. `_host` belongs to its home, and ends when another node hosts that; the others go on
until they are done.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId, Peer, home_of
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.directory import Directory, Entry
from meetpoint.node.cluster.replication import (
    FetchReplicas,
    ReplicasFetched,
    ReplicasHeld,
    ReplicasReleased,
    ReplicaStore,
    Replicator,
)
from meetpoint.node.home.home import Home
from meetpoint.node.home.publisher_order import Watermarks
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.records import LOCAL, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = [
    "HOSTED",
    "MOVING",
    "WITNESSES",
    "Confirm",
    "Confirmed",
    "HomeListener",
    "HomeManager",
    "HomeMove",
    "HomeTakenOver",
    "TakeOverHome",
]

HOSTED: Final = "hosted/"
"""Notes with this prefix: a home is all there on this disk. Without it, a restart collects the replicas of others."""
MOVING: Final = "moving/"
"""Notes with this prefix: a home is offered to another node."""
WITNESSES: Final = 2
"""How many others must know where a home is, before it serves."""
UNLISTED_MAX: Final = 8
"""How many neighbours that are still joining are passed over in looking for places for replicas."""
FETCHES_MAX: Final = 8
"""How many members are asked for replicas at one time."""


class TakeOverHome(Query, frozen=True, array_like=True, gc=False, tag="adopt"):
    """Asks a node to host a home, of which it has all records, from now on, under this epoch."""

    home: HomeId
    epoch: Epoch


class HomeTakenOver(Reply, frozen=True, array_like=True, gc=False, tag="adopted"):
    """Says whether the home serves now, here or where it has gone on to."""

    accepted: bool


class Confirm(Query, frozen=True, array_like=True, gc=False, tag="confirm"):
    """Asks whether the offer of a home still stands."""

    home: HomeId
    epoch: Epoch


class Confirmed(Reply, frozen=True, array_like=True, gc=False, tag="confirmed"):
    """Says whether the offer stands."""

    stands: bool


class HomeMove(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The node to which a home is offered, and the epoch. It is on disk before that node hears of it."""

    to: Peer
    epoch: Epoch


class HomeListener(Protocol):
    """Is told of homes that come and go here, places their subscriptions, and may keep one from ending."""

    def home_started(self, home: Home) -> None:
        """Take note that a home serves here from now on."""

    def home_stopped(self, home: HomeId) -> None:
        """Take note that a home serves here no longer."""

    def is_free(self, home: Home) -> bool:
        """Return whether a home without subscribers may end."""

    def free(self, home: Home) -> None:
        """Do what lets a home end."""

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event that is on its way may still come to a home."""

    def place(self, home: HomeId, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when every event published later meets it."""

    def when_placed(self, home: HomeId, name: str) -> Signal[None]:
        """Return a signal that is set when every event published later meets a subscription."""


class HomeManager:
    """Hosts the homes of one node."""

    def __init__(
        self, runtime: Runtime, settings: NodeSettings, directory: Directory, overlay: Overlay, listener: HomeListener
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._overlay = overlay
        self._listener = listener
        self.directory = directory
        self._replicators: dict[HomeId, Replicator] = {}  # also of homes that do not serve yet, or no longer
        self.replicas = ReplicaStore(runtime, settings, directory, self._replicators)
        self.homes: dict[HomeId, Home] = {}
        self.watermarks = Watermarks(runtime, settings, directory, self.homes, listener)
        self._moves: dict[HomeId, HomeMove] = {}
        self._declined: dict[Peer, int] = {}  # how often a neighbour took nothing
        self._restoring: dict[HomeId, None] = {}
        self._beginning: dict[HomeId, Signal[None]] = {}  # homes that do not serve yet
        self._begun = False
        self._accepting = False
        self.kept_disk = False
        directory.listen(self._learnt)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about homes as a whole."""
        own = {ReplicasHeld: self._replicas_held, TakeOverHome: self._take_over_home, Confirm: self._confirm}
        return {**own, **self.replicas.handlers(), **self.watermarks.handlers()}  # type: ignore[dict-item]

    def begin(self) -> None:
        """Take over others' homes from now on: the node is a member and knows its own."""
        self._begun = self._accepting = True
        self._runtime.start("release replicas", self._release_replicas())

    # -- what schemes use ----------------------------------------------------------------------------------------------

    def fully_acknowledged(self, event: EventKey) -> None:
        """Take note that an event of a home here has reached all homes that may want it."""
        home = self.homes.get(event.home)
        if home is not None:
            home.fully_acknowledged(event)

    @property
    def serves_all(self) -> bool:
        """Whether all homes that are this node's, as far as anyone knows, serve here."""
        me = self._runtime.me.id
        return (
            self._begun
            and not self._moves
            and all(
                entry.home in self.homes for entry in self.directory.entries() if entry.host.id == me and not entry.gone
            )
        )

    def find(self, name: str) -> Home | None:
        """Return the home here that has a subscription of this name."""
        return next((home for home in self.homes.values() if home.has(name)), None)

    def own_home(self) -> Home | None:
        """Return the home for what is new here: the one that this node made, or, where that is elsewhere, another."""
        return self.homes.get(home_of(self._runtime.me.id)) or next(iter(self.homes.values()), None)

    # -- beginning to serve --------------------------------------------------------------------------------------------

    def host(self, home: HomeId, epoch: int, records: list[Record], *, anew: bool) -> Signal[None]:
        """Host a home with these records; `anew` where they are not on this disk yet.

        The signal is set once the home serves here, or another node turns out to host it.
        """
        replicator = Replicator(home, epoch, records, self._runtime, self._settings, self.directory, self)
        self._replicators[home] = replicator
        hosted = Home(replicator, self._runtime, self._settings, self.watermarks, self.directory, self._listener)
        self.directory.learn([Entry(home, epoch, self._runtime.me)])
        ended = self._beginning[home] = Signal()
        replicator.keep_at(self._replica_peers())
        self._runtime.start("host a home", self._host(hosted, replicator, anew), home)
        return ended

    async def _host(self, hosted: Home, replicator: Replicator, anew: bool) -> None:
        home = hosted.id
        await replicator.keep_all(write=anew)
        await self.introduce()
        self._runtime.persist((Record(LOCAL, HOSTED + home.hex(), replicator.epoch, b""),))
        ended = self._beginning.pop(home)
        self._serve(hosted)
        ended.set(None)

    def _serve(self, hosted: Home) -> None:
        self.homes[hosted.id] = hosted
        hosted.start()
        self._listener.home_started(hosted)

    def _stop(self, home: HomeId) -> Home | None:
        """Serve a home no longer, and write nothing more for it."""
        hosted = self.homes.pop(home, None)
        if hosted is not None:
            self._runtime.end_flows(home)
            self._listener.home_stopped(home)
            hosted.pause()
        return hosted

    async def introduce(self) -> None:
        """Have the directory on the disks of WITNESSES other nodes, or of all where there are fewer."""
        agreed: set[NodeId] = set()
        while len(agreed) < WITNESSES:
            others = [peer for peer in self.directory.others() if peer.id not in agreed]
            if not others:
                return
            peer = self._runtime.random.choice(others)
            if await self.directory.compare(peer, tell=True):
                agreed.add(peer.id)
            else:
                await self._runtime.sleep(self._settings.query_timeout_us // 4)

    def _replica_peers(self) -> list[Peer]:
        """Return the next nodes that the directory lists: only those will be asked, should this disk be lost."""
        listed = {host.id: host for host in self.directory.others()}
        near = self._overlay.neighbours(self._settings.buddies + UNLISTED_MAX)
        peers = [max(peer, listed[peer.id], key=lambda each: each.incarnation) for peer in near if peer.id in listed]
        peers.sort(key=lambda peer: self._declined.get(peer, 0))
        return peers[: self._settings.buddies]

    def neighbours_changed(self) -> None:
        """Keep replicas at the overlay's neighbours of now; one of them may have restarted."""
        if self._replicators:
            peers = self._replica_peers()
            for replicator in self._replicators.values():
                replicator.keep_at(peers)

    # -- coming back without a disk ------------------------------------------------------------------------------------

    async def restore(self, home: HomeId, records: list[Record]) -> None:
        """Collect a home's records from all members, beside what this disk has, and host it under the next epoch."""
        self._restoring[home] = None
        collected = await _Collection(self._runtime, self._settings, self.directory, home, records).run()
        del self._restoring[home]
        entry = self.directory.get(home)
        assert entry is not None
        if entry.host.id == self._runtime.me.id:
            await self.host(home, entry.epoch + 1, collected, anew=True)

    # -- replicas of others --------------------------------------------------------------------------------------------

    async def _release_replicas(self) -> None:
        """Throw away replicas that nobody wants, and dissolve homes that became empty; now and then, for ever."""
        while True:
            for home in self.replicas.homes():
                entry = self.directory.get(home)
                if entry is not None and entry.gone:
                    self.replicas.throw_away(home)
                elif entry is not None and entry.host.id != self._runtime.me.id:
                    self._runtime.start("ask whether replicas are wanted", self._ask_host(home, entry.host))
            for home in [home for home, hosted in self.homes.items() if hosted.is_empty]:
                if not self._accepting or home == home_of(self._runtime.me.id):
                    continue
                if self._listener.is_free(self.homes[home]):
                    self._runtime.start("dissolve a home", self._dissolve(home))
                else:
                    self._listener.free(self.homes[home])
            jitter = self._runtime.random.randrange(self._settings.holding_us // 4 + 1)
            await self._runtime.sleep(self._settings.holding_us + jitter)

    async def _ask_host(self, home: HomeId, host: Peer) -> None:
        state = self.replicas.state(home)
        reply = await self._runtime.ask(host, ReplicasHeld(0, home), self._settings.query_timeout_us)
        # A copy that came meanwhile was sent after the answer was, or before: nobody can tell. Ask again next time.
        if isinstance(reply, ReplicasReleased) and reply.free and self.replicas.state(home) == state:
            self.replicas.throw_away(home)

    def _replicas_held(self, source: Peer, message: ReplicasHeld) -> None:
        replicator = self._replicators.get(message.home)
        serves = message.home in self.homes
        free = serves and replicator is not None and not replicator.needs(source.id)
        self._runtime.send(source, ReplicasReleased(message.request, free))

    # -- moving --------------------------------------------------------------------------------------------------------

    def _take_over_home(self, source: Peer, message: TakeOverHome) -> None:
        home = message.home
        entry = self.directory.get(home)
        known = entry.epoch if entry is not None else 0
        if entry is not None and known < message.epoch and entry.host.id != source.id:
            # Only its host gives a home away. It may have come to this one unheard: then the next question is answered.
            self._runtime.observe("peer_refused", subject=source.id)
        elif home in self.homes and known >= message.epoch:
            self._runtime.send(source, HomeTakenOver(message.request, True))
        elif entry is not None and known >= message.epoch and entry.host.id not in (source.id, self._runtime.me.id):
            self._runtime.send(source, HomeTakenOver(message.request, True))  # it was here, and has been given on
        elif self._is_coming(home) or not (self._begun or self.kept_disk):
            return  # it is on the way, or this node has yet to learn what it hosts: the next question may be answered
        elif not self._accepting or not self.replicas.is_whole(home) or known >= message.epoch:
            self._runtime.send(source, HomeTakenOver(message.request, False))
        else:
            self._runtime.start("take over a home", self._take_over(source, message))

    async def _take_over(self, source: Peer, message: TakeOverHome) -> None:
        home = message.home
        # The question may be an old one that comes late: take over only what is still offered.
        question = Confirm(0, home, message.epoch)
        reply = await self._runtime.ask(source, question, self._settings.query_timeout_us)
        if isinstance(reply, Confirmed) and reply.stands and self._accepting and home not in self._replicators:
            await self.host(home, message.epoch, self.replicas.take_over(home), anew=False)
            self._runtime.send(source, HomeTakenOver(message.request, True))

    def _is_coming(self, home: HomeId) -> bool:
        host = self.directory.host(home)
        return home in self._replicators or (host is not None and host.id == self._runtime.me.id)

    def _confirm(self, source: Peer, message: Confirm) -> None:
        move = self._moves.get(message.home)
        stands = move is not None and move.to.id == source.id and move.epoch == message.epoch
        self._runtime.send(source, Confirmed(message.request, stands))

    async def give_away(self) -> None:
        """Have the next node keep the replicas that are here and take over all homes; go on until that is done."""
        self._accepting = False
        # Replicas first: once this node hosts no home, nobody who lost a disk would ask it.
        await self.replicas.hand_over(self)
        while self._replicators:
            home = min(self._replicators)
            hosted = self.homes.get(home)
            if hosted is not None and hosted.is_empty and self._listener.is_free(hosted):
                await self._dissolve(home)
            elif not await self._offer(home):
                await self._runtime.sleep(self._settings.query_timeout_us // 2)
        await self.introduce()  # what this node has learnt, it leaves to others

    def next_peer(self) -> Peer | None:
        """Return the node that is to take what this one has."""
        return next(iter(self._replica_peers()), None)

    def declined(self, peer: Peer) -> None:
        """Put a peer last: it takes nothing as it leaves, and may wait for this node to take what it has."""
        listed = {host.id for host in self.directory.others()}
        self._declined = {each: count for each, count in self._declined.items() if each.id in listed}
        self._declined[peer] = self._declined.get(peer, 0) + 1
        self.neighbours_changed()

    async def _dissolve(self, home: HomeId) -> None:
        """End a home for good: nobody subscribes there, and nothing of it is on its way."""
        replicator = self._replicators[home]
        self._stop(home)
        self._give_up(home)
        self.directory.learn([Entry(home, replicator.epoch + 1, self._runtime.me, gone=True)])
        self._runtime.persist((), [(home, name) for name in replicator.records])
        await self.introduce()

    async def _offer(self, home: HomeId) -> bool:
        """Offer a home to the next node; return whether it is there now."""
        replicator = self._replicators[home]
        peer = self.next_peer()
        if home in self.homes:
            self.homes[home].flush()
        if home not in self.homes or peer is None or replicator.unsafe or not replicator.has_all(peer.id):
            return False
        hosted = self.homes[home]
        self._stop(home)
        epoch = replicator.epoch + 1
        move = HomeMove(peer, epoch)
        await self._runtime.persist((Record(LOCAL, MOVING + home.hex(), epoch, msgspec.msgpack.encode(move)),))
        if await self.pursue(home, move):
            self._give_up(home)
            return True
        # The other may have begun, and told others, before it crashed: nobody heeds that epoch after this.
        replicator.epoch = epoch + 1
        self.directory.learn([Entry(home, replicator.epoch, self._runtime.me)])
        self._serve(hosted)
        replicator.begin_anew(peer.id)  # it may have restarted since it got everything
        self.declined(peer)
        return False

    async def pursue(self, home: HomeId, move: HomeMove) -> bool:
        """Ask the node to which a home was offered until it is known whether that node hosts it; return whether."""
        self._moves[home] = move
        moved = True
        while not self._is_elsewhere(home, move):
            question = TakeOverHome(0, home, move.epoch)
            reply = await self._runtime.ask(move.to, question, self._settings.query_timeout_us)
            if isinstance(reply, HomeTakenOver):
                moved = reply.accepted
                break
            if self._has_left(move.to):
                moved = False
                break
            await self._runtime.sleep(self._settings.query_timeout_us // 2)
        del self._moves[home]
        self._runtime.persist((), ((LOCAL, MOVING + home.hex()),))
        return moved or self._is_elsewhere(home, move)

    def _is_elsewhere(self, home: HomeId, move: HomeMove) -> bool:
        entry = self.directory.get(home)
        return entry is not None and entry.epoch >= move.epoch and entry.host.id != self._runtime.me.id

    def _has_left(self, peer: Peer) -> bool:
        """Return whether a node has left: then its takeovers are known here too, as lists are merged whole."""
        return all(each.id != peer.id for each in self.directory.others())

    def _give_up(self, home: HomeId) -> None:
        self._replicators.pop(home).close()
        self._runtime.persist((), ((LOCAL, HOSTED + home.hex()),))

    def _learnt(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._heed(entry)
        self.neighbours_changed()

    def _heed(self, entry: Entry) -> None:
        """Give up a home that another node hosts under a higher epoch, whatever happened."""
        home = entry.home
        if home in self._replicators and entry.host.id != self._runtime.me.id and home not in self._moves:
            self._stop(home)
            self._runtime.end_flows(home)  # it may not serve yet
            self._give_up(home)
            self._runtime.observe("home_displaced")
            beginning = self._beginning.pop(home, None)
            if beginning is not None:
                beginning.set(None)
        elif self._begun and self._is_forgotten(entry):
            self._runtime.start("restore a home", self.restore(home, self.replicas.take_over(home)))

    def _is_forgotten(self, entry: Entry) -> bool:
        """Return whether this node hosts a home, says the directory, and has lost it with its disk."""
        is_mine = entry.host.id == self._runtime.me.id and not entry.gone
        busy = entry.home in self._replicators or entry.home in self._moves or entry.home in self._restoring
        return is_mine and not busy and self._accepting

    def check(self) -> None:
        """Assert what must hold at all times."""
        for home in self.homes.values():
            home.check()
        assert self.homes.keys() <= self._replicators.keys()


class _Collection:
    """Collects the records of a home whose disk is lost from all members, a few members at a time."""

    def __init__(
        self, runtime: Runtime, settings: NodeSettings, directory: Directory, home: HomeId, records: list[Record]
    ) -> None:
        self._runtime = runtime
        self._timeout_us = settings.query_timeout_us
        self._directory = directory
        self._home = home
        self._found = {record.name: record for record in records}
        self._heard: set[NodeId] = set()  # those that gave all that they have
        self._asked: set[NodeId] = set()
        self._ended: Signal[None] = Signal()  # set when the next of those that are asked is done

    async def run(self) -> list[Record]:
        """Return the latest records once every member of the directory has given all that it has."""
        while silent := [peer for peer in self._directory.others() if peer.id not in self._heard]:
            for peer in silent:
                if peer.id not in self._asked and len(self._asked) < FETCHES_MAX:
                    self._asked.add(peer.id)
                    self._runtime.start("fetch replicas", self._ask(peer))
            await self._ended
            self._ended = Signal()
        return list(self._found.values())

    async def _ask(self, peer: Peer) -> None:
        if await self._fetch_all(peer):
            self._heard.add(peer.id)
        self._asked.discard(peer.id)
        if not self._ended.is_set:
            self._ended.set(None)

    async def _fetch_all(self, peer: Peer) -> bool:
        """Fetch page by page; return whether it was all, from a node whose directory is merged here."""
        after = ""
        while True:
            reply = await self._runtime.ask(peer, FetchReplicas(0, self._home, after), self._timeout_us)
            if not isinstance(reply, ReplicasFetched):
                await self._runtime.sleep(self._timeout_us)
                return False
            for record in reply.records:
                known = self._found.get(record.name)
                if record.home == self._home and (known is None or known.version < record.version):
                    self._found[record.name] = record
            if reply.more and reply.records:
                after = reply.records[-1].name
            elif self._directory.has_merged(reply.digest):
                return True
            else:
                await self._directory.compare(peer)
                return False
