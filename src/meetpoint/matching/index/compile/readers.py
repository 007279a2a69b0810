"""What a constraint asks, as ranges of cuts on lines, and patterns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

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
from meetpoint.language.filters.intervals import Intervals, complement, intersect
from meetpoint.language.filters.like import ANY_CHAR, PatternSort
from meetpoint.language.filters.patterns import prefix_interval
from meetpoint.matching.index.kernels.bucket_scan import SIDE_FITS, SIDE_FITS_NOT
from meetpoint.matching.index.lines import LineKey, LineSort, is_plain
from meetpoint.matching.tables.prepared_columns import EPOCH

__all__ = ["MIDDLE", "READERS", "Range", "Test"]

Range: TypeAlias = tuple[Any, Any, bool]
"""Low cut, high cut, and whether it nests (a prefix or one value).

A cut is a value and 0 before or 1 after it; None is the end of the line. Bytes stand for themselves, before.
"""
Test: TypeAlias = tuple[LineKey, list[Range]]

_MICROSECOND = timedelta(microseconds=1)
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
    return (bound - EPOCH) // _MICROSECOND


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
    """Whether a text shorter than both together can begin with one and end with the other."""
    return any(head.endswith(tail[:n]) for n in range(1, min(len(head), len(tail)) + 1)) or tail in head or head in tail


def _text_ranges(intervals: Intervals, prefix: bool = False) -> list[Range]:
    """Intervals as ranges of bytes; an interval that lies between a text and the next one holds nothing."""
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
