"""Records on two disks: a home's own, and copies at the next nodes of the overlay, its *buddies*.

A write is safe when it is on the own disk and on one buddy's; only then is anything acknowledged that depends on it. A
node that is alone has no buddy, and its own disk is all there is. Whether it is alone says the directory, not the
overlay: one that is cut off from all others waits.

To each buddy there is one message on its way at a time. What is written meanwhile waits, the latest of each name, and
goes with the next one. So a buddy that comes new, or back, gets everything by the same way, and order needs no care.

Only its host says what copies of a home are to be: what another node says of them, which may have kept an old deletion
and say it again, is refused and counted, unless it says so under an epoch that is not known yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId, NodeId, Number, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.directory import Entry
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.records import LOCAL, VERSIONS_PER_EPOCH, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = [
    "FetchReplicas",
    "ReplicaStore",
    "ReplicasFetched",
    "ReplicasHeld",
    "ReplicasReleased",
    "Replicate",
    "ReplicateAck",
    "Replicator",
    "StoreReplica",
    "StoreReplicaAck",
]

LAZY_US: Final = SECOND_US
"""How long a write may stay on one disk when nobody waits for it."""
RECORDS_MAX: Final = 1_000
"""How many records travel in one message at most."""


class Replicate(Query, frozen=True, array_like=True, gc=False, tag="copy"):
    """Keep these records of a home, and forget these names of it.

    The first messages to a buddy bring everything: from one that begins to one that ends it. Names that were there
    before and did not come again are forgotten then.
    """

    home: HomeId
    epoch: Epoch
    serial: Number
    records: tuple[Record, ...]
    erased: tuple[str, ...]
    begins: bool
    ends: bool


class ReplicateAck(Reply, frozen=True, array_like=True, gc=False, tag="copied"):
    """They are on disk here; or a later message was here before, of this (epoch, incarnation, serial).

    Or neither: this node is leaving, and takes none.
    """

    later: tuple[int, int, int] | None = None
    leaving: bool = False


class ReplicasHeld(Query, frozen=True, array_like=True, gc=False, tag="holding"):
    """Are copies of this home's records still wanted here?"""

    home: HomeId


class ReplicasReleased(Reply, frozen=True, array_like=True, gc=False, tag="released"):
    """Whether they may be thrown away."""

    free: bool


class StoreReplica(Query, frozen=True, array_like=True, gc=False, tag="keep"):
    """Keep these copies of a home's records: the sender, who kept them, leaves."""

    home: HomeId
    records: tuple[Record, ...]


class StoreReplicaAck(Reply, frozen=True, array_like=True, gc=False, tag="kept"):
    """They are on disk here."""


class FetchReplicas(Query, frozen=True, array_like=True, gc=False, tag="fetch"):
    """Give back the copies of a home that lost its disk, from one name on."""

    home: HomeId
    after: str


class ReplicasFetched(Reply, frozen=True, array_like=True, gc=False, tag="fetched"):
    """Some of them, whether there are more, and the digest of the directory here."""

    records: tuple[Record, ...]
    more: bool
    digest: bytes


class _Link:
    """What one buddy still has to get."""

    __slots__ = ("acked", "begun", "busy", "dirty", "missed", "peer", "whole")

    def __init__(self, peer: Peer, dirty: dict[str, int]) -> None:
        self.peer = peer
        self.dirty = dirty  # name -> the write that changed it last, oldest first
        self.missed: dict[str, int] = {}  # of those, what was changed before too -> the first write that did not go out
        self.acked = 0
        self.busy = False
        self.begun = False
        self.whole = False


