"""The space of paper D (section 4.1.1): events are points, conjunctions boxes, z-codes name regions.

A region is halved again and again, each time along another dimension, in the order of attributes' names; its code says
with which half it went on: `0` the lower, `1` the upper. The root is the empty code. A range [l, u] of cells is halved
to [l, m] and [m + 1, u] where m = (l + u) // 2 (figure 4, corrected); a dimension of which a region has one cell left
misses its turns (figure 5, corrected). So a code alone says where a region lies, and so does `Space`, to all alike.

What `printed` shows: figure 4 halves ranges such that the halves overlap, figure 5 stops with the shortest dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, NewType, TypeAlias

from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find
from meetpoint.language.schema.schema import Schema
from meetpoint.schemes.dmm.dimensions import Dimension, Span, Spans

__all__ = ["ROOT", "Box", "CellRange", "Code", "Point", "Space", "parent"]

Code = NewType("Code", str)
"""Of `0` and `1`; a prefix of it is a region around it."""
Point: TypeAlias = tuple[int, ...]
"""A cell in each dimension."""
Box: TypeAlias = tuple[Spans, ...]
"""Spans of cells in each dimension."""

ROOT = Code("")

_REGIONS_MAX = 8_192
"""Regions that are remembered: to find one takes as many steps as its code is long."""
_DIGEST_BYTES = 16


class CellRange(NamedTuple):
    """What a code names: a range of cells in each dimension, and along which it is halved next; None: nowhere."""

    ranges: tuple[Span, ...]
    axis: int | None

    @property
    def middle(self) -> int:
        """The last cell of the lower half."""
        assert self.axis is not None
        low, high = self.ranges[self.axis]
        return (low + high) // 2


def parent(code: Code) -> Code:
    """The region that a region is a half of."""
    assert code
    return Code(code[:-1])


class Space:
    """The same for all nodes of a network; nothing in it changes."""

    def __init__(self, dimensions: tuple[Dimension, ...], depth: int) -> None:
        self.dimensions = dimensions
        self.depth = depth
        self.digest = _digest(dimensions)
        self._axes = {dimension.attribute.name: axis for axis, dimension in enumerate(dimensions)}
        self._everywhere: list[Spans] = [dimension.everything for dimension in dimensions]
        self._region = lru_cache(_REGIONS_MAX)(self._walk)

    @staticmethod
    def of(schema: Schema | None, depth: int) -> Space:
        """A dimension for each attribute, in the order of their names; regions are halved up to `depth` times.

        Without a schema there are no dimensions, and one region.
        """
        attributes = sorted(schema or (), key=lambda attribute: attribute.name)
        return Space(tuple(map(Dimension, attributes)), depth)

    def point(self, attributes: Mapping[str, object]) -> Point:
        """Where an event with clean attributes lies."""
        return tuple([dimension.cell(find(attributes, dimension.path)) for dimension in self.dimensions])

    def box(self, conjunction: Conjunction) -> Box:
        """Cells in each dimension: those of every event that a conjunction accepts are among them."""
        spans = self._everywhere.copy()
        for name, constraint in conjunction.constraints:
            axis = self._axes.get(name)
            if axis is not None:
                spans[axis] = self.dimensions[axis].spans(constraint)
        return tuple(spans)

    def code(self, point: Point) -> Code:
        """The smallest region around a point."""
        return self._descend(tuple((cell, cell) for cell in point))

    def enclosing(self, box: Box) -> Code:
        """The smallest region that encloses a box."""
        return self._descend(tuple((spans[0][0], spans[-1][1]) for spans in box))

    def meets(self, code: Code, box: Box) -> bool:
        """Whether a region and a box have a point in common."""
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
        """The halves of a region; None at the depth limit and where a region is one point."""
        if len(code) >= self.depth or self.region(code).axis is None:
            return None
        return Code(code + "0"), Code(code + "1")

    def is_code(self, text: str) -> bool:
        """Whether a text, which may be anything, names a region of this space."""
        return len(text) <= self.depth and set(text) <= {"0", "1"} and self._region(Code(text)) is not None

    def region(self, code: Code) -> CellRange:
        """What a code names."""
        region = self._region(code)
        assert region is not None, f"{code} goes on where a region is one point"
        return region

    def _descend(self, hull: tuple[Span, ...]) -> Code:
        """The smallest region that encloses a range of cells in each dimension."""
        turns = _Turns(self.dimensions)
        bits: list[str] = []
        while turns.axes and len(bits) < self.depth:
            axis = turns.axes[turns.at]
            low, high = turns.ranges[axis]
            middle = (low + high) // 2
            first, last = hull[axis]
            if last <= middle:
                bits.append("0")
                turns.take(low, middle)
            elif first > middle:
                bits.append("1")
                turns.take(middle + 1, high)
            else:
                break
        return Code("".join(bits))

    def _walk(self, code: Code) -> CellRange | None:
        turns = _Turns(self.dimensions)
        for bit in code:
            if not turns.axes:
                return None
            low, high = turns.ranges[turns.axes[turns.at]]
            middle = (low + high) // 2
            turns.take(*((low, middle) if bit == "0" else (middle + 1, high)))
        return CellRange(tuple(turns.ranges), turns.axes[turns.at] if turns.axes else None)


class _Turns:
    """Dimensions in turn, those with more than one cell left."""

    __slots__ = ("at", "axes", "ranges")

    def __init__(self, dimensions: tuple[Dimension, ...]) -> None:
        self.ranges: list[Span] = [dimension.everything[0] for dimension in dimensions]
        self.axes = [*range(len(dimensions))]  # each has the absent cell and one more at least
        self.at = 0

    def take(self, low: int, high: int) -> None:
        """Go on with a part of the range of the dimension whose turn it is."""
        self.ranges[self.axes[self.at]] = low, high
        if low == high:
            del self.axes[self.at]
        else:
            self.at += 1
        if self.at == len(self.axes):
            self.at = 0


def _digest(dimensions: tuple[Dimension, ...]) -> bytes:
    """Of the attributes and all that decides where their values lie."""
    text = Schema(tuple(dimension.attribute for dimension in dimensions)).to_yaml()
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=b"meetpoint dmm 1").digest()
