"""Which numbers of a stream have been seen: all up to a floor, and some above it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Seen", "SeenRecord"]


class SeenRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The same, to be kept or sent."""

    floor: int
    above: tuple[int, ...] = ()


class Seen:
    """A set of numbers from 1 on that fills up from below."""

    __slots__ = ("above", "floor")

    def __init__(self, floor: int = 0, above: Iterable[int] = ()) -> None:
        self.floor = floor
        self.above = set(above)
        self._settle()

    def __contains__(self, number: int) -> bool:
        return number <= self.floor or number in self.above

    def add(self, number: int) -> bool:
        """Whether the number is new; it no longer is afterwards."""
        if number == self.floor + 1 and not self.above:  # in order, as most come
            self.floor = number
            return True
        if number in self:
            return False
        self.above.add(number)
        self._settle()
        return True

    def raise_to(self, floor: int) -> None:
        """All numbers up to the floor count as seen."""
        if floor > self.floor:
            self.floor = floor
            self.above = {number for number in self.above if number > floor}
            self._settle()

    def record(self) -> SeenRecord:
        """What is to be kept of it."""
        return SeenRecord(self.floor, tuple(sorted(self.above)))

    def _settle(self) -> None:
        while self.floor + 1 in self.above:
            self.floor += 1
            self.above.discard(self.floor)
