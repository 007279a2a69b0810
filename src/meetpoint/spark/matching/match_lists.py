"""Matches as events with lists of ids: made batch by batch, cut to size, and assembled from several tasks.

A worker sends an event once with the list of ids, rather than once for each of them, and Spark unfolds the lists: that
moves far less data. Lists are cut, and so are batches, so that no buffer holds more than a bounded part of the matches.
Only where whole lists are the result, a list is as long as it must be.

**Assembly.** The strategies `partitioned` and `join` send an event to several tasks. The *parts* of its list come
together by a digest of all its columns. A number that a task gave the event would not do: a task that ran again, after
its machine was lost, would meet its rows in another order and number them differently, and half of the parts would find
no other half. Equal events are one until the end, where they are repeated as often as there were of them; since the
same subscriptions accept them, nobody can tell them apart. A rerun in whatever order gives the same parts, as long as
the events themselves are the same.

A part is a digest, an event (in one of its parts, its *first*, and NULL in the others) and some ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from meetpoint.matching.index import Index, Pairs
from meetpoint.matching.index.kernels.bucket_scan import group_by_event
from meetpoint.spark.subscriptions.compilation import ID_TYPES

__all__ = [
    "assemble_lists",
    "digests",
    "event_parts",
    "group_pairs",
    "id_column_type",
    "lists_schema",
    "match_batch",
    "output_rows",
    "parts_schema",
    "plain_names",
    "salts",
    "to_result",
    "with_plain_names",
]

Array: TypeAlias = "np.ndarray[Any, Any]"

EVENTS = 16_384
"""The number of events that are matched at a time."""
HELD_PAIRS = 1 << 20
"""The number of matches that are held at a time; only one event whose whole list is wanted may have more."""
LIST_MAX = 1 << 16
"""The number of ids in a list that is to be unfolded."""
OUTPUT_ROWS, OUTPUT_BYTES = 1 << 14, 1 << 24
"""The rows and bytes of an output batch; a single row may be larger."""


# -- frames of all strategies ------------------------------------------------------------------------------------------


def plain_names(count: int) -> list[str]:
    """Return names for columns on their way to the workers and back.

    A caller's name may hold a dot, which Spark reads as a path, or equal the name of an added column.
    """
    return [f"c{at}" for at in range(count)]


def with_plain_names(events: DataFrame) -> DataFrame:
    return events.toDF(*plain_names(len(events.columns)))


def id_column_type(id_type: str) -> T.DataType:
    return from_arrow_type(ID_TYPES[id_type])


def lists_schema(columns: T.StructType, id_type: str) -> T.StructType:
    """Return the columns of events and the array of ids, all under plain names."""
    ids = T.StructField("", T.ArrayType(id_column_type(id_type), containsNull=False), False)
    named = zip(plain_names(len(columns.fields) + 1), (*columns.fields, ids), strict=True)
    return T.StructType([T.StructField(name, of.dataType, of.nullable, of.metadata) for name, of in named])


def to_result(listed: DataFrame, names: Sequence[str], result: str) -> DataFrame:
    """Turn events with lists, under plain names, into the wanted result under the events' own names."""
    if result == "lists":
        return listed.toDF(*names, "subscriptions")
    *columns, lists = listed.columns
    return listed.select(*columns, F.explode(lists)).toDF(*names, "subscription")


# -- in workers --------------------------------------------------------------------------------------------------------


