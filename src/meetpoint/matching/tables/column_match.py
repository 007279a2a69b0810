"""A normal form over Arrow columns: whole columns at a time, and only the rows that are still in question.

`Columns` holds one batch of events. Each attribute is prepared once (numbers and timestamps as NumPy arrays, strings as
codes into a dictionary), however many filters then ask for it; a constraint on strings is decided once per distinct
string. Everything is exact: bounds are brought to the column's own type and rounded to the side that keeps the answer.
Columns whose type no attribute has (a list, a date) are only ever present or absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.language.filters.constraints import Constraint, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name
from meetpoint.language.values import Kind
from meetpoint.matching.tables.arrow_columns import find_array, prepare, read_batch, read_values
from meetpoint.matching.tables.column_parts import Parts, parts_of_batch, parts_of_rows
from meetpoint.matching.tables.prepared_columns import Array, Column, Mask, Rows, of_values

__all__ = ["BATCH_ROWS", "Batch", "Columns", "Rows"]

BATCH_ROWS = 65_536
"""Events that are held as columns at a time."""


class Columns(ABC):
    """One batch of events as columns, ready to be asked by many filters."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._prepared: dict[str, Column] = {}
        self._all = np.arange(length, dtype=np.int64)

    @staticmethod
    def of_batch(batch: pa.RecordBatch) -> Columns:
        """The columns of an Arrow batch; nested objects are structs."""
        return _ArrowColumns(batch)

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, object]]) -> Columns:
        """The columns of clean attributes, which may hold values of different kinds under one name."""
        return _RowColumns(rows)

    @property
    @abstractmethod
    def source(self) -> Any:
        """The Arrow batch or the rows that they are the columns of."""

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
    def parts(self, names: Iterable[str]) -> Parts:
        """The values of some attributes as the index wants them."""

    @abstractmethod
    def _prepare(self, name: str) -> Column: ...

    def __len__(self) -> int:
        return self._length

    def accepted(self, filter_: Filter, among: Rows | None = None) -> Rows:
        """The numbers of the rows (of those given, in order; None: of all) that a filter accepts, in order."""
        found = [self.accepted_by(conjunction, among) for conjunction in filter_.conjunctions]
        if not found:
            return self._all[:0]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def accepted_by(self, conjunction: Conjunction, among: Rows | None = None) -> Rows:
        """The same for one conjunction."""
        rows = among
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
        return self.column(name).instants()

    def column(self, name: str) -> Column:
        """The prepared column of an attribute by its canonical name."""
        prepared = self._prepared.get(name)
        if prepared is None:
            prepared = self._prepared[name] = self._prepare(name)
        return prepared


class Batch(msgspec.Struct, frozen=True):
    """Some events: the numbers of their rows, and their columns."""

    rows: Sequence[int]
    columns: Columns


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

    def parts(self, names: Iterable[str]) -> Parts:
        return parts_of_batch(self._batch, names)

    def _prepare(self, name: str) -> Column:
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

    def parts(self, names: Iterable[str]) -> Parts:
        return parts_of_rows(self._rows, names)

    def _prepare(self, name: str) -> Column:
        return of_values(self.values(name))
