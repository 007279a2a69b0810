"""Filters over a network in one process: messages wait, are lost, doubled and overtaken; nodes come, go and crash.

Clocks differ by up to 1 %. Who has custody of which keys is always right, as on a real network: a home has those after
the one before it, up to its own place, whether its node is up or not. What nodes know of each other is as old as when
they last looked (`learn`), or plainly wrong (`believe`).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import NamedTuple

from meetpoint.language import parse_filter
from meetpoint.schemes.rebeca.edges import EdgeMessage, Edges, EdgeState, Outgoing
from meetpoint.schemes.rebeca.graph import Range, fingers
from meetpoint.schemes.rebeca.invariant import is_superset, not_kept, not_told
from meetpoint.schemes.rebeca.tables import ALL, FilterTable, Rows, accepts, make_table

__all__ = ["LEASE_US", "Network", "Wanted", "live"]

SIZE = 1 << 16
LEASE_US = 80_000
PERIOD_US = 4_000
ROUND_US = LEASE_US // 8
ROUNDS_MAX = 80
"""A quiet network that has not settled after so many rounds never will."""


class Wanted(NamedTuple):
    """A subscription of a home, and whether it is acknowledged."""

    rows: Rows
    is_safe: bool


class Sent(NamedTuple):
    """A message on its way."""

    source: int
    to: int
    message: EdgeMessage


class Network:
    """Homes by their places, and the nodes of those that are up."""

    edges: type[Edges] = Edges

    def __init__(
        self, places: Iterable[int], table: Callable[[], FilterTable] = lambda: make_table("covering")
    ) -> None:
        self.now = 1_000_000
        self.table = table
        self.homes: dict[int, dict[str, Wanted]] = {place: {} for place in sorted(places)}
        self.nodes: dict[int, Edges] = {place: self._node(place, 0) for place in self.homes}
        self.flying: list[Sent] = []
        self.states = 0
        self._names = 0
        for place in self.homes:
            self.learn(place)

    def _node(self, place: int, owed_us: int) -> Edges:
        return self.edges(SIZE, place, self.table, LEASE_US, self.at(place), owed_us)

    def at(self, place: int) -> int:
        """What time it is by a node's clock."""
        return self.now + self.now * (place % 21 - 10) // 1000

    def own(self, place: int) -> Range:
        """The keys of a home."""
        order = sorted(self.homes)
        before = order[order.index(place) - 1]
        return Range((before + 1) % SIZE, (place - before) % SIZE or SIZE)

    def after(self, place: int) -> int:
        """The home that has a key."""
        order = sorted(self.homes)
        return order[bisect_left(order, place) % len(order)]

    # -- what may happen -----------------------------------------------------------------------------------------------

    def learn(self, place: int) -> None:
        """A node looks who is there."""
        self.believe(place, {node: self.own(node).begin for node in fingers(place, sorted(self.nodes), SIZE)})

    def believe(self, place: int, links: Mapping[int, int], owed_us: int = 0) -> None:
        """A node takes others for those that its edges lead to, rightly or not; what its own keys are it knows."""
        self._say(place, self.nodes[place].relink(self.own(place), links, self.at(place), owed_us))

    def join(self, place: int) -> None:
        """A home comes, and gets its keys from the one that had them, with the word how long others rely on that."""
        giver = self.nodes[self.after(place)]
        owed_us = giver.owed_us(self.at(giver.place))
        self.homes[place] = {}
        self.nodes[place] = self._node(place, owed_us)
        self.learn(place)
        self._own_again(giver, 0)
        self._look()

    def leave(self, place: int) -> None:
        """A home without subscriptions ends, and the next one gets its keys."""
        assert not self.homes[place]
        owed_us = self.nodes[place].owed_us(self.at(place))
        del self.homes[place], self.nodes[place]
        self._own_again(self.nodes[self.after(place)], owed_us)
        self._look()

    def _own_again(self, node: Edges, owed_us: int) -> None:
        self.believe(node.place, {each: node.graph.responsible[each].begin for each in node.graph.nodes}, owed_us)

    def crash(self, place: int) -> None:
        """A node is gone; its home is not."""
        del self.nodes[place]

    def restart(self, place: int) -> None:
        """It is back, and knows only what its home wants."""
        self.nodes[place] = self._node(place, LEASE_US)
        self.learn(place)
        for name, wanted in self.homes[place].items():
            self._say(place, self.nodes[place].want(name, wanted.rows, self.at(place)))
        self._look()

    def subscribe(self, place: int, text: str, name: str | None = None) -> str:
        """A subscription is new, or another."""
        if name is None:
            self._names += 1
            name = f"s{self._names}"
        rows = parse_filter(text).conjunctions
        self.homes[place][name] = Wanted(rows, False)
        self._say(place, self.nodes[place].want(name, rows, self.at(place)))
        self._look()
        return name

    def unsubscribe(self, place: int, name: str) -> None:
        """One goes."""
        del self.homes[place][name]
        self._say(place, self.nodes[place].want(name, (), self.at(place)))
        self._look()

    def arrive(self, at: int, *, keep: bool = False) -> None:
        """A message arrives, whichever; one that is doubled stays on its way too."""
        sent = self.flying[at] if keep else self.flying.pop(at)
        node = self.nodes.get(sent.to)
        if node is not None:
            self._say(sent.to, node.heard(sent.source, sent.message, self.at(sent.to)))
        self._look()

    def wait(self, microseconds: int) -> None:
        """Time passes."""
        self.now += microseconds

    def repeat(self, place: int) -> None:
        """A node says what is to be said now and then."""
        node, now = self.nodes[place], self.at(place)
        self._say(place, node.again(now) + node.ask_new(now))
        self._look()

    def deliver(self) -> None:
        """All that is on its way arrives."""
        while self.flying:
            self.arrive(0)

    def settle(self) -> None:
        """Nothing is lost any more, and all look who is there, until nothing new is told for longer than a lease."""
        quiet = 0
        for _ in range(ROUNDS_MAX):
            before = self._known()
            for place in self.nodes:
                self.learn(place)
            for place in self.nodes:
                self.repeat(place)
            self.deliver()
            self.wait(ROUND_US)
            is_safe = all(each.is_safe for place in self.nodes for each in self.homes[place].values())
            quiet = quiet + 1 if before == self._known() and is_safe else 0
            if quiet * ROUND_US > LEASE_US:
                return
        raise AssertionError("it does not come to rest")

    def _known(self) -> object:
        return [
            (place, each, self.rows(place, each), node.graph.responsible[each])
            for place, node in self.nodes.items()
            for each in node.graph.nodes
        ] + [node.ready_at > self.at(place) for place, node in self.nodes.items()]

    def _say(self, place: int, said: Outgoing) -> None:
        self.flying += [Sent(place, to, message) for to, message in said]
        for _, message in said:
            self.states += isinstance(message, EdgeState)

    def _look(self) -> None:
        """Acknowledge what may be."""
        for place, wanted in self.homes.items():
            node = self.nodes.get(place)
            for name, each in wanted.items():
                if node is not None and not each.is_safe and node.is_safe(name):
                    wanted[name] = Wanted(each.rows, True)

    # -- what must be so -----------------------------------------------------------------------------------------------

    def rows(self, place: int, edge: int) -> Rows:
        """The filter of an edge."""
        return self.nodes[place].rows(edge, self.at(place))

    def walk(self, root: int, event: Mapping[str, object]) -> tuple[Counter[int], list[Range], int]:
        """An event from a node to all that want it: how often each was served, what was left, and how many sends."""
        served: Counter[int] = Counter()
        left: list[Range] = []
        waiting = [(root, Range(self.nodes[root].graph.own.begin, SIZE))]
        for here, range_ in waiting:  # grows as we go
            split = self.nodes[here].split(range_, event, self.at(here))
            served[here] += split.mine.holds(here, SIZE)
            left += split.left
            for part in split.parts:
                if part.node in self.nodes:
                    waiting.append((part.node, part.range))
                else:
                    left.append(part.range)
        return served, left, len(waiting) - 1

    def wrong(self) -> str | None:
        """What a node has not told, or what an edge does not accept though it is acknowledged behind it; or None."""
        for node in self.nodes.values():
            said = not_told(node, self.at(node.place))
            if said is not None:
                return said
        for place, node in self.nodes.items():
            for edge in node.graph.nodes:
                rows = self.rows(place, edge)
                for home in self.homes:
                    if rows != ALL and node.graph.responsible[edge].holds(home, SIZE):
                        for name, wanted in self.homes[home].items():
                            if wanted.is_safe and not is_superset(rows, wanted.rows):
                                return f"{place} -> {edge} lacks {name} of {home}"
        return None

    def lost(self, events: Iterable[Mapping[str, object]], roots: Iterable[int]) -> str | None:
        """Which event does not come to one that wants it, though nothing was left, or comes to one twice; or None."""
        for root, event in product(roots, events):
            served, left, _ = self.walk(root, event)
            if max(served.values()) > 1:
                return f"{event} from {root} is served twice"
            for place, wanted in self.homes.items():
                if served[place] or any(range_.holds(place, SIZE) for range_ in left):
                    continue
                if any(each.is_safe and accepts(each.rows, event) for each in wanted.values()):
                    return f"{event} from {root} is lost on its way to {place}"
        return None

    def not_kept(self) -> str | None:
        """Where the paper's invariant does not hold; once nothing is on its way."""
        return not_kept(self.nodes, self.rows)


