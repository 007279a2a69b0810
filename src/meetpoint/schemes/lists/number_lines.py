"""Numbers and timestamps of one attribute on the ring: the keys at which events ask, and over which constraints lie.

Where a schema says how far apart values are, only those values have keys: 8.30 < Price < 8.70 at 0.01 lies at the keys
of 39 values (paper A, section 3.1.1), or over the arc from the first to the last of them. An event between two of these
values, which its schema should have refused, asks at both, and one beyond the ends at the end; a constraint that none
of the values satisfies lies at the nearest below it. So a constraint and any value that it accepts meet, whether the
value is as declared or not. What lies at a key is the part of the constraint that matters there, so that most of a
range stays as it is when its ends move.

- By the plain hash each value is anywhere. A range of many values, or of values that nobody can count, lies over the
  whole ring: once at every node, which is less than once for every value.
- By an order-preserving hash (section 4.1) a range is an arc. `next_point` leads from node to node along it; where
  nodes outnumber values it skips those that have none (the "small domain problem", section 4.3).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias, cast

from meetpoint.api.ids import Key
from meetpoint.language.filters.constraints import Constraint, NumberSet, TimestampSet, both
from meetpoint.language.filters.intervals import Bound, Interval, Intervals, normalize
from meetpoint.language.schema.schema import Attribute
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import WHOLE_FLOATS, Real, Scale, measure, moment, nearest_double, step_of, whole_parts

__all__ = [
    "Grid",
    "NumberLine",
    "Ordered",
    "OrderedLine",
    "Piece",
    "PlainLine",
    "Span",
    "contains",
    "next_key",
    "whole",
]


Ordered: TypeAlias = NumberSet | TimestampSet
"""Constraints on numbers or timestamps."""
Span: TypeAlias = tuple[Key, Key]
"""The keys from the first clockwise to the second, both included: one key where they are the same."""

_CACHED_MAX = 1_024
"""Values of an attribute whose keys are remembered: to find one takes twenty times as long."""


def contains(span: Span, key: bytes) -> bool:
    """Return whether a key lies on a span."""
    low, high = span
    return low <= key <= high if low <= high else key >= low or key <= high


class Grid:
    """The values that an attribute may have: a step apart from an origin on, perhaps with ends."""

    __slots__ = ("high", "low", "origin", "step")

    def __init__(self, origin: Fraction, step: Fraction, low: Real = -math.inf, high: Real = math.inf) -> None:
        self.origin = origin
        self.step = step
        self.low = low
        self.high = high

    @staticmethod
    def of(attribute: Attribute) -> Grid | None:
        """Return the values of a declared attribute; None where they may lie anywhere."""
        step = step_of(attribute)
        if step is None:
            return None
        least = None if attribute.minimum is None else Fraction(measure(attribute.minimum))
        grid = Grid(least or Fraction(0), step, -math.inf if least is None else least)
        if attribute.maximum is not None:
            grid.high = grid.below(measure(attribute.maximum))
        return grid

    def below(self, x: Real) -> Real:
        """Return the nearest value that is x or less; beyond the ends, the end."""
        return max(self.low, min(self._down(x, False), self.high))

    def around(self, x: Real) -> tuple[Real, ...]:
        """Return the value that is x, or the two that it lies between; beyond the ends, the end."""
        low = self.below(x)
        return (low,) if low == x or not self.low <= x < self.high else (low, low + self.step)

    def within(self, interval: Interval) -> tuple[Real, Real]:
        """Return the first and the last value in an interval; where there is none, the value below it, twice."""
        low, high = _ends(interval)
        first = max(self._up(low, interval.low_open), self.low)
        last = min(self._down(high, interval.high_open), self.high)
        return (first, last) if first <= last else (self.below(low), self.below(low))

    def count(self, first: Real, last: Real) -> float:
        """Return how many values there are from one to another."""
        if isinstance(first, float) or isinstance(last, float):
            return math.inf
        return nearest_double((last - first) // self.step + 1)

    def _up(self, x: Real, beyond: bool) -> Real:
        if isinstance(x, float):
            return x
        low = self._down(x, False)
        return low + self.step if beyond or low != x else low

    def _down(self, x: Real, beyond: bool) -> Real:
        if isinstance(x, float):
            return x
        low = self.origin + whole_parts(x, self.origin, self.step) * self.step
        return low - self.step if beyond and low == x else low


def _ends(interval: Interval) -> tuple[Real, Real]:
    low = -math.inf if interval.low is None else cast(Real, interval.low)
    high = math.inf if interval.high is None else cast(Real, interval.high)
    return low, high


def _measured(constraint: Ordered) -> Intervals:
    """Return the measures of all values that a constraint accepts, of whichever class they are."""
    if isinstance(constraint, TimestampSet):
        return normalize(map(_measured_interval, constraint.intervals))
    return normalize(map(_measured_interval, (*constraint.exact, *constraint.for_floats())))


def _measured_interval(interval: Interval) -> Interval:
    low = None if interval.low is None else cast(Bound, measure(interval.low))
    high = None if interval.high is None else cast(Bound, measure(interval.high))
    return Interval(low, interval.low_open, high, interval.high_open)


# -- parts of constraints ----------------------------------------------------------------------------------------------


def _part(constraint: Ordered, low: Real, high: Real, is_open: bool) -> Ordered:
    """Return what a constraint accepts between two measures.

    All of it, where floats would see that otherwise than decimals.
    """
    part: Constraint | None
    if isinstance(constraint, TimestampSet):
        part = both(constraint, TimestampSet((_interval(moment(low), moment(high), is_open),)))
    else:
        ends = [end for interval in constraint.exact for end in (interval.low, interval.high) if end is not None]
        if constraint.doubles is not None or not all(map(_is_short, (*map(measure, ends), low, high))):
            return constraint
        part = both(constraint, NumberSet((_interval(_decimal(low), _decimal(high), is_open),)))
    assert isinstance(part, NumberSet | TimestampSet), f"{constraint} accepts nothing from {low} to {high}"
    return part


def _interval(low: Bound | None, high: Bound | None, is_open: bool) -> Interval:
    return Interval(low, is_open or low is None, high, is_open or high is None)


def _is_short(x: Real) -> bool:
    """Return whether a measure is also that of the double nearest to it."""
    return measure(nearest_double(x)) == x


def _decimal(x: Real) -> int | Decimal | None:
    """Return a short measure as a literal has it; None for an infinite one."""
    double = nearest_double(x)
    if math.isinf(double):
        return None
    return int(double) if double.is_integer() and abs(double) < WHOLE_FLOATS else Decimal(repr(double))


# -- lines -------------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A part of a constraint, and the keys over which it lies."""

    span: Span
    part: Ordered


