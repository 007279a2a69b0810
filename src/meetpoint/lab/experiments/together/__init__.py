"""All schemes on one workload: what nobody has published."""

from __future__ import annotations

from collections.abc import Iterator

from meetpoint.catalog.catalog import SCHEMES
from meetpoint.lab.experiments.cells import Parameter
from meetpoint.lab.experiments.experiment import Experiment, Part
from meetpoint.lab.experiments.together.claims import CLAIMS
from meetpoint.lab.experiments.together.figures import BASE, FIGURES
from meetpoint.lab.experiments.together.measuring import run_costs

__all__ = ["EXPERIMENT"]

_EVENTS = 200
_ALL = tuple(SCHEMES)
_MODES = ("lists:distributed", "lists:hybrid")


def _cells(schemes: tuple[str, ...] = _ALL, **axes: tuple[Parameter, ...]) -> Iterator[dict[str, Parameter]]:
    """The baseline and, one axis at a time, what differs from it."""
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
        Part(
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
