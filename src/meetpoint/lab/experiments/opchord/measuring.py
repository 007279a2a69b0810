"""The parts of experiment A: from parameters and a seed to figures.

Attributes hold whole numbers from 0. Values and origins are drawn uniformly; the attribute has another name in each
seed, so that it begins at another place on the ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import log2
from random import Random
from statistics import fmean
from typing import Final, cast

from meetpoint.api.ids import HomeId, NodeId
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.models import balance
from meetpoint.lab.experiments.models.rings import IdealRing, hashed, spaced
from meetpoint.lab.experiments.models.walks import Ids, Walked, entries_for, ideal_ring, walk
from meetpoint.lab.printed.lists import OrderPreservingHash, PlainHash, Predicate, PrintedNetwork, Sort
from meetpoint.lab.sim.families import ChordFamily
from meetpoint.lab.sim.judge.report import Report
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists import ListsSettings
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, groups_of
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListEntry, difference
from meetpoint.schemes.lists.subids import AttributeBits, SubId
from meetpoint.schemes.lists.value_hash import POINTS_MAX, Hashing

__all__ = [
    "balanced",
    "brokers",
    "false_positives",
    "looked_up",
    "matched",
    "stored",
    "stored_small",
    "stored_wide",
    "updated",
]

EVERY_VALUE: Final = 1 << 30
"""Keys of one constraint where nothing bounds them, as in the paper: brokers have `POINTS_MAX`."""
BRIEF: Final = Timing(load_s=0.0, calm_s=0.0, after_s=4.0, quiet_s=2.0)
"""For lookups: the ring is ideal from the beginning, and what is counted does not depend on how long it is kept up."""
GROWING: Final = Timing(between_joins_s=0.05, load_s=0.0, calm_s=30.0, after_s=4.0, quiet_s=2.0)
"""For a ring to which half of its nodes come one after the other: who was there before must find out about them."""
LINKS_OF: Final = 200
"""Nodes whose links are counted."""
LOADING: Final = Timing(load_s=10.0, calm_s=0.0, after_s=0.0, quiet_s=30.0)
MATCHING: Final = Timing(load_s=0.0, calm_s=10.0, after_s=0.0, quiet_s=30.0)
"""For brokers that get subscriptions, and events."""


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
        """Origins, and where ranges of so many values begin."""
        for _ in range(count):
            yield self.random.randrange(len(self.ring.nodes)), self.random.randrange(self.domain - values + 1)

    def entries(self, first: int, values: int) -> tuple[ListEntry, ...]:
        """What is placed for the range of so many values from one on."""
        return entries_for(self.hashing, f"{self.attribute} BETWEEN {first} AND {first + values - 1}")

    def store(self, values: int, count: int, *, skipping: bool = True) -> Metrics:
        """Means over some ranges of so many values."""
        walked = [
            walk(self.ring, self.hashing, origin, self.entries(first, values), skipping=skipping)
            for origin, first in self.draw(values, count)
        ]
        return _told(walked)


def _told(walked: list[Walked]) -> Metrics:
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


def stored(parameters: Parameters, seed: int) -> Metrics:
    """A range of some values, of as many values as there are nodes: one step is one node where ids are even."""
    nodes, values, count = (_number(parameters, name) for name in ("nodes", "values", "ranges"))
    if parameters["how"] == "brokers":
        return _stored_by_brokers(str(parameters["hash"]), nodes, values, count, seed)
    return Ranges(_ids(parameters), nodes, seed, nodes, str(parameters["hash"])).store(values, count)


def _stored_by_brokers(hash_: str, nodes: int, values: int, count: int, seed: int) -> Metrics:
    """The same on simulated brokers, whose ids are hashes: hops are told by errands, messages were sent."""
    attribute = f"a{seed}"
    net = brokers(hash_, nodes, [attribute], seed, LOADING)
    random = Random(f"brokers/{nodes}/{values}/{seed}")
    for _ in range(count):
        first = random.randrange(nodes - values + 1)
        net.subscribe(f"{attribute} BETWEEN {first} AND {first + values - 1}")
    report = _ran(net)
    sent = report.messages_by_kind
    return {
        "hops": report.observed["errand_hops"] / count,
        "messages": (sent.get("c.ro", 0) + sent.get("errand_done", 0)) / count,
    }


def brokers(hash_: str, nodes: int, attributes: list[str], seed: int, timing: Timing) -> Network:
    """Brokers that keep lists of attributes with as many values as there are nodes."""
    declared = "".join(f"  {name}: {{type: integer, min: 0, max: {nodes - 1}}}\n" for name in attributes)
    settings = ListsSettings(hash="order" if hash_ == "opchord" else "plain", schema=f"attributes:\n{declared}")
    kin = ChordFamily(NetworkConfig(scheme="lists", lists=settings))
    return Network(scheme="lists", nodes=nodes, seed=seed, timing=timing, kin=kin)


def _ran(net: Network) -> Report:
    """The report of a network once it has run; AssertionError where its judges found anything wrong."""
    net.run()
    report = net.report()
    assert report.good, f"a wrong run: {report.counts}, {report.problems}"
    return report


def stored_wide(parameters: Parameters, seed: int) -> Metrics:
    """Ranges up to many times as wide as the ring has nodes, of a fixed domain.

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


