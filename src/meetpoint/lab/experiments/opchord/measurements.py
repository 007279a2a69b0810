"""The parts of experiment A: from parameters and a seed to figures.

Attributes hold whole numbers from 0. Values and origins are drawn uniformly; the attribute has another name in each
seed, so that it begins at another place on the ring.

Joins and leaves are counted by Chord's own procedure on an ideal ring (the paper's reference 9): the newcomer looks up
its successor and its fingers through a node that it knows, then finds the nodes that must point to it, and tells them.
Brokers do it otherwise: they find out in rounds of repair, whose messages go on whether anybody comes or not. So this
model is of no code that they run; that it tells exactly the nodes that must be told is a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import log2
from random import Random
from statistics import fmean
from typing import Final, cast

import numpy as np

from meetpoint.api.ids import HomeId, Key, NodeId
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results
from meetpoint.lab.experiments.rings import (
    NUMBERS,
    IdealRing,
    Ids,
    Walked,
    draw_numbers,
    entries_for,
    hashed,
    ideal_ring,
    loads,
    max_to_mean,
    placed_numbers,
    quantiles,
    spaced,
    walk,
)
from meetpoint.lab.printed.papers_ab import OrderPreservingHash, PlainHash, Predicate, PrintedNetwork, Sort
from meetpoint.lab.sim.families import ChordFamily
from meetpoint.lab.sim.run import run_judged
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind, Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists import ListsSettings
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, groups_of
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListEntry, difference
from meetpoint.schemes.lists.subids import AttributeBits, SubId
from meetpoint.schemes.lists.value_hash import POINTS_MAX, Hashing

EVERY_VALUE: Final = 1 << 30
"""The limit of keys of one constraint, as unbounded as in the paper: brokers have `POINTS_MAX`."""
BRIEF: Final = Timing(load_s=0.0, calm_s=0.0, after_s=4.0, quiet_s=2.0)
"""The timing for lookups: the ring is ideal from the beginning, and hops do not depend on its age."""
GROWING: Final = Timing(between_joins_s=0.05, load_s=0.0, calm_s=30.0, after_s=4.0, quiet_s=2.0)
"""The timing for a ring to which half of its nodes come one after the other: the older ones must find out about them.
"""
LINKS_OF: Final = 200
"""Nodes whose links are counted."""
LOADING: Final = Timing(load_s=10.0, calm_s=0.0, after_s=0.0, quiet_s=30.0)
MATCHING: Final = Timing(load_s=0.0, calm_s=10.0, after_s=0.0, quiet_s=30.0)
"""The timings for brokers that get subscriptions, and events."""


class Ranges:
    """Ranges of one attribute with so many values, over a ring: drawn from a seed, placed by one of the hashes."""

    def __init__(self, ids: Ids, nodes: int, seed: int, domain: int, hash_: str, points_max: int = EVERY_VALUE) -> None:
        self.ring = ideal_ring(ids, nodes, seed)
        self.attribute = f"a{seed}"
        self.domain = domain
        self.hashing = Hashing(
            self.ring.ring,
            Schema((Attribute(self.attribute, Type.INTEGER, minimum=0, maximum=domain - 1),)),
            order_preserving=hash_ == "opchord",
            points_max=points_max,
        )
        self.random = Random(f"ranges/{ids}/{nodes}/{domain}/{seed}")

    def draw(self, values: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield origins, and the first values of ranges of so many values."""
        for _ in range(count):
            yield self.random.randrange(len(self.ring.nodes)), self.random.randrange(self.domain - values + 1)

    def entries(self, first: int, values: int) -> tuple[ListEntry, ...]:
        """Return the entries of the range of so many values from one on."""
        return entries_for(self.hashing, f"{self.attribute} BETWEEN {first} AND {first + values - 1}")

    def store(self, values: int, count: int, *, skipping: bool = True) -> Metrics:
        """Return means over some ranges of so many values."""
        walked = [
            walk(self.ring, self.hashing, origin, self.entries(first, values), skipping=skipping)
            for origin, first in self.draw(values, count)
        ]
        return _means(walked)


def _means(walked: list[Walked]) -> Metrics:
    return {
        "hops": fmean(each.hops for each in walked),
        "messages": fmean(each.hops + each.answers for each in walked),
        "holders": fmean(len(each.nodes) for each in walked),
    }


