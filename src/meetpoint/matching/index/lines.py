"""Lines: the values of one attribute in one order, cut where some filter's bound lies.

A filter only ever asks on which side of its bounds a value lies, so a value may be replaced by its *rank*, the number
of cuts below it; a constraint is then a range of ranks, and all kinds of values are compared alike. A cut lies just
before or just after a value. Ranks go from 0 to the number of cuts.

An attribute has up to seven lines. Texts have one, and one more for texts read backwards, on which a suffix is a
prefix. Numbers have two, because an integer or decimal compares exactly and a float with the double nearest to the
literal. A literal that is the shortest spelling of its double (8.30, not 0.10000000000000000555 or 2**60 + 1) is
*plain*: no two plain literals share a double, so one order serves all values. The others lie on a line of their own
which has two stretches, one for exact values and behind it one for floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.matching.index.ids import arrow_bits
from meetpoint.matching.index.kernels.ranks import EIGHT
from meetpoint.matching.tables.prepared_columns import WORD

__all__ = [
    "Array",
    "LineKey",
    "LineSort",
    "RankLine",
    "Thresholds",
    "is_plain",
    "merge_lines",
    "read_only",
    "text_line",
]

Array: TypeAlias = "np.ndarray[Any, Any]"

_SURE_DIGITS = 15
_GRID_BITS = 10, 16
"""Bits of a grid's size, least and most: about as many cells as cuts."""


_OUTLIERS = EIGHT // 2
"""Cuts on either side that a grid leaves out: a search through so many takes no longer than through one."""


class LineSort(IntEnum):
    """A sort of line, by the values that it orders."""

    ALWAYS = 0  # 0 for every event, so that 1 is never
    PRESENCE = 1  # 0 absent, 1 there
    BOOLEAN = 2  # 0 false, 1 true
    NUMBER = 3
    ODD_NUMBER = 4
    INSTANT = 5
    TEXT = 6
    TEXT_BACK = 7


class LineKey(NamedTuple):
    """The name of a line: its attribute and sort."""

    attribute: str
    sort: LineSort


class Thresholds(NamedTuple):
    """Cuts as 64-bit keys of one type of values; a value's rank is `base` plus how many are at most its key.

    A grid narrows the search for a key. It is even on the keys, from `first` on, or on doubles, from `least` on with
    `scale` cells for 1. A few cuts lie before and behind it.
    """

    keys: Array  # and EIGHT more
    cuts: int
    grid: Array
    first: int = 0
    shift: int = 0
    least: float = 0.0
    scale: float = 0.0
    base: int = 0

    @staticmethod
    def of(keys: Array) -> Thresholds:
        if not len(keys):
            return Thresholds(_padded(keys), 0, np.zeros(2, np.int32))
        some = _without_outliers(keys)
        first, last = int(some[0]), int(some[-1])
        shift = max((last - first).bit_length() - _grid_bits(len(keys)), 0)
        cells = ((last - first) >> shift) + 1
        offsets = np.clip(keys, first, last).astype(np.uint64) - np.uint64(first % 2**64)
        grid = _grid(offsets >> np.uint64(shift), cells)
        return Thresholds(_padded(keys), len(keys), grid, first, shift)

    @staticmethod
    def of_doubles(values: Array, after: Array, base: int) -> Thresholds:
        """Return thresholds for cuts before or after doubles, whose keys are `double_keys`.

        Cells of equal width suit doubles on both sides of 0, and cells of equal numbers of doubles those of many sizes.
        """
        by_key = Thresholds.of(double_keys(values) + after)._replace(base=base)
        finite = _without_outliers(values[np.isfinite(values)])
        cells = 1 << _grid_bits(len(values))
        with np.errstate(over="ignore"):
            scale = cells / (finite[-1] - finite[0]) if len(finite) and finite[-1] > finite[0] else 0.0
        if not 0.0 < scale < np.inf:
            return by_key
        least = float(finite[0])
        with np.errstate(over="ignore", invalid="ignore"):
            far = (values - least) * scale
        cell = np.where(far >= 1.0, np.minimum(far, cells - 1), np.where(np.isnan(values), cells - 1, 0))
        grid = _grid(cell.astype(np.uint64), cells)
        if _search(grid) >= _search(by_key.grid):
            return by_key
        return by_key._replace(grid=grid, least=least, scale=float(scale))


