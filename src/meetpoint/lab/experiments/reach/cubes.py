"""Paper C's overlay without a scheme: ways, joins and leaves, lengths of ids, and the nodes that printed rules miss.

Nodes are only their overlay, in the simulator, whose checkers judge every step; where a cell says so, the model
(`reach.model`). Paper C's rules for tables, hosting, joins and leaves are run by its examples, and by their
consequences.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results, verdict_of
from meetpoint.lab.experiments.reach.events import tables_of
from meetpoint.lab.experiments.reach.model import Cube, even, joined, split_anywhere
from meetpoint.lab.printed.papers_cd import printed_reach
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.families import BareNodeFactory, family_of
from meetpoint.lab.sim.run import run_judged
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.hypercube import HypercubeSettings, Region, are_neighbours, distance
from meetpoint.overlays.hypercube.invariant import gap
from meetpoint.overlays.hypercube.regions import point_of
from meetpoint.schemes.reach.ids import Tree, is_required, tree_of

SETTLED_S_MAX = 180.0
LOOK_EVERY_US = SECOND_US // 4


def run_network(
    nodes: int, seed: int, dimensions: int = 16, *, lookups: int = 0, founders: int | None = None
) -> Network:
    """Run a network of nodes that are only their overlay, with lookups of random keys at random nodes."""
    config = NetworkConfig(overlay="hypercube", hypercube=HypercubeSettings(dimensions=dimensions))
    timing = Timing(calm_s=0.0, after_s=5.0, quiet_s=2.0)
    family = family_of(config, BareNodeFactory())
    net = Network("hypercube", "none", nodes, seed, family=family, timing=timing, founders=founders)
    for _ in range(lookups):
        net.lookup()
    run_judged(net, "reach")
    return net


# -- ways --------------------------------------------------------------------------------------------------------------


def _run_lookups(nodes: int, lookups: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the hops of lookups, and their Hamming distances from where they began."""
    dimensions = 16
    net = run_network(nodes, seed, dimensions, lookups=lookups)
    place: dict[str, Region] = {}
    for process in net.cluster.processes:
        view: Any = process.view
        place[process.address] = view.pieces[0][0]
    found = net.clients.history.lookups
    ring = net.family.ring
    far = [distance(place[each.address], point_of(ring, each.key, dimensions)) for each in found]
    return [each.hops for each in found], far


def run_paths(parameters: Parameters, seed: int) -> Metrics:
    """Measure hops of lookups against the Hamming distance."""
    hops, far = _run_lookups(int(parameters["nodes"]), int(parameters["lookups"]), seed)
    return {
        "hops": statistics.mean(hops),
        "hops_max": max(hops),
        "hops_deviation": statistics.pstdev(hops),
        "off_hamming": sum(here != there for here, there in zip(hops, far, strict=True)),
        "above_hamming": sum(here > there for here, there in zip(hops, far, strict=True)),
        "lookups": len(hops),
    }


def run_shares(parameters: Parameters, seed: int) -> Metrics:
    """Measure the share of lookups that take so many hops."""
    hops, _ = _run_lookups(int(parameters["nodes"]), int(parameters["lookups"]), seed)
    return {"share": hops.count(int(parameters["hops"])) / len(hops)}


def run_gaps(parameters: Parameters, seed: int) -> Metrics:
    """Measure ways in the model, where joins are passed to the shortest id, and where any node is split."""
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
    """Measure the nodes whose table is another one after joins, one after the other, and after leaves."""
    net = run_network(int(parameters["nodes"]), seed)
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
    """Count the nodes that have another table, or are new, when all is ideal again."""
    before = _tables(net)
    change()
    _settle(net)
    return sum(before.get(address) != table for address, table in _tables(net).items())


def _settle(net: Network, look: Callable[[], None] | None = None) -> float:
    """Run until the overlay is ideal; return how many seconds that took."""
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
    """Measure the differences of id lengths while so many leave and as many join at once, several times."""
    net = run_network(int(parameters["nodes"]), seed)
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
    """Let more nodes join than there are ids: count those that host a region, and those that stand by."""
    net = run_network(int(parameters["nodes"]), seed, int(parameters["attributes"]), founders=1)
    views: list[Any] = [process.view for process in net.cluster.members()]
    return {
        "members": len(views),
        "hosting": sum(bool(view.pieces) for view in views),
        "standing_by": sum(view.sponsor is not None for view in views),
        "ids": 1 << int(parameters["attributes"]),
    }


# -- subset routing on tables that nodes have --------------------------------------------------------------------------


def run_printed(parameters: Parameters, seed: int) -> Metrics:
    """Count the required nodes that each rule misses. Random events, tables of nodes that joined one by one."""
    attributes = int(parameters["attributes"])
    cube = tables_of(run_network(int(parameters["nodes"]), seed, attributes, founders=1))
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
    """Measure in the model, with ids of one length, how rendezvous, visits and handing on are spread over nodes."""
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


# -- rules for tables, hosting, joins and leaves -----------------------------------------------------------------------


EXAMPLES: Final = ("neighbours", "hosted", "split", "told_of_join", "dropped")


def run_tables(parameters: Parameters, seed: int) -> Metrics:
    """Count the links of nodes that begin together, and tree edges to nodes that are not among them."""
    nodes, attributes = int(parameters["nodes"]), 16
    cube = tables_of(run_network(nodes, seed, attributes))
    chance = Random(f"tables/{seed}")
    links = [len(each) for each in cube.links.values()]
    length = nodes.bit_length() - 1
    edges = strangers = 0
    for number in range(int(parameters["events"])):
        for here, there in cube.handed(chance.getrandbits(attributes), tree_of(f"{seed}/{number}", length)):
            edges += 1
            strangers += there not in cube.links[here] or here not in cube.links[there]
    return {"links_least": min(links), "links_most": max(links), "edges": edges, "strangers": strangers}


