"""One scheme on one workload: a network without faults, judged by the oracle, and all that it cost."""

from __future__ import annotations

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.sim.compare.compare import Costs, Trial, measure_with_report, overlay_of
from meetpoint.lab.sim.compare.given import Given
from meetpoint.lab.workloads.generating import event_rows, filter_texts, generate
from meetpoint.lab.workloads.zipf import Zipf

__all__ = ["given_for", "run_costs"]

OVERLAY = "chord"
"""Of all but `reach`, which has its own."""


def given_for(parameters: Parameters, seed: int) -> Given:
    """Filters and events: strings and numbers, attributes and values popular by Zipf's law."""
    shape = Zipf(width=float(parameters["width"]), held=int(parameters["held"]))
    made = generate(shape, int(parameters["subscriptions"]), int(parameters["events"]), seed)
    return Given(
        filters=tuple(text for _, text in filter_texts(made)), events=tuple(event_rows(made)), schema=shape.schema
    )


def run_costs(parameters: Parameters, seed: int) -> Metrics:
    """What it cost. What there is nothing to measure by is left out."""
    scheme = str(parameters["scheme"])
    trial = Trial(scheme=scheme, overlay=overlay_of(scheme, OVERLAY), nodes=int(parameters["nodes"]), seed=seed)
    given = given_for(parameters, seed)
    costs, report = measure_with_report(trial, given)
    if not costs.good:
        raise MeetpointError(f"together: {parameters} of seed {seed} is wrong: {'; '.join(costs.problems)}")
    matches = costs.notifications_expected
    found = {
        **_figures(costs, trial.nodes),
        "matches_per_event": matches / len(given.events),
        "subids_per_event": report.subids / len(given.events),
        "subids_per_match": report.subids / matches if matches else None,
    }
    return {metric: value for metric, value in found.items() if value is not None}


def _figures(costs: Costs, nodes: int) -> dict[str, float | None]:
    event, subscription, bringing = costs.event, costs.subscription, costs.event_by_purpose["events"]
    assert event is not None
    assert subscription is not None
    return {
        "messages_per_event": event.messages,
        "bytes_per_event": event.bytes,
        "bringing_messages_per_event": bringing.messages,
        "bringing_bytes_per_event": bringing.bytes,
        "messages_per_subscription": subscription.messages,
        "bytes_per_subscription": subscription.bytes,
        "subscription_ms": None if costs.subscription_ms is None else costs.subscription_ms.p50,
        "entries_per_subscription": costs.entries,
        "fullest_to_mean": None if costs.fullest is None else costs.fullest * nodes,
        "busiest_to_mean": None if costs.busiest is None else costs.busiest * nodes,
        "hops": None if costs.event_hops is None else costs.event_hops.mean,
        "hops_most": None if costs.event_hops is None else costs.event_hops.max,
        "ms": None if costs.event_delay_ms is None else costs.event_delay_ms.p50,
        "ms_most": None if costs.event_delay_ms is None else costs.event_delay_ms.max,
        "visited_share": costs.visited,
        "visited_nodes": None if costs.visited is None else costs.visited * nodes,
        "upkeep_messages_per_node_s": costs.upkeep.messages,
        "upkeep_bytes_per_node_s": costs.upkeep.bytes,
    }
