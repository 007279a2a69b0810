"""Traffic of an event with strings (paper B): SubIDs, lookups, deliveries, the order of attributes, overlays.

*Figures 9 to 11*: SubIDs sent for an event, by the three modes, corrected and as printed. All modes and both versions
get the same subscriptions at the same homes, the same events at the same brokers, and the attributes in the same order
of selectivity, so that they are compared within a cell. The corrected version must find what the index finds, for
every event and in every mode, or the cell fails.

*Lookups*: section 7.1 has one node an attribute. Numbers have: so its sums are tried with events of numbers, each at a
node of its own, on the algorithms as printed. A string has a node for every beginning and end.

*Delivery*: a message to each of k homes, or one walk round the ring, on rings of hashed ids. The paper's rule sends
messages where k · ½ log2 N < N. The hops of a message are measured, and with them the number of homes from which on the
walk is shorter.

*Overlays*: the paper's solution is to run on any DHT (abstract, sections 2.3 and 8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from random import Random
from statistics import fmean
from string import ascii_lowercase
from typing import Final

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import (
    Judged,
    Metrics,
    NotMeasured,
    PaperClaim,
    Parameter,
    Parameters,
    Results,
    SeedSpread,
    verdict_of,
)
from meetpoint.lab.experiments.rings import IdealRing, hashed
from meetpoint.lab.experiments.subid_collection import CollectionModel, CorrectedModel, PrintedCollection, subset
from meetpoint.lab.printed.papers_ab import PlainHash, PrintedNetwork
from meetpoint.lab.sim.comparison import Trial, TrialInput, measure_with_report
from meetpoint.lab.workloads.paper_b import PaperB
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.index import Index
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, groups_of, is_walk_cheaper, texts_of
from meetpoint.schemes.lists.value_hash import Hashing

# -- figures 9 to 11 ---------------------------------------------------------------------------------------------------


TRAFFIC_FIGURES: Final = (9, 10, 11)
VERSIONS: Final[dict[str, type[CorrectedModel] | type[PrintedCollection]]] = {
    "corrected": CorrectedModel,
    "printed": PrintedCollection,
}
MEASURED: Final = 2_000
"""Events on which the selectivity of attributes is measured, as Spark measures it for brokers."""
_COUNTED: Final = ("lookups", "messages", "subids", "delivered_subids", "walks")


def workload_of(parameters: Parameters, seed: int) -> PaperB:
    """Return the workload of a figure: θ skews values where all attributes are alike (9), else attributes (10, 11)."""
    figure, theta = int(parameters["figure"]), float(parameters["theta"])
    skews: dict[int, PaperB] = {
        9: PaperB(attributes_theta=0.6, values_theta=theta),
        10: PaperB(attributes_theta=theta, values_theta=0.5),
        11: PaperB(attributes_theta=theta, skew="unpopular"),
    }
    constraints = "equality" if parameters["constraints"] == "equality" else "mixed"
    return msgspec.structs.replace(
        skews[figure], seed=seed, attributes=int(parameters["attributes"]), constraints=constraints
    )


def run_traffic(parameters: Parameters, seed: int) -> dict[str, float]:
    """Measure the messages and SubIDs of an event, on average."""
    workload = workload_of(parameters, seed)
    parser = FilterParser()
    filters = [parser.parse(text) for text in workload.subscriptions(int(parameters["subscriptions"]))]
    events = list(workload.events(int(parameters["events"])))
    expected = [subset(numbers) for numbers in Index.from_filters(enumerate(filters)).match_batch(events)]
    random = Random(f"strings/{seed}")
    nodes = int(parameters["nodes"])
    homes = [random.randrange(nodes) for _ in filters]
    origins = [random.randrange(nodes) for _ in events]
    models = _models(nodes, seed, Schema.from_yaml(workload.schema), filters, homes)
    place = {name: at for at, name in enumerate(models["corrected"].selectivity_order(events[:MEASURED]))}
    wrong = dict.fromkeys((f"printed_{mode}_{what}" for mode in CollectionMode for what in ("missing", "spurious")), 0)
    for event, origin, right in zip(events, origins, expected, strict=True):
        order = sorted(event, key=place.__getitem__)
        found = models["corrected"].publish(event, order, origin)
        if any(each != right for each in found.values()):
            raise AssertionError(f"{event}: the corrected version and the index do not find the same")
        for mode, each in models["printed"].publish(event, order, origin).items():
            wrong[f"printed_{mode}_missing"] += (right & ~each).bit_count()
            wrong[f"printed_{mode}_spurious"] += (each & ~right).bit_count()
    sums = {
        "matches": sum(map(int.bit_count, expected)),
        "attributes_held": sum(map(len, events)),
        **wrong,
        **{name: count for version, model in models.items() for name, count in _counts(version, model)},
    }
    return {name: count / len(events) for name, count in sums.items()}


def _models(
    nodes: int, seed: int, schema: Schema, filters: Sequence[Filter], homes: Sequence[int]
) -> dict[str, CollectionModel]:
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    return {name: version(ring, schema, filters, homes) for name, version in VERSIONS.items()}


def _counts(version: str, model: CollectionModel) -> Iterator[tuple[str, int]]:
    for mode, sent in model.sent.items():
        for what in _COUNTED:
            yield f"{version}_{mode}_{what}", getattr(sent, what)


# -- lookups (sections 5 and 7.1) --------------------------------------------------------------------------------------


_VALUES: Final = 1_000_000


def count_lookups(parameters: Parameters, seed: int) -> dict[str, float]:
    """Count lookups for an event whose attributes have a node each, none of them its origin."""
    nodes, attributes = int(parameters["nodes"]), int(parameters["attributes"])
    random = Random(f"lookups/{seed}")
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    hash_ = PlainHash(ring.ring)
    network = PrintedNetwork(hash_, ring.owner)
    origin = random.randrange(nodes)
    event: dict[str, int] = {}
    taken = {origin}
    while len(event) < attributes:
        value = random.randrange(_VALUES)
        owner = ring.owner(hash_("", value))
        if owner not in taken:
            taken.add(owner)
            event[f"a{len(event)}"] = value
    order = AttributeOrder()
    return {f"{mode}_lookups": network.match(event, mode, origin, order)[1].messages for mode in CollectionMode}


def count_keys(parameters: Parameters, seed: int) -> dict[str, float]:
    """Count keys for one value whose letters all differ, in an event without other attributes."""
    value = "".join(Random(f"keys/{seed}").sample(ascii_lowercase, int(parameters["length"])))
    ring = Ring()
    network = PrintedNetwork(PlainHash(ring), lambda key: 0)
    _, printed = network.match({"a": value}, CollectionMode.COORDINATED, 0, AttributeOrder())
    hashing = Hashing(ring)
    asked = groups_of(hashing, hashing.bits.flatten({"a": value}), AttributeOrder())
    return {
        "printed_lookups": printed.lookups,
        "distinct_keys": len(texts_of(value)),
        "corrected_lookups": sum(len(group.lookups) for group in asked),
    }


# -- delivery (section 5.1) --------------------------------------------------------------------------------------------


TRIALS: Final = 200
PAIRS: Final = 4_000


def measure_delivery(parameters: Parameters, seed: int) -> dict[str, float]:
    """Measure mean hops to so many homes from some node, of a walk, and by the rule."""
    nodes, homes = int(parameters["nodes"]), int(parameters["homes"])
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    random = Random(f"delivery/{seed}/{homes}")
    hops = [
        sum(ring.hops(origin, ring.nodes[home]) for home in random.sample(range(nodes), homes))
        for origin in (random.randrange(nodes) for _ in range(TRIALS))
    ]
    walks = is_walk_cheaper(homes, nodes)
    return {
        "unicast_hops": fmean(hops),
        "walk_hops": nodes,
        "policy_hops": nodes if walks else fmean(hops),
    }


def measure_crossover(parameters: Parameters, seed: int) -> dict[str, float]:
    """Measure from how many homes on the walk takes no more hops, and by the rule."""
    nodes = int(parameters["nodes"])
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    random = Random(f"crossover/{seed}")
    pairs = ((random.randrange(nodes), ring.nodes[random.randrange(nodes)]) for _ in range(PAIRS))
    hops = fmean(ring.hops(origin, home) for origin, home in pairs)
    by_rule = next(homes for homes in range(1, nodes + 1) if is_walk_cheaper(homes, nodes))
    return {"hops": hops, "measured_homes": ceil(nodes / hops), "rule_homes": by_rule}


# -- the order of attributes (section 6) -------------------------------------------------------------------------------


ORDERS: Final = ("selective first", "at random", "selective last")
HELPS: Final = 0.95
"""The largest ratio that counts as sending less."""


def run_order(parameters: Parameters, seed: int) -> Metrics:
    """Measure SubIDs an event by each mode, corrected, for an order of attributes; values of figure 11."""
    workload = PaperB(attributes_theta=0.6, skew="unpopular")
    workload = msgspec.structs.replace(
        workload, seed=seed, attributes=int(parameters["attributes"]), constraints="equality"
    )
    parser = FilterParser()
    filters = [parser.parse(text) for text in workload.subscriptions(int(parameters["subscriptions"]))]
    events = list(workload.events(int(parameters["events"])))
    random = Random(f"order/{seed}")
    nodes = int(parameters["nodes"])
    homes = [random.randrange(nodes) for _ in filters]
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    model = CorrectedModel(ring, Schema.from_yaml(workload.schema), filters, homes)
    order = model.selectivity_order(events)
    if parameters["order"] == "selective last":
        order.reverse()
    elif parameters["order"] == "at random":
        random.shuffle(order)
    place = {name: at for at, name in enumerate(order)}
    for event in events:
        model.publish(event, sorted(event, key=place.__getitem__), random.randrange(nodes))
    return {f"{mode}_subids": model.sent[mode].subids / len(events) for mode in CollectionMode}


def _judge_order(results: Results) -> Judged:
    found = {
        (mode, attributes): results.ratio(
            "order", f"{mode}_subids", {"order": "selective last"}, order="selective first", attributes=attributes
        )
        for mode in (CollectionMode.DISTRIBUTED, CollectionMode.HYBRID)
        for attributes in results.distinct("order", "attributes")
    }
    random = {
        attributes: results.ratio(
            "order",
            f"{CollectionMode.HYBRID}_subids",
            {"order": "at random"},
            order="selective first",
            attributes=attributes,
        )
        for attributes in results.distinct("order", "attributes")
    }
    helps = [spread.median <= HELPS for spread in found.values()]
    return Judged(
        ours="; ".join(f"{mode}, {attributes} attributes: {told.told()}" for (mode, attributes), told in found.items())
        + " of the SubIDs that are sent in the opposite order",
        verdict=verdict_of(all(helps), any(helps)),
        why="Values only, of figure 11's kind. To what hybrid sends in a random order it is "
        + "; ".join(f"{told.told()} with {attributes} attributes" for attributes, told in random.items())
        + ". Coordinated matching asks all at once, and has no order. Selectivities are measured; by the size of "
        "domains alone nothing could be told here, as all have one size.",
    )


def _where(results: Results, attributes: Parameter) -> dict[str, Parameter]:
    where: dict[str, Parameter] = {"figure": 9, "constraints": "equality", "attributes": attributes}
    return {**where, "theta": results.distinct("traffic", "theta", **where)[-1]}


def _judge_origin(results: Results) -> Judged:
    told, shares = [], []
    for attributes in results.distinct("traffic", "attributes", figure=9, constraints="equality"):
        where = _where(results, attributes)
        all_ = results.by_seed("traffic", "corrected_coordinated_subids", **where)
        matched = results.by_seed("traffic", "matches", **where)
        share = SeedSpread.of(matched[seed] / all_[seed] for seed in all_)
        told.append(f"{share.told()} with {attributes} attributes")
        shares.append(share.high)
    return Judged(
        ours=f"hybrid brings the origin, of the SubIDs that coordinated brings it: {'; '.join(told)}",
        verdict=verdict_of(max(shares) < 1, min(shares) < 1),
        why="Under coordinated matching everything is sent to the origin, which does all the matching; under hybrid "
        "only what matches, at most. Values only, the largest θ, as corrected: pruned at list nodes already.",
    )


def _judge_fewer(results: Results) -> Judged:
    told, falls = [], []
    for attributes in results.distinct("traffic", "attributes", figure=11):
        where: dict[str, Parameter] = {"figure": 11, "constraints": "equality", "attributes": attributes}
        thetas = results.distinct("traffic", "theta", **where)
        held = [results.spread("traffic", "attributes_held", **where, theta=theta) for theta in thetas]
        told.append(
            f"{held[0].told()} at θ = {thetas[0]} and {held[-1].told()} at θ = {thetas[-1]} with {attributes} in all"
        )
        medians = [each.median for each in held]
        falls.append(medians == sorted(medians, reverse=True) and medians[0] > medians[-1])
    return Judged(
        ours="; ".join(told),
        verdict=verdict_of(all(falls), any(falls)),
        why="Attributes that an event has. The paper does not say how they are drawn; here 1 to 10 times, and what is "
        "drawn again counts once.",
    )


ORDERING_CLAIMS: Final = (
    PaperClaim(
        id="B16",
        place="section 6",
        says="Distributed matching should process first the attributes that return the fewest SubIDs.",
        number="none given",
        judge=_judge_order,
    ),
    PaperClaim(
        id="B17",
        place="section 7.1",
        says="Hybrid matching is distributed: the origin need not do all of it.",
        number="none given",
        judge=_judge_origin,
    ),
    PaperClaim(
        id="B18",
        place="section 7.1, figure 11",
        says="The more skewed the popularity of attributes, the fewer attributes an event has.",
        number="none given",
        judge=_judge_fewer,
    ),
)


# -- overlays (sections 2.3 and 8) -------------------------------------------------------------------------------------


def run_overlays(parameters: Parameters, seed: int) -> Metrics:
    """Run simulated brokers with `lists`; MeetpointError where the judge finds anything wrong."""
    workload = PaperB(seed=seed, attributes=10, values_theta=1.0)
    given = TrialInput(
        filters=tuple(workload.subscriptions(int(parameters["subscriptions"]))),
        events=tuple(workload.events(int(parameters["events"]))),
        schema=workload.schema,
    )
    overlay = str(parameters["overlay"])
    trial = Trial(scheme="lists", overlay=overlay, nodes=int(parameters["nodes"]), seed=seed)
    costs, _ = measure_with_report(trial, given)
    if not costs.good:
        raise MeetpointError(f"strings: {overlay}, seed {seed}: the network was wrong: {'; '.join(costs.problems)}")
    assert costs.event is not None
    assert costs.subscription is not None
    return {
        "notifications": costs.notifications_expected,
        "messages_per_event": costs.event_by_purpose["events"].messages,
        "messages_per_subscription": costs.subscription.messages,
    }


def _judge_overlays(results: Results) -> Judged:
    overlays = [str(overlay) for overlay in results.distinct("overlays", "overlay")]
    if len(overlays) < 2:
        raise NotMeasured("overlays: only one was run")
    found = {
        overlay: [
            results.spread("overlays", f"messages_per_{what}", overlay=overlay) for what in ("event", "subscription")
        ]
        for overlay in overlays
    }
    notified = {overlay: results.by_seed("overlays", "notifications", overlay=overlay) for overlay in overlays}
    is_same = len({tuple(sorted(each.items())) for each in notified.values()}) == 1
    total = sum(notified[overlays[0]].values())
    return Judged(
        ours="; ".join(
            f"{overlay}: {event.told(0)} messages an event, {subscription.told(0)} a subscription"
            for overlay, (event, subscription) in found.items()
        ),
        verdict="reproduced" if is_same and total else "not reproduced",
        why=f"Brokers on three overlays, the same strings: on each the oracle expects {total:.0f} notifications and "
        "finds neither more nor fewer, or the run would have failed. What differs is how many hops a lookup takes.",
    )


OVERLAY_CLAIMS: Final = (
    PaperClaim(
        id="B22",
        place="abstract, sections 2.3 and 8",
        says="The solution is independent of the DHT.",
        number="none given",
        judge=_judge_overlays,
    ),
)
