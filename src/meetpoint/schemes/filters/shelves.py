"""What lies at the homes here, and which of it an event matches."""

from __future__ import annotations

from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous import shelf, shelves
from meetpoint.schemes.filters.filed import read_entry

__all__ = ["Shelf", "Shelves"]


class Shelf(shelf.Shelf[HomeId, HomeId]):
    """What lies at one home, by whose it is."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.home)


class Shelves(shelves.Shelves[Shelf]):
    """All homes here."""

    def __init__(self, services: Services) -> None:
        super().__init__(services, Shelf, read_entry)
