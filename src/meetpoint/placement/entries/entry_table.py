"""Conjunctions that lie together, and which of them an event satisfies: a few are tried one by one, many are the
matcher's business (`matching.Index`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from meetpoint.api.ids import HomeId
from meetpoint.matching.matcher import Matcher, can_index
from meetpoint.placement.entries.stored_entry import Item

__all__ = ["ASKED_MAX", "FEW_MAX", "EntryTable", "Matched", "add_to", "by_home"]

FEW_MAX: Final = 2_000
"""So many conjunctions need no index."""
ASKED_MAX: Final = 64
"""So many are tried one by one also where there is one: about as long as it takes."""
Matched: TypeAlias = dict[HomeId, tuple[int, ...]]
"""By home, the SubIDs of its conjunctions that an event satisfies."""

PlaceT = TypeVar("PlaceT")
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
