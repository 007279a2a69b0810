"""The directory: which homes there are, and which node hosts each. All nodes' lists come to agree.

An entry is replaced by one with a higher (epoch, incarnation of the host): the epoch grows when a home moves to another
node or comes back without its disk, the incarnation when its node restarts. Merging is union, so lists may meet in any
order. Two rules make the list fit to decide when an event has reached everyone:

- lists are merged whole, never in parts: a node that has learnt an entry of another has learnt all that the other knew;
- a home serves subscribers only after two other nodes have its entry on disk (one, where there is only one).

So a node that has merged the list of every home in its own list has the entries of all homes that serve. A list has one
digest, however it came about.

The schema of the network travels with the lists (`SchemaGossip`). A client declares attributes at any node; the set of
declarations only grows, so sets may meet in any order too, and a part of the network that was cut off has its say. Two
declarations of one attribute that differ can only come from two sides of such a cut, as a node refuses what contradicts
what it knows; then the same one counts everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.errors import SchemaError
from meetpoint.language.schema.schema import Schema
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.records import LOCAL, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["Directory", "Entry", "GossipPayload", "SchemaGossip", "Sync", "Synced"]


NOTE: Final = "schema"
BYTES_MAX: Final = 256 << 10
"""How long all declarations are together, at most: they travel in one message."""


class SchemaGossip:
    """Knows all declarations that this node has heard of, and spreads them with the directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._texts: dict[str, Schema] = {}
        self._version = 0
        self.digest = b""
        """Identifies the set of declarations; empty where there are none."""
        self.schema: Schema | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All declarations, in one order everywhere."""
        return tuple(sorted(self._texts))

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            if record.name == NOTE and record.value is not None:
                self._version = record.version
                self._add(msgspec.msgpack.decode(record.value, type=tuple[str, ...]))

    def declare(self, text: str) -> None:
        """Add a client's declarations; raise SchemaError where they contradict what is known."""
        given = Schema.from_yaml(text)
        if self.schema is not None:
            known = tuple(attribute for attribute in self.schema if attribute.name not in given)
            self.schema.evolve(Schema((*known, *given.attributes), given.name))
        texts = [Schema((attribute,)).to_yaml() for attribute in given]
        texts += [] if given.name is None else [Schema((), given.name).to_yaml()]
        size = sum(len(each.encode()) for each in {*self._texts, *texts})
        if size > BYTES_MAX:
            raise SchemaError(f"schema: with this it would have {size:,} bytes; declare at most {BYTES_MAX:,}")
        self._keep(texts)

    def learn(self, texts: Iterable[str]) -> None:
        """Add the declarations that another node knows."""
        new = [text for text in texts if text not in self._texts]
        size = sum(len(each.encode()) for each in (*self._texts, *new))
        if size > BYTES_MAX:
            self._runtime.observe("schema_oversized")
        elif new:
            self._keep(new)

    def _keep(self, texts: Iterable[str]) -> None:
        if self._add(texts):
            self._version += 1
            record = Record(LOCAL, NOTE, self._version, msgspec.msgpack.encode(self.texts))
            self._runtime.persist((record,))

    def _add(self, texts: Iterable[str]) -> bool:
        before = len(self._texts)
        for text in texts:
            if text in self._texts:
                continue
            try:
                self._texts[text] = Schema.from_yaml(text)
            except SchemaError:
                self._runtime.observe("schema_malformed")  # of a peer that erred
        if len(self._texts) == before:
            return False
        self.schema = _union(self._texts[text] for text in self.texts)
        self.digest = hashlib.blake2b(msgspec.msgpack.encode(self.texts), digest_size=8).digest()
        return True


def _union(schemas: Iterable[Schema]) -> Schema:
    """Return one schema of many, given in one order everywhere; the first of two that clash counts."""
    union = Schema(())
    for each in schemas:
        for attribute in each:
            if attribute.name not in union:
                try:
                    union = Schema((*union.attributes, attribute), union.name)
                except SchemaError:
                    continue  # one is an object, and the other is not
        if union.name is None and each.name is not None:
            union = Schema(union.attributes, each.name)
    return union


