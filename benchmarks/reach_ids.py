"""What an event costs in `reach`, by how ids are made and by overlay: `python -m benchmarks.reach_ids [--quick]`.

Simulated networks without faults, and without quenching, copies or pushed ids, on the same subscriptions and events;
medians over some seeds. Messages with duties are counted at each hop, answers are not.

    ids        by attributes and by signatures, where a fifth or most of the constraints are equalities
    overlays   the same duties on the hypercube, on Chord and on Pastry
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.schemes.reach import ReachSettings
from meetpoint.sim.families import family_of
from meetpoint.sim.scenario import Network, Timing
from meetpoint.sim.traffic import Meter

__all__ = ["PARTS", "Run", "main", "run"]

PARTS = ("ids", "overlays")
NAMES = tuple(f"a{place:02}" for place in range(16))
SCHEMA = "attributes:\n" + "".join(f"  {name}: integer\n" for name in NAMES)
PLAIN = ReachSettings(schema=SCHEMA, quench="unquenched", copies="uncopied", pushing="unpushed")
VALUES = 50


class Sizes(msgspec.Struct, frozen=True):
    """How much is run."""

    seeds: int = 3
    nodes: int = 32
    subscriptions: int = 320
    events: int = 200
    widths: tuple[int, ...] = (8, 16, 32)


QUICK = Sizes(seeds=1, nodes=6, subscriptions=20, events=20, widths=(8,))


class Run(msgspec.Struct, frozen=True):
    """What one network did, an event."""

    duties: float
    """Messages with duties."""
    served: float
    """Regions that served it."""
    brought: float
    """Homes it was brought to, those at the same broker left out."""
    fullest: float
    """The share of the entries at the fullest broker."""


def run(overlay: str, settings: ReachSettings, equalities: float, sizes: Sizes, seed: int) -> Run:
    """Run a network; whatever is missed ends the program."""
    random = Random(f"ids/{seed}")
    kin = family_of(NetworkConfig(overlay=overlay, scheme="reach", reach=settings))
    net = Network(overlay, "reach", sizes.nodes, seed, "none", kin=kin, timing=Timing(after_s=30.0))
    meter = Meter(net.kin.codec)
    net.tell(meter)
    for _ in range(sizes.subscriptions):
        net.subscribe(_filter(random, equalities))
    for _ in range(sizes.events):
        there = _some(random, 4)
        net.publish({name: random.randrange(VALUES) for name in there}, phase="after")
    net.run()
    report = net.report()
    if not report.good:
        sys.exit(f"seed {seed}: {report.problems}")
    entries = [_entries(process.node) for process in net.cluster.alive()]
    sent = {tag: traffic.messages for tag, traffic in meter.by_kind.items()}
    return Run(
        sent["r.handle"] / sizes.events,
        report.observed["regions_served"] / sizes.events,
        sent.get("bring", 0) / sizes.events,
        max(entries) / sum(entries),
    )


def _some(random: Random, count: int) -> list[str]:
    """Different attributes, the first ones more often."""
    chosen: dict[str, None] = {}
    while len(chosen) < count:
        chosen[NAMES[min(int(random.expovariate(0.25)), len(NAMES) - 1)]] = None
    return list(chosen)


def _filter(random: Random, equalities: float) -> str:
    terms = []
    for name in _some(random, random.randint(1, 3)):
        value = random.randrange(VALUES)
        terms.append(f"{name} = {value}" if random.random() < equalities else f"{name} <= {value}")
    return " AND ".join(terms)


def _entries(node: Any) -> int:
    return sum(len(node.scheme._shelves.at(home)) for home in node.hosting.homes)


def _told(name: str, runs: Sequence[Run]) -> Iterator[Figure]:
    yield figure(f"{name}: messages with duties, an event", [each.duties for each in runs], "")
    yield figure(f"{name}: regions that serve it", [each.served for each in runs], "")
    yield figure(f"{name}: homes it is brought to", [each.brought for each in runs], "")
    yield figure(f"{name}: entries at the fullest", [100 * each.fullest for each in runs], "%")


def ids(sizes: Sizes) -> Iterator[Figure]:
    """By how ids are made."""
    signed = [msgspec.structs.replace(PLAIN, ids="signatures", width=width) for width in sizes.widths]
    for equalities in (0.2, 0.9):
        for settings in (PLAIN, *signed):
            name = "attributes" if settings is PLAIN else f"signatures of {settings.width}"
            runs = [run("hypercube", settings, equalities, sizes, seed) for seed in range(sizes.seeds)]
            yield from _told(f"{equalities:.0%} =, {name}", runs)


def overlays(sizes: Sizes) -> Iterator[Figure]:
    """By overlay."""
    for overlay in OVERLAYS:
        runs = [run(overlay, PLAIN, 0.5, sizes, seed) for seed in range(sizes.seeds)]
        yield from _told(overlay, runs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for."""
    told = asked(__doc__, PARTS, arguments)
    sizes = QUICK if told.quick else Sizes()
    parts = {"ids": ids, "overlays": overlays}
    figures = (each for part in told.parts for each in parts[part](sizes))
    if told.json:
        sys.stdout.write(msgspec.json.encode(list(figures)).decode() + "\n")
    else:
        tell(figures, judge=not told.quick)


if __name__ == "__main__":
    main()
