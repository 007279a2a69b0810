"""A small world (`lease_stories`) of nodes that quench. At every moment:

No node that is up takes a region to be idle while an entry that was acknowledged, and is still wanted, lies at or below
it.

Errands are a stand-in that keeps to what those promise: they go on until they are done, and may be done more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meetpoint.api.ids import Key
from meetpoint.api.messages import Message
from meetpoint.overlays.hypercube.regions import Region, key_of
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.ownership.keyed_rpc import Reached
from meetpoint.schemes.reach.ids import Cube, is_below
from meetpoint.schemes.reach.quench import Quench
from tests.schemes.reach import lease_stories
from tests.schemes.reach.lease_stories import RING, US, BrokenError

__all__ = ["Story", "World"]

WIDTH = 4
LEASE_US = 4 * US
NODES = 5
STEP = 1 << RING.bits - WIDTH  # keys from one id to the next


class Bits:
    """Ids of some bits."""

    width = WIDTH

    def of_event(self, attributes: Any) -> int:
        raise NotImplementedError

    def of_conjunction(self, conjunction: Any) -> int:
        raise NotImplementedError


CUBE = Cube(RING, Bits())


class Home(lease_stories.Home):
    """A home, and what lies there: points by name."""

    def __init__(self, number: int, node: int, arcs: list[KeyRange]) -> None:
        super().__init__(number, node, arcs)
        self.entries: dict[str, int] = {}

    def is_empty(self, region: Region) -> bool:
        return not any(region.hosts(point) for point in self.entries.values())


class Node(lease_stories.Node[Home]):
    """One life of a node that quenches."""

    world: World

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.doers: dict[type[Message], Any] = {}
        self.running: dict[int, tuple[Any, ...]] = {}
        self.numbers = 0
        self.part = world.kind(self.services, self, self, CUBE, self, LEASE_US)  # type: ignore[arg-type]

    def at(self, home: bytes) -> Home:
        """A home's shelf."""
        return self.home(home)

    # -- errands -------------------------------------------------------------------------------------------------------

    def do(self, kind: type[Message], doer: Any) -> None:
        self.doers[kind] = doer

    def run(
        self, first: bytes, last: bytes, body: Message, done: Callable[[], None], *, answered: Callable[..., None]
    ) -> int:
        self.numbers += 1
        number = self.numbers
        points = {point for point in range(1 << WIDTH) if first <= key_of(RING, point, WIDTH) <= last}
        self.running[number] = (points, body, done, answered)
        self.again(number)
        return number

    def stop(self, number: int) -> None:
        self.running.pop(number, None)

    def again(self, number: int) -> None:
        if number not in self.running:
            return
        points, body, _, _ = self.running[number]
        for point in sorted(points):
            self.world.carry(self, key_of(RING, point, WIDTH), number, body)
        self.services.after(US, lambda: self.again(number))

    def done(self, number: int, points: set[int], answer: Message) -> None:
        found = self.running.get(number)
        if found is not None:
            left, _, done, answered = found
            answered(answer, True)
            left -= points
            if not left and self.running.pop(number, None) is not None:
                done()


