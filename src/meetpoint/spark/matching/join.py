"""The strategy `join`: events and subscriptions meet in an equi-join, and the whole filter is checked there.

A worker finds the keys of each event by the key index (see `routing`), which stays small; the index itself has no part
in this. Events are unfolded to their keys, the table of subscriptions has a row for each key of each subscription, and
Spark joins the two as it sees fit. What meets is a candidate. Where a subscription and an event share several keys,
they meet at the first of them only, so that each match is found once. Workers check candidates by the thousand: all
those of one subscription at a time, column by column, for which they are sorted by subscription.

A key at which much more is to be checked than at others would hold up the one task that it falls to. It is *salted*:
its events are dealt to several places, and its subscriptions stand at each. The place depends on nothing but what the
event holds, so that a task that is run again sends it the same way. Lists are brought together by `reuniting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.matching.tables.columns import Columns
from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.key_routes import Meeting, keys_of_events, meeting_of, wanted_tasks
from meetpoint.spark.matching.match_lists import (
    anonymous,
    digests,
    finished,
    listed_schema,
    parts_schema,
    plain_names,
    reunited,
    salts,
    to_parts,
)
from meetpoint.spark.matching.partitioned import refuse_lists_of_a_stream
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import Shipped, is_local, open_index, ship

__all__ = ["run"]

Array: TypeAlias = "np.ndarray[Any, Any]"

CHECK_ROWS, CHECK_BYTES = 1 << 18, 1 << 26
"""Candidates that are checked together: the more, the fewer times a filter is looked at."""
_PARSED_MAX = 1 << 16
"""Filters that a worker keeps parsed."""
_SALTS_MAX = 256
"""Places of one key."""


def run(events: Any, version: Version, *, result: str, how: str) -> Any:
    """The DataFrame of matches: `result` is pairs or lists, `how` a way of shipping."""
    from pyspark.sql import functions as F  # noqa: N812

    refuse_lists_of_a_stream(events, result, "join")
    spark, columns, id_type = events.sparkSession, events.schema, version.manifest.id_type
    meeting = meeting_of(spark, version)
    salted = _salted(meeting, wanted_tasks(spark))
    whole = result == "lists"
    route = partial(
        _route_batches,
        keys=ship(spark, meeting.keys_path, how),
        names=tuple(events.columns),
        salted=salted,
        whole=whole,
    )
    names = plain_names(len(columns.fields))
    routed = anonymous(events).mapInArrow(route, _routed_schema(columns))
    sent = routed.select(*names, "digest", "live", F.explode("places").alias("place"))
    subscriptions = _subscriptions(spark, meeting, salted, how)
    # For lists every event also goes to a place of its own, below 0, where it meets nobody.
    met = sent.join(subscriptions, "place", "left" if whole else "inner")
    first_met = F.array_min(F.array_intersect("live", "keys"))
    once = F.col("keys").isNull() | (F.col("key") == first_met)
    candidates = met.where((once & F.col("number").isNotNull()) | (F.col("place") < 0) if whole else once)
    check = partial(_check_batches, names=tuple(events.columns), id_type=ID_TYPES[id_type], whole=whole)
    asked = candidates.select(*names, "digest", "number", "id", "filter")
    if not events.isStreaming:  # Spark sorts no stream
        asked = asked.sortWithinPartitions("number")
    if whole:
        parts = asked.mapInArrow(check, parts_schema(columns, id_type))
        return finished(reunited(parts, columns, id_type), events.columns, result)
    return asked.mapInArrow(check, _pairs_schema(columns, id_type)).toDF(*events.columns, "subscription")


def _routed_schema(columns: Any) -> Any:
    from pyspark.sql import types

    numbers = types.ArrayType(types.IntegerType(), containsNull=False)
    return types.StructType(
        [
            *listed_schema(columns, "int").fields[:-1],
            types.StructField("digest", types.BinaryType(), True),
            types.StructField("live", numbers, False),
            types.StructField("places", numbers, False),
        ]
    )


def _pairs_schema(columns: Any, id_type: str) -> Any:
    from pyspark.sql import types

    *fields, ids = listed_schema(columns, id_type).fields
    return types.StructType([*fields, types.StructField(ids.name, ids.dataType.elementType, False)])


def _salted(meeting: Meeting, tasks: int) -> Array:
    """In how many places each key is met: several, where more than a task's part of all candidates is expected."""
    filed = meeting.filed(["keys"])["keys"].combine_chunks().flatten().to_numpy()
    shares = meeting.shares()
    candidates = shares * np.bincount(filed, minlength=len(shares))
    parts: Array = np.ceil(candidates / max(candidates.sum(), 1e-9) * tasks).astype(np.int64)
    return np.clip(parts, 1, _SALTS_MAX)


