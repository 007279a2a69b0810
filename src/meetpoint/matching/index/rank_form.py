"""The rank form of conjunctions: segments are built from it, and merged by it.

A conjunction is a run of tests and a run of side tests. A test accepts the ranks of one line from `first` up to `last`,
going around where `first` is the larger. Other constraints are side tests: a pattern, or a set of three or more ranges.
Subscriptions are numbered from 0 within the segment, and conjunctions are in the order of their subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import LimitError
from meetpoint.language.filters.like import Pattern
from meetpoint.matching.index.kernels.bucket_scan import SIDE_IN_SET
from meetpoint.matching.index.kernels.build import group, mark_cuts, move_ranks
from meetpoint.matching.index.lines import Array, LineKey, RankLine, merge_lines, read_only

__all__ = [
    "LINES_MAX",
    "NESTED",
    "PackedRankForm",
    "RankForm",
    "group_starts",
    "grouped",
    "interleaved",
    "keep",
    "merge",
    "runs",
    "starts_of",
]


LINES_MAX = 1 << 16
"""Lines of one segment."""
NESTED = 1 << 31
"""A bit of a test's line: its range is a prefix or one value, so any two such ranges nest or are disjoint."""


class RankForm(msgspec.Struct, frozen=True):
    """All conjunctions of some subscriptions; LimitError for more lines than a slot can name."""

    subscriptions: int
    lines: tuple[RankLine, ...]
    patterns: tuple[tuple[str, Pattern], ...]
    owner: Array  # int32[conjunctions] the subscription's number
    multiple: Array  # bool[conjunctions] might another conjunction of the subscription accept the same event
    start: Array  # int32[conjunctions + 1] where the tests begin
    line: Array  # uint32[tests]
    first: Array  # int32[tests]
    last: Array  # int32[tests]
    side_start: Array  # int32[conjunctions + 1]
    side: Array  # int32[side tests] argument << 2 | what is asked
    set_start: Array  # int32[sets + 1]
    set_line: Array  # uint32[sets]
    set_first: Array  # int32
    set_last: Array

    def __post_init__(self) -> None:
        if len(self.lines) > LINES_MAX:
            raise LimitError(
                f"the filters of one segment compare {len(self.lines):,} attributes or kinds of them, and the limit is "
                f"{LINES_MAX:,}",
                "split the subscriptions by attribute into several indexes",
                text="",
                start=0,
                end=0,
            )


_PACKED = (
    "owner", "multiple", "start", "line", "first", "last", "side_start", "side", "set_start", "set_line", "set_first",
    "set_last",
)  # fmt: skip
_RISING = ("owner", "start", "side_start", "set_start")
_WIDTHS = {"last": "first", "set_last": "set_first"}
"""Columns packed as distances, which are small, since many ranges are one value."""


class PackedRankForm(msgspec.Struct, frozen=True):
    """A rank form at rest, which only a merge reads; compressed unless it will be merged soon."""

    subscriptions: int
    lines: tuple[RankLine, ...]
    patterns: tuple[tuple[str, Pattern], ...]
    multiple: bool  # whether any conjunction is
    types: dict[str, tuple[str, int]]  # of each array its type and length
    data: dict[str, Array]  # of each array, byte by byte
    compressed: bool = True

    @staticmethod
    def of(rows: RankForm) -> PackedRankForm:
        types: dict[str, tuple[str, int]] = {}
        data: dict[str, Array] = {}
        for name in _PACKED:
            array = getattr(rows, name)
            types[name] = array.dtype.str, len(array)
            if name in _RISING:
                array = np.diff(array, prepend=array.dtype.type(0))
            elif name in _WIDTHS:
                array = array - getattr(rows, _WIDTHS[name])
            planes = array.view(np.uint8).reshape(len(array), array.itemsize).T  # equal bytes side by side
            data[name] = np.frombuffer(pa.compress(planes.tobytes(), codec="zstd", asbytes=True), np.uint8)
        return PackedRankForm(rows.subscriptions, rows.lines, rows.patterns, bool(rows.multiple.any()), types, data)

    @staticmethod
    def lightly(rows: RankForm) -> PackedRankForm:
        """Return a rank form that is merged soon, without compression."""
        data = {name: getattr(rows, name) for name in _PACKED}
        return PackedRankForm(rows.subscriptions, rows.lines, rows.patterns, bool(rows.multiple.any()), {}, data, False)

    def unpacked(self) -> RankForm:
        if not self.compressed:
            return RankForm(subscriptions=self.subscriptions, lines=self.lines, patterns=self.patterns, **self.data)
        arrays: dict[str, Array] = {}
        for name, (type_, length) in self.types.items():
            dtype = np.dtype(type_)
            plain = pa.decompress(self.data[name], length * dtype.itemsize, codec="zstd")
            planes = np.frombuffer(plain, np.uint8).reshape(dtype.itemsize, length)
            array = np.ascontiguousarray(planes.T).reshape(-1).view(dtype)
            arrays[name] = np.cumsum(array, dtype=dtype) if name in _RISING else array
        for name, first in _WIDTHS.items():
            arrays[name] = arrays[name] + arrays[first]
        return RankForm(subscriptions=self.subscriptions, lines=self.lines, patterns=self.patterns, **arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.data.values()) + sum(line.nbytes for line in self.lines)


