"""Models that are fitted to what was measured, so that it can be drawn on beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from meetpoint.lab.experiments.experiment import Fit

__all__ = ["Fitted", "fitted"]


class Fitted:
    """A model with its two numbers."""

    def __init__(self, told: str, value: Callable[[float], float], error: float) -> None:
        self.told = told
        """As a formula."""
        self.value = value
        self.error = error
        """How far the farthest point is from it, as a part of the point."""


def fitted(fit: Fit, xs: Sequence[float], ys: Sequence[float], name: str = "x") -> Fitted | None:
    """By least squares; None of fewer than three points, or where a logarithm has none."""
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
    return Fitted(told, value, max((abs(value(x) - y) / abs(y) for x, y in zip(xs, ys, strict=True) if y), default=0.0))


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
