"""All experiments, by name."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "named"]

EXPERIMENTS: Final = ("opchord", "strings", "reach", "dmm", "rebeca", "together")
"""Each is a module of this package with an `EXPERIMENT`: papers A to E, and all schemes on one workload."""


def named(name: str) -> tuple[Experiment, ...]:
    """One experiment, or `all`; MeetpointError where there is none of this name."""
    if name != "all" and name not in EXPERIMENTS:
        raise MeetpointError(f"experiment {name!r}: there is none of this name; choose {', '.join(EXPERIMENTS)} or all")
    return tuple(_load(each) for each in (EXPERIMENTS if name == "all" else (name,)))


def _load(name: str) -> Experiment:
    found = import_module(f"meetpoint.lab.experiments.{name}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found
