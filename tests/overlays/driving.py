"""A small driver for an overlay alone: virtual time, a heap, messages in memory with delay, loss and partitions.

The simulator does more and through the real node; this one has only what the tests of an overlay need, so that they do
not depend on anything above it. Each overlay has a `Host` and a `World` of its own.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.node.overlay import Upcalls
from meetpoint.node.runtime.effects import CancelTimer, Effect, Observe, Send, SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Host", "Text", "World", "drawn", "peer"]

Overlaid = TypeVar("Overlaid", bound=Any)
Hosted = TypeVar("Hosted", bound="Host[Any]")


class Text(Message, frozen=True, array_like=True, gc=False, tag="t.tx"):
    """A message to route."""

    text: str


def peer(ring: Ring, number: int, incarnation: int = 0) -> Peer:
    """A node by its number."""
    return Peer(ring.node(number), f"node-{number}", incarnation)


class Host(Generic[Overlaid]):
    """A node that is nothing but its overlay."""

    def __init__(
        self, me: Peer, ring: Ring, seed: int, packer: Codec, make: Callable[[Runtime, Upcalls], Overlaid]
    ) -> None:
        self.runtime = Runtime(me, ring, packer, seed)
        self.runtime._numbers = 0  # from one on, so that tests can tell them
        self.delivered_here: list[tuple[Key, Message, Peer, int]] = []
        self.joins = 0
        self.changes = 0
        self.overlay = make(self.runtime, self)
        self.overlay._router._numbers = 0
        self.handlers: dict[type[Message], Callable[[Peer, Message], None]] = dict(self.overlay.handlers())

    # What the overlay tells.
    def joined(self) -> None:
        self.joins += 1

    def neighbours_changed(self) -> None:
        self.changes += 1

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        self.delivered_here.append((key, body, origin, hops))

    # What a driver hands in.
    def do(self, now: int, act: Callable[[], None]) -> list[Effect]:
        """Run one step."""
        effects = self.runtime.begin(Instant(now))
        act()
        return effects

    def receive(self, source: Peer, message: Message) -> None:
        if isinstance(message, Reply):
            self.runtime.replied(source, message)
        else:
            self.handlers[type(message)](source, message)

    def lose(self, gone: Peer) -> None:
        self.runtime.lost(gone)
        self.overlay.suspect(gone)


class World(Generic[Hosted]):
    """Hosts, and the network between them."""

    def __init__(
        self,
        ring: Ring,
        packer: Codec,
        seed: int = 0,
        detector: bool = True,
        loss: float = 0.0,
        delay_us: tuple[int, int] = (5_000, 50_000),
        packed: bool = False,
    ) -> None:
        self.ring = ring
        self.packer = packer
        self.random = random.Random(seed)
        self.detector = detector
        self.loss = loss
        self.delay_us = delay_us
        self.packed = packed
        self.hosts: dict[bytes, Hosted] = {}
        self.now = 0
        self.sent: Counter[str] = Counter()
        self.observed: Counter[str] = Counter()
        self.broken: list[tuple[int, str]] = []
        self.watched = False
        self.sides: dict[bytes, int] = {}
        self.cuts: set[frozenset[bytes]] = set()
        self._seen: dict[bytes, int] = {}
        self._heap: list[tuple[int, int, Hosted, Callable[[], None]]] = []
        self._count = 0

    # -- what an overlay adds ------------------------------------------------------------------------------------------

    def make(self, me: Peer, seed: int) -> Hosted:
        """A node."""
        raise NotImplementedError

    def departed(self, members: dict[bytes, Any]) -> str | None:
        """The first member that is not ideal."""
        raise NotImplementedError

    def wrong(self) -> str | None:
        """Return what is wrong with the overlay as a whole."""
        raise NotImplementedError

    def owner(self, key: bytes) -> NodeId:
        """The member that a key belongs to, as one sees who sees all."""
        raise NotImplementedError

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def start(self, me: Peer) -> Hosted:
        host = self.make(me, self.random.getrandbits(32))
        self.hosts[me.id] = host
        return host

    def found(self, peers: Iterable[Peer]) -> list[Hosted]:
        order = tuple(sorted(peers))
        hosts = [self.start(me) for me in order]
        for host in hosts:
            self.step(host, lambda host=host: host.overlay.found(order))  # type: ignore[misc]
        return hosts

    def join(self, me: Peer, contact: Peer) -> Hosted:
        host = self.start(me)
        self.step(host, lambda: host.overlay.join(contact))
        return host

    def crash(self, node: bytes) -> None:
        del self.hosts[node]
        self._seen.pop(node, None)

    def leave(self, node: bytes) -> None:
        self.step(self.hosts[node], self.hosts[node].overlay.leave)
        self.crash(node)

    def members(self) -> dict[bytes, Any]:
        views = {node: host.overlay.view() for node, host in self.hosts.items()}
        return {node: view for node, view in views.items() if view.joined}

    def departures(self) -> str | None:
        """The first node that is not ideal; a node that has not joined is not."""
        members = self.members()
        return "not all have joined" if len(members) < len(self.hosts) else self.departed(members)

    # -- time ----------------------------------------------------------------------------------------------------------

    def step(self, host: Hosted, act: Callable[[], None]) -> None:
        """Run one step of a host, and what follows from it."""
        effects = host.do(self.now, act)
        host.overlay.check()
        for effect in effects:
            self._apply(host, effect)
        if self.watched:
            self._watch(host)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self._until(self.now + int(seconds * SECOND_US), lambda: False)

    def run_until(self, done: Callable[[], bool], seconds_max: float, every: float = 0.25) -> float:
        """Let time pass until something holds; how many seconds it took."""
        begun = self.now
        while not done():
            assert self.now - begun < seconds_max * SECOND_US, f"not within {seconds_max} s: {self.departures()}"
            self.run(every)
        return (self.now - begun) / SECOND_US

    def heal(self, seconds_max: float) -> float:
        """Let time pass until all is ideal."""
        return self.run_until(lambda: self.departures() is None, seconds_max)

    def _until(self, end: int, done: Callable[[], bool]) -> None:
        while self._heap and self._heap[0][0] <= end and not done():
            self.now, _, host, act = heapq.heappop(self._heap)
            if self.hosts.get(host.overlay.view().id) is host:
                self.step(host, act)
        self.now = max(self.now, end)

    def _later(self, at: int, host: Hosted, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, host, act))

    # -- effects -------------------------------------------------------------------------------------------------------

    def _apply(self, host: Hosted, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._send(host, to, message)
            case SetTimer(timer, at):
                self._later(at, host, lambda: host.runtime.fired(timer))
            case Observe(name, value):
                self.observed[name] += value
            case CancelTimer():
                pass  # a timer that was cancelled does nothing when it fires
            case _:
                raise AssertionError(effect)

    def _send(self, host: Hosted, to: Peer, message: Message) -> None:
        self.sent[type(message).__name__] += 1
        source = host.runtime.me
        if self.packed:
            message = self.packer.decode(self.packer.encode(message))
        at = self.now + self.random.randint(*self.delay_us)
        target = self.hosts.get(to.id)
        if target is None or target.runtime.me.address != to.address:
            if self.detector:
                self._later(at, host, lambda: host.lose(to))
            return
        if self.sides.get(source.id, 0) != self.sides.get(to.id, 0) or self.random.random() < self.loss:
            return
        if frozenset((source.id, to.id)) in self.cuts:
            return
        self._later(at, target, lambda: target.receive(source, message))

    def _watch(self, host: Hosted) -> None:
        view = host.overlay.view()
        if view.id in self.hosts and self._seen.get(view.id) != view.version:
            self._seen[view.id] = view.version
            wrong = self.wrong()
            if wrong is not None:
                self.broken.append((self.now, wrong))

    # -- questions -----------------------------------------------------------------------------------------------------

    def lookup(self, host: Hosted, key: Key, seconds_max: float = 10) -> tuple[Peer | None, int]:
        answers: list[tuple[Peer | None, int]] = []
        self.step(host, lambda: host.overlay.lookup(key, lambda found, hops: answers.append((found, hops))))
        self.run_until(lambda: bool(answers), seconds_max, 0.01)
        return answers[0]


def drawn(ring: Ring, count: int, seed: int) -> list[Peer]:
    """Nodes at random places, in order."""
    chance = random.Random(f"nodes {seed}")
    numbers: set[int] = set()
    while len(numbers) < count:
        numbers.add(chance.randrange(ring.size))
    return [peer(ring, number) for number in sorted(numbers)]
