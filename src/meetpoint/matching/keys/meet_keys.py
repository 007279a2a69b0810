"""Meet keys: a conjunction and every event that it accepts share one.

A conjunction is filed under one of its constraints, which gives it a few keys; an event has every key that it could
satisfy. The keys of a conjunction are disjoint, so it shares exactly one with an event that it accepts, and nothing is
found twice. A shared key is no match yet: the check follows.

| a constraint | its keys |
| --- | --- |
| `=`, IN | VALUE, one per value |
| LIKE 'OT%', a range of strings with one beginning | PREFIX, its first characters |
| LIKE '%SE' | SUFFIX, its last characters |
| LIKE '%YS%' and any other literal run | GRAM, a few characters of it |
| a range of numbers or timestamps | CELL, disjoint dyadic cells that cover it |
| `!=`, NOT LIKE, IS NOT NULL, a constraint that is too wide | THERE: the event has the attribute (of that kind) |
| IS NULL | MISSING |
| nothing | ALWAYS |

Numbers are placed by the double nearest to them. Rounding keeps order, so a number within a range lies, rounded,
between its rounded ends: 1, 1.0 and Decimal("1.00") meet, and a key is never missed. The double (or the
microsecond) becomes a signed 64-bit *code* of the same order. Cells lie on *places*: codes, but with all beyond a far
end thrown together (from 2**64 and within 2**-64 of zero; before 1827 and after 2112), which shortens the way of
`x > 5` to its end and keeps order too. A cell is the places that agree in all but their last bits. An event lies in one
cell of each size, so only a fixed ladder of sizes is in use: with all 64, an event would have 64 keys per attribute.
The ladder is gentle where the ends of common ranges lie, and above, where `x > 5` runs through all sizes; it is steep
below, and ends where a cell is too small to be worth a key.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from struct import Struct as Layout
from typing import TypeAlias

import msgspec

from meetpoint.language.filters.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.intervals import Interval, Intervals
from meetpoint.language.filters.like import ANY_CHAR, Pattern, prefix_interval
from meetpoint.language.names import find, join_name, split_name
from meetpoint.language.timestamps import EPOCH, MICROSECOND, format_timestamp
from meetpoint.language.values import Kind, kind_of

__all__ = ["ALWAYS", "CELLS_MAX", "PREFIX_MAX", "KeyClass", "KeyClasses", "KeySort", "MeetKey", "candidates", "code_of"]

PREFIX_MAX = 3
"""Characters of a prefix, suffix or gram: enough to tell most texts apart, few enough for few keys per event."""
CELLS_MAX = 16
"""Cells that cover a range."""
VALUES_MAX = 256
"""Values of an IN list that get a key each; a longer list is filed by the cells or prefixes of its values."""

_PREFIXES_MAX = 16  # under which one set of strings is filed
_GRAMS_TRIED = 64  # of one pattern: a hostile one has tens of thousands
_TEXT_MAX = 64  # characters of a value within a key; a longer value is named by its hash

LADDERS: dict[str, tuple[int, ...]] = {
    Kind.NUMBER: (*range(20, 44, 4), *range(44, 60, 2)),  # 52 is a binade, [8, 16); 58 is all from 1.0 upwards
    Kind.TIMESTAMP: (*range(24, 32, 4), *range(32, 54, 2)),  # 24 is 17 seconds, 32 is 72 minutes, 44 half a year
}
"""The sizes of cells: the number of bits that places in one cell need not share."""
ENDS: dict[str, tuple[int, int]] = {Kind.NUMBER: (-(2**59), 2**59 - 1), Kind.TIMESTAMP: (-(2**52), 2**52 - 1)}
"""The first place and the last."""
_SLACK_MAX: dict[str, int] = {Kind.NUMBER: 2**50, Kind.TIMESTAMP: 2**42}  # a quarter of a binade, 51 days

_DOUBLE = Layout("<d")
_LONG = Layout("<q")
_INFINITY = 0x7FF0_0000_0000_0000
_NAN = 0x7FF8_0000_0000_0000  # the largest number, as filters have it
_SMALL = 0x3BF0_0000_0000_0000  # 2**-64, where the places of numbers begin
_FIRST, _LAST = -(2**63), 2**63 - 1  # codes before and behind all values

Spans: TypeAlias = Sequence[tuple[int, int]]
"""Sorted, disjoint ranges of codes or places, both ends included."""


class KeySort(StrEnum):
    """A sort of key, by what an event must have to have the key."""

    VALUE = "value"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    GRAM = "gram"
    CELL = "cell"
    THERE = "there"
    MISSING = "missing"
    ALWAYS = "always"


class KeyClass(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """A class of keys that an event makes in one go; `size` is a length or a level, see MeetKey."""

    sort: KeySort
    attribute: str = ""
    kind: str = ""
    size: int = 0


class MeetKey(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False, array_like=True):
    """A key under which a conjunction and an event meet.

    It is the same in every process: compare keys, or their digests, never Python's `hash`. `kind` is empty where it
    does not matter. `size` is the length of a prefix, suffix or gram and the level of a cell; `number` a value's code
    or a cell's place among those of its level; `text` a value or a part of one.
    """

    sort: KeySort
    attribute: str = ""
    kind: str = ""
    size: int = 0
    number: int = 0
    text: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """The places of a cell, both ends included."""
        return self.number << self.size, ((self.number + 1) << self.size) - 1

    def digest(self, bits: int = 64) -> int:
        """Return a number of so many bits (at most 512) for overlays and partitions, the same on every machine."""
        if not 1 <= bits <= 512:
            raise ValueError(f"a digest of {bits} bits; it has 1 to 512")
        hashed = blake2b(digest_size=-(-bits // 8), person=b"meetpoint key 1")
        for part in (self.sort, self.attribute, self.kind, self.text):
            data = part.encode()
            hashed.update(len(data).to_bytes(4, "big") + data)  # with its length, so that no two keys read the same
        hashed.update(self.size.to_bytes(1, "big") + self.number.to_bytes(8, "big", signed=True))
        return int.from_bytes(hashed.digest(), "big") >> -bits % 8

    def __str__(self) -> str:
        match self.sort:
            case KeySort.ALWAYS:
                return "always"
            case KeySort.THERE if self.kind:
                return f"{self.attribute} there ({self.kind})"
            case KeySort.THERE | KeySort.MISSING:
                return f"{self.attribute} {self.sort}"
            case KeySort.CELL:
                first, last = self.span
                low, high = [_show(self.kind, edge_of(self.kind, place)) for place in (first, last + 1)]
                return f"{self.attribute} cell [{low}, {high})"
            case KeySort.VALUE if self.kind != Kind.STRING:
                value = double_of(self.number) if self.kind == Kind.NUMBER else self.number
                return f"{self.attribute} value {_show(self.kind, value)}"
        return f"{self.attribute} {self.sort} {self.text!r}"


ALWAYS = MeetKey(KeySort.ALWAYS)
"""The key of every event."""
PARTS = (KeySort.PREFIX, KeySort.SUFFIX, KeySort.GRAM)

Ways: TypeAlias = list[tuple[MeetKey, ...]]


# -- codes -------------------------------------------------------------------------------------------------------------


def code_of(value: object) -> int:
    """Return the code of a number, a boolean or a timestamp: a signed 64-bit integer, in the order of the values."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, bool):
        return int(value)
    double = float(value)  # type: ignore[arg-type]
    if double != double:
        return _NAN
    code: int = _LONG.unpack(_DOUBLE.pack(double))[0]
    return code if code >= 0 else -(code + 2**63)  # -0.0 is 0


