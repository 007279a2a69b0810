"""Arcs of the circle: the keys after `low` up to `high`; all keys where the two are the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from meetpoint.protocol.ring import between_or_end

__all__ = ["Arc", "founding_arcs", "meets"]


class Arc(NamedTuple):
    """The keys after `low` up to `high`."""

    low: bytes
    high: bytes

    def holds(self, key: bytes) -> bool:
        """Whether a key lies on the arc."""
        return between_or_end(self.low, key, self.high)


def meets(arc: Arc, first: bytes, last: bytes) -> bool:
    """Whether an arc has any of the keys from `first` clockwise to `last`, both included."""
    if arc.holds(first) or arc.holds(last):
        return True
    # Neither end lies on the arc: it lies within the span, or apart from it.
    return first != last and (first <= arc.high <= last if first < last else arc.high >= first or arc.high <= last)


def founding_arcs(homes: Iterable[bytes]) -> dict[bytes, Arc]:
    """The arcs of homes that begin a network together: each has the keys after the one before it."""
    ordered = sorted(homes)
    return {home: Arc(ordered[at - 1], home) for at, home in enumerate(ordered)}
