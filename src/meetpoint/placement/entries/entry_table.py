"""Stored entries at the homes of a node, and which of them an event satisfies.

A `StoredEntry` is a conjunction as it is placed, whole: the text of its filter, and which conjunction of it. The same
text is parsed once. An `EntryTable` has the entries of one home: a few are tried one by one, many are matched by an
index. `EntryTables` has the tables of all homes here, as ownership fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX, Conjunction
from meetpoint.matching.matcher import Matcher, can_index
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.messages import Entry, read_body
from meetpoint.placement.ownership.range_store import RangeListener

__all__ = [
    "ASKED_MAX",
    "FEW_MAX",
    "NUMBER_MAX",
    "SUBSCRIPTION_MAX",
    "EntryListener",
    "EntryTable",
    "EntryTables",
    "Item",
    "Matched",
    "Read",
    "StoredEntry",
    "add_to",
    "by_home",
    "conjunction_in",
    "owner_of",
    "read_filed",
    "read_name",
]


def conjunction_in(text: str, at: int) -> Conjunction | None:
    """Return one conjunction of a filter; None where it is malformed, as a peer's may be, or has no such one."""
    found = _conjunctions(text)
    return found[at] if 0 <= at < len(found) else None


@lru_cache(maxsize=4_096)
def _conjunctions(text: str) -> tuple[Conjunction, ...]:
    try:
        return parse_filter(text).conjunctions
    except FilterError:
        return ()


NUMBER_MAX: Final = 1 << 63
"""The bound of the numbers that homes give to entries."""
SUBSCRIPTION_MAX: Final = 1 << 48

PlaceT = TypeVar("PlaceT")


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A conjunction of a subscription: the body of its entry."""

    number: int
    """Of the subscription at its home."""
    at: int
    """Which conjunction of the filter it is."""
    text: str

    @property
    def subid(self) -> int:
        """The conjunction's id at its home."""
        return self.number * CONJUNCTIONS_MAX + self.at


class Read(NamedTuple, Generic[PlaceT]):
    """A stored entry that was parsed, and its place, as the scheme sees it."""

    filed: StoredEntry
    conjunction: Conjunction
    place: PlaceT

    @property
    def filter(self) -> Filter:
        """The filter for an index."""
        return Filter(self.filed.text, (self.conjunction,))


class Item(NamedTuple, Generic[PlaceT]):
    """A parsed entry, and the home that placed it."""

    home: HomeId
    read: Read[PlaceT]


def read_filed(body: bytes) -> tuple[StoredEntry, Conjunction] | None:
    """Return the body of an entry as a peer has sent it; None where it is malformed."""
    filed = read_body(body, StoredEntry)
    if filed is None or not 0 <= filed.number < SUBSCRIPTION_MAX:
        return None
    conjunction = conjunction_in(filed.text, filed.at)
    return None if conjunction is None else (filed, conjunction)


def read_name(name: str) -> tuple[HomeId, int] | None:
    """Return the home and the number in the name of an entry (`entry_name`); None where it is malformed."""
    home, _, number = name.partition("/")
    try:
        read = HomeId(bytes.fromhex(home)), int(number)
    except ValueError:
        return None
    return read if 0 <= read[1] < NUMBER_MAX and entry_name(*read) == name else None


def owner_of(name: str) -> HomeId | None:
    """Return the home in the name of an entry; None where it is malformed."""
    read = read_name(name)
    return None if read is None else read[0]


FEW_MAX: Final = 2_000
"""So many conjunctions need no index."""
ASKED_MAX: Final = 64
"""So many are tried one by one also where there is one: about as long as it takes."""
Matched: TypeAlias = dict[HomeId, tuple[int, ...]]
"""By home, the SubIDs of its conjunctions that an event satisfies."""

GroupT = TypeVar("GroupT", bound=Hashable)


