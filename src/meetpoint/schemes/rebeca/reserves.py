"""Neighbours in reserve, and whom to turn to when they are gone (paper E, section 5.1). Pure decisions.

A node keeps the next members clockwise in reserve, and only the first is an edge: when it is silent, the next one takes
its place. While one of them lives, the first that does is the right one. Where all are silent, or in any doubt, the
nearest that the node knows by any edge is a *candidate*, of those that lead away from it and of those that lead to it.
A candidate knows others, by its own edges of both kinds; those that lie between are nearer, and the nearest of them is
the next candidate. Each step is nearer, so that it ends.

Deviation: the paper keeps log2 N in reserve, with which half of the nodes seldom fail at once without a gap somewhere;
we keep twice as many. And it looks nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final

__all__ = ["RESERVES_PER_LEVEL", "between", "following", "levels_of", "reserve_count"]

RESERVES_PER_LEVEL: Final = 2.0
"""Neighbours in reserve for each doubling of the number of members."""


def levels_of(members: int) -> int:
    """How often so many members are doubled: how deep their trees are, about."""
    return max(members - 1, 0).bit_length()


def reserve_count(members: int, per_level: float = RESERVES_PER_LEVEL) -> int:
    """How many neighbours are kept in reserve."""
    return max(1, ceil(per_level * levels_of(members)))


def following(place: int, known: Iterable[int], count: int, size: int) -> list[int]:
    """The next ones clockwise of those that are known, so many at most, and never oneself."""
    return sorted({*known} - {place}, key=lambda node: (node - place) % size)[:count]


def between(place: int, candidate: int, known: Iterable[int], count: int, size: int) -> list[int]:
    """Of those that a candidate knows, the next ones clockwise that lie before the candidate itself."""
    span = (candidate - place) % size
    return following(place, (node for node in known if (node - place) % size < span), count, size)
