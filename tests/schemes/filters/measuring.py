"""The figures of docs/filters.md: `python -m tests.schemes.filters.measuring [part …]`. A model in one process.

Everything is by the rules that nodes are to run; messages are counted, not sent.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import mean

from meetpoint.schemes.filters import STRATEGIES, Graph, Part, Range, Rows, Sample, Table, accepts, fingers, make_table
from meetpoint.schemes.filters.edges import Said, State
from meetpoint.schemes.filters.graph import fingered_by
from tests.schemes.filters.failing import fail
from tests.schemes.filters.networks import SIZE, Network
from tests.schemes.filters.rings import SIZE as RING_SIZE
from tests.schemes.filters.rings import even, graphs, hashed, walk

SEEDS = range(3)
MEMBERS = 24
SUBSCRIPTIONS = 120


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def measure_graph() -> None:
    """How deep trees are, and how many edges nodes have."""
    say("trees of members with hashed ids, 10 seeds, up to 128 roots each")
    say("    N   depth: mean of all members, mean of the deepest, deepest   edges out: mean, max   in: min, max")
    for count in (16, 64, 256, 1024):
        depths, deepest, out, into = [], [], [], []
        for seed in range(10):
            nodes = graphs(hashed(count, seed))
            for root in list(nodes)[:: max(1, count // 128)]:
                found = list(walk(nodes, root).depths.values())
                depths.append(mean(found))
                deepest.append(max(found))
            out += [len(graph.responsible) for graph in nodes.values()]
            times = Counter(node for graph in nodes.values() for node in graph.nodes)
            into += [times[node] for node in nodes]
        say(
            f" {count:4} {mean(depths):16.2f} {mean(deepest):20.2f} {max(deepest):10}"
            f" {mean(out):22.2f} {max(out):5} {min(into):9} {max(into):5}"
        )


def measure_notices() -> None:
    """How many messages a node-location takes to whoever has its key, and a node-join to all that it is for."""
    say(
        "messages of a node-location to a key's holder, 16 keys a member; members that a node-join is for, and messages"
    )
    say("to reach them all; edges are right; hashed: 10 seeds; up to 64 members each")
    say("    N   ids      location: mean, most   join: for whom, messages: mean, most")
    rng = random.Random(1)
    for count in (16, 64, 256, 1024):
        for name, rings in (("equal", [even(count)]), ("hashed", [hashed(count, seed) for seed in range(10)])):
            hops, meant, messages = [], [], []
            for members in rings:
                nodes = held(members)
                for place in members[:: max(1, count // 64)]:
                    keys = [Range(rng.randrange(RING_SIZE), 1) for _ in range(16)]
                    hops += [len(walk(nodes, place, leading_to([key])).edges) for key in keys]
                    targets = fingered_by(nodes[place].own, RING_SIZE)
                    found = [node for node in members if any(each.holds(node, RING_SIZE) for each in targets)]
                    meant.append(len({*found} - {place}))
                    messages.append(len(walk(nodes, place, leading_to(targets)).edges))
            say(
                f" {count:4}   {name:6} {mean(hops):12.2f} {max(hops):5}"
                f" {mean(meant):16.1f} {mean(messages):9.1f} {max(messages):5}"
            )


def held(members: Sequence[int]) -> dict[int, Graph]:
    """Each member's edges, all of them right, where keys end at places, as on a network."""
    begins = {place: (members[at - 1] + 1) % RING_SIZE for at, place in enumerate(members)}
    return {
        place: Graph(
            RING_SIZE,
            place,
            Range(begin, (place - begin) % RING_SIZE + 1),
            {node: begins[node] for node in fingers(place, members, RING_SIZE)},
        )
        for place, begin in begins.items()
    }


def leading_to(targets: Iterable[Range]) -> Callable[[int, Part], bool]:
    """Whether a part has a key of some ranges: the range inclusion test of notices."""
    return lambda here, part: any(part.range.meets(each, RING_SIZE) for each in targets)


# -- tables and updates ------------------------------------------------------------------------------------------------


class Counted(Network):
    """What updates carry: whole tables, and what has changed in them."""

    def __init__(self, places: Iterable[int], table: Callable[[], Table]) -> None:
        self.tables: dict[tuple[int, int], Rows] = {}
        self.updates = 0
        self.whole = 0
        self.changed = 0
        super().__init__(places, table)

    def _say(self, place: int, said: Said) -> None:
        super()._say(place, said)
        for to, message in said:
            if isinstance(message, State) and message.rows is not None:
                before, after = Counter(self.tables.get((place, to), ())), Counter(message.rows)
                self.tables[place, to] = message.rows
                self.updates += 1
                self.whole += len(message.rows)
                self.changed += (after - before).total() + (before - after).total()


def workload(rng: random.Random) -> tuple[list[str], list[dict[str, object]]]:
    """Subscriptions of which some are equal and some cover others, and events."""
    texts = []
    for _ in range(SUBSCRIPTIONS):
        topic = min(int(rng.paretovariate(1.0)), 12)
        match rng.randrange(4):
            case 0:
                texts.append(f"topic = {topic}")
            case 1:
                texts.append(f"topic = {topic} AND price >= {rng.choice([50, 80, 90])}")
            case _:
                low = rng.randrange(0, 100, 10)
                texts.append(f"topic = {topic} AND price BETWEEN {low} AND {low + rng.choice([10, 20])}")
    rng.shuffle(texts)
    events: list[dict[str, object]] = [{"topic": rng.randint(1, 40), "price": rng.randrange(101)} for _ in range(300)]
    return texts, events


