"""A snapshot of the LSM tree at one moment: segments with their tombstones, and the memtable.

It is immutable: a change makes another one. Here are the match of a batch of events with a snapshot, and the policy of
compaction: which segments are merged next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError, SetupError
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.index.ids import arrow_ids, ids_at, integer_ids, joined

if TYPE_CHECKING:
    from meetpoint.matching.index.events import EventBatch
    from meetpoint.matching.index.segment import Segment
    from meetpoint.matching.index.small_batch import SegmentGroup, SmallBatchMatches

__all__ = [
    "LINES_MAX",
    "PATHS",
    "PATH_VARIABLE",
    "FlushBatch",
    "LiveSegment",
    "MemtableEntry",
    "Pairs",
    "Snapshot",
    "can_compile",
    "checked_path",
    "ids_by_event",
    "match_parts",
    "memtable_ids",
    "need_compiler",
    "orders_of",
    "pick_compaction",
    "pick_flat_merge",
]


Array = Any
LINES_MAX = 1 << 16
"""Lines of segments that may be merged: a segment numbers its lines with 16 bits."""

PATHS = ("auto", "avx512", "portable")
PATH_VARIABLE = "MEETPOINT_KERNEL"
_RANKS_MAX = 1 << 22
"""Ranks that a batch of events may have."""
_FLAT_MERGE_COUNT = 24
"""Flat segments of about one size that are merged into a larger flat one."""
_FLAT_MERGE_MAX = 1 << 15
"""Subscriptions of a flat segment that such a merge makes."""
_TOMBSTONES_PART = 0.2
"""The part of a segment that may be tombstones; with more of them it is compacted."""


class Pairs(msgspec.Struct, frozen=True):
    """Matches: row numbers of events, and numbers of subscriptions within `ids`, pair by pair."""

    events: Array  # int32
    subscriptions: Array  # int32
    ids: Any  # the ids of a segment's subscriptions, by number

    def table(self) -> pa.Table:
        """Return the pairs as columns event and subscription; ids are a dictionary."""
        column = pa.DictionaryArray.from_arrays(pa.array(self.subscriptions), arrow_ids(self.ids))
        return pa.table({"event": pa.array(self.events), "subscription": column})


class LiveSegment(msgspec.Struct, frozen=True, dict=True):
    """A segment, the ids of its subscriptions, and its tombstones: a bit for each subscription that was removed."""

    segment: Segment
    ids: Any
    serials: Array  # ascending
    orders: Array | None  # when the id was first added; None: the same as the serials
    tombstones: Array
    tombstone_count: int = 0
    integer_ids: Array | None = None  # int64: the ids, if they are such integers

    @staticmethod
    def of(
        segment: Segment, ids: Any, serials: Array, orders: Array | None, integers: Array | None = None
    ) -> LiveSegment:
        if orders is not None and np.array_equal(orders, serials):
            orders = None
        tombstones = np.zeros(len(serials) // 8 + 1, np.uint8)
        if integers is None:
            integers = integer_ids(ids)
        return LiveSegment(segment, ids, serials, orders, tombstones, integer_ids=integers)

    def __len__(self) -> int:
        return len(self.serials) - self.tombstone_count

    def without(self, numbers: Array) -> LiveSegment:
        """Return the segment with tombstones for some more subscriptions."""
        _load_drop_dead()
        tombstones = self.tombstones.copy()
        np.bitwise_or.at(tombstones, numbers >> 3, np.left_shift(1, numbers & 7).astype(np.uint8))
        count = self.tombstone_count + len(numbers)
        return msgspec.structs.replace(self, tombstones=tombstones, tombstone_count=count)

    @property
    def first_added(self) -> Array:
        """The order in which the ids were first added."""
        return self.serials if self.orders is None else self.orders

    @cached_property
    def own_addresses(self) -> list[int]:
        """The addresses of tombstones, orders and ids, for an address table: the segment itself has no such arrays."""
        places: list[int] = []
        for array in (self.tombstones if self.tombstone_count else None, self.first_added, self.integer_ids):
            places += (0, 0) if array is None else (array.ctypes.data, len(array))
        return places

    @property
    def removed(self) -> Array:
        """A mask of the subscriptions that have tombstones."""
        bits: Array = np.unpackbits(self.tombstones, count=len(self.serials), bitorder="little").astype(np.bool_)
        return bits

    @property
    def nbytes(self) -> int:
        ids = self.ids.nbytes if isinstance(self.ids, pa.Array) else 8 * len(self.ids)
        ids += 0 if self.integer_ids is None or isinstance(self.ids, pa.Array) else self.integer_ids.nbytes
        orders = 0 if self.orders is None else self.orders.nbytes
        return int(self.segment.nbytes + ids + orders + self.serials.nbytes + self.tombstones.nbytes)


@cache
def _load_drop_dead() -> None:
    """Load the compiled code that the first tombstone needs; else the next match would wait for it."""
    from meetpoint.matching.index.kernels.bucket_scan import drop_dead

    drop_dead(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8))


class MemtableEntry(msgspec.Struct, frozen=True):
    """A subscription that no segment holds yet."""

    id: Any
    serial: int
    order: int
    filter: Filter


class FlushBatch(NamedTuple):
    """Subscriptions to be flushed into a segment, as columns: there may be many."""

    ids: list[Any]
    filters: list[Filter]
    serials: Array  # int64
    orders: Array

    @staticmethod
    def of(memtable: Sequence[MemtableEntry]) -> FlushBatch:
        return FlushBatch(
            [entry.id for entry in memtable],
            [entry.filter for entry in memtable],
            np.array([entry.serial for entry in memtable], np.int64),
            np.array([entry.order for entry in memtable], np.int64),
        )

    def after(self, memtable: Sequence[MemtableEntry]) -> FlushBatch:
        """Return the entries of a memtable and then these."""
        if not memtable:
            return self
        first = FlushBatch.of(memtable)
        serials, orders = np.concatenate([first.serials, self.serials]), np.concatenate([first.orders, self.orders])
        return FlushBatch(first.ids + self.ids, first.filters + self.filters, serials, orders)

    def entries(self) -> Iterator[MemtableEntry]:
        return map(MemtableEntry, self.ids, self.serials.tolist(), self.orders.tolist(), self.filters)


class Snapshot(msgspec.Struct, frozen=True, dict=True):
    """The subscriptions at one moment: segments from the oldest on, and the memtable."""

    segments: tuple[LiveSegment, ...] = ()
    memtable: tuple[MemtableEntry, ...] = ()

    @cached_property
    def group(self) -> SegmentGroup:
        """All segments, for small batches of events."""
        from meetpoint.matching.index.small_batch import SegmentGroup

        return SegmentGroup(self.segments)

    def prepare_as(self, before: Snapshot) -> None:
        """Make the address tables that matches made of the snapshot before; else the next match would wait for them."""
        if self.segments and "group" in before.__dict__:
            self.group.prepare_as(before.group)

    def batch(self, wanted: int) -> int:
        """Return how many events to match at a time: fewer where each has thousands of ranks."""
        slots = max((live.segment.encoder.slots for live in self.segments), default=0)
        return min(wanted, max(_RANKS_MAX // slots, 32)) if slots else wanted


def orders_of(snapshot: Snapshot, part: int) -> Array:
    """Return when the subscriptions of a segment, or last of the memtable, were first added."""
    if part == len(snapshot.segments):
        return np.array([entry.order for entry in snapshot.memtable], np.int64)
    return snapshot.segments[part].first_added


def ids_by_event(snapshot: Snapshot, some: EventBatch, path: str) -> list[list[Any]]:
    """Return the ids of the matches of each event of a batch, in the order of adding."""
    only = some.only
    if only is not None and some.good is None:
        if not snapshot.segments:  # a memtable alone: columns of one event take longer than the event itself
            return [[entry.id for entry in sorted(_memtable_matches(snapshot, only), key=attrgetter("order"))]]
        matches = _match_small_batch(snapshot, some, path)
        if matches is not None:
            return [_ids_of_one(snapshot, matches, only)]
    parts = list(match_parts(snapshot, some, path))
    of = joined([pairs.events - np.int32(some.first) for _, pairs in parts])
    orders = joined([orders_of(snapshot, at)[pairs.subscriptions] for at, pairs in parts])
    found: list[Any] = []
    for _, pairs in parts:
        found += ids_at(pairs.ids, pairs.subscriptions)
    ids = list(map(found.__getitem__, np.lexsort((orders, of)).tolist()))
    ends = np.cumsum(np.bincount(of, minlength=some.events)).tolist()
    return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _ids_of_one(snapshot: Snapshot, matches: SmallBatchMatches, attributes: Mapping[str, object]) -> list[Any]:
    """Return the ids of the matches of one event, of segments and of the memtable."""
    entries = _memtable_matches(snapshot, attributes)
    if not entries and len(matches.ids) == len(matches.numbers):
        in_order: list[Any] = matches.ids[np.argsort(matches.orders)].tolist()
        return in_order
    found: list[tuple[int, Any]] = [(entry.order, entry.id) for entry in entries]
    for live, begin, end in zip(snapshot.segments, [0, *matches.ends], matches.ends, strict=False):
        if begin < end:
            ids = ids_at(live.ids, matches.numbers[begin:end])
            found += zip(matches.orders[begin:end].tolist(), ids, strict=True)
    return [id_ for _, id_ in sorted(found, key=itemgetter(0))]


def _memtable_matches(snapshot: Snapshot, attributes: Mapping[str, object]) -> list[MemtableEntry]:
    return [entry for entry in snapshot.memtable if entry.filter.accepts(attributes)]


def match_parts(snapshot: Snapshot, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    """Yield the matches of one batch with the number of their segment; the memtable has the number after the last."""
    for at, pairs in _match_all(snapshot, some, path):
        if some.good is None:
            yield at, pairs
        else:  # a row that is no event has no attributes, which some filters accept
            kept = some.good[pairs.events - some.first]
            yield at, Pairs(pairs.events[kept], pairs.subscriptions[kept], pairs.ids)


def _match_all(snapshot: Snapshot, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    if snapshot.segments:
        from meetpoint.matching.index.kernels.jit import FEW_EVENTS

        matches = _match_small_batch(snapshot, some, path) if some.events < FEW_EVENTS else None
        if matches is None:
            yield from _match_large_batch(snapshot, some, path)
        else:
            ranges = zip(snapshot.segments, [0, *matches.ends], matches.ends, strict=False)
            for at, (live, begin, end) in enumerate(ranges):
                if begin < end:
                    yield at, Pairs(matches.events[begin:end], matches.numbers[begin:end], live.ids)
    if snapshot.memtable:
        columns = some.columns
        accepted = [columns.accepted(entry.filter) for entry in snapshot.memtable]
        numbers = np.repeat(np.arange(len(accepted), dtype=np.int32), [len(rows) for rows in accepted])
        if len(numbers):
            events = np.concatenate(accepted).astype(np.int32) + np.int32(some.first)
            yield len(snapshot.segments), Pairs(events, numbers, [entry.id for entry in snapshot.memtable])


def _match_small_batch(snapshot: Snapshot, some: EventBatch, path: str) -> SmallBatchMatches | None:
    """Match a few events with all segments by one call of a kernel; None if their values do not allow it."""
    from meetpoint.matching.index.small_batch import SmallBatch, match_small_batch

    group = snapshot.group
    batch = None if some.only is None else SmallBatch.of_one(some.only, group)
    if batch is None:
        batch = SmallBatch.of(some.parts(name for name, _ in group.paths), some.events)
    return None if batch is None else match_small_batch(group, batch, some.first, _use_vectors(path))


def _match_large_batch(snapshot: Snapshot, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    from meetpoint.matching.index.encoder import ready
    from meetpoint.matching.index.kernels.bucket_scan import drop_dead
    from meetpoint.matching.index.kernels.jit import suited

    vector = _use_vectors(path)
    parts = ready(some.parts(name for name, _ in snapshot.group.paths), some.events)
    for at, live in enumerate(snapshot.segments):
        for found in live.segment.match(parts, some.events, some.first, vector):
            kept = len(found.numbers)
            if live.tombstone_count:
                kept = suited(drop_dead, some.events)(found.numbers, found.events, live.tombstones)
            if kept:
                yield at, Pairs(found.events[:kept], found.numbers[:kept], live.ids)


def checked_path(path: str) -> str:
    """Return the kernels to use: `path`, or what the environment says where that is auto."""
    if path not in PATHS:
        raise MeetpointError(f"path is {path!r}; use {', '.join(PATHS)}")
    if path == "auto":
        path = os.environ.get(PATH_VARIABLE, "auto")
        if path not in PATHS:
            raise SetupError(f"{PATH_VARIABLE} is {path!r}; use {', '.join(PATHS)}, or unset it")
    return path


def _use_vectors(path: str) -> bool:
    from meetpoint.matching.index.kernels.jit import has_avx512

    if path == "avx512" and not has_avx512():
        raise SetupError("this processor has no AVX-512; use the path auto or portable")
    return path != "portable" and has_avx512()


@cache
def can_compile() -> bool:
    """Return whether there is a compiler; without one the memtable keeps every filter."""
    return find_spec("numba") is not None


def need_compiler() -> None:
    if not can_compile():
        raise SetupError("numba is not installed, which compiles the index; run: pip install 'meetpoint[fast]'")


def pick_flat_merge(segments: tuple[LiveSegment, ...], busy: frozenset[int]) -> tuple[LiveSegment, ...]:
    """Return the youngest flat segments of about one size, once they are enough to merge into one flat segment.

    Such a merge is a fifth of the work of compiling, and a match of one event takes no longer in a segment that is
    eight times as large. Segments that are `busy` are being compacted already.
    """
    run: list[LiveSegment] = []
    total = lines = 0
    for live in reversed(segments):
        total += len(live)
        lines += len(live.segment.rows.lines)
        alike = len(live) < _FLAT_MERGE_COUNT * max(len(segments[-1]), 1)
        fits = total <= _FLAT_MERGE_MAX and lines < LINES_MAX
        if not (live.segment.flat and alike and fits) or id(live.segment) in busy:
            break
        run.append(live)
    return tuple(reversed(run)) if len(run) >= _FLAT_MERGE_COUNT else ()


def pick_compaction(segments: tuple[LiveSegment, ...]) -> tuple[LiveSegment, ...]:
    """Return the neighbours to compact next; none if there are none.

    They are all segments from the oldest one on that is flat, or no larger than all younger ones together; as many as
    one segment has lines for. If there are none, it is one segment with many tombstones.
    """
    begin = len(segments)
    younger = 0
    for at in range(len(segments) - 1, -1, -1):
        if segments[at].segment.flat or len(segments[at]) <= younger:
            begin = at
        younger += len(segments[at])
    chosen = segments[begin:]
    while sum(len(live.segment.rows.lines) for live in chosen) > LINES_MAX:
        chosen = chosen[1:]
    if len(chosen) > 1 or (chosen and chosen[0].segment.flat):
        return chosen
    worn = next((live for live in segments if live.tombstone_count > _TOMBSTONES_PART * len(live.serials)), None)
    return () if worn is None else (worn,)


def memtable_ids(snapshot: Snapshot) -> list[pa.Array]:
    if snapshot.segments and not snapshot.memtable:
        return []
    return [arrow_ids([entry.id for entry in snapshot.memtable])]
