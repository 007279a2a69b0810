"""What lies at the homes here, and which of it an event matches."""

from __future__ import annotations

from typing import Protocol

from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous import shelf as rendezvous
from meetpoint.rendezvous.keeping import Keeping
from meetpoint.rendezvous.messages import Entry
from meetpoint.schemes.filters.filed import read_entry

__all__ = ["Fellow", "Shelf", "Shelves"]


class Shelf(rendezvous.Shelf[HomeId, HomeId]):
    """What lies at one home, by whose it is."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.home)


class Fellow(Protocol):
    """Who tells others what is wanted here; told after a shelf has changed."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """As `Keeping.began`."""

    def owed_us(self, home: HomeId) -> int:
        """As `Keeping.owed_us`."""

    def ended(self, home: HomeId) -> None:
        """As `Keeping.ended`."""

    def changed(self, home: HomeId, name: str) -> None:
        """Something lies at a home here, or does no longer."""


class Shelves(Keeping):
    """All homes here. What is on its way to another home lies here too: who asks names keys that are held."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._shelves: dict[HomeId, Shelf] = {}
        self.fellow: Fellow | None = None

    def at(self, home: HomeId) -> Shelf:
        """What lies at a home; an empty shelf where it holds nothing here."""
        found = self._shelves.get(home)
        return Shelf() if found is None else found

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here."""
        self._shelves.setdefault(home, Shelf())
        if self.fellow is not None:
            self.fellow.began(home, owed_us)

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what they were told here."""
        return 0 if self.fellow is None else self.fellow.owed_us(home)

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        self._shelves.pop(home, None)
        if self.fellow is not None:
            self.fellow.ended(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        item = read_entry(name, entry)
        if item is None:
            self._services.observe("entry_malformed")
            return
        self._shelves[home].add(name, item)
        if self.fellow is not None:
            self.fellow.changed(home, name)

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        if self._shelves[home].remove(name) is not None and self.fellow is not None:
            self.fellow.changed(home, name)
