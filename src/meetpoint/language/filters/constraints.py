"""Constraints: what a conjunction asks of one attribute.

A constraint is of one kind and is a set of accepted values, never an empty one: a constraint that accepts nothing is
None. It holds of a value only if the value is of its kind, so NULL and other kinds never satisfy one; `Absent` alone
accepts NULL, and `Present` accepts any value. Two constraints on one attribute intersect to one.

Numbers live on two lines. A literal is an exact decimal. An integer or decimal value compares with it exactly; a float
compares with the double nearest to it, as in Spark, so that a price of 8.2 read from JSON satisfies `price >= 8.20`.
Rounding keeps order but may make two literals equal, and then the two lines disagree: `x > 0.1` does not hold for the
float 0.1, yet `x >= 0.10000000000000000555` does. So `NumberSet` has both views; the second only if it is not the first
one rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

import msgspec

from meetpoint.language.filters.intervals import (
    Bound,
    Interval,
    Intervals,
    complement,
    contains,
    intersect,
    normalize,
    point,
    union,
)
from meetpoint.language.filters.like import Pattern, is_certainly_empty
from meetpoint.language.values import Kind

__all__ = [
    "ABSENT",
    "EVERY_TEXT",
    "PRESENT",
    "Absent",
    "BooleanSet",
    "Constraint",
    "NumberSet",
    "Present",
    "TextSet",
    "TimestampSet",
    "ValueSet",
    "accepts",
    "all_common",
    "any_common",
    "boolean_set",
    "both",
    "either",
    "kind_accepted",
    "like_set",
    "rounded",
    "text_set",
]


class Absent(msgspec.Struct, frozen=True, tag=True, gc=False):
    """`IS NULL`: the attribute is missing."""


class Present(msgspec.Struct, frozen=True, tag=True, gc=False):
    """`IS NOT NULL`: any value of any kind."""


class BooleanSet(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A set of booleans: some of (False, True), in that order."""

    values: tuple[bool, ...]