def double_of(code: int) -> float:
    """Return the double of a number's code; NaN for all that lies behind infinity."""
    if code > _INFINITY:
        return math.nan
    double: float = _DOUBLE.unpack(_LONG.pack(min(abs(code), _INFINITY)))[0]
    return -double if code < 0 else double


def place_of(kind: str, code: int) -> int:
    """Return where a code lies among cells: in the order of codes, but all beyond the far ends in one place."""
    first, last = ENDS[kind]
    if kind == Kind.NUMBER:
        code = max(code - _SMALL, 0) if code >= 0 else min(code + _SMALL, 0)
    return min(max(code, first), last)


def edge_of(kind: str, place: int) -> float:
    """Return the double, or the microsecond, at which a place begins; infinite at the far ends."""
    first, last = ENDS[kind]
    if not first < place <= last:
        return math.copysign(math.inf, place)
    return float(place) if kind == Kind.TIMESTAMP else double_of(place + (place > 0) * _SMALL - (place < 0) * _SMALL)


def _show(kind: str, value: float) -> str:
    if kind == Kind.NUMBER:
        return repr(value)
    if kind == Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    return "…" if math.isinf(value) else format_timestamp(EPOCH + int(value) * MICROSECOND)


def shorten(text: str) -> str:
    """Return a value as a key holds it: itself, or its beginning and its hash. Collisions only share a key."""
    if len(text) <= _TEXT_MAX:
        return text
    return f"{text[: _TEXT_MAX // 2]}…{blake2b(text.encode(), digest_size=12).hexdigest()}"


