"""A small world (`lease_stories`) of nodes that copy, with real entries.

At every moment a copy that is good has every entry of its region that was acknowledged and is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meetpoint.api.ids import HomeId
from meetpoint.language import Schema, parse_filter
from meetpoint.placement.entries.entry_table import Item, StoredEntry
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import Entry
from meetpoint.schemes.reach.entries import IdTable, entry_of, read_entry
from meetpoint.schemes.reach.ids import AttributeIds, Cube
from meetpoint.schemes.reach.region_copies import RegionCopies
from tests.schemes.reach import lease_stories
from tests.schemes.reach.lease_stories import RING, US, BrokenError

__all__ = ["Story", "World", "entry_at"]

NAMES = "abc"
CUBE = Cube(RING, AttributeIds(Schema.from_yaml("attributes:\n" + "".join(f"  {name}: integer\n" for name in NAMES))))
LEASE_US = 3 * US
STEP = 1 << RING.bits - CUBE.width
OWNER = HomeId(bytes(RING.node(999)))


def conjunction(point: int) -> Any:
    names = [name for at, name in enumerate(NAMES) if point >> at & 1]
    return parse_filter(" AND ".join(f"{name} >= 0" for name in names) or "TRUE")


def entry_at(number: int, point: int) -> tuple[str, Entry]:
    filter_ = conjunction(point)
    return entry_name(OWNER, number), entry_of(CUBE, StoredEntry(number, 0, filter_.text), filter_.conjunctions[0])


class Home(lease_stories.Home):
    """A home, and what lies there, also on a shelf."""

    def __init__(self, number: int, node: int, arcs: list[KeyRange]) -> None:
        super().__init__(number, node, arcs)
        self.table = IdTable()
        self.entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        item = read_entry(CUBE, name, entry)
        assert item is not None
        self.entries[name] = entry
        self.table.add(name, item)

    def remove(self, name: str) -> Item[int] | None:
        self.entries.pop(name, None)
        return self.table.remove(name)


class Node(lease_stories.Node[Home]):
    """One life of a node that copies."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.part = world.kind(self.services, self, CUBE, self, LEASE_US, 0.0)  # type: ignore[arg-type]

    @property
    def entries(self) -> dict[HomeId, dict[str, Entry]]:
        return {home.id: home.entries for home in self.world.homes if home.node == self.number}

    def at(self, home: bytes) -> IdTable:
        return self.home(home).table


class World(lease_stories.World[Home, Entry]):
    """Eight ids, a home for each two, three nodes that hold them, and one that only copies."""

    kind: type[RegionCopies] = RegionCopies
    late_us = 2 * US
    given_us = 300_000
    pulled_us = 100_000

    def __init__(self, seed: int) -> None:
        self.good = 0
        super().__init__(seed, 4)

    def make_homes(self) -> list[Home]:
        keys = [bytes(RING.key(2 * STEP * (at + 1) - 1)) for at in range(4)]
        return [Home(100 + at, 1 + at % 3, [KeyRange(keys[at - 1], keys[at])]) for at in range(4)]

    def make_node(self, number: int) -> Node:
        return Node(self, number)

    def look(self) -> None:
        for number, node in self.nodes.items():
            for region, loan in node.part._copies.items():
                if loan.until > self.local(number):
                    self.good += 1
                    for name, entry in self.acked.items():
                        if region.hosts(CUBE.point(entry.low)) and name not in loan.table.items:
                            raise BrokenError(f"{self.now}: node {number} has a copy of {region} without {name}")

    # -- what may happen -----------------------------------------------------------------------------------------------

    def key(self, entry: Entry) -> bytes:
        return entry.low

    def put(
        self, node: lease_stories.Node[Home], home: Home, name: str, entry: Entry, then: Callable[[], None]
    ) -> None:
        home.add(name, entry)
        self.step(node, lambda: node.part.put(home.id, name, entry, CUBE.point(entry.low), then))

    def withdraw(self, name: str) -> None:
        self.acked.pop(name, None)
        entry = self.wanted.pop(name)
        home = self.holder(entry.low)
        node = None if home is None else self.nodes.get(home.node)
        if home is not None and node is not None and (item := home.remove(name)) is not None:
            self.step(node, lambda: node.part.removed(home.id, name, item))

    def hand_over(self, giver: Home, taker: Home, arc: KeyRange, node: lease_stories.Node[Home], owed_us: int) -> None:
        before = self.nodes.get(giver.node)
        moved = {name: entry for name, entry in giver.entries.items() if arc.holds(entry.low)}
        self.step(node, lambda: node.part.began(taker.id, owed_us))
        for name, entry in moved.items():
            taker.add(name, entry)
            item = giver.remove(name)
            if before is not None:
                self.step(before, lambda name=name, item=item: before.part.removed(giver.id, name, item))  # type: ignore[misc]

    def use(self, number: int, point: int) -> None:
        """A node has a duty for an id: it serves that from its copy, or the holder says that it is busy."""
        home, node = self.holder(CUBE.key(point)), self.nodes.get(number)
        if home is None or node is None or home.node == number:
            return
        host = self.nodes.get(home.node)
        if host is not None:
            region = CUBE.around(host.arc(home.id, CUBE.key(point)), point)

            def act() -> None:
                if node.part.copy(point) is None:
                    node.part.heard(host.services.me, home.id, region)

            self.step(node, act)


class Story(lease_stories.Story[World]):
    """One random life of such a world."""

    lease_us = LEASE_US
    hosts = (1, 2, 3)

    def __init__(self, seed: int, kind: type[RegionCopies] = RegionCopies) -> None:
        class Mine(World):
            pass

        Mine.kind = kind
        super().__init__(seed, Mine(seed))

    def deeds(self) -> Iterable[tuple[Callable[[], None], int]]:
        return (self.use, 60), (self.put, 6), (self.withdraw, 3), (self.give, 2), (self.crash, 1), (self.move, 1)

    def use(self) -> None:
        self.world.use(self.random.choice((1, 2, 3, 4, 4)), self.random.randrange(8))

    def put(self) -> None:
        if len(self.world.wanted) < 12:
            self.count += 1
            self.world.want(*entry_at(self.count, self.random.randrange(8)))