def _neighbourhood(grid: Grid | None, first: Real, last: Real) -> tuple[Real, Real, bool]:
    """Return between which measures events ask at some values, and whether both ends are open.

    That is from the value before the first to the value after the last; beyond the ends of the line, everything.
    """
    if grid is None:
        return first, last, False
    low = -math.inf if first <= grid.low else first - grid.step
    return low, math.inf if last >= grid.high else last + grid.step, True


class NumberLine(Protocol):
    """The numbers of one attribute on the ring, by either hash."""

    def keys(self, value: object) -> tuple[Key, ...]:
        """Return where an event with a value asks: mostly one key."""

    def pieces(self, constraint: Ordered) -> tuple[Piece, ...]:
        """Return the parts of a constraint, which together are all of it, and where they lie."""

    def next_point(self, span: Span, after: bytes) -> Key | None:
        """Return the first key on a span, after a key of it, at which an event may ask; None where there is none."""


class PlainLine:
    """A line by the plain hash."""

    def __init__(self, ring: Ring, attribute: str, grid: Grid | None, points_max: int) -> None:
        self._ring = ring
        self._attribute = attribute
        self._grid = grid
        self._points_max = points_max
        self.keys = lru_cache(_CACHED_MAX, typed=True)(self._keys)

    def _keys(self, value: object) -> tuple[Key, ...]:
        x = measure(value)
        if self._grid is None:
            return (self._hash(x),)
        return tuple([self._hash(value) for value in self._grid.around(x)])

    def pieces(self, constraint: Ordered) -> tuple[Piece, ...]:
        """Return a piece for each value; one over the whole ring where they are many."""
        points = self._points(_measured(constraint))
        if points is None:
            return (Piece(whole(self._ring), constraint),)
        return tuple(dict.fromkeys(self._piece(constraint, x) for x in points))

    def _piece(self, constraint: Ordered, x: Real) -> Piece:
        key = self._hash(x)
        return Piece((key, key), _part(constraint, *_neighbourhood(self._grid, x, x)))

    def _points(self, intervals: Intervals) -> list[Real] | None:
        """Return the values in some intervals; None where there are too many."""
        points: list[Real] = []
        for interval in intervals:
            first, last = _ends(interval) if self._grid is None else self._grid.within(interval)
            count = 1 if first == last else math.inf if self._grid is None else self._grid.count(first, last)
            if len(points) + count > self._points_max:
                return None
            points.append(first)
            if self._grid is not None:
                points += [first + self._grid.step * at for at in range(1, int(count))]
        return points

    def next_point(self, span: Span, after: bytes) -> Key | None:
        """Return the very next key, as values may lie anywhere."""
        return next_key(self._ring, span, after)

    def _hash(self, x: Real) -> Key:
        text = str(x) if isinstance(x, float) else f"{x.numerator:x}/{x.denominator:x}"
        return self._ring.hash(f"{self._attribute}\0{text}".encode())