# -- constraints -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)
def canonical_name(name: str) -> str:
    """Return the one spelling of a name, which keys use."""
    return join_name(split_name(name))


def candidates(name: str, constraint: Constraint, cells_max: int, fine: bool) -> Ways:
    """Return the ways to file a constraint on an attribute, each with all its keys; `()` if nothing satisfies it.

    Of the keys of one way, an event that satisfies the constraint has exactly one. If the usual cells are coarse,
    `fine` adds a way with as many cells as possible: for events that lie closely together at the end of a wide range.
    """
    match constraint:
        case Absent():
            return [(MeetKey(KeySort.MISSING, name),)]
        case Present():
            return [(MeetKey(KeySort.THERE, name),)]
        case BooleanSet(values):
            if len(values) == 1:
                return [(MeetKey(KeySort.VALUE, name, Kind.BOOLEAN, 0, int(values[0])),)]
            return [(MeetKey(KeySort.THERE, name, Kind.BOOLEAN),)]
        case TextSet():
            return _ways_in_text(name, constraint)
    return _ways_on_line(name, constraint, cells_max, fine)


def line_of(constraint: NumberSet | TimestampSet) -> tuple[Kind, list[int], Spans]:
    """Return the kind of the accepted values, and their codes if they are single values, else their places.

    Of numbers it is both views at once. An exact value just within an open end rounds onto it: exact ends are closed.
    """
    if isinstance(constraint, NumberSet):
        kind = Kind.NUMBER
        spans = _spans(constraint.exact, True) + _spans(constraint.doubles or (), False)
    else:
        kind = Kind.TIMESTAMP
        spans = _spans(constraint.intervals, False)
    if len(spans) > 1:
        spans = joined(spans)
    if len(spans) <= VALUES_MAX and all(low == high for low, high in spans):
        return kind, [code for code, _ in spans], ()
    return kind, [], [(place_of(kind, low), place_of(kind, high)) for low, high in spans]


def _spans(intervals: Intervals, closed: bool) -> list[tuple[int, int]]:
    """Return the codes of intervals. An open end leaves its own code out, unless ends count as closed."""
    spans = []
    for interval in intervals:
        low = _FIRST if interval.low is None else code_of(interval.low) + (interval.low_open and not closed)
        high = _LAST if interval.high is None else code_of(interval.high) - (interval.high_open and not closed)
        if low <= high:
            spans.append((low, high))
    return spans


