"""Which homes there are, and which node hosts each: every node's list, which all lists grow to agree on.

An entry is replaced by one with a higher (epoch, incarnation of the host): the epoch grows when a home moves to another
node or comes back without its disk, the incarnation when its node restarts. Merging is union, so lists may meet in any
order. Two rules make the list fit to decide when an event has reached everyone:

- lists are merged whole, never in parts: who has learnt an entry of a node has learnt all that this node knew;
- a home serves subscribers only after two other nodes have its entry on disk (one, where there is only one).

So, whoever has merged the list of every home in its own list has the entries of all homes that serve. A list has one
digest, however it came about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.schema_gossip import SchemaGossip
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.records import LOCAL, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["Directory", "Entry", "Rider", "Sync", "Synced"]

PREFIX: Final = "directory/"
MERGED_MAX: Final = 256
"""How many digests of others' lists are remembered as merged."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One home: the node that hosts it, or that it is gone for good."""

    home: HomeId
    epoch: Epoch
    host: Peer
    gone: bool = False

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The higher one counts."""
        return self.epoch, self.host.incarnation, self.gone


class Sync(Query, frozen=True, array_like=True, gc=False, tag="sync"):
    """Compare lists. With entries: the whole list of the sender."""

    digest: bytes
    entries: tuple[Entry, ...] = ()
    schema_digest: bytes = b""
    schema: tuple[str, ...] = ()
    """All declarations of the network's schema (`schema_spread`), where they are told."""
    rider_digest: bytes = b""
    rider: bytes = b""
    """What else is compared (`Rider`), where it is told."""


class Synced(Reply, frozen=True, array_like=True, gc=False, tag="synced"):
    """The digest of a list, the whole list where the asker's differs, and whether its node is a member."""

    digest: bytes
    entries: tuple[Entry, ...]
    member: bool
    schema_digest: bytes = b""
    schema: tuple[str, ...] = ()
    rider_digest: bytes = b""
    rider: bytes = b""


class Rider(Protocol):
    """Something that nodes compare with their lists: told whole, together with the whole list that goes with it."""

    @property
    def digest(self) -> bytes:
        """Of all that is known; other nodes without one say nothing."""

    def pack(self) -> bytes:
        """All that is known."""

    def learn(self, data: bytes) -> None:
        """Another node told what it knows; its list is merged by now."""

    def admits(self, digest: bytes) -> bool:
        """Whether a node that says this digest, or none, is answered."""

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""


