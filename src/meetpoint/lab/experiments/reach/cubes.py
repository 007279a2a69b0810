"""What paper C's overlay does, whatever runs on it: ways, joins and leaves, lengths of ids, whom printed rules miss.

Nodes that are only their overlay, in the simulator, whose checkers judge every step; where a cell says so, the model
(`models.cubes`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.models.cubes import Cube, even, joined, split_anywhere
from meetpoint.lab.experiments.reach.events import judged, tables_of
from meetpoint.lab.printed.reach import printed_reach
from meetpoint.lab.sim.bare import BareNodes
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.hypercube import HypercubeSettings, Region, distance
from meetpoint.overlays.hypercube.invariant import gap
from meetpoint.overlays.hypercube.regions import point_of
from meetpoint.schemes.reach import Tree, is_required, tree_of

__all__ = [
    "run_changes",
    "run_churn",
    "run_full",
    "run_gaps",
    "run_load",
    "run_paths",
    "run_printed",
    "run_shares",
]

SETTLED_S_MAX = 180.0
LOOK_EVERY_US = SECOND_US // 4


def begun(nodes: int, seed: int, dimensions: int = 16, *, lookups: int = 0, founders: int | None = None) -> Network:
    """A network of nodes that are only their overlay, after lookups of random keys at random nodes."""
    config = NetworkConfig(overlay="hypercube", hypercube=HypercubeSettings(dimensions=dimensions))
    timing = Timing(calm_s=0.0, after_s=5.0, quiet_s=2.0)
    kin = family_of(config, BareNodes())
    net = Network("hypercube", "none", nodes, seed, kin=kin, timing=timing, founders=founders)
    for _ in range(lookups):
        net.lookup()
    judged(net)
    return net


# -- ways --------------------------------------------------------------------------------------------------------------


def _looked_up(nodes: int, lookups: int, seed: int) -> tuple[list[int], list[int]]:
    """Of lookups: hops, and the Hamming distance from where they began."""
    dimensions = 16
    net = begun(nodes, seed, dimensions, lookups=lookups)
    place: dict[str, Region] = {}
    for process in net.cluster.processes:
        view: Any = process.view
        place[process.address] = view.pieces[0][0]
    found = net.clients.history.lookups
    ring = net.kin.ring
    far = [distance(place[each.address], point_of(ring, each.key, dimensions)) for each in found]
    return [each.hops for each in found], far


def run_paths(parameters: Parameters, seed: int) -> Metrics:
    """Hops of lookups, against the Hamming distance."""
    hops, far = _looked_up(int(parameters["nodes"]), int(parameters["lookups"]), seed)
    return {
        "hops": statistics.mean(hops),
        "hops_max": max(hops),
        "hops_deviation": statistics.pstdev(hops),
        "off_hamming": sum(here != there for here, there in zip(hops, far, strict=True)),
        "above_hamming": sum(here > there for here, there in zip(hops, far, strict=True)),
        "lookups": len(hops),
    }


def run_shares(parameters: Parameters, seed: int) -> Metrics:
    """Which share of lookups takes so many hops."""
    hops, _ = _looked_up(int(parameters["nodes"]), int(parameters["lookups"]), seed)
    return {"share": hops.count(int(parameters["hops"])) / len(hops)}


def run_gaps(parameters: Parameters, seed: int) -> Metrics:
    """In the model: how long ways are where joins are passed to the shortest id, and where anybody is split."""
    make: Callable[[int, int, Random], Cube] = joined if parameters["joins"] == "passed on" else split_anywhere
    chance = Random(f"gaps/{seed}")
    cube = make(int(parameters["nodes"]), int(parameters["attributes"]), chance)
    lookups = range(int(parameters["lookups"]))
    starts = [chance.choice(cube.regions) for _ in lookups]
    to_ids = [chance.getrandbits(int(parameters["attributes"])) for _ in lookups]
    to_nodes = [chance.choice(cube.regions).bits for _ in lookups]
    thin = cube.thinned(chance)
    far, near = ([len(cube.way(*each)) - 1 for each in zip(starts, to, strict=True)] for to in (to_nodes, to_ids))
    return {
        "global_gap": cube.gap,
        "hops_to_nodes": statistics.mean(far),
        "hops_to_ids": statistics.mean(near),
        "hops_to_nodes_by_one_link_a_bit": statistics.mean(
            len(thin.way_by_lowest(*each)) - 1 for each in zip(starts, to_nodes, strict=True)
        ),
        "hops_max": max(far),
        "links_max": max(map(len, cube.links.values())),
        "links": statistics.mean(map(len, cube.links.values())),
    }


# -- joins and leaves --------------------------------------------------------------------------------------------------


def run_changes(parameters: Parameters, seed: int) -> Metrics:
    """Some join, one after the other, then some leave: of how many nodes the table is another afterwards."""
    net = begun(int(parameters["nodes"]), seed)
    chance = Random(f"changes/{seed}")
    count = int(parameters["changes"])
    joins = [_touched(net, net.cluster.join) for _ in range(count)]
    leaves = [_touched(net, lambda: net.cluster.leave(chance.choice(net.cluster.processes))) for _ in range(count)]
    return {
        "join_touched": statistics.mean(joins),
        "join_touched_max": max(joins),
        "leave_touched": statistics.mean(leaves),
        "leave_touched_max": max(leaves),
        "links": statistics.mean(len(links) for _, links in _tables(net).values()),
    }


def _tables(net: Network) -> dict[str, tuple[object, tuple[Any, ...]]]:
    views: dict[str, Any] = {process.address: process.view for process in net.cluster.alive()}
    return {address: (view.pieces, view.links) for address, view in views.items()}


def _touched(net: Network, change: Callable[[], object]) -> int:
    """How many nodes have another table, or are new, when all is ideal again."""
    before = _tables(net)
    change()
    _settle(net)
    return sum(before.get(address) != table for address, table in _tables(net).items())


def _settle(net: Network, look: Callable[[], None] | None = None) -> float:
    """Run until the overlay is ideal; how many seconds that took."""
    began = net.engine.now
    while True:
        net.engine.run(net.engine.now + LOOK_EVERY_US)
        if look is not None:
            look()
        seconds = (net.engine.now - began) / SECOND_US
        is_done = not net.cluster.leaving and len(net.cluster.members()) == len(net.cluster.alive())
        if is_done and net.watch.is_ideal() is None:
            return seconds
        if seconds > SETTLED_S_MAX or net.watch.broken:
            raise MeetpointError(f"hypercube: {net.watch.broken or net.watch.is_ideal()} after {seconds:.0f} s")


def run_churn(parameters: Parameters, seed: int) -> Metrics:
    """So many leave and as many come at once, several times: how far lengths of ids come apart."""
    net = begun(int(parameters["nodes"]), seed)
    chance = Random(f"churn/{seed}")
    at_once = int(parameters["at_once"])
    apart: list[int] = []
    after: list[int] = []
    seconds: list[float] = []
    for _ in range(int(parameters["turns"])):
        leaving: list[Process] = chance.sample(net.cluster.processes, at_once)
        for process in leaving:
            net.cluster.leave(process)
        for _ in range(at_once):
            net.cluster.join()
        seconds.append(_settle(net, lambda: apart.append(_gap(net))))
        after.append(_gap(net))
    return {
        "global_gap_while": max(apart),
        "global_gap_after": max(after),
        "settled_s": statistics.mean(seconds),
        "settled_s_max": max(seconds),
    }


def _gap(net: Network) -> int:
    views: dict[str, Any] = {process.address: process.view for process in net.cluster.members()}
    return gap({address: view for address, view in views.items() if view.pieces})


def run_full(parameters: Parameters, seed: int) -> Metrics:
    """More nodes join than there are ids: how many host a region, and how many stand by."""
    net = begun(int(parameters["nodes"]), seed, int(parameters["attributes"]), founders=1)
    views: list[Any] = [process.view for process in net.cluster.members()]
    return {
        "members": len(views),
        "hosting": sum(bool(view.pieces) for view in views),
        "standing_by": sum(view.sponsor is not None for view in views),
        "ids": 1 << int(parameters["attributes"]),
    }


# -- subset routing on tables that nodes have --------------------------------------------------------------------------


def run_printed(parameters: Parameters, seed: int) -> Metrics:
    """Nodes that joined one by one; random events by their tables: required nodes that each rule does not come to."""
    attributes = int(parameters["attributes"])
    cube = tables_of(begun(int(parameters["nodes"]), seed, attributes, founders=1))
    floor = min(region.length for region in cube.regions)
    chance = Random(f"printed/{seed}")
    counts: Counter[str] = Counter(nodes_required=0, missed=0, missed_with_zero=0, missed_by_ours=0, twice_by_ours=0)
    for number in range(int(parameters["events"])):
        event = chance.getrandbits(attributes)
        root = cube.host(event)
        required = {region for region in cube.regions if is_required(region, event)}
        counts["nodes_required"] += len(required)
        for name, with_zero in (("missed", False), ("missed_with_zero", True)):
            counts[name] += len(required - set(printed_reach(root, lambda region: cube.links[region], with_zero)))
        ours = [root, *(there for _, there in cube.handed(event, tree_of(f"{seed}/{number}", floor)))]
        counts["missed_by_ours"] += len(required - set(ours))
        counts["twice_by_ours"] += len(ours) - len(set(ours))
    shares = {f"{name}_share": counts[name] / counts["nodes_required"] for name in ("missed", "missed_with_zero")}
    return {**counts, **shares, "global_gap": cube.gap}


def run_load(parameters: Parameters, seed: int) -> Metrics:
    """In the model, ids of one length: who is the rendezvous of random events, who is visited, who hands on."""
    nodes, attributes, events = (int(parameters[name]) for name in ("nodes", "attributes", "events"))
    cube = even(nodes, attributes)
    floor = nodes.bit_length() - 1
    chance = Random(f"load/{seed}")
    roots: Counter[Region] = Counter()
    visits: Counter[Region] = Counter()
    handed: Counter[Region] = Counter()
    whole = (1 << attributes) - 1
    top = cube.host(whole)
    for number in range(events):
        event = chance.getrandbits(attributes)
        tree = tree_of(f"{seed}/{number}", floor) if parameters["tree"] == "by hash" else Tree()
        root = cube.host(event)
        roots[root] += 1
        visits.update([root, *(there for _, there in cube.handed(event, tree))])
        handed.update(here for here, _ in cube.handed(whole, tree) if here != top)
    return {
        "rendezvous_top_to_mean": nodes * max(roots.values()) / events,
        "rendezvous_by_chance": 1 + math.sqrt(2 * math.log(nodes) * nodes / events),
        "visits_top_to_mean": nodes * max(visits.values()) / visits.total(),
        "visits_of_busiest_share": max(visits.values()) / events,
        "handed_on_by_busiest": max(handed.values()) / events,
    }
