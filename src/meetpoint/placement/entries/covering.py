"""Extents: between which numbers the values of a conjunction lie, so that what may cover what is found fast.

For each attribute a conjunction has ranges of numbers, and where it covers another, its ranges enclose the other's. The
numbers keep the order of the values they stand for, as far as a double can; of single texts there is a checksum too,
and of the scheme's code a range of its own. So candidates for covering are found by comparing numbers, where there are
many as columns, all in a few calls; the rest is the algebra's.

Conjunctions with the same attributes share columns. One can cover another only where its attributes are among the
other's.

Covering: what need not be placed, since another conjunction of the same home is met by every event that it accepts.

A home checks every event that comes to it against all its subscriptions, so one placed conjunction brings the events of
all that it covers. Which are placed follows from the home's subscriptions alone: a conjunction is left out where
another one covers it that is strictly wider, or accepts the same and comes first: of equal ones the oldest, by the
number of its subscription; of those that only mean the same, by their text. Where the algebra is not certain (some LIKE
patterns) it also depends on the order in which they came; what is left out is covered by something placed in any case.

Equal conjunctions form a *class*. Classes form trees, each below one that covers it; the roots are placed. Only roots
are compared with, and of those only such as `extents` finds: where one conjunction covers another, its ranges enclose
the other's.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar
from zlib import crc32

from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import Bound
from meetpoint.language.filters.like import ANY_CHAR
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.syntax.render import render

__all__ = ["CODE_MAX", "Coverage", "Covering", "Extents", "Range", "encloses", "ranges_of"]


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.float64]


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
    """Return whether each range of one encloses that of the other."""
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
        """Add an item."""
        group = self._groups.get(attributes)
        if group is None:
            group = self._groups[attributes] = _Group(attributes)
            self._beginning.setdefault(attributes[0] if attributes else None, {})[group] = None
            for name in (None, *attributes):
                self._having.setdefault(name, {})[group] = None
        group.add(each, ranges)
        self._of[each] = group

    def remove(self, each: T) -> None:
        """Remove an item."""
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
    """Items with the same attributes."""

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
        """Set the ranges at a place."""
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


class Coverage(Protocol):
    """A scheme's knowledge of conjunctions that may cover each other."""

    def code(self, conjunction: Conjunction) -> str:
        """Some "0" and "1"; where one conjunction covers another, its code is a prefix of the other's."""


class _Class:
    """All conjunctions of a home that are equal."""

    __slots__ = ("alone", "attributes", "children", "members", "parent", "ranges", "text")

    def __init__(self, conjunction: Conjunction, ranges: tuple[Range, ...]) -> None:
        self.alone = Filter("", (conjunction,))
        self.attributes = conjunction.attributes
        self.ranges = ranges
        self.members: list[tuple[int, int, str]] = []
        """Number and name of the subscription, and in between which conjunction of it: sorted, the oldest first."""
        self.parent: _Class | None = None
        self.children: dict[_Class, None] = {}
        self.text = ""

    def comes_before(self, other: _Class) -> bool:
        """Which of two that mean the same is placed."""
        for each in (self, other):
            each.text = each.text or render(each.alone.conjunctions)
        return self.text < other.text

    def covers(self, other: _Class) -> bool:
        """Return whether the other, of which the ranges lie within, need not be placed where this one is."""
        if not covers(self.alone, other.alone):
            return False
        alike = self.attributes == other.attributes and encloses(other.ranges, self.ranges)
        return not (alike and covers(other.alone, self.alone)) or self.comes_before(other)


