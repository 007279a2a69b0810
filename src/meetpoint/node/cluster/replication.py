"""Replication: each record of a home is on two disks, its own and a *replica* at a next node of the overlay.

A write is safe when it is on the own disk and on that of one replica peer; only then is anything acknowledged that
depends on it. A node that is alone has no peer, and its own disk is all there is. The directory says whether it is
alone, not the overlay: a node that is cut off from all others waits.

Each peer has one message on its way at a time. What is written meanwhile waits, the latest of each name, and goes with
the next one. So a peer that comes new, or back, gets everything by the same way, and order needs no care.

Only its host says what the replicas of a home are to be: what another node says of them, which may have kept an old
deletion and say it again, is refused and counted, unless it says so under an epoch that is not known yet.

Every event that is published or taken is a write: `Replicator` goes on by callbacks, and only `hand_over` is a flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import HomeId, NodeId, Number, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.flow import Signal
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
    """Has a node keep these records of a home, and forget these names of it.

    The first messages to a peer bring everything: from one that begins to one that ends it. Names that were there
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
    """Says that they are on disk; or that a later message of this (epoch, incarnation, serial) came before.

    Or neither: the node is leaving, and takes none.
    """

    later: tuple[int, int, int] | None = None
    leaving: bool = False


class ReplicasHeld(Query, frozen=True, array_like=True, gc=False, tag="holding"):
    """Asks the host whether replicas of a home are still wanted at the sender."""

    home: HomeId


class ReplicasReleased(Reply, frozen=True, array_like=True, gc=False, tag="released"):
    """Says whether they may be thrown away."""

    free: bool


class StoreReplica(Query, frozen=True, array_like=True, gc=False, tag="keep"):
    """Has a node keep these replicas of a home: the sender, which kept them, leaves."""

    home: HomeId
    records: tuple[Record, ...]


class StoreReplicaAck(Reply, frozen=True, array_like=True, gc=False, tag="kept"):
    """Says that they are on disk."""


class FetchReplicas(Query, frozen=True, array_like=True, gc=False, tag="fetch"):
    """Asks for the replicas of a home that lost its disk, from one name on."""

    home: HomeId
    after: str


class ReplicasFetched(Reply, frozen=True, array_like=True, gc=False, tag="fetched"):
    """Some of the replicas, whether there are more, and the digest of the sender's directory."""

    records: tuple[Record, ...]
    more: bool
    digest: bytes


class _Link:
    """A replica peer, and what it still has to get."""

    __slots__ = ("acked", "begun", "busy", "dirty", "missed", "peer", "whole")

    def __init__(self, peer: Peer, dirty: dict[str, int]) -> None:
        self.peer = peer
        self.dirty = dirty  # name -> the write that changed it last, oldest first
        self.missed: dict[str, int] = {}  # of those, what was changed before too -> the first write that did not go out
        self.acked = 0
        self.busy = False
        self.begun = False
        self.whole = False


class PeerListener(Protocol):
    """Is told which peers take no replicas."""

    def next_peer(self) -> Peer | None:
        """Return the node that is to take what this one has."""

    def declined(self, peer: Peer) -> None:
        """Put a peer last that takes none."""