PREFIX: Final = "directory/"
MERGED_MAX: Final = 256
"""How many digests of others' lists are remembered as merged."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entry of a home: the node that hosts it, or that it is gone for good."""

    home: HomeId
    epoch: Epoch
    host: Peer
    gone: bool = False

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The order of entries of one home: the higher one counts."""
        return self.epoch, self.host.incarnation, self.gone


class Sync(Query, frozen=True, array_like=True, gc=False, tag="sync"):
    """Compares lists. With entries: the whole list of the sender."""

    digest: bytes
    entries: tuple[Entry, ...] = ()
    schema_digest: bytes = b""
    schema: tuple[str, ...] = ()
    """All declarations of the network's schema, where they are told."""
    payload_digest: bytes = b""
    payload: bytes = b""
    """The `GossipPayload`, where it is told."""


class Synced(Reply, frozen=True, array_like=True, gc=False, tag="synced"):
    """The digest of a list, the whole list where the asker's differs, and whether its node is a member."""

    digest: bytes
    entries: tuple[Entry, ...]
    member: bool
    schema_digest: bytes = b""
    schema: tuple[str, ...] = ()
    payload_digest: bytes = b""
    payload: bytes = b""


class GossipPayload(Protocol):
    """Further state that nodes compare with their lists: told whole, with the whole list that goes with it."""

    @property
    def digest(self) -> bytes:
        """Identifies all that is known; empty at nodes without a payload."""

    def pack(self) -> bytes:
        """Return all that is known."""

    def learn(self, data: bytes) -> None:
        """Add what another node knows; its list is merged by now."""

    def admits(self, digest: bytes) -> bool:
        """Return whether a node with this digest, or none, is answered."""

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""


