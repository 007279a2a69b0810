"""Sequence sets: numbers of a stream, all up to a floor, and ranges above it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec

__all__ = ["SequenceRecord", "SequenceSet"]


class SequenceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of a set. `above` is how former versions kept what lies above the floor."""

    floor: int
    above: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()


class SequenceSet:
    """A set of numbers from 1 on that fills up from below."""

    __slots__ = ("_highs", "_lows", "floor")

    def __init__(self, floor: int = 0, above: Iterable[int] = ()) -> None:
        self.floor = floor
        self._lows: list[int] = []  # ranges apart from each other and from the floor, both ends included
        self._highs: list[int] = []
        for number in above:
            self.add(number)

    @staticmethod
    def of(record: SequenceRecord) -> SequenceSet:
        """Return the set of a record."""
        seen = SequenceSet(record.floor, record.above)
        for low, high in record.ranges:
            seen.add_range(low, high)
        return seen

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return True
        at = bisect_right(self._lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        if number == self.floor + 1 and not self._lows:  # in order, as most come
            self.floor = number
            return True
        if number in self:
            return False
        self.add_range(number, number)
        return True

    def add_range(self, low: int, high: int) -> None:
        """Add all numbers from one to another, both included."""
        low = max(low, self.floor + 1)
        if low > high:
            return
        if low == self.floor + 1:
            self.raise_to(high)
            return
        lows, highs = self._lows, self._highs
        first, last = bisect_left(highs, low - 1), bisect_right(lows, high + 1)
        if first < last:  # those that it touches become one with it
            low, high = min(low, lows[first]), max(high, highs[last - 1])
        lows[first:last] = [low]
        highs[first:last] = [high]

    def add_all_but(self, numbers: Iterable[int], below: int, above: int = 0) -> None:
        """Add all numbers below one, and above another one, but for some."""
        low = above + 1
        for number in sorted(numbers):
            if number >= below:
                break
            self.add_range(low, number - 1)
            low = number + 1
        self.add_range(low, below - 1)

    def raise_to(self, floor: int) -> None:
        """Add all numbers up to the floor."""
        if floor <= self.floor:
            return
        self.floor = floor
        if self._lows:
            reached = bisect_right(self._lows, floor + 1)
            if reached:
                self.floor = max(floor, self._highs[reached - 1])
                del self._lows[:reached], self._highs[:reached]

    def holes(self, below: int) -> Iterator[tuple[int, int]]:
        """Yield the numbers below one that are not in the set, as ranges."""
        low = self.floor + 1
        for first, last in zip(self._lows, self._highs, strict=True):
            if first >= below:
                break
            yield low, first - 1
            low = last + 1
        if low < below:
            yield low, below - 1

    def above(self) -> Iterator[int]:
        """Yield the numbers above the floor, in order."""
        for low, high in zip(self._lows, self._highs, strict=True):
            yield from range(low, high + 1)

    @property
    def is_whole(self) -> bool:
        """Whether nothing lies above the floor."""
        return not self._lows

    def record(self) -> SequenceRecord:
        """Return the record of the set."""
        return SequenceRecord(self.floor, (), tuple(zip(self._lows, self._highs, strict=True)))