class NumberSet(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A set of numbers: `exact` for integers and decimals, `doubles` (or `exact` rounded) for floats."""

    exact: Intervals
    doubles: Intervals | None = None

    def for_floats(self) -> Intervals:
        """Return the intervals for float values; their ends are doubles."""
        return rounded(self.exact) if self.doubles is None else self.doubles


class TimestampSet(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A set of instants in UTC."""

    intervals: Intervals


class TextSet(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A set of strings within the intervals that fit every pattern of `like` and none of `unlike`.

    Patterns are sorted, without duplicates.
    """

    intervals: Intervals
    like: tuple[Pattern, ...] = ()
    unlike: tuple[Pattern, ...] = ()


ValueSet: TypeAlias = BooleanSet | NumberSet | TimestampSet | TextSet
Constraint: TypeAlias = ValueSet | Absent | Present

ABSENT = Absent()
PRESENT = Present()
EVERY_TEXT: Intervals = (Interval("", False, None, True),)

_KINDS: dict[type, Kind] = {
    BooleanSet: Kind.BOOLEAN,
    NumberSet: Kind.NUMBER,
    TimestampSet: Kind.TIMESTAMP,
    TextSet: Kind.STRING,
}


def kind_accepted(constraint: Constraint) -> Kind | None:
    """Return the kind of the values that a constraint accepts; None for presence and absence."""
    return _KINDS.get(type(constraint))


# -- membership --------------------------------------------------------------------------------------------------------


def accepts(constraint: Constraint, value: object) -> bool:
    """Return whether a clean value, None for NULL, satisfies a constraint."""
    return _ACCEPTS[type(constraint)](constraint, value)


def _accepts_number(constraint: NumberSet, value: object) -> bool:
    cls = type(value)
    if cls is int or cls is Decimal:
        return contains(constraint.exact, value)  # type: ignore[arg-type]
    if cls is not float:
        return False
    intervals = constraint.for_floats()
    if math.isnan(value):  # type: ignore[arg-type]
        return bool(intervals) and intervals[-1].high is None  # NaN is the largest number
    return contains(intervals, value)  # type: ignore[arg-type]


def _accepts_text(constraint: TextSet, value: object) -> bool:
    return (
        type(value) is str
        and contains(constraint.intervals, value)
        and (not constraint.like or all(pattern.matches(value) for pattern in constraint.like))
        and not (constraint.unlike and any(pattern.matches(value) for pattern in constraint.unlike))
    )


_ACCEPTS: dict[type, Callable[..., bool]] = {
    Absent: lambda _, value: value is None,
    Present: lambda _, value: value is not None,
    BooleanSet: lambda constraint, value: type(value) is bool and value in constraint.values,
    NumberSet: _accepts_number,
    TimestampSet: lambda constraint, value: type(value) is datetime and contains(constraint.intervals, value),
    TextSet: _accepts_text,
}


# -- combination -------------------------------------------------------------------------------------------------------


def both(a: Constraint, b: Constraint) -> Constraint | None:
    """Return the constraint that accepts what both accept; None if nothing can."""
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if a == b else None
    if isinstance(a, Present):
        return b
    if isinstance(b, Present):
        return a
    match a, b:
        case NumberSet(), NumberSet():
            return _combine_numbers(intersect, a, b)
        case TextSet(), TextSet():
            intervals = intersect(a.intervals, b.intervals)
            return text_set(intervals, (*a.like, *b.like), (*a.unlike, *b.unlike))
        case TimestampSet(), TimestampSet():
            instants = intersect(a.intervals, b.intervals)
            return TimestampSet(instants) if instants else None
        case BooleanSet(), BooleanSet():
            return boolean_set(v for v in a.values if v in b.values)
    return None


def either(a: ValueSet, b: ValueSet) -> ValueSet:
    """Return the constraint that accepts what either accepts; both are of one kind, without patterns."""
    match a, b:
        case NumberSet(), NumberSet():
            united = _combine_numbers(union, a, b)
            assert united is not None
            return united
        case TextSet(like=(), unlike=()), TextSet(like=(), unlike=()):
            return TextSet(union(a.intervals, b.intervals))
        case TimestampSet(), TimestampSet():
            return TimestampSet(union(a.intervals, b.intervals))
        case BooleanSet(), BooleanSet():
            return BooleanSet(tuple(v for v in (False, True) if v in a.values or v in b.values))
    raise AssertionError(f"{a} and {b} have no union of one constraint")


def all_common(sets: Sequence[Constraint]) -> Constraint | None:
    """Return what all of several constraints of one kind accept, in one go: pairwise would be quadratic."""
    first = sets[0]
    if len(sets) == 2:
        return both(first, sets[1])
    if isinstance(first, NumberSet):
        numbers = [s for s in sets if isinstance(s, NumberSet)]
        exact = _all_of_intervals([s.exact for s in numbers])
        doubles = _all_of_intervals([s.for_floats() for s in numbers])
        return _numbers(exact, doubles)
    if isinstance(first, TextSet):
        texts = [s for s in sets if isinstance(s, TextSet)]
        like = tuple(p for s in texts for p in s.like)
        unlike = tuple(p for s in texts for p in s.unlike)
        intervals = intersect(EVERY_TEXT, _all_of_intervals([s.intervals for s in texts]))
        return text_set(intervals, like, unlike)
    result: Constraint | None = first
    for other in sets[1:]:
        result = None if result is None else both(result, other)
    return result


def any_common(sets: Sequence[ValueSet]) -> ValueSet:
    """Return what any of several constraints of one kind, without patterns, accepts, in one go."""
    first = sets[0]
    if isinstance(first, NumberSet):
        numbers = [s for s in sets if isinstance(s, NumberSet)]
        exact = normalize(i for s in numbers for i in s.exact)
        united = _numbers(exact, normalize(i for s in numbers for i in s.for_floats()))
        assert united is not None
        return united
    if isinstance(first, TextSet):
        return TextSet(normalize(i for s in sets if isinstance(s, TextSet) for i in s.intervals))
    if isinstance(first, TimestampSet):
        return TimestampSet(normalize(i for s in sets if isinstance(s, TimestampSet) for i in s.intervals))
    return BooleanSet(tuple(v for v in (False, True) if any(v in s.values for s in sets if isinstance(s, BooleanSet))))


def _all_of_intervals(sets: Sequence[Intervals]) -> Intervals:
    return complement(normalize(interval for intervals in sets for interval in complement(intervals)))


def _numbers(exact: Intervals, doubles: Intervals) -> NumberSet | None:
    if not exact and not doubles:
        return None
    return NumberSet(exact, None if doubles == rounded(exact) else doubles)


def boolean_set(values: Iterable[bool]) -> BooleanSet | None:
    """Return a set of some of (False, True); None if there is none."""
    held = tuple(values)
    return BooleanSet(held) if held else None


def rounded(exact: Intervals) -> Intervals:
    """Return the intervals with each end rounded to the nearest double."""
    return normalize(Interval(_double(i.low), i.low_open, _double(i.high), i.high_open) for i in exact)


def _double(bound: Bound | None) -> float | None:
    return None if bound is None else float(bound)  # type: ignore[arg-type]


def _combine_numbers(
    operation: Callable[[Intervals, Intervals], Intervals], a: NumberSet, b: NumberSet
) -> NumberSet | None:
    exact = operation(a.exact, b.exact)
    if a.doubles is None and b.doubles is None:
        ends = {*_ends(a.exact), *_ends(b.exact)}
        if len(set(map(float, ends))) == len(ends):
            return NumberSet(exact) if exact else None  # rounding keeps the ends apart: it commutes with the operation
    return _numbers(exact, operation(a.for_floats(), b.for_floats()))


def _ends(intervals: Intervals) -> list[int | Decimal]:
    ends = [interval.low for interval in intervals]
    ends += [interval.high for interval in intervals]
    return [end for end in ends if end is not None]  # type: ignore[misc]


def text_set(intervals: Intervals, like: tuple[Pattern, ...], unlike: tuple[Pattern, ...]) -> TextSet | None:
    """Return a TextSet in its normal spelling: patterns are applied at once to a set of finitely many values."""
    if not intervals:
        return None
    if not like and not unlike:
        return TextSet(intervals)
    if is_certainly_empty(intervals, like, unlike):
        return None
    spelt = TextSet(intervals, tuple(sorted(set(like))), tuple(sorted(set(unlike))))
    if not all(interval.is_point for interval in intervals):
        return spelt
    return TextSet(tuple(interval for interval in intervals if _accepts_text(spelt, interval.low)))


def like_set(pattern: Pattern, negated: bool) -> TextSet | None:
    """Return `[NOT] LIKE pattern`: a pattern without wildcards is a value, and `%` is every string."""
    if pattern.is_exact:
        value = (point(pattern.pieces[0]),)
        return TextSet(intersect(EVERY_TEXT, complement(value)) if negated else value)
    if pattern.is_everything:
        return None if negated else TextSet(EVERY_TEXT)
    return TextSet(EVERY_TEXT, (), (pattern,)) if negated else TextSet(EVERY_TEXT, (pattern,))
