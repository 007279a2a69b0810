"""Figures: lines of points with their spread, models fitted to them, and drawings with matplotlib as SVG and PNG.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; lines have markers too. A band is from the
least to the largest of the seeds. A paper's claim is dotted and black. A line that was never measured, but follows
from a fitted model, is dashed, thinner, and called an extrapolation.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from textwrap import fill
from typing import Any, Final

import msgspec

from meetpoint.errors import SetupError
from meetpoint.lab.experiments.experiment import Figure, Fit, NotMeasured, Parameter, Results, SeedSpread

# -- fitted models -----------------------------------------------------------------------------------------------------


class FittedModel:
    """A fitted model with its two numbers."""

    def __init__(self, told: str, value: Callable[[float], float], error: float) -> None:
        self.told = told
        """The model as a formula."""
        self.value = value
        self.error = error
        """The relative distance of the farthest point from it."""


def fit_model(fit: Fit, xs: Sequence[float], ys: Sequence[float], name: str = "x") -> FittedModel | None:
    """Fit by least squares; None of fewer than three points, or where a logarithm has none."""
    if len(xs) < 3 or (fit.model != "linear" and min(xs) <= 0) or (fit.model == "power" and min(ys) <= 0):
        return None
    value: Callable[[float], float]
    if fit.model == "power":
        a, b = _line([math.log(x) for x in xs], [math.log(y) for y in ys])
        told, value = f"{math.exp(a):.3g} · {name}^{b:.2f}", partial(_power, math.exp(a), b)
    elif fit.model == "log":
        a, b = _line([math.log2(x) for x in xs], ys)
        told, value = f"{_sum(a, b)} log2 {name}", partial(_log, a, b)
    else:
        a, b = _line(xs, ys)
        told, value = f"{_sum(a, b)} {name}", partial(_linear, a, b)
    return FittedModel(
        told, value, max((abs(value(x) - y) / abs(y) for x, y in zip(xs, ys, strict=True) if y), default=0.0)
    )


def _power(a: float, b: float, x: float) -> float:
    return float(a * x**b)


def _log(a: float, b: float, x: float) -> float:
    return a + b * math.log2(x)


def _linear(a: float, b: float, x: float) -> float:
    return a + b * x


def _sum(a: float, b: float) -> str:
    return f"{a:.2f} {'+' if b >= 0 else '−'} {abs(b):.3g}"


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return mean_y - slope * mean_x, slope


# -- panels ------------------------------------------------------------------------------------------------------------


class PlotLine(msgspec.Struct, frozen=True):
    """A line: its label, and a spread for each x."""

    label: str
    points: tuple[tuple[Parameter, SeedSpread], ...]


class Panel(msgspec.Struct, frozen=True):
    """A picture of a figure."""

    name: str
    """The name of its file."""
    title: str
    lines: tuple[PlotLine, ...]

    @property
    def xs(self) -> list[Parameter]:
        """All x values of any line, sorted."""
        found = {x for line in self.lines for x, _ in line.points}
        return sorted(found, key=lambda x: (isinstance(x, str), x))

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds of a point."""
        counts = [spread.seeds for line in self.lines for _, spread in line.points]
        return min(counts), max(counts)


def panels_of(figure: Figure, results: Results) -> list[Panel]:
    """Return the pictures of a figure; NotMeasured where there is nothing to draw."""
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


def _lines(figure: Figure, results: Results, where: dict[str, Parameter]) -> Iterator[PlotLine]:
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
            yield PlotLine(label, points)


def _label(figure: Figure, metric: str | None, value: Parameter | None) -> str:
    named = [str(figure.labels.get(each, each)).replace("_", " ") for each in (value, metric) if each is not None]
    return ", ".join(named)


# -- drawing -----------------------------------------------------------------------------------------------------------


COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6F00", "#555555")
MARKERS: Final = "osD^vPX*"
SIZE: Final = (5.4, 3.4)
_DPI = 160
_LEGEND_ROW = 0.17
"""The height of a legend row in inches."""
_TITLE, _LABEL = 52, 36
"""The letters in a line of a title, and of a label."""
_COLOURS = 256
"""The colours of a PNG."""
FIT_MAX: Final = 0.25
"""The largest relative error of a drawn model: beyond it the model is named and not drawn on."""
_DECADES = 300
"""The span below which an axis has more marks than powers of ten."""
_STYLE: Final = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    # Else the ids in an SVG would be random, and every report another file.
    "svg.hashsalt": "meetpoint",
    "font.family": "sans-serif",
}


def need_matplotlib() -> None:
    """Raise SetupError where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise SetupError("matplotlib is not installed, which draws; run: pip install 'meetpoint[experiments]'")


def draw(figure: Figure, panel: Panel) -> tuple[bytes, str]:
    """Draw as PNG, and as SVG that can stand in a page."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(canvas)
        axes = canvas.add_subplot()
        is_bars = any(isinstance(x, str) for x in panel.xs)
        (_bars if is_bars else _curves)(axes, figure, panel)
        axes.set_title(fill(panel.title, _TITLE))
        axes.set_xlabel(fill(figure.x_label, _TITLE))
        axes.set_ylabel(fill(figure.y_label, _LABEL))
        if figure.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        _tick(axes, figure, panel, is_bars)
        _legend(canvas, axes)
        png, svg = io.BytesIO(), io.StringIO()
        # Without date and version the same results give the same bytes.
        canvas.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    text = svg.getvalue()
    return _small(png), text[text.index("<svg") :]


