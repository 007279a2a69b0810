"""From constraints as columns to rank form, with no Python per constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.language.like import Pattern
from meetpoint.language.patterns import prefix_interval
from meetpoint.matching.index.kernels.scanning import SIDE_FITS
from meetpoint.matching.index.lines import Array, Line, LineKey, LineSort, text_line
from meetpoint.matching.index.rows import NESTED, Rows, starts_of

__all__ = ["gather_columns"]

_OPS = ("eq", "range", "prefix", "suffix", "contains")


class _Tests:
    def __init__(self, count: int) -> None:
        self.line = np.zeros(count, np.uint16)
        self.first = np.zeros(count, np.int32)
        self.last = np.zeros(count, np.int32)
        self.pattern = np.full(count, -1, np.int32)


def gather_columns(table: pa.Table) -> tuple[Rows, pa.Array]:
    """Rank form of a table with the columns subscription, attribute, op, low, high and text; and the ids.

    A subscription is the conjunction of its rows, which stand together. Ops: eq (of a text, or of a number in low and
    high), range (low and high included), prefix, suffix, contains.
    """
    _check(table)
    ids = _chunk(table["subscription"])
    keys = np.asarray(ids)
    fresh = np.ones(len(keys), np.bool_)
    fresh[1:] = keys[1:] != keys[:-1]
    begins = np.flatnonzero(fresh)
    attribute = _encoded(table["attribute"])
    op = _encoded(table["op"])
    code, names = np.asarray(attribute.indices), attribute.dictionary.to_pylist()
    op_code, op_names = np.asarray(op.indices), op.dictionary.to_pylist()
    unknown = set(op_names) - set(_OPS)
    if unknown:
        raise MeetpointError(f"column op has {sorted(unknown)[0]!r}; use {', '.join(_OPS)}")
    low, high = (np.asarray(_chunk(table[name])) for name in ("low", "high"))
    text = _chunk(table["text"])
    has_text = np.asarray(text.is_valid())
    tests = _Tests(table.num_rows)
    lines: list[Line] = []
    patterns: dict[tuple[str, Pattern], int] = {}
    which = {name: op_code == op_names.index(name) if name in op_names else None for name in _OPS}
    for number, name in enumerate(names):
        mine = code == number
        _numbers(name, np.flatnonzero(mine & ~has_text), low, high, tests, lines)
        _texts(name, mine & has_text, which, text, tests, lines, patterns)
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
        set_line=np.zeros(0, np.uint16),
        set_first=np.zeros(0, np.int32),
        set_last=np.zeros(0, np.int32),
    )
    return rows, ids.take(pa.array(begins))


def _check(table: pa.Table) -> None:
    for name in ("subscription", "attribute", "op", "low", "high", "text"):
        if name not in table.column_names:
            raise MeetpointError(f"there is no column {name}; the columns are {', '.join(table.column_names)}")


def _chunk(column: Any) -> Any:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _encoded(column: Any) -> Any:
    return _chunk(column).dictionary_encode()


def _numbers(name: str, rows: Array, low: Array, high: Array, tests: _Tests, lines: list[Line]) -> None:
    """Closed ranges: a cut before each lower bound and one after each upper bound."""
    if not len(rows):
        return
    before, at_low = np.unique(low[rows] + 0.0, return_inverse=True)
    after, at_high = np.unique(high[rows] + 0.0, return_inverse=True)
    low_place = np.arange(len(before)) + np.searchsorted(after, before, "left")
    high_place = np.arange(len(after)) + np.searchsorted(before, after, "right")
    values = np.empty(len(before) + len(after))
    is_after = np.zeros(len(values), np.bool_)
    values[low_place], values[high_place] = before, after
    is_after[high_place] = True
    nested = np.where(low[rows] == high[rows], NESTED, 0)
    tests.line[rows] = len(lines) | nested
    tests.first[rows] = low_place[at_low] + 1
    tests.last[rows] = high_place[at_high]
    lines.append(Line(LineKey(name, LineSort.NUMBER), values, is_after))


def _texts(
    name: str, mine: Array, which: dict[str, Any], text: Any, tests: _Tests, lines: list[Line], patterns: dict[Any, int]
) -> None:
    """Each distinct text once, whatever asks for it."""
    forward: list[tuple[Array, Array, list[bytes | None], list[bytes | None]]] = []
    for op in ("eq", "prefix", "suffix", "contains"):
        rows = np.flatnonzero(mine & which[op]) if which[op] is not None else np.zeros(0, np.int64)
        if not len(rows):
            continue
        encoded = text.take(pa.array(rows)).dictionary_encode()
        at, distinct = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
        if op == "contains":
            numbers = [patterns.setdefault((name, Pattern(("", d, ""))), len(patterns)) for d in distinct]
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