def joined(spans: Iterable[tuple[int, int]], near: int = 0) -> list[tuple[int, int]]:
    """Return spans in order; spans that overlap, or are as `near` as said, become one, so that none counts twice."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if out and low <= out[-1][1] + near:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def _ways_on_line(name: str, constraint: NumberSet | TimestampSet, cells_max: int, fine: bool) -> Ways:
    kind, codes, places = line_of(constraint)
    if not places:
        return [tuple([MeetKey(KeySort.VALUE, name, kind, 0, code) for code in codes])]
    little = sum([high - low + 1 for low, high in places]) >> 3
    covers = [_cover(places, LADDERS[kind], cells_max, min(little, _SLACK_MAX[kind]))]
    if fine and little > _SLACK_MAX[kind]:
        covers.append(_cover(places, LADDERS[kind], cells_max, 0))
    there = (MeetKey(KeySort.THERE, name, kind),)
    return [*(tuple([MeetKey(KeySort.CELL, name, kind, *cell) for cell in cells]) for cells in covers if cells), there]


def _cover(spans: Spans, ladder: Sequence[int], cells_max: int, slack: int) -> list[tuple[int, int]] | None:
    """Return disjoint cells, as level and number, that hold all places of some spans; None if too many.

    The spans are widened to whole cells of one level, then made up of cells of it and of larger ones. It is the highest
    level that adds no more than `slack`, or else the first above it with few enough cells.
    """
    size = sum([high - low + 1 for low, high in spans])

    def widened(level: int) -> Spans:
        runs = [(low >> level, high >> level) for low, high in spans]
        return joined(runs, near=1) if len(runs) > 1 else runs

    def added(level: int) -> int:
        return (sum([high - low + 1 for low, high in widened(level)]) << level) - size

    start = max(bisect_right(ladder, slack, key=added) - 1, 0)
    for at in range(start, len(ladder)):
        cells = _cells_of(widened(ladder[at]), ladder[at:], cells_max)
        if cells is not None:
            return cells
    return None


def _cells_of(runs: Spans, ladder: Sequence[int], cells_max: int) -> list[tuple[int, int]] | None:
    """Return the fewest cells, in order, that make up exactly these runs of the lowest level; None if too many."""
    cells: list[tuple[int, int]] = []
    for low, high in runs:
        back: list[tuple[int, int]] = []
        for level, above in zip(ladder, (*ladder[1:], None), strict=True):
            step = 0 if above is None else above - level
            first, behind = -(-low >> step), (high + 1) >> step  # whole cells of the level above
            is_last = above is None or first >= behind
            front, rest = (high + 1, high + 1) if is_last else (first << step, behind << step)
            if len(cells) + len(back) + (front - low) + (high + 1 - rest) > cells_max:
                return None
            cells += [(level, number) for number in range(low, front)]
            back = [(level, number) for number in range(rest, high + 1)] + back
            if is_last:
                break
            low, high = first, behind - 1
        cells += back
    return cells


def _ways_in_text(name: str, constraint: TextSet) -> Ways:
    intervals = constraint.intervals
    if len(intervals) <= VALUES_MAX and all(interval.is_point for interval in intervals):
        values = dict.fromkeys(shorten(str(interval.low)) for interval in intervals)
        return [tuple([MeetKey(KeySort.VALUE, name, Kind.STRING, 0, 0, value) for value in values])]
    ways: dict[tuple[MeetKey, ...], None] = {}  # in order, and none twice
    if heads := _prefixes(intervals):
        ways[tuple([_part(KeySort.PREFIX, name, head) for head in heads])] = None
    for pattern in constraint.like:
        if head := pattern.pieces[0].partition(ANY_CHAR)[0][:PREFIX_MAX]:
            ways[(_part(KeySort.PREFIX, name, head),)] = None
        if tail := pattern.pieces[-1].rpartition(ANY_CHAR)[2][-PREFIX_MAX:]:
            ways[(_part(KeySort.SUFFIX, name, tail),)] = None
        for gram in _grams(pattern):
            ways[(_part(KeySort.GRAM, name, gram),)] = None
    ways[(MeetKey(KeySort.THERE, name, Kind.STRING),)] = None
    return [*ways]


def _part(sort: KeySort, name: str, text: str) -> MeetKey:
    return MeetKey(sort, name, "", len(text), 0, text)


def _prefixes(intervals: Intervals) -> list[str]:
    """Return beginnings, of which each string of the intervals has exactly one; none if a string has none.

    They are as long as possible, and shorter if they would be too many.
    """
    for length in range(PREFIX_MAX, 0, -1):
        kept: list[str] = []
        for prefix in sorted({_prefix(interval, length) for interval in intervals}):
            if not prefix:
                return []
            if not kept or not prefix.startswith(kept[-1]):
                kept.append(prefix)
        if len(kept) <= _PREFIXES_MAX:
            return kept
    return []


def _prefix(interval: Interval, length: int) -> str:
    """Return what all strings of an interval begin with, up to a length."""
    low, high = interval.low or "", interval.high
    assert isinstance(low, str)
    if interval.is_point:
        return low[:length]
    if isinstance(high, str):
        for size in range(min(length, len(low)), 0, -1):
            behind = prefix_interval(low[:size])[0].high
            if behind is None or high < behind or (high == behind and interval.high_open):  # type: ignore[operator]
                return low[:size]
    return ""


def _grams(pattern: Pattern) -> list[str]:
    """Return the longest grams of a pattern's literal runs, in order."""
    runs = [run for piece in pattern.pieces for run in piece.split(ANY_CHAR) if run]
    size = min(PREFIX_MAX, max(map(len, runs), default=0))
    grams: list[str] = []
    for run in runs:
        grams += [run[at : at + size] for at in range(min(len(run) - size + 1, _GRAMS_TRIED))]
    return grams[:_GRAMS_TRIED]


