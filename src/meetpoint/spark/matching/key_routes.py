"""Meet keys on Spark: the keys of compiled subscriptions, and the keys of events.

A subscription is stored under the meet keys of its conjunctions (`matching.keys`): an event that it accepts has one of
them. Every key is also written as a filter, and the filters are compiled to a small index, the *key index*. Matching an
event with it gives the event's keys, at the speed of matching, and only keys under which something is stored. A key's
filter may accept more events than have the key, which costs work and misses nothing: where there are more than
`KEYS_MAX` keys, neighbours become one group, so that the key index stays small however many subscriptions there are.

Keys are numbered so that nearby keys have nearby numbers. The result is kept in the folder of the version, and made
when it is first needed.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from meetpoint.language.filters.constraints import EVERY_TEXT, Constraint, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.filters.intervals import Interval, Intervals
from meetpoint.language.filters.like import Pattern
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import split_name
from meetpoint.language.values import Kind, kind_of
from meetpoint.matching.index import Index
from meetpoint.matching.io.rejects import SourceError
from meetpoint.matching.keys.key_filters import filter_of_key
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey, double_of, place_of
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.matching.tables.columns import Columns
from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.match_lists import group_pairs
from meetpoint.spark.subscriptions.store import Version, add_part

__all__ = ["KeyTable", "keyed_batches", "keys_of_events", "open_key_table", "shuffle_tasks"]

Array: TypeAlias = "np.ndarray[Any, Any]"

KEYS_MAX = 1 << 17
"""The most keys of the key index."""
DRIVER_MAX = 1 << 13
"""The most subscriptions whose keys the driver computes itself, without a job."""
_FORMAT = 1
_KEYS_FILE, _SHARES_FILE, _ENTRIES_FILE = "keys.mpx", "shares.parquet", "filed.parquet"
_SENT = "number INT, keys ARRAY<BINARY>, share DOUBLE, several BOOLEAN"
_TASKS = 8
"""The tasks of a shuffle where the session does not say."""

_log = logging.getLogger("meetpoint.spark")


class KeyTable(msgspec.Struct, frozen=True):
    """The keys of a version, and the subscriptions that are stored under them."""

    folder: Path

    @property
    def keys_path(self) -> Path:
        """The key index; its ids are the numbers of the keys."""
        return self.folder / _KEYS_FILE

    @property
    def entries_path(self) -> Path:
        """A Parquet file with a row for each subscription, in the order of the index.

        Its columns: number, id, filter, keys, the expected share of events that have one of the keys, and `several`:
        whether an event that it accepts may have more than one.
        """
        return self.folder / _ENTRIES_FILE

    def shares(self) -> Array:
        """Return for each key the share of events expected to have it."""
        shares: Array = _read(self.folder / _SHARES_FILE, ["share"])["share"].to_numpy()
        return shares

    def entries(self, columns: list[str]) -> pa.Table:
        return _read(self.entries_path, columns)


def open_key_table(spark: SparkSession, version: Version) -> KeyTable:
    """Return the keys of a version, computed now if they were not before."""
    return KeyTable(add_part(version, f"meeting-{_FORMAT}", lambda folder: _build(folder, spark, version)))


def shuffle_tasks(spark: SparkSession) -> int:
    setting = str(spark.conf.get("spark.sql.shuffle.partitions", ""))
    return int(setting) if setting.isdecimal() and int(setting) else _TASKS


def keys_of_events(index: Index[Any], batch: pa.RecordBatch) -> tuple[Array, Array]:
    """Return the start of each event's keys, and the numbers of the keys grouped by event."""
    return group_pairs(list(index.pairs(batch)), batch.num_rows)


def keyed_batches(
    batches: Iterable[pa.RecordBatch], index: Index[Any], names: Sequence[str], *, needs_digest: bool
) -> Iterator[tuple[pa.RecordBatch, pa.Array, Array, Array, Array]]:
    """Yield batches of bounded size: events, their digests and salts, the start of each event's keys, and the keys."""
    for given in batches:
        for at in range(0, given.num_rows, match_lists.EVENTS):
            batch = given.slice(at, match_lists.EVENTS)
            digest = match_lists.digests(batch) if needs_digest else pa.nulls(batch.num_rows, pa.binary())
            salt = match_lists.salts(digest) if needs_digest else np.zeros(batch.num_rows, np.int64)
            yield batch, digest, salt, *keys_of_events(index, pa.RecordBatch.from_arrays(batch.columns, names))


# -- the table of keys -------------------------------------------------------------------------------------------------


