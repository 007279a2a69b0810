"""Events as peers take them: flat columns of doubles and strings, one an attribute.

Doubles judge integers and short decimals exactly as our language does, and NaN, our largest number, becomes infinity,
which no bound of a long form excludes unless it excludes NaN. Columns of which that is not true are named as unfit.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.lab.workloads.longform import DOUBLE_DIGITS
from meetpoint.language.names import join_name

__all__ = ["PlainEvents", "plain_events"]

_LARGEST = 10**DOUBLE_DIGITS


class PlainEvents(msgspec.Struct, frozen=True):
    """The columns by their attributes' canonical names, and the attributes that are of another kind or too exact."""

    table: pa.Table
    unfit: frozenset[str]


def plain_events(events: pa.Table) -> PlainEvents:
    """The events with every column made plain; one that is plain already stays as it is."""
    columns: dict[str, pa.Array] = {}
    unfit = set()
    for path, column in _leaves(events):
        plain = _plain(column)
        if plain is None:
            unfit.add(join_name(path))
        else:
            columns[join_name(path)] = plain
    if not columns:  # a table has no rows without a column
        columns["`no attribute`"] = pa.nulls(events.num_rows, pa.string())
    return PlainEvents(pa.table(columns), frozenset(unfit))


def _leaves(events: pa.Table) -> Iterator[tuple[tuple[str, ...], Any]]:
    waiting: list[tuple[tuple[str, ...], Any]] = [
        ((name,), events[name].combine_chunks()) for name in reversed(events.column_names)
    ]
    while waiting:
        path, column = waiting.pop()
        if isinstance(column, pa.ChunkedArray):  # of a table without any chunk
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_struct(column.type):
            inner = [column.type.field(at).name for at in range(column.type.num_fields)]
            waiting += [((*path, name), pc.struct_field(column, name)) for name in reversed(inner)]
        else:
            yield path, column


def _plain(column: Any) -> Any:
    """The column as doubles or strings; None where it cannot be."""
    type_ = column.type
    if pa.types.is_string(type_):
        return column
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return column.cast(pa.string())
    if pa.types.is_floating(type_):
        doubles = column.cast(pa.float64())
        values = doubles.to_numpy(zero_copy_only=False)
        odd = np.isnan(values) | (np.signbit(values) & (values == 0))
        if not odd.any() or (odd.sum() == column.null_count and not pc.any(pc.is_nan(doubles)).as_py()):
            return doubles
        return pa.array(np.where(np.isnan(values), np.inf, values) + 0.0, mask=column.is_null().to_numpy(False))
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return _doubles(column)
    return None


def _doubles(column: Any) -> Any:
    if len(column) == column.null_count:
        return pa.nulls(len(column), pa.float64())
    if pa.types.is_integer(column.type):
        extremes = pc.min_max(column).as_py()
        return column.cast(pa.float64()) if extremes["min"] > -_LARGEST and extremes["max"] < _LARGEST else None
    values = column.to_pylist()
    if any(value is not None and _digits(value) > DOUBLE_DIGITS for value in values):
        return None
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _digits(value: Decimal) -> int:
    return len(value.normalize().as_tuple().digits)