def _number(parameters: Parameters, name: str) -> int:
    value = parameters[name]
    assert isinstance(value, int)
    return value


def _ids(parameters: Parameters) -> Ids:
    return cast(Ids, parameters["ids"])


# -- storing -----------------------------------------------------------------------------------------------------------


def run_stores(parameters: Parameters, seed: int) -> Metrics:
    """Measure the storing of ranges, with as many values as nodes: one step is one node where ids are even."""
    nodes, values, count = (_number(parameters, name) for name in ("nodes", "values", "ranges"))
    if parameters["how"] == "brokers":
        return _broker_stores(str(parameters["hash"]), nodes, values, count, seed)
    return Ranges(_ids(parameters), nodes, seed, nodes, str(parameters["hash"])).store(values, count)


def _broker_stores(hash_: str, nodes: int, values: int, count: int, seed: int) -> Metrics:
    """Measure storing on simulated brokers with hashed ids: keyed RPCs tell hops, and messages are counted as sent."""
    attribute = f"a{seed}"
    net = make_network(hash_, nodes, [attribute], seed, LOADING)
    random = Random(f"brokers/{nodes}/{values}/{seed}")
    for _ in range(count):
        first = random.randrange(nodes - values + 1)
        net.subscribe(f"{attribute} BETWEEN {first} AND {first + values - 1}")
    report = run_judged(net, "opchord")
    sent = report.messages_by_kind
    return {
        "hops": report.observed["errand_hops"] / count,
        "messages": (sent.get("c.ro", 0) + sent.get("errand_done", 0)) / count,
    }


def make_network(hash_: str, nodes: int, attributes: list[str], seed: int, timing: Timing) -> Network:
    """Make brokers that keep lists of attributes with as many values as there are nodes."""
    declared = "".join(f"  {name}: {{type: integer, min: 0, max: {nodes - 1}}}\n" for name in attributes)
    settings = ListsSettings(hash="order" if hash_ == "opchord" else "plain", schema=f"attributes:\n{declared}")
    family = ChordFamily(NetworkConfig(scheme="lists", lists=settings))
    return Network(scheme="lists", nodes=nodes, seed=seed, timing=timing, family=family)


def run_wide_stores(parameters: Parameters, seed: int) -> Metrics:
    """Measure the storing of ranges up to many times as wide as the ring has nodes, of a fixed domain.

    By the plain hash brokers place a range of more than `POINTS_MAX` values over the whole ring.
    """
    nodes, values, count, domain = (_number(parameters, name) for name in ("nodes", "values", "ranges", "domain"))
    way = str(parameters["way"])
    if way == "chord, every value":
        return Ranges(_ids(parameters), nodes, seed, domain, "chord").store(values, count)
    if way == "chord, once a node":
        return Ranges(_ids(parameters), nodes, seed, domain, "chord", points_max=POINTS_MAX).store(values, count)
    assert way == "opchord"
    return Ranges(_ids(parameters), nodes, seed, domain, "opchord").store(values, count)


def run_small_stores(parameters: Parameters, seed: int) -> Metrics:
    """Measure the storing of all values of a domain that has fewer values than the ring has nodes."""
    nodes, domain, count = (_number(parameters, name) for name in ("nodes", "domain", "ranges"))
    ranges = Ranges(_ids(parameters), nodes, seed, domain, "opchord")
    return ranges.store(domain, count, skipping=parameters["way"] == "skipping")


# -- looking up, matching, updating ------------------------------------------------------------------------------------


def run_lookups(parameters: Parameters, seed: int) -> Metrics:
    """Measure lookups of random keys from random nodes; `extra` is the mean less ½ log2 N."""
    nodes, count, how = _number(parameters, "nodes"), _number(parameters, "lookups"), parameters["how"]
    if how == "ideal":
        ring, random = ideal_ring(_ids(parameters), nodes, seed), Random(f"lookups/{nodes}/{seed}")
        bits = ring.ring.bits
        hops = [ring.hops(random.randrange(nodes), ring.ring.key(random.getrandbits(bits))) for _ in range(count)]
        beside = {"links": fmean(len(ring.links(random.randrange(nodes))) for _ in range(LINKS_OF))}
    else:
        hops, unlike = _network_lookups(nodes, count, seed, is_grown=how == "grown")
        beside = {"unlike_ideal_percent": 100 * unlike / count}
    mean = fmean(hops)
    return {"hops": mean, "extra": mean - log2(nodes) / 2, "hops_max": max(hops), **beside}


