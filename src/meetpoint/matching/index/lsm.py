"""The index is a log-structured merge tree (LSM) of subscriptions, which change while events are matched.

- New filters go to the memtable, a short list in which a match tries every filter.
- A memtable that is full is flushed: its filters are compiled into a segment. Beside other segments, a new one of up to
  `FLAT_MAX` filters is flat (one bucket that all events come to), which compiles in a fraction of the time.
- Segments are immutable. A subscription that is removed leaves a tombstone, by which its matches are dropped.
- Compaction merges segments in a background thread: few remain, larger ones are older, tombstones are gone, and flat
  segments become fully compiled ones.
- A match works on the snapshot (memtable, segments, tombstones) of the moment when it begins, and never waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError, MeetpointError, SchemaError
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.index.events import JsonEvents
from meetpoint.matching.index.ids import IdTable, arrow_ids, ids_at, joined, joined_ids, one_column
from meetpoint.matching.index.snapshot import (
    LINES_MAX,
    FlushBatch,
    LiveSegment,
    MemtableEntry,
    Pairs,
    Snapshot,
    can_compile,
    checked_path,
    ids_by_event,
    match_parts,
    memtable_ids,
    need_compiler,
    orders_of,
    pick_compaction,
    pick_flat_merge,
)
from meetpoint.matching.tables.columns import Columns

if TYPE_CHECKING:
    from meetpoint.matching.index.segment import EventSample, Segment

__all__ = ["Index"]


Id = TypeVar("Id", bound=Hashable)
Array = Any

BATCH = 10_240
"""Events matched at a time: a larger batch shares more buckets, but its ranks should fit a cache."""
MEMTABLE_MAX_ALONE = 256
"""Subscriptions that the memtable holds while there is no segment: so few are not worth compiling."""
MEMTABLE_MAX = 64
"""Subscriptions that the memtable holds beside segments."""
FLAT_MAX = 8192
"""Subscriptions that are flushed to a flat segment, if there are other segments."""
_YIELD_EVERY = 2048
"""Subscriptions after which other threads may run."""
_QUIET_S = 0.25
"""Time without a change before compaction begins."""
_QUIET_TRIES = 8
"""Waits of that time before compaction begins in spite of changes."""


class Index(Generic[Id]):
    """A Matcher for millions of subscriptions.

    It files each conjunction under the constraint that the fewest events satisfy. `sample` are events like those to
    come, in any form that `pairs` takes; without one, the bounds of a `schema` serve as an estimate.

        index = Index.from_filters([("ann", parse_filter("price > 8"))])
        index.match({"price": 9})  # ["ann"]
    """

    def __init__(self, *, sample: Any = None, schema: Schema | None = None) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise SchemaError(f"schema: given an object of class {type(schema).__name__}; give a Schema")
        if isinstance(sample, str | bytes | Mapping) or not (sample is None or isinstance(sample, _SAMPLES)):
            given = f"an object of class {type(sample).__name__}"
            raise EventError(f"sample: given {given}; give events: a table, batches, a list of rows, or JsonEvents")
        self._sample_source = sample
        self._schema = schema
        self._sample: EventSample | None = None
        self._snapshot = Snapshot()
        self._id_table: IdTable | None = IdTable()
        self._next_serial = 0
        self._write = threading.RLock()
        self._compactor: threading.Thread | None = None
        self._compacting: frozenset[int] = frozenset()
        self._hurry = threading.Event()
        self._failure: BaseException | None = None

    # -- making and keeping --------------------------------------------------------------------------------------------

    @staticmethod
    def from_filters(
        filters: Iterable[tuple[Id, Filter]], *, sample: Any = None, schema: Schema | None = None
    ) -> Index[Id]:
        """Return an index of parsed filters under their ids."""
        index: Index[Id] = Index(sample=sample, schema=schema)
        index.add_many(filters)
        return index

    @staticmethod
    def from_columns(table: pa.Table, *, sample: Any = None) -> Index[Any]:
        """Return an index of constraints in columns: see `bulk_reader.gather_columns`."""
        need_compiler()
        from meetpoint.matching.index.bulk_reader import gather_columns

        index: Index[Any] = Index(sample=sample)
        rows, ids = gather_columns(table)
        serials = np.arange(rows.subscriptions)
        index._next_serial = rows.subscriptions
        index._id_table = None
        if len(ids):
            index._snapshot = Snapshot((LiveSegment.of(index._compile(rows), ids, serials, None),))
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Compact into one segment, and write a file that `open` maps."""
        need_compiler()
        from meetpoint.matching.index.storage import save

        snapshot, sample = self._compacted(flush=True)
        save(os.fspath(path), [(s.segment, s.ids, s.serials, s.orders) for s in snapshot.segments], sample)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Index[Any]:
        """Map a saved index from its file, so that processes share one copy; changes do not reach the file."""
        need_compiler()
        from meetpoint.matching.index.storage import load

        index: Index[Any] = Index()
        loaded, index._sample = load(os.fspath(path))
        index._snapshot = Snapshot(tuple(LiveSegment.of(*parts) for parts in loaded))
        index._next_serial = max((int(live.serials[-1]) for live in index._snapshot.segments), default=-1) + 1
        index._id_table = None
        return index

    def compact(self) -> None:
        """Merge all segments now and drop all tombstones; wait for a compaction that runs in the background."""
        self._compacted(flush=False)

    def _compacted(self, *, flush: bool) -> tuple[Snapshot, EventSample | None]:
        """Return a snapshot with one segment; its memtable is empty if `flush`."""
        while True:
            self._wait_for_compactor()
            with self._write:
                if self._compactor is not None and self._compactor.is_alive():
                    continue  # another compaction began meanwhile
                if flush and self._snapshot.memtable:
                    flushed = self._flushed(FlushBatch.of(self._snapshot.memtable))
                    self._snapshot = Snapshot((*self._snapshot.segments, flushed))
                segments = self._snapshot.segments
                if len(segments) > 1 or any(live.tombstone_count or live.segment.flat for live in segments):
                    self._compact_segments(segments)
                return self._snapshot, self._sampled() if flush else None

    def _wait_for_compactor(self) -> None:
        compactor = self._compactor
        if compactor is not None and compactor is not threading.current_thread():
            self._hurry.set()
            compactor.join()
            self._hurry.clear()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @property
    def nbytes(self) -> int:
        """The bytes of all segments."""
        return sum(live.nbytes for live in self._snapshot.segments)

    @property
    def segments(self) -> int:
        """The number of segments at the moment."""
        return len(self._snapshot.segments)

    def __len__(self) -> int:
        snapshot = self._snapshot
        return sum(map(len, snapshot.segments)) + len(snapshot.memtable)

    def __contains__(self, id_: object) -> bool:
        with self._write:
            return id_ in self._ids()

    # -- change --------------------------------------------------------------------------------------------------------

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Add a filter under a new id; KeyError if the id is taken."""
        self.add_many([(subscription, filter_)])

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> None:
        """Add many filters: all of them, or none if one of the ids is taken."""
        ids, forms = _checked_filters(filters)
        with self._write:
            table = self._ids()
            serials = self._next_serials(len(ids))
            if not table.add(ids, serials):
                raise KeyError(
                    f"subscription {table.first_wrong(ids, known=True)!r} is held already; update it instead"
                )
            try:
                self._install(self._with_added(self._snapshot, FlushBatch(ids, forms, serials, serials)))
            except BaseException:
                table.forget(ids, cast(list[int], table.places(ids)))
                raise

    def remove(self, subscription: Id) -> None:
        """Remove an id; KeyError if it is unknown."""
        self.remove_many([subscription])

    def remove_many(self, subscriptions: Iterable[Id]) -> None:
        """Remove many ids: all of them, or none if one is unknown or named twice."""
        ids = list(subscriptions)
        with self._write:
            snapshot, _, places = self._with_removed(self._snapshot, ids, "")
            self._install(snapshot)
            self._ids().forget(ids, places.tolist())

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of an id; KeyError if it is unknown."""
        self.update_many([(subscription, filter_)])

    def update_many(self, filters: Iterable[tuple[Id, Filter]]) -> None:
        """Replace many filters at once: a match sees the old ones or the new ones, never none and never both."""
        ids, forms = _checked_filters(filters)
        with self._write:
            snapshot, orders, places = self._with_removed(self._snapshot, ids, "; add it first")
            serials = self._next_serials(len(ids))
            self._install(self._with_added(snapshot, FlushBatch(ids, forms, serials, orders)))
            self._ids().put(places, serials)

    def _next_serials(self, count: int) -> Array:
        first = self._next_serial
        self._next_serial += count
        return np.arange(first, first + count)

    def _ids(self) -> IdTable:
        """Return the table of ids; build it on first use, which an index that only matches never needs."""
        if self._id_table is None:
            table = IdTable()
            for live in self._snapshot.segments:
                for at in range(0, len(live.serials), _YIELD_EVERY):
                    ids = live.ids[at : at + _YIELD_EVERY]
                    serials = live.serials[at : at + _YIELD_EVERY]
                    table.add(ids.to_pylist() if isinstance(ids, pa.Array) else ids, serials)
                    sleep(0)  # else no other thread matches for a second where there are a million ids
            self._id_table = table
        return self._id_table

    def _with_added(self, snapshot: Snapshot, more: FlushBatch) -> Snapshot:
        """Return a snapshot with more subscriptions; flush the memtable if it is full."""
        size = len(snapshot.memtable) + len(more.ids)
        if size <= (MEMTABLE_MAX if snapshot.segments else MEMTABLE_MAX_ALONE) or not can_compile():
            return msgspec.structs.replace(snapshot, memtable=(*snapshot.memtable, *more.entries()))
        batch = more.after(snapshot.memtable)
        flushed = self._flushed(batch, flat=bool(snapshot.segments) and size <= FLAT_MAX)
        segments = (*snapshot.segments, flushed)
        # Every match visits every segment, so a burst that leaves hundreds of small ones would slow all matches.
        while some := pick_flat_merge(segments, self._compacting):
            one = self._merged_segment(some, [~live.removed for live in some], flat=True)
            segments = segments[: -len(some)] if one is None else (*segments[: -len(some)], one)
        return Snapshot(segments)

    def _with_removed(self, snapshot: Snapshot, ids: list[Id], hint: str) -> tuple[Snapshot, Array, Array]:
        """Return a snapshot without some subscriptions, when those were first added, and the places of their ids."""
        table = self._ids()
        found = table.places(ids)
        if None in found or len(set(found)) < len(found):
            id_ = table.first_wrong(ids, known=False)
            raise KeyError(f"subscription {id_!r} is {'named twice' if id_ in table else f'not held{hint}'}")
        places = np.array(found, np.int64)
        wanted = table.at(places)
        orders = np.zeros(len(ids), np.int64)
        memtable: list[MemtableEntry] = []
        place_of = {serial: at for at, serial in enumerate(wanted.tolist())} if snapshot.memtable else {}
        for one in snapshot.memtable:
            if one.serial in place_of:
                orders[place_of[one.serial]] = one.order
            else:
                memtable.append(one)
        by_serial = np.argsort(wanted)
        rising = wanted[by_serial]
        segments: list[LiveSegment] = []
        begins = np.searchsorted(rising, [live.serials[0] for live in snapshot.segments]).tolist()
        ends = np.searchsorted(rising, [live.serials[-1] for live in snapshot.segments], "right").tolist()
        for live, begin, end in zip(snapshot.segments, begins, ends, strict=True):
            if begin < end:
                numbers = np.searchsorted(live.serials, rising[begin:end])
                found_here = live.serials[numbers] == rising[begin:end]
                numbers = numbers[found_here]
                orders[by_serial[begin:end][found_here]] = live.first_added[numbers]
                live = live.without(numbers) if len(numbers) else live
            if len(live):
                segments.append(live)
        return Snapshot(tuple(segments), tuple(memtable)), orders, places

    def _install(self, snapshot: Snapshot) -> None:
        snapshot.prepare_as(self._snapshot)
        self._snapshot = snapshot
        running = self._compactor is not None and self._compactor.is_alive()  # a fork has no threads but one
        if not running and pick_compaction(snapshot.segments):
            # no daemon: Python ends daemon threads within Arrow's C++ code, which then aborts the process
            self._compactor = threading.Thread(target=self._compact_in_background, name="meetpoint-compaction")
            self._compactor.start()

    # -- flush and compaction ------------------------------------------------------------------------------------------

    def _compile(self, rows: Any) -> Segment:
        need_compiler()
        from meetpoint.matching.index.segment import Segment

        return Segment.of_rows(rows, self._sampled())

    def _flushed(self, batch: FlushBatch, *, flat: bool = False) -> LiveSegment:
        from meetpoint.matching.index.filter_reader import gather
        from meetpoint.matching.index.segment import Segment

        rows = gather(batch.filters)
        segment = Segment.flat_of(rows) if flat and len(rows.lines) < LINES_MAX else self._compile(rows)
        return LiveSegment.of(segment, batch.ids, batch.serials, batch.orders)

    def _sampled(self) -> EventSample | None:
        from meetpoint.matching.index.events import guess_of, sample_of

        if self._sample_source is not None:
            self._sample, self._sample_source = sample_of(self._sample_source), None
        if self._sample is None and self._schema is not None:
            self._sample = guess_of(self._schema)
        return self._sample

    def _compact_in_background(self) -> None:
        try:
            while True:
                self._wait_for_quiet()
                with self._write:
                    some = pick_compaction(self._snapshot.segments)
                    self._compacting = frozenset(id(live.segment) for live in some)
                    if not some or not threading.main_thread().is_alive():  # else the process would not end
                        self._compactor = None
                        return
                self._compact_segments(some)
        except BaseException as error:  # the next `compact` or `save` raises it; matching goes on without compaction
            with self._write:
                self._failure, self._compactor, self._compacting = error, None, frozenset()

    def _wait_for_quiet(self) -> None:
        """Wait for the end of a burst of changes, but not forever: compaction takes time from other threads."""
        for _ in range(_QUIET_TRIES):
            snapshot = self._snapshot
            if self._hurry.wait(_QUIET_S) or snapshot is self._snapshot:
                return

    def _merged_segment(
        self, some: tuple[LiveSegment, ...], kept: list[Array], *, flat: bool = False
    ) -> LiveSegment | None:
        """Return one segment of the subscriptions that are `kept` of neighbouring segments; None if none are."""
        from meetpoint.matching.index.rank_form import keep, merge
        from meetpoint.matching.index.segment import Segment

        if not any(k.any() for k in kept):
            return None
        pairs = list(zip(some, kept, strict=True))
        rows = merge([keep(live.segment.rows.unpacked(), k) for live, k in pairs])
        segment = Segment.flat_of(rows) if flat else self._compile(rows)
        serials = np.concatenate([live.serials[k] for live, k in pairs])
        orders = np.concatenate([live.first_added[k] for live, k in pairs])
        integers = [live.integer_ids[k] for live, k in pairs if live.integer_ids is not None]
        ids = joined_ids([live.ids for live in some], kept)
        return LiveSegment.of(segment, ids, serials, orders, joined(integers) if len(integers) == len(pairs) else None)

    def _compact_segments(self, some: tuple[LiveSegment, ...]) -> None:
        """Replace neighbouring segments by one without their tombstones."""
        kept = [~live.removed for live in some]
        merged = self._merged_segment(some, kept)
        with self._write:
            now = {id(live.segment): live for live in self._snapshot.segments}
            if merged is not None:  # subscriptions may have been removed since `kept` was read
                removed = [
                    now[id(live.segment)].removed[k] if id(live.segment) in now else k[k]
                    for live, k in zip(some, kept, strict=True)
                ]
                numbers = np.flatnonzero(np.concatenate(removed))
                merged = merged.without(numbers) if len(numbers) else merged
            replaced = {id(live.segment) for live in some}
            segments: list[LiveSegment] = []
            for one in self._snapshot.segments:
                if id(one.segment) not in replaced:
                    segments.append(one)
                elif merged is not None:
                    segments.append(merged)
                    merged = None
            snapshot = msgspec.structs.replace(self._snapshot, segments=tuple(s for s in segments if len(s)))
            snapshot.prepare_as(self._snapshot)
            self._snapshot = snapshot
            self._compacting = frozenset()

    # -- matching ------------------------------------------------------------------------------------------------------

    def pairs(self, events: Any, *, path: str = "auto", batch: int = BATCH) -> Iterator[Pairs]:
        """Yield all matches of events, some at a time, in no particular order within a batch of events.

        Events are an Arrow table, batch or reader, rows of clean attributes, or `JsonEvents`.
        """
        from meetpoint.matching.index.events import batches_of

        snapshot = self._snapshot
        path = checked_path(path)
        for some in batches_of(events, snapshot.batch(batch)):
            for _, pairs in match_parts(snapshot, some, path):
                yield pairs

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """Return the ids of all filters that accept one event, in the order in which they were first added."""
        if not isinstance(attributes, Mapping):
            raise EventError(f"event: given an object of class {type(attributes).__name__}; give a dict of attributes")
        return self.match_batch([attributes])[0]

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """Return the ids for each of several events, as `match` does."""
        from meetpoint.matching.index.events import batches_of

        snapshot = self._snapshot
        path = checked_path("auto")
        answers: list[list[Id]] = []
        for some in batches_of(list(events), snapshot.batch(BATCH)):
            answers += ids_by_event(snapshot, some, path)
        return answers

    def match_columns(self, columns: Columns) -> tuple[Array, Array]:
        """Return row numbers and ids, which must be integers, of all matches: by row, then by order of adding."""
        from meetpoint.matching.index.events import EventBatch

        snapshot = self._snapshot
        found = list(match_parts(snapshot, EventBatch(0, columns), checked_path("auto")))
        rows = joined([pairs.events for _, pairs in found]).astype(np.int64)
        orders = joined([orders_of(snapshot, at)[pairs.subscriptions] for at, pairs in found])
        ids = joined([np.asarray(ids_at(pairs.ids, pairs.subscriptions), np.int64) for _, pairs in found])
        in_order = np.lexsort((orders, rows))
        return rows[in_order], ids[in_order]

    def table(self, events: Any, *, path: str = "auto") -> pa.Table:
        """Return all matches as one table with the columns event (row numbers) and subscription (ids)."""
        tables = [pairs.table() for pairs in self.pairs(events, path=path)]
        if not tables:
            return pa.table({"event": pa.array([], pa.int32()), "subscription": pa.array([], pa.null())})
        one_column([table["subscription"].chunk(0).dictionary[:0] for table in tables])
        return pa.concat_tables(tables).unify_dictionaries()

    def lists(self, events: Any, *, path: str = "auto") -> pa.ChunkedArray:
        """Return for each event the list of ids that match it, in no particular order; ids are a dictionary."""
        from meetpoint.matching.index.events import batches_of

        snapshot, path = self._snapshot, checked_path(path)
        ids = one_column([arrow_ids(live.ids) for live in snapshot.segments] + memtable_ids(snapshot))
        firsts = np.cumsum([0, *(len(live.serials) for live in snapshot.segments)])
        chunks: list[pa.Array] = []
        for some in batches_of(events, snapshot.batch(BATCH)):
            found = [(p.events, p.subscriptions + firsts[at]) for at, p in match_parts(snapshot, some, path)]
            of = joined([e - np.int32(some.first) for e, _ in found])
            order = np.argsort(of, kind="stable")
            numbers = joined([n for _, n in found])[order].astype(np.int32)
            starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=some.events))])
            values = pa.DictionaryArray.from_arrays(pa.array(numbers), ids)
            chunks.append(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values))
        return pa.chunked_array(chunks, pa.list_(pa.dictionary(pa.int32(), ids.type)))

    def each_batch(self, events: Any, callback: Callable[[Pairs], object], *, path: str = "auto") -> int:
        """Pass all matches to a callback, some at a time; return their number."""
        total = 0
        for pairs in self.pairs(events, path=path):
            callback(pairs)
            total += len(pairs.events)
        return total

    def counts(self, events: Any, *, path: str = "auto") -> Array:
        """Return for each event how many subscriptions match it."""
        from meetpoint.matching.index.events import batches_of

        snapshot, path = self._snapshot, checked_path(path)
        counts = [np.zeros(0, np.int64)]
        for some in batches_of(events, snapshot.batch(BATCH)):
            mine = np.zeros(some.events, np.int64)
            for _, pairs in match_parts(snapshot, some, path):
                mine += np.bincount(pairs.events - some.first, minlength=some.events)
            counts.append(mine)
        return np.concatenate(counts)


_SAMPLES = (Iterable, Columns, JsonEvents, pa.Table, pa.RecordBatch, pa.RecordBatchReader)


def _checked_filters(filters: Iterable[tuple[Any, Filter]]) -> tuple[list[Any], list[Filter]]:
    items = list(filters)
    ids, forms = [id_ for id_, _ in items], [filter_ for _, filter_ in items]
    if set(map(type, forms)) - {Filter}:
        id_, bad = next((id_, filter_) for id_, filter_ in items if type(filter_) is not Filter)
        raise MeetpointError(
            f"subscription {id_!r}: the filter is of class {type(bad).__name__}; parse it with parse_filter"
        )
    return ids, forms
