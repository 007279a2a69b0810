"""Many filters at once, from their normal forms to rank form: those that are plain, which most are.

A filter is plain where it has one conjunction, and each of its constraints is one range of numbers or texts, one
prefix, one suffix or one substring. Python does no step of its own for any of them: msgspec writes their normal forms
as bytes, `read_filters` reads those, and `rank_constraints` makes lines of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.like import Pattern
from meetpoint.matching.index.compile.rows import NESTED, Rows, group_starts, starts_of
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS
from meetpoint.matching.index.kernels.filter_scan import (
    BACK,
    NUMBER,
    POINT,
    RECORD_BYTES,
    SUBSTRING,
    TEXT,
    TEXTS,
    read_filters,
)
from meetpoint.matching.index.kernels.line_up import find_lines, rank_constraints
from meetpoint.matching.index.lines import Array, Line, LineKey, LineSort

__all__ = ["gather_plain", "read_chunk"]

_CHUNK = 2048
"""Filters that are written at a time: no other thread runs meanwhile, some two milliseconds."""
_SORTS = {TEXT: LineSort.TEXT, BACK: LineSort.TEXT_BACK}


class _Read(NamedTuple):
    """Constraints of plain filters, as `read_filters` leaves them, and the numbers and forms of the other filters."""

    filters: int
    odd: list[tuple[int, Filter]]
    owner: Array  # of each conjunction
    conjunction: Array  # of each constraint, and so on
    sort: Array
    flags: Array
    bounds: Array
    offsets: Array
    texts: Array


class _Lines(NamedTuple):
    """Where the constraints lie, as `find_lines` and `rank_constraints` leave it."""

    line: Array  # of each constraint
    names: list[str]  # of each line, and so on
    sorts: list[int]
    ends: list[int]
    first: Array  # of each constraint
    last: Array
    values: Array  # of each cut
    after: Array
    offsets: Array
    data: Array

    @staticmethod
    def of(read: _Read) -> _Lines:
        count = len(read.sort)
        line, met = np.empty(count, np.int32), np.empty(count, np.int32)
        lines = find_lines(read.sort, read.offsets, read.texts, line, met)
        met = met[:lines]
        starts, order = group_starts(line, lines)
        first, last = np.zeros(count, np.int32), np.zeros(count, np.int32)
        ends, values, after = np.empty(lines, np.int64), np.empty(2 * count), np.empty(2 * count, np.bool_)
        offsets, data = np.empty(2 * count + 1, np.int64), np.empty(len(read.texts), np.uint8)
        rank_constraints(
            starts, order, read.sort, read.flags, read.bounds, read.offsets, read.texts, first, last, ends, values,
            after, offsets, data,
        )  # fmt: skip
        texts = read.texts.tobytes()
        begins, name_ends = read.offsets[TEXTS * met].tolist(), read.offsets[TEXTS * met + 1].tolist()
        names = [texts[begin:end].decode() for begin, end in zip(begins, name_ends, strict=True)]
        return _Lines(line, names, read.sort[met].tolist(), ends.tolist(), first, last, values, after, offsets, data)

    def made(self) -> tuple[list[Line], list[tuple[str, Pattern]], Array]:
        """Lines and patterns, and for each line here its number among those, or that of its first pattern."""
        lines: list[Line] = []
        patterns: list[tuple[str, Pattern]] = []
        number = np.zeros(len(self.names), np.int64)
        for at, (name, sort, begin, end) in enumerate(
            zip(self.names, self.sorts, [0, *self.ends], self.ends, strict=False)
        ):
            number[at] = len(patterns if sort == SUBSTRING else lines)
            if sort == NUMBER:
                key = LineKey(name, LineSort.NUMBER)
                lines.append(Line(key, self.values[begin:end].copy(), self.after[begin:end].copy()))
                continue
            offsets = self.offsets[begin : end + 1] - self.offsets[begin]
            data = self.data[self.offsets[begin] : self.offsets[end]].copy()
            if sort == SUBSTRING:
                whole, ends = data.tobytes(), offsets.tolist()
                patterns += [(name, Pattern(("", whole[a:b].decode(), ""))) for a, b in pairwise(ends)]
            else:
                lines.append(Line(LineKey(name, _SORTS[sort]), offsets=offsets, data=data))
        return lines, patterns, number


def gather_plain(filters: Iterable[Filter]) -> tuple[Rows, list[tuple[int, Filter]]]:
    """The plain ones of some filters in rank form, numbered in the order of all, and the others with their numbers."""
    read = _read_all(filters)
    found = _Lines.of(read)
    lines, patterns, number = found.made()
    is_side = read.sort == SUBSTRING
    is_test = ~is_side
    of_test, of_side = found.line[is_test], found.line[is_side]
    nested = np.where(read.flags[is_test] & POINT, NESTED, 0)
    conjunctions = len(read.owner)
    rows = Rows(
        subscriptions=read.filters,
        lines=tuple(lines),
        patterns=tuple(patterns),
        owner=read.owner,
        multiple=np.zeros(conjunctions, np.bool_),
        start=starts_of(np.bincount(read.conjunction[is_test], minlength=conjunctions)),
        line=(number[of_test] | nested).astype(np.uint32),
        first=found.first[is_test],
        last=found.last[is_test],
        side_start=starts_of(np.bincount(read.conjunction[is_side], minlength=conjunctions)),
        side=(number[of_side] + found.first[is_side] << 2 | SIDE_FITS).astype(np.int32),
        set_start=np.zeros(1, np.int32),
        set_line=np.zeros(0, np.uint32),
        set_first=np.zeros(0, np.int32),
        set_last=np.zeros(0, np.int32),
    )
    return rows, read.odd


def _read_all(filters: Iterable[Filter]) -> _Read:
    odd: list[tuple[int, Filter]] = []
    columns: list[tuple[Array, ...]] = [_NO_COLUMNS]
    total = conjunctions = filled = 0
    rest = iter(filters)
    while some := list(islice(rest, _CHUNK)):
        strange, owner, conjunction, sort, flags, bounds, offsets, texts = read_chunk(some)
        odd += [(total + number, some[number]) for number in np.flatnonzero(strange).tolist()]
        numbers = owner + np.int32(total), conjunction + np.int32(conjunctions)
        columns.append((*numbers, sort, flags, bounds, offsets[1:] + filled, texts))
        total += len(some)
        conjunctions += len(owner)
        filled += len(texts)
    return _Read(total, odd, *(np.concatenate(column) for column in zip(*columns, strict=True)))


_NONE = np.zeros(0, np.int32)
_NO_COLUMNS: tuple[Array, ...] = (
    _NONE, _NONE, _NONE, _NONE, np.zeros((0, 2)), np.zeros(1, np.int64), np.zeros(0, np.uint8)
)  # fmt: skip
"""To begin with, so that there is something to put together where there are no filters; offsets begin with 0."""


def read_chunk(filters: Sequence[Filter]) -> tuple[Array, ...]:
    """Which filters are odd, and columns of the others as in `_Read`."""
    packed = _packed([filter_.conjunctions for filter_ in filters])
    room = len(packed) // RECORD_BYTES + 2
    odd, owner = np.zeros(len(filters), np.bool_), np.empty(len(filters), np.int32)
    conjunction, sort, flags = (np.empty(room, np.int32) for _ in range(3))
    bounds, offsets = np.empty((room, 2)), np.empty(TEXTS * room + 1, np.int64)
    texts = np.empty(2 * len(packed), np.uint8)
    conjunctions, count = read_filters(packed, odd, owner, conjunction, sort, flags, bounds, offsets, texts)
    columns = (column[:count] for column in (conjunction, sort, flags, bounds))
    return odd, owner[:conjunctions], *columns, offsets[: TEXTS * count + 1], texts[: offsets[TEXTS * count]]


def _packed(forms: list[Any]) -> Array:
    """Normal forms as MessagePack; None for those that it has no bytes for: `_` in a pattern, integers of 65 bits."""
    try:
        return np.frombuffer(_ENCODER.encode(forms), np.uint8)
    except (UnicodeEncodeError, OverflowError):
        return np.frombuffer(_ENCODER.encode([_raw(form) for form in forms]), np.uint8)


def _raw(form: Any) -> Any:
    try:
        return msgspec.Raw(_ENCODER.encode(form))
    except (UnicodeEncodeError, OverflowError):
        return _ODD


_ENCODER = msgspec.msgpack.Encoder()
_ODD = msgspec.Raw(_ENCODER.encode([None, None]))
"""What has two conjunctions is odd, whatever they are."""
