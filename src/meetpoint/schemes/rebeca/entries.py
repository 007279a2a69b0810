"""Entries of the scheme `rebeca` at the homes here: conjunctions at the key of their home's id."""

from __future__ import annotations

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries import entry_table
from meetpoint.placement.entries.entry_table import Item, Read, StoredEntry, owner_of, read_filed
from meetpoint.placement.messages import Entry

__all__ = ["MemberTable", "MemberTables", "entry_of", "read_entry"]


def entry_of(home: HomeId, stored: StoredEntry) -> Entry:
    """Return the entry of a conjunction, which lies at its home's id."""
    return Entry(bytes(home), bytes(home), msgspec.msgpack.encode(stored))


def read_entry(name: str, entry: Entry) -> Item[HomeId] | None:
    """Read an entry of a peer; None where it is malformed, or lies elsewhere than at its home's id."""
    owner, found = owner_of(name), read_filed(entry.body)
    if owner is None or found is None or not entry.low == entry.high == owner:
        return None
    return Item(owner, Read(*found, owner))


# -- entry tables ------------------------------------------------------------------------------------------------------


class MemberTable(entry_table.EntryTable[HomeId, HomeId]):
    """The entries at one home, by the home that each is of."""

    def __init__(self) -> None:
        super().__init__(lambda item: item.home)


class MemberTables(entry_table.EntryTables[MemberTable]):
    """The entries at all homes here."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, MemberTable, read_entry)
