"""Where events and subscriptions may meet: the keys of a version, and which of them an event has.

A subscription is filed under the meet keys of its conjunctions (`matching.keys`): an event that it accepts has one of
them. Every key is also written as a filter, and the filters are compiled to a small index, the key index; so matching
tells which keys an event has, at the speed of matching, and only keys that something is filed under. A key's filter may
accept more events than have the key, which costs work and misses nothing: where there are more than `KEYS_MAX` keys,
neighbours become one, so that the key index stays small however many subscriptions there are.

Keys are numbered so that near-by ones have near-by numbers. What is found is kept in the folder of the version, and
made when it is first asked for.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.language.filters.constraints import EVERY_TEXT, Constraint, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.filters.intervals import Interval, Intervals
from meetpoint.language.filters.like import Pattern
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import split_name
from meetpoint.language.values import Kind, kind_of
from meetpoint.matching.index import Index
from meetpoint.matching.index.kernels.bucket_scan import group_by_event
from meetpoint.matching.io.rejects import SourceError
from meetpoint.matching.keys.key_filters import filter_of_key
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey, double_of, place_of
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.matching.tables.columns import Columns
from meetpoint.spark.subscriptions.store import Version, add_part

__all__ = ["Meeting", "keys_of_events", "meeting_of", "wanted_tasks"]

Array: TypeAlias = "np.ndarray[Any, Any]"

KEYS_MAX = 1 << 17
"""Keys of the key index."""
ALONE_MAX = 1 << 13
"""Subscriptions up to which the driver files them itself, without a job."""
_FORMAT = 1
_KEYS_FILE, _SHARES_FILE, _FILED_FILE = "keys.mpx", "shares.parquet", "filed.parquet"
_SENT = "number INT, keys ARRAY<BINARY>, share DOUBLE, several BOOLEAN"
_TASKS = 8
"""Tasks of a shuffle where the session does not say."""

_log = logging.getLogger("meetpoint.spark")


class Meeting(msgspec.Struct, frozen=True):
    """The keys of a version, and what is filed under them."""

    folder: Path

    @property
    def keys_path(self) -> Path:
        """The key index; its ids are the numbers of the keys."""
        return self.folder / _KEYS_FILE

    @property
    def filed_path(self) -> Path:
        """Parquet, a row a subscription in the order of the index: number, id, filter, keys, share of events that are
        expected to have one of the keys, and several: whether an event that it accepts may have more than one.
        """
        return self.folder / _FILED_FILE

    def shares(self) -> Array:
        """For each key the share of events expected to have it."""
        shares: Array = _read(self.folder / _SHARES_FILE, ["share"])["share"].to_numpy()
        return shares

    def filed(self, columns: list[str]) -> pa.Table:
        """Some columns of what is filed."""
        return _read(self.filed_path, columns)


def meeting_of(spark: Any, version: Version) -> Meeting:
    """The keys of a version, found now if they were not before."""
    return Meeting(add_part(version, f"meeting-{_FORMAT}", lambda folder: _write(folder, spark, version)))


def wanted_tasks(spark: Any) -> int:
    """In how many tasks to shuffle."""
    said = str(spark.conf.get("spark.sql.shuffle.partitions", ""))
    return int(said) if said.isdecimal() and int(said) else _TASKS


def keys_of_events(index: Index[Any], batch: pa.RecordBatch) -> tuple[Array, Array]:
    """The numbers of the keys of each event, and where those of each begin."""
    found = list(index.pairs(batch))
    none = np.zeros(0, np.int32)
    keys = np.concatenate([none, *(pairs.subscriptions for pairs in found)])
    starts, grouped = np.zeros(batch.num_rows + 1, np.int64), np.empty_like(keys)
    group_by_event(np.concatenate([none, *(pairs.events for pairs in found)]), keys, starts, grouped)
    return starts, grouped


# -- filing ------------------------------------------------------------------------------------------------------------


def _write(folder: Path, spark: Any, version: Version) -> None:
    started = time.perf_counter()
    plan = _plan(version)
    filters = pq.read_table(version.filters_path, columns=["id", "filter"])
    filters = filters.add_column(0, "number", pa.array(np.arange(len(filters), dtype=np.int32)))
    file = partial(_file_batches, plan=plan)
    if len(filters) <= ALONE_MAX:
        batches = list(file(filters.to_batches()))
        sent = pa.Table.from_batches(batches) if batches else None
    else:
        texts = spark.createDataFrame(filters.select(["number", "filter"])).repartition(wanted_tasks(spark))
        sent = texts.mapInArrow(file, _SENT).toArrow().sort_by("number")
    keys, places, filed = _numbered(sent)
    Index.from_filters(enumerate(place.filter for place in places)).save(folder / _KEYS_FILE)
    shares = [min(sum(plan.share((keys[at],)) for at in place.keys), 1.0) for place in places]
    pq.write_table(pa.table({"share": pa.array(shares, pa.float64())}), folder / _SHARES_FILE)
    for name, column in filed.items():
        filters = filters.append_column(name, column)
    pq.write_table(filters, folder / _FILED_FILE, compression="zstd")
    _log.info(
        "match: %s subscriptions filed under %s keys in %.1f s",
        f"{len(filters):,}",
        f"{len(places):,}",
        time.perf_counter() - started,
    )


def _plan(version: Version) -> KeyPlan:
    """Which constraints lead to conjunctions, by the sample that the version was compiled with."""
    uses = version.manifest.uses
    return KeyPlan(_statistics(version), names={use.attribute for use in uses})


def _statistics(version: Version) -> Statistics | None:
    try:
        with pa.memory_map(str(version.sample_path)) as file:
            sample = pa.ipc.open_file(file).read_all().combine_chunks()
    except (OSError, pa.ArrowInvalid):
        return None  # it was compiled without one
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


def _file_batches(batches: Iterable[pa.RecordBatch], *, plan: KeyPlan) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: numbers and texts of filters to their keys."""
    parser = FilterParser()
    encode = msgspec.msgpack.Encoder().encode
    for batch in batches:
        keys: list[list[bytes]] = []
        shares: list[float] = []
        several: list[bool] = []
        for text in batch.column("filter").to_pylist():
            ways = [plan.access(conjunction) for conjunction in parser.parse(text).conjunctions]
            ways = [way for way in ways if way.keys]
            distinct = dict.fromkeys(key for way in ways for key in way.keys)
            keys.append([encode(key) for key in distinct])
            shares.append(min(sum(way.share for way in ways), 1.0))
            several.append(len(distinct) > 1 and len(ways) > 1)
        yield pa.record_batch(
            {
                "number": batch.column("number"),
                "keys": pa.array(keys, pa.list_(pa.binary())),
                "share": pa.array(shares, pa.float64()),
                "several": pa.array(several, pa.bool_()),
            }
        )