class EntryTable(Generic[PlaceT, GroupT]):
    """Entries by name, in groups, of which only some may be asked for: `group` says in which each is."""

    def __init__(self, group: Callable[[Item[PlaceT]], GroupT]) -> None:
        self._group = group
        self._matcher: Matcher[str] | None = None
        self.items: dict[str, Item[PlaceT]] = {}
        self.groups: dict[GroupT, dict[str, Item[PlaceT]]] = {}
        """The groups that are not empty."""

    def __len__(self) -> int:
        return len(self.items)

    def add(self, name: str, item: Item[PlaceT]) -> None:
        """Add an entry, or replace the one of this name."""
        self.remove(name)
        self.items[name] = item
        self.groups.setdefault(self._group(item), {})[name] = item
        if self._matcher is not None:
            self._matcher.add(name, item.read.filter)

    def remove(self, name: str) -> Item[PlaceT] | None:
        """Remove an entry and return it; None where there was none."""
        item = self.items.pop(name, None)
        if item is not None:
            group = self._group(item)
            del self.groups[group][name]
            if not self.groups[group]:
                del self.groups[group]
            if self._matcher is not None:
                self._matcher.remove(name)
        return item

    def match(self, attributes: Mapping[str, object], is_asked: Callable[[GroupT], bool]) -> list[Item[PlaceT]]:
        """Return the entries that an event satisfies, of the groups that are asked for."""
        return self.match_in(attributes, [group for group in self.groups if is_asked(group)])

    def match_in(self, attributes: Mapping[str, object], asked: Iterable[GroupT]) -> list[Item[PlaceT]]:
        """Return the entries that an event satisfies, of these groups, some of which may be empty."""
        groups = {group: self.groups[group] for group in asked if group in self.groups}
        self._prepare()
        if self._matcher is None or sum(map(len, groups.values())) <= ASKED_MAX:
            there = (item for group in groups.values() for item in group.values())
            return [item for item in there if item.read.conjunction.accepts(attributes)]
        found = [self.items[name] for name in self._matcher.match(attributes)]
        return [item for item in found if self._group(item) in groups]

    def _prepare(self) -> None:
        """Make an index where there are many entries, and what it takes."""
        if self._matcher is None and len(self.items) > FEW_MAX and can_index():
            from meetpoint.matching.index import Index  # most tables have few entries, and need no compiler

            self._matcher = Index.from_filters((name, item.read.filter) for name, item in self.items.items())
        elif self._matcher is not None and len(self.items) < FEW_MAX // 2:
            self._matcher = None


def add_to(matched: Matched, more: Iterable[tuple[HomeId, tuple[int, ...]]]) -> None:
    """Add SubIDs that an event satisfies, of the same homes or of others."""
    for home, subids in more:
        matched[home] = tuple(sorted({*matched.get(home, ()), *subids}))


def by_home(items: Iterable[Item[PlaceT]]) -> Matched:
    """Return the SubIDs of entries by their homes."""
    found: dict[HomeId, set[int]] = {}
    for item in items:
        found.setdefault(item.home, set()).add(item.read.filed.subid)
    return {home: tuple(sorted(found[home])) for home in sorted(found)}


TableT = TypeVar("TableT", bound=EntryTable[Any, Any])


class EntryListener:
    """Is told of entries at the homes here, after their table has changed."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Take note of new ranges, as `RangeListener.began`."""

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may rely on what they were told, as `RangeListener.owed_us`."""
        return 0

    def ended(self, home: HomeId) -> None:
        """Take note that ranges are gone, as `RangeListener.ended`."""

    def added(self, home: HomeId, name: str, item: Item[Any]) -> None:
        """Take note of an entry at a home here."""

    def removed(self, home: HomeId, name: str, item: Item[Any]) -> None:
        """Take note that an entry is gone."""


class EntryTables(RangeListener, Generic[TableT]):
    """The entry tables of all homes here.

    Entries on their way to another home are here too: a request names keys that are owned. `read` parses an entry under
    a name; None where it is malformed, as a peer's may be.
    """

    def __init__(
        self, runtime: Runtime, make: Callable[[], TableT], read: Callable[[str, Entry], Item[Any] | None]
    ) -> None:
        self._runtime = runtime
        self._make = make
        self._read = read
        self._tables: dict[HomeId, TableT] = {}
        self.listeners: list[EntryListener] = []

    def at(self, home: HomeId) -> TableT:
        """Return the table of a home; an empty one where it owns nothing here."""
        found = self._tables.get(home)
        return self._make() if found is None else found

    # -- what ownership tells ------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Make a table for a home that owns ranges here."""
        self._tables.setdefault(home, self._make())
        for each in self.listeners:
            each.began(home, owed_us)

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may still rely on what they were told here."""
        return max((each.owed_us(home) for each in self.listeners), default=0)

    def ended(self, home: HomeId) -> None:
        """Drop the table of a home that owns nothing here any more."""
        self._tables.pop(home, None)
        for each in self.listeners:
            each.ended(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Add an entry to the table of a home."""
        item = self._read(name, entry)
        if item is None:
            self._runtime.observe("entry_malformed")
            return
        self._tables[home].add(name, item)
        for each in self.listeners:
            each.added(home, name, item)

    def removed(self, home: HomeId, name: str) -> None:
        """Take note that an entry is gone."""
        item = self._tables[home].remove(name)
        if item is not None:
            for each in self.listeners:
                each.removed(home, name, item)
