"""A small world of nodes that copy: as `idling`, with real entries, and copies instead of what is idle.

At every moment a copy that is good has every entry of its region that was acknowledged and is still wanted.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from meetpoint.language import Schema, parse_filter
from meetpoint.protocol.effects import Send, SetTimer
from meetpoint.protocol.inputs import Instant
from meetpoint.protocol.messages import Message, Peer, Reply
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Ring
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.arcs import Arc
from meetpoint.rendezvous.filed import Filed, Item, owner_of
from meetpoint.rendezvous.messages import Entry
from meetpoint.rendezvous.planting import entry_name
from meetpoint.schemes.reach import AttributeIds
from meetpoint.schemes.reach.copying import Copying
from meetpoint.schemes.reach.cube import Cube
from meetpoint.schemes.reach.filed import entry_of, read_entry
from meetpoint.schemes.reach.shelves import Shelf

__all__ = ["BrokenError", "Story", "World", "entry_at"]

US = 1_000_000
RING = Ring(16)
NAMES = "abc"
CUBE = Cube(RING, AttributeIds(Schema.from_yaml("attributes:\n" + "".join(f"  {name}: integer\n" for name in NAMES))))
LEASE_US = 3 * US
STEP = 1 << RING.bits - CUBE.width
OWNER = HomeId(bytes(RING.node(999)))


class BrokenError(Exception):
    """A match would be lost."""


def conjunction(point: int) -> Any:
    names = [name for at, name in enumerate(NAMES) if point >> at & 1]
    return parse_filter(" AND ".join(f"{name} >= 0" for name in names) or "TRUE")


def entry_at(number: int, point: int) -> tuple[str, Entry]:
    filter_ = conjunction(point)
    return entry_name(OWNER, number), entry_of(CUBE, Filed(number, 0, filter_.text), filter_.conjunctions[0])


class Home:
    """A home, where it is, and what it holds."""

    def __init__(self, number: int, node: int, arcs: list[Arc]) -> None:
        self.id = HomeId(bytes(RING.node(number)))
        self.node = node
        self.arcs = arcs
        self.shelf = Shelf()
        self.entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        read, owner = read_entry(CUBE, entry), owner_of(name)
        assert read is not None
        assert owner is not None
        self.entries[name] = entry
        self.shelf.add(name, Item(owner, read))


class Node:
    """One life of a node: custody and shelves as `Copying` wants them."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.services = Services(Peer(RING.node(number), f"n{number}", 1), RING, None, world.random.getrandbits(40))  # type: ignore[arg-type]
        self.services.begin(world.local(number))
        self.copying = world.kind(self.services, self, CUBE, self, LEASE_US, 0.0)  # type: ignore[arg-type]

    @property
    def entries(self) -> dict[HomeId, dict[str, Entry]]:
        return {home.id: home.entries for home in self.world.homes if home.node == self.number}

    def holder(self, key: bytes) -> Home | None:
        home = self.world.holder(key)
        return home if home is not None and home.node == self.number else None

    def arc(self, home: bytes, key: bytes) -> Arc:
        return next(arc for each in self.world.homes if each.id == home for arc in each.arcs if arc.holds(key))

    def at(self, home: bytes) -> Shelf:
        return next(each for each in self.world.homes if each.id == home).shelf


