"""A batch of events as columns, and filters on whole columns at a time.

`Columns` holds one batch of events. Each attribute is prepared once (numbers and timestamps as NumPy arrays, strings as
codes into a dictionary), however many filters then ask for it. A conjunction tests only the rows that its earlier
constraints left, and a constraint on strings is decided once per distinct string. Everything is exact: bounds are
brought to the column's own type and rounded to the side that keeps the answer. Columns whose type no attribute has (a
list, a date) are only ever present or absent.

A `ColumnPart` is what the index reads: the values of one attribute that are of one class, as arrays. Parts come from
Arrow columns, without a copy if the types allow it, or from plain rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.language.filters.constraints import Constraint, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name
from meetpoint.language.timestamps import EPOCH
from meetpoint.language.values import Kind
from meetpoint.matching.tables.arrow_columns import (
    WORD_DIGITS,
    find_array,
    instants_of,
    prepare,
    read_batch,
    read_values,
)
from meetpoint.matching.tables.prepared_columns import WORD, Array, Mask, PreparedColumn, Rows, of_values

__all__ = [
    "BATCH_ROWS",
    "ColumnBatch",
    "ColumnPart",
    "ColumnParts",
    "Columns",
    "PartSort",
    "Rows",
    "parts_of_batch",
    "parts_of_rows",
]


class PartSort(Enum):
    """The class of the values of a part, which says what its arrays hold."""

    FLOAT = auto()
    """Values as float64."""
    INTEGER = auto()
    """Values as int64."""
    DECIMAL = auto()
    """Values as int64: the value times ten to the `scale`."""
    EXACT = auto()
    """Python objects: ints beyond 64 bits, and Decimals."""
    TEXT = auto()
    """Bytes of UTF-8: each text lies between its `starts` and its `ends`."""
    INSTANT = auto()
    """Values as int64, microseconds since 1970."""
    BOOLEAN = auto()
    """Values as bool."""
    OTHER = auto()
    """Values as bool: present, but of no kind, such as a nested object."""


class ColumnPart(msgspec.Struct, frozen=True):
    """The values of one attribute that are of one class, for a batch of events; those not valid mean nothing."""

    sort: PartSort
    valid: np.ndarray | None
    """A bool for each event; None: every event has a value of this part."""
    values: np.ndarray
    starts: np.ndarray | None = None
    """Where each text begins in `values` (TEXT)."""
    ends: np.ndarray | None = None
    """Where each text ends (TEXT)."""
    scale: int = 0
    """Digits after the point (DECIMAL)."""


ColumnParts: TypeAlias = Mapping[str, Sequence[ColumnPart]]
"""Parts by attribute name; an attribute that no event has may be left out."""

_NO_BYTES = np.zeros(0, np.uint8)


def parts_of_batch(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Sequence[ColumnPart]]:
    """Return the parts of the named attributes of an Arrow batch; nested objects are structs."""
    parts: dict[str, Sequence[ColumnPart]] = {}
    for name in names:
        array = find_array(batch, name)
        if array is not None and array.null_count < len(array):
            parts[name] = _of_array(name, array)
    return parts


def _of_array(name: str, array: Any) -> Sequence[ColumnPart]:
    type_ = array.type
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if pa.types.is_floating(type_):
        doubles = array if type_ == pa.float64() else array.cast(pa.float64())
        return [ColumnPart(PartSort.FLOAT, valid, _numbers(doubles, np.float64))]
    if pa.types.is_integer(type_) and type_ != pa.uint64():
        return [
            ColumnPart(PartSort.INTEGER, valid, _numbers(array, type_.to_pandas_dtype()).astype(np.int64, copy=False))
        ]
    if pa.types.is_boolean(type_):
        return [ColumnPart(PartSort.BOOLEAN, valid, np.asarray(array.fill_null(False)))]
    if pa.types.is_timestamp(type_):
        return [ColumnPart(PartSort.INSTANT, valid, instants_of(split_name(name), array))]
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return [_text(array if not pa.types.is_string_view(type_) else array.cast(pa.large_string()), valid)]
    if pa.types.is_decimal(type_) and type_.precision <= WORD_DIGITS and type_.scale >= 0:
        low_words = _decimal_words(array, type_.bit_width // 64)
        return [ColumnPart(PartSort.DECIMAL, valid, low_words, scale=type_.scale)]
    if pa.types.is_decimal(type_) or type_ == pa.uint64():
        return _of_objects(read_values(split_name(name), array))
    return [ColumnPart(PartSort.OTHER, valid, np.ones(len(array), np.bool_))]


def _numbers(array: Any, dtype: Any) -> Any:
    """Return the values of a column of numbers; nulls are any number."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _decimal_words(array: Any, words: int) -> Any:
    """Return the lowest 64 bits of decimals that fit them."""
    if words == 0:
        return _numbers(array, np.int32).astype(np.int64)
    return np.ascontiguousarray(
        np.frombuffer(array.buffers()[1], np.int64)[words * array.offset :][: words * len(array) : words]
    )


