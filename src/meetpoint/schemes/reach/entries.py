"""Entries of the scheme `reach` at the homes here: conjunctions by their ids, and which of them an event satisfies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.entries import entry_table
from meetpoint.placement.entries.entry_table import Item, Read, StoredEntry, owner_of, read_filed
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import Entry
from meetpoint.schemes.reach.ids import Cube, Duty, is_subset

if TYPE_CHECKING:
    from meetpoint.schemes.reach.load_shedding import LoadShedding

__all__ = ["DutyPart", "IdTable", "IdTables", "entry_of", "read_entry"]


def entry_of(cube: Cube, stored: StoredEntry, conjunction: Conjunction) -> Entry:
    """Return the entry of a conjunction, which lies at the key of its id."""
    key = bytes(cube.key(cube.of_conjunction(conjunction)))
    return Entry(key, key, msgspec.msgpack.encode(stored))


def read_entry(cube: Cube, name: str, entry: Entry) -> Item[int] | None:
    """Read an entry of a peer, with its id; None where it is malformed, or lies elsewhere than its id does."""
    owner, found = owner_of(name), read_filed(entry.body)
    if owner is None or found is None:
        return None
    point = cube.of_conjunction(found[1])
    return Item(owner, Read(*found, point)) if entry.low == entry.high == cube.key(point) else None


# -- entry tables ------------------------------------------------------------------------------------------------------


class DutyPart(NamedTuple):
    """The ids of a duty in a region."""

    region: Region
    duty: Duty

    def holds(self, point: int) -> bool:
        """Return whether an id is one of them."""
        return self.region.hosts(point) and point & self.duty.fixed == self.duty.bits


class IdTable(entry_table.EntryTable[int, int]):
    """The entries at one home, by id."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.read.place)

    def within(self, region: Region) -> Iterator[str]:
        """Yield the names of entries in a region."""
        for point, items in self.groups.items():
            if region.hosts(point):
                yield from items

    def is_empty(self, region: Region) -> bool:
        """Return whether nothing lies in a region."""
        return not any(region.hosts(point) for point in self.groups)

    def match_parts(self, attributes: Mapping[str, object], event: int, parts: Sequence[DutyPart]) -> list[Item[int]]:
        """Return the conjunctions that an event with an id satisfies, of those whose ids are asked for."""
        return self.match(
            attributes, lambda point: is_subset(point, event) and any(part.holds(point) for part in parts)
        )


class IdTables(entry_table.EntryTables[IdTable]):
    """The entries at all homes here. Some are marks, not conjunctions, which keep an id where it is."""

    def __init__(self, runtime: Runtime, cube: Cube) -> None:
        super().__init__(runtime, IdTable, partial(read_entry, cube))
        self.marks: LoadShedding | None = None

    def ended(self, home: HomeId) -> None:
        """Forget a home that owns nothing here any more."""
        super().ended(home)
        if self.marks is not None:
            self.marks.ended(home)

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """Return the ranges that stay at a home here."""
        return () if self.marks is None else self.marks.pinned(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Add an entry or a mark at a home here."""
        if self.marks is None or not self.marks.marked(home, name, entry):
            super().added(home, name, entry)

    def removed(self, home: HomeId, name: str) -> None:
        """Remove an entry or a mark from a home here."""
        if self.marks is not None:
            self.marks.unmarked(home, name)
        super().removed(home, name)
