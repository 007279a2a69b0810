"""Meet keys as filters: the filter of a key accepts exactly the events that have the key.

So any matcher of filters can count keys, or join by them. Numbers meet by the double nearest to them, and their filter
says the same of doubles and of exact values: a cell that begins at a double begins, for exact values, half-way from the
double before it. If a text is too long for a key (`shorten`), the filter accepts all texts with its beginning.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal, localcontext

from meetpoint.language.filters.constraints import (
    ABSENT,
    EVERY_TEXT,
    PRESENT,
    BooleanSet,
    Constraint,
    NumberSet,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import EVERYTHING, Interval, point
from meetpoint.language.filters.like import Pattern
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.timestamps import EPOCH
from meetpoint.language.values import Kind
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey, double_of, edge_of, shorten

__all__ = ["filter_of_key"]

_DIGITS = 1100
"""Digits that suffice for the exact value half-way between any two doubles."""
_LONG = shorten("a" * 1000)
_BEGINNING = _LONG.index("…")  # so many characters of a long text its key still holds


def filter_of_key(key: MeetKey) -> Filter:
    """Return the filter of one key; it is made for matching, and its text is only a name."""
    if key.sort is KeySort.ALWAYS:
        return Filter(str(key), (Conjunction(()),))
    return Filter(str(key), (Conjunction(((key.attribute, _constraint(key)),)),))


def _constraint(key: MeetKey) -> Constraint:
    match key.sort:
        case KeySort.MISSING:
            return ABSENT
        case KeySort.THERE:
            return _any_value(key.kind)
        case KeySort.PREFIX:
            return TextSet(EVERY_TEXT, (Pattern((key.text, "")),))
        case KeySort.SUFFIX:
            return TextSet(EVERY_TEXT, (Pattern(("", key.text)),))
        case KeySort.GRAM:
            return TextSet(EVERY_TEXT, (Pattern(("", key.text, "")),))
        case KeySort.CELL:
            first, last = key.span
            return _between(key.kind, _begin(key.kind, first), _begin(key.kind, last + 1))
    return _one_value(key)


def _any_value(kind: str) -> Constraint:
    match kind:
        case Kind.NUMBER:
            return NumberSet(EVERYTHING)
        case Kind.TIMESTAMP:
            return TimestampSet(EVERYTHING)
        case Kind.STRING:
            return TextSet(EVERY_TEXT)
        case Kind.BOOLEAN:
            return BooleanSet((False, True))
    return PRESENT


def _one_value(key: MeetKey) -> Constraint:
    match key.kind:
        case Kind.STRING:
            if len(key.text) == len(_LONG) and key.text[_BEGINNING] == _LONG[_BEGINNING]:
                return TextSet(EVERY_TEXT, (Pattern((key.text[:_BEGINNING], "")),))
            return TextSet((point(key.text),))
        case Kind.BOOLEAN:
            return BooleanSet((bool(key.number),))
        case Kind.TIMESTAMP:
            return TimestampSet((point(_instant(key.number)),))
    double = double_of(key.number)
    return _between(Kind.NUMBER, double, math.nextafter(double, math.inf))


def _begin(kind: str, place: int) -> float:
    """Return where a place begins, as `edge_of`; but place 0 has the smallest numbers below zero too."""
    if kind == Kind.NUMBER and place == 0:
        return math.nextafter(edge_of(kind, -1), math.inf)
    return edge_of(kind, place)


def _between(kind: str, low: float, high: float) -> Constraint:
    """Return a constraint from one edge to another, the second excluded; an infinite edge is none."""
    open_low, open_high = math.isinf(low), math.isinf(high)
    if kind == Kind.TIMESTAMP:
        first = None if open_low else _instant(int(low))
        return TimestampSet((Interval(first, open_low, None if open_high else _instant(int(high)), True),))
    doubles = Interval(None if open_low else low, open_low, None if open_high else high, True)
    exact = Interval(
        None if open_low else _half_way(low),
        open_low or not _wins_ties(low),
        None if open_high else _half_way(high),
        open_high or _wins_ties(high),
    )
    return NumberSet((exact,), (doubles,))


def _half_way(double: float) -> Decimal:
    """Return where the exact values begin that are rounded to a double or to a larger one."""
    with localcontext(prec=_DIGITS):
        return (Decimal(double) + Decimal(math.nextafter(double, -math.inf))) / 2


def _wins_ties(double: float) -> bool:
    """Return whether a value just half-way is rounded up to this double: its last bit is 0 then."""
    return int(abs(double) / math.ulp(double)) % 2 == 0


def _instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