def _regions(*texts: str) -> set[Region]:
    return set(map(Region.read, texts))


def run_rules(parameters: Parameters, seed: int) -> Metrics:
    """Run the paper's examples: 1 where ours is the same. Nothing is drawn."""
    whole = Cube([Region(number, 4) for number in range(16)])
    four = Cube([Region(number, 2) for number in range(4)])
    halves = [Region.read("01").half(bit) for bit in (0, 1)]
    split = Cube([*(region for region in four.regions if region != Region.read("01")), *halves])
    told = {each for half in halves for each in split.links[half]} - set(halves)
    node, beyond = Region.read("1011"), Region.read("001")
    return {
        "neighbours": set(whole.links[node]) == _regions("0011", "1001", "1010", "1111"),
        "hosted": [point for point in range(16) if Region.read("01").hosts(point)] == [1, 5, 9, 13],
        "split": set(halves) == _regions("001", "101"),
        "told_of_join": told == _regions("11", "00"),
        "dropped": are_neighbours(beyond, node) and not are_neighbours(beyond.half(0), node),
    }


def run_siblings(parameters: Parameters, seed: int) -> Metrics:
    """Count, in model networks grown by the rule of joins, the siblings that were split, and those that are unknown."""
    chance = Random(f"siblings/{seed}")
    nodes = split = unknown = 0
    for _ in range(int(parameters["networks"])):
        cube = joined(int(parameters["nodes"]), 16, chance)
        for region in cube.regions:
            nodes += 1
            if region.sibling not in cube.regions:
                split += 1
            else:
                unknown += region.sibling not in cube.links[region]
    return {"split_share": split / nodes, "unknown": unknown}


# -- claims ------------------------------------------------------------------------------------------------------------


def _judge_tables(results: Results) -> Judged:
    sizes = [int(nodes) for nodes in results.distinct("tables", "nodes")]
    off = [
        nodes
        for nodes in sizes
        for metric in ("links_least", "links_most")
        for value in results.by_seed("tables", metric, nodes=nodes).values()
        if value != nodes.bit_length() - 1
    ]
    most = results.spread("tables", "links_most", nodes=sizes[-1])
    return Judged(
        ours=f"{most.told(0)} at {sizes[-1]} nodes, m = {sizes[-1].bit_length() - 1}",
        verdict=verdict_of(not off),
        why=f"Every node of networks of {sizes[0]} to {sizes[-1]} that begin together. With ids of different lengths a "
        "short one is next to several for a bit, and knows more.",
    )


def _judge_children(results: Results) -> Judged:
    sizes = results.distinct("tables", "nodes")
    edges, strangers = (
        sum(sum(results.by_seed("tables", metric, nodes=nodes).values()) for nodes in sizes)
        for metric in ("edges", "strangers")
    )
    return Judged(
        ours=f"{strangers:,.0f} of {edges:,.0f} edges of trees lead to a node that is not known",
        verdict=verdict_of(not strangers),
        why="Both ways: the child is in the parent's table, and the parent in the child's.",
    )


def _judge_rules(results: Results) -> Judged:
    found = {name: results.spread("rules", name).low for name in EXAMPLES}
    wrong = [name.replace("_", " ") for name, value in found.items() if not value]
    return Judged(
        ours=f"{len(found) - len(wrong)} of {len(found)} examples are the same"
        + (f", not: {', '.join(wrong)}" if wrong else ""),
        verdict=verdict_of(not wrong, len(wrong) < len(found)),
        why="1011 is next to 0011, 1001, 1010 and 1111; node 01 of four hosts 0001, 0101, 1001 and 1101; when it is "
        "split into 001 and 101, 11 and 00 are told; and 1011 is no neighbour of 001 any more when that becomes 0001.",
    )


def _judge_siblings(results: Results) -> Judged:
    sizes = [int(nodes) for nodes in results.distinct("siblings", "nodes")]
    shares = {nodes: results.spread("siblings", "split_share", nodes=nodes) for nodes in sizes}
    unknown = sum(sum(results.by_seed("siblings", "unknown", nodes=nodes).values()) for nodes in sizes)
    most = max(shares, key=lambda nodes: shares[nodes].median)
    return Judged(
        ours=f"{shares[most].told()} of the nodes have a sibling that was split further, at {most} nodes",
        verdict=verdict_of(max(each.high for each in shares.values()) == 0 and not unknown, not unknown),
        why="Networks that grew by the paper's rule of joins, in the model: "
        + ", ".join(f"{share.median:.2f} at {nodes}" for nodes, share in shares.items())
        + f". Where the sibling is one node it is known ({unknown:.0f} exceptions). Where it is not the paper says "
        "nothing; here a leave is passed on until a pair is found that can be one.",
    )


RULE_CLAIMS: Final = (
    PaperClaim(
        id="C22",
        place="section 3.1",
        says="With 2^m nodes each has a routing table with m entries.",
        number="m",
        judge=_judge_tables,
    ),
    PaperClaim(
        id="C23",
        place="section 3.2",
        says="Children in the tree are always in the parent's routing table, and vice versa.",
        number="always",
        judge=_judge_children,
    ),
    PaperClaim(
        id="C24",
        place="sections 2, 3.1 and 3.3, figure 3",
        says="The examples of neighbours, hosting, a join, and a neighbour that is dropped.",
        number="as given",
        judge=_judge_rules,
    ),
    PaperClaim(
        id="C25",
        place="section 3.3",
        says="A node that leaves has one sibling, which is in its routing table and takes over.",
        number="one",
        judge=_judge_siblings,
    ),
)