class Covering:
    """The subscriptions of one home, and which of their conjunctions are placed."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._versions: dict[str, tuple[int, Filter]] = {}
        self._classes: dict[Conjunction, _Class] = {}
        self._roots: Extents[_Class] = Extents()
        self._placed: dict[str, dict[int, None]] = {}
        self._touched: dict[_Class, tuple[int, int, str] | None] = {}  # what was placed before the change, if anything

    def change(self, name: str, number: int, filter_: Filter | None) -> list[str]:
        """A subscription is new, changed or gone (None): the names of all of which something else is placed now."""
        before = self._versions.pop(name, None)
        if filter_ is not None:
            self._versions[name] = (number, filter_)
        old = {} if before is None else self._members(name, *before)
        new = {} if filter_ is None else self._members(name, number, filter_)
        self._touched = {}
        for member, conjunction in new.items():
            if old.get(member) != conjunction:
                self._join(member, conjunction)
        for member, conjunction in old.items():
            if new.get(member) != conjunction:
                self._part(member, conjunction)
        return self._note()

    def _members(self, name: str, number: int, filter_: Filter) -> dict[tuple[int, int, str], Conjunction]:
        return {(number, at, name): conjunction for at, conjunction in enumerate(filter_.conjunctions)}

    def _note(self) -> list[str]:
        """Write down what is placed now; whose that is, or was."""
        names: dict[str, None] = {}
        changes = [(was, self._shown(each)) for each, was in self._touched.items()]
        changes = [(was, now) for was, now in changes if was != now]
        for was, _ in changes:
            if was is not None:
                placed = self._placed[was[2]]
                del placed[was[1]]
                if not placed:
                    del self._placed[was[2]]
                names[was[2]] = None
        for _, now in changes:
            if now is not None:
                self._placed.setdefault(now[2], {})[now[1]] = None
                names[now[2]] = None
        return list(names)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def version(self, name: str) -> tuple[int, Filter] | None:
        """The number and the filter of a subscription, as of its last change."""
        return self._versions.get(name)

    def placed(self, name: str) -> list[int]:
        """Which conjunctions of a subscription are placed."""
        return sorted(self._placed.get(name, ()))

    def coverers(self, name: str) -> list[str]:
        """The other subscriptions that have a conjunction in the place of one of this."""
        version = self._versions.get(name)
        conjunctions = () if version is None else version[1].conjunctions
        names = dict.fromkeys(self._root(self._classes[each]).members[0][2] for each in conjunctions)
        return [each for each in names if each != name]

    # -- classes -------------------------------------------------------------------------------------------------------

    def _touch(self, each: _Class) -> None:
        if each not in self._touched:
            self._touched[each] = self._shown(each)

    def _shown(self, each: _Class) -> tuple[int, int, str] | None:
        """Which of a class is placed."""
        return each.members[0] if each in self._roots and each.members else None

    def _join(self, member: tuple[int, int, str], conjunction: Conjunction) -> None:
        found = self._classes.get(conjunction)
        if found is not None:
            self._touch(found)
            insort(found.members, member)
            return
        ranges = ranges_of(conjunction, self._coverage.code(conjunction))
        made = self._classes[conjunction] = _Class(conjunction, ranges)
        self._touch(made)
        made.members.append(member)
        self._insert(made)

    def _part(self, member: tuple[int, int, str], conjunction: Conjunction) -> None:
        found = self._classes[conjunction]
        self._touch(found)
        del found.members[bisect_left(found.members, member)]
        if found.members:
            return
        del self._classes[conjunction]
        children = list(found.children)
        parent = found.parent
        if parent is not None:
            self._hang(found, None)
            for child in children:  # what covers it covers those that it covers
                self._hang(child, parent)
            return
        self._roots.remove(found)
        for child in children:
            self._hang(child, None)
            self._insert(child)

    def _insert(self, each: _Class) -> None:
        """A class with all below it gets its place: below a root, or as one, above those that it covers."""
        self._touch(each)
        for root in self._roots.enclosing(each.attributes, each.ranges):
            if root.covers(each):
                self._hang(each, root)
                return
        for root in list(self._roots.within(each.attributes, each.ranges)):
            if each.covers(root):
                self._touch(root)
                self._roots.remove(root)
                self._hang(root, each)
        self._roots.add(each, each.attributes, each.ranges)

    def _hang(self, each: _Class, parent: _Class | None) -> None:
        if each.parent is not None:
            del each.parent.children[each]
        each.parent = parent
        if parent is not None:
            parent.children[each] = None

    def _root(self, each: _Class) -> _Class:
        """The root above a class; the way there is shorter the next time."""
        root = each
        while root.parent is not None:
            root = root.parent
        while each.parent is not None and each.parent is not root:
            onward = each.parent
            self._hang(each, root)
            each = onward
        return root

    def check(self) -> None:
        """Assert what must hold at all times."""
        placed = {(each.members[0][2], each.members[0][1]) for each in self._classes.values() if each in self._roots}
        assert placed == {(name, at) for name, ats in self._placed.items() for at in ats}
        assert len(self._roots) == len(placed)
        assert all((each.parent is None) is (each in self._roots) for each in self._classes.values())
