"""Figures with matplotlib: a panel as SVG for the page, and as PNG.

Colours are those of Okabe and Ito, which people tell apart who see few of them; lines have markers too. A band is from
the least to the largest of the seeds. What a paper claims is dotted and black; what was never measured, but follows
from a fitted model, is dashed, thinner, and said to be an extrapolation.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from textwrap import fill
from typing import Any, Final

from meetpoint.errors import SetupError
from meetpoint.lab.experiments.experiment import Figure
from meetpoint.lab.experiments.report.fitting import Fitted, fitted
from meetpoint.lab.experiments.report.plotting import Panel

__all__ = ["draw", "need_matplotlib"]

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6F00", "#555555")
MARKERS: Final = "osD^vPX*"
SIZE: Final = (5.4, 3.4)
_DPI = 160
_LEGEND_ROW = 0.17
"""Inches."""
_TITLE, _LABEL = 52, 36
"""Letters in a line."""
_COLOURS = 256
"""Of a PNG."""
FIT_MAX: Final = 0.25
"""A model that is farther from some point, in parts of it, is told and not drawn on: it would say nothing."""
_DECADES = 300
"""Axes that go less far have more marks than powers of ten."""
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
    "svg.hashsalt": "meetpoint",
    "font.family": "sans-serif",
}


def need_matplotlib() -> None:
    """SetupError where it is not installed."""
    if find_spec("matplotlib") is None:
        raise SetupError("matplotlib is not installed, which draws; run: pip install 'meetpoint[experiments]'")


def draw(figure: Figure, panel: Panel) -> tuple[bytes, str]:
    """As PNG, and as SVG that can stand in a page."""
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
        canvas.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    text = svg.getvalue()
    return _small(png), text[text.index("<svg") :]


def _small(png: io.BytesIO) -> bytes:
    """The same picture with as few colours as it needs: a third of the bytes."""
    from PIL import Image

    small = io.BytesIO()
    Image.open(png).convert("RGB").quantize(_COLOURS, method=Image.Quantize.MEDIANCUT).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def _legend(canvas: Any, axes: Any) -> None:
    """Beneath the picture, which grows by as much as that takes; none where there is one line only."""
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
        model = None if figure.fit is None else fitted(figure.fit, xs, medians, "N")
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


def _beyond(axes: Any, model: Fitted, begin: float, until: float, colour: str) -> None:
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