def _build(folder: Path, spark: SparkSession, version: Version) -> None:
    started = time.perf_counter()
    plan = _plan(version)
    filters = pq.read_table(version.filters_path, columns=["id", "filter"])
    filters = filters.add_column(0, "number", pa.array(np.arange(len(filters), dtype=np.int32)))
    add_keys = partial(_key_batches, plan=plan)
    if len(filters) <= DRIVER_MAX:
        batches = list(add_keys(filters.to_batches()))
        keyed = pa.Table.from_batches(batches) if batches else None
    else:
        texts = spark.createDataFrame(filters.select(["number", "filter"])).repartition(shuffle_tasks(spark))
        keyed = texts.mapInArrow(add_keys, _SENT).toArrow().sort_by("number")
    keys, groups, entries = _numbered(keyed)
    Index.from_filters(enumerate(group.filter for group in groups)).save(folder / _KEYS_FILE)
    shares = [min(sum(plan.share((keys[at],)) for at in group.keys), 1.0) for group in groups]
    pq.write_table(pa.table({"share": pa.array(shares, pa.float64())}), folder / _SHARES_FILE)
    for name, column in entries.items():
        filters = filters.append_column(name, column)
    pq.write_table(filters, folder / _ENTRIES_FILE, compression="zstd")
    _log.info(
        "match: %s subscriptions filed under %s keys in %.1f s",
        f"{len(filters):,}",
        f"{len(groups):,}",
        time.perf_counter() - started,
    )


def _plan(version: Version) -> KeyPlan:
    """Choose the constraints that lead to conjunctions, by the sample that the version was compiled with."""
    uses = version.manifest.uses
    return KeyPlan(_statistics(version), names={use.attribute for use in uses})


def _statistics(version: Version) -> Statistics | None:
    try:
        with pa.memory_map(str(version.sample_path)) as file:
            sample = pa.ipc.open_file(file).read_all().combine_chunks()
    except (OSError, pa.ArrowInvalid):
        return None  # the version was compiled without a sample
    if not sample.num_rows:
        return None
    columns = Columns.of_batch(sample.to_batches()[0])
    rows: list[dict[str, Any]] = [{} for _ in range(sample.num_rows)]
    for name in sorted({use.attribute for use in version.manifest.uses if use.kind is not None}):
        *above, last = split_name(name)
        for row, value in zip(rows, columns.values(name), strict=True):
            if kind_of(value) is not None:
                for segment in above:
                    row = row.setdefault(segment, {})
                row[last] = value
    return Statistics.of_events(rows)


def _key_batches(batches: Iterable[pa.RecordBatch], *, plan: KeyPlan) -> Iterator[pa.RecordBatch]:
    """Map numbers and texts of filters to their keys."""
    parser = FilterParser()
    encode = msgspec.msgpack.Encoder().encode
    for batch in batches:
        keys: list[list[bytes]] = []
        shares: list[float] = []
        several: list[bool] = []
        for text in batch.column("filter").to_pylist():
            accesses = [plan.access(conjunction) for conjunction in parser.parse(text).conjunctions]
            accesses = [access for access in accesses if access.keys]
            distinct = dict.fromkeys(key for access in accesses for key in access.keys)
            keys.append([encode(key) for key in distinct])
            shares.append(min(sum(access.share for access in accesses), 1.0))
            several.append(len(distinct) > 1 and len(accesses) > 1)
        yield pa.record_batch(
            {
                "number": batch.column("number"),
                "keys": pa.array(keys, pa.list_(pa.binary())),
                "share": pa.array(shares, pa.float64()),
                "several": pa.array(several, pa.bool_()),
            }
        )


class _KeyGroup(msgspec.Struct, frozen=True):
    """Neighbouring keys that became one: their places in the list of all keys, and the filter of them all."""

    keys: list[int]
    filter: Filter
    exact: bool  # whether the filter accepts only events that have the key


def _numbered(keyed: pa.Table | None) -> tuple[list[MeetKey], list[_KeyGroup], dict[str, pa.Array]]:
    """Return all keys, their groups, and the columns of the entries with the groups' numbers."""
    if keyed is None:
        types = {"keys": pa.list_(pa.int32()), "share": pa.float64(), "several": pa.bool_()}
        return [], [], {name: pa.array([], type_) for name, type_ in types.items()}
    lists = keyed["keys"].combine_chunks()
    coded = lists.flatten().dictionary_encode()
    keys = [msgspec.msgpack.decode(key, type=MeetKey) for key in coded.dictionary.to_pylist()]
    groups = _key_groups(keys)
    number = np.zeros(max(len(keys), 1), np.int32)
    for at, group in enumerate(groups):
        number[group.keys] = at
    owner = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    pairs = np.unique(owner * max(len(groups), 1) + number[coded.indices.to_numpy()])  # sorted, without duplicates
    owner, numbers = np.divmod(pairs, max(len(groups), 1))
    counts = np.bincount(owner, minlength=len(lists))
    exact = np.array([group.exact for group in groups] or [True])
    unsure = np.bincount(owner, weights=~exact[numbers], minlength=len(lists)) > 0
    several = (counts > 1) & (unsure | keyed["several"].to_numpy())
    starts = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return (
        keys,
        groups,
        {
            "keys": pa.ListArray.from_arrays(starts, pa.array(numbers, pa.int32())),
            "share": keyed["share"].combine_chunks(),
            "several": pa.array(several),
        },
    )


