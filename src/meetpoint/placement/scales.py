"""Values on a line, and the line on the ring: order-preserving hashes (paper A, section 4.1).

Every number has one exact *measure*: an integer or decimal is its own, a float that of its shortest spelling, as a
schema measures it; so 8.40 is at one place whichever class it has. A timestamp is its microseconds. Infinities lie
beyond everything, NaN with the positive one, since filters take it for the largest number.

A scale takes measures to offsets from 0 to below the size of the ring, and never turns two round: what lies between two
values lies, on the ring, between their offsets or at one of them. What is beyond an end of a scale is put at that end.

Deviation: the paper's h(v) divides by vmax - vmin and puts vmax where vmin is. `Linear` adds the precision, so that the
largest value keeps a stretch of its own, as all others have.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Protocol, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Attribute
from meetpoint.language.values import Kind, Type
from meetpoint.matching.keys.meet_keys import ENDS, code_of, place_of

__all__ = [
    "WHOLE_FLOATS",
    "Codes",
    "Linear",
    "Quantiles",
    "Real",
    "Scale",
    "crowding",
    "measure",
    "moment",
    "nearest_double",
    "step_of",
    "whole_parts",
]

Real: TypeAlias = int | Fraction | float
"""An exact number; a float only where it is infinite."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHOLE_FLOATS = 2.0**53
"""Below it a whole float is spelt with all its digits."""
_BEYOND = 2**63
"""Beyond all codes."""
_STRETCHES = 16
"""Of a ring, on which values are counted."""


def measure(value: object) -> Real:
    """Return where a number or a timestamp lies on its line."""
    match value:
        case int():
            return value
        case float():
            if value != value:
                return math.inf
            if math.isinf(value):
                return value
            if value.is_integer() and abs(value) < WHOLE_FLOATS:
                return int(value)
            return Fraction(Decimal(repr(value)))
        case Decimal():
            return Fraction(value)
        case datetime():
            return code_of(value)
    raise AssertionError(f"{value!r} lies on no line")


def whole_parts(x: Real, low: Fraction, width: Fraction, parts: int = 1) -> int:
    """How many parts of a stretch lie, whole, between its beginning and x, were it to go on; exactly, and rounded down.

    The same with fractions takes four times as long.
    """
    assert not isinstance(x, float)
    beyond = x.numerator * low.denominator - low.numerator * x.denominator
    return beyond * width.denominator * parts // (x.denominator * low.denominator * width.numerator)


def nearest_double(x: Real) -> float:
    """The double nearest to a measure."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def moment(x: Real) -> datetime | None:
    """The timestamp of a measure; None where it is beyond all of them."""
    if isinstance(x, float):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(x))
    except OverflowError:
        return None


class Scale(Protocol):
    """Takes measures to offsets, and keeps their order."""

    def offset(self, x: Real, size: int) -> int:
        """Where a measure lies on a ring of so many keys, counted from where the attribute begins."""


class Linear(msgspec.Struct, frozen=True):
    """From `minimum` to `maximum` evenly, values `precision` apart; 0 where they are not a step apart."""

    minimum: Fraction
    maximum: Fraction
    precision: Fraction = Fraction(0)

    @staticmethod
    def of(attribute: Attribute) -> Linear | None:
        """The scale of a declared attribute; None where its schema does not bound it."""
        if attribute.minimum is None or attribute.maximum is None:
            return None
        step = step_of(attribute)
        return Linear(_fraction(attribute.minimum), _fraction(attribute.maximum), Fraction(0) if step is None else step)

    def offset(self, x: Real, size: int) -> int:
        """By the paper's formula, but for the precision."""
        if x >= self.maximum:
            x = self.maximum
        elif x <= self.minimum:
            return 0
        span = self.maximum - self.minimum + self.precision
        return min(whole_parts(x, self.minimum, span, size), size - 1) if span else 0


class Quantiles(msgspec.Struct, frozen=True):
    """Between each two of `edges` the same share of the ring, and even within: skewed values stay balanced."""

    edges: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.edges) < 2 or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("the edges of a scale are at least two, in order and none twice")

    @staticmethod
    def of(cuts: Iterable[object], attribute: Attribute | None = None) -> Quantiles:
        """From the cuts of `Feedback.quantiles`; the outermost parts end where the attribute ends, if that is known.

        Else they are as wide as the parts next to them. A cut that is there several times counts once: its value is
        one key, whatever share of the ring it had.
        """
        inner = sorted({Fraction(measure(cut)) for cut in cuts})
        if not inner:
            raise MeetpointError("a scale from quantiles needs at least one cut; ask for two parts or more")
        low = None if attribute is None or attribute.minimum is None else _fraction(attribute.minimum)
        high = None if attribute is None or attribute.maximum is None else _fraction(attribute.maximum)
        if low is None:
            low = inner[0] - (inner[1] - inner[0] if len(inner) > 1 else 1)
        if high is None:
            high = inner[-1] + (inner[-1] - inner[-2] if len(inner) > 1 else 1)
        if high <= low:
            high = low + 1
        return Quantiles((low, *[cut for cut in inner if low < cut < high], high))

    def offset(self, x: Real, size: int) -> int:
        """Return the offset, which is piecewise linear."""
        if x <= self.edges[0]:
            return 0
        parts = len(self.edges) - 1
        if x >= self.edges[-1]:
            return size - 1
        at = bisect_right(self.edges, x) - 1
        width = self.edges[at + 1] - self.edges[at]
        return whole_parts(x, self.edges[at] - at * width, parts * width, size)


class Codes(msgspec.Struct, frozen=True):
    """For values of which nothing is known: by the codes of meet keys, which are doubles, or microseconds, in order.

    A binade takes as much of the ring as the next, so that small and large numbers both have room; what is beyond 2**64
    or before 1827 and after 2112 is thrown together.
    """

    kind: Kind

    @property
    def places(self) -> int:
        """How many there are."""
        first, last = ENDS[self.kind]
        return last - first + 1

    def place(self, x: Real) -> int:
        """That of the nearest double, or of the microsecond, from 0 on."""
        return place_of(self.kind, self._code(x)) - ENDS[self.kind][0]

    def offset(self, x: Real, size: int) -> int:
        """The place, on a ring of so many keys."""
        return self.place(x) * size // self.places

    def _code(self, x: Real) -> int:
        if isinstance(x, float):
            return _BEYOND if x > 0 else -_BEYOND
        return int(x) if self.kind is Kind.TIMESTAMP else code_of(nearest_double(x))


def crowding(scale: Scale, values: Iterable[object]) -> float:
    """Return how many values lie on the fullest part of a ring, relative to an even share."""
    held = [0] * _STRETCHES
    for value in values:
        held[scale.offset(measure(value), _STRETCHES)] += 1
    return max(held) * _STRETCHES / sum(held) if any(held) else 1.0


def step_of(attribute: Attribute) -> Fraction | None:
    """How far apart a declared attribute's values are; None where they may lie anywhere."""
    if attribute.precision is not None:
        return Fraction(attribute.precision)
    return Fraction(1) if attribute.type in (Type.INTEGER, Type.TIMESTAMP) else None


def _fraction(bound: object) -> Fraction:
    return Fraction(measure(bound))
