"""From filters to rank form: the plain ones all at once, by `gather_plain`, and the others one by one, here.

What a conjunction says of an attribute becomes tests: a range of one line, a pattern, or a set of ranges. A set of
values (`symbol IN (...)`) is multiplied out where nothing else of the conjunction leads to few events, since each value
then has a bucket of its own; the alternatives exclude one another, so no event is found twice by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import sleep
from typing import Any

import numpy as np

from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.like import Pattern
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.matching.index.compile.bulk import gather_plain
from meetpoint.matching.index.compile.readers import MIDDLE, READERS, Range, Test
from meetpoint.matching.index.compile.rows import NESTED, Rows, grouped, interleaved, starts_of
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS, SIDE_IN_SET
from meetpoint.matching.index.lines import Line, LineKey, LineSort, text_line

__all__ = ["gather"]

_MULTIPLIED_MAX = 4096
"""Values of a set that is multiplied out."""
_BREATH = 256
"""Filters after which other threads get their turn."""


class _Cuts:
    """The cuts of one line as they are met, numbered in that order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids: dict[Any, int] = {}

    def of(self, cut: Any) -> int:
        return -1 if cut is None else self.ids.setdefault(cut, len(self.ids))


class _Gatherer:
    def __init__(self) -> None:
        self.cuts: dict[LineKey, _Cuts] = {}
        self.patterns: dict[tuple[str, Pattern], int] = {}
        self.owner: list[int] = []
        self.multiple: list[bool] = []
        self.tests: list[int] = []  # conjunction, line, low cut, high cut, one test after the other
        self.sides: list[tuple[int, int]] = []  # conjunction, side test
        self.sets: dict[int, int] = {}
        self.set_lines: list[int] = []
        self.set_counts: list[int] = []
        self.set_ranges: list[tuple[int, int, int, int]] = []  # set, line, low cut, high cut

    def add(self, owner: int, conjunctions: Sequence[Conjunction]) -> None:
        multiple = len(conjunctions) > 1
        for conjunction in conjunctions:
            tests: list[Test] = []
            patterns: list[tuple[int, str, Pattern]] = []
            if not all(READERS[type(c)](attribute, c, tests, patterns) for attribute, c in conjunction.constraints):
                continue  # no value satisfies one of them, though no single part of it says so
            if not tests and not any(asked == SIDE_FITS for asked, _, _ in patterns):
                tests.append((LineKey("", LineSort.ALWAYS), [(None, None, True)]))
            spread = _to_multiply(tests, patterns)
            if spread is None:
                self._emit(owner, multiple, tests, patterns)
                self.sets.clear()
                continue
            for one in tests[spread][1]:
                self._emit(
                    owner, multiple, [*tests[:spread], (tests[spread][0], [one]), *tests[spread + 1 :]], patterns
                )
            self.sets.clear()

    def _emit(self, owner: int, multiple: bool, tests: list[Test], patterns: list[tuple[int, str, Pattern]]) -> None:
        conjunction = len(self.owner)
        for key, ranges in tests:
            self._emit_test(conjunction, key, ranges)
        for asked, attribute, pattern in patterns:
            number = self.patterns.setdefault((attribute, pattern), len(self.patterns))
            self.sides.append((conjunction, number << 2 | asked))
        self.owner.append(owner)
        self.multiple.append(multiple)

    def _emit_test(self, conjunction: int, key: LineKey, ranges: list[Range]) -> None:
        cuts = self._cuts_of(key)
        low, high, nested = ranges[0]
        if len(ranges) > 1:
            high, nested = ranges[-1][1], low is None and ranges[-1][1] is None
        line = cuts.number | NESTED if nested else cuts.number
        self.tests += (conjunction, line, cuts.of(low), cuts.of(high))
        if len(ranges) == 2:  # from the gap's end around to its beginning
            self.tests += (conjunction, cuts.number, cuts.of(ranges[1][0]), cuts.of(ranges[0][1]))
        elif len(ranges) > 2:
            known = self.sets.get(id(ranges))  # the copies of a conjunction share its sets
            self.sides.append((conjunction, (len(self.set_lines) if known is None else known) << 2 | SIDE_IN_SET))
            if known is not None:
                return
            self.sets[id(ranges)] = len(self.set_lines)
            self.set_ranges += [(len(self.set_lines), cuts.number, cuts.of(a), cuts.of(b)) for a, b, _ in ranges]
            self.set_lines.append(cuts.number)
            self.set_counts.append(len(ranges))

    def _cuts_of(self, key: LineKey) -> _Cuts:
        cuts = self.cuts.get(key)
        if cuts is None:
            cuts = self.cuts[key] = _Cuts(len(self.cuts))
        return cuts

    def rows(self, subscriptions: int) -> Rows:
        """All that was added, in rank form."""
        lines = [_line(key, cuts.ids) for key, cuts in self.cuts.items()]
        tests = np.array(self.tests, np.int64).reshape(-1, 4)
        tests = tests[np.argsort(tests[:, 0], kind="stable")]
        sides = np.array(self.sides, np.int64).reshape(-1, 2)
        sides = sides[np.argsort(sides[:, 0], kind="stable")]
        sets = np.array(self.set_ranges, np.int64).reshape(-1, 4)
        first, last = _ranks(tests, lines)
        set_first, set_last = _ranks(sets, lines)
        conjunctions = len(self.owner)
        return Rows(
            subscriptions=subscriptions,
            lines=tuple(line for line, _ in lines),
            patterns=tuple(self.patterns),
            owner=np.array(self.owner, np.int32),
            multiple=np.array(self.multiple, np.bool_),
            start=starts_of(np.bincount(tests[:, 0], minlength=conjunctions)),
            line=tests[:, 1].astype(np.uint32),
            first=first,
            last=last,
            side_start=starts_of(np.bincount(sides[:, 0], minlength=conjunctions)),
            side=sides[:, 1].astype(np.int32),
            set_start=starts_of(np.array(self.set_counts, np.int64)),
            set_line=np.array(self.set_lines, np.uint32),
            set_first=set_first,
            set_last=set_last,
        )


