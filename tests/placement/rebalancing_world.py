"""The small world with an overlay that says which keys are whose: a table that the test changes at will, for all nodes
or for some of them. After every step it is seen to that no two homes hold a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meetpoint.api.ids import HomeId, Key, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Span, Upcalls
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange, arc_of, common, without
from meetpoint.schemes.meet import MeetSettings
from tests.node.world import Table
from tests.placement.eyes import misplaced_among
from tests.placement.small_world import RING, MeetWorld, home

LOOKUP_US = (5_000, 60_000)
EVERYTHING = KeyRange(bytes(RING.key(-1)), bytes(RING.key(-1)))


class Seen:
    """`Places` of one node, as the world has it."""

    def __init__(self, world: FollowingWorld, runtime: Runtime) -> None:
        self._world = world
        self._runtime = runtime
        self._number = RING.number(runtime.me.id) // 1000

    def founding(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, Span]:
        first: dict[NodeId, Span] = {}
        for span, number in self._world.table:
            assert RING.node(1000 * number) not in first, "one span each, to begin with"
            first[RING.node(1000 * number)] = span
        return first

    def mine(self) -> tuple[Span, ...] | None:
        if self._number in self._world.lost:
            return None
        return tuple(span for span, number in self._world.seen_by(self._number) if number == self._number)

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        def answer() -> None:
            self._world.looks += 1
            span, number = next(
                each for each in self._world.seen_by(self._number) if each[0].first <= key <= each[0].last
            )
            peer = self._world.members.get(RING.node(1000 * number))
            then(*((None, None) if peer is None else (peer, span)))

        self._runtime.after(self._world.random.randrange(*LOOKUP_US), answer)


class Led(Table):
    """Routes by what its node sees, in one hop."""

    world: FollowingWorld

    def route(self, key: Key, body: Message) -> None:
        world, me = self.world, self._runtime.me
        _, number = world.led_by(RING.number(me.id) // 1000, key)
        delays = world.weather(RING.number(me.id) // 1000, number, body)
        for delay in [world.random.randrange(*LOOKUP_US)] if delays is None else delays:
            world._later(delay, lambda: world.deliver(number, key, body, me))


class FollowingWorld(MeetWorld):
    """Nodes with `meet`. `table` says whose keys are, in order of the keys, `views` to some nodes something else."""

    def __init__(self, *cuts: tuple[int, int], nodes: int | None = None, seed: int = 1, **settings: int) -> None:
        self.table = table(*cuts)
        self.views: dict[int, list[tuple[Span, int]]] = {}
        self.lost: set[int] = set()  # nodes that have yet to find their place
        self.looks = 0
        self.twice: list[str] = []
        count = max(number for _, number in cuts) if nodes is None else nodes
        super().__init__(count, seed=seed, meet=MeetSettings(lease_us=3_000_000), **settings)

    def seen_by(self, number: int) -> list[tuple[Span, int]]:
        """The table as a node sees it."""
        return self.views.get(number, self.table)

    def led_by(self, number: int, key: bytes) -> tuple[Span, int]:
        """Where a key leads, as a node sees it."""
        return next(each for each in self.seen_by(number) if each[0].first <= key <= each[0].last)

    def overlay(self, runtime: Runtime, upcalls: Upcalls) -> Table:
        overlay = Led(self, runtime, upcalls)
        overlay.world = self
        overlay.places = Seen(self, runtime)
        return overlay

    def deliver(self, number: int, key: Key, body: Message, origin: Peer) -> None:
        """A message that was routed has come to a node."""
        node = self.nodes.get(number)
        if node is not None and node.state != "new":
            effects = node._runtime.begin(self.local(number))
            node.delivered(key, body, origin, 1)
            self._apply(number, node, effects)
            self.stepped()

    def lead(self, *cuts: tuple[int, int], to: int | None = None) -> None:
        """From now on the table is another, for all or for one."""
        if to is None:
            self.table = table(*cuts)
        else:
            self.views[to] = table(*cuts)
        self.members_changed()

    def stepped(self) -> None:
        held = [(each, arc) for each, arcs in self.arcs().items() for arc in arcs]
        for at, (one, arc) in enumerate(held):
            for other, another in held[at + 1 :]:
                if another.holds(arc.high) or arc.holds(another.high):
                    self.twice.append(f"{self.now}: {one.hex()} and {other.hex()} hold {arc} and {another}")

    # -- in the end ----------------------------------------------------------------------------------------------------

    def held(self) -> dict[HomeId, tuple[KeyRange, ...]]:
        """What each home holds, if anything."""
        return {each: without(RING, arcs, ()) for each, arcs in sorted(self.arcs().items()) if arcs}

    def led(self) -> dict[HomeId, tuple[KeyRange, ...]]:
        """What each home is to hold."""
        arcs: dict[HomeId, list[KeyRange]] = {}
        for span, number in self.table:
            arcs.setdefault(home(number), []).append(arc_of(RING, span))
        return {each: without(RING, arcs[each], ()) for each in sorted(arcs)}

    def assert_quiet(self) -> None:
        """No key ever had two holders; each has the one that the table says, with all that is placed there."""
        assert self.twice == []
        assert self.held() == self.led()
        self.assert_whole()

    def assert_whole(self) -> None:
        """Every key has one holder, with all that is placed there, and nothing is on its way."""
        assert self.twice == []
        arcs = [arc for held in self.arcs().values() for arc in held]
        assert without(RING, [EVERYTHING], arcs) == (), "some keys nobody holds"
        schemes = {number: self.scheme(number) for number in sorted(self.nodes)}
        seen = [
            (f"n{n}", each._ownership, each._placement, self.nodes[n].home_manager.homes) for n, each in schemes.items()
        ]
        assert misplaced_among(seen) == []
        for each in schemes.values():
            for owned in each._ownership.owned_ranges.values():
                assert not owned.given
                assert not owned.taken
            assert each._ownership._handoff._giving == each._ownership._handoff._telling == {}

    def give(self, giver: HomeId, arc: KeyRange, to: HomeId) -> bool:
        """Have a home give an arc."""
        number = next(n for n, node in self.nodes.items() if giver in node.home_manager.homes)
        node = self.nodes[number]
        effects = node._runtime.begin(self.local(number))
        began: bool = self.scheme(number)._ownership.give(node.home_manager.homes[giver], arc, to)
        self._apply(number, node, effects)
        return began


def table(*cuts: tuple[int, int]) -> list[tuple[Span, int]]:
    """Spans up to some numbers, the last of which is the last key whatever it says, and whose they are."""
    highs = [RING.number(RING.key(high)) for high, _ in cuts[:-1]] + [RING.size - 1]
    lows = [0, *(high + 1 for high in highs[:-1])]
    return [
        (Span(RING.key(low), RING.key(high)), number) for low, high, (_, number) in zip(lows, highs, cuts, strict=True)
    ]


def arc(low: int, high: int) -> KeyRange:
    """The keys after one number up to another."""
    return KeyRange(bytes(RING.key(low)), bytes(RING.key(high)))


__all__ = ["EVERYTHING", "FollowingWorld", "arc", "common", "table"]
