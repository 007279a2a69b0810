"""Sets of values on an ordered line, as sorted tuples of disjoint intervals that do not touch.

The same few operations serve numbers, timestamps and strings: they need only that the bounds of one set compare. An end
of None is unbounded. A value v has two *cuts*, one just before and one just after it; an interval runs from one cut to
a later one, and all comparisons below are of cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

import msgspec

__all__ = [
    "EVERYTHING",
    "Bound",
    "Interval",
    "Intervals",
    "begins_later",
    "complement",
    "contains",
    "ends_sooner",
    "intersect",
    "normalize",
    "point",
    "union",
]

Bound: TypeAlias = int | float | Decimal | str | datetime


class Interval(msgspec.Struct, frozen=True, gc=False):
    """An interval from `low` to `high`, each end included unless open; None is unbounded."""

    low: Bound | None
    low_open: bool
    high: Bound | None
    high_open: bool

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high


Intervals: TypeAlias = tuple[Interval, ...]

EVERYTHING: Intervals = (Interval(None, True, None, True),)


def point(value: Bound) -> Interval:
    """Return the interval that holds one value."""
    return Interval(value, False, value, False)


def begins_later(a: Interval, b: Interval) -> bool:
    """Return whether a's low cut lies strictly after b's."""
    if a.low is None or b.low is None:
        return a.low is not None and b.low is None
    if a.low == b.low:
        return a.low_open and not b.low_open
    return a.low > b.low  # type: ignore[operator]


def ends_sooner(a: Interval, b: Interval) -> bool:
    """Return whether a's high cut lies strictly before b's."""
    if a.high is None or b.high is None:
        return a.high is not None and b.high is None
    if a.high == b.high:
        return a.high_open and not b.high_open
    return a.high < b.high  # type: ignore[operator]


def _gap_between(a: Interval, b: Interval) -> bool:
    """Return whether a's high cut lies strictly before b's low cut."""
    if a.high is None or b.low is None:
        return False
    if a.high == b.low:
        return a.high_open and b.low_open
    return a.high < b.low  # type: ignore[operator]


def is_empty(interval: Interval) -> bool:
    """Return whether an interval has no value between its cuts."""
    low, high = interval.low, interval.high
    if low is None or high is None:
        return False
    if low == high:
        return interval.low_open or interval.high_open
    return low > high  # type: ignore[operator]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return the values that both sets hold."""
    if len(a) == len(b) == 1:
        both = _overlap(a[0], b[0])
        return () if is_empty(both) else (both,)
    out: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        x, y = a[i], b[j]
        both = _overlap(x, y)
        if not is_empty(both):
            out.append(both)
        if ends_sooner(x, y):
            i += 1
        else:
            j += 1
    return tuple(out)


def _overlap(x: Interval, y: Interval) -> Interval:
    later = x if begins_later(x, y) else y
    sooner = x if ends_sooner(x, y) else y
    return Interval(later.low, later.low_open, sooner.high, sooner.high_open)


def union(a: Intervals, b: Intervals) -> Intervals:
    """Return the values that either set holds."""
    return normalize((*a, *b))


def normalize(intervals: Iterable[Interval]) -> Intervals:
    """Return intervals, given in any order, as one proper set."""
    ordered = sorted((i for i in intervals if not is_empty(i)), key=_low_key)
    out: list[Interval] = []
    for interval in ordered:
        if not out or _gap_between(out[-1], interval):
            out.append(interval)
        elif ends_sooner(out[-1], interval):
            out[-1] = Interval(out[-1].low, out[-1].low_open, interval.high, interval.high_open)
    return tuple(out)


def _low_key(interval: Interval) -> tuple[object, ...]:
    return (False,) if interval.low is None else (True, interval.low, interval.low_open)


def complement(a: Intervals) -> Intervals:
    """Return the values that the set does not hold."""
    out: list[Interval] = []
    low: Bound | None = None
    low_open = True
    for interval in a:
        if interval.low is not None:
            out.append(Interval(low, low_open, interval.low, not interval.low_open))
        if interval.high is None:
            return tuple(out)
        low, low_open = interval.high, not interval.high_open
    out.append(Interval(low, low_open, None, True))
    return tuple(out)


_SCAN_MAX = 8
"""Intervals that are tried one by one; a longer set is searched by bisection."""


def contains(a: Intervals, value: Bound) -> bool:
    """Return whether a set holds a value of its own line; the caller deals with NaN."""
    if len(a) > _SCAN_MAX:
        first = 1 if a[0].low is None else 0
        at = bisect_right(a, value, lo=first, key=_low_of)
        a = a[max(at - 1, 0) : at] if at > first else a[:first]
    for interval in a:
        low, high = interval.low, interval.high
        if low is not None and (value < low or (interval.low_open and value == low)):  # type: ignore[operator]
            continue
        if high is not None and (value > high or (interval.high_open and value == high)):  # type: ignore[operator]
            continue
        return True
    return False


def _low_of(interval: Interval) -> Bound:
    assert interval.low is not None
    return interval.low