class Replicator:
    """Keeps the records of one home that this node hosts on two disks."""

    def __init__(
        self,
        home: HomeId,
        epoch: int,
        records: Iterable[Record],
        runtime: Runtime,
        settings: NodeSettings,
        directory: Directory,
        peers: PeerListener,
    ) -> None:
        self.home = home
        self.epoch = epoch
        self._runtime = runtime
        self._settings = settings
        self._directory = directory
        self._peers = peers
        self.records = {record.name: record for record in records}
        self._serial = 0
        self._writes = 1
        self._own = 0
        self._links: dict[NodeId, _Link] = {}
        self._waiting: deque[tuple[int, Signal[None]]] = deque()
        self._version = max((record.version for record in self.records.values()), default=0)
        self.closed = False
        self._flush_is_due = False

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, values: Iterable[tuple[str, bytes | None]], erased: Iterable[str] = ()) -> None:
        """Keep values under names (None: deleted, and remembered as such) and forget others; nobody waits for it.

        Peers hear of it a little later, with other writes.
        """
        self._put(*self._changed(values, erased))
        if not self._flush_is_due:
            self._flush_is_due = True
            self._runtime.after(LAZY_US, self._flush_lazily)

    def commit(self, values: Iterable[tuple[str, bytes | None]] = (), erased: Iterable[str] = ()) -> Signal[None]:
        """Write as `write` does, and tell peers at once; the signal is set when this and all before it is safe."""
        return self._commit(*self._changed(values, erased))

    def keep_all(self, *, write: bool) -> Signal[None]:
        """Return a signal that is set when all records are safe; `write` where they are not on this disk yet."""
        return self._commit(list(self.records.values()) if write else [], [])

    def _changed(
        self, values: Iterable[tuple[str, bytes | None]], erased: Iterable[str]
    ) -> tuple[list[Record], list[str]]:
        assert not self.closed, "a home that has been given away"
        records = [Record(self.home, name, self._next_version(), value) for name, value in values]
        names = [name for name in erased if self.records.pop(name, None) is not None]
        for record in records:
            self.records[record.name] = record
        return records, names

    def _commit(self, records: list[Record], erased: list[str]) -> Signal[None]:
        signal: Signal[None] = Signal()
        self._waiting.append((self._writes + 1, signal))
        self._put(records, erased)
        self._flush_all()
        return signal

    def _put(self, records: list[Record], erased: list[str]) -> None:
        self._writes += 1
        number = self._writes
        stored = self._runtime.persist(records, [(self.home, name) for name in erased])
        stored.then(partial(self._persisted, number))
        changed = [record.name for record in records] + erased
        for link in self._links.values():
            for name in changed:
                before = link.dirty.pop(name, None)
                if before is not None:
                    link.missed.setdefault(name, before)
                link.dirty[name] = number

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

    def _persisted(self, number: int, _: object) -> None:
        self._own = max(self._own, number)
        self._release()

    def _release(self) -> None:
        safe = min(self._own, self._copied_to())
        while self._waiting and self._waiting[0][0] <= safe:
            self._waiting.popleft()[1].set(None)

    def _copied_to(self) -> int:
        if not self._directory.others():
            return self._writes  # this node is alone
        return max((link.acked for link in self._links.values()), default=0)

    # -- replica peers -------------------------------------------------------------------------------------------------

    def keep_at(self, peers: Iterable[Peer]) -> None:
        """Keep replicas at these peers from now on. A peer that is new, or restarted, gets everything."""
        wanted = {peer.id: peer for peer in peers}
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
        """Return whether replicas at a node are wanted: it is a peer, or the peers have not everything yet."""
        return node in self._links or not self._links or not all(link.whole for link in self._links.values())

    def has_all(self, node: NodeId) -> bool:
        """Return whether a peer has every record."""
        link = self._links.get(node)
        return link is not None and not link.dirty and not link.busy

    def begin_anew(self, node: NodeId) -> None:
        """Send a peer everything when it is named again: it has not all that it seemed to have."""
        self._links.pop(node, None)

    def close(self) -> None:
        """Write nothing more: the home is another's now. Those who wait are not told."""
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
        if not self.closed and self._links.get(link.peer.id) is link:
            sent = self._runtime.ask(link.peer, copy, self._settings.query_timeout_us)
            sent.then(partial(self._answered, link, copy, reached))

    def _answered(self, link: _Link, copy: Replicate, reached: int, reply: Reply | None) -> None:
        if self.closed or self._links.get(link.peer.id) is not link:
            return
        if isinstance(reply, ReplicateAck) and reply.later is not None and self._overtakes(reply.later):
            self._send(link, msgspec.structs.replace(copy, serial=self._serial), reached)
            return
        if not isinstance(reply, ReplicateAck) or reply.later is not None or reply.leaving:
            self._runtime.after(self._settings.query_timeout_us, lambda: self._send(link, copy, reached))
            if isinstance(reply, ReplicateAck) and reply.leaving:
                self._peers.declined(link.peer)
            return
        link.busy = False
        link.whole = link.whole or copy.ends
        link.acked = max(link.acked, reached)
        if link.acked < self._writes:
            self._flush(link)
        self._release()

    def _overtakes(self, later: tuple[int, int, int]) -> bool:
        """Return whether a higher serial helps: a node that was lost before anyone listed it counts from 1 again."""
        if later[:2] != (self.epoch, self._runtime.me.incarnation):
            return False
        self._serial = max(self._serial, later[2]) + 1
        return True

    @property
    def unsafe(self) -> int:
        """The number of writes that wait to be safe."""
        return len(self._waiting)


