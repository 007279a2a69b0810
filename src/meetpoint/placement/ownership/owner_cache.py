"""Which home holds which arc, as far as this node has heard: a guess that saves the way through the overlay.

Nothing depends on it: whoever is reached by a wrong guess says so, and what it holds instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.node.cluster.directory import Directory
from meetpoint.placement.ownership.key_range import KeyRange

__all__ = ["OwnerCache"]


NEAR: Final = 3
"""How many arcs that end after a key are looked at."""


class OwnerCache:
    """What one node has heard."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._arcs: dict[HomeId, tuple[KeyRange, ...]] = {}
        self._sorted: tuple[list[bytes], list[tuple[KeyRange, HomeId]]] | None = None  # by their high ends
        self.heard = 0
        """How often something new was heard."""

    def learn(self, home: HomeId, arcs: Sequence[KeyRange]) -> None:
        """A home holds these arcs now, and nothing else."""
        if self._arcs.get(home) != tuple(arcs):
            self._arcs[home] = tuple(arcs)
            self._sorted = None
            self.heard += 1

    def arcs(self) -> Iterator[KeyRange]:
        """All arcs that were heard of; some may be gone."""
        for arcs in self._arcs.values():
            yield from arcs

    def held(self) -> Iterator[tuple[HomeId, KeyRange]]:
        """The same, each with its home, of those that are not gone."""
        for home, arcs in self._arcs.items():
            if self._directory.host(home) is not None:
                yield from ((home, arc) for arc in arcs)

    def learn_one(self, home: HomeId, arc: KeyRange) -> None:
        """A home holds this arc; what was heard of others of its arcs stays."""
        known = self._arcs.get(home, ())
        if arc not in known:
            apart = [each for each in known if not each.holds(arc.high) and not arc.holds(each.high)]
            self.learn(home, (*apart, arc))

    def holder(self, key: bytes) -> HomeId | None:
        """The home that is said to hold a key."""
        if self._sorted is None:
            arcs = sorted((arc.high, arc, home) for home, held in self._arcs.items() for arc in held)
            self._sorted = [high for high, _, _ in arcs], [(arc, home) for _, arc, home in arcs]
        highs, known = self._sorted
        at = bisect_left(highs, key)
        for step in range(min(NEAR, len(known))):  # what was heard at different times may overlap
            arc, home = known[(at + step) % len(known)]
            if arc.holds(key) and self._directory.host(home) is not None:
                return home
        return None

    def guess(self, key: bytes, tried: Container[HomeId] = ()) -> HomeId | None:
        """The home to ask for a key: one that is said to hold it, else the first after it of which nothing is known.

        Where all are said not to, the key is on its way to another home, or what was heard is old: the first of those
        that were not tried just now.
        """
        holder = self.holder(key)
        if holder is not None:
            return holder
        homes = self._directory.homes()
        first = bisect_left(homes, key)
        second_best: HomeId | None = None
        for step in range(len(homes)):
            home = homes[(first + step) % len(homes)]
            if home not in tried:
                if home not in self._arcs:
                    return home
                second_best = home if second_best is None else second_best
        return second_best
