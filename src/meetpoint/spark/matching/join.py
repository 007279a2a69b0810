"""The strategy `join`: events and subscriptions meet in an equi-join, and the whole filter is checked there.

A worker finds the keys of each event by the key index (see `key_routes`), which stays small; the index itself is not
used. Events are unfolded to their keys, the table of subscriptions has a row for each key of each subscription, and
Spark joins the two as it sees fit. A joined row is a candidate. Where a subscription and an event share several keys,
only the first of them counts, so that each match is found once. Workers check candidates by the thousand: all those of
one subscription at a time, column by column, for which they are sorted by subscription.

A key with many more candidates than others would hold up the one task that it falls to. It is *salted*: its events are
spread over several places, and its subscriptions stand at each. The place depends on nothing but the event's content,
so that a task that is run again sends it the same way. Lists are assembled by `match_lists`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.matching.tables.columns import Columns
from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.key_routes import KeyTable, keyed_batches, open_key_table, shuffle_tasks
from meetpoint.spark.matching.match_lists import (
    assemble_lists,
    event_parts,
    lists_schema,
    parts_schema,
    plain_names,
    to_result,
    with_plain_names,
)
from meetpoint.spark.matching.partitioned import refuse_lists_of_a_stream
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import WorkerFile, is_local, open_index, ship

__all__ = ["run"]

Array: TypeAlias = "np.ndarray[Any, Any]"

CHECK_ROWS, CHECK_BYTES = 1 << 18, 1 << 26
"""The candidates that are checked together: the more, the fewer times a filter is evaluated."""
_PARSED_MAX = 1 << 16
"""The number of filters that a worker keeps parsed."""
_SALTS_MAX = 256
"""The most places of one key."""


def run(events: DataFrame, version: Version, *, result: str, how: str) -> DataFrame:
    """Return the DataFrame of matches: `result` is pairs or lists, `how` the way that the key index gets to workers."""
    refuse_lists_of_a_stream(events, result, "join")
    spark, columns, id_type = events.sparkSession, events.schema, version.manifest.id_type
    key_table = open_key_table(spark, version)
    salted = _salt_counts(key_table, shuffle_tasks(spark))
    whole = result == "lists"
    route = partial(
        _route_batches,
        keys=ship(spark, key_table.keys_path, how),
        names=tuple(events.columns),
        salted=salted,
        whole=whole,
    )
    names = plain_names(len(columns.fields))
    routed = with_plain_names(events).mapInArrow(route, _routed_schema(columns))
    sent = routed.select(*names, "digest", "live", F.explode("places").alias("place"))
    subscriptions = _subscriptions(spark, key_table, salted, how)
    # For lists every event also goes to a place below 0, where no subscription is: one without matches must come back.
    met = sent.join(subscriptions, "place", "left" if whole else "inner")
    first_met = F.array_min(F.array_intersect("live", "keys"))
    once = F.col("keys").isNull() | (F.col("key") == first_met)
    candidates = met.where((once & F.col("number").isNotNull()) | (F.col("place") < 0) if whole else once)
    check = partial(_check_batches, names=tuple(events.columns), id_type=ID_TYPES[id_type], whole=whole)
    candidates = candidates.select(*names, "digest", "number", "id", "filter")
    if not events.isStreaming:  # Spark cannot sort a stream
        candidates = candidates.sortWithinPartitions("number")
    if whole:
        parts = candidates.mapInArrow(check, parts_schema(columns, id_type))
        return to_result(assemble_lists(parts, columns, id_type), events.columns, result)
    return candidates.mapInArrow(check, _pairs_schema(columns, id_type)).toDF(*events.columns, "subscription")


def _routed_schema(columns: T.StructType) -> T.StructType:
    numbers = T.ArrayType(T.IntegerType(), containsNull=False)
    return T.StructType(
        [
            *lists_schema(columns, "int").fields[:-1],
            T.StructField("digest", T.BinaryType(), True),
            T.StructField("live", numbers, False),
            T.StructField("places", numbers, False),
        ]
    )


def _pairs_schema(columns: T.StructType, id_type: str) -> T.StructType:
    *fields, ids = lists_schema(columns, id_type).fields
    return T.StructType([*fields, T.StructField(ids.name, match_lists.id_column_type(id_type), False)])


def _salt_counts(key_table: KeyTable, tasks: int) -> Array:
    """Return the number of places of each key: several, where more than a task's part of all candidates is expected."""
    entries = key_table.entries(["keys"])["keys"].combine_chunks().flatten().to_numpy()
    shares = key_table.shares()
    candidates = shares * np.bincount(entries, minlength=len(shares))
    parts: Array = np.ceil(candidates / max(candidates.sum(), 1e-9) * tasks).astype(np.int64)
    return np.clip(parts, 1, _SALTS_MAX)


