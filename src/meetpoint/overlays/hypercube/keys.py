"""Keys of the circle as ids of the hypercube, and back.

An id's lowest bit decides first who hosts it, a key's highest bit where it lies on the circle. So the highest bits of a
key, read from the highest on, are an id from its lowest bit on. What a region hosts is then one span of keys, and the
two halves of a region are the two halves of its span.
"""

from __future__ import annotations

from meetpoint.api.ids import Key
from meetpoint.node.overlay import Span
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube.regions import Region

__all__ = ["key_of", "point_of", "span_of"]


def point_of(ring: Ring, key: bytes, dimensions: int) -> int:
    """The id that a key stands for."""
    return _reversed(int.from_bytes(key, "big") >> ring.bits - dimensions, dimensions)


def key_of(ring: Ring, point: int, dimensions: int) -> Key:
    """The first of the keys that stand for an id."""
    return ring.key(_reversed(point, dimensions) << ring.bits - dimensions)


def span_of(ring: Ring, region: Region) -> Span:
    """All keys that stand for ids of a region."""
    free = ring.bits - region.length
    first = _reversed(region.bits, region.length) << free
    return Span(ring.key(first), ring.key(first + (1 << free) - 1))


def _reversed(bits: int, length: int) -> int:
    return int(f"{bits:0{length}b}"[::-1], 2) if length else 0
