"""A normal form over Arrow columns: whole columns at a time, and only the rows that are still in question.

`Columns` holds one batch of events. Each attribute is prepared once (numbers and timestamps as NumPy arrays, strings as
codes into a dictionary), however many filters then ask for it; a constraint on strings is decided once per distinct
string. Everything is exact: bounds are brought to the column's own type and rounded to the side that keeps the answer.
Columns whose type no attribute has (a list, a date) are only ever present or absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf, nextafter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import EventError
from meetpoint.language.constraints import (
    Absent,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    accepts,
)
from meetpoint.language.filters import Filter
from meetpoint.language.intervals import Bound, Interval, Intervals
from meetpoint.language.like import Pattern, PatternSort
from meetpoint.language.names import find, split_name
from meetpoint.language.normal import Conjunction
from meetpoint.language.patterns import prefix_interval
from meetpoint.language.values import Kind, kind_of

__all__ = ["Columns", "Rows"]

Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Array: TypeAlias = "np.ndarray[Any, Any]"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WORD = (-(2**63), 2**63 - 1)
_WORD_DIGITS = 18
"""Digits of a decimal column that surely fit 64 bits."""


class Columns(ABC):
    """One batch of events as columns, ready to be asked by many filters."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._prepared: dict[str, _Column] = {}
        self._all = np.arange(length, dtype=np.int64)

    @staticmethod
    def of_batch(batch: pa.RecordBatch) -> Columns:
        """The columns of an Arrow batch; nested objects are structs."""
        return _ArrowColumns(batch)

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, object]]) -> Columns:
        """The columns of clean attributes, which may hold values of different kinds under one name."""
        return _RowColumns(rows)

    @abstractmethod
    def row(self, number: int) -> Mapping[str, object]:
        """The attributes of one event."""

    @abstractmethod
    def rows(self) -> Sequence[Mapping[str, object]]:
        """The attributes of all events."""

    @abstractmethod
    def values(self, name: str) -> Sequence[object]:
        """The values of one attribute, event by event."""

    @abstractmethod
    def _prepare(self, name: str) -> _Column: ...

    def __len__(self) -> int:
        return self._length

    def accepted(self, filter_: Filter) -> Rows:
        """The numbers of the rows that a filter accepts, in order."""
        found = [self.accepted_by(conjunction) for conjunction in filter_.conjunctions]
        if not found:
            return self._all[:0]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def accepted_by(self, conjunction: Conjunction) -> Rows:
        """The same for one conjunction."""
        rows: Rows | None = None
        for name, constraint in sorted(conjunction.constraints, key=_cost):
            rows = self.column(name).select(constraint, rows)
            if not len(rows):
                break
        return self._all if rows is None else rows

    def mask(self, name: str, constraint: Constraint) -> Mask:
        """Which rows satisfy one constraint."""
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[self.column(name).select(constraint, None)] = True
        return mask

    def of_other_kinds(self, name: str, kind: Kind) -> int:
        """How many events hold a value under a name that is not of a kind, so that a constraint of it is NULL."""
        column = self.column(name)
        return int(column.valid.sum()) - column.count(kind)

    def instants(self, name: str) -> tuple[Array, Mask] | None:
        """Timestamps as microseconds since 1970, and where there are any; None where the attribute holds none."""
        column = self.column(name)
        return (column.line, column.valid) if isinstance(column, _LineColumn) and column.kind is TimestampSet else None

    def column(self, name: str) -> _Column:
        """The prepared column of an attribute by its canonical name."""
        prepared = self._prepared.get(name)
        if prepared is None:
            prepared = self._prepared[name] = self._prepare(name)
        return prepared


def _cost(named: tuple[str, Constraint]) -> int:
    """Constraints that are quick to decide and leave few rows come first."""
    match named[1]:
        case TextSet(intervals, like=(), unlike=()) if all(i.is_point for i in intervals):
            return 0
        case TextSet(like=(), unlike=()) | NumberSet() | TimestampSet():
            return 1
        case TextSet():
            return 2
    return 3  # presence, absence and booleans leave many


class _ArrowColumns(Columns):
    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__(batch.num_rows)
        self._batch = batch

    def row(self, number: int) -> Mapping[str, object]:
        row: Mapping[str, object] = self._batch.slice(number, 1).to_pylist()[0]
        return row

    def rows(self) -> Sequence[Mapping[str, object]]:
        rows: Sequence[Mapping[str, object]] = self._batch.to_pylist()
        return rows

    def values(self, name: str) -> Sequence[object]:
        array = _find_array(self._batch, name)
        values: Sequence[object] = [None] * len(self) if array is None else array.to_pylist()
        return values

    def _prepare(self, name: str) -> _Column:
        return _of_array(name, _find_array(self._batch, name), len(self))


