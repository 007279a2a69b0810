"""The output of benchmarks: figures with their ranges, and whether their goals are met."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

__all__ = ["Asked", "Figure", "asked", "clock", "figure", "ratio", "tell"]


class Figure(msgspec.Struct, frozen=True):
    """A figure with its range, and the goal for it, at least or at most; of a ratio also what its two sides match."""

    name: str
    value: float
    low: float
    high: float
    unit: str
    goal: float | None = None
    at_most: bool = False
    far: float | None = None
    events_per_s: tuple[float, ...] | None = None

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def figure(name: str, values: Sequence[float], unit: str, **goal: Any) -> Figure:
    """Return the median of values, and their range."""
    return Figure(name, statistics.median(values), min(values), max(values), unit, **goal)


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], events: int = 0, **goal: Any) -> Figure:
    """Return how many times as long theirs takes as ours, over alternating rounds; for so many events each."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    one, other = statistics.median(ours), statistics.median(theirs)
    rates = (events / one, events / other) if events else None
    return Figure(name, other / one, min(each), max(each), "x", events_per_s=rates, **goal)


def clock(work: Callable[[], object]) -> float:
    """Return seconds by the clock."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Asked(msgspec.Struct, frozen=True):
    """The options of a benchmark on its command line."""

    json: bool
    quick: bool
    parts: list[str]


def asked(description: str | None, parts: Sequence[str], arguments: Sequence[str] | None) -> Asked:
    """Read the command line of a benchmark that has parts; it ends the program where it is wrong."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", metavar="PARTS", default=",".join(parts), help="some of %(default)s")
    told = parser.parse_args(arguments)
    wanted = told.only.split(",")
    if unknown := set(wanted) - set(parts):
        parser.error(f"--only {','.join(sorted(unknown))}: choose of {', '.join(parts)}")
    return Asked(told.json, told.quick, wanted)


def tell(figures: Iterable[Figure], judge: bool) -> None:
    """Print figures as they come, and how many goals are met, where there are any and sizes are large enough."""
    sys.stdout.write(f"{'':<56}{'goal':>12}{'measured':>13}{'range':>22}{'events/s':>23}\n")
    goals = []
    for one in figures:
        met = one.met if judge else None
        goals += [] if one.met is None else [one.met]
        sys.stdout.write(_line(one, met) + "\n")
        sys.stdout.flush()
    if goals:
        said = f"{sum(goals)} of {len(goals)} goals met" if judge else "sizes are too small to judge goals"
        sys.stdout.write(said + "\n")


def _line(one: Figure, met: bool | None) -> str:
    goal = "" if one.goal is None else f"{'at most' if one.at_most else ''} {_number(one.goal)}"
    spread = "" if one.low == one.high else f"{_number(one.low)} … {_number(one.high)}"
    verdict = "" if met is None else "  met" if met else "  NOT met"
    if one.far is not None and met is not None:
        verdict += f" (far goal {_number(one.far)}: {'met' if one.value >= one.far else 'not yet'})"
    sides = "" if one.events_per_s is None else " to ".join(f"{rate:,.0f}" for rate in one.events_per_s)
    return f"{one.name:<56}{goal:>12}{_number(one.value) + ' ' + one.unit:>13}{spread:>22}{sides:>23}{verdict}"


def _number(value: float) -> str:
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"