class Replicator:
    """The records of one home that this node hosts."""

    def __init__(
        self,
        home: HomeId,
        epoch: int,
        records: Iterable[Record],
        services: Runtime,
        settings: NodeSettings,
        is_alone: Callable[[], bool],
        declined: Callable[[Peer], None],
    ) -> None:
        self.home = home
        self.epoch = epoch
        self._services = services
        self._settings = settings
        self._is_alone = is_alone
        self._declined = declined
        self.records = {record.name: record for record in records}
        self._serial = 0
        self._writes = 1
        self._own = 0
        self._links: dict[NodeId, _Link] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._version = max((record.version for record in self.records.values()), default=0)
        self.closed = False
        self._flush_is_due = False

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(
        self,
        values: Iterable[tuple[str, bytes | None]],
        erased: Iterable[str] = (),
        then: Callable[[], None] | None = None,
    ) -> None:
        """Keep values under names (None: deleted, and remembered as such), forget others; `then` when that is safe.

        Where nobody waits for it, buddies hear of it a little later, with others.
        """
        assert not self.closed, "a home that has been given away"
        records = [Record(self.home, name, self._next_version(), value) for name, value in values]
        names = [name for name in erased if self.records.pop(name, None) is not None]
        for record in records:
            self.records[record.name] = record
        self._put(records, names, then)

    def keep_all(self, then: Callable[[], None], *, write: bool) -> None:
        """Call `then` when all records are safe; `write` where they are not on this disk yet."""
        self._put(list(self.records.values()) if write else [], [], then)

    def _put(self, records: list[Record], erased: list[str], then: Callable[[], None] | None) -> None:
        self._writes += 1
        number = self._writes
        if then is not None:
            self._waiting.append((number, then))
        self._services.persist(records, [(self.home, name) for name in erased], lambda: self._persisted(number))
        changed = [record.name for record in records] + erased
        for link in self._links.values():
            for name in changed:
                before = link.dirty.pop(name, None)
                if before is not None:
                    link.missed.setdefault(name, before)
                link.dirty[name] = number
        if then is not None:
            self._flush_all()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._services.after(LAZY_US, self._flush_lazily)

    def _flush_lazily(self) -> None:
        self._flush_is_due = False
        self._flush_all()

    def _flush_all(self) -> None:
        for link in self._links.values():
            if link.acked < self._writes:
                self._flush(link)

    def _next_version(self) -> int:
        self._version = max(self._version + 1, self.epoch * VERSIONS_PER_EPOCH)
        return self._version

    def _persisted(self, number: int) -> None:
        self._own = max(self._own, number)
        self._release()

    def _release(self) -> None:
        safe = min(self._own, self._copied_to())
        while self._waiting and self._waiting[0][0] <= safe:
            self._waiting.popleft()[1]()

    def _copied_to(self) -> int:
        if self._is_alone():
            return self._writes
        return max((link.acked for link in self._links.values()), default=0)

    # -- buddies -------------------------------------------------------------------------------------------------------

    def keep_at(self, buddies: Iterable[Peer]) -> None:
        """These are the buddies now. One that is new, or restarted, gets everything."""
        wanted = {peer.id: peer for peer in buddies}
        for id_ in [id_ for id_ in self._links if id_ not in wanted]:
            del self._links[id_]
        for id_, peer in wanted.items():
            link = self._links.get(id_)
            if link is None or link.peer.incarnation < peer.incarnation:
                link = _Link(peer, dict.fromkeys(self.records, 1))
                self._links[id_] = link
                self._flush(link)
        self._release()

    def needs(self, node: NodeId) -> bool:
        """Whether copies at a node are still wanted: it is a buddy, or those that are have not everything yet."""
        return node in self._links or not self._links or not all(link.whole for link in self._links.values())

    def has_all(self, node: NodeId) -> bool:
        """Whether a buddy has every record."""
        link = self._links.get(node)
        return link is not None and not link.dirty and not link.busy

    def begin_anew(self, node: NodeId) -> None:
        """A buddy has not all that it seemed to have: it gets everything when it is named again."""
        self._links.pop(node, None)

    def close(self) -> None:
        """The home is another's now."""
        self.closed = True
        self._links.clear()
        self._waiting.clear()

    def _flush(self, link: _Link) -> None:
        if link.busy or self.closed:
            return
        records: list[Record] = []
        erased: list[str] = []
        size = 0
        for name in link.dirty:
            record = self.records.get(name)
            if record is None:
                erased.append(name)
            else:
                records.append(record)
                size += record.size
            if size >= self._settings.copy_bytes_max or len(records) + len(erased) >= RECORDS_MAX:
                break
        for name in (*erased, *(record.name for record in records)):
            del link.dirty[name]
            link.missed.pop(name, None)
        first = min((*link.missed.values(), *islice(link.dirty.values(), 1)), default=self._writes + 1)
        reached = first - 1
        begins, link.begun = not link.begun, True
        link.busy = True
        self._serial += 1
        ends = not link.whole and not link.dirty
        copy = Replicate(0, self.home, self.epoch, self._serial, tuple(records), tuple(erased), begins, ends)
        self._send(link, copy, reached)

    def _send(self, link: _Link, copy: Replicate, reached: int) -> None:
        def answered(reply: Reply | None) -> None:
            if self.closed or self._links.get(link.peer.id) is not link:
                return
            if isinstance(reply, ReplicateAck) and reply.later is not None and self._overtakes(reply.later):
                self._send(link, msgspec.structs.replace(copy, serial=self._serial), reached)
                return
            if not isinstance(reply, ReplicateAck) or reply.later is not None or reply.leaving:
                self._services.after(self._settings.query_timeout_us, again)
                if isinstance(reply, ReplicateAck) and reply.leaving:
                    self._declined(link.peer)
                return
            link.busy = False
            link.whole = link.whole or copy.ends
            link.acked = max(link.acked, reached)
            if link.acked < self._writes:
                self._flush(link)
            self._release()

        def again() -> None:
            if not self.closed and self._links.get(link.peer.id) is link:
                self._send(link, copy, reached)

        self._services.ask(
            link.peer,
            lambda number: msgspec.structs.replace(copy, request=number),
            answered,
            self._settings.query_timeout_us,
        )

    def _overtakes(self, later: tuple[int, int, int]) -> bool:
        """Whether a higher serial helps: a node that was lost before anyone listed it counts from 1 again."""
        if later[:2] != (self.epoch, self._services.me.incarnation):
            return False
        self._serial = max(self._serial, later[2]) + 1
        return True

    @property
    def unsafe(self) -> int:
        """How many writes wait to be safe."""
        return len(self._waiting)


