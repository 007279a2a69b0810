"""From constraints as columns to rank form, with no Python per constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import MeetpointError
from meetpoint.language.filters.like import Pattern
from meetpoint.language.filters.patterns import prefix_interval
from meetpoint.matching.index.compile.rows import NESTED, Rows, grouped, starts_of
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS
from meetpoint.matching.index.lines import Array, Line, LineKey, LineSort, text_line

__all__ = ["gather_columns"]

_OPS = ("eq", "range", "prefix", "suffix", "contains")


class _Tests:
    def __init__(self, count: int) -> None:
        self.line = np.zeros(count, np.uint32)
        self.first = np.zeros(count, np.int32)
        self.last = np.zeros(count, np.int32)
        self.pattern = np.full(count, -1, np.int32)


def gather_columns(table: pa.Table) -> tuple[Rows, pa.Array]:
    """Rank form of a table with the columns subscription, attribute, op, low, high and text; and the ids.

    A subscription is the conjunction of its rows, which stand together. Ops: eq (of a text, or of a number in low and
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
    lines: list[Line] = []
    patterns: dict[tuple[str, Pattern], int] = {}
    for name, mine in zip(names, grouped(code, len(names)), strict=True):
        _numbers(name, mine[~has_text[mine]], low, high, tests, lines)
        _texts(name, mine[has_text[mine]], which, text, tests, lines, patterns)
    never = np.flatnonzero(~has_text & (low > high))
    if len(never):
        tests.line[never], tests.first[never], tests.last[never] = len(lines), 1, 1
        lines.append(Line(LineKey("", LineSort.ALWAYS)))
    is_pattern = tests.pattern >= 0
    owner_of_row = np.cumsum(fresh) - 1
    side_counts = np.bincount(owner_of_row[is_pattern], minlength=len(begins))
    counts = np.bincount(owner_of_row, minlength=len(begins)) - side_counts
    rows = Rows(
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
    """The columns, each of one piece and of the type that is worked with; MeetpointError names one that has another."""
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


def _numbers(name: str, rows: Array, low: Array, high: Array, tests: _Tests, lines: list[Line]) -> None:
    """Closed ranges: a cut before each lower bound and one after each upper bound, none at infinity."""
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
    lines.append(Line(LineKey(name, LineSort.NUMBER), values, is_after))


def _texts(
    name: str, mine: Array, which: dict[str, Any], text: Any, tests: _Tests, lines: list[Line], patterns: dict[Any, int]
) -> None:
    """Each distinct text once, whatever asks for it."""
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
    lines: list[Line],
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
