"""The space of paper D (section 4.1): events are points, conjunctions boxes, z-codes name regions.

**Dimensions.** An attribute is a line of cells (section 4.1). Cell 0 is *absent*: a value that is missing, NULL, or of
another kind than declared. The cells from 1 on are values in their order. Values beyond an attribute's bounds lie in
the end cells, so that every value has a cell and order is kept.

A constraint lies over spans of cells, both ends included, that hold the cell of every value it accepts; more cells than
that cost room, fewer would lose events. Where a schema says how far apart values are, a cell is one of them and what
follows up to the next: an event need not be as its schema says.

- Between two bounds, steps of the precision (an integer's is 1, a timestamp's a microsecond), or many equal parts.
- Without bounds the codes of meet keys (`Codes`), a binade as wide as the next.
- A string by the first bytes of its UTF-8, whose order is that of its characters.

Deviation: the paper's attributes are integers between bounds, and an event has all of them.

**Regions** (section 4.1.1). A region is halved again and again, each time along another dimension, in the order of
attributes' names; its code says with which half it went on: `0` the lower, `1` the upper. The root is the empty code. A
range [l, u] of cells is halved to [l, m] and [m + 1, u] where m = (l + u) // 2 (figure 4, corrected); a dimension of
which a region has one cell left is skipped (figure 5, corrected). So a code alone says where a region lies, and so
does `Space`, to all alike.

As `lab.printed` shows, figure 4 halves ranges such that the halves overlap, and figure 5 stops with the shortest
dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple, NewType, Protocol, TypeAlias, cast

from meetpoint.language.filters.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    kind_accepted,
)
from meetpoint.language.filters.intervals import Interval, Intervals, intersect
from meetpoint.language.filters.like import ANY_CHAR, prefix_interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind, kind_of
from meetpoint.matching.keys.meet_keys import joined
from meetpoint.placement.scales import WHOLE_FLOATS, Codes, Linear, Real, measure, step_of, whole_parts

__all__ = [
    "ABSENT_CELL",
    "ROOT",
    "SPANS_MAX",
    "Box",
    "CellRange",
    "Code",
    "Dimension",
    "Point",
    "Space",
    "Span",
    "Spans",
    "parent",
]


Span: TypeAlias = tuple[int, int]
"""Cells from the first to the last."""
Spans: TypeAlias = tuple[Span, ...]
"""Sorted spans, with cells between each two."""

ABSENT_CELL = 0
SPANS_MAX = 64
"""Spans of one constraint; of more, those with the smallest gaps between them are made one."""

_PARTS = 2**32
"""Parts of a bounded stretch whose values are no step apart."""
_TEXT_BYTES = 6
"""Bytes of a string that count: as many as 48 halvings tell apart."""


class _Line(Protocol):
    """The values of an attribute, without the absent cell."""

    size: int

    def offset(self, value: object) -> int:
        """Return where a value of the attribute's kind lies, from 0 to below the size."""

    def spans(self, constraint: Constraint) -> list[Span]:
        """Return offsets, in any order, that hold every value that a constraint of the attribute's kind accepts."""


class Dimension:
    """An attribute of the space."""

    __slots__ = ("_line", "attribute", "cells", "everything", "path")

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.path = attribute.path
        self._line = _line_of(attribute)
        self.cells = self._line.size + 1
        self.everything: Spans = ((ABSENT_CELL, self.cells - 1),)

    def cell(self, value: object) -> int:
        """Return where a clean value lies."""
        if kind_of(value) is not self.attribute.type.kind:
            return ABSENT_CELL
        return self._line.offset(value) + 1

    def spans(self, constraint: Constraint) -> Spans:
        """Return where the values lie that a constraint accepts, or more."""
        if isinstance(constraint, Present):
            return self.everything
        if isinstance(constraint, Absent) or kind_accepted(constraint) is not self.attribute.type.kind:
            return ((ABSENT_CELL, ABSENT_CELL),)
        return _few(joined([(low + 1, high + 1) for low, high in self._line.spans(constraint)], near=1))


