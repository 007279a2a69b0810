"""The savings and costs of the multicast tree and of covering in `dmm`: `python -m benchmarks.trees [--quick]
[--json]`.

*tree*: simulated networks without faults, in which every home wants every event, and all of it lies at one leaf.
Measured are the messages with an event that its busiest node sends for each (`spread` and `bring`), those of all
nodes, and the ms until a subscriber has it; with the tree, and without.

*entries*: the conjunctions that homes place of those that they hold, with covering and without: of the simulator's
filters, and of filters that are nested.

*covering*: the CPU time in µs that one subscription of ten thousand at a home takes to find the ones that cover it or
are covered by it; of boxes, of symbols with prices, of equal filters, and of filters of which none covers another. And
how many times as long the last quarter takes as the first: 1 is as good as it can be, 7 would be quadratic.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from random import Random
from typing import Any

import msgspec

from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.lab.sim.workload import Workload
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.placement.entries.covering import Covering
from meetpoint.placement.messages import DeliverToHome, RelayEvent

PARTS = ("tree", "entries", "covering")
SEEDS = (1, 2)


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of a run."""

    nodes: tuple[int, ...] = (16, 64)
    events: int = 20
    per_node: int = 8
    filters: int = 1_600
    subscriptions: int = 10_000
    seeds: tuple[int, ...] = SEEDS


QUICK = Sizes(nodes=(16,), events=5, per_node=4, filters=80, subscriptions=400, seeds=(1,))


# -- the tree ----------------------------------------------------------------------------------------------------------


class Sent:
    """An observer that counts the messages with events by sender."""

    def __init__(self) -> None:
        self.by_node: Counter[str] = Counter()

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        if isinstance(message, RelayEvent | DeliverToHome):
            self.by_node[source.address] += 1

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None: ...

    def happened(self, now: int, process: Process, thing: object) -> None: ...


def tree(sizes: Sizes) -> Iterator[Figure]:
    for overlay in ("chord", "pastry"):
        for nodes in sizes.nodes:
            for how in ("unicast", "tree"):
                runs = [_tree_run(overlay, how, nodes, seed, sizes) for seed in sizes.seeds]
                name = f"{overlay}, {nodes} nodes, {how}:"
                for at, (what, unit) in enumerate(
                    (("busiest sends", "msgs"), ("all send", "msgs"), ("p50", "ms"), ("last", "ms"))
                ):
                    yield figure(f"{name} {what}", [run[at] for run in runs], unit)


def _tree_run(overlay: str, how: str, nodes: int, seed: int, sizes: Sizes) -> tuple[float, float, float, float]:
    net = Network(overlay, f"dmm:{how}", nodes, seed, timing=Timing(quiet_s=10.0))
    for _ in range(sizes.per_node * nodes):
        net.subscribe("price >= 0")
    for _ in range(sizes.events):
        net.publish({"price": 5.0}, phase="after")
    sent = Sent()
    net.observe(sent)
    net.run()
    report = net.report()
    assert not any(report.counts.values()), report.problems
    delay = report.event_delay_ms
    busiest = max(sent.by_node.values())
    return busiest / sizes.events, sum(sent.by_node.values()) / sizes.events, float(delay.p50), float(delay.max)


# -- what is placed ----------------------------------------------------------------------------------------------------


def entries(sizes: Sizes) -> Iterator[Figure]:
    for mix, draw in (("simulator's", _simulated), ("nested", _nested)):
        for how in ("uncovered", "covering"):
            values = []
            for seed in sizes.seeds:
                net = Network("chord", f"dmm:{how}", 16, seed, timing=Timing(load_s=20.0, quiet_s=30.0))
                for text in draw(seed, sizes.filters):
                    net.subscribe(text)
                net.run()
                values.append(float(_placed(net)))
            yield figure(f"{mix} filters ({sizes.filters}, 16 nodes), {how}", values, "placed")


def _placed(net: Network) -> int:
    """Count the entries that all homes have placed, seen from inside."""
    schemes: list[Any] = [process.node.scheme for process in net.cluster.alive()]  # type: ignore[union-attr]
    return sum(
        len(places.entries)
        for scheme in schemes
        for held in scheme._placement._places.values()
        for places in held.values()
    )


def _simulated(seed: int, count: int) -> list[str]:
    workload = Workload(seed)
    return [workload.filter() for _ in range(count)]


def _nested(seed: int, count: int) -> list[str]:
    chance = Random(f"nested/{seed}")
    return [
        f"price > {chance.randrange(1_000)} AND price <= {chance.randrange(1_000, 2_000)} "
        f"AND exchange = '{chance.choice(('LSE', 'NYSE', 'XETRA'))}'"
        for _ in range(count)
    ]


# -- the cost ----------------------------------------------------------------------------------------------------------


class _Plain:
    def code(self, conjunction: Conjunction) -> str:
        return ""


def _box(chance: Random, number: int) -> str:
    a, b = chance.uniform(0, 1_000), chance.uniform(0, 1_000)
    return f"a >= {a:.2f} AND a <= {a + 50:.2f} AND b >= {b:.2f} AND b <= {b + 50:.2f}"


def _symbol(chance: Random, number: int) -> str:
    return f"symbol = 'S{chance.randrange(500)}' AND price > {chance.randrange(10_000)}"


def _apart(chance: Random, number: int) -> str:
    return f"a > {number} AND b < {number}"


def covering(sizes: Sizes) -> Iterator[Figure]:
    mixes: dict[str, Callable[[Random, int], str]] = {
        "boxes": _box,
        "symbols": _symbol,
        "equal": lambda chance, number: "a > 5",
        "none covers another": _apart,
    }
    for name, draw in mixes.items():
        costs, growths = [], []
        for seed in sizes.seeds:
            chance = Random(f"{name}/{seed}")
            filters = [parse_filter(draw(chance, number)) for number in range(sizes.subscriptions)]
            index = Covering(_Plain())
            import_module("numpy")  # which a home loads once
            marks = [time.process_time()]
            for number, filter_ in enumerate(filters):
                index.change(f"s{number}", number, filter_)
                if (number + 1) % (sizes.subscriptions // 4) == 0:
                    marks.append(time.process_time())
            costs.append((marks[-1] - marks[0]) / sizes.subscriptions * 1e6)
            growths.append((marks[4] - marks[3]) / (marks[1] - marks[0]))
        yield figure(f"{sizes.subscriptions} subscriptions, {name}", costs, "µs each")
        yield figure(f"{sizes.subscriptions} subscriptions, {name}: last to first quarter", growths, "x")


def measure(parts: Sequence[str], sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures, as they are ready."""
    makers = {"tree": tree, "entries": entries, "covering": covering}
    for part in parts:
        yield from makers[part](sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen parts."""
    told = asked(__doc__, PARTS, arguments)
    figures = measure(told.parts, QUICK if told.quick else Sizes())
    if told.json:
        sys.stdout.write(msgspec.json.encode(list(figures)).decode() + "\n")
    else:
        tell(figures, judge=not told.quick)


if __name__ == "__main__":
    main()
