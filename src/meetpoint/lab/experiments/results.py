"""Results of cells, to be asked: which values a metric has over the seeds, for some parameters."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Parameter, Row

__all__ = ["MixedResultsError", "NotMeasured", "Results", "Spread"]


class NotMeasured(LookupError):  # noqa: N818
    """Nothing was run that would say."""


class MixedResultsError(MeetpointError):
    """What was asked for is in more than one cell of a seed: results of two sizes, or of two versions, are together."""

    def __init__(self, asked: str, seed: int, one: Mapping[str, Parameter], other: Mapping[str, Parameter]) -> None:
        names = sorted({*one, *other})
        unlike = [name for name in names if one.get(name) != other.get(name)]
        told = ", ".join(f"{name} {one.get(name, 'none')} and {other.get(name, 'none')}" for name in unlike)
        super().__init__(
            f"{asked} is in more than one cell of seed {seed} ({told}): results of --quick and of full size, or of two "
            "versions, lie in one folder; give each a folder of its own (--out, --results)"
        )


class Spread(NamedTuple):
    """Some values: the median, the least and the largest, and how many there are."""

    median: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """NotMeasured where there are none."""
        found = sorted(values)
        if not found:
            raise NotMeasured("there are no values")
        return cls(statistics.median(found), found[0], found[-1], len(found))

    def told(self, digits: int = 2, unit: str = "") -> str:
        """In words: `3.52 (3.41 to 3.60, 5 seeds)`."""
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

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(set(rows))
        self._found: dict[tuple[str, str], list[_Found]] = defaultdict(list)
        known: dict[str, Mapping[str, Parameter]] = {}
        for row in self.rows:
            parameters = known.setdefault(row.parameters, json.loads(row.parameters))
            self._found[row.part, row.metric].append(_Found(parameters, row.seed, row.value))

    def by_seed(self, part: str, metric: str, /, **where: Parameter) -> dict[int, float]:
        """One value a seed; NotMeasured where there is none, MixedResultsError where parameters leave more than one."""
        values: dict[int, _Found] = {}
        for found in self._matching(part, metric, where):
            known = values.setdefault(found.seed, found)
            if known is not found:
                raise MixedResultsError(f"{part}: {metric}", found.seed, known.parameters, found.parameters)
        if not values:
            raise NotMeasured(f"{part}: {metric} of {where} was not measured")
        return {seed: found.value for seed, found in values.items()}

    def spread(self, part: str, metric: str, /, **where: Parameter) -> Spread:
        """Over the seeds."""
        return Spread.of(self.by_seed(part, metric, **where).values())

    def ratio(self, part: str, metric: str, over: Mapping[str, Parameter], /, **where: Parameter) -> Spread:
        """Seed by seed, the metric to that of the cell whose parameters differ as `over` says."""
        ours = self.by_seed(part, metric, **where)
        theirs = self.by_seed(part, metric, **{**where, **over})
        return Spread.of(ours[seed] / theirs[seed] for seed in ours if theirs.get(seed))

    def distinct(self, part: str, parameter: str, metric: str | None = None, /, **where: Parameter) -> list[Parameter]:
        """The values that a parameter has, sorted; NotMeasured where it has none."""
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
