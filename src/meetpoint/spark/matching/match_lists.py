"""The strategy `broadcast`: every worker maps the whole index and matches the Arrow batches that come by.

A worker sends an event once with the list of ids, rather than once for each of them, and Spark unfolds the lists: that
moves far less. Lists are cut, and so are batches, so that no buffer need hold more than a bounded part of what matches;
only where whole lists are the result is a list as long as it must be.


Events that were sent to several tasks, brought together again as events with whole lists.

A number that a task gives an event would be another one if the task ran again, after its machine was lost, and met its
rows in another order: half of the parts would then find no other half. So the parts of an event come together by what
the event holds, by a digest of all its columns. Events that hold the same are one until the end, where they come as
often as there were of them; since the same subscriptions accept them, nobody can tell which was which. Whatever is run
again, in whatever order, gives the same parts, as long as the events themselves are the same.

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

from meetpoint.matching.index import Index, Pairs
from meetpoint.matching.index.kernels.bucket_scan import group_by_event

__all__ = [
    "anonymous",
    "digests",
    "finished",
    "listed_schema",
    "match_batch",
    "parts_schema",
    "plain_names",
    "reunited",
    "salts",
    "to_parts",
]

Array: TypeAlias = "np.ndarray[Any, Any]"

EVENTS = 16_384
"""Events that are matched at a time."""
HELD_PAIRS = 1 << 20
"""Matches that are held at a time, but for those of one event whose whole list is wanted."""
LIST_MAX = 1 << 16
"""Ids in a list that is to be unfolded."""
OUTPUT_ROWS, OUTPUT_BYTES = 1 << 14, 1 << 24
"""Rows and bytes of an output batch; a single row may be larger."""


# -- frames, which all strategies share --------------------------------------------------------------------------------


def plain_names(count: int) -> list[str]:
    """Names for columns on their way to the workers and back.

    A name of the caller's may hold a dot, which Spark reads as a path, or be the one of what is added.
    """
    return [f"c{at}" for at in range(count)]


def anonymous(events: Any) -> Any:
    """The same columns under plain names."""
    return events.toDF(*plain_names(len(events.columns)))


def listed_schema(columns: Any, id_type: str) -> Any:
    """The columns of events and the array of ids, all under plain names."""
    from pyspark.sql import types

    id_ = {
        "string": types.StringType,
        "tinyint": types.ByteType,
        "smallint": types.ShortType,
        "int": types.IntegerType,
        "bigint": types.LongType,
    }[id_type]()
    types_of = [(field.dataType, field.nullable, field.metadata) for field in columns.fields]
    types_of.append((types.ArrayType(id_, containsNull=False), False, None))
    return types.StructType(
        [types.StructField(name, *of) for name, of in zip(plain_names(len(types_of)), types_of, strict=True)]
    )


def finished(listed: Any, names: Sequence[str], result: str) -> Any:
    """Events with lists, under plain names, as what is wanted under the names of the events' columns."""
    from pyspark.sql import functions as F  # noqa: N812

    if result == "lists":
        return listed.toDF(*names, "subscriptions")
    *columns, lists = listed.columns
    return listed.select(*columns, F.explode(lists)).toDF(*names, "subscription")


# -- in workers --------------------------------------------------------------------------------------------------------


