"""A segment of the LSM tree: compiled subscriptions, never changed again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from meetpoint.matching.index.encoder import Encoded, Encoder, Scratch, build_grams
from meetpoint.matching.index.kernels.bucket_scan import (
    BLOCK,
    drop_doubles,
    finish,
    group_by_event,
    list_pairs,
    match_avx512,
    match_portable,
    sort_pairs,
)
from meetpoint.matching.index.kernels.few_scan import LAYOUT
from meetpoint.matching.index.kernels.jit import FEW_EVENTS, PADDING, suited
from meetpoint.matching.index.layout import Layout, build, build_flat
from meetpoint.matching.index.lines import Array, LineKey, LineSort, RankLine
from meetpoint.matching.index.rank_form import NESTED, PackedRankForm, RankForm
from meetpoint.matching.index.small_batch import AddressTable, PartKey
from meetpoint.matching.tables.columns import ColumnPart, ColumnParts, PartSort

__all__ = ["EventSample", "Segment", "SegmentMatches"]

_SAMPLE_MIN, _SAMPLE_PART = 256, 8
_OUTPUT = 1 << 18
"""Matches that are handed over at a time, or as many as one bucket can give."""
_TABLES_MAX = 16
"""Combinations of parts of events whose address tables are kept."""

_LIGHT = 1 << 15
"""Subscriptions up to which rows are not compressed: a compaction will read them soon."""
_ALWAYS = RankLine(LineKey("", LineSort.ALWAYS))


class EventSample(NamedTuple):
    """Events like those to come, in no particular order."""

    parts: ColumnParts
    events: int
    guessed: bool = False  # made up from what a schema says

    def shuffled(self) -> EventSample:
        """Return the same events in another order, always the same one."""
        return self._taken(np.random.default_rng(0).permutation(self.events))

    def some(self, count: int) -> EventSample:
        """Return the first events only."""
        return self if count >= self.events else self._taken(np.arange(count))

    def _taken(self, rows: Array) -> EventSample:
        return EventSample(
            {name: [_taken(part, rows) for part in parts] for name, parts in self.parts.items()},
            len(rows),
            self.guessed,
        )


def _taken(part: ColumnPart, rows: Array) -> ColumnPart:
    if part.sort is PartSort.TEXT:
        assert part.starts is not None
        assert part.ends is not None
        texts = {"values": part.values, "starts": part.starts[rows], "ends": part.ends[rows]}
    else:
        texts = {"values": part.values[rows]}
    return msgspec.structs.replace(part, valid=None if part.valid is None else part.valid[rows], **texts)


class SegmentMatches(NamedTuple):
    """Matches, pair by pair: an event's number and a subscription's."""

    events: Array
    numbers: Array


class Segment:
    """Compiled subscriptions: rank form, buckets, and the encoder that leads events to them."""

    def __init__(
        self,
        rows: PackedRankForm,
        layout: Layout,
        encoder: Encoder,
        *,
        flat: bool = False,
        scratch: Scratch | None = None,
    ) -> None:
        self.flat = flat
        self.rows = rows
        self.layout = layout
        self.encoder = encoder
        self._free: list[Scratch] = [] if scratch is None else [scratch]
        self._address_tables: dict[PartKey, AddressTable] = {}
        self._largest = BLOCK * int(np.diff(layout.buckets.begin).max(initial=0))

    @staticmethod
    def of_rows(rows: RankForm, sample: EventSample | None) -> Segment:
        """Compile rows into a segment with buckets for values, ranges and patterns."""
        rows = _by_use(rows)
        encoder = Encoder(rows.lines, build_grams(rows.patterns), len(rows.patterns))
        scratch, encoded = encoder.scratch(), None
        if sample is not None:  # a few events tell enough about a few subscriptions
            some = sample.some(max(_SAMPLE_MIN, rows.subscriptions // _SAMPLE_PART))
            encoded = encoder.encode(some.parts, some.events, scratch)
        pack = PackedRankForm.of if rows.subscriptions > _LIGHT else PackedRankForm.lightly
        layout = build(rows, encoded, sample is not None and sample.guessed)
        return Segment(pack(rows), layout, encoder, scratch=scratch)

    @staticmethod
    def flat_of(rows: RankForm) -> Segment:
        """Compile rows into a flat segment: quick to make, slower to match, until compaction compiles them well."""
        rows = _by_use(rows)
        lines = rows.lines
        always = next((slot for slot, line in enumerate(lines) if line.key == _ALWAYS.key), len(lines))
        if always == len(lines):
            lines = (*lines, _ALWAYS)
        encoder = Encoder(lines, build_grams(rows.patterns), len(rows.patterns))
        return Segment(PackedRankForm.lightly(rows), build_flat(rows, always), encoder, flat=True)

    @property
    def nbytes(self) -> int:
        arrays = [a for group in self.layout for a in group]
        return sum(a.nbytes for a in arrays) + self.rows.nbytes

    def address_table(self, key: PartKey) -> AddressTable | None:
        """Return the address table for small batches of events with certain parts; None if it has too many lines."""
        table = self._address_tables.get(key)
        if table is None and self.layout.buckets.slot.dtype == np.uint8:
            if len(self._address_tables) >= _TABLES_MAX:
                self._address_tables.clear()
            table = self._address_tables[key] = self.encoder.address_table(self._common_addresses, key, self.flat)
        return table

    @cached_property
    def _common_addresses(self) -> AddressTable:
        """The part of an address table that is the same for all events."""
        table = AddressTable(self.encoder.slots)
        for name, array in zip(LAYOUT, chain(*self.layout), strict=True):
            table.put(name, array)
        table.put("mark", np.zeros(1, np.int64))
        table.put("fit_tried", np.zeros(len(self.rows.patterns), np.int64))
        table.put("tried", np.zeros(self.rows.subscriptions if self.rows.multiple else 0, np.int64))
        return table

    def match(self, parts: ColumnParts, events: int, base: int, vector: bool) -> Iterator[SegmentMatches]:
        """Yield all matches of a batch of events, numbered from `base` on, some at a time.

        The scratch belongs to this match until it ends; matches meanwhile, also of this thread, use another one.
        """
        scratch = self._free.pop() if self._free else self.encoder.scratch()
        try:
            yield from self._match(parts, events, base, vector, scratch)
        finally:
            self._free.append(scratch)

    def _match(
        self, parts: ColumnParts, events: int, base: int, vector: bool, scratch: Scratch
    ) -> Iterator[SegmentMatches]:
        encoded = self.encoder.encode(parts, events, scratch)
        buckets, met = self._pairs(encoded, events, scratch)
        least = self._largest + 2 * PADDING  # so that no bucket is too large
        room = max(_OUTPUT, least)
        held = [scratch.array(name, room // BLOCK, np.int32) for name in ("held", "held events", "held lanes")]
        more = scratch.array("more", room if self.rows.multiple else 0, np.int32)
        more_of = scratch.array("more events", len(more), np.int32)
        vector = vector and self.layout.buckets.slot.dtype == np.uint8
        scan = suited(match_avx512 if vector else match_portable, events)
        doubled: list[tuple[Array, Array]] = []
        at = 0
        while at < len(buckets):
            numbers, of = scratch.output(room), scratch.output(room)
            at, found, back = scan(
                buckets, met, at, base, encoded.ranks, self.layout.buckets, numbers, of, *held
            )  # fmt: skip
            if back:
                found, again = suited(finish, events)(
                    base, encoded.ranks, encoded.fit_start, encoded.fit, self.layout.buckets, self.layout.sides,
                    *(array[:back] for array in held), found, numbers, of, more, more_of,
                )  # fmt: skip
                if again:
                    doubled.append((more_of[:again].copy(), more[:again].copy()))
            if found:
                yield SegmentMatches(of[:found], numbers[:found])
        if doubled:
            yield self._once(doubled, events, base, scratch)

    def _pairs(self, encoded: Encoded, events: int, scratch: Scratch) -> tuple[Array, Array]:
        """Return which bucket meets which event, by bucket if there are many."""
        access = self.layout.access
        room = 64 * events
        while True:
            buckets, met = scratch.array("buckets", room, np.int32), scratch.array("met", room, np.int32)
            count = suited(list_pairs, events)(
                encoded.ranks, access.slots, access.offsets, access.head, access.parent, encoded.fit_start, encoded.fit,
                access.fit_bucket, buckets, met,
            )  # fmt: skip
            if count < len(buckets):
                break
            room = count + 1
        buckets, met = buckets[:count], met[:count]
        if events < FEW_EVENTS:  # not worth sorting
            return buckets, met
        sorted_buckets = scratch.array("sorted buckets", count, np.int32)[:count]
        sorted_met = scratch.array("sorted met", count, np.int32)[:count]
        starts = scratch.array("starts", len(access.parent), np.int32)[: len(access.parent)]
        sort_pairs(buckets, met, starts, sorted_buckets, sorted_met)
        return sorted_buckets, sorted_met

    def _once(self, doubled: list[tuple[Array, Array]], events: int, base: int, scratch: Scratch) -> SegmentMatches:
        of = np.concatenate([e for e, _ in doubled])
        numbers = np.concatenate([n for _, n in doubled])
        starts = np.zeros(events + 1, np.int64)
        grouped = np.empty_like(numbers)
        group_by_event(of, numbers, starts, grouped)
        tried = scratch.arrays.get("tried")
        if tried is None:
            tried = scratch.arrays["tried"] = np.zeros(self.rows.subscriptions, np.int64)
        mark, scratch.mark = scratch.mark, scratch.mark + events
        kept = drop_doubles(starts, grouped, tried, mark, base, of, numbers)
        return SegmentMatches(of[:kept], numbers[:kept])


def _by_use(rows: RankForm) -> RankForm:
    """Return rows whose most tested lines come first: sixteen lines fit a register."""
    line = rows.line & ~np.uint32(NESTED)
    uses = np.bincount(line, minlength=len(rows.lines))
    order = np.argsort(-uses, kind="stable")
    place = np.zeros(max(len(order), 1), np.uint32)
    place[order] = np.arange(len(order))
    return msgspec.structs.replace(
        rows,
        lines=tuple(rows.lines[n] for n in order.tolist()),
        line=place[line] | (rows.line & np.uint32(NESTED)),
        set_line=place[rows.set_line],
    )
