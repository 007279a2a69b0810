"""Regions as parts of the circle, and which ids lie below them: subsets of ids that they have."""

from __future__ import annotations

from collections.abc import Iterator

from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube.regions import Region

__all__ = ["below", "is_below", "meets_below", "pieces", "rank"]


def pieces(ring: Ring, width: int, first: bytes, last: bytes) -> Iterator[Region]:
    """The ids whose keys lie from `first` to `last`, which does not lead round the circle, in few regions."""
    free = ring.bits - width
    at, end = -(-ring.number(first) >> free), (ring.number(last) >> free) + 1
    while at < end:
        size = at & -at or 1 << width
        while at + size > end:
            size >>= 1
        length = width - size.bit_length() + 1
        place = at >> width - length
        yield Region(int(f"{place:0{length}b}"[::-1], 2) if length else 0, length)
        at += size


def below(region: Region) -> list[Region]:
    """The regions with one set bit less: all subsets of a region's ids lie there, in the region, or below them."""
    return [Region(region.bits ^ 1 << at, region.length) for at in range(region.length) if region.bits >> at & 1]


def is_below(point: int, region: Region) -> bool:
    """Whether an id is a subset of one that a region has."""
    return point & region.mask & ~region.bits == 0


def meets_below(lower: Region, region: Region) -> bool:
    """Whether a region has ids that are subsets of another's."""
    return lower.bits & lower.mask & region.mask & ~region.bits == 0


def rank(region: Region, width: int) -> int:
    """The highest id of a region: less in a part of it, and less still with one set bit less."""
    return region.bits | (1 << width) - 1 & ~region.mask
