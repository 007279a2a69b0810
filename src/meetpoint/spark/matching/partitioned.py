"""The strategy `partitioned`: the index is split, and every event goes to the parts that may accept it.

Each subscription is in one shard, so each match is found once. Subscriptions are sorted by their first keys and cut
into stretches of equal weight: nearby keys lie together, so an event goes to few shards, and a key with many
subscriptions is spread over several. A worker finds the keys of an event by the key index (see `key_routes`), and a
table gives the shards that have subscriptions under a key. Events are then shuffled to *slots*, a task each: a shard
has one slot, or several where more than its share of the work is expected. So a task maps one shard, and no more.

The slot of a shard that an event goes to depends on nothing but the event's content: a task that is run again sends it
the same way. Lists are assembled by `match_lists`. A stream gives pairs; whole lists of a stream would have to be held
back until nothing more can come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import MeetpointError
from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.key_routes import KeyTable, keyed_batches, open_key_table, shuffle_tasks
from meetpoint.spark.matching.match_lists import (
    assemble_lists,
    event_parts,
    lists_schema,
    match_batch,
    parts_schema,
    plain_names,
    to_result,
    with_plain_names,
)
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import SHARDS_FOLDER, Version, add_part
from meetpoint.spark.worker_files import WorkerFile, open_index, ship

__all__ = ["refuse_lists_of_a_stream", "run", "sharded_index"]

Array: TypeAlias = "np.ndarray[Any, Any]"

SHARD_BYTES = 1 << 27
"""The bytes of index in a shard, where the caller does not give the number of shards."""
SHARDS_MAX = 4096
_ROUTES_FILE = "routes.npz"

_log = logging.getLogger("meetpoint.spark")


class ShardedIndex(msgspec.Struct, frozen=True):
    """The shards of an index, and the table that leads from keys to shards."""

    folder: Path
    starts: Array  # int64[keys + 1] the start of each key's shards
    shards: Array  # int32[] the shards with subscriptions under a key, by key
    held: Array  # int64[shards] the number of subscriptions; an empty shard has no file
    work: Array  # float64[shards] the expected part of all work

    def path(self, shard: int) -> Path:
        return self.folder / _shard_name(shard)


def run(events: DataFrame, version: Version, *, result: str, how: str, shards: int | None = None) -> DataFrame:
    """Return the DataFrame of matches.

    `result` is pairs or lists, `how` the way that files get to workers, `shards` the number of shards.
    """
    refuse_lists_of_a_stream(events, result, "partitioned")
    spark, columns, id_type = events.sparkSession, events.schema, version.manifest.id_type
    key_table = open_key_table(spark, version)
    split = sharded_index(version, key_table, shards)
    copies = np.maximum(np.rint(split.work * shuffle_tasks(spark)), 1).astype(np.int64)
    first_slots = np.cumsum(copies) - copies
    slots = int(copies.sum())
    whole = result == "lists"
    route = partial(
        _route_batches,
        keys=ship(spark, key_table.keys_path, how),
        names=tuple(events.columns),
        starts=split.starts,
        shards=split.shards,
        first_slots=first_slots,
        copies=copies,
        whole=whole,
    )
    names = plain_names(len(columns.fields))
    routed = with_plain_names(events).mapInArrow(route, _routed_schema(columns))
    sent = routed.select(*names, "digest", F.posexplode("slots").alias("place", "slot"))
    sent = _to_slots(sent.select(*names, "digest", (F.col("place") == 0).alias("first"), "slot"), slots)
    work = partial(
        _match_batches,
        shipped=tuple(ship(spark, split.path(at), how) if held else None for at, held in enumerate(split.held)),
        shard_of=np.repeat(np.arange(len(copies)), copies),
        names=tuple(events.columns),
        id_type=ID_TYPES[id_type],
        whole=whole,
    )
    if not whole:
        return to_result(sent.mapInArrow(work, lists_schema(columns, id_type)), events.columns, result)
    parts = sent.mapInArrow(work, parts_schema(columns, id_type))
    return to_result(assemble_lists(parts, columns, id_type), events.columns, result)


def refuse_lists_of_a_stream(events: DataFrame, result: str, strategy: str) -> None:
    """Raise MeetpointError for lists of a stream, which only the whole index can give event by event."""
    if events.isStreaming and result == "lists":
        raise MeetpointError(
            f"events: the DataFrame is a stream, of which strategy={strategy!r} gives no lists, since their parts "
            "would wait for each other; use result='pairs', strategy='broadcast', or match each batch in foreachBatch"
        )


def _routed_schema(columns: T.StructType) -> T.StructType:
    fields = lists_schema(columns, "int").fields[:-1]
    return T.StructType(
        [
            *fields,
            T.StructField("digest", T.BinaryType(), True),
            T.StructField("slots", T.ArrayType(T.IntegerType(), containsNull=False), False),
        ]
    )


def _to_slots(sent: DataFrame, slots: int) -> DataFrame:
    """Shuffle so that each slot is a task; where Spark cannot, so that a task has one slot after the other."""
    if hasattr(sent, "repartitionById"):  # new in Spark 4.1
        return sent.repartitionById(slots, "slot")
    shuffled = sent.repartition(slots, "slot")
    return shuffled if sent.isStreaming else shuffled.sortWithinPartitions("slot")


# -- the split ---------------------------------------------------------------------------------------------------------


def sharded_index(version: Version, key_table: KeyTable, shards: int | None) -> ShardedIndex:
    """Return the shards of a version, made now if they were not before."""
    count = min(max(-(-version.index_bytes // SHARD_BYTES), 2), SHARDS_MAX) if shards is None else shards
    if type(count) is not int or not 1 <= count <= SHARDS_MAX:
        raise MeetpointError(f"shards is {count!r}; give a number from 1 to {SHARDS_MAX:,}")
    folder = add_part(version, f"{SHARDS_FOLDER}/{count}", lambda folder: _build(folder, version, key_table, count))
    with np.load(folder / _ROUTES_FILE) as routes:
        return ShardedIndex(folder, **{name: routes[name] for name in ("starts", "shards", "held", "work")})


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05}.mpx"


def _build(folder: Path, version: Version, key_table: KeyTable, count: int) -> None:
    from meetpoint.matching.index.rank_form import keep, merge
    from meetpoint.matching.index.segment import Segment
    from meetpoint.matching.index.storage import load, save

    started = time.perf_counter()
    entries = key_table.entries(["keys", "share"])
    keys_of = entries["keys"].combine_chunks()
    shard = _assign_shards(keys_of, entries["share"].to_numpy(), count)
    segments, sample = load(str(version.index_path))
    for segment, ids, _, _ in segments:  # a compiled index has one segment, an empty one none
        rows = segment.rows.unpacked()
        for number in np.unique(shard[shard >= 0]).tolist():
            kept = shard == number
            part = Segment.of_rows(merge([keep(rows, kept)]), sample)
            kept_ids = ids.filter(pa.array(kept))
            save(str(folder / _shard_name(number)), [(part, kept_ids, np.arange(len(kept_ids)), None)], sample)
    _write_routes(folder / _ROUTES_FILE, key_table, keys_of, shard, entries["share"].to_numpy(), count)
    _log.info("match: the index split into %s shards in %.1f s", f"{count:,}", time.perf_counter() - started)


def _assign_shards(keys_of: pa.Array, shares: Array, count: int) -> Array:
    """Return the shard of each subscription, half by size and half by expected work; -1 where it accepts nothing."""
    lengths = keys_of.value_lengths().to_numpy()
    some = np.flatnonzero(lengths > 0)
    first_keys = keys_of.flatten().to_numpy()[(np.cumsum(lengths) - lengths)[some]]
    order = some[np.argsort(first_keys, kind="stable")]
    weights = 1.0 / max(len(order), 1) + shares[order] / max(shares[order].sum(), 1e-9)
    before = np.cumsum(weights) - weights
    shard = np.full(len(lengths), -1, np.int64)
    shard[order] = np.minimum((before / max(weights.sum(), 1e-9) * count).astype(np.int64), count - 1)
    return shard


def _write_routes(path: Path, key_table: KeyTable, keys_of: pa.Array, shard: Array, shares: Array, count: int) -> None:
    key_shares = key_table.shares()
    lengths = keys_of.value_lengths().to_numpy()
    routes = np.unique(keys_of.flatten().to_numpy().astype(np.int64) * count + np.repeat(shard, lengths))
    keys, shards = np.divmod(routes, count)
    is_stored = shard >= 0
    events = np.minimum(np.bincount(shards, weights=key_shares[keys], minlength=count), 1.0)
    candidates = np.bincount(shard[is_stored], weights=shares[is_stored], minlength=count)
    work = events / max(events.sum(), 1e-9) + candidates / max(candidates.sum(), 1e-9)
    np.savez(
        path,
        starts=np.searchsorted(keys, np.arange(len(key_shares) + 1)),
        shards=shards.astype(np.int32),
        held=np.bincount(shard[is_stored], minlength=count),
        work=work / max(work.sum(), 1e-9),
    )


# -- in the workers ----------------------------------------------------------------------------------------------------


def _route_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    keys: WorkerFile,
    names: tuple[str, ...],
    starts: Array,
    shards: Array,
    first_slots: Array,
    copies: Array,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """Map events to events with the slots that they go to, and a digest where one is needed.

    An event that nothing can accept goes nowhere, or, where every event is wanted, to any slot.
    """
    index = open_index(keys)
    plain = plain_names(len(names))
    needs_digest = whole or int(copies.max(initial=1)) > 1
    for batch, digest, salt, key_starts, event_keys in keyed_batches(batches, index, names, needs_digest=needs_digest):
        events, to = _shards_of(key_starts, event_keys, starts, shards, len(copies))
        slots = first_slots[to] + salt[events] % copies[to]
        counts = np.bincount(events, minlength=batch.num_rows)
        if whole:
            idle = np.flatnonzero(counts == 0)
            slots = np.insert(slots, (np.cumsum(counts) - counts)[idle], salt[idle] % copies.sum())
            counts[idle] = 1
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.array(slots, pa.int32()))
        yield pa.RecordBatch.from_arrays([*batch.columns, digest, lists], [*plain, "digest", "slots"])


def _shards_of(key_starts: Array, event_keys: Array, starts: Array, shards: Array, count: int) -> tuple[Array, Array]:
    """Return events and their shards, pair by pair, in order, none twice."""
    lengths = starts[event_keys + 1] - starts[event_keys]
    ends = np.cumsum(lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
    shard = shards[np.repeat(starts[event_keys], lengths) + within].astype(np.int64)
    events = np.repeat(np.repeat(np.arange(len(key_starts) - 1), np.diff(key_starts)), lengths)
    events, shard = np.divmod(np.unique(events * count + shard), count)
    return events, shard


def _match_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    shipped: tuple[WorkerFile | None, ...],
    shard_of: Array,
    names: tuple[str, ...],
    id_type: pa.DataType,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """Map events in slots to events with lists, or to parts of such."""
    for given in batches:
        shards = shard_of[given.column("slot").to_numpy()]
        for shard in np.unique(shards).tolist():
            batch = given.take(pa.array(np.flatnonzero(shards == shard)))
            for at in range(0, batch.num_rows, match_lists.EVENTS):
                yield from _match_shard(batch.slice(at, match_lists.EVENTS), shipped[shard], names, id_type, whole)


def _match_shard(
    batch: pa.RecordBatch, shipped: WorkerFile | None, names: tuple[str, ...], id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    named = pa.RecordBatch.from_arrays(batch.columns[: len(names)], names)
    if shipped is not None:
        found = match_batch(open_index(shipped), named, id_type, whole)
    else:  # the shard is empty, but with whole lists every event must come back
        none = pa.array([[]] * batch.num_rows, pa.list_(id_type))
        found = iter([pa.RecordBatch.from_arrays([*named.columns, none], plain_names(len(names) + 1))])
    if not whole:
        yield from found
        return
    digest, first = batch.column("digest"), np.asarray(batch.column("first"))
    at = 0
    for listed_batch in found:
        end = at + listed_batch.num_rows
        listed = pa.RecordBatch.from_arrays(listed_batch.columns[:-1], listed_batch.schema.names[:-1])
        yield event_parts(digest.slice(at, listed_batch.num_rows), first[at:end], listed, listed_batch.columns[-1])
        at = end