class ReplicaStore:
    """What this node keeps for homes of other nodes."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        digest: Callable[[], bytes],
        hosts: Callable[[HomeId], bool],
        entry: Callable[[HomeId], Entry | None],
    ) -> None:
        self._services = services
        self._settings = settings
        self._digest = digest
        self._hosts = hosts
        self._entry = entry
        self._held: dict[HomeId, dict[str, Record]] = {}
        self._latest: dict[HomeId, tuple[int, int, int]] = {}
        self._doubtful: dict[HomeId, dict[str, None]] = {}
        self._whole: dict[HomeId, None] = {}
        self._closed = False

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages ask for copies."""
        return {Replicate: self._copy, StoreReplica: self._keep, FetchReplicas: self._fetch}  # type: ignore[dict-item]

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            assert record.home != LOCAL
            self._held.setdefault(record.home, {})[record.name] = record

    def homes(self) -> list[HomeId]:
        """Homes of which there are copies here, in the order of their ids."""
        return sorted(self._held)

    def records(self, home: HomeId) -> list[Record]:
        """The copies of one home."""
        return list(self._held.get(home, {}).values())

    def take_over(self, home: HomeId) -> list[Record]:
        """The copies of a home that this node hosts from now on: they stay on disk, as its own."""
        self._forget(home)
        return list(self._held.pop(home, {}).values())

    def is_whole(self, home: HomeId) -> bool:
        """Whether all records of a home came here in this life of the node, and every change since."""
        return home in self._whole

    def state(self, home: HomeId) -> tuple[int, int, int] | None:
        """Which message about a home was the last."""
        return self._latest.get(home)

    def throw_away(self, home: HomeId) -> None:
        """Nobody needs them."""
        names = self._held.pop(home, {})
        self._forget(home)
        self._services.persist((), [(home, name) for name in names], None)

    def _forget(self, home: HomeId) -> None:
        self._latest.pop(home, None)
        self._doubtful.pop(home, None)
        self._whole.pop(home, None)

    def _copy(self, source: Peer, message: Replicate) -> None:
        home = message.home
        order = (message.epoch, source.incarnation, message.serial)
        if self._hosts(home):
            return
        if not _are_of(home, message.records) or not self._is_entitled(source, message):
            self._services.observe("peer_refused", subject=source.id)
            return
        if self._closed:
            self._services.send(source, ReplicateAck(message.request, leaving=True))
            return
        if order < self._latest.get(home, order):
            self._services.observe("copy_stale")
            self._services.send(source, ReplicateAck(message.request, self._latest[home]))
            return
        self._latest[home] = order
        held = self._held.setdefault(home, {})
        if message.begins:
            self._doubtful[home] = dict.fromkeys(held)
            self._whole.pop(home, None)
        doubtful = self._doubtful.get(home, {})
        records = []
        for record in message.records:
            doubtful.pop(record.name, None)
            known = held.get(record.name)
            if known is None or known.version < record.version:
                held[record.name] = record
                records.append(record)
        gone = list(message.erased)
        if message.ends:
            gone += self._doubtful.pop(home, {})
            self._whole[home] = None
        erased = [name for name in gone if held.pop(name, None) is not None]

        def answer() -> None:
            self._services.send(source, ReplicateAck(message.request))

        self._services.persist(records, [(home, name) for name in erased], answer)

    def _is_entitled(self, source: Peer, message: Replicate) -> bool:
        """Whether a node is the host of a home, as far as is known here, and names no versions of epochs to come."""
        entry = self._entry(message.home)
        if entry is not None and entry.host.id != source.id and message.epoch <= entry.epoch:
            return False
        end = (message.epoch + 1) * VERSIONS_PER_EPOCH
        return all(record.version < end for record in message.records)

    def _keep(self, source: Peer, message: StoreReplica) -> None:
        records = []
        if not _are_of(message.home, message.records):
            self._services.observe("peer_refused", subject=source.id)
            return
        if not self._hosts(message.home):
            held = self._held.setdefault(message.home, {})
            for record in message.records:
                known = held.get(record.name)
                if known is None or known.version < record.version:
                    held[record.name] = record
                    records.append(record)
        if not self._closed:
            self._services.persist(records, (), lambda: self._services.send(source, StoreReplicaAck(message.request)))

    def hand_over(
        self, heir: Callable[[], Peer | None], declined: Callable[[Peer], None], then: Callable[[], None]
    ) -> None:
        """Take no more copies, and have all that are here kept by another node; goes on until that is done."""
        self._closed = True
        left = [(home, page) for home in self.homes() for page in self._pages(home)]

        def later() -> None:
            self._services.after(self._settings.query_timeout_us // 2, step)

        def step() -> None:
            if not left:
                then()
                return
            peer = heir()
            if peer is None:
                later()
                return

            def answered(reply: Reply | None) -> None:
                if isinstance(reply, StoreReplicaAck):
                    left.pop()
                    step()
                else:
                    declined(peer)
                    later()

            home, page = left[-1]
            self._services.ask(
                peer, lambda number: StoreReplica(number, home, page), answered, self._settings.query_timeout_us
            )

        step()

    def _fetch(self, source: Peer, message: FetchReplicas) -> None:
        pages = self._pages(message.home, message.after)
        page = next(pages, ())
        more = next(pages, None) is not None
        self._services.send(source, ReplicasFetched(message.request, page, more, self._digest()))

    def _pages(self, home: HomeId, after: str = "") -> Iterator[tuple[Record, ...]]:
        """The copies of a home by their names, as many at a time as a message carries."""
        held = self._held.get(home, {})
        page: list[Record] = []
        size = 0
        for name in sorted(name for name in held if name > after):
            page.append(held[name])
            size += held[name].size
            if size >= self._settings.copy_bytes_max or len(page) >= RECORDS_MAX:
                yield tuple(page)
                page, size = [], 0
        if page:
            yield tuple(page)


def _are_of(home: HomeId, records: Iterable[Record]) -> bool:
    """Whether records are what they are said to be: of one home, and never a node's own notes."""
    return home != LOCAL and all(record.home == home for record in records)
