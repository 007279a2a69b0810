"""Many filters at once, from their normal forms to rank form: those that are plain, which most are.

A filter is plain where it has one conjunction, and each of its constraints is one range of numbers or texts, one
prefix, one suffix or one substring. Python does no step of its own for any of them: msgspec writes their normal forms
as bytes, `read_filters` reads those, and lines are made of whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.language.filters import Filter
from meetpoint.language.like import Pattern
from meetpoint.matching.index.kernels.filter_scan import (
    BACK,
    HIGH,
    HIGH_AFTER,
    LOW,
    LOW_AFTER,
    NUMBER,
    POINT,
    RECORD_BYTES,
    SUBSTRING,
    TEXT,
    TEXTS,
    read_filters,
)
from meetpoint.matching.index.kernels.scanning import SIDE_FITS
from meetpoint.matching.index.lines import (
    Array,
    Line,
    LineKey,
    LineSort,
    binary_array,
    merge_cuts,
    sorted_text_line,
)
from meetpoint.matching.index.rows import NESTED, Rows, grouped, starts_of

__all__ = ["gather_plain", "read_chunk"]

_CHUNK = 2048
"""Filters that are written at a time: no other thread runs meanwhile, some two milliseconds."""
_SORTS = {NUMBER: LineSort.NUMBER, TEXT: LineSort.TEXT, BACK: LineSort.TEXT_BACK}


class _Read(NamedTuple):
    """Constraints of plain filters, as `read_filters` leaves them, and the numbers and forms of the other filters."""

    filters: int
    odd: list[tuple[int, Filter]]
    owner: Array  # of each conjunction
    conjunction: Array  # of each constraint, and so on
    sort: Array
    flags: Array
    bounds: Array
    texts: pa.LargeBinaryArray


def gather_plain(filters: Iterable[Filter]) -> tuple[Rows, list[tuple[int, Filter]]]:
    """The plain ones of some filters in rank form, numbered in the order of all, and the others with their numbers."""
    read = _read_all(filters)
    names = read.texts.take(pa.array(np.arange(0, len(read.texts), TEXTS))).dictionary_encode()
    attributes = [name.decode() for name in names.dictionary.to_pylist()]
    code = np.asarray(names.indices)
    line = np.zeros(len(code), np.uint32)
    first, last = np.zeros(len(code), np.int32), np.zeros(len(code), np.int32)
    lines: list[Line] = []
    is_test = read.sort != SUBSTRING
    tests = np.flatnonzero(is_test)
    of_lines = grouped(len(_SORTS) * code[tests] + read.sort[tests], len(_SORTS) * len(attributes))
    for at, group in enumerate(of_lines):
        if len(group):
            name, sort = divmod(at, len(_SORTS))
            mine = tests[group]
            make = _number_line if sort == NUMBER else _text_line
            made, first[mine], last[mine] = make(LineKey(attributes[name], _SORTS[sort]), read, mine)
            line[mine] = len(lines) | np.where(read.flags[mine] & POINT, NESTED, 0)
            lines.append(made)
    patterns, side = _patterns(read, np.flatnonzero(~is_test), code, attributes)
    conjunctions = len(read.owner)
    rows = Rows(
        subscriptions=read.filters,
        lines=tuple(lines),
        patterns=patterns,
        owner=read.owner,
        multiple=np.zeros(conjunctions, np.bool_),
        start=starts_of(np.bincount(read.conjunction[is_test], minlength=conjunctions)),
        line=line[is_test],
        first=first[is_test],
        last=last[is_test],
        side_start=starts_of(np.bincount(read.conjunction[~is_test], minlength=conjunctions)),
        side=side,
        set_start=np.zeros(1, np.int32),
        set_line=np.zeros(0, np.uint32),
        set_first=np.zeros(0, np.int32),
        set_last=np.zeros(0, np.int32),
    )
    return rows, read.odd


def _read_all(filters: Iterable[Filter]) -> _Read:
    odd: list[tuple[int, Filter]] = []
    columns: list[tuple[Array, ...]] = []
    texts: list[pa.Array] = []
    total = conjunctions = 0
    rest = iter(filters)
    while some := list(islice(rest, _CHUNK)):
        strange, owner, conjunction, *others, written = read_chunk(some)
        odd += [(total + number, some[number]) for number in np.flatnonzero(strange).tolist()]
        columns.append((owner + np.int32(total), conjunction + np.int32(conjunctions), *others))
        texts.append(written)
        total += len(some)
        conjunctions += len(owner)
    if not columns:
        none = np.zeros(0, np.int32)
        return _Read(0, odd, none, none, none, none, np.zeros((0, 2)), pa.array([], pa.large_binary()))
    owner, conjunction, sort, flags, bounds = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _Read(total, odd, owner, conjunction, sort, flags, bounds, pa.concat_arrays(texts))


def read_chunk(filters: Sequence[Filter]) -> tuple[Any, ...]:
    """Which filters are odd, and columns of the others as in `_Read`."""
    packed = _packed([filter_.conjunctions for filter_ in filters])
    room = len(packed) // RECORD_BYTES + 2
    odd, owner = np.zeros(len(filters), np.bool_), np.empty(len(filters), np.int32)
    conjunction, sort, flags = (np.empty(room, np.int32) for _ in range(3))
    bounds, offsets = np.empty((room, 2)), np.empty(TEXTS * room + 1, np.int64)
    texts = np.empty(2 * len(packed), np.uint8)
    conjunctions, count = read_filters(packed, odd, owner, conjunction, sort, flags, bounds, offsets, texts)
    ends = offsets[: TEXTS * count + 1]
    # only what is used is kept, and not the room there was for more
    kept = [column[:count].copy() for column in (conjunction, sort, flags, bounds)]
    return odd, owner[:conjunctions], *kept, binary_array(ends, texts[: ends[-1]].copy())


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


def _number_line(key: LineKey, read: _Read, mine: Array) -> tuple[Line, Array, Array]:
    """A line, and the range of ranks of each constraint on it."""
    flags = read.flags[mine]
    has_low, has_high = flags & LOW != 0, flags & HIGH != 0
    low, high = read.bounds[mine, 0], read.bounds[mine, 1]
    values, after, (low_place, high_place) = merge_cuts(
        [
            (low[has_low], flags[has_low] & LOW_AFTER != 0),
            (high[has_high], flags[has_high] & HIGH_AFTER != 0),
        ]
    )
    return Line(key, values, after), *_ranges(has_low, has_high, low_place, high_place, len(values))


def _text_line(key: LineKey, read: _Read, mine: Array) -> tuple[Line, Array, Array]:
    flags = read.flags[mine]
    has_low, has_high = flags & LOW != 0, flags & HIGH != 0
    at = np.concatenate([TEXTS * mine[has_low] + 1, TEXTS * mine[has_high] + 2])
    line, place = sorted_text_line(key, read.texts.take(pa.array(at)))
    lows = int(has_low.sum())
    return line, *_ranges(has_low, has_high, place[:lows], place[lows:], line.cuts)


def _ranges(has_low: Array, has_high: Array, low_place: Array, high_place: Array, cuts: int) -> tuple[Array, Array]:
    first, last = np.zeros(len(has_low), np.int32), np.full(len(has_low), cuts, np.int32)
    first[has_low] = low_place + 1
    last[has_high] = high_place
    return first, last


def _patterns(
    read: _Read, mine: Array, code: Array, attributes: list[str]
) -> tuple[tuple[tuple[str, Pattern], ...], Array]:
    """The patterns of constraints, each once, and the side test of each constraint."""
    encoded = read.texts.take(pa.array(TEXTS * mine + 1)).dictionary_encode()
    texts = [text.decode() for text in encoded.dictionary.to_pylist()]
    pairs = code[mine].astype(np.int64) << 32 | np.asarray(encoded.indices)
    distinct, number = np.unique(pairs, return_inverse=True)
    patterns = [(attributes[pair >> 32], Pattern(("", texts[pair & 0xFFFFFFFF], ""))) for pair in distinct.tolist()]
    return tuple(patterns), (number << 2 | SIDE_FITS).astype(np.int32)
