"""Ids on the circle: which key an id lies at, and which ids an arc has.

An id lies at one key, the first of those that stand for it in the hypercube. An arc then has the ids whose keys lie on
it, whatever cuts the circle: on a hypercube one region, on a ring some regions, of which the largest around an id
counts (`around`).
"""

from __future__ import annotations

from collections.abc import Mapping

from meetpoint.api.ids import Key
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube.keys import key_of, point_of
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.ownership.key_range import KeyRange
from meetpoint.schemes.reach.ids import Ids

__all__ = ["Cube"]


class Cube:
    """All ids of a network."""

    def __init__(self, ring: Ring, ids: Ids) -> None:
        self._ring = ring
        self._ids = ids
        self.width = min(ids.width, ring.bits)
        """How many bits an id has; those that a key has no room for are left out."""
        self._all = (1 << self.width) - 1

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """The id of an event, from its clean attributes."""
        return self._ids.of_event(attributes) & self._all

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """The id of a conjunction."""
        return self._ids.of_conjunction(conjunction) & self._all

    def key(self, point: int) -> Key:
        """Where an id lies on the circle."""
        return key_of(self._ring, point, self.width)

    def point(self, key: bytes) -> int:
        """The id that a key stands for."""
        return point_of(self._ring, key, self.width)

    def ends(self, region: Region) -> tuple[Key, Key]:
        """The first and the last key that an id of a region lies at."""
        above = self._all & ~region.mask
        return self.key(region.bits), self.key(region.bits | above)

    def around(self, arc: KeyRange, point: int) -> Region:
        """The largest region around an id, which lies on an arc, that lies on the arc with all its ids."""
        region = Region(point, self.width)
        while region.length and self.is_on(arc, region.parent):
            region = region.parent
        return region

    def is_on(self, arc: KeyRange, region: Region) -> bool:
        """Whether all ids of a region lie on an arc."""
        first, count = self._ids_on(arc)
        every, size = 1 << self.width, 1 << self.width - region.length
        return count == every or (self._index(self.key(region.bits)) - first) % every + size <= count

    def shortest(self, arc: KeyRange) -> int:
        """No region on an arc has fewer bits than this."""
        _, count = self._ids_on(arc)
        return self.width - max(count.bit_length() - 1, 0)

    def _ids_on(self, arc: KeyRange) -> tuple[int, int]:
        """The first id on an arc, as ids follow each other on the circle, and how many there are."""
        before, last = self._index(arc.low), self._index(arc.high)
        every = 1 << self.width
        if before == last:
            return last + 1, every if arc.low >= arc.high else 0
        return before + 1, (last - before) % every

    def _index(self, key: bytes) -> int:
        """How many ids lie before a key or at it, less one."""
        return self._ring.number(key) >> self._ring.bits - self.width
