"""The regions at the homes here: where each stands, what lies in it, and which of that an event matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.entry_table import EntryTable, Matched, by_home
from meetpoint.placement.entries.stored_entry import Item, Read
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import RangeStore
from meetpoint.schemes.dmm.entries import REGION, key_of, read_body, read_name, read_record
from meetpoint.schemes.dmm.rules import ROOT_RECORD, RegionRecord
from meetpoint.schemes.dmm.space import ROOT, Box, Code, Space

__all__ = ["RegionStore", "StoredRegion"]


class StoredRegion:
    """One region at one home."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.record: RegionRecord | None = None
        self._shelf: EntryTable[Box, None] = EntryTable(lambda _: None)
        self.withdrawn: dict[str, int] = {}
        """Entries that were withdrawn, by when this node heard of it."""

    @property
    def items(self) -> Mapping[str, Item[Box]]:
        """The entries, by name."""
        return self._shelf.items

    @property
    def kept(self) -> RegionRecord | None:
        """Where it stands; None where there is no such region."""
        return ROOT_RECORD if self.record is None and self.code == ROOT else self.record

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to know of it."""
        return self.record is None and not self.items and not self.withdrawn

    def add(self, name: str, home: HomeId, read: Read[Box]) -> None:
        """One more entry."""
        self._shelf.add(name, Item(home, read))

    def remove(self, name: str) -> None:
        """One less, of either sort."""
        self.withdrawn.pop(name, None)
        self._shelf.remove(name)

    def match(self, attributes: Mapping[str, object]) -> Matched:
        """What an event satisfies."""
        return by_home(self._shelf.match(attributes, lambda _: True))


class RegionStore(RangeStore):
    """All regions at the homes here. Of those that are on their way to another home it knows too: who works with one
    asks custody whether it is held here.
    """

    def __init__(self, services: Runtime, space: Space) -> None:
        self._services = services
        self._space = space
        self._regions: dict[HomeId, dict[Code, StoredRegion]] = {}

    def region(self, home: HomeId, code: Code) -> StoredRegion:
        """A region at a home; an empty one where nothing is known of it."""
        return self._regions.get(home, {}).get(code) or StoredRegion(code)

    def regions(self) -> Iterator[tuple[HomeId, StoredRegion]]:
        """All of which anything is known, as they are now."""
        for home, regions in list(self._regions.items()):
            for region in list(regions.values()):
                yield home, region

    @property
    def load(self) -> int:
        """How many entries of the tree this node holds."""
        return sum(len(region.items) for regions in self._regions.values() for region in regions.values())

    # -- what custody tells --------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here."""
        self._regions.setdefault(home, {})

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        self._regions.pop(home, None)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """A record or an entry of a region lies at a home here."""
        if name.startswith(REGION):
            code, kept = Code(name.removeprefix(REGION)), read_record(entry.body)
            if kept is not None and self._lies_at(code, entry):
                self._at(home, code).record = kept
                return
        elif (named := read_name(name, self._space)) is not None and self._lies_at(named[2], entry):
            owner, _, code = named
            if not entry.body:
                self._at(home, code).withdrawn[name] = self._services.now
                return
            read = read_body(entry.body, self._space)
            if read is not None:
                self._at(home, code).add(name, owner, read)
                return
        self._services.observe("entry_malformed")

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        named = None if name.startswith(REGION) else read_name(name, self._space)
        code = Code(name.removeprefix(REGION)) if named is None else named[2]
        region = self._regions.get(home, {}).get(code)
        if region is None:
            return
        if named is None:
            region.record = None
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
        return self._space.is_code(code) and entry.low == entry.high == key_of(self._services.ring, self._space, code)
