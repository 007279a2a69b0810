"""What it takes an event to find its leaf in the region tree of `dmm`: regions asked, messages and hops.

    python -m benchmarks.walks [--quick]

On each overlay, a simulated network without faults; its subscriptions are small boxes, so that there are many leaves.
Then each event is published at a node that knows no leaf (cold), another one there, which guesses how deep its leaf is
by the first (near), and the first again (warm). What a walk costs is counted: `d.match` and its answers at every hop,
not what follows when a leaf brings an event to homes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.schemes.dmm.walking import LeafCache
from meetpoint.sim.families import family_of
from meetpoint.sim.scenario import Network
from meetpoint.sim.traffic import Meter

SCHEMA = """
attributes:
  a: {type: integer, min: 0, max: 65534}
  b: {type: integer, min: 0, max: 65534}
"""
DEPTH = 16
KINDS = ("cold", "near", "warm")
ASKING, WALK = "d.match", ("d.match", "d.matched", "elsewhere")


class Cost(NamedTuple):
    """Of an event, on average."""

    regions: float
    messages: float
    hops: float


def grown(overlay: str, nodes: int, subscriptions: int, threshold: int, seed: int) -> Network:
    """A quiet network with many leaves."""
    settings = DmmSettings(schema=SCHEMA, threshold=threshold, depth=DEPTH)
    kin = family_of(NetworkConfig(overlay=overlay, scheme="dmm", dmm=settings))
    net = Network(overlay, "dmm", nodes, seed, kin=kin)
    random = Random(f"walks/{seed}")
    for _ in range(subscriptions):
        a, b = random.randrange(65_535), random.randrange(65_535)
        net.subscribe(f"a BETWEEN {a} AND {a + 100} AND b BETWEEN {b} AND {b + 100}")
    net.run()
    assert net.report().good, net.report().problems
    return net


def leaves(net: Network) -> list[int]:
    """How deep they are."""
    found = []
    for process in net.cluster.alive():
        scheme: Any = process.node.scheme  # type: ignore[union-attr]
        for home, region in scheme._shelves.regions():
            holder = scheme._regions.holder(region.code)
            if region.kept is not None and region.kept.serves and holder is not None and holder.id == home:
                found.append(len(region.code))
    return found


def measure(net: Network, events: int, seed: int) -> dict[str, Cost]:
    """What events cost."""
    random = Random(f"walks/{seed}/events")
    totals: dict[str, list[int]] = {kind: [0, 0, 0] for kind in KINDS}
    for number in range(events):
        process = random.choice(net.cluster.alive())
        one, other = (
            {"a": random.randrange(65_535), "b": random.randrange(65_535)} for _ in range(2)
        )  # fmt: skip
        walker: Any = process.node.scheme._walker  # type: ignore[union-attr]
        walker.cache = LeafCache()
        for kind, attributes in zip(KINDS, (one, other, one), strict=True):
            meter = Meter(net.kin.codec)
            net.tell(meter)
            before = net.engine.observed.get("regions_asked", 0)
            net.clients.publish(f"{kind}{number}", dict(attributes), process)
            net.engine.run(net.engine.now + 2 * MICROSECONDS)
            asked = net.engine.observed["regions_asked"] - before
            sent = {tag: traffic.messages for tag, traffic in meter.by_kind.items() if tag in WALK}
            for at, count in enumerate((asked, sum(sent.values()), sent.get(ASKING, 0))):
                totals[kind][at] += count
    return {kind: Cost(*(count / events for count in total)) for kind, total in totals.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, few events")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    sizes, subscriptions, events = ((8,), 60, 20) if chosen.quick else ((16, 64), 600, 100)
    sys.stdout.write(f"{'overlay':8} {'nodes':>5} {'leaves':>6} {'depth':>7}")
    sys.stdout.write(f"{'regions asked':>20}{'messages':>21}{'hops to a region':>21}\n{'':29}")
    sys.stdout.write("".join(f"{kind:>7}" for _ in range(3) for kind in KINDS) + "\n")
    for overlay in OVERLAYS:
        for nodes in sizes:
            net = grown(overlay, nodes, subscriptions, 10, chosen.seed)
            depths = leaves(net)
            found = measure(net, events, chosen.seed).values()
            shown = [cost.regions for cost in found] + [cost.messages for cost in found]
            shown += [cost.hops / cost.regions for cost in found]
            sys.stdout.write(f"{overlay:8} {nodes:5} {len(depths):6} {min(depths):3}..{max(depths):<2}")
            sys.stdout.write("".join(f"{each:7.2f}" for each in shown) + "\n")


if __name__ == "__main__":
    main()
