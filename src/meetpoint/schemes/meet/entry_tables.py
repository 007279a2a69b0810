"""What is placed at the homes here, by its key, and which of it an event matches: only what lies under keys that the
event has is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from meetpoint.api.ids import HomeId
from meetpoint.matching.keys.key_plan import LiveKeys
from meetpoint.matching.keys.meet_keys import MeetKey
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries import entry_table
from meetpoint.placement.entries import stored_entry as common
from meetpoint.placement.entries.conjunctions import conjunction_in
from meetpoint.placement.entries.entry_table import Matched, by_home
from meetpoint.placement.entries.stored_entry import Item, Read, owner_of
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.range_store import RangeStore
from meetpoint.schemes.meet.entries import KeyEntry, child_keys, read_key_entry
from meetpoint.schemes.meet.key_leases import KeyLeases
from meetpoint.schemes.meet.settings import MeetSettings

__all__ = ["KeyTable", "KeyTables"]


class KeyTable(entry_table.EntryTable[KeyEntry, MeetKey]):
    """What is placed at one home, by key; and marks of keys that are crowded."""

    def __init__(self, grant: Callable[[Callable[[], Iterable[MeetKey]]], KeyLeases]) -> None:
        super().__init__(lambda item: item.read.place.key)
        self._live = LiveKeys()
        self._marks: dict[MeetKey, dict[str, KeyEntry]] = {}
        self._marked: dict[str, MeetKey] = {}
        self._counts: Counter[tuple[MeetKey, tuple[int, ...]]] = Counter()
        self.granting = grant(lambda: self._live)

    def regrant(self, grant: Callable[[Callable[[], Iterable[MeetKey]]], KeyLeases]) -> None:
        """Summaries begin anew."""
        self.granting.close()
        self.granting = grant(lambda: self._live)

    def put(self, name: str, owner: HomeId, filed: KeyEntry) -> None:
        """One more conjunction of a home."""
        conjunction = conjunction_in(filed.text, filed.at)
        assert conjunction is not None, "what is read is well formed"
        self.add(name, Item(owner, Read(common.StoredEntry(filed.number, filed.at, filed.text), conjunction, filed)))
        self._counts[filed.key, filed.path] += 1
        self._use(filed.key)

    def mark(self, name: str, filed: KeyEntry) -> None:
        """A key is crowded."""
        self._marked[name] = filed.key
        self._marks.setdefault(filed.key, {})[name] = filed
        self._use(filed.key)

    def take(self, name: str) -> None:
        """One less, of either sort."""
        item = self.remove(name)
        if item is not None:
            filed = item.read.place
            self._counts[filed.key, filed.path] -= 1
            if not self._counts[filed.key, filed.path]:
                del self._counts[filed.key, filed.path]
            self._disuse(filed.key)
        elif name in self._marked:
            key = self._marked.pop(name)
            del self._marks[key][name]
            if not self._marks[key]:
                del self._marks[key]
            self._disuse(key)

    def _use(self, key: MeetKey) -> None:
        if key not in self._live:
            self.granting.changed(key, added=True)
        self._live.add(key)

    def _disuse(self, key: MeetKey) -> None:
        self._live.discard(key)
        if key not in self._live:
            self.granting.changed(key, added=False)

    def count(self, key: MeetKey, path: tuple[int, ...]) -> int:
        """How many conjunctions lie under a key, or a child of it."""
        return self._counts.get((key, path), 0)

    def find(self, attributes: Mapping[str, object]) -> tuple[Matched, list[KeyEntry]]:
        """By home, the SubIDs of the conjunctions that an event satisfies; and the marks of its crowded keys."""
        keys = sorted(self._live.keys_of_event(attributes))
        marks = [mark for key in keys for mark in self._marks.get(key, {}).values()]
        return by_home(self.match_in(attributes, keys)), marks


class KeyTables(RangeStore):
    """All homes here."""

    def __init__(
        self, services: Runtime, hosting: HomeManager, settings: MeetSettings, version: Callable[[HomeId], int]
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._settings = settings
        self._version = version
        self.shelves: dict[HomeId, KeyTable] = {}

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs that it did not hold before: publishers may have summaries that nobody here knows of."""
        lease = self._settings.lease_us
        unknown_us = lease if owed_us is None else min(owed_us, lease)
        entry_table = self.shelves.get(home)
        if entry_table is not None:
            unknown_us = max(unknown_us, entry_table.granting.owed_us)

        def grant(keys: Callable[[], Iterable[MeetKey]]) -> KeyLeases:
            version = lambda: self._version(home)  # noqa: E731 - read beside the others
            return KeyLeases(home, self._services, self._hosting, lease, keys, version, unknown_us=unknown_us)

        if entry_table is None:
            self.shelves[home] = KeyTable(grant)
        else:
            entry_table.regrant(grant)

    def owed_us(self, home: HomeId) -> int:
        """How long publishers may still have a summary of a home here."""
        entry_table = self.shelves.get(home)
        return self._settings.lease_us if entry_table is None else entry_table.granting.owed_us

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        entry_table = self.shelves.pop(home, None)
        if entry_table is not None:
            entry_table.granting.close()

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        filed, owner = read_key_entry(entry.body), owner_of(name)
        if filed is not None and not filed.text:
            self.shelves[home].mark(name, filed)
        elif filed is not None and owner is not None:
            self.shelves[home].put(name, owner, filed)
        else:
            self._services.observe("entry_malformed")

    def removed(self, home: HomeId, name: str) -> None:
        """An entry does no longer."""
        self.shelves[home].take(name)

    def further(self, marks: Iterable[KeyEntry]) -> tuple[bytes, ...]:
        """Where the children of crowded keys lie."""
        ring, children = self._services.ring, self._settings.children
        return tuple(place for mark in marks for place in child_keys(ring, mark.key, mark.path, children))