class World(lease_stories.World[Home, int]):
    """Nodes that quench. An entry is a point."""

    kind: type[Quench] = Quench
    late_us = 3 * US
    given_us = 500_000
    pulled_us = 200_000

    def __init__(self, seed: int, nodes: int = NODES, *, aligned: bool | None = None) -> None:
        self.aligned = aligned
        super().__init__(seed, nodes)

    def make_homes(self) -> list[Home]:
        nodes = len(self.rates)
        cuts = sorted(self.random.sample(range(1, 1 << RING.bits), nodes))
        if self.random.random() < 0.5 if self.aligned is None else self.aligned:  # along regions of 3 bits
            cuts = [2 * STEP * (at + 1) - 1 for at in range(8)]
        keys = [bytes(RING.key(cut)) for cut in cuts]
        return [Home(100 + at, 1 + at % nodes, [KeyRange(keys[at - 1], keys[at])]) for at in range(len(keys))]

    def make_node(self, number: int) -> Node:
        return Node(self, number)

    def look(self) -> None:
        for number, node in self.nodes.items():
            for region, lease in node.part._idle.items():
                if lease.until > self.local(number):
                    for name, point in self.acked.items():
                        if is_below(point, region):
                            raise BrokenError(f"{self.now}: node {number} takes {region} to be idle: {name} at {point}")

    def carry(self, origin: Node, key: Key, number: int, body: Message) -> None:
        """One part of an errand comes to who holds its key by then, if it comes, and so does the answer."""

        def arrive() -> None:
            home = self.holder(key)
            node = None if home is None else self.nodes.get(home.node)
            if home is None or node is None:
                return
            assert isinstance(node, Node)
            arc, doer = node.arc(home.id, key), node.doers[type(body)]
            points = {each for each in range(1 << WIDTH) if arc.holds(key_of(RING, each, WIDTH))}
            points = {each for each in points if key_of(RING, each, WIDTH) >= key}  # as the real ones: from the key on

            def answer(reply: Message) -> None:
                for delay in self.delays(reply):
                    self.later(delay, lambda: self.step(origin, lambda: origin.done(number, points, reply)))

            self.step(node, lambda: doer(home, Reached(key, 1), body, answer))

        for delay in self.delays(body):
            self.later(delay, arrive)

    # -- what may happen -----------------------------------------------------------------------------------------------

    def key(self, entry: int) -> Key:
        return key_of(RING, entry, WIDTH)

    def put(self, node: lease_stories.Node[Home], home: Home, name: str, entry: int, then: Callable[[], None]) -> None:
        home.entries[name] = entry
        self.step(node, lambda: node.part.put(home.id, entry, then))

    def withdraw(self, name: str) -> None:
        self.acked.pop(name, None)
        home = self.holder(self.key(self.wanted.pop(name)))
        if home is not None:
            home.entries.pop(name, None)
        else:
            self.later(US, lambda: self.erase(name))

    def erase(self, name: str) -> None:
        for home in self.homes:
            home.entries.pop(name, None)

    def hand_over(self, giver: Home, taker: Home, arc: KeyRange, node: lease_stories.Node[Home], owed_us: int) -> None:
        for name in [name for name, point in giver.entries.items() if arc.holds(self.key(point))]:
            point = giver.entries.pop(name)
            if name in self.wanted:
                taker.entries[name] = point
        self.step(node, lambda: node.part.began(taker.id, owed_us))

    def wish(self, number: int, region: Region) -> None:
        node = self.nodes.get(number)
        if node is not None:

            def act() -> None:
                if not node.part.is_idle(region):
                    node.part.wish(region)

            self.step(node, act)


class Story(lease_stories.Story[World]):
    """One random life of such a world. `idle` is how often some region was taken to be idle."""

    lease_us = LEASE_US
    hosts = tuple(range(1, NODES + 1))

    def __init__(self, seed: int, kind: type[Quench] = Quench) -> None:
        class Mine(World):
            pass

        Mine.kind = kind
        super().__init__(seed, Mine(seed))
        self.idle = 0

    def deeds(self) -> Iterable[tuple[Callable[[], None], int]]:
        return (self.ask, 60), (self.put, 3), (self.withdraw, 4), (self.give, 2), (self.crash, 1), (self.move, 1)

    def glance(self) -> None:
        if not self.random.randrange(10):
            self.idle += sum(
                lease.until > self.world.local(number)
                for number, node in self.world.nodes.items()
                for lease in node.part._idle.values()
            )

    def ask(self) -> None:
        if self.world.nodes:
            length = self.random.randint(1, WIDTH)
            region = Region(self.random.randrange(1 << length), length)
            self.world.wish(self.random.choice(list(self.world.nodes)), region)

    def put(self) -> None:
        if len(self.world.wanted) < 3:
            self.count += 1
            self.world.want(f"e{self.count}", self.random.randrange(1 << WIDTH))
