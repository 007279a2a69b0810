"""What a list node holds, and what it answers (papers A, section 3.2, and B, section 5).

Asked at a key, it gives the SubIDs of the entries over that key that the event may satisfy: the constraint accepts the
event's value, the event has every attribute that the SubID declares, and none that must be missing. What cannot match
is left out here, at every node, and never travels. (As printed, SubIDs that declare an attribute which the event lacks
go all the way, and arrive.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from meetpoint.api.ids import Key
from meetpoint.language.filters.constraints import Constraint, accepts
from meetpoint.schemes.lists.collection import Lookup
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListEntry, ListSort
from meetpoint.schemes.lists.lines import Span, contains
from meetpoint.schemes.lists.subids import FlatEvent, SubId

__all__ = ["AttributeLists"]

_Alike: TypeAlias = dict[Constraint, dict[ListEntry, None]]
"""Entries by their constraint, which is asked once for all of them."""


class _List:
    """One list of one attribute: entries at single keys, and over longer spans."""

    __slots__ = ("points", "spans")

    def __init__(self) -> None:
        self.points: dict[Span, _Alike] = {}
        self.spans: dict[Span, _Alike] = {}

    def table(self, entry: ListEntry) -> dict[Span, _Alike]:
        return self.points if entry.low == entry.high else self.spans

    def over(self, key: Key) -> Iterator[_Alike]:
        at = self.points.get((key, key))
        if at is not None:
            yield at
        for span, held in self.spans.items():
            if contains(span, key):
                yield held


class AttributeLists:
    """All lists of one node."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, ListSort], _List] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return self._count

    def add(self, entry: ListEntry) -> None:
        """Hold an entry; one that is held already is no matter."""
        table = self._lists.setdefault((entry.attribute, entry.sort), _List()).table(entry)
        held = table.setdefault((entry.low, entry.high), {}).setdefault(entry.constraint, {})
        self._count += entry not in held
        held[entry] = None

    def discard(self, entry: ListEntry) -> None:
        """Hold an entry no longer; one that is not held is no matter."""
        if (lists := self._lists.get((entry.attribute, entry.sort))) is None:
            return
        table = lists.table(entry)
        span = (entry.low, entry.high)
        alike = table.get(span, {})
        held = alike.get(entry.constraint, {})
        if entry not in held:
            return
        self._count -= 1
        del held[entry]
        if not held:
            del alike[entry.constraint]
        if not alike:
            del table[span]
        if not lists.points and not lists.spans:
            del self._lists[entry.attribute, entry.sort]

    def answer(self, lookup: Lookup, event: FlatEvent) -> list[SubId]:
        """The SubIDs that an event may satisfy, from the lists that a lookup asks for; none twice."""
        value = True if lookup.attribute == EVERY_EVENT else event.values[lookup.attribute]
        has_all, has_none = event.attributes.has_all, event.attributes.has_none
        found: dict[SubId, None] = {}
        for sort in lookup.sorts:
            held = self._lists.get((lookup.attribute, sort))
            if held is None:
                continue
            for alike in held.over(lookup.key):
                for constraint, entries in alike.items():
                    if accepts(constraint, value):
                        for entry in entries:
                            if has_all(entry.sub_id.attributes) and has_none(entry.absent):
                                found[entry.sub_id] = None
        return list(found)
