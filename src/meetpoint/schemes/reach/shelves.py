"""What lies at the homes here, by its id, and which of it an event matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from meetpoint.overlays.hypercube.regions import Region
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous import shelf as rendezvous
from meetpoint.rendezvous.arcs import Arc
from meetpoint.rendezvous.custody import Keeping
from meetpoint.rendezvous.filed import Item, owner_of
from meetpoint.rendezvous.messages import Entry
from meetpoint.schemes.reach.cube import Cube
from meetpoint.schemes.reach.filed import read_entry
from meetpoint.schemes.reach.ids import is_subset
from meetpoint.schemes.reach.subsets import Duty

__all__ = ["Fellow", "Marks", "Part", "Shelf", "Shelves"]


class Part(NamedTuple):
    """What an event asks of a shelf: the ids of a duty in a region."""

    region: Region
    duty: Duty

    def holds(self, point: int) -> bool:
        """Whether an id is one of them."""
        return self.region.hosts(point) and point & self.duty.fixed == self.duty.bits


class Shelf(rendezvous.Shelf[int, int]):
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

    def match_parts(self, attributes: Mapping[str, object], event: int, parts: Sequence[Part]) -> list[Item[int]]:
        """The conjunctions that an event with an id satisfies, of those whose ids are asked for."""
        return self.match(
            attributes, lambda point: is_subset(point, event) and any(part.holds(point) for part in parts)
        )


class Fellow(Protocol):
    """Who else wants to know what lies at the homes here; told after a shelf has changed."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """As `Keeping.began`."""

    def owed_us(self, home: HomeId) -> int:
        """As `Keeping.owed_us`."""

    def ended(self, home: HomeId) -> None:
        """As `Keeping.ended`."""

    def added(self, home: HomeId, name: str, point: int) -> None:
        """An entry lies at a home here, at an id."""

    def removed(self, home: HomeId, name: str, point: int) -> None:
        """It does no longer."""


class Marks(Protocol):
    """Entries that are no conjunctions: each says that an id stays at the home where it lies."""

    def marked(self, home: HomeId, name: str, entry: Entry) -> bool:
        """An entry lies at a home here: whether it is a mark."""

    def unmarked(self, home: HomeId, name: str) -> None:
        """One does no longer."""

    def ended(self, home: HomeId) -> None:
        """A home is not here any more."""

    def pinned(self, home: HomeId) -> tuple[Arc, ...]:
        """What stays at a home here."""


class Shelves(Keeping):
    """All homes here. What is on its way to another home lies here too: who asks names ids that are held."""

    def __init__(self, services: Services, cube: Cube) -> None:
        self._services = services
        self._cube = cube
        self._shelves: dict[HomeId, Shelf] = {}
        self.fellows: list[Fellow] = []
        self.marks: Marks | None = None

    def at(self, home: HomeId) -> Shelf:
        """What lies at a home; an empty shelf where it holds nothing here."""
        found = self._shelves.get(home)
        return Shelf() if found is None else found

    # -- what custody tells --------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here."""
        self._shelves.setdefault(home, Shelf())
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
        if self.marks is not None:
            self.marks.ended(home)

    def pinned(self, home: HomeId) -> tuple[Arc, ...]:
        """What stays at a home here."""
        return () if self.marks is None else self.marks.pinned(home)

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        if self.marks is not None and self.marks.marked(home, name, entry):
            return
        owner, read = owner_of(name), read_entry(self._cube, entry)
        if owner is None or read is None:
            self._services.observe("entry_malformed")
            return
        self._shelves[home].add(name, Item(owner, read))
        for each in self.fellows:
            each.added(home, name, read.place)

    def removed(self, home: HomeId, name: str) -> None:
        """It does no longer."""
        if self.marks is not None:
            self.marks.unmarked(home, name)
        item = self._shelves[home].remove(name)
        if item is not None:
            for each in self.fellows:
                each.removed(home, name, item.read.place)