# -- lives -------------------------------------------------------------------------------------------------------------

EVENTS: list[dict[str, object]] = [{"a": value} for value in range(0, 12, 2)]


CHANCES = {
    "arrive": 40,
    "double": 3,
    "lose": 3,
    "repeat": 12,
    "learn": 6,
    "wait": 10,
    "want": 6,
    "change": 2,
    "end": 4,
    "join": 2,
    "leave": 2,
    "crash": 2,
    "restart": 4,
}
"""What may happen, and how often."""


def text_of(rng: random.Random) -> str:
    low = rng.randrange(12)
    return f"a BETWEEN {low} AND {low + rng.choice([0, 1, 3, 8])}"


def step(network: Network, rng: random.Random) -> None:
    """Something happens."""
    up = sorted(network.nodes)
    place = rng.choice(up)
    match rng.choices(list(CHANCES), list(CHANCES.values()))[0]:
        case "arrive" | "double" | "lose" as what if network.flying:
            at = rng.randrange(len(network.flying)) if rng.random() < 0.5 else 0
            if what == "lose":
                del network.flying[at]
            else:
                network.arrive(at, keep=what == "double")
        case "repeat":
            network.repeat(place)
        case "learn" if rng.random() < 0.7:
            network.learn(place)
        case "learn":  # and gets it wrong
            some = rng.sample(up, rng.randint(1, len(up)))
            network.believe(place, {each: (each - rng.randrange(SIZE // 8)) % SIZE for each in some})
        case "wait":
            network.wait(rng.choice([PERIOD_US // 8, PERIOD_US, PERIOD_US, LEASE_US // 3]))
        case "want":
            network.subscribe(place, text_of(rng))
        case "change" if network.homes[place]:
            network.subscribe(place, text_of(rng), rng.choice(sorted(network.homes[place])))
        case "end" if network.homes[place]:
            network.unsubscribe(place, rng.choice(sorted(network.homes[place])))
        case "join":
            new = rng.randrange(SIZE)
            if new not in network.homes and network.after(new) in network.nodes and len(network.homes) < 10:
                network.join(new)
        case "leave" if not network.homes[place] and len(up) > 2:
            order = sorted(network.homes)
            if order[(order.index(place) + 1) % len(order)] in network.nodes:
                network.leave(place)
        case "crash" if len(up) > 2:
            network.crash(place)
        case "restart" if len(up) < len(network.homes):
            network.restart(rng.choice([each for each in network.homes if each not in network.nodes]))


def live(network: Network, seed: int, steps: int) -> str | None:
    """What goes wrong first, or None."""
    rng = random.Random(seed)
    for number in range(steps):
        step(network, rng)
        said = network.wrong()
        if said is None and number % 8 == 0:
            said = network.lost(EVENTS, [rng.choice(sorted(network.nodes))])
        if said is not None:
            return f"step {number}: {said}"
    return None
