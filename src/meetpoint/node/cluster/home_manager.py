"""The homes that a node hosts: how they begin, come back, keep their copies, and move to another node.

- A home *serves* once its records are safe and two other nodes know where it is (`Directory`).
- A node whose disk was lost learns from the directory which homes it hosted, and asks every member for copies. It waits
  for all of them: any could have the latest. The home comes back under the next epoch.
- A node that leaves has its homes adopted by the next node, which has their records already, as a buddy. The home stops
  here before it starts there; whether it did says the directory, should the answer be lost. The copies that it kept for
  others go to the next node too.
- A home that was adopted and has become empty is dissolved. Who keeps copies asks from time to time whether they are
  wanted. So nothing is kept for ever.
"""

from __future__ import annotations

from collections.abc import Callable
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
"""Notes with this prefix: a home is all there on this disk. Without it, a restart collects the copies of others."""
MOVING: Final = "moving/"
"""Notes with this prefix: a home is offered to another node."""
WITNESSES: Final = 2
"""How many others must know where a home is, before it serves."""
UNLISTED_MAX: Final = 8
"""How many neighbours that are still joining are passed over in looking for buddies."""
FETCHES_MAX: Final = 8
"""How many members are asked for copies at one time."""


class TakeOverHome(Query, frozen=True, array_like=True, gc=False, tag="adopt"):
    """Host a home of which you have all records, from now on, under this epoch."""

    home: HomeId
    epoch: Epoch


class HomeTakenOver(Reply, frozen=True, array_like=True, gc=False, tag="adopted"):
    """Whether the home serves now, here or where it has gone on to."""

    accepted: bool


class Confirm(Query, frozen=True, array_like=True, gc=False, tag="confirm"):
    """Does the offer of a home still stand?"""

    home: HomeId
    epoch: Epoch


class Confirmed(Reply, frozen=True, array_like=True, gc=False, tag="confirmed"):
    """Whether it does."""

    stands: bool


