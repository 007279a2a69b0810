"""Cells, their results, and experiments: parts with grids of cells, figures to draw, and claims to judge.

A cell is one experiment's part with its parameters and a seed. These decide its figures: run anywhere, and any number
of times, it gives the same ones. So results may be kept, made in any order on any machine, and a cell that is done
need not be run again. Only its time may differ (`Row.cpu_s`).
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError

# -- cells -------------------------------------------------------------------------------------------------------------


Parameter: TypeAlias = str | int | float
Parameters: TypeAlias = Mapping[str, Parameter]
Metrics: TypeAlias = Mapping[str, float]
"""Figures by name; a name says its unit where it has one: `hops`, `subids_per_event`, `top_fifth_share`."""
Run: TypeAlias = Callable[[Parameters, int], Metrics]
"""A function from parameters and a seed to figures."""


class Cell(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A unit of work that is done as a whole."""

    experiment: str
    part: str
    parameters: str
    """The parameters as JSON, sorted by name: equal parameters are equal text."""
    seed: int

    @classmethod
    def of(cls, experiment: str, part: str, parameters: Parameters, seed: int) -> Cell:
        """Make a cell from parameters by name."""
        # NaN equals nothing: a cell with it would never be found again.
        text = json.dumps(dict(parameters), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return cls(experiment=experiment, part=part, parameters=text, seed=seed)

    @property
    def by_name(self) -> dict[str, Parameter]:
        found: dict[str, Parameter] = json.loads(self.parameters)
        return found

    @property
    def id(self) -> str:
        """A short file name, unique to the cell."""
        whole = json.dumps([self.experiment, self.part, self.parameters, self.seed])
        return f"{self.experiment}-{self.part}-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.by_name.items())
        return f"{self.experiment} {self.part}: {told}{', ' if told else ''}seed {self.seed}"


class ResultRow(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A figure of a cell."""

    experiment: str
    part: str
    parameters: str
    seed: int
    metric: str
    value: float
    cpu_s: float
    """The time of the whole cell: the only value that another run may change."""


def run_cell(cell: Cell, run: Run) -> Iterator[ResultRow]:
    """Run the cell here and now, and yield its figures."""
    begin = time.process_time()
    metrics = run(cell.by_name, cell.seed)
    cpu_s = round(time.process_time() - begin, 2)
    for metric, value in sorted(metrics.items()):
        yield ResultRow(
            experiment=cell.experiment,
            part=cell.part,
            parameters=cell.parameters,
            seed=cell.seed,
            metric=metric,
            value=float(value),
            cpu_s=cpu_s,
        )


# -- results -----------------------------------------------------------------------------------------------------------


class NotMeasured(LookupError):  # noqa: N818
    """No cell that was run has the value."""


class MixedResultsError(MeetpointError):
    """More than one cell of a seed has the value: results of two sizes, or of two versions, are together."""

    def __init__(self, asked: str, seed: int, one: Mapping[str, Parameter], other: Mapping[str, Parameter]) -> None:
        names = sorted({*one, *other})
        unlike = [name for name in names if one.get(name) != other.get(name)]
        told = ", ".join(f"{name} {one.get(name, 'none')} and {other.get(name, 'none')}" for name in unlike)
        super().__init__(
            f"{asked} is in more than one cell of seed {seed} ({told}): results of --quick and of full size, or of two "
            "versions, lie in one folder; give each a folder of its own (--out, --results)"
        )


class SeedSpread(NamedTuple):
    """The median, the least and the largest of some values, and their number."""

    median: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> SeedSpread:
        """Make a spread; NotMeasured where there are no values."""
        found = sorted(values)
        if not found:
            raise NotMeasured("there are no values")
        return cls(statistics.median(found), found[0], found[-1], len(found))

    def told(self, digits: int = 2, unit: str = "") -> str:
        """Return the spread in words: `3.52 (3.41 to 3.60, 5 seeds)`."""
        number = f"{self.median:,.{digits}f}{unit}"
        if self.seeds == 1:
            return f"{number} (1 seed)"
        return f"{number} ({self.low:,.{digits}f} to {self.high:,.{digits}f}, {self.seeds} seeds)"


class _Found(NamedTuple):
    parameters: Mapping[str, Parameter]
    seed: int
    value: float


class Results:
    """All rows of one experiment."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        # A row may come from a Parquet and from a CSV file; twice, it would count as another seed.
        self.rows = sorted(set(rows))
        self._found: dict[tuple[str, str], list[_Found]] = defaultdict(list)
        known: dict[str, Mapping[str, Parameter]] = {}
        for row in self.rows:
            parameters = known.setdefault(row.parameters, json.loads(row.parameters))
            self._found[row.part, row.metric].append(_Found(parameters, row.seed, row.value))

    def by_seed(self, part: str, metric: str, /, **where: Parameter) -> dict[int, float]:
        """Return one value a seed; NotMeasured where there is none, MixedResultsError where there are more."""
        values: dict[int, _Found] = {}
        for found in self._matching(part, metric, where):
            known = values.setdefault(found.seed, found)
            if known is not found:
                raise MixedResultsError(f"{part}: {metric}", found.seed, known.parameters, found.parameters)
        if not values:
            raise NotMeasured(f"{part}: {metric} of {where} was not measured")
        return {seed: found.value for seed, found in values.items()}

    def spread(self, part: str, metric: str, /, **where: Parameter) -> SeedSpread:
        """Return the spread over the seeds."""
        return SeedSpread.of(self.by_seed(part, metric, **where).values())

    def ratio(self, part: str, metric: str, over: Mapping[str, Parameter], /, **where: Parameter) -> SeedSpread:
        """Return, seed by seed, the metric's ratio to that of the cell whose parameters differ as `over` says."""
        ours = self.by_seed(part, metric, **where)
        theirs = self.by_seed(part, metric, **{**where, **over})
        return SeedSpread.of(ours[seed] / theirs[seed] for seed in ours if theirs.get(seed))

    def distinct(self, part: str, parameter: str, metric: str | None = None, /, **where: Parameter) -> list[Parameter]:
        """Return the values of a parameter, sorted; NotMeasured where it has none."""
        metrics = [metric] if metric is not None else [name for its, name in self._found if its == part]
        values = {
            found.parameters[parameter]
            for name in metrics
            for found in self._matching(part, name, where)
            if parameter in found.parameters
        }
        if not values:
            raise NotMeasured(f"{part}: nothing with {parameter} was measured")
        return sorted(values, key=lambda value: (isinstance(value, str), value))

    def _matching(self, part: str, metric: str, where: Mapping[str, Parameter]) -> Iterable[_Found]:
        for found in self._found.get((part, metric), ()):
            if all(found.parameters.get(name) == value for name, value in where.items()):
                yield found


# -- experiments -------------------------------------------------------------------------------------------------------


Scale: TypeAlias = Literal["full", "quick"]
Verdict: TypeAlias = Literal["reproduced", "in part", "not reproduced"]


class ExperimentPart(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that are run by one function. A cell of full size takes at most 120 s of one core."""

    name: str
    says: str
    """The measurement, in a line."""
    run: Run
    full: tuple[Parameters, ...]
    quick: tuple[Parameters, ...]
    seeds: int = 5
    """The default number of seeds at full size; seeds count from 1."""
    quick_seeds: int = 2


class ClaimedCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A paper's claim as a line in a figure: a value for each x."""

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
    """The name of the file, such as `store-hops`."""
    title: str
    part: str
    x: str
    """The parameter along the horizontal axis; a text makes bars of it."""
    x_label: str
    y: str | tuple[str, ...]
    """A metric, or several: each is a line of its own."""
    y_label: str
    lines: str | None = None
    """The parameter that tells lines apart."""
    labels: Mapping[Any, str] = {}
    """The labels of lines, by the value of `lines` or the name of the metric, where that is not enough."""
    panels: str | None = None
    """The parameter that tells panels apart, side by side."""
    where: Parameters = {}
    log_x: bool = False
    log_y: bool = False
    drawn: tuple[ClaimedCurve, ...] = ()
    fit: Fit | None = None
    says: str = ""
    """The caption, in a sentence or two, beneath the figure."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a claim."""

    ours: str
    """Our number with its spread."""
    verdict: Verdict
    why: str
    """The reason where it is not reproduced, and what would make it true; else what a reader must know."""


def verdict_of(holds: bool, in_part: bool = False) -> Verdict:
    """Return the verdict on a claim that holds, or holds in part."""
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


class PaperClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a paper, in our words."""

    id: str
    """The number of the claim, such as `A3`."""
    place: str
    """The place in the paper, such as `section 5, figure 7`."""
    says: str
    number: str
    """The paper's number, or `none given`."""
    judge: Callable[[Results], Judged]
    """The judge; it may raise NotMeasured, and then the claim counts as not run."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A paper, or a question of our own."""

    name: str
    title: str
    about: str
    """Some sentences for the report: what is run, what the paper does not say, and what was chosen instead."""
    parts: tuple[ExperimentPart, ...]
    figures: tuple[Figure, ...]
    claims: tuple[PaperClaim, ...] = ()

    def part(self, name: str) -> ExperimentPart:
        """Return a part; KeyError where there is none of this name."""
        return {part.name: part for part in self.parts}[name]

    def cells(self, scale: Scale, seeds: int | None = None) -> Iterator[Cell]:
        """Yield all cells of a size, seed after seed, so that a run that is stopped has some of everything."""
        most = seeds or max(_seeds(part, scale) for part in self.parts)
        for seed in range(1, most + 1):
            for part in self.parts:
                if seeds is None and seed > _seeds(part, scale):
                    continue
                for parameters in part.full if scale == "full" else part.quick:
                    yield Cell.of(self.name, part.name, parameters, seed)


def _seeds(part: ExperimentPart, scale: Scale) -> int:
    return part.seeds if scale == "full" else part.quick_seeds


def grid(**axes: Parameter | Iterable[Parameter]) -> tuple[dict[str, Parameter], ...]:
    """Return all combinations of the values of each parameter, the last one varying fastest."""
    found: list[dict[str, Parameter]] = [{}]
    for name, values in axes.items():
        several: Sequence[Parameter] = [values] if isinstance(values, str | int | float) else list(values)
        found = [{**each, name: value} for each in found for value in several]
    return tuple(found)