class _RowColumns(Columns):
    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        super().__init__(len(rows))
        self._rows = rows

    def row(self, number: int) -> Mapping[str, object]:
        return self._rows[number]

    def rows(self) -> Sequence[Mapping[str, object]]:
        return self._rows

    def values(self, name: str) -> Sequence[object]:
        path = split_name(name)
        return [find(row, path) for row in self._rows]

    def _prepare(self, name: str) -> _Column:
        return _of_values(self.values(name))


class _Column:
    """A column whose values satisfy no constraint of any kind: they are there or not."""

    def __init__(self, valid: Mask) -> None:
        self.valid = valid
        self._valid_rows: Rows = np.flatnonzero(valid)

    def select(self, constraint: Constraint, rows: Rows | None) -> Rows:
        """Of the given rows (None: all), those that satisfy a constraint."""
        if isinstance(constraint, Absent):
            return np.flatnonzero(~self.valid) if rows is None else rows[~self.valid[rows]]
        valid = self._valid_rows if rows is None else rows[self.valid[rows]]
        if isinstance(constraint, Present):
            return valid
        return self._satisfying(constraint, valid)

    def count(self, kind: Kind) -> int:
        """How many values are of a kind."""
        return 0

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        return rows[:0]


class _LineColumn(_Column):
    """Numbers or timestamps as an array on which intervals are compared."""

    def __init__(self, valid: Mask, values: Array, kind: type, view: Callable[[Any], Iterator[_Range]]) -> None:
        super().__init__(valid)
        self.line = values
        self.kind = kind
        self._view = view

    def count(self, kind: Kind) -> int:
        return len(self._valid_rows) if kind is (Kind.NUMBER if self.kind is NumberSet else Kind.TIMESTAMP) else 0

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
"""The least value and the greatest, None where unbounded."""


