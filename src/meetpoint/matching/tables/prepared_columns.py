"""Prepared columns: the values of one attribute, in a form on which constraints are decided whole columns at a time.

Numbers and timestamps are NumPy arrays, strings are codes into a dictionary; a constraint on strings is decided once
per distinct string. Everything is exact: bounds are brought to the column's own type and rounded to the side that keeps
the answer. Columns whose type no attribute has (a list, a date) are only ever present or absent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf, nextafter
from typing import Any, TypeAlias

import numpy as np

from meetpoint.language.filters.constraints import (
    Absent,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    accepts,
)
from meetpoint.language.filters.intervals import Bound, Interval, Intervals
from meetpoint.language.filters.like import Pattern, PatternSort, prefix_interval
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.language.values import Kind, kind_of

__all__ = [
    "WORD",
    "Array",
    "CodedColumn",
    "LineColumn",
    "Mask",
    "PreparedColumn",
    "Rows",
    "float_ranges",
    "instant_column",
    "of_values",
    "ordered_texts",
    "whole",
]

Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Array: TypeAlias = "np.ndarray[Any, Any]"

WORD = (-(2**63), 2**63 - 1)


class PreparedColumn:
    """A column whose values satisfy no constraint of any kind: they are present or absent."""

    def __init__(self, valid: Mask) -> None:
        self.valid = valid
        self._valid_rows: Rows = np.flatnonzero(valid)

    def select(self, constraint: Constraint, rows: Rows | None) -> Rows:
        """Return those of the given rows (None: all) that satisfy a constraint."""
        if isinstance(constraint, Absent):
            return np.flatnonzero(~self.valid) if rows is None else rows[~self.valid[rows]]
        valid = self._valid_rows if rows is None else rows[self.valid[rows]]
        if isinstance(constraint, Present):
            return valid
        return self._satisfying(constraint, valid)

    def count(self, kind: Kind) -> int:
        """Return how many values are of a kind."""
        return 0

    def instants(self) -> tuple[Array, Mask] | None:
        """Return timestamps as microseconds since 1970, and a mask of them; None if the column holds none."""
        return None

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        return rows[:0]


class LineColumn(PreparedColumn):
    """Numbers or timestamps as an array on which intervals are compared."""

    def __init__(self, valid: Mask, values: Array, kind: type, view: Callable[[Any], Iterator[_Range]]) -> None:
        super().__init__(valid)
        self.line = values
        self.kind = kind
        self._view = view

    def count(self, kind: Kind) -> int:
        return len(self._valid_rows) if kind is (Kind.NUMBER if self.kind is NumberSet else Kind.TIMESTAMP) else 0

    def instants(self) -> tuple[Array, Mask] | None:
        return (self.line, self.valid) if self.kind is TimestampSet else None

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        if type(constraint) is not self.kind:
            return rows[:0]
        values = self.line[rows]
        mask = np.zeros(len(rows), dtype=np.bool_)
        for low, high in self._view(constraint):
            inside = np.ones(len(rows), dtype=np.bool_)
            if low is not None:
                inside &= ~(values < low)  # NaN is the largest number: below nothing, and at most nothing
            if high is not None:
                inside &= values <= high
            mask |= inside
        return rows[mask]


_Range: TypeAlias = "tuple[Any, Any]"
"""A range: its least and its greatest value, None if unbounded."""


class CodedColumn(PreparedColumn):
    """Values as codes into their distinct values, for which each constraint is decided once.

    Rows are also kept in the order of their codes, so that a constraint that accepts few values finds their rows at
    once, without a look at the others.
    """

    def __init__(self, valid: Mask, codes: Array, distinct: list[Any]) -> None:
        super().__init__(valid)
        self.distinct = distinct
        self._codes = codes
        by_code = self._valid_rows[np.argsort(codes[self._valid_rows], kind="stable")]
        self._by_code = by_code
        self._starts = np.searchsorted(codes[by_code], np.arange(len(distinct) + 1))

    def count(self, kind: Kind) -> int:
        return len(self._valid_rows) if self.distinct and kind_of(self.distinct[0]) is kind else 0

    def select(self, constraint: Constraint, rows: Rows | None) -> Rows:
        if rows is not None or isinstance(constraint, Absent | Present):
            return super().select(constraint, rows)
        wanted = np.flatnonzero(self._wanted(constraint))
        if len(wanted) > _FEW_CODES:
            return super().select(constraint, None)
        found = [self._by_code[self._starts[code] : self._starts[code + 1]] for code in wanted]
        return found[0] if len(found) == 1 else np.sort(np.concatenate([self._valid_rows[:0], *found]))

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        codes = self._codes[rows]
        asked = None
        if len(rows) < len(self.distinct):
            asked = np.zeros(len(self.distinct), dtype=np.bool_)
            asked[codes] = True
        wanted = self._wanted(constraint, asked)
        return rows[wanted[codes]] if wanted.any() else rows[:0]

    def _wanted(self, constraint: Constraint, asked: Mask | None = None) -> Mask:
        """Return which of the distinct values, or of those asked for, satisfy a constraint."""
        wanted = np.ones(len(self.distinct), dtype=np.bool_) if asked is None else asked
        wanted[wanted] = [accepts(constraint, self.distinct[code]) for code in np.flatnonzero(wanted)]
        return wanted


_FEW_CODES = 16
"""Distinct values whose rows are gathered code by code; for more of them one mask over all rows is quicker."""


class TextColumn(CodedColumn):
    """Strings, the distinct ones in order, so that an interval, a prefix or a suffix is a stretch of them."""

    def __init__(self, valid: Mask, codes: Array, distinct: list[str]) -> None:
        super().__init__(valid, codes, distinct)
        self._backwards: tuple[list[str], Array] | None = None

    def _wanted(self, constraint: Constraint, asked: Mask | None = None) -> Mask:
        wanted = np.zeros(len(self.distinct), dtype=np.bool_)
        if not isinstance(constraint, TextSet):
            return wanted
        for interval in constraint.intervals:
            low, high = str(interval.low), interval.high
            begin = (bisect_right if interval.low_open else bisect_left)(self.distinct, low)
            end = len(self.distinct)
            if isinstance(high, str):
                end = (bisect_left if interval.high_open else bisect_right)(self.distinct, high)
            wanted[begin:end] = True
        if asked is not None:
            wanted &= asked
        for pattern in constraint.like:
            wanted &= self._fitting(pattern, wanted)
        for pattern in constraint.unlike:
            wanted &= ~self._fitting(pattern, wanted)
        return wanted

    def _fitting(self, pattern: Pattern, among: Mask) -> Mask:
        """Return which of the distinct strings `among` those asked for fit a pattern."""
        fitting = np.zeros(len(self.distinct), dtype=np.bool_)
        sort = pattern.sort
        if sort is PatternSort.PREFIX:
            (interval,) = prefix_interval(pattern.pieces[0])
            end = len(self.distinct) if interval.high is None else bisect_left(self.distinct, interval.high)
            fitting[bisect_left(self.distinct, interval.low) : end] = True
        elif sort is PatternSort.SUFFIX:
            texts, codes = self._reversed()
            (interval,) = prefix_interval(pattern.pieces[1][::-1])
            end = len(texts) if interval.high is None else bisect_left(texts, str(interval.high))
            fitting[codes[bisect_left(texts, str(interval.low)) : end]] = True
        else:
            asked = np.flatnonzero(among)
            fitting[asked] = [pattern.matches(self.distinct[code]) for code in asked]
        return fitting

    def _reversed(self) -> tuple[list[str], Array]:
        if self._backwards is None:
            pairs = sorted((text[::-1], code) for code, text in enumerate(self.distinct))
            self._backwards = [text for text, _ in pairs], np.array([code for _, code in pairs], dtype=np.int64)
        return self._backwards


def ordered_texts(valid: Mask, codes: Array, distinct: list[str]) -> TextColumn:
    """Return a column of strings whose distinct values are not in order yet."""
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    place = np.zeros(max(len(distinct), 1), dtype=np.int64)
    place[order] = np.arange(len(order))
    return TextColumn(valid, place[codes], [distinct[code] for code in order])


class MixedColumn(PreparedColumn):
    """Values of several classes: a column for each class, with the other classes absent."""

    def __init__(self, valid: Mask, parts: list[PreparedColumn]) -> None:
        super().__init__(valid)
        self._parts = parts

    def count(self, kind: Kind) -> int:
        return sum(part.count(kind) for part in self._parts)

    def instants(self) -> tuple[Array, Mask] | None:
        return next((found for part in self._parts if (found := part.instants()) is not None), None)

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        return np.sort(np.concatenate([rows[:0], *(part.select(constraint, rows) for part in self._parts)]))


# -- preparation from rows ---------------------------------------------------------------------------------------------


def of_values(values: Sequence[object]) -> PreparedColumn:
    classes = [type(value) for value in values]
    parts = []
    for cls in sorted({*classes} - {type(None)}, key=lambda c: c.__name__):
        mask = np.fromiter((c is cls for c in classes), dtype=np.bool_, count=len(classes))
        part = _of_class(cls, [value if held else None for value, held in zip(values, mask, strict=True)], mask)
        if part is not None:
            parts.append(part)
    valid = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
    return parts[0] if len(parts) == 1 and parts[0].valid.sum() == valid.sum() else MixedColumn(valid, parts)


def _of_class(cls: type, values: list[Any], valid: Mask) -> PreparedColumn | None:
    if cls is float:
        return LineColumn(valid, np.array([0.0 if v is None else v for v in values]), NumberSet, float_ranges)
    if cls is int and all(v is None or -(2**63) <= v < 2**63 for v in values):
        numbers = np.array([0 if v is None else v for v in values], dtype=np.int64)
        return LineColumn(valid, numbers, NumberSet, lambda c: whole(c.exact, Fraction(1), *WORD))
    if cls is datetime:
        micros = [0 if v is None else (v - EPOCH) // MICROSECOND for v in values]
        return instant_column(valid, np.array(micros, dtype=np.int64))
    if cls in (int, str, bool, Decimal):
        code_of: dict[object, int] = {}
        codes = np.array([0 if v is None else code_of.setdefault(v, len(code_of)) for v in values], dtype=np.int64)
        return ordered_texts(valid, codes, list(code_of)) if cls is str else CodedColumn(valid, codes, list(code_of))  # type: ignore[arg-type]
    return None  # a nested object: there, and of no kind


# -- ranges ----------------------------------------------------------------------------------------------------------


def instant_column(valid: Mask, micros: Array) -> LineColumn:
    """Return a column of timestamps, given as microseconds since 1970."""
    return LineColumn(valid, micros, TimestampSet, lambda c: whole(_as_micros(c.intervals), Fraction(1), *WORD))


def _as_micros(intervals: Intervals) -> Intervals:
    def micros(bound: Bound | None) -> int | None:
        return (bound - EPOCH) // MICROSECOND if isinstance(bound, datetime) else None

    return tuple(Interval(micros(i.low), i.low_open, micros(i.high), i.high_open) for i in intervals)


def whole(intervals: Intervals, unit: Fraction, least: int, greatest: int) -> Iterator[_Range]:
    """Yield intervals as ranges of whole multiples of a unit, within the column's own type."""
    for interval in intervals:
        low: int | None = None
        high: int | None = None
        if interval.low is not None:
            steps = _fraction(interval.low) / unit
            low = floor(steps) + 1 if interval.low_open else ceil(steps)
            if low > greatest:
                continue
            low = None if low <= least else low
        if interval.high is not None:
            steps = _fraction(interval.high) / unit
            high = ceil(steps) - 1 if interval.high_open else floor(steps)
            if high < least:
                continue
            high = None if high >= greatest else high
        if low is None or high is None or low <= high:
            yield low, high


def _fraction(bound: Bound) -> Fraction:
    assert isinstance(bound, int | Decimal)
    return Fraction(bound)


def float_ranges(constraint: NumberSet) -> Iterator[_Range]:
    """Yield intervals as closed ranges of doubles."""
    for interval in constraint.for_floats():
        low = high = None
        if interval.low is not None:
            low = _double(interval.low)
            low = nextafter(low, inf) if interval.low_open else low
        if interval.high is not None:
            high = _double(interval.high)
            high = nextafter(high, -inf) if interval.high_open else high
        yield low, high


def _double(bound: Bound) -> float:
    assert isinstance(bound, float)
    return bound
