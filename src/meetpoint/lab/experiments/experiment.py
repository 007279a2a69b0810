"""What an experiment is made of: parts with their grids, figures to draw, and claims to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from meetpoint.lab.experiments.cells import Cell, Parameter, Parameters, Run
from meetpoint.lab.experiments.results import Results

__all__ = ["Claim", "Drawn", "Experiment", "Figure", "Fit", "Judged", "Part", "Scale", "Verdict", "grid"]

Scale: TypeAlias = Literal["full", "quick"]
Verdict: TypeAlias = Literal["reproduced", "in part", "not reproduced"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that are run by one function. A cell of full size takes at most 120 s of one core."""

    name: str
    says: str
    """What is measured, in a line."""
    run: Run
    full: tuple[Parameters, ...]
    quick: tuple[Parameters, ...]
    seeds: int = 5
    """How many, of full size, where nobody says otherwise; they count from 1."""
    quick_seeds: int = 2


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What a paper claims, as a line in a figure: a value for each x."""

    label: str
    y: Callable[[float], float]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is fitted to the medians of each line, and drawn on to `until`, marked as an extrapolation.

    `log`: a + b log2 x. `power`: a x^b. `linear`: a + b x.
    """

    model: Literal["log", "power", "linear"]
    until: float = 1e6


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Lines (or bars) of a metric against a parameter, the median over seeds with the range from least to largest."""

    name: str
    """Of the file, such as `store-hops`."""
    title: str
    part: str
    x: str
    """The parameter along the horizontal axis; a text makes bars of it."""
    x_label: str
    """With its unit."""
    y: str | tuple[str, ...]
    """A metric, or several: each is a line of its own."""
    y_label: str
    """With its unit."""
    lines: str | None = None
    """The parameter that tells lines apart."""
    labels: Mapping[Any, str] = {}
    """What lines are called, by the value of `lines` or the name of the metric, where that does not say it."""
    panels: str | None = None
    """The parameter that tells panels apart, side by side."""
    where: Parameters = {}
    log_x: bool = False
    log_y: bool = False
    drawn: tuple[Drawn, ...] = ()
    fit: Fit | None = None
    says: str = ""
    """What is to be seen, in a sentence or two, beneath the figure."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claim."""

    ours: str
    """Our number with its spread."""
    verdict: Verdict
    why: str
    """Where it is not reproduced: why, and what would make it true. Else what must be known to read it."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a paper says, in our words."""

    id: str
    """Such as `A3`."""
    place: str
    """Where in the paper, such as `section 5, figure 7`."""
    says: str
    number: str
    """The paper's number, or `none given`."""
    judge: Callable[[Results], Judged]
    """May raise NotMeasured: then it was not run."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A paper, or a question of our own."""

    name: str
    title: str
    about: str
    """Some sentences for the report: what is run, what the paper does not say, and what was chosen instead."""
    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = ()

    def part(self, name: str) -> Part:
        """KeyError where there is none of this name."""
        return {part.name: part for part in self.parts}[name]

    def cells(self, scale: Scale, seeds: int | None = None) -> Iterator[Cell]:
        """All cells of a size, seed after seed, so that a run that is stopped has some of everything."""
        most = seeds or max(_seeds(part, scale) for part in self.parts)
        for seed in range(1, most + 1):
            for part in self.parts:
                if seeds is None and seed > _seeds(part, scale):
                    continue
                for parameters in part.full if scale == "full" else part.quick:
                    yield Cell.of(self.name, part.name, parameters, seed)


def _seeds(part: Part, scale: Scale) -> int:
    return part.seeds if scale == "full" else part.quick_seeds


def grid(**axes: Parameter | Iterable[Parameter]) -> tuple[dict[str, Parameter], ...]:
    """All combinations of the values of each parameter, the last one varying fastest."""
    found: list[dict[str, Parameter]] = [{}]
    for name, values in axes.items():
        several: Sequence[Parameter] = [values] if isinstance(values, str | int | float) else list(values)
        found = [{**each, name: value} for each in found for value in several]
    return tuple(found)
