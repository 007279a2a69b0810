"""A cell: one experiment's part with its parameters and a seed, and the rows of figures that running it gives.

A cell is all that decides its figures: run anywhere, and any number of times, it gives the same ones. So results may be
kept, made in any order on any machine, and those that are there need not be made again. What may differ is only how
long it took (`Row.cpu_s`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec

__all__ = ["Cell", "Metrics", "Parameter", "Parameters", "Row", "Run", "run_cell"]

Parameter: TypeAlias = str | int | float
Parameters: TypeAlias = Mapping[str, Parameter]
Metrics: TypeAlias = Mapping[str, float]
"""By name; a name says its unit where it has one: `hops`, `subids_per_event`, `top_fifth_share`."""
Run: TypeAlias = Callable[[Parameters, int], Metrics]
"""Parameters and a seed to figures."""


class Cell(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Some work that is done as a whole."""

    experiment: str
    part: str
    parameters: str
    """As JSON, sorted by name: equal parameters are equal text."""
    seed: int

    @classmethod
    def of(cls, experiment: str, part: str, parameters: Parameters, seed: int) -> Cell:
        """From parameters by name."""
        text = json.dumps(dict(parameters), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return cls(experiment=experiment, part=part, parameters=text, seed=seed)

    @property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters."""
        found: dict[str, Parameter] = json.loads(self.parameters)
        return found

    @property
    def id(self) -> str:
        """A short name of a file: the same cell always has the same, and no other cell has it."""
        whole = json.dumps([self.experiment, self.part, self.parameters, self.seed])
        return f"{self.experiment}-{self.part}-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.by_name.items())
        return f"{self.experiment} {self.part}: {told}{', ' if told else ''}seed {self.seed}"


class Row(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One figure of a cell."""

    experiment: str
    part: str
    parameters: str
    seed: int
    metric: str
    value: float
    cpu_s: float
    """Of the whole cell: the one thing that another run may have otherwise."""


def run_cell(cell: Cell, run: Run) -> Iterator[Row]:
    """Run it here, now; its figures."""
    begin = time.process_time()
    metrics = run(cell.by_name, cell.seed)
    cpu_s = round(time.process_time() - begin, 2)
    for metric, value in sorted(metrics.items()):
        yield Row(
            experiment=cell.experiment,
            part=cell.part,
            parameters=cell.parameters,
            seed=cell.seed,
            metric=metric,
            value=float(value),
            cpu_s=cpu_s,
        )
