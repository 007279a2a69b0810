"""Entries at the homes here by their keys, and the leases on summaries of which keys are in use.

A match looks only at entries under keys that the event has.

A publisher that has a lease on a home's summary skips the home for events that have none of its keys. So an entry
under a new key is acknowledged only when every publisher with a lease knows the key, or its lease is over (`leases`).
Publishers take the clock margin from what they rely on; for leases that are unknown here, the home adds it as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from meetpoint.api.ids import HomeId, NodeId, Peer
from meetpoint.api.messages import Reply
from meetpoint.matching.keys.key_plan import LiveKeys
from meetpoint.matching.keys.meet_keys import MeetKey
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.entry_table import (
    EntryTable,
    Item,
    Matched,
    Read,
    StoredEntry,
    by_home,
    conjunction_in,
    owner_of,
)
from meetpoint.placement.entries.leases import Lease, LeaseTable, unknown_us
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.placement.ownership.range_store import RangeListener
from meetpoint.schemes.meet.entries import KeyEntry, child_keys, read_key_entry
from meetpoint.schemes.meet.messages import KeySummary, SummaryUpdate, SummaryUpdateAck, group_keys

__all__ = ["KeyLeases", "KeyTable", "KeyTables"]

CHANGES_MAX = 4_096
"""Changes of a home's keys that are remembered, to tell only what is new."""
TIMEOUT_US = 1_000_000
AGAIN_US = TIMEOUT_US // 4
"""How long to wait before a publisher that was not reached is told again."""


class _SummaryLease(Lease):
    """A publisher's lease on the summary of a home here."""

    __slots__ = ("asking", "known", "listed", "peer")

    def __init__(self, peer: Peer, known: int) -> None:
        super().__init__()
        self.peer = peer
        self.known = known  # the serial it is certain to know
        self.asking = False
        self.listed = False  # whether the directory has listed it since


