"""Ranges of the circle of keys: where one begins, and how long it is.

Deviation: the paper's messages carry a range by its two ends, [key(u), r), and [key, key) is the whole circle or
nothing. A length says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["RANGES_MAX", "Range", "merged"]

RANGES_MAX: Final = 256
"""Ranges that are named at a time; more are drawn together."""


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

    def common(self, other: Range, size: int) -> list[Range]:
        """The keys that lie in both: on a circle that may be two ranges."""
        found = []
        ahead, behind = (other.begin - self.begin) % size, (self.begin - other.begin) % size
        if ahead < self.length and other.length:
            found.append(Range(other.begin, min(other.length, self.length - ahead)))
        if 0 < behind < other.length and self.length:
            found.append(Range(self.begin, min(self.length, other.length - behind)))
        return found


def merged(ranges: Iterable[Range], size: int) -> list[Range]:
    """The same keys in as few ranges as may be; where they are too many, more keys in one."""
    runs: list[tuple[int, int]] = []
    for each in ranges:
        end = each.begin + each.length
        if each.length:
            runs += [(each.begin, end)] if end <= size else [(each.begin, size), (0, end - size)]
    out: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((first, end))
    if len(out) > 1 and out[0][0] == 0 and out[-1][1] == size:
        out = [*out[1:-1], (out[-1][0], size + out[0][1])]
    if len(out) > RANGES_MAX:
        return [Range(out[0][0], out[-1][1] - out[0][0])]
    return [Range(first, end - first) for first, end in out]
