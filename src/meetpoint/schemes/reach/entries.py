"""What is kept of a conjunction at whoever holds the key of its id.

What lies at the homes here, by its id, and which of it an event matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

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

__all__ = ["DutyPart", "IdTable", "IdTables", "PinnedKeys", "entry_of", "read_entry"]


def entry_of(cube: Cube, filed: StoredEntry, conjunction: Conjunction) -> Entry:
    """A conjunction, where it is to lie."""
    key = bytes(cube.key(cube.of_conjunction(conjunction)))
    return Entry(key, key, msgspec.msgpack.encode(filed))


def read_entry(cube: Cube, name: str, entry: Entry) -> Item[int] | None:
    """An entry as a peer has sent it, with its id; None where it is malformed, or lies elsewhere than its id does."""
    owner, found = owner_of(name), read_filed(entry.body)
    if owner is None or found is None:
        return None
    point = cube.of_conjunction(found[1])
    return Item(owner, Read(*found, point)) if entry.low == entry.high == cube.key(point) else None


# -- entry tables ------------------------------------------------------------------------------------------------------


class DutyPart(NamedTuple):
    """What an event asks of a shelf: the ids of a duty in a region."""

    region: Region
    duty: Duty

    def holds(self, point: int) -> bool:
        """Whether an id is one of them."""
        return self.region.hosts(point) and point & self.duty.fixed == self.duty.bits


class IdTable(entry_table.EntryTable[int, int]):
    """What lies at one home, by id."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.read.place)

    def within(self, region: Region) -> Iterator[str]:
        """The names of what lies in a region."""
        for point, items in self.groups.items():
            if region.hosts(point):
                yield from items

    def is_empty(self, region: Region) -> bool:
        """Whether nothing lies in a region."""
        return not any(region.hosts(point) for point in self.groups)

    def match_parts(self, attributes: Mapping[str, object], event: int, parts: Sequence[DutyPart]) -> list[Item[int]]:
        """The conjunctions that an event with an id satisfies, of those whose ids are asked for."""
        return self.match(
            attributes, lambda point: is_subset(point, event) and any(part.holds(point) for part in parts)
        )


class PinnedKeys(Protocol):
    """Entries that are no conjunctions: each says that an id stays at the home where it lies."""

    def marked(self, home: HomeId, name: str, entry: Entry) -> bool:
        """An entry lies at a home here: whether it is a mark."""

    def unmarked(self, home: HomeId, name: str) -> None:
        """One does no longer."""

    def ended(self, home: HomeId) -> None:
        """A home is not here any more."""

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """What stays at a home here."""


class IdTables(entry_table.EntryTables[IdTable]):
    """All homes here. Some entries are no conjunctions, but marks."""

    def __init__(self, runtime: Runtime, cube: Cube) -> None:
        super().__init__(runtime, IdTable, partial(read_entry, cube))
        self.marks: PinnedKeys | None = None

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        super().ended(home)
        if self.marks is not None:
            self.marks.ended(home)

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """What stays at a home here."""
        return () if self.marks is None else self.marks.pinned(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        if self.marks is None or not self.marks.marked(home, name, entry):
            super().added(home, name, entry)

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        if self.marks is not None:
            self.marks.unmarked(home, name)
        super().removed(home, name)