def _network_lookups(nodes: int, count: int, seed: int, *, is_grown: bool) -> tuple[list[int], int]:
    """Return the hops of real nodes that send messages, and how many differ from the ideal ring with their ids."""
    timing, founders = (GROWING, nodes // 2) if is_grown else (BRIEF, nodes)
    net = Network(scheme="none", nodes=nodes, seed=seed, timing=timing, founders=founders)
    for _ in range(count):
        net.lookup()
    run_judged(net, "opchord")
    peers = {process.address: process.peer.id for process in net.cluster.processes}
    ideal = IdealRing(net.family.ring, [*peers.values()])
    lookups = net.clients.history.lookups
    assert len(lookups) == count
    assert all(each.found is not None for each in lookups)
    far = [ideal.hops(ideal.owner(peers[each.address]), each.key) for each in lookups]
    unlike = sum(each.hops != hops for each, hops in zip(lookups, far, strict=True))
    return [each.hops for each in lookups], unlike


def run_matches(parameters: Parameters, seed: int) -> Metrics:
    """Measure the hops to an event's lists, as the paper counts and with the key that brokers ask beside."""
    nodes, attributes, count = (_number(parameters, name) for name in ("nodes", "attributes", "events"))
    names = [f"a{seed}_{number}" for number in range(attributes)]
    if parameters["how"] == "brokers":
        return _broker_matches(str(parameters["hash"]), nodes, names, count, seed)
    ring = ideal_ring(_ids(parameters), nodes, seed)
    schema = Schema(tuple(Attribute(name, Type.INTEGER, minimum=0, maximum=nodes - 1) for name in names))
    hashing = Hashing(ring.ring, schema, order_preserving=parameters["hash"] == "opchord")
    random, order = Random(f"events/{nodes}/{attributes}/{seed}"), AttributeOrder(schema)
    printed, ours = [], []
    for _ in range(count):
        origin = random.randrange(nodes)
        flat = hashing.bits.flatten({name: random.randrange(nodes) for name in names})
        lookups = [each for group in groups_of(hashing, flat, order) for each in group.lookups]
        hops = [ring.hops(origin, each.key) for each in lookups]
        ours.append(sum(hops))
        printed.append(sum(far for far, each in zip(hops, lookups, strict=True) if each.attribute != EVERY_EVENT))
    return {"hops": fmean(printed), "hops_with_always": fmean(ours)}


def _broker_matches(hash_: str, nodes: int, names: list[str], count: int, seed: int) -> Metrics:
    """Measure simulated brokers without subscriptions: all keyed RPCs ask for lists, one of them at the always key."""
    net = make_network(hash_, nodes, names, seed, MATCHING)
    random = Random(f"published/{nodes}/{len(names)}/{seed}")
    for _ in range(count):
        net.publish({name: random.randrange(nodes) for name in names})
    return {"hops_with_always": run_judged(net, "opchord").observed["errand_hops"] / count}


def run_updates(parameters: Parameters, seed: int) -> Metrics:
    """Measure a range that moves up by some values, as brokers change it and as printed."""
    nodes, values, moved, count = (_number(parameters, name) for name in ("nodes", "values", "moved", "ranges"))
    ranges = Ranges(_ids(parameters), nodes, seed, nodes, str(parameters["hash"]))
    changed = min(values, moved)
    ours, printed = [], []
    for origin, first in ranges.draw(values + moved, count):
        go = partial(walk, ranges.ring, ranges.hashing, origin)
        came, went = difference(ranges.entries(first, values), ranges.entries(first + moved, values))
        ours.append(go(came).hops + go(went).hops)
        above = first + values + moved - changed
        printed.append(go(ranges.entries(first, changed)).hops + go(ranges.entries(above, changed)).hops)
    return {"hops": fmean(printed), "hops_of_ours": fmean(ours)}


# -- loads and faults --------------------------------------------------------------------------------------------------


def run_balance(parameters: Parameters, seed: int) -> Metrics:
    """Measure the largest load to the mean of skewed values; the scale is made from other values than are placed."""
    kind, scale = str(parameters["kind"]), parameters["scale"]
    nodes, count = _number(parameters, "nodes"), _number(parameters, "count")
    values = draw_numbers(kind, count, seed)
    made = None
    if scale == "quantiles":
        made = quantiles(draw_numbers(kind, count, 1000 + seed), NUMBERS[kind], nodes)
    keys = placed_numbers(kind, values, made, in_order=scale != "plain hash")
    ring = Ring()
    placed: list[NodeId] = spaced(ring, nodes) if parameters["ids"] == "spaced" else hashed(ring, nodes, seed)
    return {"max_to_mean": max_to_mean(loads(keys, placed))}


PRICES: Final = 2_001
"""Values of an attribute of figure 1: 0.00 to 20.00 at 0.01."""


def run_false_positives(parameters: Parameters, seed: int) -> Metrics:
    """Count wrong pairs of an event and a subscription that paper A's lists as printed take for a match.

    A subscription has a range of some values of each attribute, an event a value of each.
    """
    nodes, attributes, values = (_number(parameters, name) for name in ("nodes", "attributes", "values"))
    count, events = _number(parameters, "subscriptions"), _number(parameters, "events")
    ring = ideal_ring(_ids(parameters), nodes, seed)
    random = Random(f"printed/{nodes}/{attributes}/{values}/{seed}")
    bits = AttributeBits(None)
    names = [f"a{number}" for number in range(attributes)]
    hash_ = PlainHash(ring.ring)
    if parameters["hash"] == "opchord":
        declared = (Attribute(name, Type.INTEGER, minimum=0, maximum=PRICES - 1) for name in names)
        hash_ = OrderPreservingHash(ring.ring, Schema(tuple(declared)))
    network = PrintedNetwork(hash_, ring.owner, values_kept=parameters["lists"] == "with values", bits=bits)
    wanted: list[dict[str, int]] = []
    for number in range(count):
        first = {name: random.randrange(PRICES - values + 1) for name in names}
        predicates = [Predicate(n, Sort.RANGE, tuple(range(low, low + values))) for n, low in first.items()]
        network.store(SubId(HomeId(b""), number, bits.declare(names)), predicates)
        wanted.append(first)
    order = AttributeOrder()
    wrong = found = missing = 0
    for _ in range(events):
        event = {name: random.randrange(PRICES) for name in names}
        taken, _ = network.match(event, CollectionMode.COORDINATED, random.randrange(nodes), order)
        numbers = {sub_id.number for sub_id in taken}
        true = {
            number
            for number, first in enumerate(wanted)
            if all(first[name] <= event[name] < first[name] + values for name in names)
        }
        found += len(numbers)
        wrong += len(numbers - true)
        missing += len(true - numbers)
    pairs = count * events
    return {"wrong_percent": 100 * wrong / pairs, "matches_percent": 100 * found / pairs, "missing": missing}


# -- joins, leaves, and where attributes begin -------------------------------------------------------------------------


GROWTH: Final = 1.1
"""The largest growth of messages / log2² N, from the smallest size to the largest, that is O(log² N)."""
HALVED: Final = 0.5


def run_joins(parameters: Parameters, seed: int) -> Metrics:
    """Count the messages by which a node joins and leaves, and the other nodes that have it in their tables."""
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
    """Yield the points that a joining node looks up: its id, and each point beyond the finger before it."""
    node, space = ring.nodes[who], ring.ring
    yield node
    finger = ring.nodes[(who + 1) % len(ring.nodes)]
    for exponent in range(space.bits):
        point = space.add(node, 1 << exponent)
        if space.distance(node, point) > space.distance(node, finger):
            yield point
            finger = ring.nodes[ring.owner(point)]


def pointing_at(ring: IdealRing, who: int) -> tuple[set[int], int]:
    """Return the nodes that have a node as a finger, and the messages to find and to tell them."""
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
    """Measure log-normal prices of several attributes, in order: each from the hash of its name on, or all from one
    place.
    """
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
    PaperClaim(
        id="A23",
        place="section 2.2",
        says="Adding or removing a node takes O(log² N) messages.",
        number="O(log² N)",
        judge=_judge_joins,
    ),
    PaperClaim(
        id="A24",
        place="section 4.1",
        says="A hash of the attribute's name lets the values of different attributes begin at different nodes.",
        number="none given",
        judge=_judge_starts,
    ),
)