class Directory:
    """Keeps one node's list of homes, and compares it with those of others."""

    def __init__(self, runtime: Runtime, settings: NodeSettings, overlay: Overlay) -> None:
        self._runtime = runtime
        self._settings = settings
        self._overlay = overlay
        self._entries: dict[HomeId, Entry] = {}
        self._homes: list[HomeId] | None = None  # as long as no entry changes
        self._others: list[Peer] | None = None
        self.schema_gossip = SchemaGossip(runtime)
        self.payload: GossipPayload | None = None
        """Further state of a scheme that nodes compare with their lists."""
        self._sum = 0
        self._merged: dict[bytes, None] = {}
        self._listeners: list[Callable[[list[Entry]], None]] = []
        self.digest = b""
        self._seal()

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handler of comparisons."""
        return {Sync: self._sync}  # type: ignore[dict-item]

    def listen(self, listener: Callable[[list[Entry]], None]) -> None:
        """Call back with the entries that are new or replace others, those of one list together."""
        self._listeners.append(listener)

    # -- what it knows -------------------------------------------------------------------------------------------------

    def get(self, home: bytes) -> Entry | None:
        """Return the entry of a home."""
        return self._entries.get(HomeId(home))

    def entries(self) -> list[Entry]:
        """Return all entries, in the order of the homes' ids."""
        return [self._entries[home] for home in sorted(self._entries)]

    def homes(self) -> list[HomeId]:
        """Return all homes that are not gone, in the order of their ids."""
        if self._homes is None:
            self._homes = [entry.home for entry in self.entries() if not entry.gone]
        return self._homes

    def host(self, home: bytes) -> Peer | None:
        """Return the node that hosts a home; None where it is unknown or gone."""
        entry = self._entries.get(HomeId(home))
        return None if entry is None or entry.gone else entry.host

    def others(self) -> list[Peer]:
        """Return all other nodes that host a home, in the order of their ids."""
        if self._others is None:
            me = self._runtime.me.id
            hosts = {entry.host.id: entry.host for entry in self._entries.values() if not entry.gone}
            self._others = [hosts[id_] for id_ in sorted(hosts) if id_ != me]
        return self._others

    def has_merged(self, digest: bytes) -> bool:
        """Return whether everything in another's list, known by its digest, is in this one."""
        return digest == self.digest or digest in self._merged

    # -- what it learns ------------------------------------------------------------------------------------------------

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        records = list(records)
        self.schema_gossip.recover(records)
        if self.payload is not None:
            self.payload.recover(records)
        for record in records:
            if record.name.startswith(PREFIX) and record.value is not None:
                self._put(msgspec.msgpack.decode(record.value, type=Entry))
        self._seal()

    def learn(self, entries: Iterable[Entry]) -> None:
        """Merge a whole list."""
        changed = self._merge(entries)
        if changed:
            self._runtime.persist([_record(entry) for entry in changed])
            self._tell(changed)

    def store(self, entries: Iterable[Entry]) -> Signal[None]:
        """Merge a whole list; the signal is set when all of it is on disk, also what was known before."""
        changed = self._merge(entries)
        stored = self._runtime.persist([_record(entry) for entry in changed])
        if changed:
            self._tell(changed)
        return stored

    def _merge(self, entries: Iterable[Entry]) -> list[Entry]:
        changed = [entry for entry in entries if self._put(entry)]
        self._seal()
        return changed

    def _tell(self, changed: list[Entry]) -> None:
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

    def compare(self, peer: Peer, *, tell: bool = False) -> Signal[Synced | None]:
        """Merge a peer's list into this one, and this one into the peer's; `tell` sends it unasked, for its disk.

        The signal is the peer's answer, once it is merged; None where there is none in time.
        """
        digest, gossip = self.digest, self.schema_gossip
        entries = tuple(self.entries()) if tell else ()
        told = (gossip.digest, gossip.texts if tell else (), self._payload_digest(), self._packed() if tell else b"")
        compared: Signal[Synced | None] = Signal()

        def answered(reply: Reply | None) -> None:
            synced = reply if isinstance(reply, Synced) else None
            if synced is not None:
                self._learn_all(peer, synced, digest, tell)
            compared.set(synced)

        self._runtime.ask(peer, Sync(0, digest, entries, *told), self._settings.query_timeout_us).then(answered)
        return compared

    def _learn_all(self, peer: Peer, reply: Synced, asked: bytes, told: bool) -> None:
        """Merge an answer to a question with the digest `asked`; tell the peer what it lacks, unless it was told."""
        self.schema_gossip.learn(reply.schema)
        self.learn(reply.entries)
        if reply.entries or reply.digest == asked:
            self._remember(reply.digest)
        self._learn_payload(reply.payload)
        theirs = (reply.digest, reply.schema_digest, reply.payload_digest)
        if theirs != (self.digest, self.schema_gossip.digest, self._payload_digest()) and not told:
            self.compare(peer, tell=True)

    def _sync(self, source: Peer, message: Sync) -> None:
        if self.payload is not None and not self.payload.admits(message.payload_digest):
            self._runtime.observe("peer_refused", subject=source.id)
            return
        self.schema_gossip.learn(message.schema)
        if message.entries:
            self.store(message.entries).then(lambda _: self._answer(source, message))
            self._remember(message.digest)
            self._learn_payload(message.payload)
        else:
            self._answer(source, message)

    def _answer(self, source: Peer, message: Sync) -> None:
        entries = () if self.digest == message.digest else tuple(self.entries())
        gossip, payload = self.schema_gossip, self._payload_digest()
        texts = () if gossip.digest == message.schema_digest else gossip.texts
        packed = b"" if payload == message.payload_digest else self._packed()
        is_member = self._overlay.view().joined
        self._runtime.send(
            source, Synced(message.request, self.digest, entries, is_member, gossip.digest, texts, payload, packed)
        )

    def _payload_digest(self) -> bytes:
        return b"" if self.payload is None else self.payload.digest

    def _packed(self) -> bytes:
        return b"" if self.payload is None else self.payload.pack()

    def _learn_payload(self, data: bytes) -> None:
        if data and self.payload is not None:
            self.payload.learn(data)


def _record(entry: Entry) -> Record:
    return Record(LOCAL, PREFIX + entry.home.hex(), entry.epoch, msgspec.msgpack.encode(entry))


def _hash(entry: Entry) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(entry), digest_size=8).digest(), "big")
