"""The strategy `broadcast`: every worker maps the whole index and matches the Arrow batches that come by.

A worker sends an event once with the list of ids, rather than once for each of them, and Spark unfolds the lists: that
moves far less. Lists are cut, and so are batches, so that no buffer need hold more than a bounded part of what matches;
only where whole lists are the result is a list as long as it must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.matching.index import Index, Pairs
from meetpoint.matching.index.kernels.results import group_by_event
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import Shipped, open_index, ship

__all__ = ["anonymous", "finished", "listed_schema", "match_batch", "plain_names", "run"]

Array: TypeAlias = "np.ndarray[Any, Any]"

EVENTS = 16_384
"""Events that are matched at a time."""
HELD_PAIRS = 1 << 20
"""Matches that are held at a time, but for those of one event whose whole list is wanted."""
LIST_MAX = 1 << 16
"""Ids in a list that is to be unfolded."""
OUTPUT_ROWS, OUTPUT_BYTES = 1 << 14, 1 << 24
"""Rows and bytes of an output batch; a single row may be larger."""


def run(events: Any, version: Version, *, result: str, how: str) -> Any:
    """The DataFrame of matches: `result` is pairs or lists, `how` a way of shipping."""
    id_type = version.manifest.id_type
    work = partial(
        _match_batches,
        shipped=ship(events.sparkSession, version.index_path, how),
        names=tuple(events.columns),
        id_type=ID_TYPES[id_type],
        whole=result == "lists",
    )
    listed = anonymous(events).mapInArrow(work, listed_schema(events.schema, id_type))
    return finished(listed, events.columns, result)


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


def _match_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    shipped: Shipped,
    names: tuple[str, ...],
    id_type: pa.DataType,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events to events with lists."""
    index = open_index(shipped)
    for batch in batches:
        named = pa.RecordBatch.from_arrays(batch.columns, names)
        for at in range(0, named.num_rows, EVENTS):
            yield from match_batch(index, named.slice(at, EVENTS), id_type, whole)


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