def _few(spans: list[Span]) -> Spans:
    """Return at most as many spans as are allowed, the largest gaps left out."""
    if len(spans) > SPANS_MAX:
        gaps = sorted(range(1, len(spans)), key=lambda at: (spans[at - 1][1] - spans[at][0], at))[: SPANS_MAX - 1]
        cuts = [0, *sorted(gaps), len(spans)]
        spans = [(spans[a][0], spans[b - 1][1]) for a, b in pairwise(cuts)]
    return tuple(spans)


def _line_of(attribute: Attribute) -> _Line:
    if attribute.type.kind is Kind.BOOLEAN:
        return _Booleans()
    if attribute.type.kind is Kind.STRING:
        return _Texts()
    linear = Linear.of(attribute)
    if linear is None:
        return _Coded(attribute.type.kind)
    step = step_of(attribute)
    return _Parted(linear) if step is None else _Stepped(linear.minimum, linear.maximum, step)


class _Booleans:
    size = 2

    def offset(self, value: object) -> int:
        return int(cast(bool, value))

    def spans(self, constraint: Constraint) -> list[Span]:
        assert isinstance(constraint, BooleanSet)
        return [(int(value), int(value)) for value in constraint.values]


# -- numbers and timestamps --------------------------------------------------------------------------------------------


class _OrderedLine:
    """A line of measures: a place for every measure, in their order."""

    size: int

    def place(self, x: Real) -> int:
        raise NotImplementedError

    def before(self, x: Real) -> int:
        """Return the last place of what is less than a measure."""
        return self.place(x)

    def offset(self, value: object) -> int:
        return self.place(measure(value))

    def spans(self, constraint: Constraint) -> list[Span]:
        if isinstance(constraint, TimestampSet):
            return [self._span(interval, interval) for interval in constraint.intervals]
        assert isinstance(constraint, NumberSet)
        spans = [self._span(interval, _rounded(interval)) for interval in constraint.exact]
        return spans + [self._span(interval, interval) for interval in constraint.doubles or ()]

    def _span(self, interval: Interval, twin: Interval) -> Span:
        """Return the places of an interval, as two sorts of values see it."""
        low, high = self._low(interval), self._high(interval)
        if twin is not interval:
            low, high = min(low, self._low(twin)), max(high, self._high(twin))
        return low, max(low, high)

    def _low(self, interval: Interval) -> int:
        return 0 if interval.low is None else self.place(measure(interval.low))

    def _high(self, interval: Interval) -> int:
        if interval.high is None:
            return self.size - 1
        return (self.before if interval.high_open else self.place)(measure(interval.high))


def _rounded(interval: Interval) -> Interval:
    """Return an interval as floats see it; itself where that is the same."""
    if _is_whole(interval.low) and _is_whole(interval.high):
        return interval
    low, high = [None if end is None else float(cast(int, end)) for end in (interval.low, interval.high)]
    return Interval(low, interval.low_open, high, interval.high_open)


def _is_whole(end: object) -> bool:
    return end is None or (type(end) is int and -WHOLE_FLOATS < end < WHOLE_FLOATS)


class _Stepped(_OrderedLine):
    """A line with a place for each step from the minimum on."""

    def __init__(self, minimum: Fraction, maximum: Fraction, step: Fraction) -> None:
        self._minimum = minimum
        self._step = step
        self._first = int(minimum) if minimum.denominator == step.numerator == step.denominator == 1 else None
        self.size = whole_parts(maximum, minimum, step) + 1

    def place(self, x: Real) -> int:
        if isinstance(x, float):
            return self.size - 1 if x > 0 else 0
        if self._first is not None and type(x) is int:
            at = x - self._first
        else:
            at = whole_parts(x, self._minimum, self._step)
        return 0 if at < 0 else min(at, self.size - 1)

    def before(self, x: Real) -> int:
        """Return one place less where a step begins.

        What is below the minimum and above the maximum lies there all the same.
        """
        at = self.place(x)
        return at - 1 if at and x == self._minimum + at * self._step else at