class _CodedColumn(_Column):
    """Values as codes into their distinct values, for which each constraint is decided once.

    Rows are also kept in the order of their codes, so that a constraint that accepts few values finds their rows at
    once, without looking at the others.
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
        wanted = self._wanted(constraint)
        return rows[wanted[self._codes[rows]]] if wanted.any() else rows[:0]

    def _wanted(self, constraint: Constraint) -> Mask:
        """Which of the distinct values satisfy a constraint."""
        return np.fromiter((accepts(constraint, v) for v in self.distinct), np.bool_, count=len(self.distinct))


_FEW_CODES = 16


class _TextColumn(_CodedColumn):
    """Strings; the distinct ones are in order, so that an interval, a prefix or a suffix is a stretch of them."""

    def __init__(self, valid: Mask, codes: Array, distinct: list[str]) -> None:
        super().__init__(valid, codes, distinct)
        self._backwards: tuple[list[str], Array] | None = None

    def _wanted(self, constraint: Constraint) -> Mask:
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
        for pattern in constraint.like:
            wanted &= self._fitting(pattern, wanted)
        for pattern in constraint.unlike:
            wanted &= ~self._fitting(pattern, wanted)
        return wanted

    def _fitting(self, pattern: Pattern, among: Mask) -> Mask:
        """Which distinct strings fit a pattern, as far as they are `among` those asked."""
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


def _ordered_texts(valid: Mask, codes: Array, distinct: list[str]) -> _TextColumn:
    """A column of strings whose distinct values are not in order yet."""
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    place = np.zeros(max(len(distinct), 1), dtype=np.int64)
    place[order] = np.arange(len(order))
    return _TextColumn(valid, place[codes], [distinct[code] for code in order])


class _MixedColumn(_Column):
    """Values of several classes, each class a column of its own with the others absent."""

    def __init__(self, valid: Mask, parts: list[_Column]) -> None:
        super().__init__(valid)
        self._parts = parts

    def count(self, kind: Kind) -> int:
        return sum(part.count(kind) for part in self._parts)

    def _satisfying(self, constraint: Constraint, rows: Rows) -> Rows:
        return np.sort(np.concatenate([rows[:0], *(part.select(constraint, rows) for part in self._parts)]))


# -- preparation from rows ---------------------------------------------------------------------------------------------


def _of_values(values: Sequence[object]) -> _Column:
    classes = [type(value) for value in values]
    parts = []
    for cls in sorted({*classes} - {type(None)}, key=lambda c: c.__name__):
        mask = np.fromiter((c is cls for c in classes), dtype=np.bool_, count=len(classes))
        part = _of_class(cls, [value if held else None for value, held in zip(values, mask, strict=True)], mask)
        if part is not None:
            parts.append(part)
    valid = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
    return parts[0] if len(parts) == 1 and parts[0].valid.sum() == valid.sum() else _MixedColumn(valid, parts)


def _of_class(cls: type, values: list[Any], valid: Mask) -> _Column | None:
    if cls is float:
        return _LineColumn(valid, np.array([0.0 if v is None else v for v in values]), NumberSet, _floats)
    if cls is int and all(v is None or -(2**63) <= v < 2**63 for v in values):
        whole = np.array([0 if v is None else v for v in values], dtype=np.int64)
        return _LineColumn(valid, whole, NumberSet, lambda c: _whole(c.exact, Fraction(1), *_WORD))
    if cls is datetime:
        micros = np.array(
            [0 if v is None else (v - _EPOCH) // timedelta(microseconds=1) for v in values], dtype=np.int64
        )
        return _LineColumn(valid, micros, TimestampSet, lambda c: _whole(_as_micros(c.intervals), Fraction(1), *_WORD))
    if cls in (int, str, bool, Decimal):
        code_of: dict[object, int] = {}
        codes = np.array([0 if v is None else code_of.setdefault(v, len(code_of)) for v in values], dtype=np.int64)
        return _ordered_texts(valid, codes, list(code_of)) if cls is str else _CodedColumn(valid, codes, list(code_of))  # type: ignore[arg-type]
    return None  # a nested object: there, and of no kind


# -- preparation from Arrow --------------------------------------------------------------------------------------------


def _find_array(batch: pa.RecordBatch, name: str) -> Any:
    head, *rest = split_name(name)
    at = batch.schema.get_all_field_indices(head)
    if not at:
        return None
    if len(at) > 1:
        raise EventError(f"events: column {head} occurs {len(at)} times; rename or drop all but one")
    array = batch.column(at[0])
    for segment in rest:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(segment) < 0:
            return None
        array = pc.struct_field(array, segment)
    return array


def _of_array(name: str, array: Any, length: int) -> _Column:
    if array is None:
        return _Column(np.zeros(length, dtype=np.bool_))
    if isinstance(array.type, pa.DictionaryType):
        array = array.dictionary_decode()
    valid = np.asarray(array.is_valid())
    type_ = array.type
    if pa.types.is_boolean(type_):
        return _CodedColumn(valid, np.asarray(array.fill_null(False)).astype(np.int8), [False, True])
    if pa.types.is_integer(type_):
        values = np.asarray(array.fill_null(0))
        bounds = np.iinfo(values.dtype)
        return _LineColumn(valid, values, NumberSet, lambda c: _whole(c.exact, Fraction(1), bounds.min, bounds.max))
    if pa.types.is_floating(type_):
        return _LineColumn(valid, np.asarray(pc.cast(array, pa.float64()).fill_null(0.0)), NumberSet, _floats)
    if pa.types.is_decimal(type_):
        return _decimals(array, valid)
    if pa.types.is_timestamp(type_):
        return _timestamps(name, array, valid)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        encoded = pc.cast(array, pa.string()).dictionary_encode()
        return _ordered_texts(valid, np.asarray(encoded.indices.fill_null(0)), encoded.dictionary.to_pylist())
    return _Column(valid)


def _decimals(array: Any, valid: Mask) -> _Column:
    type_ = array.type
    if not pa.types.is_decimal128(type_) or type_.precision > _WORD_DIGITS or type_.scale < 0:
        encoded = array.dictionary_encode()
        return _CodedColumn(valid, np.asarray(encoded.indices.fill_null(0)), encoded.dictionary.to_pylist())
    words = np.frombuffer(array.buffers()[1], dtype="<i8") if len(array) else np.zeros(0, dtype="<i8")
    values = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]  # the low halves: the high ones are sign
    unit = Fraction(1, 10**type_.scale)
    return _LineColumn(valid, values, NumberSet, lambda c: _whole(c.exact, unit, *_WORD))


def _timestamps(name: str, array: Any, valid: Mask) -> _Column:
    try:
        micros = pc.cast(array, pa.timestamp("us", tz=array.type.tz))
    except pa.ArrowInvalid:
        raise EventError(
            f"events: column {name} has timestamps finer than a microsecond; round them to microseconds"
        ) from None
    values = np.asarray(micros.cast(pa.int64()).fill_null(0))
    return _LineColumn(valid, values, TimestampSet, lambda c: _whole(_as_micros(c.intervals), Fraction(1), *_WORD))


def _as_micros(intervals: Intervals) -> Intervals:
    def micros(bound: Bound | None) -> int | None:
        return (bound - _EPOCH) // timedelta(microseconds=1) if isinstance(bound, datetime) else None

    return tuple(Interval(micros(i.low), i.low_open, micros(i.high), i.high_open) for i in intervals)


def _whole(intervals: Intervals, unit: Fraction, least: int, greatest: int) -> Iterator[_Range]:
    """Intervals as ranges of whole multiples of a unit, within the column's own type."""
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


def _floats(constraint: NumberSet) -> Iterator[_Range]:
    """Intervals as closed ranges of doubles."""
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