class _Place(msgspec.Struct, frozen=True):
    """Neighbouring keys that are one: their places in the list of all keys, and the filter of them all."""

    keys: list[int]
    filter: Filter
    exact: bool  # whether the filter accepts just the events that have the key


def _numbered(sent: pa.Table | None) -> tuple[list[MeetKey], list[_Place], dict[str, pa.Array]]:
    """All keys, what they are numbered by, and the columns of what is filed with the numbers."""
    if sent is None:
        none = {"keys": pa.list_(pa.int32()), "share": pa.float64(), "several": pa.bool_()}
        return [], [], {name: pa.array([], type_) for name, type_ in none.items()}
    lists = sent["keys"].combine_chunks()
    coded = lists.flatten().dictionary_encode()
    keys = [msgspec.msgpack.decode(key, type=MeetKey) for key in coded.dictionary.to_pylist()]
    places = _places(keys)
    number = np.zeros(max(len(keys), 1), np.int32)
    for at, place in enumerate(places):
        number[place.keys] = at
    owner = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    pairs = np.unique(owner * max(len(places), 1) + number[coded.indices.to_numpy()])  # in order, none twice
    owner, numbers = np.divmod(pairs, max(len(places), 1))
    counts = np.bincount(owner, minlength=len(lists))
    exact = np.array([place.exact for place in places] or [True])
    unsure = np.bincount(owner, weights=~exact[numbers], minlength=len(lists)) > 0
    several = (counts > 1) & (unsure | sent["several"].to_numpy())
    starts = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return (
        keys,
        places,
        {
            "keys": pa.ListArray.from_arrays(starts, pa.array(numbers, pa.int32())),
            "share": sent["share"].combine_chunks(),
            "several": pa.array(several),
        },
    )


# -- keys --------------------------------------------------------------------------------------------------------------


def _places(keys: list[MeetKey]) -> list[_Place]:
    """Keys, or stretches of neighbours where they are too many, so that what is near by has a near number."""
    most = -(-len(keys) // KEYS_MAX)
    runs: list[list[int]] = []
    for at in sorted(range(len(keys)), key=keys.__getitem__):
        if runs and len(runs[-1]) < most and _may_join(keys[runs[-1][0]], keys[at]):
            runs[-1].append(at)
        else:
            runs.append([at])
    runs.sort(key=lambda run: _nearness(keys[run[0]]))
    return [_place(run, [keys[at] for at in run]) for run in runs]


def _nearness(key: MeetKey) -> tuple[str, int, str, int, str]:
    """An order in which the keys that one event has of an attribute stand together."""
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


def _may_join(one: MeetKey, other: MeetKey) -> bool:
    """Whether a filter can be made of both that accepts little more."""
    same = (one.sort, one.attribute, one.kind, one.size) == (other.sort, other.attribute, other.kind, other.size)
    return same and one.sort in (KeySort.VALUE, KeySort.CELL) and one.kind != Kind.BOOLEAN


def _place(run: list[int], keys: list[MeetKey]) -> _Place:
    if len(keys) == 1:
        filter_ = filter_of_key(keys[0])
        return _Place(run, filter_, _is_exact(keys[0], filter_))
    first, *_, last = [filter_of_key(key) for key in keys]
    name, low = first.conjunctions[0].constraints[0]
    high = last.conjunctions[0].constraints[0][1]
    joined = _text_between(keys) if isinstance(low, TextSet) else _between(low, high)
    return _Place(run, Filter(f"{first.text} to {last.text}", (Conjunction(((name, joined),)),)), False)


def _is_exact(key: MeetKey, filter_: Filter) -> bool:
    if key.sort is not KeySort.VALUE:
        return True
    if key.kind == Kind.NUMBER:  # beside the infinite the filter accepts more
        return math.isfinite(math.nextafter(abs(double_of(key.number)), math.inf))
    constraint = filter_.conjunctions[0].constraints[0][1]
    return not (isinstance(constraint, TextSet) and constraint.like)  # a long text, of which the key has a part


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
    """From the first text to the last; where one is only the beginning of a text, what all begin with."""
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
        said = str(error).splitlines()[0]
        raise SourceError(f"{path}: cannot be read: {said}; remove {path.parent}, which is then made anew") from None
