"""Ranges of the circle of keys: where one begins, and how long it is.

Deviation: the paper's messages carry a range by its two ends, [key(u), r), and [key, key) is the whole circle or
nothing. A length says which.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Range"]


class Range(NamedTuple):
    """So many keys from one on, clockwise, on a circle of `size` keys: 0 is nothing, `size` everything."""

    begin: int
    length: int

    def holds(self, key: int, size: int) -> bool:
        """Whether a key lies in it."""
        return (key - self.begin) % size < self.length

    def meets(self, other: Range, size: int) -> bool:
        """Whether a key lies in both."""
        if not self.length or not other.length:
            return False
        return self.holds(other.begin, size) or other.holds(self.begin, size)

    def encloses(self, other: Range, size: int) -> bool:
        """Whether all keys of another lie in it."""
        if not other.length or self.length == size:
            return True
        return (other.begin - self.begin) % size + other.length <= self.length

    def end(self, size: int) -> int:
        """The first key after it."""
        return (self.begin + self.length) % size