class HomeMove(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """To whom a home is offered, and under which epoch. It is on disk before the heir hears of it."""

    heir: Peer
    epoch: Epoch


class HomeListener(Protocol):
    """Who is told of homes that come and go here, and may keep one from ending."""

    def home_started(self, home: Home) -> None:
        """A home serves here from now on."""

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""

    def is_free(self, home: Home) -> bool:
        """Whether a home without subscribers may end."""

    def free(self, home: Home) -> None:
        """Do what lets it end."""

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Whether an event that is on its way may still come to a home."""


class HomeManager:
    """All homes of one node."""

    tenant: HomeListener

    def __init__(self, services: Runtime, settings: NodeSettings, directory: Directory, overlay: Overlay) -> None:
        self._services = services
        self._settings = settings
        self._overlay = overlay
        self.directory = directory
        self.copies = ReplicaStore(
            services, settings, lambda: directory.digest, lambda home: home in self._keepers, directory.get
        )
        self.homes: dict[HomeId, Home] = {}
        self.watermarks = Watermarks(
            services, settings, directory, self.homes, lambda event, home: self.tenant.may_reach(event, home)
        )
        self._keepers: dict[HomeId, Replicator] = {}  # also of homes that do not serve yet, or no longer
        self._moves: dict[HomeId, HomeMove] = {}
        self._declined: dict[Peer, int] = {}  # how often a neighbour took nothing
        self._restoring: dict[HomeId, None] = {}
        self._beginning: dict[HomeId, Callable[[], None]] = {}  # who waits for a home to serve
        self._begun = False
        self._accepting = False
        self.kept_disk = False
        directory.listen(self._learnt)

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are about homes as a whole."""
        own = {ReplicasHeld: self._holding, TakeOverHome: self._adopt, Confirm: self._confirm}
        return {**own, **self.copies.handlers(), **self.watermarks.handlers()}  # type: ignore[dict-item]

    def begin(self) -> None:
        """The node is a member and knows its homes: adopt others' from now on."""
        self._begun = self._accepting = True
        self._ask_whether_needed()

    # -- what schemes use ----------------------------------------------------------------------------------------------

    def settled(self, event: EventKey) -> None:
        """An event published by a home here has reached all that may want it."""
        home = self.homes.get(event.home)
        if home is not None:
            home.settled(event)

    @property
    def serves_all(self) -> bool:
        """Whether all homes that are this node's, as far as anyone knows, serve here."""
        me = self._services.me.id
        return (
            self._begun
            and not self._moves
            and all(
                entry.home in self.homes for entry in self.directory.entries() if entry.host.id == me and not entry.gone
            )
        )

    def find(self, name: str) -> Home | None:
        """The home here that has a subscription of this name."""
        return next((home for home in self.homes.values() if home.has(name)), None)

    # -- beginning to serve --------------------------------------------------------------------------------------------

    def host(self, home: HomeId, epoch: int, records: list[Record], *, anew: bool, then: Callable[[], None]) -> None:
        """Host a home with these records; `anew` where they are not on this disk yet. `then` once it serves."""
        keeper = Replicator(
            home, epoch, records, self._services, self._settings, lambda: not self.directory.others(), self._decline
        )
        self._keepers[home] = keeper
        hosted = Home(keeper, self._services, self._settings, self.watermarks, lambda: self.directory.spread.schema)
        self.directory.learn([Entry(home, epoch, self._services.me)])
        self._beginning[home] = then

        def serve() -> None:
            if self._keepers.get(home) is not keeper:
                return  # displaced meanwhile
            del self._beginning[home]
            self._services.persist((Record(LOCAL, HOSTED + home.hex(), epoch, b""),), (), None)
            self._serve(hosted)
            then()

        keeper.keep_at(self._buddies())
        keeper.keep_all(lambda: self.introduce(serve), write=anew)

    def _serve(self, hosted: Home) -> None:
        self.homes[hosted.id] = hosted
        hosted.start()
        self.tenant.home_started(hosted)

    def _stop(self, home: HomeId) -> Home | None:
        hosted = self.homes.pop(home, None)
        if hosted is not None:
            self.tenant.home_stopped(home)
        return hosted

    def introduce(self, then: Callable[[], None]) -> None:
        """Have the directory on other nodes' disks; goes on trying."""
        agreed: dict[NodeId, None] = {}

        def attempt() -> None:
            others = [peer for peer in self.directory.others() if peer.id not in agreed]
            if len(agreed) >= min(WITNESSES, len(agreed) + len(others)):
                then()
                return
            peer = self._services.random.choice(others)

            def answered(reply: Reply | None) -> None:
                if reply is None:
                    self._services.after(self._settings.query_timeout_us // 4, attempt)
                else:
                    agreed[peer.id] = None
                    attempt()

            self.directory.compare(peer, answered, tell=True)

        attempt()

    def _buddies(self) -> list[Peer]:
        """The next nodes that the directory lists: only those will be asked for copies, should this disk be lost."""
        listed = {host.id: host for host in self.directory.others()}
        near = self._overlay.neighbours(self._settings.buddies + UNLISTED_MAX)
        buddies = [max(peer, listed[peer.id], key=lambda each: each.incarnation) for peer in near if peer.id in listed]
        buddies.sort(key=lambda peer: self._declined.get(peer, 0))
        return buddies[: self._settings.buddies]

    def buddies_changed(self) -> None:
        """The overlay's neighbours may have changed, or one of them has restarted."""
        if self._keepers:
            buddies = self._buddies()
            for keeper in self._keepers.values():
                keeper.keep_at(buddies)

    # -- coming back without a disk ------------------------------------------------------------------------------------

    def restore(self, home: HomeId, records: list[Record], then: Callable[[], None]) -> None:
        """Collect a home's records from all members, beside what this disk has, and host it under the next epoch."""
        self._restoring[home] = None
        found = {record.name: record for record in records}
        heard: dict[NodeId, None] = {}
        asked: dict[NodeId, None] = {}
        complete = False

        def step() -> None:
            nonlocal complete
            silent = [peer for peer in self.directory.others() if peer.id not in heard]
            if complete:
                return  # an answer that nobody waits for any more
            if not silent:
                complete = True
                del self._restoring[home]
                entry = self.directory.get(home)
                assert entry is not None
                if entry.host.id != self._services.me.id:
                    then()
                    return
                self.host(home, entry.epoch + 1, list(found.values()), anew=True, then=then)
                return
            for peer in silent:
                if peer.id not in asked and len(asked) < FETCHES_MAX:
                    asked[peer.id] = None
                    fetch(peer, "")

        def fetch(peer: Peer, after: str) -> None:
            def answered(reply: Reply | None) -> None:
                if not isinstance(reply, ReplicasFetched):
                    self._services.after(self._settings.query_timeout_us, lambda: done(peer, False))
                    return
                for record in reply.records:
                    known = found.get(record.name)
                    if record.home == home and (known is None or known.version < record.version):
                        found[record.name] = record
                if reply.more and reply.records:
                    fetch(peer, reply.records[-1].name)
                elif self.directory.has_merged(reply.digest):
                    done(peer, True)
                else:
                    self.directory.compare(peer, lambda _: done(peer, False))

            self._services.ask(
                peer, lambda number: FetchReplicas(number, home, after), answered, self._settings.query_timeout_us
            )

        def done(peer: Peer, all_there: bool) -> None:
            asked.pop(peer.id, None)
            if all_there:
                heard[peer.id] = None
            step()

        step()

    # -- copies of others ----------------------------------------------------------------------------------------------

    def _ask_whether_needed(self) -> None:
        for home in self.copies.homes():
            entry = self.directory.get(home)
            if entry is not None and entry.gone:
                self.copies.throw_away(home)
            elif entry is not None and entry.host.id != self._services.me.id:
                self._ask_host(home, entry.host)
        for home in [home for home, hosted in self.homes.items() if hosted.is_empty]:
            if not self._accepting or home == home_of(self._services.me.id):
                continue
            if self.tenant.is_free(self.homes[home]):
                self._dissolve(home, lambda: None)
            else:
                self.tenant.free(self.homes[home])
        jitter = self._services.random.randrange(self._settings.holding_us // 4 + 1)
        self._services.after(self._settings.holding_us + jitter, self._ask_whether_needed)

    def _ask_host(self, home: HomeId, host: Peer) -> None:
        state = self.copies.state(home)

        def answered(reply: Reply | None) -> None:
            # A copy that came meanwhile was sent after the answer was, or before: who can tell. Ask again next time.
            if isinstance(reply, ReplicasReleased) and reply.free and self.copies.state(home) == state:
                self.copies.throw_away(home)

        self._services.ask(host, lambda number: ReplicasHeld(number, home), answered, self._settings.query_timeout_us)

    def _holding(self, source: Peer, message: ReplicasHeld) -> None:
        keeper = self._keepers.get(message.home)
        serves = message.home in self.homes
        free = serves and keeper is not None and not keeper.needs(source.id)
        self._services.send(source, ReplicasReleased(message.request, free))

    # -- moving --------------------------------------------------------------------------------------------------------

    def _adopt(self, source: Peer, message: TakeOverHome) -> None:
        home = message.home

        def answer(accepted: bool) -> None:
            self._services.send(source, HomeTakenOver(message.request, accepted))

        def confirmed(reply: Reply | None) -> None:
            if isinstance(reply, Confirmed) and reply.stands and self._accepting and home not in self._keepers:
                records = self.copies.take_over(home)
                self.host(home, message.epoch, records, anew=False, then=lambda: answer(True))

        entry = self.directory.get(home)
        known = entry.epoch if entry is not None else 0
        if entry is not None and known < message.epoch and entry.host.id != source.id:
            # Only its host gives a home away. It may have come to this one unheard: then the next question is answered.
            self._services.observe("peer_refused", subject=source.id)
        elif home in self.homes and known >= message.epoch:
            answer(True)
        elif entry is not None and known >= message.epoch and entry.host.id not in (source.id, self._services.me.id):
            answer(True)  # it was here, and has been given on
        elif self._is_coming(home) or not (self._begun or self.kept_disk):
            return  # it is on the way, or this node has yet to learn what it hosts: the next question may be answered
        elif not self._accepting or not self.copies.is_whole(home) or known >= message.epoch:
            answer(False)
        else:
            # The question may be an old one that comes late: adopt only what is still offered.
            self._services.ask(
                source,
                lambda number: Confirm(number, home, message.epoch),
                confirmed,
                self._settings.query_timeout_us,
            )

    def _is_coming(self, home: HomeId) -> bool:
        host = self.directory.host(home)
        return home in self._keepers or (host is not None and host.id == self._services.me.id)

    def _confirm(self, source: Peer, message: Confirm) -> None:
        move = self._moves.get(message.home)
        stands = move is not None and move.heir.id == source.id and move.epoch == message.epoch
        self._services.send(source, Confirmed(message.request, stands))

    def give_away(self, then: Callable[[], None]) -> None:
        """Have the next node keep the copies that are here and adopt all homes; goes on until that is done."""
        self._accepting = False
        # Copies first: once this node hosts no home, nobody who lost a disk would ask it.
        self.copies.hand_over(self._heir, self._decline, lambda: self._give_away_homes(then))

    def _heir(self) -> Peer | None:
        return next(iter(self._buddies()), None)

    def _decline(self, heir: Peer) -> None:
        """One that takes nothing is leaving, and may wait for this node to take what it has: others come first."""
        listed = {host.id for host in self.directory.others()}
        self._declined = {peer: count for peer, count in self._declined.items() if peer.id in listed}
        self._declined[heir] = self._declined.get(heir, 0) + 1
        self.buddies_changed()

    def _give_away_homes(self, then: Callable[[], None]) -> None:
        def attempt() -> None:
            if not self._keepers:
                self.introduce(then)  # what this node has learnt, it leaves to others
                return
            home = min(self._keepers)
            hosted = self.homes.get(home)
            if hosted is not None and hosted.is_empty and self.tenant.is_free(hosted):
                self._dissolve(home, attempt)
            else:
                self._offer(home, attempt)

        attempt()

    def _dissolve(self, home: HomeId, then: Callable[[], None]) -> None:
        """Nobody subscribes at a home, and nothing of it is on its way: it is gone for good."""
        keeper = self._keepers[home]
        hosted = self._stop(home)
        if hosted is not None:
            hosted.pause()
        self._give_up(home)
        self.directory.learn([Entry(home, keeper.epoch + 1, self._services.me, gone=True)])
        self._services.persist((), [(home, name) for name in keeper.records], None)
        self.introduce(then)

    def _offer(self, home: HomeId, then: Callable[[], None]) -> None:
        keeper = self._keepers[home]
        heir = self._heir()

        def later() -> None:
            self._services.after(self._settings.query_timeout_us // 2, then)

        def ended(moved: bool) -> None:
            if moved:
                self._give_up(home)
                then()
            else:
                # The heir may have begun, and told others, before it crashed: nobody heeds that epoch after this.
                keeper.epoch = epoch + 1
                self.directory.learn([Entry(home, keeper.epoch, self._services.me)])
                self._serve(hosted)
                keeper.begin_anew(move.heir.id)  # it may have restarted since it got everything
                self._decline(move.heir)
                later()

        if home in self.homes:
            self.homes[home].flush()
        if home not in self.homes or heir is None or keeper.unsafe or not keeper.has_all(heir.id):
            later()
            return
        hosted = self.homes[home]
        self._stop(home)
        hosted.pause()
        epoch = keeper.epoch + 1
        move = HomeMove(heir, epoch)
        record = Record(LOCAL, MOVING + home.hex(), move.epoch, msgspec.msgpack.encode(move))
        self._services.persist((record,), (), lambda: self.pursue(home, move, ended))

    def pursue(self, home: HomeId, move: HomeMove, then: Callable[[bool], None]) -> None:
        """Ask the heir of a home until it is known whether it hosts it."""
        self._moves[home] = move

        def is_elsewhere() -> bool:
            entry = self.directory.get(home)
            return entry is not None and entry.epoch >= move.epoch and entry.host.id != self._services.me.id

        def ended(moved: bool) -> None:
            del self._moves[home]
            self._services.persist((), ((LOCAL, MOVING + home.hex()),), None)
            then(moved or is_elsewhere())

        def ask() -> None:
            if is_elsewhere():
                ended(True)
                return
            self._services.ask(
                move.heir,
                lambda number: TakeOverHome(number, home, move.epoch),
                answered,
                self._settings.query_timeout_us,
            )

        def answered(reply: Reply | None) -> None:
            if isinstance(reply, HomeTakenOver):
                ended(reply.accepted)
            elif self._has_left(move.heir):
                ended(False)
            else:
                self._services.after(self._settings.query_timeout_us // 2, ask)

        ask()

    def _has_left(self, heir: Peer) -> bool:
        """Who knows that a node has left knows also what it had adopted, as lists are merged whole."""
        return all(peer.id != heir.id for peer in self.directory.others())

    def _give_up(self, home: HomeId) -> None:
        self._keepers.pop(home).close()
        self._services.persist((), ((LOCAL, HOSTED + home.hex()),), None)

    def _learnt(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._heed(entry)
        self.buddies_changed()

    def _heed(self, entry: Entry) -> None:
        """A home that another node hosts under a higher epoch is not this node's any more, whatever happened."""
        keeper = self._keepers.get(entry.home)
        if keeper is not None and entry.host.id != self._services.me.id and entry.home not in self._moves:
            hosted = self._stop(entry.home)
            if hosted is not None:
                hosted.pause()
            self._give_up(entry.home)
            self._services.observe("home_displaced")
            self._beginning.pop(entry.home, lambda: None)()
        elif self._begun and self._is_forgotten(entry):
            self.restore(entry.home, self.copies.take_over(entry.home), lambda: None)

    def _is_forgotten(self, entry: Entry) -> bool:
        """Whether this node hosts a home, says the directory, and has lost it with its disk."""
        is_mine = entry.host.id == self._services.me.id and not entry.gone
        busy = entry.home in self._keepers or entry.home in self._moves or entry.home in self._restoring
        return is_mine and not busy and self._accepting

    def check(self) -> None:
        """Assert what must hold at all times."""
        for home in self.homes.values():
            home.check()
        assert self.homes.keys() <= self._keepers.keys()