class OrderedLine:
    """A line by an order-preserving hash."""

    def __init__(self, ring: Ring, attribute: str, grid: Grid | None, scale: Scale, spans_max: int) -> None:
        self._ring = ring
        self._grid = grid
        self._scale = scale
        self._spans_max = spans_max
        self._start = ring.number(ring.hash(attribute.encode()))
        self.keys = lru_cache(_CACHED_MAX, typed=True)(self._keys)

    def _keys(self, value: object) -> tuple[Key, ...]:
        x = measure(value)
        if self._grid is None:
            return (self._key(self._offset(x)),)
        return tuple([self._key(offset) for offset in dict.fromkeys(map(self._offset, self._grid.around(x)))])

    def pieces(self, constraint: Ordered) -> tuple[Piece, ...]:
        """Return a piece for each interval, those that touch on the ring as one; one for all where they are many."""
        runs: list[tuple[Real, Real]] = []
        for interval in _measured(constraint):
            first, last = _ends(interval) if self._grid is None else self._grid.within(interval)
            if runs and self._offset(first) <= self._offset(runs[-1][1]) + 1:
                first = runs.pop()[0]
            runs.append((first, last))
        if len(runs) > self._spans_max:
            runs = [(runs[0][0], runs[-1][1])]
        if len(runs) == 1:
            return (Piece(self._span(*runs[0]), constraint),)
        return tuple(Piece(self._span(*run), _part(constraint, *_neighbourhood(self._grid, *run))) for run in runs)

    def _span(self, first: Real, last: Real) -> Span:
        return self._key(self._offset(first)), self._key(self._offset(last))

    def next_point(self, span: Span, after: bytes) -> Key | None:
        """Return the key of the next value; the very next key where values may lie anywhere."""
        following = next_key(self._ring, span, after)
        grid = self._grid
        if following is None or grid is None or isinstance(grid.low, float) or isinstance(grid.high, float):
            return following
        wanted = (self._ring.number(following) - self._start) % self._ring.size
        low, high = 0, int((grid.high - grid.low) // grid.step)
        if self._offset(grid.high) < wanted:
            return None
        while low < high:
            middle = (low + high) // 2
            if self._offset(grid.low + grid.step * middle) < wanted:
                low = middle + 1
            else:
                high = middle
        key = self._key(self._offset(grid.low + grid.step * low))
        return key if contains(span, key) else None

    def _offset(self, x: Real) -> int:
        return self._scale.offset(x, self._ring.size)

    def _key(self, offset: int) -> Key:
        return self._ring.key(self._start + offset)


def whole(ring: Ring) -> Span:
    """Return the whole ring."""
    return ring.key(0), ring.key(-1)


def next_key(ring: Ring, span: Span, after: bytes) -> Key | None:
    """Return the key of a span that follows a key of it; None after the last, and after a key outside of the span."""
    low, high = span
    return ring.add(after, 1) if ring.distance(low, after) < ring.distance(low, high) else None
