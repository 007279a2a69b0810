"""What of paper D is about messages: lookups in small Pastry networks, and how an event finds its leaf."""

from __future__ import annotations

import statistics
from random import Random
from typing import Any, NamedTuple

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.sim.bare import BareNodes
from meetpoint.lab.sim.compare.traffic import Meter
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.judge.report import Report
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.pastry import PastrySettings
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.schemes.dmm.walk import LeafCache

__all__ = ["run_lookups", "run_walks"]

SIDE = 65_535
"""Values of an attribute; with the cell for what is absent they are a power of two."""
SCHEMA = f"""
attributes:
  a: {{type: integer, min: 0, max: {SIDE - 1}}}
  b: {{type: integer, min: 0, max: {SIDE - 1}}}
"""
BOX = 100
"""How wide a subscription is."""
ASKING, WALK = "d.match", ("d.match", "d.matched", "elsewhere")
FOUND_US = 2 * SECOND_US
"""How long an event has to find its leaf and its subscribers."""


def judged(net: Network) -> Report:
    """Run it; MeetpointError where anything is missed, or wrong."""
    net.run()
    report = net.report()
    if not report.good:
        raise MeetpointError(f"dmm, seed {report.seed}: the network was wrong: {report.problems}")
    return report


# -- lookups -----------------------------------------------------------------------------------------------------------


def run_lookups(parameters: Parameters, seed: int) -> Metrics:
    """Nodes that are only Pastry, each of which has looked up some keys before: hops of random keys."""
    nodes, lookups = int(parameters["peers"]), int(parameters["lookups"])
    default = PastrySettings()
    cache = default.cache_max if parameters["routes"] == "cached" else 0
    config = NetworkConfig(overlay="pastry", pastry=PastrySettings(cache_max=cache))
    kin = family_of(config, BareNodes())
    before = int(parameters["before_each"]) * nodes
    net = Network("pastry", "none", nodes, seed, kin=kin, timing=Timing(calm_s=20.0, after_s=20.0, quiet_s=2.0))
    for _ in range(before):
        net.lookup(phase="faults")
    for _ in range(lookups):
        net.lookup()
    judged(net)
    ids = {process.address: process.peer.id for process in net.cluster.processes}
    found = net.clients.history.lookups[before:]
    elsewhere = [each.hops for each in found if each.found != ids[each.address]]
    return {
        "hops": statistics.mean(each.hops for each in found),
        "hops_to_others": statistics.mean(elsewhere),
        "hops_max": max(each.hops for each in found),
    }


# -- walks -------------------------------------------------------------------------------------------------------------


class _Cost(NamedTuple):
    """Of one event."""

    regions: int
    messages: int
    hops: int


def grown_network(parameters: Parameters, seed: int) -> Network:
    """A quiet network with many leaves: its subscriptions are small boxes."""
    overlay, nodes = str(parameters["overlay"]), int(parameters["nodes"])
    settings = DmmSettings(schema=SCHEMA, threshold=int(parameters["threshold"]), depth=int(parameters["depth"]))
    kin = family_of(NetworkConfig(overlay=overlay, scheme="dmm", dmm=settings))
    net = Network(overlay, "dmm", nodes, seed, kin=kin)
    chance = Random(f"walks/{seed}")
    for _ in range(int(parameters["subscriptions"])):
        a, b = chance.randrange(SIDE), chance.randrange(SIDE)
        net.subscribe(f"a BETWEEN {a} AND {a + BOX} AND b BETWEEN {b} AND {b + BOX}")
    judged(net)
    return net


def leaves_of(net: Network) -> list[str]:
    """The codes of the regions that serve, at those who hold them."""
    found = []
    for process in net.cluster.alive():
        node: Any = process.node
        scheme = node.scheme
        for home, region in scheme._store.regions():
            holder = scheme._regions.holder(region.code)
            if region.kept is not None and region.kept.serves and holder is not None and holder.id == home:
                found.append(str(region.code))
    return sorted(found)


def run_walks(parameters: Parameters, seed: int) -> Metrics:
    """Each event is published at a node that knows no leaf, another there, and the first again."""
    net = grown_network(parameters, seed)
    depths = [len(code) for code in leaves_of(net)]
    chance = Random(f"walks/{seed}/events")
    costs: dict[str, list[_Cost]] = {"cold": [], "near": [], "warm": []}
    for number in range(int(parameters["events"])):
        process = chance.choice(net.cluster.alive())
        node: Any = process.node
        node.scheme._walker.cache = LeafCache()
        one, other = ({name: chance.randrange(SIDE) for name in ("a", "b")} for _ in range(2))
        for kind, event in (("cold", one), ("near", other), ("warm", one)):
            meter = Meter(net.kin.codec)
            net.tell(meter)
            before = net.engine.observed.get("regions_asked", 0)
            net.clients.publish(f"{kind}{number}", dict(event), process)
            net.engine.run(net.engine.now + FOUND_US)
            sent = {tag: traffic.messages for tag, traffic in meter.by_kind.items() if tag in WALK}
            asked = net.engine.observed["regions_asked"] - before
            costs[kind].append(_Cost(asked, sum(sent.values()), sent.get(ASKING, 0)))
    found: dict[str, float] = {
        "leaves": len(depths),
        "leaf_depth": statistics.mean(depths),
        "regions_by_climbing": sum((int(parameters["depth"]) - depth + 1) / 2**depth for depth in depths),
    }
    for kind, each in costs.items():
        found[f"regions_{kind}"] = statistics.mean(cost.regions for cost in each)
        found[f"messages_{kind}"] = statistics.mean(cost.messages for cost in each)
        found[f"hops_{kind}"] = sum(cost.hops for cost in each) / sum(cost.regions for cost in each)
    return found
