"""Arrow columns: found by an attribute's name, prepared for constraints, and read as Python objects.

Encodings (dictionary, run ends) are undone first. Naive timestamps are UTC. A timestamp that no attribute holds, finer
than a microsecond or outside the years 1 to 9999, refuses its column.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import EventError
from meetpoint.language.filters.constraints import NumberSet
from meetpoint.language.names import show_name, split_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.language.values import Kind
from meetpoint.matching.tables.prepared_columns import (
    WORD,
    Array,
    CodedColumn,
    LineColumn,
    Mask,
    PreparedColumn,
    float_ranges,
    instant_column,
    ordered_texts,
    whole,
)

__all__ = [
    "INSTANTS",
    "WORD_DIGITS",
    "check_arrow_kinds",
    "find_array",
    "instants_of",
    "prepare",
    "read_batch",
    "read_values",
]

WORD_DIGITS = 18
"""Digits of a decimal column that surely fit 64 bits."""
INSTANTS = tuple((each.replace(tzinfo=UTC) - EPOCH) // MICROSECOND for each in (datetime.min, datetime.max))
"""The first and the last microsecond of the years 1 to 9999."""
_TICK_MICROS = {"s": 10**6, "ms": 10**3, "us": 1}
_NANOS = 1000


def find_array(batch: pa.RecordBatch, name: str) -> Any:
    """Return the column of an attribute by its canonical name, its encoding undone; None if there is none."""
    head, *rest = split_name(name)
    at = batch.schema.get_all_field_indices(head)
    if not at:
        return None
    if len(at) > 1:
        raise EventError(f"events: column {show_name((head,))} occurs {len(at)} times; rename or drop all but one")
    array = _decoded(batch.column(at[0]))
    for segment in rest:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(segment) < 0:
            return None
        array = _decoded(pc.struct_field(array, segment))
    return array


def _decoded(array: Any) -> Any:
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


# -- preparation -------------------------------------------------------------------------------------------------------


def prepare(name: str, array: Any, length: int) -> PreparedColumn:
    """Return a column ready for constraints; None is a column without a value."""
    if array is None:
        return PreparedColumn(np.zeros(length, dtype=np.bool_))
    valid = np.asarray(array.is_valid())
    type_ = array.type
    if pa.types.is_boolean(type_):
        return CodedColumn(valid, np.asarray(array.fill_null(False)).astype(np.int8), [False, True])
    if pa.types.is_integer(type_):
        values = np.asarray(array.fill_null(0))
        bounds = np.iinfo(values.dtype)
        return LineColumn(valid, values, NumberSet, lambda c: whole(c.exact, Fraction(1), bounds.min, bounds.max))
    if pa.types.is_floating(type_):
        return LineColumn(valid, np.asarray(pc.cast(array, pa.float64()).fill_null(0.0)), NumberSet, float_ranges)
    if pa.types.is_decimal(type_):
        return _decimals(array, valid)
    if pa.types.is_timestamp(type_):
        return instant_column(valid, instants_of(split_name(name), array))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        encoded = pc.cast(array, pa.string()).dictionary_encode()
        texts: Any = read_values(split_name(name), encoded.dictionary)
        return ordered_texts(valid, np.asarray(encoded.indices.fill_null(0)), texts)
    return PreparedColumn(valid)


def _decimals(array: Any, valid: Mask) -> PreparedColumn:
    type_ = array.type
    if type_.bit_width < 128:  # the kernels do not all know the short ones
        array = pc.cast(array, type_ := pa.decimal128(type_.precision, type_.scale))
    if not pa.types.is_decimal128(type_) or type_.precision > WORD_DIGITS or type_.scale < 0:
        encoded = array.dictionary_encode()
        return CodedColumn(valid, np.asarray(encoded.indices.fill_null(0)), encoded.dictionary.to_pylist())
    words = np.frombuffer(array.buffers()[1], dtype="<i8") if len(array) else np.zeros(0, dtype="<i8")
    values = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]  # the low halves: the high ones are sign
    unit = Fraction(1, 10**type_.scale)
    return LineColumn(valid, values, NumberSet, lambda c: whole(c.exact, unit, *WORD))


def instants_of(path: tuple[str, ...], array: Any) -> Array:
    """Return timestamps as microseconds since 1970, by their integers: a zone only says how to show an instant."""
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
    unit = array.type.unit
    if unit == "ns":
        if (ticks % _NANOS).any():
            raise EventError(
                f"events: column {show_name(path)} has timestamps finer than a microsecond; round them to microseconds"
            )
        return ticks // _NANOS  # 64 bits of nanoseconds lie within the years
    size = _TICK_MICROS[unit]
    if len(ticks) and (ticks.min() < -(-INSTANTS[0] // size) or ticks.max() > INSTANTS[1] // size):
        raise EventError(
            f"events: column {show_name(path)} has timestamps outside the years 1 to 9999; use times within them"
        )
    return ticks * size


# -- reading -----------------------------------------------------------------------------------------------------------


def read_batch(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the rows of a batch as Python objects; EventError names a column that cannot be read."""
    names = batch.schema.names
    for name in names:
        if names.count(name) > 1:
            raise EventError(f"events: column {show_name((name,))} occurs twice; rename or drop one of them")
    columns = [read_values((name,), column) for name, column in zip(names, batch.columns, strict=True)]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def read_values(path: tuple[str, ...], array: Any) -> list[object]:
    """Return the values of a column, timestamps in UTC."""
    array = _decoded(array)
    if pa.types.is_timestamp(array.type):
        micros = instants_of(path, array).tolist()
        valid = array.is_valid().to_pylist()
        return [EPOCH + m * MICROSECOND if there else None for m, there in zip(micros, valid, strict=True)]
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        fields = [read_values((*path, n), f) for n, f in zip(names, array.flatten(), strict=True)]
        rows = zip(*fields, strict=True) if fields else ((),) * len(array)
        valid = array.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    try:
        values: list[object] = array.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise EventError(f"events: column {show_name(path)} cannot be read: {said}; convert or drop it") from None
    return values


# -- schemas -----------------------------------------------------------------------------------------------------------


def check_arrow_kinds(columns: pa.Schema, schema: Schema | None) -> None:
    """Raise EventError for a column of another kind than the schema says; any type and bounds of numbers will do."""
    for attribute in () if schema is None else schema:
        held: Any = pa.struct(list(columns))
        for depth, segment in enumerate(attribute.path):
            at = held.get_field_index(segment) if pa.types.is_struct(held) else -1
            if at < 0:
                if depth and not pa.types.is_struct(held) and not pa.types.is_null(held):
                    _refuse_column(attribute.path[:depth], held, "an object")
                break
            held = _value_type(held.field(at).type)
        else:
            if not pa.types.is_null(held) and _kind_of_type(held) is not attribute.type.kind:
                _refuse_column(attribute.path, held, str(attribute.type))


def _refuse_column(path: tuple[str, ...], type_: Any, wanted: str) -> None:
    raise EventError(
        f"events: column {show_name(path)} is of Arrow type {type_} and the schema says {wanted}; "
        "cast the column, or change the schema"
    )


def _value_type(type_: Any) -> Any:
    while pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        type_ = type_.value_type
    return type_


_KINDS: Mapping[Kind, tuple[Any, ...]] = {
    Kind.NUMBER: (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    Kind.STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    Kind.BOOLEAN: (pa.types.is_boolean,),
    Kind.TIMESTAMP: (pa.types.is_timestamp,),
}


def _kind_of_type(type_: Any) -> Kind | None:
    return next((kind for kind, tests in _KINDS.items() if any(test(type_) for test in tests)), None)
