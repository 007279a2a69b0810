"""Entries of the scheme `dmm`: the record of a region and its entries, under names that say which region.

All of them lie at the region's key, so that they move with the range that the key lies in.

| name | what |
| --- | --- |
| `region/CODE` | where the region stands (`rules.RegionRecord`) |
| `HOME/NUMBER/CODE` | a conjunction of a home, under the number that the home gave it; empty: it was withdrawn |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from meetpoint.api.ids import HomeId, Key
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement import messages
from meetpoint.placement.entries import entry_table
from meetpoint.placement.entries.entry_table import EntryTable, Item, Matched, Read, by_home
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import RangeListener
from meetpoint.schemes.dmm.rules import ROOT_RECORD, RegionRecord
from meetpoint.schemes.dmm.space import ROOT, Box, Code, Space

__all__ = [
    "REGION",
    "RegionStore",
    "StoredRegion",
    "key_of",
    "read_body",
    "read_name",
    "read_record",
    "region_entry_name",
    "region_name",
]


REGION: Final = "region/"


def key_of(ring: Ring, space: Space, code: Code) -> Key:
    """Return where a region lies on the ring; in a space of another depth elsewhere, as that is another tree."""
    return ring.hash(b"dmm %d " % space.depth + space.digest + code.encode())


def region_name(code: Code) -> str:
    """Return the name of a region's record."""
    return REGION + code


def region_entry_name(home: HomeId, number: int, code: Code) -> str:
    """Return the name of an entry of a region."""
    return f"{entry_name(home, number)}/{code}"


def read_name(name: str, space: Space) -> tuple[HomeId, int, Code] | None:
    """Read the name of an entry; None where it is malformed, as a peer's may be."""
    entry, _, code = name.rpartition("/")
    read = entry_table.read_name(entry)
    return None if read is None or not space.is_code(code) else (*read, Code(code))


def read_record(body: bytes) -> RegionRecord | None:
    """Read a region's record; None where it is malformed."""
    return messages.read_body(body, RegionRecord)


def read_body(body: bytes, space: Space) -> Read[Box] | None:
    """Read the body of an entry, and its box; None where it is malformed."""
    found = entry_table.read_filed(body)
    return None if found is None else Read(*found, space.box(found[1]))


# -- entry tables ------------------------------------------------------------------------------------------------------


class StoredRegion:
    """A region at one home: its record and its entries."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.stored: RegionRecord | None = None
        self._table: EntryTable[Box, None] = EntryTable(lambda _: None)
        self.withdrawn: dict[str, int] = {}
        """Entries that were withdrawn, by when this node heard of it."""

    @property
    def items(self) -> Mapping[str, Item[Box]]:
        """The entries, by name."""
        return self._table.items

    @property
    def record(self) -> RegionRecord | None:
        """The record of the region; None where there is no such region."""
        return ROOT_RECORD if self.stored is None and self.code == ROOT else self.stored

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to know of the region."""
        return self.stored is None and not self.items and not self.withdrawn

    def add(self, name: str, home: HomeId, read: Read[Box]) -> None:
        """Add an entry."""
        self._table.add(name, Item(home, read))

    def remove(self, name: str) -> None:
        """Remove an entry, or what is remembered of one that was withdrawn."""
        self.withdrawn.pop(name, None)
        self._table.remove(name)

    def match(self, attributes: Mapping[str, object]) -> Matched:
        """Return the SubIDs, by home, that an event satisfies."""
        return by_home(self._table.match(attributes, lambda _: True))


class RegionStore(RangeListener):
    """All regions at the homes here.

    Regions that are on their way to another home are here too: a caller asks `Ownership` whether a region is owned
    here.
    """

    def __init__(self, runtime: Runtime, space: Space) -> None:
        self._runtime = runtime
        self._space = space
        self._regions: dict[HomeId, dict[Code, StoredRegion]] = {}

    def region(self, home: HomeId, code: Code) -> StoredRegion:
        """Return a region at a home; an empty one where nothing is known of it."""
        return self._regions.get(home, {}).get(code) or StoredRegion(code)

    def regions(self) -> Iterator[tuple[HomeId, StoredRegion]]:
        """Yield all regions of which anything is known, as they are now."""
        for home, regions in list(self._regions.items()):
            for region in list(regions.values()):
                yield home, region

    @property
    def load(self) -> int:
        """The number of entries of the tree at this node."""
        return sum(len(region.items) for regions in self._regions.values() for region in regions.values())

    # -- what Ownership tells ------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Start a home that owns ranges here."""
        self._regions.setdefault(home, {})

    def ended(self, home: HomeId) -> None:
        """Forget a home that owns nothing here any more."""
        self._regions.pop(home, None)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Add a record or an entry of a region at a home here."""
        if name.startswith(REGION):
            code, record = Code(name.removeprefix(REGION)), read_record(entry.body)
            if record is not None and self._lies_at(code, entry):
                self._at(home, code).stored = record
                return
        elif (named := read_name(name, self._space)) is not None and self._lies_at(named[2], entry):
            owner, _, code = named
            if not entry.body:
                self._at(home, code).withdrawn[name] = self._runtime.now
                return
            read = read_body(entry.body, self._space)
            if read is not None:
                self._at(home, code).add(name, owner, read)
                return
        self._runtime.observe("entry_malformed")

    def removed(self, home: HomeId, name: str) -> None:
        """Remove a record or an entry of a region from a home here."""
        named = None if name.startswith(REGION) else read_name(name, self._space)
        code = Code(name.removeprefix(REGION)) if named is None else named[2]
        region = self._regions.get(home, {}).get(code)
        if region is None:
            return
        if named is None:
            region.stored = None
        else:
            region.remove(name)
        if region.is_empty:
            del self._regions[home][code]

    def _at(self, home: HomeId, code: Code) -> StoredRegion:
        regions = self._regions[home]
        if code not in regions:
            regions[code] = StoredRegion(code)
        return regions[code]

    def _lies_at(self, code: Code, entry: Entry) -> bool:
        return self._space.is_code(code) and entry.low == entry.high == key_of(self._runtime.ring, self._space, code)
