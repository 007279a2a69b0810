"""Extents: between which numbers the values of a conjunction lie, so that what may cover what is found fast.

For each attribute a conjunction has ranges of numbers, and where it covers another, its ranges enclose the other's. The
numbers keep the order of the values they stand for, as far as a double can; of single texts there is a checksum too,
and of the scheme's code a range of its own. So candidates for covering are found by comparing numbers, where there are
many as columns, all in a few calls; the rest is the algebra's.

Conjunctions with the same attributes share columns. One can cover another only where its attributes are among the
other's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar
from zlib import crc32

from meetpoint.language.filters.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.intervals import Bound
from meetpoint.language.filters.like import ANY_CHAR
from meetpoint.language.filters.normal_form import Conjunction

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.float64]

__all__ = ["CODE_MAX", "Extents", "Range", "encloses", "ranges_of"]

CODE_MAX: Final = 52
"""How many characters of a code are looked at: a double has no more."""
TEXT_BYTES: Final = 6
"""How many bytes of a text are looked at."""
COLUMNS_FROM: Final = 64
"""From how many conjunctions with the same attributes on they are compared as columns."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

Range: TypeAlias = tuple[float, float]
EVERYTHING: Final[Range] = (-math.inf, math.inf)
T = TypeVar("T", bound=Hashable)


# -- one conjunction ---------------------------------------------------------------------------------------------------


def ranges_of(conjunction: Conjunction, code: str) -> tuple[Range, ...]:
    """The range of a code of "0" and "1", then two for each attribute: of its values, and of its only text."""
    ranges = [_code_range(code)]
    for _, constraint in conjunction.constraints:
        ranges += _ranges(constraint)
    return tuple(ranges)


def encloses(wide: Sequence[Range], narrow: Sequence[Range]) -> bool:
    """Whether each range of one encloses that of the other."""
    return all(low <= lower and higher <= high for (low, high), (lower, higher) in zip(wide, narrow, strict=True))


def _code_range(code: str) -> Range:
    code = code[:CODE_MAX]
    return float(int(code.ljust(CODE_MAX, "0"), 2)), float(int(code.ljust(CODE_MAX, "1"), 2))


def _ranges(constraint: Constraint) -> tuple[Range, Range]:
    match constraint:
        case Present():
            return EVERYTHING, EVERYTHING
        case Absent():
            return (0.0, 0.0), EVERYTHING
        case BooleanSet(values):
            return (float(values[0]), float(values[-1])), EVERYTHING
        case NumberSet(exact, _):
            hull = (_number(exact[0].low, -1), _number(exact[-1].high, 1)) if exact else EVERYTHING  # of floats only
            return hull, EVERYTHING
        case TimestampSet(intervals):
            return (_instant(intervals[0].low, -1), _instant(intervals[-1].high, 1)), EVERYTHING
        case TextSet():
            return _text_ranges(constraint)


def _number(bound: Bound | None, side: int) -> float:
    if bound is None:
        return side * math.inf
    try:
        return float(bound)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if bound > 0 else -math.inf  # type: ignore[operator]