def _subscriptions(spark: SparkSession, key_table: KeyTable, salted: Array, how: str) -> DataFrame:
    """Return a row for each place of each key of each subscription; `keys` only where several may meet an event."""
    if how == "path" or (how == "auto" and is_local(spark)):
        entries = spark.read.parquet(str(key_table.entries_path))
    else:
        entries = spark.createDataFrame(key_table.entries(["number", "id", "filter", "keys", "several"]))
    rows = entries.select(
        "number", "id", "filter", F.when(F.col("several"), F.col("keys")).alias("keys"), F.explode("keys").alias("key")
    )
    hot = np.flatnonzero(salted > 1)
    if not len(hot):
        return rows.withColumn("place", F.col("key"))
    # A key's first place has the key's own number; the other places are numbered after all keys.
    places = pa.table({"hot": pa.array(np.repeat(hot, salted[hot]), pa.int32()), "place": _hot_places(salted)})
    salted_rows = rows.join(F.broadcast(spark.createDataFrame(places)), F.col("key") == F.col("hot"), "left")
    return salted_rows.withColumn("place", F.coalesce("place", "key")).drop("hot")


def _hot_places(salted: Array) -> pa.Array:
    """Return all places of the keys that have several, key by key."""
    hot = np.flatnonzero(salted > 1)
    others = np.split(np.arange(len(salted), len(salted) + int((salted - 1).sum())), np.cumsum(salted[hot] - 1)[:-1])
    return pa.array(np.concatenate([[key, *more] for key, more in zip(hot, others, strict=True)]), pa.int32())


# -- in the workers ----------------------------------------------------------------------------------------------------


def _route_batches(
    batches: Iterable[pa.RecordBatch], *, keys: WorkerFile, names: tuple[str, ...], salted: Array, whole: bool
) -> Iterator[pa.RecordBatch]:
    """Map events to events with their keys, the places where they are met, and a digest if needed."""
    index = open_index(keys)
    plain = plain_names(len(names))
    extra = salted - 1
    begins = len(salted) + np.cumsum(extra) - extra
    needs_digest = whole or bool(extra.any())
    for batch, digest, salt, starts, keys_met in keyed_batches(batches, index, names, needs_digest=needs_digest):
        chosen = np.repeat(salt, np.diff(starts)) % salted[keys_met]
        places = np.where(chosen > 0, begins[keys_met] + chosen - 1, keys_met)
        offsets = pa.array(starts, pa.int32())
        lists = [pa.ListArray.from_arrays(offsets, pa.array(keys_met, pa.int32()))]
        if whole:
            places = np.insert(places, starts[:-1], -1 - salt % _SALTS_MAX)
            offsets = pa.array(starts + np.arange(len(starts)), pa.int32())
        lists.append(pa.ListArray.from_arrays(offsets, pa.array(places, pa.int32())))
        yield pa.RecordBatch.from_arrays([*batch.columns, digest, *lists], [*plain, "digest", "live", "places"])


def _check_batches(
    batches: Iterable[pa.RecordBatch], *, names: tuple[str, ...], id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    """Map candidates to matches, or to parts of events with lists."""
    for chunk in _chunks(batches):
        events = pa.RecordBatch.from_arrays(chunk.columns[: len(names)], names)
        numbers = chunk.column("number")
        accepted = _accepted(events, np.asarray(numbers.fill_null(-1)), chunk.column("filter"))
        if whole:
            accepted = np.sort(np.concatenate([accepted, np.flatnonzero(numbers.is_null())]))
        step = match_lists.output_rows(chunk.num_rows, chunk.nbytes)
        for at in range(0, len(accepted), step):
            matched = chunk.take(pa.array(accepted[at : at + step]))
            columns, ids = matched.columns[: len(names)], matched.column("id")
            if not whole:
                yield pa.RecordBatch.from_arrays([*columns, ids], plain_names(len(names) + 1))
                continue
            listed = ids.is_valid().cast(pa.int32()).to_numpy(zero_copy_only=False)
            offsets = pa.array(np.concatenate([[0], np.cumsum(listed)]), pa.int32())
            lists = pa.ListArray.from_arrays(offsets, ids.drop_null())
            events = pa.RecordBatch.from_arrays(columns, plain_names(len(names)))
            yield event_parts(matched.column("digest"), listed == 0, events, lists)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHECK_ROWS or size >= CHECK_BYTES:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _accepted(events: pa.RecordBatch, numbers: Array, texts: pa.Array) -> Array:
    """Return the rows whose event is accepted by the filter of the same row; rows of one number have one filter."""
    columns = Columns.of_batch(events)
    order = np.argsort(numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], 0) :]
    begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    groups = np.split(order, begins[1:]) if len(order) else []
    found = [columns.accepted(_parsed(texts[int(rows[0])].as_py()), rows) for rows in groups]
    return np.sort(np.concatenate([order[:0], *found]))


@lru_cache(_PARSED_MAX)
def _parsed(text: str) -> Filter:
    return _parser().parse(text)


@lru_cache(1)
def _parser() -> FilterParser:
    return FilterParser()
