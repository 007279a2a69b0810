"""Events that were sent to several tasks, brought together again as events with whole lists.

A number that a task gives an event would be another one if the task ran again, after its machine was lost, and met its
rows in another order: half of the parts would then find no other half. So the parts of an event come together by what
the event holds, by a digest of all its columns. Events that hold the same are one until the end, where they come as
often as there were of them; since the same subscriptions accept them, nobody can tell which was which. Whatever is run
again, in whatever order, gives the same parts, as long as the events themselves are the same.

A part is a digest, an event (in one of its parts, its *first*, and NULL in the others) and some ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.spark.matching import broadcast as broadcast_match
from meetpoint.spark.matching.broadcast import listed_schema, plain_names

__all__ = ["digests", "parts_schema", "reunited", "salts", "to_parts"]

Array: TypeAlias = "np.ndarray[Any, Any]"

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
        step = int(broadcast_match.OUTPUT_BYTES * batch.num_rows // max(flat.nbytes, 1))
        step = min(max(step, 1), broadcast_match.OUTPUT_ROWS)
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
