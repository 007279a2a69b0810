"""What lies at the homes here, and which of it an event matches."""

from __future__ import annotations

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries import entry_table, entry_tables
from meetpoint.schemes.rebeca.entries import read_entry

__all__ = ["MemberTable", "MemberTables"]


class MemberTable(entry_table.EntryTable[HomeId, HomeId]):
    """What lies at one home, by whose it is."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.home)


class MemberTables(entry_tables.EntryTables[MemberTable]):
    """All homes here."""

    def __init__(self, services: Runtime) -> None:
        super().__init__(services, MemberTable, read_entry)
