"""Counts of values in events, made where the events are, in columns and within bounded memory.

Counts of parts of the events add up to those of the whole. Of each part the `KEPT` most common values of an attribute
are handed on. Their counts are exact as long as the part has no more than `CAPACITY` distinct values; of more, the
rarest are dropped from time to time, so that common values may be counted a little too low.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.language.names import split_name
from meetpoint.language.timestamps import format_timestamp, parse_timestamp
from meetpoint.language.values import Kind, Type
from meetpoint.matching.keys.meet_keys import PREFIX_MAX, KeySort, shorten
from meetpoint.matching.tables.arrow_columns import find_array, read_values

__all__ = ["EventValueCounts", "ValueCounts", "read_value", "show_value"]

CAPACITY = 16_384
"""Distinct values of an attribute that are counted at a time."""
KEPT = 4096
"""The most common of these, which are handed on."""
_SHORT = 64
"""Characters of a text that a key always holds whole."""


class ValueCounts:
    """Counts of the values of arrays of one type."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._values: list[pa.Array] = []
        self._counts: list[Any] = []
        self._size = 0

    def add(self, values: pa.Array) -> None:
        """Count the values of an array; nulls are not counted."""
        counted = values.drop_null().value_counts()
        self._values.append(counted.field(0))
        self._counts.append(counted.field(1).to_numpy())
        self._size += len(counted)
        if self._size > 2 * self._capacity:
            self._fold(self._capacity, self._capacity // 2)

    def counts(self) -> tuple[pa.Array, list[int]]:
        """Return the most common values, each once, and how often each was seen."""
        if not self._values:
            return pa.nulls(0), []
        self._fold(KEPT, KEPT)
        return self._values[0], self._counts[0].tolist()

    def _fold(self, most: int, kept: int) -> None:
        """Add up; if there are more values than `most`, keep the most common ones only."""
        coded = pa.concat_arrays(self._values).dictionary_encode()
        counts = np.zeros(len(coded.dictionary), np.int64)
        np.add.at(counts, coded.indices.to_numpy(), np.concatenate(self._counts))
        values = coded.dictionary
        if len(counts) > most:
            order = np.argsort(-counts, kind="stable")[:kept]
            values, counts = values.take(pa.array(order)), counts[order]
        self._values, self._counts, self._size = [values], [counts], len(counts)


class EventValueCounts:
    """Counts of the values of attributes, and of the prefixes and suffixes of texts that keys can hold."""

    def __init__(self, types: Mapping[str, Type], capacity: int = CAPACITY) -> None:
        self._types = types
        self._capacity = capacity
        self._tallies: dict[tuple[str, KeySort, int], ValueCounts] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of a batch."""
        for name, type_ in self._types.items():
            array = find_array(batch, name)
            if array is None or array.null_count == len(array):
                continue
            if type_.kind is Kind.STRING:
                array = array.cast(pa.large_string()).drop_null()
                self._parts(name, array)
                array = _shortened(array)
            elif type_ is Type.FLOAT:
                doubles = pc.add(array.cast(pa.float64()), 0.0)  # -0.0 is 0.0
                array = pc.if_else(pc.is_nan(doubles), math.nan, doubles)  # and NaN is one value
            self._tally(name, KeySort.VALUE, 0).add(array)

    def _parts(self, name: str, texts: pa.Array) -> None:
        lengths = pc.utf8_length(texts)
        for size in range(1, PREFIX_MAX + 1):
            long = texts.filter(pc.greater_equal(lengths, size))
            self._tally(name, KeySort.PREFIX, size).add(pc.utf8_slice_codeunits(long, 0, size))
            self._tally(name, KeySort.SUFFIX, size).add(pc.utf8_slice_codeunits(long, -size))

    def _tally(self, name: str, sort: KeySort, size: int) -> ValueCounts:
        return self._tallies.setdefault((name, sort, size), ValueCounts(self._capacity))

    def rows(self) -> Iterator[tuple[str, KeySort, str, int]]:
        """Yield all counts: an attribute, a sort of key, a value as a text, how often."""
        for (name, sort, _), tally in self._tallies.items():
            values, counts = tally.counts()
            for value, count in zip(read_values(split_name(name), values), counts, strict=True):
                yield name, sort, show_value(value), count


def _shortened(texts: pa.Array) -> pa.Array:
    long = pc.greater(pc.utf8_length(texts), _SHORT)
    where = np.flatnonzero(np.asarray(long))
    if not len(where):
        return texts
    short = pa.array([shorten(text) for text in texts.take(pa.array(where)).to_pylist()], texts.type)
    return pc.replace_with_mask(texts, long, short)


def show_value(value: object) -> str:
    """Return a value as a text from which `read_value` reads it again."""
    if isinstance(value, datetime):
        return format_timestamp(value)
    return repr(value) if isinstance(value, float) else str(value)


def read_value(text: str, type_: Type) -> Any:
    """Return the value of a text of `show_value`."""
    match type_:
        case Type.INTEGER:
            return int(text)
        case Type.FLOAT:
            return float(text)
        case Type.DECIMAL:
            return Decimal(text)
        case Type.BOOLEAN:
            return text == "True"
        case Type.TIMESTAMP:
            return parse_timestamp(text)
    return text