def stored_small(parameters: Parameters, seed: int) -> Metrics:
    """All values of a domain that has fewer values than the ring has nodes."""
    nodes, domain, count = (_number(parameters, name) for name in ("nodes", "domain", "ranges"))
    ranges = Ranges(_ids(parameters), nodes, seed, domain, "opchord")
    return ranges.store(domain, count, skipping=parameters["way"] == "skipping")


# -- looking up, matching, updating ------------------------------------------------------------------------------------


def looked_up(parameters: Parameters, seed: int) -> Metrics:
    """Keys at random, from nodes at random; `extra` is what is left of the mean beside ½ log2 N."""
    nodes, count, how = _number(parameters, "nodes"), _number(parameters, "lookups"), parameters["how"]
    if how == "ideal":
        ring, random = ideal_ring(_ids(parameters), nodes, seed), Random(f"lookups/{nodes}/{seed}")
        bits = ring.ring.bits
        hops = [ring.hops(random.randrange(nodes), ring.ring.key(random.getrandbits(bits))) for _ in range(count)]
        beside = {"links": fmean(len(ring.links(random.randrange(nodes))) for _ in range(LINKS_OF))}
    else:
        hops, unlike = _looked_up_in_network(nodes, count, seed, is_grown=how == "grown")
        beside = {"unlike_ideal_percent": 100 * unlike / count}
    mean = fmean(hops)
    return {"hops": mean, "extra": mean - log2(nodes) / 2, "hops_max": max(hops), **beside}


def _looked_up_in_network(nodes: int, count: int, seed: int, *, is_grown: bool) -> tuple[list[int], int]:
    """Real nodes that send messages; and how many lookups took other than the hops of the ideal ring with their ids."""
    timing, founders = (GROWING, nodes // 2) if is_grown else (BRIEF, nodes)
    net = Network(scheme="none", nodes=nodes, seed=seed, timing=timing, founders=founders)
    for _ in range(count):
        net.lookup()
    _ran(net)
    peers = {process.address: process.peer.id for process in net.cluster.processes}
    ideal = IdealRing(net.kin.ring, [*peers.values()])
    lookups = net.clients.history.lookups
    assert len(lookups) == count
    assert all(each.found is not None for each in lookups)
    far = [ideal.hops(ideal.owner(peers[each.address]), each.key) for each in lookups]
    unlike = sum(each.hops != hops for each, hops in zip(lookups, far, strict=True))
    return [each.hops for each in lookups], unlike


def matched(parameters: Parameters, seed: int) -> Metrics:
    """An event with some numbers: how far its lists are, as the paper counts and with what brokers ask beside."""
    nodes, attributes, count = (_number(parameters, name) for name in ("nodes", "attributes", "events"))
    names = [f"a{seed}_{number}" for number in range(attributes)]
    if parameters["how"] == "brokers":
        return _matched_by_brokers(str(parameters["hash"]), nodes, names, count, seed)
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


def _matched_by_brokers(hash_: str, nodes: int, names: list[str], count: int, seed: int) -> Metrics:
    """Simulated brokers to whom nobody subscribed: all errands ask for lists, one of them at the always key."""
    net = brokers(hash_, nodes, names, seed, MATCHING)
    random = Random(f"published/{nodes}/{len(names)}/{seed}")
    for _ in range(count):
        net.publish({name: random.randrange(nodes) for name in names})
    return {"hops_with_always": _ran(net).observed["errand_hops"] / count}


def updated(parameters: Parameters, seed: int) -> Metrics:
    """A range that moves up by some values: as brokers change it, and by the values that go and come, as printed."""
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


def balanced(parameters: Parameters, seed: int) -> Metrics:
    """Skewed values at nodes: the largest load to the mean; the scale is made from other values than are placed."""
    kind, scale = str(parameters["kind"]), parameters["scale"]
    nodes, count = _number(parameters, "nodes"), _number(parameters, "count")
    values = balance.draw_numbers(kind, count, seed)
    made = None
    if scale == "quantiles":
        made = balance.quantiles(balance.draw_numbers(kind, count, 1000 + seed), balance.NUMBERS[kind], nodes)
    keys = balance.placed_numbers(kind, values, made, in_order=scale != "plain hash")
    ring = Ring()
    placed: list[NodeId] = spaced(ring, nodes) if parameters["ids"] == "spaced" else hashed(ring, nodes, seed)
    return {"max_to_mean": balance.max_to_mean(balance.loads(keys, placed))}


PRICES: Final = 2_001
"""Values of an attribute of figure 1: 0.00 to 20.00 at 0.01."""


def false_positives(parameters: Parameters, seed: int) -> Metrics:
    """Paper A's lists as printed: which pairs of an event and a subscription are taken for a match and are none.

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