def _instant(bound: Bound | None, side: int) -> float:
    return float((bound - EPOCH) // MICROSECOND) if isinstance(bound, datetime) else side * math.inf


def _text_ranges(texts: TextSet) -> tuple[Range, Range]:
    first, last = texts.intervals[0].low, texts.intervals[-1].high
    low = _text(first if isinstance(first, str) else "", b"\x00")
    high = _text(last, b"\x00") if isinstance(last, str) else math.inf
    if isinstance(first, str) and first == last:
        checksum = float(crc32(first.encode("utf-8", "surrogatepass")))
        return (low, high), (checksum, checksum)
    for pattern in texts.like:
        head = pattern.pieces[0].partition(ANY_CHAR)[0]
        low, high = max(low, _text(head, b"\x00")), min(high, _text(head, b"\xff"))
    return (low, max(low, high)), EVERYTHING


def _text(text: str, fill: bytes) -> float:
    """The first bytes as a number; UTF-8 has the order of its characters."""
    first = text.encode("utf-8", "surrogatepass")[:TEXT_BYTES]
    return float(int.from_bytes(first.ljust(TEXT_BYTES, fill), "big"))


# -- many --------------------------------------------------------------------------------------------------------------


class Extents(Generic[T]):
    """Things with attributes and ranges: which enclose, and which lie within others."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _Group[T]] = {}
        self._beginning: dict[str | None, dict[_Group[T], None]] = {}  # groups by their first attribute
        self._having: dict[str | None, dict[_Group[T], None]] = {None: {}}  # groups by each of their attributes
        self._of: dict[T, _Group[T]] = {}

    def __contains__(self, each: T) -> bool:
        return each in self._of

    def __len__(self) -> int:
        return len(self._of)

    def add(self, each: T, attributes: tuple[str, ...], ranges: Sequence[Range]) -> None:
        """Something new."""
        group = self._groups.get(attributes)
        if group is None:
            group = self._groups[attributes] = _Group(attributes)
            self._beginning.setdefault(attributes[0] if attributes else None, {})[group] = None
            for name in (None, *attributes):
                self._having.setdefault(name, {})[group] = None
        group.add(each, ranges)
        self._of[each] = group

    def remove(self, each: T) -> None:
        """It is gone."""
        group = self._of.pop(each)
        group.remove(each)
        if group.things:
            return
        attributes = group.attributes
        del self._groups[attributes]
        del self._beginning[attributes[0] if attributes else None][group]
        for name in (None, *attributes):
            del self._having[name][group]

    def enclosing(self, attributes: tuple[str, ...], ranges: Sequence[Range]) -> Iterator[T]:
        """All that have some of these attributes, and enclose these ranges."""
        names = frozenset(attributes)
        for first in (None, *attributes):
            for group in self._beginning.get(first, ()):
                if names.issuperset(group.attributes):
                    yield from group.enclosing(_chosen(attributes, ranges, group.attributes))

    def within(self, attributes: tuple[str, ...], ranges: Sequence[Range]) -> Iterator[T]:
        """All that have these attributes and maybe others, and lie within these ranges."""
        groups = min((self._having.get(name, {}) for name in (None, *attributes)), key=len)
        for group in groups:
            if group.names.issuperset(attributes):
                yield from group.within(attributes, ranges)


class _Group(Generic[T]):
    """Those with the same attributes."""

    def __init__(self, attributes: tuple[str, ...]) -> None:
        self.attributes = attributes
        self.names = frozenset(attributes)
        self.things: list[T] = []
        self._places: dict[T, int] = {}
        self._ranges: list[Sequence[Range]] = []
        self._columns: _Columns | None = None

    def add(self, each: T, ranges: Sequence[Range]) -> None:
        self._places[each] = len(self.things)
        self.things.append(each)
        self._ranges.append(ranges)
        if self._columns is not None:
            self._columns.put(len(self.things) - 1, ranges)
        elif len(self.things) == COLUMNS_FROM:
            self._columns = _columns(self._ranges)

    def remove(self, each: T) -> None:
        at, last, ranges = self._places.pop(each), self.things.pop(), self._ranges.pop()
        if at < len(self.things):  # the last one takes its place
            self.things[at], self._ranges[at] = last, ranges
            self._places[last] = at
            if self._columns is not None:
                self._columns.put(at, ranges)

    def enclosing(self, ranges: Sequence[Range]) -> list[T]:
        if self._columns is not None:
            return [self.things[at] for at in self._columns.enclosing(len(self.things), ranges)]
        return [each for each, wide in zip(self.things, self._ranges, strict=True) if encloses(wide, ranges)]

    def within(self, attributes: tuple[str, ...], ranges: Sequence[Range]) -> list[T]:
        rows = _rows(self.attributes, attributes)
        if self._columns is not None:
            return [self.things[at] for at in self._columns.within(len(self.things), rows, ranges)]
        narrow = ([each[row] for row in rows] for each in self._ranges)
        return [each for each, its in zip(self.things, narrow, strict=True) if encloses(ranges, its)]


def _columns(ranges: Sequence[Sequence[Range]]) -> _Columns | None:
    try:
        return _Columns(ranges)
    except ImportError:
        return None  # without arrays they are compared one by one


class _Columns:
    """The ranges of many things: a row for each range, a column for each thing."""

    def __init__(self, ranges: Sequence[Sequence[Range]]) -> None:
        import numpy as np  # most homes hold few, and need no arrays

        both = np.array(ranges)
        self._np = np
        self._lows: Numbers = np.ascontiguousarray(both[:, :, 0].T)
        self._highs: Numbers = np.ascontiguousarray(both[:, :, 1].T)

    def put(self, at: int, ranges: Sequence[Range]) -> None:
        """What is at a place."""
        np = self._np
        if at == self._lows.shape[1]:
            self._lows = np.hstack([self._lows, np.empty_like(self._lows)])
            self._highs = np.hstack([self._highs, np.empty_like(self._highs)])
        self._lows[:, at], self._highs[:, at] = np.array(ranges).T

    def enclosing(self, count: int, ranges: Sequence[Range]) -> list[int]:
        """Where among the first ones those are that enclose these ranges, row by row."""
        left = self._np.arange(count)
        for row, (low, high) in enumerate(ranges):
            left = left[(self._lows[row, left] <= low) & (self._highs[row, left] >= high)]
            if not left.size:
                break
        return list(map(int, left))

    def within(self, count: int, rows: Sequence[int], ranges: Sequence[Range]) -> list[int]:
        """Where those are that lie within these ranges in some rows."""
        left = self._np.arange(count)
        for row, (low, high) in zip(rows, ranges, strict=True):
            left = left[(self._lows[row, left] >= low) & (self._highs[row, left] <= high)]
            if not left.size:
                break
        return list(map(int, left))


def _rows(attributes: tuple[str, ...], chosen: tuple[str, ...]) -> list[int]:
    """Which ranges are those of some of the attributes."""
    rows = [0]
    for name in chosen:
        at = 1 + 2 * attributes.index(name)
        rows += (at, at + 1)
    return rows


def _chosen(attributes: tuple[str, ...], ranges: Sequence[Range], chosen: tuple[str, ...]) -> Sequence[Range]:
    return ranges if chosen == attributes else [ranges[row] for row in _rows(attributes, chosen)]