def keep(rows: RankForm, kept: Array) -> RankForm:
    """Return the rows of the marked subscriptions, renumbered; lines and patterns stay as they are."""
    number = np.cumsum(kept, dtype=np.int32) - 1
    conjunctions = kept[rows.owner]
    tests = np.repeat(conjunctions, np.diff(rows.start))
    sides = np.repeat(conjunctions, np.diff(rows.side_start))
    return msgspec.structs.replace(
        rows,
        subscriptions=int(kept.sum()),
        owner=number[rows.owner[conjunctions]],
        multiple=rows.multiple[conjunctions],
        start=starts_of(np.diff(rows.start)[conjunctions]),
        line=rows.line[tests],
        first=rows.first[tests],
        last=rows.last[tests],
        side_start=starts_of(np.diff(rows.side_start)[conjunctions]),
        side=rows.side[sides],
    )


def starts_of(counts: Array) -> Array:
    """Return where each of several runs begins, and the last one ends."""
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    return starts


def group_starts(line: Array, count: int) -> tuple[Array, Array]:
    """Return where the members of each line begin, and all places in that order, for an array of line numbers."""
    starts, order = np.empty(count + 1, np.int64), np.empty(len(line), np.int64)
    group(read_only(line.astype(np.int64, copy=False)), starts, order)
    return starts, order


def grouped(line: Array, count: int) -> list[Array]:
    """Return the places of each line's number in an array of such numbers."""
    starts, order = group_starts(line, count)
    return [order[begin:end] for begin, end in pairwise(starts.tolist())]


def merge(parts: Sequence[RankForm]) -> RankForm:
    """Return all subscriptions of several parts, in the order of the parts, without unused cuts and patterns."""
    line_keys = list(dict.fromkeys(line.key for rows in parts for line in rows.lines))
    used = [_used_cuts(rows) for rows in parts]
    lines: list[RankLine] = []
    number: dict[LineKey, int] = {}
    places: list[dict[LineKey, Array]] = [{} for _ in parts]
    holders_of: dict[LineKey, list[tuple[int, RankLine, Array]]] = {key: [] for key in line_keys}
    for at, rows in enumerate(parts):
        for line, cuts in zip(rows.lines, used[at], strict=True):
            if cuts is not None:
                holders_of[line.key].append((at, line, cuts))
    for key, holders in holders_of.items():
        if not holders:
            continue
        merged, place = merge_lines([(line, cuts) for _, line, cuts in holders])
        number[key] = len(lines)
        lines.append(merged)
        for (at, _, _), places_of_line in zip(holders, place, strict=True):
            places[at][key] = places_of_line
    patterns: dict[tuple[str, Pattern], int] = {}
    sets = 0
    columns: dict[str, list[Array]] = {}
    subscriptions = 0
    for at, rows in enumerate(parts):
        renumbered = _renumber(rows, lines, number, places[at], patterns, sets)
        sets += len(rows.set_line)
        for name, column in {**renumbered, "owner": rows.owner + np.int32(subscriptions)}.items():
            columns.setdefault(name, []).append(column)
        columns.setdefault("multiple", []).append(rows.multiple)
        subscriptions += rows.subscriptions
    joined = {name: np.concatenate(some) for name, some in columns.items()}
    return RankForm(
        subscriptions=subscriptions,
        lines=tuple(lines),
        patterns=tuple(patterns),
        start=starts_of(np.concatenate([np.diff(rows.start) for rows in parts])),
        side_start=starts_of(np.concatenate([np.diff(rows.side_start) for rows in parts])),
        set_start=starts_of(np.concatenate([np.diff(rows.set_start) for rows in parts])),
        **joined,
    )


