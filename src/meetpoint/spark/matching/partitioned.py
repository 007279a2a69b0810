"""The strategy `partitioned`: the index is split, and every event goes to the parts that may accept it.

Each subscription lives in one shard, so each match is found once. Subscriptions are put in the order of their first
keys and cut into stretches of like weight: near-by keys lie together, so an event goes to few shards, and a key that
many subscriptions are filed under is spread over several. A worker finds the keys of an event by the key index (see
`routing`), and a table says which shards have something filed under a key. Events are then shuffled to *slots*, a task
each: a shard has one slot, or several where it is expected to have more than its share of the work. So a task maps one
shard, and no more than that.

Which slot of a shard an event goes to depends on nothing but what the event holds: a task that is run again sends it
the same way. Lists are brought together by `reuniting`. A stream gives pairs; whole lists of a stream would have to be
held back until nothing more can come.
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

from meetpoint.errors import MeetpointError
from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.key_routes import Meeting, keys_of_events, meeting_of, wanted_tasks
from meetpoint.spark.matching.match_lists import (
    anonymous,
    digests,
    finished,
    listed_schema,
    match_batch,
    parts_schema,
    plain_names,
    reunited,
    salts,
    to_parts,
)
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import SHARDS_FOLDER, Version, add_part
from meetpoint.spark.worker_files import Shipped, open_index, ship

__all__ = ["SHARDS_MAX", "Split", "refuse_lists_of_a_stream", "run", "split_of"]

Array: TypeAlias = "np.ndarray[Any, Any]"

SHARD_BYTES = 1 << 27
"""Bytes of index that a shard has where nobody says how many there are to be."""
SHARDS_MAX = 4096
_ROUTES_FILE = "routes.npz"

_log = logging.getLogger("meetpoint.spark")


class Split(msgspec.Struct, frozen=True):
    """An index in shards."""

    folder: Path
    starts: Array  # int64[keys + 1] where the shards of each key begin
    shards: Array  # int32[] the shards that something is filed in, by key
    held: Array  # int64[shards] how many subscriptions each has; of an empty one there is no file
    work: Array  # float64[shards] the part of all work that is expected in each

    def path(self, shard: int) -> Path:
        return self.folder / _shard_name(shard)


def run(events: Any, version: Version, *, result: str, how: str, shards: int | None = None) -> Any:
    """The DataFrame of matches: `result` is pairs or lists, `how` a way of shipping, `shards` how many there are."""
    from pyspark.sql import functions as F  # noqa: N812

    refuse_lists_of_a_stream(events, result, "partitioned")
    spark, columns, id_type = events.sparkSession, events.schema, version.manifest.id_type
    meeting = meeting_of(spark, version)
    split = split_of(version, meeting, shards)
    copies = np.maximum(np.rint(split.work * wanted_tasks(spark)), 1).astype(np.int64)
    first_slots = np.cumsum(copies) - copies
    slots = int(copies.sum())
    whole = result == "lists"
    route = partial(
        _route_batches,
        keys=ship(spark, meeting.keys_path, how),
        names=tuple(events.columns),
        starts=split.starts,
        shards=split.shards,
        first_slots=first_slots,
        copies=copies,
        whole=whole,
    )
    names = plain_names(len(columns.fields))
    routed = anonymous(events).mapInArrow(route, _routed_schema(columns))
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
        return finished(sent.mapInArrow(work, listed_schema(columns, id_type)), events.columns, result)
    parts = sent.mapInArrow(work, parts_schema(columns, id_type))
    return finished(reunited(parts, columns, id_type), events.columns, result)


def refuse_lists_of_a_stream(events: Any, result: str, strategy: str) -> None:
    """MeetpointError for what only the whole index can do event by event."""
    if events.isStreaming and result == "lists":
        raise MeetpointError(
            f"events: the DataFrame is a stream, of which strategy={strategy!r} gives no lists, since their parts "
            "would wait for each other; use result='pairs', strategy='broadcast', or match each batch in foreachBatch"
        )


def _routed_schema(columns: Any) -> Any:
    from pyspark.sql import types

    fields = listed_schema(columns, "int").fields[:-1]
    return types.StructType(
        [
            *fields,
            types.StructField("digest", types.BinaryType(), True),
            types.StructField("slots", types.ArrayType(types.IntegerType(), containsNull=False), False),
        ]
    )


def _to_slots(sent: Any, slots: int) -> Any:
    """Shuffled so that each slot is a task; where Spark cannot do so, so that a task has one slot after the other."""
    if hasattr(sent, "repartitionById"):  # from Spark 4.1
        return sent.repartitionById(slots, "slot")
    shuffled = sent.repartition(slots, "slot")
    return shuffled if sent.isStreaming else shuffled.sortWithinPartitions("slot")


# -- splitting ---------------------------------------------------------------------------------------------------------


def split_of(version: Version, meeting: Meeting, shards: int | None) -> Split:
    """The shards of a version, made now if they were not before."""
    count = min(max(-(-version.index_bytes // SHARD_BYTES), 2), SHARDS_MAX) if shards is None else shards
    if type(count) is not int or not 1 <= count <= SHARDS_MAX:
        raise MeetpointError(f"shards is {count!r}; give a number from 1 to {SHARDS_MAX:,}")
    folder = add_part(version, f"{SHARDS_FOLDER}/{count}", lambda folder: _write(folder, version, meeting, count))
    with np.load(folder / _ROUTES_FILE) as routes:
        return Split(folder, **{name: routes[name] for name in ("starts", "shards", "held", "work")})


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05}.mpx"


def _write(folder: Path, version: Version, meeting: Meeting, count: int) -> None:
    """Split a compiled index."""
    from meetpoint.matching.index.rank_form import keep, merge
    from meetpoint.matching.index.segment import Segment
    from meetpoint.matching.index.storage import load, save

    started = time.perf_counter()
    filed = meeting.filed(["keys", "share"])
    keys_of = filed["keys"].combine_chunks()
    shard = _dealt(keys_of, filed["share"].to_numpy(), count)
    held, sample = load(str(version.index_path))
    for segment, ids, _, _ in held:  # one, or none where there is no subscription
        rows = segment.rows.unpacked()
        for number in np.unique(shard[shard >= 0]).tolist():
            kept = shard == number
            part = Segment.of_rows(merge([keep(rows, kept)]), sample)
            some = ids.filter(pa.array(kept))
            save(str(folder / _shard_name(number)), [(part, some, np.arange(len(some)), None)], sample)
    _write_routes(folder / _ROUTES_FILE, meeting, keys_of, shard, filed["share"].to_numpy(), count)
    _log.info("match: the index split into %s shards in %.1f s", f"{count:,}", time.perf_counter() - started)


def _dealt(keys_of: pa.Array, shares: Array, count: int) -> Array:
    """The shard of each subscription, half by size and half by expected work; -1 where nothing is ever accepted."""
    lengths = keys_of.value_lengths().to_numpy()
    some = np.flatnonzero(lengths > 0)
    first_keys = keys_of.flatten().to_numpy()[(np.cumsum(lengths) - lengths)[some]]
    order = some[np.argsort(first_keys, kind="stable")]
    weights = 1.0 / max(len(order), 1) + shares[order] / max(shares[order].sum(), 1e-9)
    before = np.cumsum(weights) - weights
    shard = np.full(len(lengths), -1, np.int64)
    shard[order] = np.minimum((before / max(weights.sum(), 1e-9) * count).astype(np.int64), count - 1)
    return shard


def _write_routes(path: Path, meeting: Meeting, keys_of: pa.Array, shard: Array, shares: Array, count: int) -> None:
    of_keys = meeting.shares()
    lengths = keys_of.value_lengths().to_numpy()
    routes = np.unique(keys_of.flatten().to_numpy().astype(np.int64) * count + np.repeat(shard, lengths))
    keys, shards = np.divmod(routes, count)
    filed = shard >= 0
    events = np.minimum(np.bincount(shards, weights=of_keys[keys], minlength=count), 1.0)  # that will come
    candidates = np.bincount(shard[filed], weights=shares[filed], minlength=count)
    work = events / max(events.sum(), 1e-9) + candidates / max(candidates.sum(), 1e-9)
    np.savez(
        path,
        starts=np.searchsorted(keys, np.arange(len(of_keys) + 1)),
        shards=shards.astype(np.int32),
        held=np.bincount(shard[filed], minlength=count),
        work=work / max(work.sum(), 1e-9),
    )


# -- in workers --------------------------------------------------------------------------------------------------------


def _route_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    keys: Shipped,
    names: tuple[str, ...],
    starts: Array,
    shards: Array,
    first_slots: Array,
    copies: Array,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events to events with the slots that they go to, and a digest where one is needed.

    An event that nothing can accept goes nowhere, or, where every event is wanted, to any slot.
    """
    index = open_index(keys)
    plain = plain_names(len(names))
    needs_digest = whole or int(copies.max(initial=1)) > 1
    for given in batches:
        for at in range(0, given.num_rows, match_lists.EVENTS):
            batch = given.slice(at, match_lists.EVENTS)
            digest = digests(batch) if needs_digest else pa.nulls(batch.num_rows, pa.binary())
            salt = salts(digest) if needs_digest else np.zeros(batch.num_rows, np.int64)
            key_starts, live = keys_of_events(index, pa.RecordBatch.from_arrays(batch.columns, names))
            events, to = _shards_of(key_starts, live, starts, shards, len(copies))
            slots = first_slots[to] + salt[events] % copies[to]
            counts = np.bincount(events, minlength=batch.num_rows)
            if whole:
                idle = np.flatnonzero(counts == 0)
                slots = np.insert(slots, (np.cumsum(counts) - counts)[idle], salt[idle] % copies.sum())
                counts[idle] = 1
            offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
            lists = pa.ListArray.from_arrays(offsets, pa.array(slots, pa.int32()))
            yield pa.RecordBatch.from_arrays([*batch.columns, digest, lists], [*plain, "digest", "slots"])