def _subscriptions(spark: Any, meeting: Meeting, salted: Array, how: str) -> Any:
    """A row for each place of each key of each subscription; `keys` only where it may meet an event at several."""
    from pyspark.sql import functions as F  # noqa: N812

    if how == "path" or (how == "auto" and is_local(spark)):
        filed = spark.read.parquet(str(meeting.filed_path))
    else:
        filed = spark.createDataFrame(meeting.filed(["number", "id", "filter", "keys", "several"]))
    rows = filed.select(
        "number",
        "id",
        "filter",
        F.when(F.col("several"), F.col("keys")).alias("keys"),
        F.explode("keys").alias("key"),
    )
    hot = np.flatnonzero(salted > 1)
    if not len(hot):
        return rows.withColumn("place", F.col("key"))
    # A key's first place has its own number; the others are behind all keys.
    places = pa.table({"hot": pa.array(np.repeat(hot, salted[hot]), pa.int32()), "place": _hot_places(salted)})
    also = rows.join(F.broadcast(spark.createDataFrame(places)), F.col("key") == F.col("hot"), "left")
    return also.withColumn("place", F.coalesce("place", "key")).drop("hot")


def _hot_places(salted: Array) -> pa.Array:
    """All places of the keys that have several, key by key."""
    hot = np.flatnonzero(salted > 1)
    others = np.split(np.arange(len(salted), len(salted) + int((salted - 1).sum())), np.cumsum(salted[hot] - 1)[:-1])
    return pa.array(np.concatenate([[key, *more] for key, more in zip(hot, others, strict=True)]), pa.int32())


# -- in workers --------------------------------------------------------------------------------------------------------


def _route_batches(
    batches: Iterable[pa.RecordBatch], *, keys: Shipped, names: tuple[str, ...], salted: Array, whole: bool
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events to events with their keys, the places where they are met, and a digest if need be."""
    index = open_index(keys)
    plain = plain_names(len(names))
    extra = salted - 1
    begins = len(salted) + np.cumsum(extra) - extra
    needs_digest = whole or bool(extra.any())
    for given in batches:
        for at in range(0, given.num_rows, match_lists.EVENTS):
            batch = given.slice(at, match_lists.EVENTS)
            digest = digests(batch) if needs_digest else pa.nulls(batch.num_rows, pa.binary())
            salt = salts(digest) if needs_digest else np.zeros(batch.num_rows, np.int64)
            starts, live = keys_of_events(index, pa.RecordBatch.from_arrays(batch.columns, names))
            chosen = np.repeat(salt, np.diff(starts)) % salted[live]
            places = np.where(chosen > 0, begins[live] + chosen - 1, live)
            offsets = pa.array(starts, pa.int32())
            lists = [pa.ListArray.from_arrays(offsets, pa.array(live, pa.int32()))]
            if whole:
                places = np.insert(places, starts[:-1], -1 - salt % _SALTS_MAX)
                offsets = pa.array(starts + np.arange(len(starts)), pa.int32())
            lists.append(pa.ListArray.from_arrays(offsets, pa.array(places, pa.int32())))
            yield pa.RecordBatch.from_arrays([*batch.columns, digest, *lists], [*plain, "digest", "live", "places"])


def _check_batches(
    batches: Iterable[pa.RecordBatch], *, names: tuple[str, ...], id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: candidates to matches, or to parts of events with lists."""
    for chunk in _chunks(batches):
        events = pa.RecordBatch.from_arrays(chunk.columns[: len(names)], names)
        numbers = chunk.column("number")
        accepted = _accepted(events, np.asarray(numbers.fill_null(-1)), chunk.column("filter"))
        if whole:
            accepted = np.sort(np.concatenate([accepted, np.flatnonzero(numbers.is_null())]))
        step = int(match_lists.OUTPUT_BYTES * chunk.num_rows // max(chunk.nbytes, 1))
        step = min(max(step, 1), match_lists.OUTPUT_ROWS)
        for at in range(0, len(accepted), step):
            some = chunk.take(pa.array(accepted[at : at + step]))
            columns, ids = some.columns[: len(names)], some.column("id")
            if not whole:
                yield pa.RecordBatch.from_arrays([*columns, ids], plain_names(len(names) + 1))
                continue
            listed = ids.is_valid().cast(pa.int32()).to_numpy(zero_copy_only=False)
            offsets = pa.array(np.concatenate([[0], np.cumsum(listed)]), pa.int32())
            lists = pa.ListArray.from_arrays(offsets, ids.drop_null())
            events = pa.RecordBatch.from_arrays(columns, plain_names(len(names)))
            yield to_parts(some.column("digest"), listed == 0, events, lists)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHECK_ROWS or size >= CHECK_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size = [], 0, 0
    if rows:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _accepted(events: pa.RecordBatch, numbers: Array, texts: pa.Array) -> Array:
    """The rows whose event is accepted by the filter of the same row; rows of one number have one filter."""
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
