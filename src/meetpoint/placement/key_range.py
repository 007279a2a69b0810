"""Key ranges: the keys after `low` up to `high`; all keys where the two are the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from meetpoint.node.overlay import Span
from meetpoint.node.runtime.ring import Ring, between_or_end

__all__ = ["KeyRange", "arc_of", "common", "founding_arcs", "meets", "without"]


class KeyRange(NamedTuple):
    """The keys after `low` up to `high`."""

    low: bytes
    high: bytes

    def holds(self, key: bytes) -> bool:
        """Return whether a key is in the range."""
        return between_or_end(self.low, key, self.high)


def meets(arc: KeyRange, first: bytes, last: bytes) -> bool:
    """Return whether a range has any of the keys from `first` clockwise to `last`, both included."""
    if arc.holds(first) or arc.holds(last):
        return True
    # Neither end lies on the arc: it lies within the span, or apart from it.
    return first != last and (first <= arc.high <= last if first < last else arc.high >= first or arc.high <= last)


def founding_arcs(homes: Iterable[bytes]) -> dict[bytes, KeyRange]:
    """Return the ranges of homes that begin a network together: each has the keys after the one before it."""
    ordered = sorted(homes)
    return {home: KeyRange(ordered[at - 1], home) for at, home in enumerate(ordered)}


# -- several at once ---------------------------------------------------------------------------------------------------


def arc_of(ring: Ring, span: Span) -> KeyRange:
    """Return the keys of a span as a range."""
    return KeyRange(bytes(ring.add(span.first, -1)), bytes(span.last))


def common(ring: Ring, arcs: Iterable[KeyRange], others: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the keys that are in some ranges and in others too, as few ranges as may be."""
    arcs = list(arcs)
    return without(ring, arcs, without(ring, arcs, others))


def without(ring: Ring, arcs: Iterable[KeyRange], others: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the keys that are in some ranges and in none of the others, as few ranges as may be."""
    left = _runs(ring, arcs)
    for low, high in _runs(ring, others):
        parts = [part for first, last in left for part in ((first, min(last, low - 1)), (max(first, high + 1), last))]
        left = [(first, last) for first, last in parts if first <= last]
    return _arcs(ring, left)


def _runs(ring: Ring, arcs: Iterable[KeyRange]) -> list[tuple[int, int]]:
    """Return ranges as numbers from first to last, none across the end of the ring; in order, and apart."""
    runs = []
    for arc in arcs:
        first, last = ring.number(ring.add(arc.low, 1)), ring.number(arc.high)
        runs += [(first, last)] if first <= last else [(first, ring.size - 1), (0, last)]
    return _together(runs)


def _together(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def _arcs(ring: Ring, runs: Iterable[tuple[int, int]]) -> tuple[KeyRange, ...]:
    runs = _together(runs)
    if len(runs) > 1 and runs[0][0] == 0 and runs[-1][1] == ring.size - 1:
        runs = [(runs[-1][0], runs[0][1]), *runs[1:-1]]  # one arc, over the end of the circle
    return tuple(KeyRange(bytes(ring.key(first - 1)), bytes(ring.key(last))) for first, last in runs)
