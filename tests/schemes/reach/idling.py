"""A small world of nodes that quench: arcs, homes and entries by hand, messages late, doubled and lost, clocks apart.

Custody and errands are stand-ins that keep to what those promise: a key has at most one holder, who has all that lies
there, and between giving and getting none; an errand goes on until it is done, and may be done more than once. All else
is the real thing. At every moment:

    No node that is up takes a region to be idle while an entry that was acknowledged, and is still wanted, lies at or
    below it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from meetpoint.overlays.hypercube.keys import key_of
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.protocol.effects import CancelTimer, Observe, Send, SetTimer
from meetpoint.protocol.inputs import Instant
from meetpoint.protocol.messages import Message, Peer, Reply
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Key, Ring
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.arcs import Arc
from meetpoint.rendezvous.errands import Reached
from meetpoint.schemes.reach.cube import Cube
from meetpoint.schemes.reach.pieces import is_below
from meetpoint.schemes.reach.quenching import Quenching

__all__ = ["BrokenError", "Story", "World"]

US = 1_000_000
RING = Ring(16)
WIDTH = 4
LEASE_US = 4 * US
STEP = 1 << RING.bits - WIDTH  # keys from one id to the next


class BrokenError(Exception):
    """A match would be lost."""


class Bits:
    """Ids of some bits."""

    width = WIDTH

    def of_event(self, attributes: Any) -> int:
        raise NotImplementedError

    def of_conjunction(self, conjunction: Any) -> int:
        raise NotImplementedError


CUBE = Cube(RING, Bits())


class Home:
    """A home: where it is, what it holds, what lies there by name, and gifts that are on their way from it."""

    def __init__(self, number: int, node: int, arcs: list[Arc]) -> None:
        self.id = HomeId(bytes(RING.node(number)))
        self.node = node
        self.arcs = arcs
        self.entries: dict[str, int] = {}

    def is_empty(self, region: Region) -> bool:
        return not any(region.hosts(point) for point in self.entries.values())


class Entry(NamedTuple):
    """Something that is to be placed; `acked` when it was."""

    name: str
    point: int


class Node:
    """One life of a node."""

    def __init__(self, world: World, number: int, life: int) -> None:
        self.world = world
        self.number = number
        me = Peer(RING.node(number), f"n{number}", 1)  # the same in each life, as where the disk is lost
        self.services = Services(me, RING, None, world.random.getrandbits(40))  # type: ignore[arg-type]
        self.services.begin(world.local(number))
        self.timers: dict[int, None] = {}
        self.doers: dict[type[Message], Any] = {}
        self.running: dict[int, tuple[Any, ...]] = {}
        self.numbers = 0
        self.quenching = world.kind(self.services, self, self, CUBE, self, LEASE_US)  # type: ignore[arg-type]

    # -- custody, shelves ----------------------------------------------------------------------------------------------

    def holder(self, key: bytes) -> Home | None:
        home = self.world.holder(key)
        return home if home is not None and home.node == self.number else None

    def arc(self, home: bytes, key: bytes) -> Arc:
        return next(arc for each in self.world.homes if each.id == home for arc in each.arcs if arc.holds(key))

    def at(self, home: bytes) -> Home:
        return next(each for each in self.world.homes if each.id == home)

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
            self.world.carry(self, key_of(RING, point, WIDTH), number, point, body)
        self.services.after(US, lambda: self.again(number))

    def done(self, number: int, points: set[int], answer: Message) -> None:
        found = self.running.get(number)
        if found is not None:
            left, _, done, answered = found
            answered(answer, True)
            left -= points
            if not left and self.running.pop(number, None) is not None:
                done()


class World:
    """All of it."""

    kind: type[Quenching] = Quenching

    def __init__(self, seed: int, nodes: int = 5, *, aligned: bool | None = None) -> None:
        self.random = random.Random(seed)
        self.slow: Callable[[Message], list[int] | None] = lambda message: None
        self.now = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.lives = 0
        self.calm = False
        self.rates = {number: 1 + self.random.uniform(-0.01, 0.01) for number in range(1, nodes + 1)}
        cuts = sorted(self.random.sample(range(1, 1 << RING.bits), nodes))
        if self.random.random() < 0.5 if aligned is None else aligned:  # along regions of 3 bits, as on a hypercube
            cuts = [2 * STEP * (at + 1) - 1 for at in range(8)]
        keys = [bytes(RING.key(cut)) for cut in cuts]
        self.homes = [
            Home(100 + at, 1 + at % nodes, [Arc(keys[at - 1], keys[at])]) for at in range(len(keys))
        ]  # fmt: skip
        self.nodes: dict[int, Node] = {}
        self.entries: dict[str, Entry] = {}
        self.wanted: dict[str, Entry] = {}
        self.acked: dict[str, Entry] = {}
        self.seen: dict[str, int] = {}
        for number in range(1, nodes + 1):
            self.start(number, owed_us=0)

    # -- time and messages ---------------------------------------------------------------------------------------------

    def local(self, number: int) -> Instant:
        return Instant(int(self.now * self.rates[number]))

    def later(self, delay: int, then: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay, self.count, then))

    def delays(self, message: Message) -> list[int]:
        """When a message arrives, each time that it does."""
        chosen = self.slow(message)
        if chosen is not None:
            return chosen
        if self.calm:
            return [self.random.randrange(2_000, 20_000)]
        drawn = self.random.random()
        times = 0 if drawn < 0.08 else 2 if drawn < 0.2 else 1
        most = 3 * US if self.random.random() < 0.12 else 80_000
        return [self.random.randrange(2_000, most) for _ in range(times)]

    def step(self, node: Node, act: Callable[[], None]) -> None:
        """A node does something, if it still lives."""
        if self.nodes.get(node.number) is not node:
            return
        effects = node.services.begin(self.local(node.number))
        act()
        for effect in effects:
            if isinstance(effect, Send):
                self.send(node, effect)
            elif isinstance(effect, SetTimer):
                node.timers[effect.timer] = None
                wait = max(0, round((effect.at - self.local(node.number)) / self.rates[node.number])) + 1
                self.later(wait, lambda timer=effect.timer: self.step(node, lambda: node.services.fired(timer)))  # type: ignore[misc]
            elif isinstance(effect, Observe):
                self.seen[effect.name] = self.seen.get(effect.name, 0) + effect.value
            else:
                assert isinstance(effect, CancelTimer)
        node.quenching.check()
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
                handler = target.quenching.handlers()[type(effect.message)]
                self.step(target, lambda: handler(node.services.me, effect.message))

        for delay in self.delays(effect.message):
            self.later(delay, arrive)

    def carry(self, origin: Node, key: Key, number: int, point: int, body: Message) -> None:
        """One part of an errand comes to who holds its key by then, if it comes, and so does the answer."""

        def arrive() -> None:
            home = self.holder(key)
            node = None if home is None else self.nodes.get(home.node)
            if home is None or node is None:
                return
            arc = node.arc(home.id, key)
            points = {each for each in range(1 << WIDTH) if arc.holds(key_of(RING, each, WIDTH))}
            points = {each for each in points if key_of(RING, each, WIDTH) >= key}  # as the real ones: from the key on

            def answer(reply: Message) -> None:
                for delay in self.delays(reply):
                    self.later(delay, lambda: self.step(origin, lambda: origin.done(number, points, reply)))

            self.step(node, lambda: node.doers[type(body)](home, Reached(key, 1), body, answer))

        for delay in self.delays(body):
            self.later(delay, arrive)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * US)
        while self.heap and self.heap[0][0] <= until:
            self.now, _, then = heapq.heappop(self.heap)
            then()
        self.now = until

    # -- what must be so -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        for number, node in self.nodes.items():
            for region, lease in node.quenching._leases.items():
                if lease.until > self.local(number):
                    for entry in self.acked.values():
                        if is_below(entry.point, region):
                            raise BrokenError(f"{self.now}: node {number} takes {region} to be idle: {entry}")

    def holder(self, key: bytes) -> Home | None:
        return next((home for home in self.homes if any(arc.holds(key) for arc in home.arcs)), None)

    # -- what may happen -----------------------------------------------------------------------------------------------

    def start(self, number: int, owed_us: int | None = None) -> None:
        self.lives += 1
        node = self.nodes[number] = Node(self, number, self.lives)
        for home in self.homes:
            if home.node == number:
                self.step(node, lambda home=home: node.quenching.began(home.id, owed_us))  # type: ignore[misc]

    def crash(self, number: int) -> None:
        self.nodes.pop(number, None)

    def place(self, entry: Entry) -> None:
        """Have an entry kept by who holds its key, again and again until that is acknowledged."""
        if entry.name not in self.wanted or entry.name in self.acked:
            return
        home = self.holder(key_of(RING, entry.point, WIDTH))
        node = None if home is None else self.nodes.get(home.node)
        if home is not None and node is not None:

            def acknowledged() -> None:
                if entry.name in self.wanted:
                    self.later(1, lambda: self.acknowledge(entry))

            home.entries[entry.name] = entry.point
            self.step(node, lambda: node.quenching.put(home.id, entry.point, acknowledged))
        self.later(self.random.randrange(US, 3 * US), lambda: self.place(entry))

    def acknowledge(self, entry: Entry) -> None:
        if entry.name in self.wanted:
            self.acked[entry.name] = entry
            self.look()

    def withdraw(self, name: str) -> None:
        self.acked.pop(name, None)
        entry = self.wanted.pop(name)
        home = self.holder(key_of(RING, entry.point, WIDTH))
        if home is not None:
            home.entries.pop(name, None)
        else:
            self.later(US, lambda: self.erase(name))

    def erase(self, name: str) -> None:
        for home in self.homes:
            home.entries.pop(name, None)

    def give(self, giver: Home, taker: Home, arc: Arc) -> None:
        """An arc goes from one home to another, which has it some time later, with what lies there."""
        giver.arcs.remove(arc)

        def pull() -> None:
            node, other = self.nodes.get(giver.node), self.nodes.get(taker.node)
            if node is None or other is None:
                self.later(US // 2, pull)
                return
            # Both homes may have gone elsewhere since: what counts is where they are now.
            owed: list[int] = []
            self.step(node, lambda: owed.append(node.quenching.owed_us(giver.id)))
            self.later(self.random.randrange(2_000, 200_000), lambda: complete(owed[0]))

        def complete(owed_us: int) -> None:
            node = self.nodes.get(taker.node)
            if node is None:
                self.later(US // 2, pull)  # it asks again
                return
            taker.arcs.append(arc)
            moved = {
                name: point for name, point in giver.entries.items() if arc.holds(key_of(RING, point, WIDTH))
            }  # fmt: skip
            for name, point in moved.items():
                del giver.entries[name]
                if name in self.wanted:
                    taker.entries[name] = point
            self.step(node, lambda: node.quenching.began(taker.id, owed_us))

        self.later(self.random.randrange(2_000, 500_000), pull)

    def move(self, home: Home, number: int) -> None:
        """A home goes to another node."""
        node, other = self.nodes.get(home.node), self.nodes.get(number)
        if node is not None and other is not None and node is not other:
            home.node = number
            self.step(node, lambda: node.quenching.ended(home.id))
            self.step(other, lambda: other.quenching.began(home.id, None))

    def wish(self, number: int, region: Region) -> None:
        node = self.nodes.get(number)
        if node is not None:

            def act() -> None:
                if not node.quenching.is_idle(region):
                    node.quenching.wish(region)

            self.step(node, act)


class Story:
    """One random life of such a world."""

    def __init__(self, seed: int, kind: type[Quenching] = Quenching) -> None:
        class Mine(World):
            pass

        Mine.kind = kind
        self.world = Mine(seed)
        self.random = random.Random(seed + 1_000_000)
        self.count = 0
        self.idle = 0

    def live(self, seconds: float) -> None:
        world = self.world
        until = world.now + int(seconds * US)
        deeds = [(self.ask, 60), (self.put, 3), (self.withdraw, 4), (self.give, 2), (self.crash, 1), (self.move, 1)]
        while world.now < until:
            self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()
            world.run(self.random.choice([0.005, 0.02, 0.1]))
            if not self.random.randrange(10):
                self.idle += sum(
                    lease.until > world.local(number)
                    for number, node in world.nodes.items()
                    for lease in node.quenching._leases.values()
                )
        world.calm = True
        for number in sorted(set(world.rates) - set(world.nodes)):
            world.start(number)
        world.run(4 * LEASE_US / US)
        assert world.acked.keys() == world.wanted.keys(), "an entry is never acknowledged"

    def ask(self) -> None:
        if self.world.nodes:
            length = self.random.randint(1, WIDTH)
            region = Region(self.random.randrange(1 << length), length)
            self.world.wish(self.random.choice(list(self.world.nodes)), region)

    def put(self) -> None:
        if len(self.world.wanted) < 3:
            self.count += 1
            entry = Entry(f"e{self.count}", self.random.randrange(1 << WIDTH))
            self.world.wanted[entry.name] = entry
            self.world.place(entry)

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
            self.world.crash(number)
            self.world.later(self.random.randrange(50_000, 2 * US), lambda: self.restart(number))

    def restart(self, number: int) -> None:
        if number not in self.world.nodes:
            self.world.start(number)

    def move(self) -> None:
        self.world.move(self.random.choice(self.world.homes), self.random.choice(list(self.world.rates)))
