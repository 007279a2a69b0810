"""Conjunctions as they travel: the text of their filter, and which of it they are. The same text is read once.

A conjunction as it is placed, whole: whose it is, its text, and where its scheme has it lie.

Conjunctions that lie together, and which of them an event satisfies: a few are tried one by one, many are the
matcher's business (`matching.Index`).

The shelves of all homes here, as custody fills them, and whoever wants to know of that.
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
    """One conjunction of a filter; None where it is malformed, as a peer's may be, or has no such one."""
    found = _conjunctions(text)
    return found[at] if 0 <= at < len(found) else None


@lru_cache(maxsize=4_096)
def _conjunctions(text: str) -> tuple[Conjunction, ...]:
    try:
        return parse_filter(text).conjunctions
    except FilterError:
        return ()


NUMBER_MAX: Final = 1 << 63
"""Numbers that homes give to what they place are below."""
SUBSCRIPTION_MAX: Final = 1 << 48

PlaceT = TypeVar("PlaceT")


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One conjunction of a subscription: the body of its entry."""

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
    """One that was read, and where it lies, as the scheme sees it."""

    filed: StoredEntry
    conjunction: Conjunction
    place: PlaceT

    @property
    def filter(self) -> Filter:
        """What an index takes."""
        return Filter(self.filed.text, (self.conjunction,))


class Item(NamedTuple, Generic[PlaceT]):
    """And whose it is."""

    home: HomeId
    read: Read[PlaceT]


def read_filed(body: bytes) -> tuple[StoredEntry, Conjunction] | None:
    """The body of an entry as a peer has sent it; None where it is malformed."""
    filed = read_body(body, StoredEntry)
    if filed is None or not 0 <= filed.number < SUBSCRIPTION_MAX:
        return None
    conjunction = conjunction_in(filed.text, filed.at)
    return None if conjunction is None else (filed, conjunction)


def read_name(name: str) -> tuple[HomeId, int] | None:
    """Whose entry it is, and its number there, by the name that `planting` gave it; None where it is none."""
    home, _, number = name.partition("/")
    try:
        read = HomeId(bytes.fromhex(home)), int(number)
    except ValueError:
        return None
    return read if 0 <= read[1] < NUMBER_MAX and entry_name(*read) == name else None


def owner_of(name: str) -> HomeId | None:
    """Whose entry it is; None where it is none."""
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
    """Conjunctions by name. They are in groups, of which only some may be asked for: `group` says in which each is."""

    def __init__(self, group: Callable[[Item[PlaceT]], GroupT]) -> None:
        self._group = group
        self._matcher: Matcher[str] | None = None
        self.items: dict[str, Item[PlaceT]] = {}
        self.groups: dict[GroupT, dict[str, Item[PlaceT]]] = {}
        """Those with anything in them."""

    def __len__(self) -> int:
        return len(self.items)

    def add(self, name: str, item: Item[PlaceT]) -> None:
        """One more, or another instead of one."""
        self.remove(name)
        self.items[name] = item
        self.groups.setdefault(self._group(item), {})[name] = item
        if self._matcher is not None:
            self._matcher.add(name, item.read.filter)

    def remove(self, name: str) -> Item[PlaceT] | None:
        """One less, which is returned; None where there was none."""
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
        """What an event satisfies, of the groups that are asked for."""
        return self.match_in(attributes, [group for group in self.groups if is_asked(group)])

    def match_in(self, attributes: Mapping[str, object], asked: Iterable[GroupT]) -> list[Item[PlaceT]]:
        """What an event satisfies, of these groups; there may be nothing in some."""
        groups = {group: self.groups[group] for group in asked if group in self.groups}
        self._prepare()
        if self._matcher is None or sum(map(len, groups.values())) <= ASKED_MAX:
            there = (item for group in groups.values() for item in group.values())
            return [item for item in there if item.read.conjunction.accepts(attributes)]
        found = [self.items[name] for name in self._matcher.match(attributes)]
        return [item for item in found if self._group(item) in groups]

    def _prepare(self) -> None:
        """Have an index where there are many, and what it takes."""
        if self._matcher is None and len(self.items) > FEW_MAX and can_index():
            from meetpoint.matching.index import Index  # most shelves hold few, and need no compiler

            self._matcher = Index.from_filters((name, item.read.filter) for name, item in self.items.items())
        elif self._matcher is not None and len(self.items) < FEW_MAX // 2:
            self._matcher = None


def add_to(matched: Matched, more: Iterable[tuple[HomeId, tuple[int, ...]]]) -> None:
    """Further SubIDs that an event satisfies, of the same homes or of others."""
    for home, subids in more:
        matched[home] = tuple(sorted({*matched.get(home, ()), *subids}))


def by_home(items: Iterable[Item[PlaceT]]) -> Matched:
    """By home, the SubIDs of conjunctions."""
    found: dict[HomeId, set[int]] = {}
    for item in items:
        found.setdefault(item.home, set()).add(item.read.filed.subid)
    return {home: tuple(sorted(found[home])) for home in sorted(found)}


TableT = TypeVar("TableT", bound=EntryTable[Any, Any])


class EntryListener:
    """Who tells others of what lies at the homes here; told after a shelf has changed."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """As `RangeStore.began`."""

    def owed_us(self, home: HomeId) -> int:
        """As `RangeStore.owed_us`."""
        return 0

    def ended(self, home: HomeId) -> None:
        """As `RangeStore.ended`."""

    def added(self, home: HomeId, name: str, item: Item[Any]) -> None:
        """Something lies at a home here."""

    def removed(self, home: HomeId, name: str, item: Item[Any]) -> None:
        """It does no longer."""


class EntryTables(RangeListener, Generic[TableT]):
    """All homes here. What is on its way to another home lies here too: who asks names keys that are held.

    `read` is what an entry under a name says; None where it is malformed, as a peer's may be.
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
        """What lies at a home; an empty shelf where it holds nothing here."""
        found = self._tables.get(home)
        return self._make() if found is None else found

    # -- what custody tells --------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here."""
        self._tables.setdefault(home, self._make())
        for each in self.listeners:
            each.began(home, owed_us)

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what they were told here."""
        return max((each.owed_us(home) for each in self.listeners), default=0)

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        self._tables.pop(home, None)
        for each in self.listeners:
            each.ended(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        item = self._read(name, entry)
        if item is None:
            self._runtime.observe("entry_malformed")
            return
        self._tables[home].add(name, item)
        for each in self.listeners:
            each.added(home, name, item)

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        item = self._tables[home].remove(name)
        if item is not None:
            for each in self.listeners:
                each.removed(home, name, item)
