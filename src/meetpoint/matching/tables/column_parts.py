"""What a batch of events holds under one attribute, as arrays: one part for each class of values that occurs.

From Arrow's columns without a copy where the types allow it, and from plain rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.language.names import find, split_name
from meetpoint.matching.tables.arrow_columns import WORD_DIGITS, find_array, instants_of, read_values
from meetpoint.matching.tables.prepared_columns import EPOCH, WORD

__all__ = ["Part", "PartSort", "Parts", "parts_of_batch", "parts_of_rows"]


class PartSort(Enum):
    """The class of the values of a part, which says what its arrays hold."""

    FLOAT = auto()
    """float64."""
    INTEGER = auto()
    """int64."""
    DECIMAL = auto()
    """int64, the value times ten to the `scale`."""
    EXACT = auto()
    """Python objects: ints beyond 64 bits, and Decimals."""
    TEXT = auto()
    """Bytes of UTF-8: each text lies between its `starts` and its `ends`."""
    INSTANT = auto()
    """int64, microseconds since 1970."""
    BOOLEAN = auto()
    """bool."""
    OTHER = auto()
    """bool: there, but of no kind, such as a nested object."""


class Part(msgspec.Struct, frozen=True):
    """The values of one attribute that are of one class, for a batch of events. What is not valid means nothing."""

    sort: PartSort
    valid: np.ndarray | None
    """bool for each event; None: every event has a value of this part."""
    values: np.ndarray
    starts: np.ndarray | None = None
    """TEXT: where each text begins in `values`."""
    ends: np.ndarray | None = None
    """TEXT: where it ends."""
    scale: int = 0
    """DECIMAL: digits after the point."""


Parts: TypeAlias = Mapping[str, Sequence[Part]]
"""By attribute name; an attribute that no event has may be left out."""

_NO_BYTES = np.zeros(0, np.uint8)


def parts_of_batch(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Sequence[Part]]:
    """The parts of the named attributes of an Arrow batch; nested objects are structs."""
    parts: dict[str, Sequence[Part]] = {}
    for name in names:
        array = find_array(batch, name)
        if array is not None and array.null_count < len(array):
            parts[name] = _of_array(name, array)
    return parts


def _of_array(name: str, array: Any) -> Sequence[Part]:
    type_ = array.type
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if pa.types.is_floating(type_):
        doubles = array if type_ == pa.float64() else array.cast(pa.float64())
        return [Part(PartSort.FLOAT, valid, _numbers(doubles, np.float64))]
    if pa.types.is_integer(type_) and type_ != pa.uint64():
        return [Part(PartSort.INTEGER, valid, _numbers(array, type_.to_pandas_dtype()).astype(np.int64, copy=False))]
    if pa.types.is_boolean(type_):
        return [Part(PartSort.BOOLEAN, valid, np.asarray(array.fill_null(False)))]
    if pa.types.is_timestamp(type_):
        return [Part(PartSort.INSTANT, valid, instants_of(split_name(name), array))]
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return [_text(array if not pa.types.is_string_view(type_) else array.cast(pa.large_string()), valid)]
    if pa.types.is_decimal(type_) and type_.precision <= WORD_DIGITS and type_.scale >= 0:
        low_words = _decimal_words(array, type_.bit_width // 64)
        return [Part(PartSort.DECIMAL, valid, low_words, scale=type_.scale)]
    if pa.types.is_decimal(type_) or type_ == pa.uint64():
        return _of_objects(read_values(split_name(name), array))
    return [Part(PartSort.OTHER, valid, np.ones(len(array), np.bool_))]


def _numbers(array: Any, dtype: Any) -> Any:
    """The values of a column of numbers, whatever stands where there are none."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _decimal_words(array: Any, words: int) -> Any:
    """The lowest 64 bits of decimals that fit them."""
    if words == 0:
        return _numbers(array, np.int32).astype(np.int64)
    return np.ascontiguousarray(
        np.frombuffer(array.buffers()[1], np.int64)[words * array.offset :][: words * len(array) : words]
    )


def _text(array: Any, valid: Any) -> Part:
    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], offset_type)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    values = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return Part(PartSort.TEXT, valid, values, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))


def parts_of_rows(rows: Sequence[Mapping[str, object]], names: Iterable[str]) -> dict[str, Sequence[Part]]:
    """The parts of the named attributes of clean attributes, which may hold values of several kinds under one name."""
    parts: dict[str, Sequence[Part]] = {}
    for name in names:
        path = split_name(name)
        values = [row.get(path[0]) for row in rows] if len(path) == 1 else [find(row, path) for row in rows]
        found = _of_objects(values)
        if found:
            parts[name] = found
    return parts


def _of_objects(values: list[Any]) -> Sequence[Part]:
    classes = set(map(type, values))
    classes.discard(type(None))
    if len(classes) == 1:
        return _of_class(classes.pop(), values)
    parts: list[Part] = []
    for cls in classes:
        parts += _of_class(cls, [value if type(value) is cls else None for value in values])
    return parts


def _of_class(cls: type, values: list[Any]) -> list[Part]:
    valid = None if None not in values else np.fromiter((v is not None for v in values), np.bool_, count=len(values))
    if cls is float:
        return [Part(PartSort.FLOAT, valid, np.array(values, np.float64))]
    if cls is str:
        return [_text(pa.array(values, pa.large_string()), valid)]
    if cls is bool:
        return [Part(PartSort.BOOLEAN, valid, np.array([bool(v) for v in values]))]
    if cls is int:
        numbers = values if valid is None else [v or 0 for v in values]
        if min(numbers) >= WORD[0] and max(numbers) <= WORD[1]:
            return [Part(PartSort.INTEGER, valid, np.array(numbers, np.int64))]
        fits = [v is not None and WORD[0] <= v <= WORD[1] for v in values]
        small = np.array([v if f else 0 for v, f in zip(values, fits, strict=True)], np.int64)
        large = np.array([v is not None and not f for v, f in zip(values, fits, strict=True)])
        objects = np.empty(len(values), object)
        objects[:] = values
        return [Part(PartSort.INTEGER, np.array(fits), small), Part(PartSort.EXACT, large, objects)]
    if cls is Decimal:
        objects = np.empty(len(values), object)
        objects[:] = values
        return [Part(PartSort.EXACT, valid, objects)]
    if cls is datetime:
        micros = [0 if v is None else _micros(v) for v in values]
        return [Part(PartSort.INSTANT, valid, np.array(micros, np.int64))]
    return [Part(PartSort.OTHER, valid, np.ones(len(values), np.bool_))]


def _micros(value: datetime) -> int:
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
