"""Which attribute is asked first (section 6), and where the work of matching is done (section 7.1)."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from meetpoint.lab.experiments.cells import Metrics, Parameter, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.models.corrected import CorrectedModel
from meetpoint.lab.experiments.models.rings import IdealRing, hashed
from meetpoint.lab.experiments.results import Results, Spread
from meetpoint.lab.workloads.paper_b import PaperB
from meetpoint.language.filters.filter import FilterParser
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import CollectionMode

__all__ = ["ORDERING_CLAIMS", "ORDERS", "run_order"]

ORDERS: Final = ("selective first", "at random", "selective last")
HELPS: Final = 0.95
"""Who sends at most so much of what another does sends less."""


def run_order(parameters: Parameters, seed: int) -> Metrics:
    """SubIDs an event by each mode, as corrected, where attributes are asked in some order; values of figure 11."""
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


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


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
        verdict=_verdict(all(helps), any(helps)),
        why="Values only, of figure 11's kind. To what hybrid sends in a random order it is "
        + "; ".join(f"{told.told()} with {attributes} attributes" for attributes, told in random.items())
        + ". Coordinated matching asks all at once, and has no order. Selectivities are measured; by the size of "
        "domains alone nothing could be told here, as all have one size.",
    )


def _traffic(results: Results, attributes: Parameter) -> dict[str, Parameter]:
    where: dict[str, Parameter] = {"figure": 9, "constraints": "equality", "attributes": attributes}
    return {**where, "theta": results.distinct("traffic", "theta", **where)[-1]}


def _judge_origin(results: Results) -> Judged:
    told, shares = [], []
    for attributes in results.distinct("traffic", "attributes", figure=9, constraints="equality"):
        where = _traffic(results, attributes)
        all_ = results.by_seed("traffic", "corrected_coordinated_subids", **where)
        matched = results.by_seed("traffic", "matches", **where)
        share = Spread.of(matched[seed] / all_[seed] for seed in all_)
        told.append(f"{share.told()} with {attributes} attributes")
        shares.append(share.high)
    return Judged(
        ours=f"hybrid brings the origin, of the SubIDs that coordinated brings it: {'; '.join(told)}",
        verdict=_verdict(max(shares) < 1, min(shares) < 1),
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
        verdict=_verdict(all(falls), any(falls)),
        why="Attributes that an event has. The paper does not say how they are drawn; here 1 to 10 times, and what is "
        "drawn again counts once.",
    )


ORDERING_CLAIMS: Final = (
    Claim(
        id="B16",
        place="section 6",
        says="Distributed matching should process first the attributes that return the fewest SubIDs.",
        number="none given",
        judge=_judge_order,
    ),
    Claim(
        id="B17",
        place="section 7.1",
        says="Hybrid matching is distributed: the origin need not do all of it.",
        number="none given",
        judge=_judge_origin,
    ),
    Claim(
        id="B18",
        place="section 7.1, figure 11",
        says="The more skewed the popularity of attributes, the fewer attributes an event has.",
        number="none given",
        judge=_judge_fewer,
    ),
)