def match_batch(
    index: Index[Any], batch: pa.RecordBatch, id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of events and a list of ids, under plain names.

    Where lists are `whole`, every event comes once, in order. Otherwise an event comes as often as its list is cut, and
    not at all where nothing accepts it.
    """
    ids = pa.array([], id_type)
    pairs_held: list[Pairs] = []
    count = 0
    for pairs in index.pairs(batch, batch=EVENTS):
        ids = pairs.ids  # the same for all pairs, since a compiled index has one segment
        pairs_held.append(pairs)
        count += len(pairs.events)
        if count >= HELD_PAIRS and not whole:
            yield from _cut_lists(batch, pairs_held, ids)
            pairs_held, count = [], 0
        elif count >= HELD_PAIRS and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from match_batch(index, batch.slice(0, half), id_type, whole)
            yield from match_batch(index, batch.slice(half), id_type, whole)
            return
    yield from _whole_lists(batch, pairs_held, ids) if whole else _cut_lists(batch, pairs_held, ids)


def _whole_lists(batch: pa.RecordBatch, pairs_held: list[Pairs], ids: pa.Array) -> Iterator[pa.RecordBatch]:
    starts, numbers = group_pairs(pairs_held, batch.num_rows)
    return _batches(batch, np.arange(batch.num_rows), starts, numbers, ids)


def _cut_lists(batch: pa.RecordBatch, pairs_held: list[Pairs], ids: pa.Array) -> Iterator[pa.RecordBatch]:
    starts, numbers = group_pairs(pairs_held, batch.num_rows)
    begins = np.union1d(starts[:-1][np.diff(starts) > 0], np.arange(0, len(numbers), LIST_MAX))
    events = np.searchsorted(starts, begins, "right") - 1
    return _batches(batch, events, np.append(begins, len(numbers)), numbers, ids)


def group_pairs(pairs_held: list[Pairs], events: int) -> tuple[Array, Array]:
    """Return the start of each event's ids, and the numbers of the ids grouped by event."""
    none = np.zeros(0, np.int32)
    numbers = np.concatenate([none, *(pairs.subscriptions for pairs in pairs_held)])
    starts, grouped = np.zeros(events + 1, np.int64), np.empty_like(numbers)
    group_by_event(np.concatenate([none, *(pairs.events for pairs in pairs_held)]), numbers, starts, grouped)
    return starts, grouped


def _batches(
    batch: pa.RecordBatch, rows: Array, starts: Array, numbers: Array, ids: pa.Array
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a batch by their numbers, each with its list, in batches of bounded size."""
    id_bytes = ids.nbytes / max(len(ids), 1)
    ends = np.cumsum(_row_bytes(batch)[rows] + np.diff(starts) * id_bytes)
    names = plain_names(batch.num_columns + 1)
    at = 0
    while at < len(rows):
        sent = ends[at - 1] if at else 0
        full = int(np.searchsorted(ends, sent + OUTPUT_BYTES, "right"))
        end = min(max(full, at + 1), at + OUTPUT_ROWS)
        taken = batch.take(pa.array(rows[at:end]))
        values = ids.take(pa.array(numbers[starts[at] : starts[end]]))
        lists = pa.ListArray.from_arrays(pa.array(starts[at : end + 1] - starts[at], pa.int32()), values)
        yield pa.RecordBatch.from_arrays([*taken.columns, lists], names)
        at = end


def _row_bytes(batch: pa.RecordBatch) -> Array:
    return sum((_bytes_of(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))


def _bytes_of(array: Any) -> Array:
    type_ = array.type
    if pa.types.is_struct(type_):
        return sum((_bytes_of(field) for field in array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_map(type_):
        return _bytes_of_lists(array, _bytes_of(array.keys) + _bytes_of(array.items))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _bytes_of_lists(array, _bytes_of(array.values))
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_):
        return np.full(len(array), max(type_.bit_width // 8, 1), np.int64)
    if pa.types.is_null(type_):
        return np.zeros(len(array), np.int64)
    lengths: Array = np.asarray(pc.binary_length(array).fill_null(0)).astype(np.int64)
    return lengths


def _bytes_of_lists(array: Any, sizes: Array) -> Array:
    before = np.concatenate([[0], np.cumsum(sizes)])
    offsets = np.asarray(array.offsets)
    sums: Array = before[offsets[1:]] - before[offsets[:-1]]
    return sums


_DIGEST_BYTES = 16


def parts_schema(columns: T.StructType, id_type: str) -> T.StructType:
    """Return the columns of parts, for events with the given columns."""
    *fields, ids = lists_schema(columns, id_type).fields
    return T.StructType(
        [
            T.StructField("digest", T.BinaryType(), False),
            T.StructField("event", T.StructType(fields), True),
            T.StructField("ids", ids.dataType, False),
        ]
    )


def assemble_lists(parts: DataFrame, columns: T.StructType, id_type: str) -> DataFrame:
    """Return events with whole lists, all under plain names, from a DataFrame of all their parts."""
    whole = parts.groupBy("digest").agg(
        F.first("event", ignorenulls=True).alias("event"),
        F.count("event").alias("times"),
        F.array_distinct(F.flatten(F.collect_list("ids"))).alias("ids"),
    )
    return whole.select("event", "times", "ids").mapInArrow(_repeat_batches, lists_schema(columns, id_type))


# -- in workers --------------------------------------------------------------------------------------------------------


def event_parts(digest: pa.Array, first: Array, events: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
    """Return parts; `events` are NULL where they are not the `first` part."""
    kept = events.take(pa.array(np.arange(len(first)), pa.int64(), mask=~first))
    struct = pa.StructArray.from_arrays(kept.columns, plain_names(kept.num_columns), mask=pa.array(~first))
    return pa.RecordBatch.from_arrays([digest, struct, ids], ["digest", "event", "ids"])


def output_rows(rows: int, size: int) -> int:
    """Return how many rows an output batch may have, where so many rows take so many bytes."""
    return min(max(int(OUTPUT_BYTES * rows // max(size, 1)), 1), OUTPUT_ROWS)


def _repeat_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map events with their multiplicity and a list to events with lists."""
    for batch in batches:
        event, times, ids = batch.columns
        columns = [*event.flatten(), ids]
        flat = pa.RecordBatch.from_arrays(columns, plain_names(len(columns)))
        rows = np.repeat(np.arange(batch.num_rows), times.to_numpy())
        step = output_rows(batch.num_rows, flat.nbytes)
        for at in range(0, len(rows), step):
            yield flat.take(pa.array(rows[at : at + step]))


def digests(batch: pa.RecordBatch) -> pa.Array:
    """Return a digest of each row: two rows have the same only if they are equal, bit by bit."""
    wide = np.hstack([_encode(column) for column in batch.columns])
    return pa.array(_hash_ranges(wide.tobytes(), np.arange(batch.num_rows + 1) * wide.shape[1]), pa.binary())


def salts(digest: pa.Array) -> Array:
    """Return a number from 0 on for each digest, by which events are spread over tasks."""
    data = np.frombuffer(b"".join(digest.to_pylist()), "<u4").reshape(len(digest), -1)
    return data[:, 0].astype(np.int64)


def _encode(array: Any) -> Array:
    """Return the values of a column as equally many bytes each, equal only if the values are."""
    type_ = array.type
    valid = np.asarray(array.is_valid())
    there = valid.astype(np.uint8)[:, None]
    if not len(array) or pa.types.is_null(type_):
        return there
    if pa.types.is_struct(type_):
        return np.hstack([there, *map(_encode, array.flatten())])
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        within = [array.keys, array.items] if pa.types.is_map(type_) else [array.values]
        images = np.hstack([_encode(one) for one in within])
        return np.hstack([there, _digest_lists(images.tobytes(), np.asarray(array.offsets) * images.shape[1], valid)])
    if pa.types.is_boolean(type_):
        return np.hstack([there, np.asarray(array.fill_null(False)).astype(np.uint8)[:, None]])
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_) or pa.types.is_primitive(type_):
        return np.hstack([there, _encode_fixed(array, valid)])
    plain = pc.cast(pc.cast(array, pa.binary()), pa.large_binary())
    offsets = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
    data = plain.buffers()[2]
    return np.hstack([there, _digest_lists(b"" if data is None else data.to_pybytes(), offsets, valid)])


def _encode_fixed(array: Any, valid: Array) -> Array:
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    image = data.reshape(len(array), width).copy()
    image[~valid] = 0  # the bytes under a NULL are arbitrary, and equal rows would differ
    return image


def _digest_lists(data: bytes, offsets: Array, valid: Array) -> Array:
    hashed = _hash_ranges(data, offsets)
    image = np.frombuffer(b"".join(hashed), np.uint8).reshape(len(valid), _DIGEST_BYTES).copy()
    image[~valid] = 0
    return image


def _hash_ranges(data: bytes, offsets: Array) -> list[bytes]:
    """Return the digest of each stretch of some bytes."""
    view, bounds = memoryview(data), offsets.tolist()
    return [blake2b(view[begin:end], digest_size=_DIGEST_BYTES).digest() for begin, end in pairwise(bounds)]
