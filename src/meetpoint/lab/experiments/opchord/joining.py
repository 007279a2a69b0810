"""What paper A takes from Chord and from its own hash: what a join or a leave costs, and where attributes begin.

A join is counted by Chord's own procedure on an ideal ring (the paper's reference 9): who comes looks up its successor
and its fingers through somebody it knows, then finds those who must point to it, and tells them. Brokers do it
otherwise: they find out in rounds of repair, whose messages go on whether anybody comes or not. So this model is of no
code that they run; that whoever is told is whoever must be is a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from random import Random
from statistics import fmean
from typing import Final

import numpy as np

from meetpoint.api.ids import Key
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged
from meetpoint.lab.experiments.models.balance import loads, max_to_mean
from meetpoint.lab.experiments.models.rings import IdealRing, hashed, spaced
from meetpoint.lab.experiments.results import Results
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Kind
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = ["JOINING_CLAIMS", "pointing_at", "run_joins", "run_starts"]

GROWTH: Final = 1.1
"""What is O(log² N) is, at the largest size, no larger a multiple of log2² N than at the smallest, and so much."""
HALVED: Final = 0.5


# -- joins -------------------------------------------------------------------------------------------------------------


def run_joins(parameters: Parameters, seed: int) -> Metrics:
    """Messages by which a node comes to a ring, and by which it goes; and how many others have it in their tables."""
    nodes = int(parameters["nodes"])
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    random = Random(f"joins/{nodes}/{seed}")
    joins, leaves, told = [], [], []
    for _ in range(int(parameters["changes"])):
        who, known = random.sample(range(nodes), 2)
        finding = sum(ring.hops(known, point) for point in _finger_points(ring, who))
        others, messages = pointing_at(ring, who)
        joins.append(finding + messages)
        leaves.append(messages + 2)  # also to the two beside it
        told.append(len(others))
    return {"join_messages": fmean(joins), "leave_messages": fmean(leaves), "told": fmean(told)}


def _finger_points(ring: IdealRing, who: int) -> Iterator[Key]:
    """What a node looks up of itself: its id, and each point for which the finger before it does not stand already."""
    node, space = ring.nodes[who], ring.ring
    yield node
    finger = ring.nodes[(who + 1) % len(ring.nodes)]
    for exponent in range(space.bits):
        point = space.add(node, 1 << exponent)
        if space.distance(node, point) > space.distance(node, finger):
            yield point
            finger = ring.nodes[ring.owner(point)]


def pointing_at(ring: IdealRing, who: int) -> tuple[set[int], int]:
    """Who has a node as a finger, found by the node itself, and the messages to find and to tell them."""
    node, space, count = ring.nodes[who], ring.ring, len(ring.nodes)
    before = ring.nodes[who - 1]
    others: set[int] = set()
    messages = 0
    for exponent in range(space.bits):
        point = space.add(node, -(1 << exponent))
        if space.distance(before, node) >= 1 << exponent:
            at = (who - 1) % count  # the node before it, which it knows
        else:
            messages += ring.hops(who, point)
            at = (ring.owner(point) - (ring.nodes[ring.owner(point)] != point)) % count
        while at != who and ring.owner(space.add(ring.nodes[at], 1 << exponent)) == who:
            messages += at not in others
            others.add(at)
            at = (at - 1) % count
    return others, messages


def _judge_joins(results: Results) -> Judged:
    sizes = [int(nodes) for nodes in results.distinct("joins", "nodes", "join_messages")]
    found = {
        what: [results.spread("joins", f"{what}_messages", nodes=nodes).median / log2(nodes) ** 2 for nodes in sizes]
        for what in ("join", "leave")
    }
    join, leave = (results.spread("joins", f"{what}_messages", nodes=sizes[-1]) for what in ("join", "leave"))
    told = results.spread("joins", "told", nodes=sizes[-1])
    is_squared = all(ratios[-1] <= GROWTH * ratios[0] for ratios in found.values())
    return Judged(
        ours=f"{join.told(0)} messages for a join, {leave.told(0)} for a leave, at {sizes[-1]:,} nodes",
        verdict="reproduced" if is_squared else "not reproduced",
        why=f"By Chord's own procedure, on an ideal ring: a join takes {found['join'][0]:.2f} log2² N at {sizes[0]} "
        f"nodes and {found['join'][-1]:.2f} log2² N at {sizes[-1]:,}, where {told.told(1)} others have it as a finger. "
        "Brokers find out in rounds of repair instead, which go on whether anybody comes or not.",
    )


# -- where attributes begin --------------------------------------------------------------------------------------------


def run_starts(parameters: Parameters, seed: int) -> Metrics:
    """Log-normal prices of several attributes, in order: each from the hash of its name on, or all from one place."""
    attributes, count, nodes = (int(parameters[name]) for name in ("attributes", "count", "nodes"))
    names = [f"price{number} of {seed}" for number in range(attributes)]
    declared = "".join(f"  {name}: {{type: decimal, min: 0.0, max: 10000.0, precision: 0.01}}\n" for name in names)
    hashing = Hashing(Ring(), Schema.from_yaml(f"attributes:\n{declared}"), order_preserving=True)
    random = np.random.default_rng([seed, attributes])
    heads: list[int] = []
    for name in names:
        line = hashing.line(name if parameters["start"] == "its own" else names[0], Kind.NUMBER)
        drawn = np.minimum(np.exp(random.normal(4.0, 1.0, count // attributes)), 10_000.0).round(2)
        heads += [int.from_bytes(line.keys(float(value))[0][:8], "big") for value in drawn.tolist()]
    load = loads(np.array(heads, np.uint64), spaced(Ring(), nodes))
    return {"max_to_mean": max_to_mean(load), "idle_share": float((load < load.mean() / 10).mean())}


def _judge_starts(results: Results) -> Judged:
    sizes = [int(attributes) for attributes in results.distinct("starts", "attributes", "max_to_mean")]
    most = sizes[-1]
    own, one = (results.spread("starts", "max_to_mean", start=start, attributes=most) for start in ("its own", "one"))
    idle = results.spread("starts", "idle_share", start="its own", attributes=most)
    idle_one = results.spread("starts", "idle_share", start="one", attributes=most)
    alone = results.spread("starts", "max_to_mean", start="its own", attributes=sizes[0])
    return Judged(
        ours=f"{own.told(1)} times the mean at the fullest node with {most} attributes, {one.told(1)} where all begin "
        "at one place",
        verdict="reproduced" if own.high <= HALVED * one.low else "not reproduced",
        why=f"Skewed prices, all of them low: with one attribute it is {alone.told(1)}. With {most}, {idle.median:.0%} "
        f"of the nodes have less than a tenth of the mean, instead of {idle_one.median:.0%}. It spreads attributes, "
        "not the values of one: that is what a scale from quantiles does.",
    )


JOINING_CLAIMS: Final = (
    Claim(
        id="A23",
        place="section 2.2",
        says="Adding or removing a node takes O(log² N) messages.",
        number="O(log² N)",
        judge=_judge_joins,
    ),
    Claim(
        id="A24",
        place="section 4.1",
        says="A hash of the attribute's name lets the values of different attributes begin at different nodes.",
        number="none given",
        judge=_judge_starts,
    ),
)