def _without_outliers(values: Array) -> Array:
    """Return all but a few values on either side, so that a grid's cells lie where most of them are."""
    few = min(_OUTLIERS, max(len(values) - 1, 0) // 2)
    return values[few : len(values) - few]


def _padded(keys: Array) -> Array:
    return np.concatenate([keys, np.full(EIGHT, WORD[1], np.int64)])


def _grid_bits(cuts: int) -> int:
    return min(max(cuts.bit_length(), _GRID_BITS[0]), _GRID_BITS[1])


def _grid(cell: Array, cells: int) -> Array:
    """Return how many cuts lie in the cells before each, given the cell of each cut, in order."""
    return np.searchsorted(cell, np.arange(cells + 1, dtype=np.uint64)).astype(np.int32)


def _search(grid: Array) -> float:
    """Return how many cuts a search has left, on average over the cuts."""
    return float((np.diff(grid).astype(np.float64) ** 2).sum())


class RankLine(msgspec.Struct, frozen=True, dict=True):
    """The cuts of one line, in order.

    NUMBER has `values` (doubles, each for the literal that is its shortest spelling) and `after`. ODD_NUMBER has the
    same for floats and, before that, `exact` and `exact_after`. INSTANT has `values`, microseconds, with a cut before
    each, and an `after` that says so. The texts have `offsets` and `data`, UTF-8, with a cut before each.
    """

    key: LineKey
    values: Array = np.zeros(0)
    after: Array = np.zeros(0, np.bool_)
    exact: tuple[int | Decimal, ...] = ()
    exact_after: tuple[bool, ...] = ()
    offsets: Array = np.zeros(1, np.int64)
    data: Array = np.zeros(0, np.uint8)

    @property
    def cuts(self) -> int:
        """The number of cuts, which is the highest rank."""
        match self.key.sort:
            case LineSort.ALWAYS | LineSort.PRESENCE | LineSort.BOOLEAN:
                return 1
            case LineSort.TEXT | LineSort.TEXT_BACK:
                return len(self.offsets) - 1
            case LineSort.ODD_NUMBER:
                return len(self.exact) + 1 + len(self.values)  # a cut between the stretches
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The bytes of the cuts, and of the thresholds that were made so far."""
        held = [self.values, self.after, self.offsets, self.data]
        for name in ("floats", "instants"):
            held += _arrays(self.__dict__[name]) if name in self.__dict__ else []
        for thresholds in self.__dict__.get("_scaled", {}).values():
            held += _arrays(thresholds)
        return sum(array.nbytes for array in held) + 16 * len(self.exact)

    @cached_property
    def floats(self) -> Thresholds:
        """The thresholds for doubles, by `double_keys`."""
        return Thresholds.of_doubles(self.values, self.after, self._base)

    @property
    def _base(self) -> int:
        """The rank before the first cut among floats."""
        return len(self.exact) + 1 if self.key.sort is LineSort.ODD_NUMBER else 0

    @property
    def floats_without_grid(self) -> Thresholds:
        """The thresholds for doubles of a line that is not searched often enough to be worth a grid."""
        if "floats" in self.__dict__:
            return self.floats
        keys = double_keys(self.values) + self.after
        return Thresholds(_padded(keys), len(keys), np.array([0, len(keys)], np.int32), scale=1.0, base=self._base)

    @cached_property
    def instants(self) -> Thresholds:
        """The thresholds for microseconds."""
        return Thresholds.of(self.values)

    def scaled(self, scale: int) -> Thresholds:
        """Return thresholds for whole multiples of 10 ** -scale that fit 64 bits; integers are those of scale 0."""
        cached: dict[int, Thresholds] = self.__dict__.setdefault("_scaled", {})
        if scale not in cached:
            cached[scale] = Thresholds.of(self._scaled_keys(scale))
        return cached[scale]

    def _scaled_keys(self, scale: int) -> Array:
        if self.key.sort is LineSort.NUMBER and scale == 0 and (np.abs(self.values) < 2.0**53).all():
            whole = np.floor(self.values)
            keys: Array = whole.astype(np.int64) + (self.after | (whole != self.values))
            return keys
        found: list[int] = []
        for value, after in self.exact_cuts:
            steps = Fraction(value) * 10**scale
            at = floor(steps) + 1 if after else ceil(steps)
            if at > WORD[1]:
                break  # nothing that fits 64 bits lies behind it
            found.append(max(at, WORD[0]))
        return np.array(found, np.int64)

    @cached_property
    def exact_cuts(self) -> list[tuple[int | Decimal, bool]]:
        """The cuts among exact values: the value, and whether the cut is after it."""
        if self.key.sort is LineSort.ODD_NUMBER:
            return list(zip(self.exact, self.exact_after, strict=True))
        return [(Decimal(repr(v)), bool(a)) for v, a in zip(self.values.tolist(), self.after.tolist(), strict=True)]

    def rank_exact(self, value: int | Decimal) -> int:
        """Return the rank of any integer or decimal, by search."""
        low, high = 0, len(self.exact_cuts)
        while low < high:
            middle = (low + high) // 2
            cut, after = self.exact_cuts[middle]
            if cut < value or (cut == value and not after):
                low = middle + 1
            else:
                high = middle
        return low


def _arrays(thresholds: Thresholds) -> list[Array]:
    return [thresholds.keys, thresholds.grid]


def read_only(array: Array) -> Array:
    """Return a view that cannot be written, as Arrow's arrays are: so a kernel is compiled once for both."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def double_keys(values: Array) -> Array:
    """Return doubles as integers of the same order; -0.0 is 0.0, and NaN is the largest."""
    bits = (values + 0.0).view(np.int64)
    keys = np.where(bits < 0, bits ^ np.int64(WORD[1]), bits)
    nans = np.isnan(values)
    return np.where(nans, WORD[1], keys) if nans.any() else keys


def is_plain(value: int | Decimal, double: float) -> bool:
    """Return whether a literal, whose nearest double is given, is the shortest spelling of that double."""
    if type(value) is int:
        if -(2**53) <= value <= 2**53:
            return True
    elif len(text := str(value)) <= _SURE_DIGITS and "E" not in text:
        return True  # no two decimals of so few digits share a double
    return double - double == 0 and Decimal(repr(double)) == value


def text_line(key: LineKey, cuts: Sequence[bytes]) -> RankLine:
    """Return a line of texts from its cuts in order."""
    offsets = np.zeros(len(cuts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, cuts), np.int64, count=len(cuts)), out=offsets[1:])
    return RankLine(key, offsets=offsets, data=np.frombuffer(b"".join(cuts), np.uint8))


