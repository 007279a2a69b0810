"""All schemes on one workload, a comparison of our own: networks without faults, each judged by the oracle."""

from __future__ import annotations

from collections.abc import Iterator

from meetpoint.catalog.catalog import SCHEMES
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Experiment, ExperimentPart, Metrics, Parameter, Parameters
from meetpoint.lab.experiments.together.claims import CLAIMS
from meetpoint.lab.experiments.together.figures import BASE, FIGURES
from meetpoint.lab.sim.comparison import Costs, Trial, TrialInput, measure_with_report, overlay_of
from meetpoint.lab.workloads.generator import event_rows, generate
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.lab.workloads.zipf import Zipf

__all__ = ["EXPERIMENT", "given_for", "run_costs"]


OVERLAY = "chord"
"""The overlay of all schemes but `reach`, which has its own."""


def given_for(parameters: Parameters, seed: int) -> TrialInput:
    """Draw filters and events: strings and numbers, attributes and values popular by Zipf's law."""
    shape = Zipf(width=float(parameters["width"]), held=int(parameters["held"]))
    made = generate(shape, int(parameters["subscriptions"]), int(parameters["events"]), seed)
    return TrialInput(
        filters=tuple(text for _, text in filter_texts(made)), events=tuple(event_rows(made)), schema=shape.schema
    )


def run_costs(parameters: Parameters, seed: int) -> Metrics:
    """Measure all costs of a scheme, without those that nothing measures."""
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


# -- the experiment ----------------------------------------------------------------------------------------------------


_EVENTS = 200
_ALL = tuple(SCHEMES)
_MODES = ("lists:distributed", "lists:hybrid")


def _cells(schemes: tuple[str, ...] = _ALL, **axes: tuple[Parameter, ...]) -> Iterator[dict[str, Parameter]]:
    """Yield the baseline and, one axis at a time, the cells that differ from it."""
    for axis, values in axes.items():
        for value in values:
            for scheme in schemes:
                yield {"scheme": scheme, **BASE, axis: value, "events": _EVENTS}


EXPERIMENT = Experiment(
    name="together",
    title="All schemes on one workload",
    about=(
        "Each scheme as brokers run it by default, on simulated networks without faults, each judged by the oracle; "
        "reach on its hypercube, the others on Chord. The workload has 16 attributes, half of them strings, attributes "
        "and values popular by Zipf's law (0.6), up to three constraints a subscription: equality, prefix or suffix of "
        "a string, a range of a number. One point is the baseline: 32 brokers, 300 subscriptions, ranges of 5 % of "
        "their values, 8 attributes an event; from there one thing is varied at a time. 200 events at 50 a second, of "
        "which 40 are published alone, so that ways and visits can be told. What is extrapolated keeps the number of "
        "subscriptions. rebeca with 3,000 subscriptions takes longer than a cell may, and is left out."
    ),
    parts=(
        ExperimentPart(
            name="costs",
            says="Messages, bytes, SubIDs, entries, shares, ways; simulated",
            run=run_costs,
            full=(
                *_cells(
                    nodes=(8, 16, 32, 64, 128),
                    subscriptions=(100, 1000),
                    width=(0.01, 0.2, 0.5),
                    held=(2, 4, 16),
                ),
                *_cells(tuple(scheme for scheme in _ALL if scheme != "rebeca"), subscriptions=(3000,)),
                *_cells(_MODES, nodes=(8, 32, 128)),
            ),
            quick=(
                *_cells(nodes=(8, 16, 32), subscriptions=(100,), width=(0.2,), held=(2,)),
                *_cells(_MODES, nodes=(8,)),
            ),
            seeds=2,
            quick_seeds=1,
        ),
    ),
    figures=FIGURES,
    claims=CLAIMS,
)