class KeyLeases:
    """The summary of one home here, and the leases of publishers on it."""

    def __init__(
        self,
        home: HomeId,
        runtime: Runtime,
        home_manager: HomeManager,
        ownership: Ownership,
        lease_us: int,
        keys: LiveKeys,
        *,
        unknown_us: int,
    ) -> None:
        self._home = home
        self._runtime = runtime
        self._home_manager = home_manager
        self._ownership = ownership
        self._lease_us = lease_us
        self._keys = keys
        self._base = 1 + runtime.random.getrandbits(48)
        self._serial = 0
        self._changes: list[tuple[bool, MeetKey]] = []  # the last ones, up to `_serial`
        self._leases: LeaseTable[NodeId, _SummaryLease] = LeaseTable()
        self._leases.inherit(home, unknown_us, runtime.now)
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._timer: int | None = None
        self.closed = False

    def close(self) -> None:
        """End: the home is not here any more, and those who wait ask again where it is."""
        self.closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._runtime.cancel(self._timer)

    @property
    def owed_us(self) -> int:
        """How long publishers may still have a summary of this home, granted here or before."""
        return self._leases.owed_us(self._home, self._runtime.now)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def changed(self, key: MeetKey, *, added: bool) -> None:
        """Note that a key came into use, or fell out of use."""
        self._serial += 1
        self._changes.append((added, key))
        if len(self._changes) > 2 * CHANGES_MAX:
            del self._changes[:CHANGES_MAX]

    def when_known(self, then: Callable[[], None]) -> None:
        """Call `then` when every publisher with a summary knows the keys of now."""
        self._waiting.append((self._serial, then))
        self._go_on()

    def summary(self, base: int, serial: int) -> KeySummary:
        """Return all keys, or what has changed since a serial."""
        missed = self._serial - serial
        if base != self._base or not 0 <= missed <= len(self._changes):
            return KeySummary(self._base, self._serial, 0, True, group_keys(self._keys), ())
        latest = {key: added for added, key in self._changes[len(self._changes) - missed :]}
        added = group_keys(key for key, is_added in latest.items() if is_added)
        removed = group_keys(key for key, is_added in latest.items() if not is_added)
        return KeySummary(self._base, self._serial, serial, False, added, removed)

    # -- leases --------------------------------------------------------------------------------------------------------

    def grant(self, peer: Peer, base: int, serial: int) -> KeySummary:
        """Grant a lease to a publisher that knows a serial of some base, and return the summary for it."""
        now = self._runtime.now
        lease = self._leases.granted.get(peer.id)
        if lease is not None and peer.incarnation < lease.peer.incarnation:
            return self.summary(base, serial)  # a late question of a former life: the lease of the present one counts
        knows = base == self._base and 0 <= serial <= self._serial
        if lease is None or lease.until <= now or lease.peer.incarnation != peer.incarnation:
            lease = self._leases.granted[peer.id] = _SummaryLease(peer, serial if knows else self._serial)
        elif knows:
            # Only what it says is certain: an answer may be lost, and a question come late.
            lease.known = max(lease.known, serial)
        lease.until = now + self._lease_us
        return self.summary(base, serial)

    def _go_on(self) -> None:
        """Call those who need not wait longer, and tell publishers what they must know for the rest."""
        if self.closed or not self._waiting:
            return
        now = self._runtime.now
        ready_at = self._leases.ready_at(self._home) or 0
        if now < ready_at:
            self._look_again(ready_at)
            return
        self._forget_the_lost(now)
        last = self._waiting[-1][0]
        behind = [lease for lease in self._leases.granted.values() if lease.known < last]
        reached = min((lease.known for lease in behind), default=last)
        due = [then for serial, then in self._waiting if serial <= reached]
        self._waiting = [each for each in self._waiting if each[0] > reached]
        for then in due:
            then()
        if self._waiting and not self.closed:
            for lease in behind:
                self._tell(lease)
            self._look_again(min(lease.until for lease in behind))

    def _forget_the_lost(self, now: int) -> None:
        """Drop leases of nodes that left or began a new incarnation; a new node may not be listed yet."""
        there = {peer.id: peer.incarnation for peer in self._home_manager.directory.others()}
        for node, lease in list(self._leases.granted.items()):
            incarnation = there.get(node)
            if incarnation is None:
                is_lost = lease.listed
            else:
                lease.listed = True
                is_lost = incarnation > lease.peer.incarnation
            if is_lost or lease.until <= now:
                del self._leases.granted[node]

    def _tell(self, lease: _SummaryLease) -> None:
        if lease.asking:
            return
        lease.asking = True
        summary, version = self.summary(self._base, lease.known), self._ownership.owned_ranges[self._home].version

        def answered(reply: Reply | None) -> None:
            if isinstance(reply, SummaryUpdateAck) and reply.base == self._base:
                lease.known = max(lease.known, min(reply.serial, self._serial))
                go_on()
            else:
                self._runtime.after(AGAIN_US, go_on)

        def go_on() -> None:
            lease.asking = False
            self._go_on()

        self._runtime.ask(lease.peer, SummaryUpdate(0, self._home, version, summary), TIMEOUT_US).then(answered)

    def _look_again(self, at: int) -> None:
        if self._timer is not None:
            self._runtime.cancel(self._timer)
        self._timer = self._runtime.after(max(at - self._runtime.now, 1), self._go_on)


# -- entry tables ------------------------------------------------------------------------------------------------------