class _Parted(_OrderedLine):
    """A line of equal parts of a stretch."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear
        self.size = 1 if linear.minimum == linear.maximum else _PARTS

    def place(self, x: Real) -> int:
        return self._linear.offset(x, self.size)


class _Coded(_OrderedLine):
    """A line of codes."""

    def __init__(self, kind: Kind) -> None:
        self._codes = Codes(kind)
        self.size = self._codes.places

    def place(self, x: Real) -> int:
        return self._codes.place(x)


# -- strings -----------------------------------------------------------------------------------------------------------


class _Texts:
    size = 256**_TEXT_BYTES

    def offset(self, value: object) -> int:
        return _number(cast(str, value)[:_TEXT_BYTES].encode())

    def spans(self, constraint: Constraint) -> list[Span]:
        assert isinstance(constraint, TextSet)
        return [self._span(interval) for interval in self._narrowed(constraint)]

    def _narrowed(self, constraint: TextSet) -> Iterable[Interval]:
        """Return what a constraint accepts, by its intervals and by how its patterns begin."""
        narrowed: Intervals = constraint.intervals
        for pattern in constraint.like:
            head = pattern.pieces[0].partition(ANY_CHAR)[0]
            if head:
                narrowed = intersect(narrowed, prefix_interval(head))
        return narrowed or constraint.intervals  # what accepts nothing may lie anywhere

    def _span(self, interval: Interval) -> Span:
        low = self.offset(interval.low or "")
        if interval.high is None:
            return low, self.size - 1
        end = cast(str, interval.high)[: _TEXT_BYTES + 1].encode()
        high = _number(end)
        # Less than a text that counts whole is less in number; only NUL is as good as nothing.
        if interval.high_open and 0 < len(end) <= _TEXT_BYTES and end[-1]:
            high -= 1
        return low, max(low, high)


def _number(text: bytes) -> int:
    return int.from_bytes(text[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"), "big")


# -- the space ---------------------------------------------------------------------------------------------------------

Code = NewType("Code", str)
"""A text of `0` and `1`; a prefix of it is a region around it."""
Point: TypeAlias = tuple[int, ...]
"""A cell in each dimension."""
Box: TypeAlias = tuple[Spans, ...]
"""Spans of cells in each dimension."""

ROOT = Code("")

_REGIONS_MAX = 8_192
"""Regions that are remembered: to find one takes as many steps as its code is long."""
_DIGEST_BYTES = 16


class CellRange(NamedTuple):
    """The cells of a region in each dimension, and the dimension along which it is halved next; None: none."""

    ranges: tuple[Span, ...]
    axis: int | None

    @property
    def middle(self) -> int:
        """The last cell of the lower half."""
        assert self.axis is not None
        low, high = self.ranges[self.axis]
        return (low + high) // 2


def parent(code: Code) -> Code:
    """Return the region that a region is a half of."""
    assert code
    return Code(code[:-1])


class Space:
    """The space of a network, the same for all nodes; nothing in it changes."""

    def __init__(self, dimensions: tuple[Dimension, ...], depth: int) -> None:
        self.dimensions = dimensions
        self.depth = depth
        self.digest = _digest(dimensions)
        self._axes = {dimension.attribute.name: axis for axis, dimension in enumerate(dimensions)}
        self._everywhere: list[Spans] = [dimension.everything for dimension in dimensions]
        self._region = lru_cache(_REGIONS_MAX)(self._walk)

    @staticmethod
    def of(schema: Schema | None, depth: int) -> Space:
        """Return a space with a dimension for each attribute, in the order of names, halved up to `depth` times.

        Without a schema there are no dimensions, and one region.
        """
        attributes = sorted(schema or (), key=lambda attribute: attribute.name)
        return Space(tuple(map(Dimension, attributes)), depth)

    def point(self, attributes: Mapping[str, object]) -> Point:
        """Return where an event with clean attributes lies."""
        return tuple([dimension.cell(find(attributes, dimension.path)) for dimension in self.dimensions])

    def box(self, conjunction: Conjunction) -> Box:
        """Return cells in each dimension: those of every event that a conjunction accepts are among them."""
        spans = self._everywhere.copy()
        for name, constraint in conjunction.constraints:
            axis = self._axes.get(name)
            if axis is not None:
                spans[axis] = self.dimensions[axis].spans(constraint)
        return tuple(spans)

    def code(self, point: Point) -> Code:
        """Return the smallest region around a point."""
        return self._descend(tuple((cell, cell) for cell in point))

    def enclosing(self, box: Box) -> Code:
        """Return the smallest region that encloses a box."""
        return self._descend(tuple((spans[0][0], spans[-1][1]) for spans in box))

    def meets(self, code: Code, box: Box) -> bool:
        """Return whether a region and a box have a point in common."""
        for (low, high), spans in zip(self.region(code).ranges, box, strict=True):
            for first, last in spans:  # sorted
                if last >= low:
                    if first > high:
                        return False
                    break
            else:
                return False
        return True

    def children(self, code: Code) -> tuple[Code, Code] | None:
        """Return the halves of a region; None at the depth limit and where a region is one point."""
        if len(code) >= self.depth or self.region(code).axis is None:
            return None
        return Code(code + "0"), Code(code + "1")

    def is_code(self, text: str) -> bool:
        """Return whether a text, which may be anything, names a region of this space."""
        return len(text) <= self.depth and set(text) <= {"0", "1"} and self._region(Code(text)) is not None

    def region(self, code: Code) -> CellRange:
        """Return the cells that a code names."""
        region = self._region(code)
        assert region is not None, f"{code} goes on where a region is one point"
        return region

    def _descend(self, hull: tuple[Span, ...]) -> Code:
        """Return the smallest region that encloses a range of cells in each dimension."""
        cycle = _AxisCycle(self.dimensions)
        bits: list[str] = []
        while cycle.axes and len(bits) < self.depth:
            axis = cycle.axes[cycle.at]
            low, high = cycle.ranges[axis]
            middle = (low + high) // 2
            first, last = hull[axis]
            if last <= middle:
                bits.append("0")
                cycle.take(low, middle)
            elif first > middle:
                bits.append("1")
                cycle.take(middle + 1, high)
            else:
                break
        return Code("".join(bits))

    def _walk(self, code: Code) -> CellRange | None:
        cycle = _AxisCycle(self.dimensions)
        for bit in code:
            if not cycle.axes:
                return None
            low, high = cycle.ranges[cycle.axes[cycle.at]]
            middle = (low + high) // 2
            cycle.take(*((low, middle) if bit == "0" else (middle + 1, high)))
        return CellRange(tuple(cycle.ranges), cycle.axes[cycle.at] if cycle.axes else None)


class _AxisCycle:
    """A cycle through the dimensions that have more than one cell left."""

    __slots__ = ("at", "axes", "ranges")

    def __init__(self, dimensions: tuple[Dimension, ...]) -> None:
        self.ranges: list[Span] = [dimension.everything[0] for dimension in dimensions]
        self.axes = [*range(len(dimensions))]  # each has the absent cell and one more at least
        self.at = 0

    def take(self, low: int, high: int) -> None:
        """Go on with a part of the range of the current dimension."""
        self.ranges[self.axes[self.at]] = low, high
        if low == high:
            del self.axes[self.at]
        else:
            self.at += 1
        if self.at == len(self.axes):
            self.at = 0


def _digest(dimensions: tuple[Dimension, ...]) -> bytes:
    """Return a digest of the attributes and all that decides where their values lie."""
    text = Schema(tuple(dimension.attribute for dimension in dimensions)).to_yaml()
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=b"meetpoint dmm 1").digest()