def interleaved(some: RankForm, others: RankForm) -> RankForm:
    """Return the conjunctions of two parts of the same subscriptions, in the order of the subscriptions."""
    rows = merge([some, others])
    owner = rows.owner % np.int32(max(some.subscriptions, 1))
    order = np.argsort(owner, kind="stable")
    counts, side_counts = np.diff(rows.start)[order], np.diff(rows.side_start)[order]
    _, tests = runs(rows.start[order], rows.start[order] + counts)
    _, sides = runs(rows.side_start[order], rows.side_start[order] + side_counts)
    return msgspec.structs.replace(
        rows,
        subscriptions=some.subscriptions,
        owner=owner[order],
        multiple=rows.multiple[order],
        start=starts_of(counts),
        line=rows.line[tests],
        first=rows.first[tests],
        last=rows.last[tests],
        side_start=starts_of(side_counts),
        side=rows.side[sides],
    )


def runs(begin: Array, end: Array) -> tuple[Array, Array]:
    """Return every number of several ranges, and which range it is of."""
    counts = end - begin
    which = np.repeat(np.arange(len(begin)), counts)
    return which, begin[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


class _RangeTests(NamedTuple):
    """Tests, or ranges of sets, of some rows; `begin` is where the cuts of each line begin among all cuts."""

    line: Array
    first: Array
    last: Array
    begin: Array

    @staticmethod
    def of(rows: RankForm) -> tuple[_RangeTests, _RangeTests]:
        begin = read_only(np.cumsum([0, *(line.cuts for line in rows.lines)]))
        lines = read_only(rows.line & ~np.uint32(NESTED)), read_only(np.repeat(rows.set_line, np.diff(rows.set_start)))
        return (
            _RangeTests(lines[0], read_only(rows.first), read_only(rows.last), begin),
            _RangeTests(lines[1], read_only(rows.set_first), read_only(rows.set_last), begin),
        )

    def moved(self, place: Array, most: Array) -> tuple[Array, Array]:
        first, last = np.empty_like(self.first), np.empty_like(self.last)
        move_ranks(*self, place, most, first, last)
        return first, last


def _used_cuts(rows: RankForm) -> list[Array | None]:
    """Return for each line which cuts bound a test or a set; None for a line without tests."""
    of_tests, of_sets = _RangeTests.of(rows)
    asked, used = np.zeros(len(rows.lines), np.bool_), np.zeros(of_tests.begin[-1], np.bool_)
    mark_cuts(*of_tests, asked, used)
    mark_cuts(*of_sets, asked, used)
    cuts = np.split(used, of_tests.begin[1:-1])
    return [one if is_asked else None for one, is_asked in zip(cuts, asked.tolist(), strict=False)]


def _renumber(
    rows: RankForm,
    lines: Sequence[RankLine],
    number: dict[LineKey, int],
    places: dict[LineKey, Array],
    patterns: dict[tuple[str, Pattern], int],
    sets: int,
) -> dict[str, Array]:
    """Return the tests and side tests of one part in the numbers of the whole."""
    new_line, most = np.zeros(max(len(rows.lines), 1), np.uint32), np.zeros(max(len(rows.lines), 1), np.int32)
    place = [np.zeros(0, np.int32)]
    for old, line in enumerate(rows.lines):
        new = number.get(line.key, -1) if line.key in places else -1
        place.append(places[line.key] if new >= 0 else np.zeros(line.cuts, np.int32))
        if new >= 0:
            new_line[old], most[old] = new, lines[new].cuts
    whole_place = np.concatenate(place)
    of_tests, of_sets = _RangeTests.of(rows)
    first, last = of_tests.moved(whole_place, most)
    set_first, set_last = of_sets.moved(whole_place, most)
    is_set = rows.side & 3 == SIDE_IN_SET
    fitting = np.array([0, *(patterns.setdefault(p, len(patterns)) for p in _used_patterns(rows))], np.int32)[1:]
    argument = rows.side >> 2
    moved = argument + sets
    if len(rows.patterns):
        whole = np.zeros(len(rows.patterns), np.int32)
        asked = np.unique(argument[~is_set])
        whole[asked] = fitting
        moved = np.where(is_set, moved, whole[np.where(is_set, 0, argument)])
    return {
        "first": first,
        "last": last,
        "set_first": set_first,
        "set_last": set_last,
        "line": new_line[of_tests.line] | (rows.line & np.uint32(NESTED)),
        "set_line": new_line[rows.set_line],
        "side": (moved << 2 | rows.side & 3).astype(np.int32),
    }


def _used_patterns(rows: RankForm) -> list[tuple[str, Pattern]]:
    asked = np.unique(rows.side[rows.side & 3 != SIDE_IN_SET] >> 2)
    return [rows.patterns[number] for number in asked.tolist()]
