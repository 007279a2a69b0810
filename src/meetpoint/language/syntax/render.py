"""Rendering: a normal form back to text.

The text parses to the very same normal form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal, localcontext

from meetpoint.language.filters.constraints import (
    EVERY_TEXT,
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    rounded,
)
from meetpoint.language.filters.intervals import Bound, Interval, Intervals, complement, intersect
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.timestamps import EPOCH, format_timestamp

__all__ = ["literal_text", "render", "render_constraint"]

_PLAIN_DIGITS_MAX = 38


def render(conjunctions: Iterable[Conjunction]) -> str:
    """Return the text of a disjunction of conjunctions."""
    texts = []
    for conjunction in conjunctions:
        parts = [_grouped(name, constraint) for name, constraint in conjunction.constraints]
        texts.append(" AND ".join(parts) or "TRUE")
    if len(texts) == 1:
        return texts[0]
    return " OR ".join(f"({text})" if " AND " in text else text for text in texts) or "FALSE"


def render_constraint(name: str, constraint: Constraint) -> str:
    """Return the text of one constraint on an attribute."""
    match constraint:
        case Absent():
            return f"{name} IS NULL"
        case Present():
            return f"{name} IS NOT NULL"
        case BooleanSet(values):
            if len(values) == 1:
                return name if values[0] else f"NOT {name}"
            return f"{name} IN (FALSE, TRUE)"
        case TimestampSet(intervals):
            return _line(name, intervals, EPOCH)
        case NumberSet():
            return _numbers(name, constraint)
        case TextSet(intervals, like, unlike):
            parts = [f"{name} LIKE {_quoted(pattern.text())}" for pattern in like]
            parts += [f"{name} NOT LIKE {_quoted(pattern.text())}" for pattern in unlike]
            if intervals != EVERY_TEXT:
                among = _line(name, intervals, "")
                parts.insert(0, f"({among})" if parts and " OR " in among else among)
            return " AND ".join(parts) or f"{name} LIKE '%'"


def literal_text(value: object) -> str:
    """Return a value as a literal."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return _quoted(value)
        case datetime():
            return f"TIMESTAMP '{format_timestamp(value)}'"
        case Decimal():
            plain = f"{value:f}"
            if "." in plain:
                plain = plain.rstrip("0").rstrip(".")
            return plain if len(plain) <= _PLAIN_DIGITS_MAX else str(value)
        case _:
            return str(value)


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\u0000")
    )
    return f"'{escaped}'"


def _grouped(name: str, constraint: Constraint) -> str:
    """Return a constraint as one part of a conjunction; patterns are joined by AND already."""
    text = render_constraint(name, constraint)
    joined = isinstance(constraint, TextSet) and (constraint.like or constraint.unlike)
    return f"({text})" if " OR " in text and not joined else text


def _line(name: str, intervals: Intervals, anywhere: Bound) -> str:
    """Return the text of a set on the line of a kind; `anywhere` is any value of that kind."""
    show: Callable[[Bound | None], str] = literal_text
    points = [interval for interval in intervals if interval.is_point]
    if len(points) == len(intervals):
        return _one_of(name, points, "=", "IN")
    outside = complement(intervals) if isinstance(anywhere, str) is False else _outside_text(intervals)
    if not outside:
        return f"{name} <= {show(anywhere)} OR {name} > {show(anywhere)}"
    if all(interval.is_point for interval in outside):
        return _one_of(name, outside, "!=", "NOT IN")
    parts = [_one_of(name, points, "=", "IN")] if points else []
    parts += [_interval(name, interval, show) for interval in intervals if not interval.is_point]
    return " OR ".join(parts)


def _outside_text(intervals: Intervals) -> Intervals:
    return intersect(EVERY_TEXT, complement(intervals))


def _one_of(name: str, points: Iterable[Interval], one: str, many: str) -> str:
    texts = [literal_text(point.low) for point in points]
    return f"{name} {one} {texts[0]}" if len(texts) == 1 else f"{name} {many} ({', '.join(texts)})"


def _interval(name: str, interval: Interval, show: Callable[[Bound | None], str]) -> str:
    low, high = interval.low, interval.high
    if low == "" and not interval.low_open:
        low = None
    if low is not None and high is not None and not interval.low_open and not interval.high_open:
        return f"{name} BETWEEN {show(low)} AND {show(high)}"
    parts = []
    if low is not None:
        parts.append(f"{name} {'>' if interval.low_open else '>='} {show(low)}")
    if high is not None:
        parts.append(f"{name} {'<' if interval.high_open else '<='} {show(high)}")
    return " AND ".join(parts)


def _numbers(name: str, constraint: NumberSet) -> str:
    """Return the text of the exact set, then of the differences that floats see.

    Two literals that round to one double add a point for floats, or remove one.
    """
    text = _line(name, constraint.exact, 0) if constraint.exact else ""
    if constraint.doubles is None:
        return text
    plain = rounded(constraint.exact)
    for point in intersect(constraint.doubles, complement(plain)):
        ends = _two_literals(point)
        added = f"{name} BETWEEN {ends[1]} AND {ends[0]}"
        text = f"{text} OR {added}" if text else added
    for point in intersect(plain, complement(constraint.doubles)):
        ends = _two_literals(point)
        text = f"({text}) AND {name} NOT BETWEEN {ends[1]} AND {ends[0]}"
    return text


def _two_literals(point: Interval) -> tuple[str, str]:
    """Return two decimals, the smaller first, that both round to the double at a point."""
    assert point.is_point
    double = point.low
    assert isinstance(double, float)
    near = Decimal(repr(double))
    with localcontext(prec=60):
        step = Decimal(math.ulp(double)).scaleb(-3)
        others = (Decimal(f"{near - step:.20e}"), Decimal(f"{near + step:.20e}"))
    for other in others:
        if float(other) == double and other != near:
            low, high = sorted((near, other))
            return literal_text(low), literal_text(high)
    raise AssertionError(f"no second decimal rounds to {double!r}")