def _small(png: io.BytesIO) -> bytes:
    """Reduce the picture to as few colours as it needs: a third of the bytes."""
    from PIL import Image

    small = io.BytesIO()
    Image.open(png).convert("RGB").quantize(_COLOURS, method=Image.Quantize.MEDIANCUT).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def _legend(canvas: Any, axes: Any) -> None:
    """Put the legend beneath the picture, which grows by that; none where there is only one line."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        return
    longest = max(map(len, labels))
    columns = 1 if longest > 34 else 2 if longest > 18 else 3
    rows = -(-len(labels) // columns)
    canvas.set_size_inches(SIZE[0], SIZE[1] + rows * _LEGEND_ROW)
    canvas.legend(handles, labels, loc="outside lower center", ncols=columns)


def _curves(axes: Any, figure: Figure, panel: Panel) -> None:
    if figure.log_x:
        axes.set_xscale("log", base=2 if not figure.fit else 10)
    every = [float(x) for x in panel.xs]
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        xs = [float(x) for x, _ in line.points]
        medians = [spread.median for _, spread in line.points]
        model = None if figure.fit is None else fit_model(figure.fit, xs, medians, "N")
        label = line.label or "measured"
        if model is not None and figure.fit is not None:
            if model.error <= FIT_MAX:
                _beyond(axes, model, xs[-1], figure.fit.until, colour)
                label = f"{label}; dashed: {model.told} (within {model.error:.0%})"
            else:
                label = f"{label}; not drawn on: {figure.fit.model} is {model.error:.0%} off"
        axes.plot(xs, medians, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=4, label=label, zorder=3)
        low, high = ([getattr(spread, end) for _, spread in line.points] for end in ("low", "high"))
        axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
    if figure.fit is not None and figure.fit.until > every[-1]:
        axes.axvspan(every[-1], figure.fit.until, color="#f3f3f3", zorder=0, linewidth=0)
        axes.text(0.99, 0.02, "extrapolated", transform=axes.transAxes, ha="right", color="#777777", fontsize=8)
    for number, claim in enumerate(figure.drawn):
        until = figure.fit.until if figure.fit else every[-1]
        xs = sorted({*every, *_between(every[-1], until)}) if until > every[-1] else every
        style = (":", "-.", (0, (5, 1)))[number % 3]
        # above what was measured: where it is as claimed, both are to be seen
        ys = [claim.y(x) for x in xs]
        axes.plot(xs, ys, color="black", linestyle=style, linewidth=1.2, label=claim.label, zorder=4)


def _beyond(axes: Any, model: FittedModel, begin: float, until: float, colour: str) -> None:
    xs = [begin, *_between(begin, until)]
    axes.plot(xs, [model.value(x) for x in xs], color=colour, linestyle="--", linewidth=1.0, alpha=0.8)


def _between(begin: float, until: float) -> list[float]:
    return [begin * (until / begin) ** (step / 20) for step in range(1, 21)] if until > begin > 0 else []


def _bars(axes: Any, figure: Figure, panel: Panel) -> None:
    xs = panel.xs
    width = 0.8 / len(panel.lines)
    for number, line in enumerate(panel.lines):
        found = dict(line.points)
        places = [place for place, x in enumerate(xs) if x in found]
        spreads = [found[xs[place]] for place in places]
        axes.bar(
            [place + (number - (len(panel.lines) - 1) / 2) * width for place in places],
            [spread.median for spread in spreads],
            width * 0.92,
            color=COLOURS[number % len(COLOURS)],
            label=line.label or "measured",
            yerr=_errors(spreads),
            error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#333333"},
        )
    for claim in figure.drawn:
        axes.axhline(claim.y(0.0), color="black", linestyle=":", linewidth=1.2, label=claim.label)


def _errors(spreads: list[Any]) -> list[list[float]]:
    return [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]


def _tick(axes: Any, figure: Figure, panel: Panel, is_bars: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    if is_bars:
        names = [str(figure.labels.get(x, x)) for x in panel.xs]
        is_long = sum(map(len, names)) > 50
        axes.set_xticks(range(len(names)), names, rotation=30 if is_long else 0, ha="right" if is_long else "center")
        axes.grid(axis="x", visible=False)
    elif figure.log_x and figure.fit is None:
        axes.set_xticks([float(x) for x in panel.xs])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", rotation=30 if len(panel.xs) > 7 else 0)
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    elif figure.log_x:
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    if figure.log_y:
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _DECADES else (1,)))
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _number(value: float, _place: object = None) -> str:
    if value >= 1e6 and value % 1e5 == 0:
        return f"{value / 1e6:g} million"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:g}"