class KeyTable(EntryTable[KeyEntry, MeetKey]):
    """The entries at one home, by key, and the marks of its crowded keys.

    `live` are the keys in use, which `leases` speak of.
    """

    def __init__(self, live: LiveKeys, leases: KeyLeases) -> None:
        super().__init__(lambda item: item.read.place.key)
        self.live = live
        self.leases = leases
        self._marks: dict[MeetKey, dict[str, KeyEntry]] = {}
        self._marked: dict[str, MeetKey] = {}
        self._counts: Counter[tuple[MeetKey, tuple[int, ...]]] = Counter()

    def put(self, name: str, owner: HomeId, entry: KeyEntry) -> None:
        """Add a conjunction of a home."""
        conjunction = conjunction_in(entry.text, entry.at)
        assert conjunction is not None, "what is read is well formed"
        self.add(name, Item(owner, Read(StoredEntry(entry.number, entry.at, entry.text), conjunction, entry)))
        self._counts[entry.key, entry.path] += 1
        self._use(entry.key)

    def mark(self, name: str, entry: KeyEntry) -> None:
        """Mark a key as crowded."""
        self._marked[name] = entry.key
        self._marks.setdefault(entry.key, {})[name] = entry
        self._use(entry.key)

    def take(self, name: str) -> None:
        """Remove a conjunction or a mark."""
        item = self.remove(name)
        if item is not None:
            entry = item.read.place
            self._counts[entry.key, entry.path] -= 1
            if not self._counts[entry.key, entry.path]:
                del self._counts[entry.key, entry.path]
            self._disuse(entry.key)
        elif name in self._marked:
            key = self._marked.pop(name)
            del self._marks[key][name]
            if not self._marks[key]:
                del self._marks[key]
            self._disuse(key)

    def _use(self, key: MeetKey) -> None:
        if key not in self.live:
            self.leases.changed(key, added=True)
        self.live.add(key)

    def _disuse(self, key: MeetKey) -> None:
        self.live.discard(key)
        if key not in self.live:
            self.leases.changed(key, added=False)

    def count(self, key: MeetKey, path: tuple[int, ...]) -> int:
        """Return how many conjunctions lie under a key, or a child of it."""
        return self._counts.get((key, path), 0)

    def find(self, attributes: Mapping[str, object]) -> tuple[Matched, list[KeyEntry]]:
        """Return, by home, the SubIDs of what an event satisfies; and the marks of its crowded keys."""
        keys = sorted(self.live.keys_of_event(attributes))
        marks = [mark for key in keys for mark in self._marks.get(key, {}).values()]
        return by_home(self.match_in(attributes, keys)), marks


class KeyTables(RangeListener):
    """The entries at all homes here. `ownership` is set by the scheme, which makes it later than this."""

    ownership: Ownership

    def __init__(self, runtime: Runtime, home_manager: HomeManager, lease_us: int, children: int) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._lease_us = lease_us
        self._children = children
        self.at: dict[HomeId, KeyTable] = {}

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Start a home, or note that it owns other ranges: publishers may have summaries that nobody here knows of."""
        table = self.at.get(home)
        unknown = unknown_us(owed_us, self._lease_us)
        if table is None:
            live = LiveKeys()
            self.at[home] = KeyTable(live, self._begin_leases(home, live, unknown))
        else:
            table.leases.close()
            table.leases = self._begin_leases(home, table.live, max(unknown, table.leases.owed_us))

    def _begin_leases(self, home: HomeId, live: LiveKeys, unknown: int) -> KeyLeases:
        return KeyLeases(
            home, self._runtime, self._home_manager, self.ownership, self._lease_us, live, unknown_us=unknown
        )

    def owed_us(self, home: HomeId) -> int:
        """Return how long publishers may still have a summary of a home here."""
        table = self.at.get(home)
        return self._lease_us if table is None else table.leases.owed_us

    def ended(self, home: HomeId) -> None:
        """Forget a home that owns nothing here any more."""
        table = self.at.pop(home, None)
        if table is not None:
            table.leases.close()

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Add an entry at a home here, or the mark of a crowded key."""
        read, owner = read_key_entry(entry.body), owner_of(name)
        if read is not None and not read.text:
            self.at[home].mark(name, read)
        elif read is not None and owner is not None:
            self.at[home].put(name, owner, read)
        else:
            self._runtime.observe("entry_malformed")

    def removed(self, home: HomeId, name: str) -> None:
        """Remove an entry from a home here."""
        self.at[home].take(name)

    def children_of(self, marks: Iterable[KeyEntry]) -> tuple[bytes, ...]:
        """Return where the children of crowded keys lie."""
        ring = self._runtime.ring
        return tuple(place for mark in marks for place in child_keys(ring, mark.key, mark.path, self._children))