def match_batch(
    index: Index[Any], batch: pa.RecordBatch, id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    """The columns of events and a list of ids, under plain names.

    Where lists are `whole`, every event comes once, in their order. Else an event comes as often as its lists are cut,
    and not at all where nothing accepts it.
    """
    ids = pa.array([], id_type)
    held: list[Pairs] = []
    count = 0
    for pairs in index.pairs(batch, batch=EVENTS):
        ids = pairs.ids  # always those of the one segment that a compiled index has
        held.append(pairs)
        count += len(pairs.events)
        if count >= HELD_PAIRS and not whole:
            yield from _cut_lists(batch, held, ids)
            held, count = [], 0
        elif count >= HELD_PAIRS and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from match_batch(index, batch.slice(0, half), id_type, whole)
            yield from match_batch(index, batch.slice(half), id_type, whole)
            return
    yield from _whole_lists(batch, held, ids) if whole else _cut_lists(batch, held, ids)


def _whole_lists(batch: pa.RecordBatch, held: list[Pairs], ids: pa.Array) -> Iterator[pa.RecordBatch]:
    starts, numbers = _by_event(held, batch.num_rows)
    return _batches(batch, np.arange(batch.num_rows), starts, numbers, ids)


def _cut_lists(batch: pa.RecordBatch, held: list[Pairs], ids: pa.Array) -> Iterator[pa.RecordBatch]:
    starts, numbers = _by_event(held, batch.num_rows)
    begins = np.union1d(starts[:-1][np.diff(starts) > 0], np.arange(0, len(numbers), LIST_MAX))
    events = np.searchsorted(starts, begins, "right") - 1
    return _batches(batch, events, np.append(begins, len(numbers)), numbers, ids)


def _by_event(held: list[Pairs], events: int) -> tuple[Array, Array]:
    """The numbers of subscriptions by event, and where those of each event begin."""
    none = np.zeros(0, np.int32)
    numbers = np.concatenate([none, *(pairs.subscriptions for pairs in held)])
    starts, grouped = np.zeros(events + 1, np.int64), np.empty_like(numbers)
    group_by_event(np.concatenate([none, *(pairs.events for pairs in held)]), numbers, starts, grouped)
    return starts, grouped


def _batches(
    batch: pa.RecordBatch, rows: Array, starts: Array, numbers: Array, ids: pa.Array
) -> Iterator[pa.RecordBatch]:
    """Rows of a batch by their numbers, each with its list, in batches of bounded size."""
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
    """About how many bytes each row takes."""
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


def parts_schema(columns: Any, id_type: str) -> Any:
    """The columns of parts, for events with the given columns."""
    from pyspark.sql import types

    *fields, ids = listed_schema(columns, id_type).fields
    return types.StructType(
        [
            types.StructField("digest", types.BinaryType(), False),
            types.StructField("event", types.StructType(fields), True),
            types.StructField("ids", ids.dataType, False),
        ]
    )


def reunited(parts: Any, columns: Any, id_type: str) -> Any:
    """Events with lists, all under plain names, from a DataFrame of all their parts."""
    from pyspark.sql import functions as F  # noqa: N812

    whole = parts.groupBy("digest").agg(
        F.first("event", ignorenulls=True).alias("event"),
        F.count("event").alias("times"),
        F.array_distinct(F.flatten(F.collect_list("ids"))).alias("ids"),
    )
    return whole.select("event", "times", "ids").mapInArrow(_repeat_batches, listed_schema(columns, id_type))


# -- in workers --------------------------------------------------------------------------------------------------------


def to_parts(digest: pa.Array, first: Array, events: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
    """Parts: `events` are dropped where they are not the `first` part."""
    kept = events.take(pa.array(np.arange(len(first)), pa.int64(), mask=~first))
    struct = pa.StructArray.from_arrays(kept.columns, plain_names(kept.num_columns), mask=pa.array(~first))
    return pa.RecordBatch.from_arrays([digest, struct, ids], ["digest", "event", "ids"])


def _repeat_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events with how many there are of each, and a list, to events with lists."""
    for batch in batches:
        event, times, ids = batch.columns
        columns = [*event.flatten(), ids]
        flat = pa.RecordBatch.from_arrays(columns, plain_names(len(columns)))
        rows = np.repeat(np.arange(batch.num_rows), times.to_numpy())
        step = int(OUTPUT_BYTES * batch.num_rows // max(flat.nbytes, 1))
        step = min(max(step, 1), OUTPUT_ROWS)
        for at in range(0, len(rows), step):
            yield flat.take(pa.array(rows[at : at + step]))


def digests(batch: pa.RecordBatch) -> pa.Array:
    """A digest of each row: rows have one only if they hold the same, bit by bit."""
    wide = np.hstack([_image(column) for column in batch.columns])
    return pa.array(_hashed(wide.tobytes(), np.arange(batch.num_rows + 1) * wide.shape[1]), pa.binary())


def salts(digest: pa.Array) -> Array:
    """A number from 0 on for each digest, by which events are dealt out."""
    data = np.frombuffer(b"".join(digest.to_pylist()), "<u4").reshape(len(digest), -1)
    return data[:, 0].astype(np.int64)


def _image(array: Any) -> Array:
    """The values of a column as as many bytes each, equal only if the values are."""
    type_ = array.type
    valid = np.asarray(array.is_valid())
    there = valid.astype(np.uint8)[:, None]
    if not len(array) or pa.types.is_null(type_):
        return there
    if pa.types.is_struct(type_):
        return np.hstack([there, *map(_image, array.flatten())])
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        within = [array.keys, array.items] if pa.types.is_map(type_) else [array.values]
        images = np.hstack([_image(one) for one in within])
        return np.hstack([there, _digest_lists(images.tobytes(), np.asarray(array.offsets) * images.shape[1], valid)])
    if pa.types.is_boolean(type_):
        return np.hstack([there, np.asarray(array.fill_null(False)).astype(np.uint8)[:, None]])
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_) or pa.types.is_primitive(type_):
        return np.hstack([there, _fixed(array, valid)])
    plain = pc.cast(pc.cast(array, pa.binary()), pa.large_binary())
    offsets = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
    data = plain.buffers()[2]
    return np.hstack([there, _digest_lists(b"" if data is None else data.to_pybytes(), offsets, valid)])


def _fixed(array: Any, valid: Array) -> Array:
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    image = data.reshape(len(array), width).copy()
    image[~valid] = 0  # what lies under a NULL is no value
    return image


def _digest_lists(data: bytes, offsets: Array, valid: Array) -> Array:
    hashed = _hashed(data, offsets)
    image = np.frombuffer(b"".join(hashed), np.uint8).reshape(len(valid), _DIGEST_BYTES).copy()
    image[~valid] = 0
    return image


def _hashed(data: bytes, offsets: Array) -> list[bytes]:
    """The digest of each stretch of some bytes."""
    view, bounds = memoryview(data), offsets.tolist()
    return [blake2b(view[begin:end], digest_size=_DIGEST_BYTES).digest() for begin, end in pairwise(bounds)]