class Directory:
    """One node's list of homes."""

    def __init__(self, services: Runtime, settings: NodeSettings, is_member: Callable[[], bool]) -> None:
        self._services = services
        self._settings = settings
        self._is_member = is_member
        self._entries: dict[HomeId, Entry] = {}
        self._homes: list[HomeId] | None = None  # as long as no entry changes
        self._others: list[Peer] | None = None
        self.spread = SchemaGossip(services)
        """What else all nodes agree on, and compare with their lists."""
        self.rider: Rider | None = None
        """And what a scheme's nodes do."""
        self._sum = 0
        self._merged: dict[bytes, None] = {}
        self._listeners: list[Callable[[list[Entry]], None]] = []
        self.digest = b""
        self._seal()

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are the directory's."""
        return {Sync: self._sync}  # type: ignore[dict-item]

    def listen(self, listener: Callable[[list[Entry]], None]) -> None:
        """Call back with the entries that are new or replace others, those of one list together."""
        self._listeners.append(listener)

    # -- what it knows -------------------------------------------------------------------------------------------------

    def get(self, home: bytes) -> Entry | None:
        """The entry of a home."""
        return self._entries.get(HomeId(home))

    def entries(self) -> list[Entry]:
        """All entries, in the order of the homes' ids."""
        return [self._entries[home] for home in sorted(self._entries)]

    def homes(self) -> list[HomeId]:
        """All homes that are not gone, in the order of their ids."""
        if self._homes is None:
            self._homes = [entry.home for entry in self.entries() if not entry.gone]
        return self._homes

    def host(self, home: bytes) -> Peer | None:
        """The node that hosts a home; None where it is unknown or gone."""
        entry = self._entries.get(HomeId(home))
        return None if entry is None or entry.gone else entry.host

    def others(self) -> list[Peer]:
        """All other nodes that host a home, in the order of their ids."""
        if self._others is None:
            me = self._services.me.id
            hosts = {entry.host.id: entry.host for entry in self._entries.values() if not entry.gone}
            self._others = [hosts[id_] for id_ in sorted(hosts) if id_ != me]
        return self._others

    def has_merged(self, digest: bytes) -> bool:
        """Whether everything in another's list, known by its digest, is in this one."""
        return digest == self.digest or digest in self._merged

    # -- what it learns ------------------------------------------------------------------------------------------------

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        records = list(records)
        self.spread.recover(records)
        if self.rider is not None:
            self.rider.recover(records)
        for record in records:
            if record.name.startswith(PREFIX) and record.value is not None:
                self._put(msgspec.msgpack.decode(record.value, type=Entry))
        self._seal()

    def learn(self, entries: Iterable[Entry], then: Callable[[], None] | None = None) -> None:
        """Merge a whole list; `then` is called when what was new in it is on disk."""
        changed = [entry for entry in entries if self._put(entry)]
        self._seal()
        if changed or then is not None:
            self._services.persist([_record(entry) for entry in changed], (), then)
        if changed:
            for listener in self._listeners:
                listener(changed)

    def _put(self, entry: Entry) -> bool:
        known = self._entries.get(entry.home)
        if known is not None and known.rank >= entry.rank:
            return False
        if known is not None:
            self._sum ^= _hash(known)
        self._entries[entry.home] = entry
        self._homes = self._others = None
        self._sum ^= _hash(entry)
        return True

    def _seal(self) -> None:
        digest = self._sum.to_bytes(8, "big")
        if digest == self.digest:
            return
        if self.digest:
            self._remember(self.digest)
        self.digest = digest

    def _remember(self, digest: bytes) -> None:
        self._merged[digest] = None
        if len(self._merged) > MERGED_MAX:
            del self._merged[next(iter(self._merged))]

    # -- comparing -----------------------------------------------------------------------------------------------------

    def compare(self, peer: Peer, then: Callable[[Synced | None], None], *, tell: bool = False) -> None:
        """Merge a peer's list into this one, and this one into the peer's; `tell` sends it unasked, for its disk."""
        digest = self.digest
        spread = self.spread
        entries = tuple(self.entries()) if tell else ()
        told = (spread.digest, spread.texts if tell else (), self._ridden(), self._packed() if tell else b"")

        def answered(reply: Reply | None) -> None:
            if not isinstance(reply, Synced):
                then(None)
                return
            self.spread.learn(reply.schema)
            self.learn(reply.entries)
            if reply.entries or reply.digest == digest:
                self._remember(reply.digest)
            self._hear(reply.rider)
            theirs = (reply.digest, reply.schema_digest, reply.rider_digest)
            if theirs != (self.digest, spread.digest, self._ridden()) and not tell:
                self.compare(peer, lambda _: None, tell=True)
            then(reply)

        self._services.ask(
            peer, lambda number: Sync(number, digest, entries, *told), answered, self._settings.query_timeout_us
        )

    def _sync(self, source: Peer, message: Sync) -> None:
        def answer() -> None:
            entries = () if self.digest == message.digest else tuple(self.entries())
            spread = self.spread
            texts = () if spread.digest == message.schema_digest else spread.texts
            rider = self._ridden()
            packed = b"" if rider == message.rider_digest else self._packed()
            reply = Synced(
                message.request, self.digest, entries, self._is_member(), spread.digest, texts, rider, packed
            )  # fmt: skip
            self._services.send(source, reply)

        if self.rider is not None and not self.rider.admits(message.rider_digest):
            self._services.observe("peer_refused", subject=source.id)
            return
        self.spread.learn(message.schema)
        if message.entries:
            self.learn(message.entries, answer)
            self._remember(message.digest)
            self._hear(message.rider)
        else:
            answer()

    def _ridden(self) -> bytes:
        return b"" if self.rider is None else self.rider.digest

    def _packed(self) -> bytes:
        return b"" if self.rider is None else self.rider.pack()

    def _hear(self, rider: bytes) -> None:
        if rider and self.rider is not None:
            self.rider.learn(rider)


def _record(entry: Entry) -> Record:
    return Record(LOCAL, PREFIX + entry.home.hex(), entry.epoch, msgspec.msgpack.encode(entry))


def _hash(entry: Entry) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(entry), digest_size=8).digest(), "big")