# -- groups of keys ----------------------------------------------------------------------------------------------------


def _key_groups(keys: list[MeetKey]) -> list[_KeyGroup]:
    """Return a group for each key, or for a run of neighbours where there are too many, nearby keys together."""
    most = -(-len(keys) // KEYS_MAX)
    runs: list[list[int]] = []
    for at in sorted(range(len(keys)), key=keys.__getitem__):
        if runs and len(runs[-1]) < most and _can_merge(keys[runs[-1][0]], keys[at]):
            runs[-1].append(at)
        else:
            runs.append([at])
    runs.sort(key=lambda run: _nearness(keys[run[0]]))
    return [_key_group(run, [keys[at] for at in run]) for run in runs]


def _nearness(key: MeetKey) -> tuple[str, int, str, int, str]:
    """Return a sort key by which the keys that one event has of an attribute stand together."""
    match key.sort:
        case KeySort.VALUE | KeySort.CELL if key.kind in (Kind.NUMBER, Kind.TIMESTAMP):
            place = key.span[0] if key.sort is KeySort.CELL else place_of(key.kind, key.number)
            return key.attribute, 0, key.kind, place, ""
        case KeySort.VALUE | KeySort.PREFIX:
            return key.attribute, 1, "", key.number, key.text
        case KeySort.SUFFIX:
            return key.attribute, 2, "", 0, key.text[::-1]
        case KeySort.GRAM:
            return key.attribute, 3, "", 0, key.text
    return key.attribute, 4, str(key.sort), 0, key.kind


def _can_merge(one: MeetKey, other: MeetKey) -> bool:
    """Return whether a filter can be made of both keys that accepts little more."""
    same = (one.sort, one.attribute, one.kind, one.size) == (other.sort, other.attribute, other.kind, other.size)
    return same and one.sort in (KeySort.VALUE, KeySort.CELL) and one.kind != Kind.BOOLEAN


def _key_group(run: list[int], keys: list[MeetKey]) -> _KeyGroup:
    if len(keys) == 1:
        filter_ = filter_of_key(keys[0])
        return _KeyGroup(run, filter_, _is_exact(keys[0], filter_))
    first, *_, last = [filter_of_key(key) for key in keys]
    name, low = first.conjunctions[0].constraints[0]
    high = last.conjunctions[0].constraints[0][1]
    joined = _text_between(keys) if isinstance(low, TextSet) else _between(low, high)
    return _KeyGroup(run, Filter(f"{first.text} to {last.text}", (Conjunction(((name, joined),)),)), False)


def _is_exact(key: MeetKey, filter_: Filter) -> bool:
    if key.sort is not KeySort.VALUE:
        return True
    if key.kind == Kind.NUMBER:  # the filter of a double next to infinity accepts infinity too
        return math.isfinite(math.nextafter(abs(double_of(key.number)), math.inf))
    constraint = filter_.conjunctions[0].constraints[0][1]
    return not (isinstance(constraint, TextSet) and constraint.like)  # of a long text the key has only a prefix


def _between(low: Constraint, high: Constraint) -> Constraint:
    match low, high:
        case NumberSet(), NumberSet():
            return NumberSet(_from_to(low.exact, high.exact), _from_to(low.doubles or (), high.doubles or ()))
        case TimestampSet(), TimestampSet():
            return TimestampSet(_from_to(low.intervals, high.intervals))
    raise AssertionError(f"keys of {type(low).__name__} are never made one")


def _from_to(low: Intervals, high: Intervals) -> Intervals:
    return (Interval(low[0].low, low[0].low_open, high[-1].high, high[-1].high_open),)


def _text_between(keys: list[MeetKey]) -> Constraint:
    """Return the texts from the first to the last; where one is only a prefix, all texts with the common prefix."""
    sets = [filter_of_key(key).conjunctions[0].constraints[0][1] for key in keys]
    if not any(isinstance(one, TextSet) and one.like for one in sets):
        return TextSet((Interval(keys[0].text, False, keys[-1].text, False),))
    texts = [
        one.like[0].pieces[0] if isinstance(one, TextSet) and one.like else key.text
        for key, one in zip(keys, sets, strict=True)
    ]
    common = os.path.commonprefix(texts)  # noqa: RUF071 (character by character is what is wanted)
    return TextSet(EVERY_TEXT, (Pattern((common, "")),) if common else ())


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        problem = str(error).splitlines()[0]
        raise SourceError(f"{path}: cannot be read: {problem}; remove {path.parent}, which is then made anew") from None