def gather(filters: Iterable[Filter]) -> Rows:
    """The filters in rank form, numbered in their order."""
    rows, odd = gather_plain(filters)
    if not odd:
        return rows
    gatherer = _Gatherer()
    for at, (number, filter_) in enumerate(odd):
        gatherer.add(number, filter_.conjunctions)
        if at % _BREATH == 0:
            sleep(0)  # threads that match need the interpreter many times an event, each time for a moment only
    return interleaved(rows, gatherer.rows(rows.subscriptions))


def _ranks(tests: Any, lines: list[tuple[Line, Any]]) -> tuple[Any, Any]:
    """Numbers of cuts, as they were met, as ranks."""
    number = tests[:, 1] & ~NESTED
    first = np.zeros(len(tests), np.int32)
    last = np.zeros(len(tests), np.int32)
    for (line, place), mine in zip(lines, grouped(number, len(lines)), strict=True):
        low, high = tests[mine, 2], tests[mine, 3]
        padded = np.concatenate([place, np.array([0], np.int32)])
        first[mine] = np.where(low >= 0, padded[low] + 1, 0)
        last[mine] = np.where(high >= 0, padded[high], line.cuts)
    return first, last


def _line(key: LineKey, ids: dict[Any, int]) -> tuple[Line, Any]:
    """A line, and for each cut as it was met its place."""
    place = np.zeros(len(ids), np.int32)
    match key.sort:
        case LineSort.ALWAYS | LineSort.PRESENCE | LineSort.BOOLEAN:
            return Line(key), place  # the one cut there can be is number 0
        case LineSort.ODD_NUMBER:
            return _odd_line(key, ids, place)
    if key.sort is LineSort.NUMBER:
        values, after = np.array(list(ids), np.float64).reshape(-1, 2).T
        order = np.lexsort((after, values))
        place[order] = np.arange(len(order))
        return Line(key, values[order], after[order].astype(np.bool_)), place
    cuts = sorted(ids)
    place[[ids[cut] for cut in cuts]] = np.arange(len(cuts))
    if key.sort is LineSort.INSTANT:
        return Line(key, np.array(cuts, np.int64), np.zeros(len(cuts), np.bool_)), place
    return text_line(key, cuts), place


def _odd_line(key: LineKey, ids: dict[Any, int], place: Any) -> tuple[Line, Any]:
    exact = sorted((cut for cut in ids if cut[0] == "exact"), key=lambda cut: cut[1:])
    floats = sorted((cut for cut in ids if cut[0] == "float"), key=lambda cut: cut[1:])
    for at, cut in enumerate(exact):
        place[ids[cut]] = at
    for at, cut in enumerate(floats):
        place[ids[cut]] = len(exact) + 1 + at
    if MIDDLE in ids:
        place[ids[MIDDLE]] = len(exact)
    line = Line(
        key,
        np.array([v for _, v, _ in floats], np.float64),
        np.array([a for _, _, a in floats], np.bool_),
        tuple(v for _, v, _ in exact),
        tuple(bool(a) for _, _, a in exact),
    )
    return line, place


def _to_multiply(tests: list[Test], patterns: list[tuple[int, str, Pattern]]) -> int | None:
    """Which test to multiply out: the set of values with the fewest, if nothing else singles out events as well."""
    best: int | None = None
    for at, (key, ranges) in enumerate(tests):
        if len(ranges) == 1:
            low, high, nested = ranges[0]
            if nested and key.sort >= LineSort.NUMBER and (low is not None or high is not None):
                return None
        elif (
            len(ranges) <= _MULTIPLIED_MAX
            and all(nested for _, _, nested in ranges)
            and (best is None or len(ranges) < len(tests[best][1]))
        ):
            best = at
    return None if any(asked == SIDE_FITS for asked, _, _ in patterns) else best
