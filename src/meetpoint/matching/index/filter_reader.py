"""Filters to rank form: plain ones all at once, by `gather_plain`, and the others one by one.

A constraint becomes tests: ranges of cuts on a line, and patterns. A test is a range of one line, a pattern, or a set
of ranges. A set of values (`symbol IN (...)`) is multiplied out if nothing else of the conjunction leads to few events:
then each value has a bucket of its own. The alternatives exclude one another, so no event is found twice by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from time import sleep
from typing import Any, TypeAlias

import numpy as np

from meetpoint.language.filters.constraints import (
    EVERY_TEXT,
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import Intervals, complement, intersect
from meetpoint.language.filters.like import ANY_CHAR, Pattern, PatternSort, prefix_interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.matching.index.bulk_reader import gather_plain
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS, SIDE_FITS_NOT, SIDE_IN_SET
from meetpoint.matching.index.lines import LineKey, LineSort, RankLine, is_plain, text_line
from meetpoint.matching.index.rank_form import NESTED, RankForm, grouped, interleaved, starts_of

__all__ = ["gather"]


Range: TypeAlias = tuple[Any, Any, bool]
"""The low cut, the high cut, and whether the range nests (a prefix or one value).

A cut is a value and 0 before or 1 after it; None is the end of the line. Bytes stand for the cut before them.
"""
Test: TypeAlias = tuple[LineKey, list[Range]]

MIDDLE = (0, 0)
"""The cut between the two stretches of the line of odd numbers."""


def _absent(attribute: str, _: Absent, tests: list[Test], patterns: list[Any]) -> bool:
    tests.append((LineKey(attribute, LineSort.PRESENCE), [(None, (0, 0), True)]))
    return True


def _present(attribute: str, _: Present, tests: list[Test], patterns: list[Any]) -> bool:
    tests.append((LineKey(attribute, LineSort.PRESENCE), [((0, 0), None, True)]))
    return True


def _boolean(attribute: str, constraint: BooleanSet, tests: list[Test], patterns: list[Any]) -> bool:
    low = (0, 0) if constraint.values == (True,) else None
    high = (0, 0) if constraint.values == (False,) else None
    tests.append((LineKey(attribute, LineSort.BOOLEAN), [(low, high, True)]))
    return True


def _number(attribute: str, constraint: NumberSet, tests: list[Test], patterns: list[Any]) -> bool:
    exact = constraint.exact
    if constraint.doubles is None and all(
        bound is None or is_plain(bound, float(bound))  # type: ignore[arg-type]
        for i in exact
        for bound in (i.low, i.high)
    ):
        ranges = [
            (
                None if i.low is None else (float(i.low), int(i.low_open)),  # type: ignore[arg-type]
                None if i.high is None else (float(i.high), int(not i.high_open)),  # type: ignore[arg-type]
                i.is_point or (i.low is None and i.high is None),
            )
            for i in exact
        ]
        tests.append((LineKey(attribute, LineSort.NUMBER), ranges))
        return True
    odd: list[Range] = [
        (
            None if i.low is None else ("exact", i.low, int(i.low_open)),
            MIDDLE if i.high is None else ("exact", i.high, int(not i.high_open)),
            i.is_point,
        )
        for i in exact
    ]
    odd += [
        (
            MIDDLE if i.low is None else ("float", i.low, int(i.low_open)),
            None if i.high is None else ("float", i.high, int(not i.high_open)),
            i.is_point,
        )
        for i in constraint.for_floats()
    ]
    tests.append((LineKey(attribute, LineSort.ODD_NUMBER), odd))
    return True


def _instant(attribute: str, constraint: TimestampSet, tests: list[Test], patterns: list[Any]) -> bool:
    ranges: list[Range] = []
    for i in constraint.intervals:
        low = None if i.low is None else _micros(i.low) + i.low_open
        high = None if i.high is None else _micros(i.high) + (not i.high_open)
        if low is None or high is None or low < high:
            ranges.append((low, high, i.is_point or (low is None and high is None)))
    tests.append((LineKey(attribute, LineSort.INSTANT), ranges))
    return bool(ranges)


def _micros(bound: Any) -> int:
    assert isinstance(bound, datetime)
    return (bound - EPOCH) // MICROSECOND


def _text(attribute: str, constraint: TextSet, tests: list[Test], patterns: list[Any]) -> bool:
    forward = constraint.intervals
    if not constraint.like and not constraint.unlike:
        ranges = _text_ranges(forward)
        tests.append((LineKey(attribute, LineSort.TEXT), ranges))
        return bool(ranges)
    backward: Intervals = EVERY_TEXT
    prefix = suffix = ""
    fits = 0
    for pattern in constraint.like:
        sort = pattern.sort
        head = pattern.pieces[0].partition(ANY_CHAR)[0]
        tail = pattern.pieces[-1].rpartition(ANY_CHAR)[2] if len(pattern.pieces) > 1 else ""
        if head:
            forward, prefix = intersect(forward, prefix_interval(head)), max(prefix, head, key=len)
        if tail:
            backward, suffix = intersect(backward, prefix_interval(tail[::-1])), max(suffix, tail, key=len)
        if sort not in (PatternSort.PREFIX, PatternSort.SUFFIX) and not (
            sort is PatternSort.AFFIX and not _may_overlap(head, tail)
        ):
            patterns.append((SIDE_FITS, attribute, pattern))
            fits += 1
    for pattern in constraint.unlike:
        if pattern.sort is PatternSort.PREFIX:
            forward = intersect(forward, complement(prefix_interval(pattern.pieces[0])))
        elif pattern.sort is PatternSort.SUFFIX:
            backward = intersect(backward, complement(prefix_interval(pattern.pieces[1][::-1])))
        else:
            patterns.append((SIDE_FITS_NOT, attribute, pattern))
    ranges = _text_ranges(forward, forward == prefix_interval(prefix))
    back_ranges = _text_ranges(backward, backward == prefix_interval(suffix[::-1]))
    if forward != EVERY_TEXT or (backward == EVERY_TEXT and not fits):
        tests.append((LineKey(attribute, LineSort.TEXT), ranges))
    if backward != EVERY_TEXT:
        tests.append((LineKey(attribute, LineSort.TEXT_BACK), back_ranges))
    return bool(ranges and back_ranges)


def _may_overlap(head: str, tail: str) -> bool:
    """Return whether a text shorter than both together can begin with one and end with the other."""
    return any(head.endswith(tail[:n]) for n in range(1, min(len(head), len(tail)) + 1)) or tail in head or head in tail


def _text_ranges(intervals: Intervals, prefix: bool = False) -> list[Range]:
    """Return intervals as ranges of bytes, without intervals between a text and the next one, which hold nothing."""
    ranges: list[Range] = []
    for i in intervals:
        low = None if not i.low else str(i.low).encode()
        if i.low_open:
            low = (low or b"") + b"\0"
        high = None
        if i.high is not None:
            high = str(i.high).encode() + (b"" if i.high_open else b"\0")
        if low is None or high is None or low < high:
            ranges.append((low, high, prefix or i.is_point or (low is None and high is None)))
    return ranges


READERS: dict[type[Constraint], Any] = {
    Absent: _absent,
    Present: _present,
    BooleanSet: _boolean,
    NumberSet: _number,
    TimestampSet: _instant,
    TextSet: _text,
}


_MULTIPLIED_MAX = 4096
"""Values of a set that is multiplied out."""
_YIELD_EVERY = 256
"""Filters after which other threads may run."""


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

    def rows(self, subscriptions: int) -> RankForm:
        """Return all that was added, in rank form."""
        lines = [_line(key, cuts.ids) for key, cuts in self.cuts.items()]
        tests = np.array(self.tests, np.int64).reshape(-1, 4)
        tests = tests[np.argsort(tests[:, 0], kind="stable")]
        sides = np.array(self.sides, np.int64).reshape(-1, 2)
        sides = sides[np.argsort(sides[:, 0], kind="stable")]
        sets = np.array(self.set_ranges, np.int64).reshape(-1, 4)
        first, last = _ranks(tests, lines)
        set_first, set_last = _ranks(sets, lines)
        conjunctions = len(self.owner)
        return RankForm(
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


def gather(filters: Iterable[Filter]) -> RankForm:
    """Return the filters in rank form, numbered in their order."""
    rows, odd = gather_plain(filters)
    if not odd:
        return rows
    gatherer = _Gatherer()
    for at, (number, filter_) in enumerate(odd):
        gatherer.add(number, filter_.conjunctions)
        if at % _YIELD_EVERY == 0:
            sleep(0)  # threads that match need the interpreter many times an event, each time for a moment only
    return interleaved(rows, gatherer.rows(rows.subscriptions))


def _ranks(tests: Any, lines: list[tuple[RankLine, Any]]) -> tuple[Any, Any]:
    """Return numbers of cuts, as they were met, as ranks."""
    number = tests[:, 1] & ~NESTED
    first = np.zeros(len(tests), np.int32)
    last = np.zeros(len(tests), np.int32)
    for (line, place), mine in zip(lines, grouped(number, len(lines)), strict=True):
        low, high = tests[mine, 2], tests[mine, 3]
        padded = np.concatenate([place, np.array([0], np.int32)])
        first[mine] = np.where(low >= 0, padded[low] + 1, 0)
        last[mine] = np.where(high >= 0, padded[high], line.cuts)
    return first, last


def _line(key: LineKey, ids: dict[Any, int]) -> tuple[RankLine, Any]:
    """Return a line, and for each cut, as it was met, its place."""
    place = np.zeros(len(ids), np.int32)
    match key.sort:
        case LineSort.ALWAYS | LineSort.PRESENCE | LineSort.BOOLEAN:
            return RankLine(key), place  # the one cut there can be is number 0
        case LineSort.ODD_NUMBER:
            return _odd_line(key, ids, place)
    if key.sort is LineSort.NUMBER:
        values, after = np.array(list(ids), np.float64).reshape(-1, 2).T
        order = np.lexsort((after, values))
        place[order] = np.arange(len(order))
        return RankLine(key, values[order], after[order].astype(np.bool_)), place
    cuts = sorted(ids)
    place[[ids[cut] for cut in cuts]] = np.arange(len(cuts))
    if key.sort is LineSort.INSTANT:
        return RankLine(key, np.array(cuts, np.int64), np.zeros(len(cuts), np.bool_)), place
    return text_line(key, cuts), place


def _odd_line(key: LineKey, ids: dict[Any, int], place: Any) -> tuple[RankLine, Any]:
    exact = sorted((cut for cut in ids if cut[0] == "exact"), key=lambda cut: cut[1:])
    floats = sorted((cut for cut in ids if cut[0] == "float"), key=lambda cut: cut[1:])
    for at, cut in enumerate(exact):
        place[ids[cut]] = at
    for at, cut in enumerate(floats):
        place[ids[cut]] = len(exact) + 1 + at
    if MIDDLE in ids:
        place[ids[MIDDLE]] = len(exact)
    line = RankLine(
        key,
        np.array([v for _, v, _ in floats], np.float64),
        np.array([a for _, _, a in floats], np.bool_),
        tuple(v for _, v, _ in exact),
        tuple(bool(a) for _, _, a in exact),
    )
    return line, place


def _to_multiply(tests: list[Test], patterns: list[tuple[int, str, Pattern]]) -> int | None:
    """Return which test to multiply out: the smallest set of values, unless another test leads to few events."""
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
