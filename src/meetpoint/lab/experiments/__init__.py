"""The papers' experiments and ours: cells of parameters and a seed, run by the simulator or a model, and judged.

`EXPERIMENTS` has them all. `grid` runs their cells, `report` draws and judges the results.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "named"]


EXPERIMENTS: Final = ("opchord", "strings", "reach", "dmm", "rebeca", "together")
"""The names of the experiments: each is a module of this package with an `EXPERIMENT`. Papers A to E, and all schemes
on one workload."""


def named(name: str) -> tuple[Experiment, ...]:
    """Load one experiment, or `all`; MeetpointError where there is none of this name."""
    if name != "all" and name not in EXPERIMENTS:
        raise MeetpointError(f"experiment {name!r}: there is none of this name; choose {', '.join(EXPERIMENTS)} or all")
    return tuple(_load(each) for each in (EXPERIMENTS if name == "all" else (name,)))


def _load(name: str) -> Experiment:
    found = import_module(f"meetpoint.lab.experiments.{name}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found