def needed(network: Network, root: int, wanting: set[int]) -> int:
    """How many sends lead to one that wants it, in the tree that all would be reached by."""
    edges = walk({place: node.graph for place, node in network.nodes.items()}, root).edges
    parents = {there: here for here, there in edges}
    found: set[int] = set()
    for place in wanting:
        while place != root and place not in found:
            found.add(place)
            place = parents[place]
    return len(found)


def wanting(network: Network, event: Mapping[str, object]) -> set[int]:
    """The homes that want an event."""
    homes = network.homes.items()
    return {place for place, wanted in homes if any(accepts(each.rows, event) for each in wanted.values())}


class Trial:
    """Subscriptions come one after another, events are sent, then a quarter of the subscriptions go."""

    def __init__(self, make: Callable[[Sample], Table]) -> None:
        self.rows: list[int] = []
        self.subscribed: list[float] = []
        self.whole: list[float] = []
        self.changed: list[float] = []
        self.unsubscribed: list[float] = []
        self.sends: list[int] = []
        self.needed: list[int] = []
        for seed in SEEDS:
            self._run(seed, make)

    def _run(self, seed: int, make: Callable[[Sample], Table]) -> None:
        rng = random.Random(seed)
        texts, events = workload(rng)
        sample = Sample(events[:150])
        network = Counted(hashed(MEMBERS, seed, SIZE), lambda: make(sample))
        network.settle()
        places = sorted(network.homes)
        network.updates = network.whole = network.changed = 0
        held = []
        for text in texts:
            place = rng.choice(places)
            held.append((place, network.subscribe(place, text)))
            network.deliver()
        self.subscribed.append(network.updates / len(texts))
        self.whole.append(network.whole / network.updates)
        self.changed.append(network.changed / network.updates)
        for node in network.nodes.values():
            self.rows += [len(network.rows(node.place, edge)) for edge in node.graph.nodes]
        for event in events[150:]:
            root = rng.choice(places)
            self.sends.append(network.walk(root, event)[2])
            self.needed.append(needed(network, root, wanting(network, event)))
        network.updates = 0
        gone = rng.sample(held, len(held) // 4)
        for place, name in gone:
            network.unsubscribe(place, name)
            network.deliver()
        self.unsubscribed.append(network.updates / len(gone))
        assert network.not_kept() is None

    def __str__(self) -> str:
        return (
            f"{mean(self.rows):8.1f} {max(self.rows):7} {mean(self.subscribed):10.1f} {mean(self.whole):8.1f}"
            f" {mean(self.changed):8.1f} {mean(self.unsubscribed):12.1f} {MEMBERS - 1:9} {mean(self.sends):5.2f}"
            f" {mean(self.needed):6.2f} {1 - sum(self.needed) / sum(self.sends):10.1%}"
        )


def measure_strategies() -> None:
    """Table sizes, updates and forwards."""
    say(f"{MEMBERS} members with hashed ids, {SUBSCRIPTIONS} subscriptions one by one, 150 events, then a quarter go;")
    say("3 seeds; for the imperfect a sample of 150 other events")
    say("                 rows of an edge  updates to   rows in it:       updates to   sends an event:  for nothing")
    say("                  mean    most    subscribe   whole  changed    unsubscribe   all  with  needed")
    for strategy in STRATEGIES:
        say(f"  {strategy:12} {Trial(partial(make_table, strategy))}")


def measure_share() -> None:
    """What the share that may be accepted for nothing costs and saves."""
    say("the same by the share that each edge may accept for nothing")
    for share in (0.0, 0.02, 0.1, 0.3):
        say(f"  {share:12.0%} {Trial(partial(make_table, 'imperfect', share=share))}")


# -- failing -----------------------------------------------------------------------------------------------------------


def measure_failing() -> None:
    """Half of the nodes fail at once."""
    say("half of N nodes fail at once, 200 seeds: rings that are whole by reserves alone, and after repair;")
    say("survivors without a successor, alone and after repair; questions a survivor")
    for count in (128, 1024):
        for per_level in (0, 1, 2):
            found = [fail(count, seed, per_level) for seed in range(200)]
            alone = sum(not each.lost for each in found) / len(found)
            mended = sum(not each.lost_for_good for each in found) / len(found)
            say(
                f"  N {count:5}  reserve {per_level} log2 N: {alone:7.1%} {mended:7.1%}"
                f"   {mean(each.lost for each in found):7.2f} {mean(each.lost_for_good for each in found):7.2f}"
                f"   {mean(each.asked / len(each.live) for each in found):.1f}"
            )


PARTS: dict[str, Callable[[], None]] = {
    "graph": measure_graph,
    "notices": measure_notices,
    "strategies": measure_strategies,
    "share": measure_share,
    "failing": measure_failing,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
        say("")