def _text(array: Any, valid: Any) -> ColumnPart:
    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], offset_type)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    values = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return ColumnPart(PartSort.TEXT, valid, values, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))


def parts_of_rows(rows: Sequence[Mapping[str, object]], names: Iterable[str]) -> dict[str, Sequence[ColumnPart]]:
    """Return the parts of attributes of rows, which may hold values of several kinds under one name."""
    parts: dict[str, Sequence[ColumnPart]] = {}
    for name in names:
        path = split_name(name)
        values = [row.get(path[0]) for row in rows] if len(path) == 1 else [find(row, path) for row in rows]
        found = _of_objects(values)
        if found:
            parts[name] = found
    return parts


def _of_objects(values: list[Any]) -> Sequence[ColumnPart]:
    classes = set(map(type, values))
    classes.discard(type(None))
    if len(classes) == 1:
        return _of_class(classes.pop(), values)
    parts: list[ColumnPart] = []
    for cls in classes:
        parts += _of_class(cls, [value if type(value) is cls else None for value in values])
    return parts


def _of_class(cls: type, values: list[Any]) -> list[ColumnPart]:
    valid = None if None not in values else np.fromiter((v is not None for v in values), np.bool_, count=len(values))
    if cls is float:
        return [ColumnPart(PartSort.FLOAT, valid, np.array(values, np.float64))]
    if cls is str:
        return [_text(pa.array(values, pa.large_string()), valid)]
    if cls is bool:
        return [ColumnPart(PartSort.BOOLEAN, valid, np.array([bool(v) for v in values]))]
    if cls is int:
        numbers = values if valid is None else [v or 0 for v in values]
        if min(numbers) >= WORD[0] and max(numbers) <= WORD[1]:
            return [ColumnPart(PartSort.INTEGER, valid, np.array(numbers, np.int64))]
        fits = [v is not None and WORD[0] <= v <= WORD[1] for v in values]
        small = np.array([v if f else 0 for v, f in zip(values, fits, strict=True)], np.int64)
        large = np.array([v is not None and not f for v, f in zip(values, fits, strict=True)])
        objects = np.empty(len(values), object)
        objects[:] = values
        return [ColumnPart(PartSort.INTEGER, np.array(fits), small), ColumnPart(PartSort.EXACT, large, objects)]
    if cls is Decimal:
        objects = np.empty(len(values), object)
        objects[:] = values
        return [ColumnPart(PartSort.EXACT, valid, objects)]
    if cls is datetime:
        micros = [0 if v is None else _micros(v) for v in values]
        return [ColumnPart(PartSort.INSTANT, valid, np.array(micros, np.int64))]
    return [ColumnPart(PartSort.OTHER, valid, np.ones(len(values), np.bool_))]


def _micros(value: datetime) -> int:
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


BATCH_ROWS = 65_536
"""Events that are held as columns at a time."""


