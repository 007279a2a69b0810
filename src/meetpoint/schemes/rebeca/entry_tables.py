"""What lies at the homes here, and which of it an event matches."""

from __future__ import annotations

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries import entry_table, entry_tables
from meetpoint.schemes.rebeca.entries import read_entry

__all__ = ["Shelf", "Shelves"]


class Shelf(entry_table.EntryTable[HomeId, HomeId]):
    """What lies at one home, by whose it is."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.home)


class Shelves(entry_tables.EntryTables[Shelf]):
    """All homes here."""

    def __init__(self, services: Runtime) -> None:
        super().__init__(services, Shelf, read_entry)
