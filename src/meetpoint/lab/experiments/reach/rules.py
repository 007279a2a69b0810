"""Paper C's rules for tables, hosting, joins and leaves: its examples, and what follows from them."""

from __future__ import annotations

from random import Random
from typing import Final

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.models.cubes import Cube, joined
from meetpoint.lab.experiments.reach.cubes import begun
from meetpoint.lab.experiments.reach.events import tables_of
from meetpoint.lab.experiments.results import Results
from meetpoint.overlays.hypercube import Region, are_neighbours
from meetpoint.schemes.reach import tree_of

__all__ = ["RULE_CLAIMS", "run_rules", "run_siblings", "run_tables"]

EXAMPLES: Final = ("neighbours", "hosted", "split", "told_of_join", "dropped")


def run_tables(parameters: Parameters, seed: int) -> Metrics:
    """Nodes that begin together: how many each knows, and whether those below it in a tree are among them."""
    nodes, attributes = int(parameters["nodes"]), 16
    cube = tables_of(begun(nodes, seed, attributes))
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
    """The paper's examples: 1 where ours is the same. Nothing is drawn."""
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
    """In the model, networks that grew by the rule of joins: whose sibling is one node, and is known."""
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


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


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
        verdict=_verdict(not off),
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
        verdict=_verdict(not strangers),
        why="Both ways: the child is in the parent's table, and the parent in the child's.",
    )


def _judge_rules(results: Results) -> Judged:
    found = {name: results.spread("rules", name).low for name in EXAMPLES}
    wrong = [name.replace("_", " ") for name, value in found.items() if not value]
    return Judged(
        ours=f"{len(found) - len(wrong)} of {len(found)} examples are the same"
        + (f", not: {', '.join(wrong)}" if wrong else ""),
        verdict=_verdict(not wrong, len(wrong) < len(found)),
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
        verdict=_verdict(max(each.high for each in shares.values()) == 0 and not unknown, not unknown),
        why="Networks that grew by the paper's rule of joins, in the model: "
        + ", ".join(f"{share.median:.2f} at {nodes}" for nodes, share in shares.items())
        + f". Where the sibling is one node it is known ({unknown:.0f} exceptions). Where it is not the paper says "
        "nothing; here a leave is passed on until a pair is found that can be one.",
    )


RULE_CLAIMS: Final = (
    Claim(
        id="C22",
        place="section 3.1",
        says="With 2^m nodes each has a routing table with m entries.",
        number="m",
        judge=_judge_tables,
    ),
    Claim(
        id="C23",
        place="section 3.2",
        says="Children in the tree are always in the parent's routing table, and vice versa.",
        number="always",
        judge=_judge_children,
    ),
    Claim(
        id="C24",
        place="sections 2, 3.1 and 3.3, figure 3",
        says="The examples of neighbours, hosting, a join, and a neighbour that is dropped.",
        number="as given",
        judge=_judge_rules,
    ),
    Claim(
        id="C25",
        place="section 3.3",
        says="A node that leaves has one sibling, which is in its routing table and takes over.",
        number="one",
        judge=_judge_siblings,
    ),
)
