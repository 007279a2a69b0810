"""The shelves of all homes here, as custody fills them, and whoever wants to know of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.entry_table import EntryTable
from meetpoint.placement.entries.stored_entry import Item
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.range_store import RangeStore

__all__ = ["EntryTables", "Fellow"]

ShelfT = TypeVar("ShelfT", bound=EntryTable[Any, Any])


class Fellow:
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


class EntryTables(RangeStore, Generic[ShelfT]):
    """All homes here. What is on its way to another home lies here too: who asks names keys that are held.

    `read` is what an entry under a name says; None where it is malformed, as a peer's may be.
    """

    def __init__(
        self, services: Runtime, make: Callable[[], ShelfT], read: Callable[[str, Entry], Item[Any] | None]
    ) -> None:
        self._services = services
        self._make = make
        self._read = read
        self._shelves: dict[HomeId, ShelfT] = {}
        self.fellows: list[Fellow] = []

    def at(self, home: HomeId) -> ShelfT:
        """What lies at a home; an empty shelf where it holds nothing here."""
        found = self._shelves.get(home)
        return self._make() if found is None else found

    # -- what custody tells --------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here."""
        self._shelves.setdefault(home, self._make())
        for each in self.fellows:
            each.began(home, owed_us)

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what they were told here."""
        return max((each.owed_us(home) for each in self.fellows), default=0)

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        self._shelves.pop(home, None)
        for each in self.fellows:
            each.ended(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        item = self._read(name, entry)
        if item is None:
            self._services.observe("entry_malformed")
            return
        self._shelves[home].add(name, item)
        for each in self.fellows:
            each.added(home, name, item)

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        item = self._shelves[home].remove(name)
        if item is not None:
            for each in self.fellows:
                each.removed(home, name, item)
