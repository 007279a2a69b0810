"""Many filters at once to rank form: plain filters, and constraints that come as columns.

A filter is plain if it has one conjunction, and each of its constraints is one range of numbers or texts, one prefix,
one suffix or one substring. Most filters are. No Python runs for any single one of them: msgspec writes their normal
forms as bytes, `read_filters` reads those, and `rank_constraints` makes lines of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import MeetpointError
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.like import Pattern, prefix_interval
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS
from meetpoint.matching.index.kernels.build import find_lines, rank_constraints
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
from meetpoint.matching.index.lines import Array, LineKey, LineSort, RankLine, text_line
from meetpoint.matching.index.rank_form import NESTED, RankForm, group_starts, grouped, starts_of

__all__ = ["gather_columns", "gather_plain", "read_chunk"]


_CHUNK = 2048
"""Filters that are encoded at a time: no other thread runs meanwhile, some two milliseconds."""
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
    """The lines and ranks of the constraints, as `find_lines` and `rank_constraints` leave them."""

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

    def made(self) -> tuple[list[RankLine], list[tuple[str, Pattern]], Array]:
        """Return lines and patterns; for each line here its number among those, or that of its first pattern."""
        lines: list[RankLine] = []
        patterns: list[tuple[str, Pattern]] = []
        number = np.zeros(len(self.names), np.int64)
        for at, (name, sort, begin, end) in enumerate(
            zip(self.names, self.sorts, [0, *self.ends], self.ends, strict=False)
        ):
            number[at] = len(patterns if sort == SUBSTRING else lines)
            if sort == NUMBER:
                key = LineKey(name, LineSort.NUMBER)
                lines.append(RankLine(key, self.values[begin:end].copy(), self.after[begin:end].copy()))
                continue
            offsets = self.offsets[begin : end + 1] - self.offsets[begin]
            data = self.data[self.offsets[begin] : self.offsets[end]].copy()
            if sort == SUBSTRING:
                whole, ends = data.tobytes(), offsets.tolist()
                patterns += [(name, Pattern(("", whole[a:b].decode(), ""))) for a, b in pairwise(ends)]
            else:
                lines.append(RankLine(LineKey(name, _SORTS[sort]), offsets=offsets, data=data))
        return lines, patterns, number


def gather_plain(filters: Iterable[Filter]) -> tuple[RankForm, list[tuple[int, Filter]]]:
    """Return plain filters in rank form, numbered in the order of all filters, and the others with their numbers."""
    read = _read_all(filters)
    found = _Lines.of(read)
    lines, patterns, number = found.made()
    is_side = read.sort == SUBSTRING
    is_test = ~is_side
    of_test, of_side = found.line[is_test], found.line[is_side]
    nested = np.where(read.flags[is_test] & POINT, NESTED, 0)
    conjunctions = len(read.owner)
    rows = RankForm(
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
"""The first columns, so that there is something to concatenate if there are no filters; offsets begin with 0."""


def read_chunk(filters: Sequence[Filter]) -> tuple[Array, ...]:
    """Return which filters are odd, and columns of the others as in `_Read`."""
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
    """Return normal forms as MessagePack; odd forms for those without bytes: `_` in a pattern, 65-bit integers."""
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
"""A form with two conjunctions, which is always odd."""


_OPS = ("eq", "range", "prefix", "suffix", "contains")


class _Tests:
    def __init__(self, count: int) -> None:
        self.line = np.zeros(count, np.uint32)
        self.first = np.zeros(count, np.int32)
        self.last = np.zeros(count, np.int32)
        self.pattern = np.full(count, -1, np.int32)


def gather_columns(table: pa.Table) -> tuple[RankForm, pa.Array]:
    """Return the rank form of a table with the columns subscription, attribute, op, low, high and text; and the ids.

    A subscription is the conjunction of its rows, which are neighbours. Ops: eq (of a text, or of a number in low and
    high), range (low and high included), prefix, suffix, contains.
    """
    columns = _read(table)
    ids = columns["subscription"]
    fresh = np.ones(len(ids), np.bool_)
    fresh[1:] = np.asarray(pc.not_equal(ids[1:], ids[:-1]))
    begins = np.flatnonzero(fresh)
    first_rows = ids.take(pa.array(begins))
    if len(pc.unique(first_rows)) < len(begins):
        twice = pc.value_counts(first_rows)
        again = twice.field("values").filter(pc.greater(twice.field("counts"), 1))[0].as_py()
        raise MeetpointError(f"constraints: the rows of subscription {again!r} do not stand together; sort the table")
    attribute, op = columns["attribute"].dictionary_encode(), columns["op"].dictionary_encode()
    code, names = np.asarray(attribute.indices), attribute.dictionary.to_pylist()
    op_code, op_names = np.asarray(op.indices), op.dictionary.to_pylist()
    which = {
        name: op_code == op_names.index(name) if name in op_names else np.zeros(len(ids), np.bool_) for name in _OPS
    }
    low, high, text = columns["low"], columns["high"], columns["text"]
    has_text = np.asarray(text.is_valid())
    _check_rows(which, op_names, low, high, has_text)
    tests = _Tests(table.num_rows)
    lines: list[RankLine] = []
    patterns: dict[tuple[str, Pattern], int] = {}
    for name, mine in zip(names, grouped(code, len(names)), strict=True):
        _numbers(name, mine[~has_text[mine]], low, high, tests, lines)
        _texts(name, mine[has_text[mine]], which, text, tests, lines, patterns)
    never = np.flatnonzero(~has_text & (low > high))
    if len(never):
        tests.line[never], tests.first[never], tests.last[never] = len(lines), 1, 1
        lines.append(RankLine(LineKey("", LineSort.ALWAYS)))
    is_pattern = tests.pattern >= 0
    owner_of_row = np.cumsum(fresh) - 1
    side_counts = np.bincount(owner_of_row[is_pattern], minlength=len(begins))
    counts = np.bincount(owner_of_row, minlength=len(begins)) - side_counts
    rows = RankForm(
        subscriptions=len(begins),
        lines=tuple(lines),
        patterns=tuple(patterns),
        owner=np.arange(len(begins), dtype=np.int32),
        multiple=np.zeros(len(begins), np.bool_),
        start=starts_of(counts),
        line=tests.line[~is_pattern],
        first=tests.first[~is_pattern],
        last=tests.last[~is_pattern],
        side_start=starts_of(side_counts),
        side=(tests.pattern[is_pattern] << 2 | SIDE_FITS).astype(np.int32),
        set_start=np.zeros(1, np.int32),
        set_line=np.zeros(0, np.uint32),
        set_first=np.zeros(0, np.int32),
        set_last=np.zeros(0, np.int32),
    )
    return rows, first_rows


def _read(table: Any) -> dict[str, Any]:
    """Return the columns, each in one piece and of the type used here; MeetpointError names a wrong one."""
    if not isinstance(table, pa.Table):
        raise MeetpointError(f"constraints: given an object of class {type(table).__name__}; give a pyarrow Table")
    columns: dict[str, Any] = {}
    for name in ("subscription", "attribute", "op", "low", "high", "text"):
        if name not in table.column_names:
            raise MeetpointError(
                f"constraints: there is no column {name}; the columns are {', '.join(table.column_names)}"
            )
        column = table[name]
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind = array.type
        if name in ("low", "high"):
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
                raise MeetpointError(f"constraints: column {name} is of Arrow type {kind}; give doubles")
            if (
                pa.types.is_integer(kind)
                and len(array) > array.null_count
                and max(map(abs, pc.min_max(array).as_py().values())) > 2**53
            ):
                raise MeetpointError(f"constraints: column {name} has integers beyond 2**53; add such filters as texts")
            columns[name] = np.asarray(array.cast(pa.float64()).fill_null(np.nan))
            continue
        if name != "subscription":
            if not (_is_text(kind) or (name == "text" and pa.types.is_null(kind))):
                raise MeetpointError(f"constraints: column {name} is of Arrow type {kind}; give strings")
            array = array.cast(pa.large_string())
        if name != "text" and array.null_count:
            row = int(np.flatnonzero(np.asarray(array.is_null()))[0])
            raise MeetpointError(f"constraints, row {row}: there is no {name}; give one")
        columns[name] = array
    return columns


def _is_text(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _check_rows(which: dict[str, Array], op_names: list[str], low: Array, high: Array, has_text: Array) -> None:
    unknown = sorted(set(op_names) - set(_OPS))
    if unknown:
        raise MeetpointError(f"constraints: column op has {unknown[0]!r}; use {', '.join(_OPS)}")
    numbers = (which["eq"] & ~has_text) | which["range"]
    for wrong, problem in (
        (~has_text & ~numbers, "has no text; give one"),
        (which["range"] & has_text, "is a range and has a text; give low and high only"),
        (numbers & (np.isnan(low) | np.isnan(high)), "has no low or no high; give both, -inf and inf for open ends"),
        (numbers & ((low == np.inf) | (high == -np.inf)), "begins at inf or ends at -inf; give a finite bound"),
        (which["eq"] & numbers & (low != high), "is an equality with two values; give one as low and high"),
    ):
        if wrong.any():
            raise MeetpointError(f"constraints, row {int(np.flatnonzero(wrong)[0])}: {problem}")


def _numbers(name: str, rows: Array, low: Array, high: Array, tests: _Tests, lines: list[RankLine]) -> None:
    """Add closed ranges: a cut before each lower bound and one after each upper bound, none at infinity."""
    if not len(rows):
        return
    before, at_low = np.unique(low[rows] + 0.0, return_inverse=True)
    after, at_high = np.unique(high[rows] + 0.0, return_inverse=True)
    from_start, to_end = before[0] == -np.inf, after[-1] == np.inf
    before, at_low = (before[1:], at_low - 1) if from_start else (before, at_low)
    after = after[:-1] if to_end else after
    low_place = np.arange(len(before)) + np.searchsorted(after, before, "left")
    high_place = np.arange(len(after)) + np.searchsorted(before, after, "right")
    values = np.empty(len(before) + len(after))
    is_after = np.zeros(len(values), np.bool_)
    values[low_place], values[high_place] = before, after
    is_after[high_place] = True
    nested = np.where(low[rows] == high[rows], NESTED, 0)
    tests.line[rows] = len(lines) | nested
    tests.first[rows] = np.append(low_place + 1, 0)[at_low]  # -1, for no cut, is the last one
    tests.last[rows] = np.append(high_place, len(values))[at_high]
    lines.append(RankLine(LineKey(name, LineSort.NUMBER), values, is_after))


def _texts(
    name: str,
    mine: Array,
    which: dict[str, Any],
    text: Any,
    tests: _Tests,
    lines: list[RankLine],
    patterns: dict[Any, int],
) -> None:
    """Add each distinct text once, for all ops that ask for it."""
    forward: list[tuple[Array, Array, list[bytes | None], list[bytes | None]]] = []
    for op in ("eq", "prefix", "suffix", "contains"):
        rows = mine[which[op][mine]]
        if not len(rows):
            continue
        encoded = text.take(pa.array(rows)).dictionary_encode()
        at, distinct = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
        if op == "contains" and "" in distinct:  # which any text contains
            empty = at == distinct.index("")
            forward.append((rows[empty], np.zeros(int(empty.sum()), np.int64), [None], [None]))
            rows, at = rows[~empty], at[~empty]
        if op == "contains":
            numbers = [patterns.setdefault((name, Pattern(("", d, ""))), len(patterns)) if d else 0 for d in distinct]
            tests.pattern[rows] = np.array(numbers, np.int32)[at]
        elif op == "eq":
            forward.append((rows, at, [d.encode() or None for d in distinct], [d.encode() + b"\0" for d in distinct]))
        else:
            spelt = distinct if op == "prefix" else [d[::-1] for d in distinct]
            bounds = [prefix_interval(d)[0] for d in spelt]
            lows = [str(b.low).encode() or None for b in bounds]
            highs = [None if b.high is None else str(b.high).encode() for b in bounds]
            if op == "prefix":
                forward.append((rows, at, lows, highs))
            else:
                _text_line(LineKey(name, LineSort.TEXT_BACK), [(rows, at, lows, highs)], tests, lines)
    if forward:
        _text_line(LineKey(name, LineSort.TEXT), forward, tests, lines)


def _text_line(
    key: LineKey,
    groups: list[tuple[Array, Array, list[bytes | None], list[bytes | None]]],
    tests: _Tests,
    lines: list[RankLine],
) -> None:
    cuts = sorted({cut for _, _, lows, highs in groups for cut in (*lows, *highs) if cut is not None})
    place = {cut: at for at, cut in enumerate(cuts)}
    for rows, at, lows, highs in groups:
        first = np.array([0 if cut is None else place[cut] + 1 for cut in lows], np.int32)
        last = np.array([len(cuts) if cut is None else place[cut] for cut in highs], np.int32)
        tests.line[rows] = len(lines) | NESTED
        tests.first[rows] = first[at]
        tests.last[rows] = last[at]
    lines.append(text_line(key, cuts))