# -- events ------------------------------------------------------------------------------------------------------------

Sizes: TypeAlias = Mapping[tuple[str, str], Sequence[int]]
"""The keys to make of an attribute: by sort and kind, the sizes."""

_EVERY_SIZE: Sizes = {
    (KeySort.THERE, ""): (0,),
    **{(sort, ""): range(1, PREFIX_MAX + 1) for sort in PARTS},
    **{(KeySort.CELL, kind): levels for kind, levels in LADDERS.items()},
    **{(sort, kind): (0,) for kind in Kind for sort in (KeySort.VALUE, KeySort.THERE)},
}
_joined_name = lru_cache(maxsize=16384)(join_name)


def walk(attributes: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield every attribute that an event has, by its canonical name; each nested object before its parts."""
    for segment, value in attributes.items():
        if value is None:
            continue
        here = (*path, segment)
        yield _joined_name(here), value
        if isinstance(value, Mapping):
            yield from walk(value, here)


def _keys_of_value(name: str, value: object, sizes: Sizes = _EVERY_SIZE) -> list[MeetKey]:
    """Return all keys that a clean value, not NULL, gives an event; only of the classes asked for."""
    keys = [MeetKey(KeySort.THERE, name)] if (KeySort.THERE, "") in sizes else []
    kind = kind_of(value)
    if kind is None:
        return keys
    if (KeySort.THERE, kind) in sizes:
        keys.append(MeetKey(KeySort.THERE, name, kind))
    if isinstance(value, str):
        if (KeySort.VALUE, kind) in sizes:
            keys.append(MeetKey(KeySort.VALUE, name, kind, 0, 0, shorten(value)))
        for sort in PARTS:
            for size in sizes.get((sort, ""), ()):
                keys += [MeetKey(sort, name, "", size, 0, part) for part in parts_of(sort, size, value)]
        return keys
    code = code_of(value)
    if (KeySort.VALUE, kind) in sizes:
        keys.append(MeetKey(KeySort.VALUE, name, kind, 0, code))
    if levels := sizes.get((KeySort.CELL, kind)):
        place = place_of(kind, code)
        keys += [MeetKey(KeySort.CELL, name, kind, level, place >> level) for level in levels]
    return keys


def parts_of(sort: KeySort, size: int, text: str) -> Collection[str]:
    """Return the prefix, the suffix or the distinct grams of a size in a text; none if it is shorter."""
    length = len(text)
    if length < size:
        return ()
    if sort is KeySort.PREFIX:
        return (text[:size],)
    if sort is KeySort.SUFFIX:
        return (text[length - size :],)
    return {text[at : at + size] for at in range(length - size + 1)}


def keys_of_event(
    attributes: Mapping[str, object],
    missing: Mapping[MeetKey, tuple[str, ...]],
    asked: Mapping[str, Sizes] | None = None,
) -> frozenset[MeetKey]:
    """Return all keys of clean attributes, or of the classes asked for; MISSING only for the keys given, by path."""
    keys = [ALWAYS]
    for name, value in walk(attributes):
        if asked is None:
            keys += _keys_of_value(name, value)
        elif (sizes := asked.get(name)) is not None:
            keys += _keys_of_value(name, value, sizes)
    keys += [key for key, path in missing.items() if find(attributes, path) is None]
    return frozenset(keys)


class KeyClasses:
    """The classes of keys in use, for programs that do not know the keys: they are far fewer, and hardly change."""

    __slots__ = ("_asked", "_missing", "classes")

    def __init__(self, classes: Iterable[KeyClass]) -> None:
        self.classes = frozenset(classes)
        self._asked: dict[str, dict[tuple[str, str], list[int]]] = {}
        self._missing: dict[MeetKey, tuple[str, ...]] = {}
        for one in sorted(self.classes):
            if one.sort is KeySort.MISSING:
                self._missing[MeetKey(one.sort, one.attribute)] = split_name(one.attribute)
            elif one.sort is not KeySort.ALWAYS:
                self._asked.setdefault(one.attribute, {}).setdefault((one.sort, one.kind), []).append(one.size)

    def keys_of_event(self, attributes: Mapping[str, object]) -> frozenset[MeetKey]:
        """Return all keys of these classes that clean attributes could satisfy, and ALWAYS."""
        return keys_of_event(attributes, self._missing, self._asked)
