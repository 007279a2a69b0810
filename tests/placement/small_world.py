"""The small world of `tests/node`, with nodes that run `meet`: messages are delayed, doubled or lost by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, islice
from typing import Any

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Subscribe
from meetpoint.catalog import make_codec
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.node.node import Node
from meetpoint.node.overlay import Upcalls
from meetpoint.node.runtime.effects import Send, SetTimer
from meetpoint.node.runtime.inputs import Instant, PeerUnreachable, Received, Started, TimerFired
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.key_range import KeyRange, meets
from meetpoint.schemes.meet import Meet, MeetSettings
from meetpoint.schemes.meet.entries import place_of
from tests.node.world import RING, Table, World

CODEC = make_codec()


def home(number: int) -> HomeId:
    """The home of a node."""
    return HomeId(bytes(RING.node(1000 * number)))


def symbols_between(low: int, high: int) -> list[str]:
    """Symbols whose keys lie on the arc after one number up to another, as many as are found soon."""
    arc = KeyRange(bytes(RING.key(low)), bytes(RING.key(high)))
    there = (
        f"S{number}"
        for number in count()
        if arc.holds(place_of(RING, MeetKey(KeySort.VALUE, "symbol", "string", 0, 0, f"S{number}")))
    )
    return list(islice(there, 4))


class MeetWorld(World):
    """Nodes with `meet`. `weather` says after how long a message arrives: each of its times, or never."""

    kind: type[Meet] = Meet

    def __init__(self, count: int, *, seed: int = 1, meet: MeetSettings | None = None, **settings: int) -> None:
        self.meet = MeetSettings() if meet is None else meet
        self.weather: Callable[[int, int, Message], Iterable[int] | None] = lambda source, to, message: None
        self.rates: dict[int, float] = {}  # of clocks: how much faster than time they go
        super().__init__(count, seed=seed, **settings)

    def start(self, number: int, *, founders: tuple[Peer, ...] = (), contacts: Iterable[int] = ()) -> None:
        node_settings: NodeSettings = self.settings
        node = Node(
            Peer(RING.node(1000 * number), f"n{number}", 1),
            RING,
            self.random.getrandbits(30),
            CODEC,
            self.overlay,
            lambda runtime, overlay, home_manager: self.kind(runtime, overlay, home_manager, node_settings, self.meet),
            node_settings,
        )
        self.nodes[number] = node
        records = tuple(self.disks.setdefault(number, {}).values())
        peers = tuple(Peer(RING.node(1000 * each), f"n{each}", 0) for each in contacts)
        self._handle(number, node, Started(records, founders, peers))

    def overlay(self, runtime: Runtime, upcalls: Upcalls) -> Table:
        """The overlay of a node."""
        return Table(self, runtime, upcalls)

    def local(self, number: int) -> Instant:
        """What the clock of a node shows."""
        return Instant(int(self.now * self.rates.get(number, 1.0)))

    def _handle(self, number: int, node: Node, item: Any) -> None:
        if self.nodes.get(number) is node:
            self._apply(number, node, node.handle(item, self.local(number)))
            node.check()
            self.stepped()

    def stepped(self) -> None:
        """Something has happened; whoever wants to look may."""

    def _apply(self, number: int, node: Node, effects: list[Any]) -> None:
        others = [effect for effect in effects if not isinstance(effect, SetTimer)]
        for effect in effects:
            if isinstance(effect, SetTimer):
                wait = max(0, round((effect.at - self.local(number)) / self.rates.get(number, 1.0)))
                self._later(wait, partial(self._handle, number, node, TimerFired(effect.timer)))
        super()._apply(number, node, others)

    def _changed(self, number: int, node: Node) -> None:
        if self.nodes.get(number) is node and node.state != "new":
            effects = node._runtime.begin(self.local(number))
            node.neighbours_changed()
            self._apply(number, node, effects)

    def _send(self, node: Node, effect: Send) -> None:
        source, data = node.me, CODEC.encode(effect.message)
        number = RING.number(effect.to.id) // 1000
        sender = RING.number(source.id) // 1000

        def arrive() -> None:
            target = self.nodes.get(number)
            if target is not None:
                self._handle(number, target, Received(source, CODEC.decode(data)))
            elif self.nodes.get(sender) is node:
                self._handle(sender, node, PeerUnreachable(effect.to))

        if self.is_cut(source.id, effect.to.id):
            return
        delays = self.weather(sender, number, effect.message)
        for delay in [self.random.randrange(5_000, 50_000)] if delays is None else delays:
            self._later(delay, arrive)

    # -- in short ------------------------------------------------------------------------------------------------------

    def scheme(self, number: int) -> Any:
        """The scheme of a node, with all its parts."""
        return self.nodes[number].scheme

    def say(self, to: int, message: Message, source: Peer | None = None) -> None:
        """A message comes from somewhere."""
        peer = Peer(RING.node(1), "nowhere", 1) if source is None else source
        self._handle(to, self.nodes[to], Received(peer, CODEC.decode(CODEC.encode(message))))

    def subscribed(self, number: int, name: str, text: str, seconds: float = 3) -> None:
        """A subscription that is acknowledged within a time."""
        request = self.ask(number, Subscribe(name, text))
        self.run(seconds)
        assert self.answers.get(request) == Stored(), f"{name} is not acknowledged"

    def arcs(self) -> dict[HomeId, tuple[KeyRange, ...]]:
        """What each home holds."""
        return {
            each: owned.arcs
            for number in sorted(self.nodes)
            for each, owned in self.scheme(number)._ownership.owned_ranges.items()
        }

    def check_arcs(self) -> None:
        """Every key has exactly one holder."""
        arcs = [arc for held in self.arcs().values() for arc in held]
        sizes = [RING.distance(arc.low, arc.high) or RING.size for arc in arcs]
        assert sum(sizes) == RING.size, f"{self.arcs()}"
        for at, arc in enumerate(arcs):
            assert not any(meets(other, arc.high, arc.high) for other in arcs[at + 1 :]), "two hold one key"

    def came(self) -> list[tuple[str, str]]:
        """What was notified, without repeats."""
        return [(name, event) for name, event, redelivered in self.notified if not redelivered]


def free(world: MeetWorld, number: int, which: HomeId | None = None) -> None:
    """The next home takes all that a home at a node holds: its own, or another one there."""
    node = world.nodes[number]
    effects = node._runtime.begin(world.local(number))
    world.scheme(number)._ownership.free(node.home_manager.homes[home(number) if which is None else which])
    world._apply(number, node, effects)


__all__ = ["CODEC", "RING", "MeetWorld", "free", "home", "symbols_between"]