def sorted_text_line(key: LineKey, cuts: pa.LargeBinaryArray) -> tuple[RankLine, Array]:
    """Return a line of texts from cuts in any order, and the place of each, without the interpreter lock."""
    encoded = cuts.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.int32)
    place[np.asarray(order)] = np.arange(len(order), dtype=np.int32)
    offsets, data = _buffers(encoded.dictionary.take(order))
    return RankLine(key, offsets=offsets.copy(), data=data.copy()), place[np.asarray(encoded.indices)]


def binary_array(offsets: Array, data: Array) -> pa.LargeBinaryArray:
    """Return texts, one after the other, as an Arrow array."""
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )  # fmt: skip


def _buffers(texts: pa.LargeBinaryArray) -> tuple[Array, Array]:
    """Return the offsets and data of an Arrow array that is no part of another."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int64, len(texts) + 1) if len(texts) else np.zeros(1, np.int64)
    return starts, np.frombuffer(data, np.uint8, int(starts[-1])) if data is not None else np.zeros(0, np.uint8)


def merge_lines(lines: Sequence[tuple[RankLine, Array]]) -> tuple[RankLine, list[Array]]:
    """Return one line with the used cuts of several, and for each line the new place of its cuts.

    The place of a cut that is not used is that of the next one, and nothing reads it.
    """
    key = lines[0][0].key
    match key.sort:
        case LineSort.ALWAYS | LineSort.PRESENCE | LineSort.BOOLEAN:
            return lines[0][0], [np.arange(line.cuts, dtype=np.int32) for line, _ in lines]
        case LineSort.TEXT | LineSort.TEXT_BACK:
            held = [binary_array(line.offsets, line.data).filter(arrow_bits(used)) for line, used in lines]
            merged, place = sorted_text_line(key, pa.concat_arrays(held))
            ends = np.cumsum([len(some) for some in held])[:-1]
            return merged, [_spread(used, of) for (_, used), of in zip(lines, np.split(place, ends), strict=True)]
        case LineSort.ODD_NUMBER:
            return _merge_odd(key, lines)
    values, after, places = merge_cuts([(line.values[used], line.after[used]) for line, used in lines])
    return RankLine(key, values, after), [_spread(used, place) for (_, used), place in zip(lines, places, strict=True)]


def _spread(used: Array, places: Array) -> Array:
    whole = np.zeros(len(used), np.int32)
    whole[used] = places
    return whole


def merge_cuts(cuts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, list[Array]]:
    """Return cuts before or after values, in any order, as one run without duplicates, and the new place of each."""
    values = np.concatenate([v for v, _ in cuts])
    after = np.concatenate([a for _, a in cuts])
    order = np.lexsort((after, values))
    values, after = values[order], after[order]
    fresh = np.ones(len(values), np.bool_)
    fresh[1:] = (values[1:] != values[:-1]) | (after[1:] != after[:-1])
    places = np.zeros(len(values), np.int32)
    places[order] = np.cumsum(fresh) - 1
    ends = np.cumsum([len(v) for v, _ in cuts])[:-1]
    return values[fresh], after[fresh], np.split(places, ends)


def _merge_odd(key: LineKey, lines: Sequence[tuple[RankLine, Array]]) -> tuple[RankLine, list[Array]]:
    stretches = [len(line.exact) for line, _ in lines]
    exact_used = [
        [cut for cut, u in zip(line.exact_cuts, used.tolist(), strict=False) if u]
        for (line, used), n in zip(lines, stretches, strict=True)
    ]
    exact = sorted({cut for cuts in exact_used for cut in cuts})
    at = {cut: place for place, cut in enumerate(exact)}
    floats = [used[n + 1 :] for (_, used), n in zip(lines, stretches, strict=True)]
    values, after, places = merge_cuts(
        [(line.values[u], line.after[u]) for (line, _), u in zip(lines, floats, strict=True)]
    )
    merged = RankLine(key, values, after, tuple(v for v, _ in exact), tuple(a for _, a in exact))
    whole = []
    for number, (_, used) in enumerate(lines):
        place = np.zeros(len(used), np.int32)
        n = stretches[number]
        place[:n] = _spread(used[:n], np.fromiter((at[cut] for cut in exact_used[number]), np.int32))
        place[n] = len(exact)
        place[n + 1 :] = len(exact) + 1 + _spread(floats[number], places[number])
        whole.append(place)
    return merged, whole