class ReplicaStore:
    """Keeps replicas for homes that other nodes host."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        directory: Directory,
        hosted: Mapping[HomeId, Replicator],
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._directory = directory
        self._hosted = hosted
        self._held: dict[HomeId, dict[str, Record]] = {}
        self._latest: dict[HomeId, tuple[int, int, int]] = {}
        self._unconfirmed: dict[HomeId, dict[str, None]] = {}
        self._whole: dict[HomeId, None] = {}
        self._closed = False

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about replicas."""
        return {Replicate: self._replicate, StoreReplica: self._store, FetchReplicas: self._fetch}  # type: ignore[dict-item]

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            assert record.home != LOCAL
            self._held.setdefault(record.home, {})[record.name] = record

    def homes(self) -> list[HomeId]:
        """Return the homes of which there are replicas here, in the order of their ids."""
        return sorted(self._held)

    def records(self, home: HomeId) -> list[Record]:
        """Return the replicas of one home."""
        return list(self._held.get(home, {}).values())

    def take_over(self, home: HomeId) -> list[Record]:
        """Return the replicas of a home that this node hosts from now on: they stay on disk, as its own."""
        self._forget(home)
        return list(self._held.pop(home, {}).values())

    def is_whole(self, home: HomeId) -> bool:
        """Return whether all records of a home came here in this life of the node, and every change since."""
        return home in self._whole

    def state(self, home: HomeId) -> tuple[int, int, int] | None:
        """Return the order of the last message about a home."""
        return self._latest.get(home)

    def throw_away(self, home: HomeId) -> None:
        """Erase the replicas of a home."""
        names = self._held.pop(home, {})
        self._forget(home)
        self._runtime.persist((), [(home, name) for name in names])

    def _forget(self, home: HomeId) -> None:
        self._latest.pop(home, None)
        self._unconfirmed.pop(home, None)
        self._whole.pop(home, None)

    def _replicate(self, source: Peer, message: Replicate) -> None:
        home = message.home
        order = (message.epoch, source.incarnation, message.serial)
        if home in self._hosted:
            return
        if not _are_of(home, message.records) or not self._is_host(source, message):
            self._runtime.observe("peer_refused", subject=source.id)
            return
        if self._closed:
            self._runtime.send(source, ReplicateAck(message.request, leaving=True))
            return
        if order < self._latest.get(home, order):
            self._runtime.observe("copy_stale")
            self._runtime.send(source, ReplicateAck(message.request, self._latest[home]))
            return
        self._latest[home] = order
        held = self._held.setdefault(home, {})
        if message.begins:
            self._unconfirmed[home] = dict.fromkeys(held)
            self._whole.pop(home, None)
        unconfirmed = self._unconfirmed.get(home, {})
        records = []
        for record in message.records:
            unconfirmed.pop(record.name, None)
            known = held.get(record.name)
            if known is None or known.version < record.version:
                held[record.name] = record
                records.append(record)
        gone = list(message.erased)
        if message.ends:
            gone += self._unconfirmed.pop(home, {})
            self._whole[home] = None
        erased = [name for name in gone if held.pop(name, None) is not None]

        stored = self._runtime.persist(records, [(home, name) for name in erased])
        stored.then(partial(self._answer, source, ReplicateAck(message.request)))

    def _answer(self, source: Peer, reply: Reply, _: object) -> None:
        self._runtime.send(source, reply)

    def _is_host(self, source: Peer, message: Replicate) -> bool:
        """Return whether a node hosts a home, as far as is known, and names no versions of epochs to come."""
        entry = self._directory.get(message.home)
        if entry is not None and entry.host.id != source.id and message.epoch <= entry.epoch:
            return False
        end = (message.epoch + 1) * VERSIONS_PER_EPOCH
        return all(record.version < end for record in message.records)

    def _store(self, source: Peer, message: StoreReplica) -> None:
        records = []
        if not _are_of(message.home, message.records):
            self._runtime.observe("peer_refused", subject=source.id)
            return
        if message.home not in self._hosted:
            held = self._held.setdefault(message.home, {})
            for record in message.records:
                known = held.get(record.name)
                if known is None or known.version < record.version:
                    held[record.name] = record
                    records.append(record)
        if not self._closed:
            self._runtime.persist(records).then(lambda _: self._runtime.send(source, StoreReplicaAck(message.request)))

    async def hand_over(self, peers: PeerListener) -> None:
        """Take no more replicas, and have all that are here kept by another node; go on until that is done."""
        self._closed = True
        left = [(home, page) for home in self.homes() for page in self._pages(home)]
        while left:
            peer = peers.next_peer()
            if peer is not None:
                reply = await self._runtime.ask(peer, StoreReplica(0, *left[-1]), self._settings.query_timeout_us)
                if isinstance(reply, StoreReplicaAck):
                    left.pop()
                    continue
                peers.declined(peer)
            await self._runtime.sleep(self._settings.query_timeout_us // 2)

    def _fetch(self, source: Peer, message: FetchReplicas) -> None:
        pages = self._pages(message.home, message.after)
        page = next(pages, ())
        more = next(pages, None) is not None
        self._runtime.send(source, ReplicasFetched(message.request, page, more, self._directory.digest))

    def _pages(self, home: HomeId, after: str = "") -> Iterator[tuple[Record, ...]]:
        """Yield the replicas of a home by their names, as many at a time as a message carries."""
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
    """Return whether all records are of one home, and not a node's own notes."""
    return home != LOCAL and all(record.home == home for record in records)