def _shards_of(key_starts: Array, live: Array, starts: Array, shards: Array, count: int) -> tuple[Array, Array]:
    """Events and their shards, pair by pair, in order, none twice."""
    lengths = starts[live + 1] - starts[live]
    ends = np.cumsum(lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
    to = shards[np.repeat(starts[live], lengths) + within].astype(np.int64)
    events = np.repeat(np.repeat(np.arange(len(key_starts) - 1), np.diff(key_starts)), lengths)
    events, to = np.divmod(np.unique(events * count + to), count)
    return events, to


def _match_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    shipped: tuple[Shipped | None, ...],
    shard_of: Array,
    names: tuple[str, ...],
    id_type: pa.DataType,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events in slots to events with lists, or to parts of such."""
    for given in batches:
        shards = shard_of[given.column("slot").to_numpy()]
        for shard in np.unique(shards).tolist():
            batch = given.take(pa.array(np.flatnonzero(shards == shard)))
            for at in range(0, batch.num_rows, match_lists.EVENTS):
                yield from _match_shard(batch.slice(at, match_lists.EVENTS), shipped[shard], names, id_type, whole)


def _match_shard(
    batch: pa.RecordBatch, shipped: Shipped | None, names: tuple[str, ...], id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    named = pa.RecordBatch.from_arrays(batch.columns[: len(names)], names)
    if shipped is not None:
        found = match_batch(open_index(shipped), named, id_type, whole)
    else:  # nothing is filed here, and every event is wanted
        none = pa.array([[]] * batch.num_rows, pa.list_(id_type))
        found = iter([pa.RecordBatch.from_arrays([*named.columns, none], plain_names(len(names) + 1))])
    if not whole:
        yield from found
        return
    digest, first = batch.column("digest"), np.asarray(batch.column("first"))
    at = 0
    for some in found:
        end = at + some.num_rows
        listed = pa.RecordBatch.from_arrays(some.columns[:-1], some.schema.names[:-1])
        yield to_parts(digest.slice(at, some.num_rows), first[at:end], listed, some.columns[-1])
        at = end
