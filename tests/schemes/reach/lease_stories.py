"""A small world of nodes that rest on what others promised them for a time: what quenching and copying have in common.

Arcs, homes and entries are moved by hand; messages are late, doubled and lost, and clocks are apart. Custody is a
stand-in that keeps to what that promises: a key has at most one holder, who has all that lies there, and between giving
and getting none. All else is the real thing. `look` says at every moment whether a match would be lost.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.node.runtime.effects import CancelTimer, Observe, Send, SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange

__all__ = [
    "RING",
    "US",
    "BrokenError",
    "Home",
    "Node",
    "Story",
    "World",
    "is_caught",
    "owing_nothing",
    "ready_at_once",
]

US = 1_000_000
RING = Ring(16)


class BrokenError(Exception):
    """A match would be lost."""


class Home:
    """A home: where it is, and what it holds."""

    def __init__(self, number: int, node: int, arcs: list[KeyRange]) -> None:
        self.id = HomeId(bytes(RING.node(number)))
        self.node = node
        self.arcs = arcs


HomeT = TypeVar("HomeT", bound=Home)
EntryT = TypeVar("EntryT")


class Node(Generic[HomeT]):
    """One life of a node, and custody as its part wants it. `part` is what is tested."""

    part: Any

    def __init__(self, world: World[HomeT, Any], number: int) -> None:
        self.world = world
        self.number = number
        me = Peer(RING.node(number), f"n{number}", 1)  # the same in each life, as where the disk is lost
        self.services = Runtime(me, RING, None, world.random.getrandbits(40))  # type: ignore[arg-type]
        self.services.begin(world.local(number))

    def holder(self, key: bytes) -> HomeT | None:
        home = self.world.holder(key)
        return home if home is not None and home.node == self.number else None

    def arc(self, home: bytes, key: bytes) -> KeyRange:
        return next(arc for arc in self.home(home).arcs if arc.holds(key))

    def home(self, home: bytes) -> HomeT:
        return next(each for each in self.world.homes if each.id == home)


class World(Generic[HomeT, EntryT]):
    """All of it. `kind` is the class that is tested, or a mutant of it."""

    kind: type[Any]
    late_us: ClassVar[int]
    """How late a message may be."""
    given_us: ClassVar[int]
    pulled_us: ClassVar[int]
    """How long an arc that is given away may be nowhere, before and after its taker asks for it."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.random = random.Random(seed)
        self.slow: Callable[[Message], list[int] | None] = lambda message: None
        self.now = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.calm = False
        self.rates = {number: 1 + self.random.uniform(-0.01, 0.01) for number in range(1, nodes + 1)}
        self.nodes: dict[int, Node[HomeT]] = {}
        self.wanted: dict[str, EntryT] = {}
        self.acked: dict[str, EntryT] = {}
        self.seen: dict[str, int] = {}
        self.homes = self.make_homes()
        for number in self.rates:
            self.start(number, owed_us=0)

    # -- what is tested ------------------------------------------------------------------------------------------------

    def make_homes(self) -> list[HomeT]:
        """Homes, which hold the whole circle."""
        raise NotImplementedError

    def make_node(self, number: int) -> Node[HomeT]:
        """A node that begins, with its part."""
        raise NotImplementedError

    def look(self) -> None:
        """Raise where a match would be lost."""
        raise NotImplementedError

    def key(self, entry: EntryT) -> bytes:
        """Where an entry lies."""
        raise NotImplementedError

    def put(self, node: Node[HomeT], home: HomeT, name: str, entry: EntryT, then: Callable[[], None]) -> None:
        """An entry is kept, and the part says when it is safe."""
        raise NotImplementedError

    def withdraw(self, name: str) -> None:
        """An entry is no longer wanted."""
        raise NotImplementedError

    def hand_over(self, giver: HomeT, taker: HomeT, arc: KeyRange, node: Node[HomeT], owed_us: int) -> None:
        """What lies on an arc goes to its new home, which is at this node."""
        raise NotImplementedError

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
        most = self.late_us if self.random.random() < 0.12 else 80_000
        return [self.random.randrange(2_000, most) for _ in range(times)]

    def step(self, node: Node[HomeT], act: Callable[[], None]) -> None:
        """A node does something, if it still lives."""
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
            elif isinstance(effect, Observe):
                self.seen[effect.name] = self.seen.get(effect.name, 0) + effect.value
            else:
                assert isinstance(effect, CancelTimer)
        node.part.check()
        self.look()

    def send(self, node: Node[HomeT], effect: Send) -> None:
        number = RING.number(effect.to.id)

        def arrive() -> None:
            target = self.nodes.get(number)
            if target is None:
                self.step(node, lambda: node.services.lost(effect.to))
            elif isinstance(effect.message, Reply):
                self.step(target, lambda: target.services.replied(node.services.me, effect.message))  # type: ignore[arg-type]
            else:
                handler = target.part.handlers()[type(effect.message)]
                self.step(target, lambda: handler(node.services.me, effect.message))

        for delay in self.delays(effect.message):
            self.later(delay, arrive)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * US)
        while self.heap and self.heap[0][0] <= until:
            self.now, _, then = heapq.heappop(self.heap)
            then()
        self.now = until

    # -- what may happen -----------------------------------------------------------------------------------------------

    def holder(self, key: bytes) -> HomeT | None:
        return next((home for home in self.homes if any(arc.holds(key) for arc in home.arcs)), None)

    def start(self, number: int, owed_us: int | None = None) -> None:
        node = self.nodes[number] = self.make_node(number)
        for home in self.homes:
            if home.node == number:
                self.step(node, lambda home=home: node.part.began(home.id, owed_us))  # type: ignore[misc]

    def crash(self, number: int) -> None:
        del self.nodes[number]

    def want(self, name: str, entry: EntryT) -> None:
        """Have an entry kept by who holds its key, again and again until that is acknowledged."""
        self.wanted[name] = entry
        self._place(name, entry)

    def _place(self, name: str, entry: EntryT) -> None:
        if name not in self.wanted or name in self.acked:
            return
        home = self.holder(self.key(entry))
        node = None if home is None else self.nodes.get(home.node)
        if home is not None and node is not None:

            def acknowledged() -> None:
                if name in self.wanted:
                    self.acked[name] = entry

            self.put(node, home, name, entry, acknowledged)
        self.later(self.random.randrange(US, 3 * US), lambda: self._place(name, entry))

    def give(self, giver: HomeT, taker: HomeT, arc: KeyRange) -> None:
        """An arc goes from one home to another, which has it some time later, with what lies there."""
        giver.arcs.remove(arc)

        def pull() -> None:
            # Both homes may have gone elsewhere since: what counts is where they are now.
            node, other = self.nodes.get(giver.node), self.nodes.get(taker.node)
            if node is None or other is None:
                self.later(US // 2, pull)
                return
            owed: list[int] = []
            self.step(node, lambda: owed.append(node.part.owed_us(giver.id)))
            self.later(self.random.randrange(2_000, self.pulled_us), lambda: complete(owed[0]))

        def complete(owed_us: int) -> None:
            node = self.nodes.get(taker.node)
            if node is None:
                self.later(US // 2, pull)  # it asks again
                return
            taker.arcs.append(arc)
            self.hand_over(giver, taker, arc, node, owed_us)

        self.later(self.random.randrange(2_000, self.given_us), pull)

    def move(self, home: HomeT, number: int) -> None:
        """A home goes to another node."""
        node, other = self.nodes.get(home.node), self.nodes.get(number)
        if node is not None and other is not None and node is not other:
            home.node = number
            self.step(node, lambda: node.part.ended(home.id))
            self.step(other, lambda: other.part.began(home.id, None))


WorldT = TypeVar("WorldT", bound=World[Any, Any])


class Story(Generic[WorldT]):
    """One random life of such a world."""

    lease_us: ClassVar[int]
    hosts: ClassVar[tuple[int, ...]]
    """Nodes that homes go to."""

    def __init__(self, seed: int, world: WorldT) -> None:
        self.world = world
        self.random = random.Random(seed + 1_000_000)
        self.count = 0

    def deeds(self) -> Iterable[tuple[Callable[[], None], int]]:
        """What is done, and how often."""
        raise NotImplementedError

    def glance(self) -> None:
        """Something was done: count what is to be counted."""

    def live(self, seconds: float) -> None:
        world = self.world
        until = world.now + int(seconds * US)
        deeds, weights = zip(*self.deeds(), strict=True)
        while world.now < until:
            self.random.choices(deeds, weights)[0]()
            world.run(self.random.choice([0.005, 0.02, 0.1]))
            self.glance()
        world.calm = True
        for number in sorted(set(world.rates) - set(world.nodes)):
            world.start(number)
        world.run(4 * self.lease_us / US)
        assert world.acked.keys() == world.wanted.keys(), "an entry is never acknowledged"

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
        self.world.move(self.random.choice(self.world.homes), self.random.choice(self.hosts))


# -- mutants -----------------------------------------------------------------------------------------------------------


def owing_nothing(kind: type[Any]) -> type[Any]:
    """One that gives arcs away and does not say what others were told."""

    class NothingOwed(kind):  # type: ignore[misc]
        def owed_us(self, home: HomeId) -> int:
            return 0

    return NothingOwed


def ready_at_once(kind: type[Any]) -> type[Any]:
    """One that does not wait for what others were told before a restart, or by another."""

    class ReadyAtOnce(kind):  # type: ignore[misc]
        def began(self, home: HomeId, owed_us: int | None) -> None:
            super().began(home, 0)

    return ReadyAtOnce


def is_caught(story: Story[Any]) -> bool:
    """Whether 20 seconds are enough to see that a match would be lost."""
    try:
        story.live(20)
    except BrokenError:
        return True
    return False