class World:
    """Eight ids, a home for each two, three nodes that hold them, and one that only copies."""

    kind: type[Copying] = Copying

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.calm = False
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.slow: Callable[[Message], list[int] | None] = lambda message: None
        self.rates = {number: 1 + self.random.uniform(-0.01, 0.01) for number in range(1, 5)}
        keys = [bytes(RING.key(2 * STEP * (at + 1) - 1)) for at in range(4)]
        self.homes = [Home(100 + at, 1 + at % 3, [Arc(keys[at - 1], keys[at])]) for at in range(4)]
        self.nodes: dict[int, Node] = {}
        self.wanted: dict[str, Entry] = {}
        self.acked: dict[str, Entry] = {}
        self.good = 0
        self.amended = 0
        for number in self.rates:
            self.start(number, 0)

    def local(self, number: int) -> Instant:
        return Instant(int(self.now * self.rates[number]))

    def later(self, delay: int, then: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay, self.count, then))

    def delays(self, message: Message) -> list[int]:
        chosen = self.slow(message)
        if chosen is not None:
            return chosen
        if self.calm:
            return [self.random.randrange(2_000, 20_000)]
        drawn = self.random.random()
        times = 0 if drawn < 0.08 else 2 if drawn < 0.2 else 1
        most = 2 * US if self.random.random() < 0.12 else 80_000
        return [self.random.randrange(2_000, most) for _ in range(times)]

    def step(self, node: Node, act: Callable[[], None]) -> None:
        if self.nodes.get(node.number) is not node:
            return
        effects = node.services.begin(self.local(node.number))
        act()
        for effect in effects:
            if isinstance(effect, Send):
                self.send(node, effect)
            elif isinstance(effect, SetTimer):
                wait = max(0, round((effect.at - self.local(node.number)) / self.rates[node.number])) + 1
                self.later(wait, lambda timer=effect.timer: self.step(node, lambda: node.services.fired(timer)))  # type: ignore[misc]
        node.copying.check()
        self.look()

    def send(self, node: Node, effect: Send) -> None:
        number = RING.number(effect.to.id)

        def arrive() -> None:
            target = self.nodes.get(number)
            if target is None:
                self.step(node, lambda: node.services.lost(effect.to))
            elif isinstance(effect.message, Reply):
                self.step(target, lambda: target.services.replied(node.services.me, effect.message))  # type: ignore[arg-type]
            else:
                handler = target.copying.handlers()[type(effect.message)]
                self.step(target, lambda: handler(node.services.me, effect.message))

        for delay in self.delays(effect.message):
            self.later(delay, arrive)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * US)
        while self.heap and self.heap[0][0] <= until:
            self.now, _, then = heapq.heappop(self.heap)
            then()
        self.now = until

    def look(self) -> None:
        for number, node in self.nodes.items():
            for region, loan in node.copying._loans.items():
                if loan.until > self.local(number):
                    self.good += 1
                    for name, entry in self.acked.items():
                        if region.hosts(CUBE.point(entry.low)) and name not in loan.shelf.items:
                            raise BrokenError(f"{self.now}: node {number} has a copy of {region} without {name}")

    def holder(self, key: bytes) -> Home | None:
        return next((home for home in self.homes if any(arc.holds(key) for arc in home.arcs)), None)

    # -- what may happen -----------------------------------------------------------------------------------------------

    def start(self, number: int, owed_us: int | None = None) -> None:
        node = self.nodes[number] = Node(self, number)
        for home in self.homes:
            if home.node == number:
                self.step(node, lambda home=home: node.copying.began(home.id, owed_us))  # type: ignore[misc]

    def use(self, number: int, point: int) -> None:
        """A node has a duty for an id: it serves that from its copy, or the holder says that it is busy."""
        home, node = self.holder(CUBE.key(point)), self.nodes.get(number)
        if home is None or node is None or home.node == number:
            return
        host = self.nodes.get(home.node)
        if host is not None:
            region = CUBE.around(host.arc(home.id, CUBE.key(point)), point)

            def act() -> None:
                if node.copying.copy(point) is None:
                    node.copying.heard(host.services.me, home.id, region)

            self.step(node, act)

    def place(self, name: str, entry: Entry) -> None:
        if name not in self.wanted or name in self.acked:
            return
        home = self.holder(entry.low)
        node = None if home is None else self.nodes.get(home.node)
        if home is not None and node is not None:
            home.add(name, entry)
            point = CUBE.point(entry.low)

            def acknowledge() -> None:
                if name in self.wanted:
                    self.acked[name] = entry

            self.step(node, lambda: node.copying.put(home.id, name, entry, point, acknowledge))
        self.later(self.random.randrange(US, 3 * US), lambda: self.place(name, entry))

    def withdraw(self, name: str) -> None:
        self.acked.pop(name, None)
        entry = self.wanted.pop(name)
        home = self.holder(entry.low)
        node = None if home is None else self.nodes.get(home.node)
        if home is not None and node is not None and home.entries.pop(name, None) is not None:
            home.shelf.remove(name)
            self.step(node, lambda: node.copying.removed(home.id, name, CUBE.point(entry.low)))

    def give(self, giver: Home, taker: Home, arc: Arc) -> None:
        giver.arcs.remove(arc)

        def pull() -> None:
            node, other = self.nodes.get(giver.node), self.nodes.get(taker.node)
            if node is None or other is None:
                self.later(US // 2, pull)
                return
            owed: list[int] = []
            self.step(node, lambda: owed.append(node.copying.owed_us(giver.id)))
            self.later(self.random.randrange(2_000, 100_000), lambda: complete(owed[0]))

        def complete(owed_us: int) -> None:
            node, before = self.nodes.get(taker.node), self.nodes.get(giver.node)
            if node is None:
                self.later(US // 2, pull)
                return
            taker.arcs.append(arc)
            moved = {name: entry for name, entry in giver.entries.items() if arc.holds(entry.low)}
            self.step(node, lambda: node.copying.began(taker.id, owed_us))
            for name, entry in moved.items():
                taker.add(name, entry)
                del giver.entries[name]
                item = giver.shelf.remove(name)
                if before is not None and item is not None:
                    point = item.read.place
                    self.step(before, lambda name=name, point=point: before.copying.removed(giver.id, name, point))  # type: ignore[misc]

        self.later(self.random.randrange(2_000, 300_000), pull)

    def move(self, home: Home, number: int) -> None:
        node, other = self.nodes.get(home.node), self.nodes.get(number)
        if node is not None and other is not None and node is not other:
            home.node = number
            self.step(node, lambda: node.copying.ended(home.id))
            self.step(other, lambda: other.copying.began(home.id, None))


class Story:
    """One random life of such a world."""

    def __init__(self, seed: int, kind: type[Copying] = Copying) -> None:
        class Mine(World):
            pass

        Mine.kind = kind
        self.world = Mine(seed)
        self.random = random.Random(seed + 1_000_000)
        self.count = 0

    def live(self, seconds: float) -> None:
        world = self.world
        until = world.now + int(seconds * US)
        deeds = [(self.use, 60), (self.put, 6), (self.withdraw, 3), (self.give, 2), (self.crash, 1), (self.move, 1)]
        while world.now < until:
            self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()
            world.run(self.random.choice([0.005, 0.02, 0.1]))
        world.calm = True
        for number in sorted(set(world.rates) - set(world.nodes)):
            world.start(number)
        world.run(4 * LEASE_US / US)
        assert world.acked.keys() == world.wanted.keys(), "an entry is never acknowledged"

    def use(self) -> None:
        self.world.use(self.random.choice((1, 2, 3, 4, 4)), self.random.randrange(8))

    def put(self) -> None:
        if len(self.world.wanted) < 12:
            self.count += 1
            name, entry = entry_at(self.count, self.random.randrange(8))
            self.world.wanted[name] = entry
            self.world.place(name, entry)

    def withdraw(self) -> None:
        if self.world.acked:
            self.world.withdraw(self.random.choice(list(self.world.acked)))

    def give(self) -> None:
        giver, taker = self.random.sample(self.world.homes, 2)
        if giver.arcs:
            self.world.give(giver, taker, self.random.choice(giver.arcs))

    def crash(self) -> None:
        if len(self.world.nodes) == len(self.world.rates):
            number = self.random.choice(list(self.world.nodes))
            del self.world.nodes[number]
            self.world.later(self.random.randrange(50_000, 2 * US), lambda: self.restart(number))

    def restart(self, number: int) -> None:
        if number not in self.world.nodes:
            self.world.start(number)

    def move(self) -> None:
        self.world.move(self.random.choice(self.world.homes), self.random.choice((1, 2, 3)))
