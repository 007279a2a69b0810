"""Regions of a hypercube: the ids that end in the same bits. A node hosts one region, and its id is those bits.

After paper C (Reach), sections 2 and 3.3. Ids have n bits, one for each *dimension*; bit i stands for 2^i, so that text
shows the highest bit first, as the paper does. Node 01 hosts `**01` of four bits. Nodes have ids of different lengths
when their number is no power of two; their regions part all ids, as the leaves of a tree do that asks for the lowest
bit first. The region of the empty suffix is everything: the node that is alone has it.

Two disjoint regions are *neighbours* if, on the bits that both have, they differ in exactly one. With ids of one length
that is Hamming distance 1.

An id's lowest bit decides first who hosts it, a key's highest bit where it lies on the circle. So the highest bits of a
key, read from the highest on, are an id from its lowest bit on. A region hosts one span of keys, and the two halves of
a region are the two halves of its span.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from meetpoint.api.ids import Key
from meetpoint.node.overlay import Span
from meetpoint.node.runtime.ring import Ring

__all__ = [
    "DIMENSIONS_MAX", "WHOLE", "Region", "apart", "are_neighbours", "distance", "key_of", "packed", "point_of",
    "span_of", "unpacked",
]  # fmt: skip

DIMENSIONS_MAX: Final = 4096
"""Bits of an id: as many as a schema has attributes. No path has more hops, and no node more than twice the links."""


class Region(NamedTuple):
    """The ids whose lowest `length` bits are `bits`."""

    bits: int
    length: int

    @staticmethod
    def read(text: str) -> Region:
        """Read a region from text as the paper writes it: `011`."""
        return Region(int(text, 2) if text else 0, len(text))

    @property
    def mask(self) -> int:
        """The bits that are fixed."""
        return (1 << self.length) - 1

    def hosts(self, point: int) -> bool:
        """Return whether an id lies here."""
        return (point ^ self.bits) & self.mask == 0

    def holds(self, other: Region) -> bool:
        """Return whether all of another region lies here."""
        return other.length >= self.length and self.hosts(other.bits)

    def half(self, bit: int) -> Region:
        """Return the half of this region with one more leading bit."""
        return Region(self.bits | bit << self.length, self.length + 1)

    @property
    def parent(self) -> Region:
        """The region that this one is a half of."""
        assert self.length > 0, "everything is half of nothing"
        return Region(self.bits & self.mask >> 1, self.length - 1)

    @property
    def sibling(self) -> Region:
        """The other half of its parent. It may have been split further."""
        assert self.length > 0, "everything has no other half"
        return Region(self.bits ^ 1 << self.length - 1, self.length)

    def __str__(self) -> str:
        return f"{self.bits:0{self.length}b}" if self.length else "*"


WHOLE: Final = Region(0, 0)
"""The region of all ids."""


def apart(one: Region, other: Region) -> int:
    """Return the bits in which two regions differ, of those that both have; none where one holds the other."""
    return (one.bits ^ other.bits) & one.mask & other.mask


def are_neighbours(one: Region, other: Region) -> bool:
    """Return whether they differ in exactly one bit of those that both have."""
    return apart(one, other).bit_count() == 1


def distance(region: Region, point: int) -> int:
    """Return in how many of a region's bits an id differs from it."""
    return ((region.bits ^ point) & region.mask).bit_count()


# -- on the wire -------------------------------------------------------------------------------------------------------


def packed(region: Region) -> bytes:
    """Return a region as bytes: its length, then its bits."""
    return region.length.to_bytes(2, "big") + region.bits.to_bytes((region.length + 7) // 8, "big")


def unpacked(data: bytes, dimensions: int) -> Region | None:
    """Return the region that bytes stand for; None where they stand for none of so many dimensions."""
    length, bits = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:], "big")
    if length > dimensions or len(data) != 2 + (length + 7) // 8 or bits.bit_length() > length:
        return None
    return Region(bits, length)


def point_of(ring: Ring, key: bytes, dimensions: int) -> int:
    """Return the id that a key stands for."""
    return _reversed(int.from_bytes(key, "big") >> ring.bits - dimensions, dimensions)


def key_of(ring: Ring, point: int, dimensions: int) -> Key:
    """Return the first of the keys that stand for an id."""
    return ring.key(_reversed(point, dimensions) << ring.bits - dimensions)


def span_of(ring: Ring, region: Region) -> Span:
    """Return all keys that stand for ids of a region."""
    free = ring.bits - region.length
    first = _reversed(region.bits, region.length) << free
    return Span(ring.key(first), ring.key(first + (1 << free) - 1))


def _reversed(bits: int, length: int) -> int:
    return int(f"{bits:0{length}b}"[::-1], 2) if length else 0