class Columns(ABC):
    """A batch of events as columns, prepared for many filters."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._prepared: dict[str, PreparedColumn] = {}
        self._all = np.arange(length, dtype=np.int64)

    @staticmethod
    def of_batch(batch: pa.RecordBatch) -> Columns:
        """Return the columns of an Arrow batch; nested objects are structs."""
        return _ArrowColumns(batch)

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, object]]) -> Columns:
        """Return the columns of clean attributes, which may hold values of different kinds under one name."""
        return _RowColumns(rows)

    @property
    @abstractmethod
    def source(self) -> Any:
        """The Arrow batch or the rows of these columns."""

    @abstractmethod
    def row(self, number: int) -> Mapping[str, object]:
        """Return the attributes of one event."""

    @abstractmethod
    def rows(self) -> Sequence[Mapping[str, object]]:
        """Return the attributes of all events."""

    @abstractmethod
    def values(self, name: str) -> Sequence[object]:
        """Return the values of one attribute, event by event."""

    @abstractmethod
    def parts(self, names: Iterable[str]) -> ColumnParts:
        """Return the values of some attributes as the index wants them."""

    @abstractmethod
    def _prepare(self, name: str) -> PreparedColumn: ...

    def __len__(self) -> int:
        return self._length

    def accepted(self, filter_: Filter, among: Rows | None = None) -> Rows:
        """Return the rows that a filter accepts, in order: of all rows, or of those `among`, which are in order."""
        found = [self.accepted_by(conjunction, among) for conjunction in filter_.conjunctions]
        if not found:
            return self._all[:0]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def accepted_by(self, conjunction: Conjunction, among: Rows | None = None) -> Rows:
        """Return the rows that one conjunction accepts, as `accepted` does."""
        rows = among
        for name, constraint in sorted(conjunction.constraints, key=_cost):
            rows = self.column(name).select(constraint, rows)
            if not len(rows):
                break
        return self._all if rows is None else rows

    def mask(self, name: str, constraint: Constraint) -> Mask:
        """Return which rows satisfy one constraint."""
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[self.column(name).select(constraint, None)] = True
        return mask

    def of_other_kinds(self, name: str, kind: Kind) -> int:
        """Return how many events hold a value of another kind, for which a constraint of this kind is NULL."""
        column = self.column(name)
        return int(column.valid.sum()) - column.count(kind)

    def instants(self, name: str) -> tuple[Array, Mask] | None:
        """Return timestamps as microseconds since 1970, and a mask of them; None if the attribute holds none."""
        return self.column(name).instants()

    def column(self, name: str) -> PreparedColumn:
        """Return the prepared column of an attribute by its canonical name."""
        prepared = self._prepared.get(name)
        if prepared is None:
            prepared = self._prepared[name] = self._prepare(name)
        return prepared


class ColumnBatch(msgspec.Struct, frozen=True):
    """A batch of events: the numbers of their rows, and their columns."""

    rows: Sequence[int]
    columns: Columns


def _cost(named: tuple[str, Constraint]) -> int:
    """Return the order in which to test: constraints that are quick to decide and leave few rows come first."""
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

    @property
    def source(self) -> Any:
        return self._batch

    def row(self, number: int) -> Mapping[str, object]:
        return read_batch(self._batch.slice(number, 1))[0]

    def rows(self) -> Sequence[Mapping[str, object]]:
        return read_batch(self._batch)

    def values(self, name: str) -> Sequence[object]:
        array = find_array(self._batch, name)
        return [None] * len(self) if array is None else read_values(split_name(name), array)

    def parts(self, names: Iterable[str]) -> ColumnParts:
        return parts_of_batch(self._batch, names)

    def _prepare(self, name: str) -> PreparedColumn:
        return prepare(name, find_array(self._batch, name), len(self))


class _RowColumns(Columns):
    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        super().__init__(len(rows))
        self._rows = rows

    @property
    def source(self) -> Any:
        return self._rows

    def row(self, number: int) -> Mapping[str, object]:
        return self._rows[number]

    def rows(self) -> Sequence[Mapping[str, object]]:
        return self._rows

    def values(self, name: str) -> Sequence[object]:
        path = split_name(name)
        return [find(row, path) for row in self._rows]

    def parts(self, names: Iterable[str]) -> ColumnParts:
        return parts_of_rows(self._rows, names)

    def _prepare(self, name: str) -> PreparedColumn:
        return of_values(self.values(name))
