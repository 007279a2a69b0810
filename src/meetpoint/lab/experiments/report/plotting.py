"""What a figure shows, taken from results: lines of points with their spread. Drawing it is `drawing`'s."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from meetpoint.lab.experiments.cells import Parameter
from meetpoint.lab.experiments.experiment import Figure
from meetpoint.lab.experiments.results import NotMeasured, Results, Spread

__all__ = ["Line", "Panel", "panels_of"]


class Line(msgspec.Struct, frozen=True):
    """A line: what it is called, and a spread for each x."""

    label: str
    points: tuple[tuple[Parameter, Spread], ...]


class Panel(msgspec.Struct, frozen=True):
    """One picture of a figure."""

    name: str
    """Of its file."""
    title: str
    lines: tuple[Line, ...]

    @property
    def xs(self) -> list[Parameter]:
        """All that any line has, sorted."""
        found = {x for line in self.lines for x, _ in line.points}
        return sorted(found, key=lambda x: (isinstance(x, str), x))

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds of a point."""
        counts = [spread.seeds for line in self.lines for _, spread in line.points]
        return min(counts), max(counts)


def panels_of(figure: Figure, results: Results) -> list[Panel]:
    """The pictures of a figure; NotMeasured where there is nothing to be seen."""
    if figure.panels is None:
        return [_panel(figure, results, figure.name, figure.title, {})]
    panels = []
    for value in results.distinct(figure.part, figure.panels, **figure.where):
        title = f"{figure.title}: {figure.labels.get(value, f'{figure.panels} {value}')}"
        name = f"{figure.name}-{value}".replace(" ", "-")
        panels.append(_panel(figure, results, name, title, {figure.panels: value}))
    return panels


def _panel(figure: Figure, results: Results, name: str, title: str, where: dict[str, Parameter]) -> Panel:
    lines = tuple(_lines(figure, results, {**figure.where, **where}))
    if not lines:
        raise NotMeasured(f"{figure.name}: nothing of it was measured")
    return Panel(name, title, lines)


def _lines(figure: Figure, results: Results, where: dict[str, Parameter]) -> Iterator[Line]:
    metrics = (figure.y,) if isinstance(figure.y, str) else figure.y
    for metric in metrics:
        try:
            values: list[Parameter | None] = [None]
            if figure.lines is not None:
                values = [*results.distinct(figure.part, figure.lines, metric, **where)]
        except NotMeasured:
            continue
        for value in values:
            narrowed = where if figure.lines is None or value is None else {**where, figure.lines: value}
            label = _label(figure, metric if len(metrics) > 1 else None, value)
            try:
                xs = results.distinct(figure.part, figure.x, metric, **narrowed)
                points = tuple((x, results.spread(figure.part, metric, **{**narrowed, figure.x: x})) for x in xs)
            except NotMeasured:
                continue
            yield Line(label, points)


def _label(figure: Figure, metric: str | None, value: Parameter | None) -> str:
    named = [str(figure.labels.get(each, each)).replace("_", " ") for each in (value, metric) if each is not None]
    return ", ".join(named)
