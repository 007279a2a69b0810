"""Neighbours in reserve, and whom to turn to when they are gone (paper E, section 5.1). Pure decisions.

A node keeps the next members clockwise in reserve, and only the first is an edge: when it is silent, the next one takes
its place. While one of them lives, the first that does is the right one. Where all are silent, or in any doubt, the
nearest that the node knows by any edge is a *candidate*, of those that lead away from it and of those that lead to it.
A candidate knows others, by its own edges of both kinds; one that lies between is nearer, and is the next candidate.
Each step is nearer, so that it ends.

Deviation: the paper keeps log2 N in reserve, with which half of the nodes seldom fail at once without a gap somewhere;
we keep twice as many. And it looks nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

__all__ = ["RESERVE_PER_LEVEL", "nearer", "nearest", "reserve_count"]

RESERVE_PER_LEVEL: Final = 2
"""Neighbours in reserve for each doubling of the number of members."""


def reserve_count(members: int, per_level: int = RESERVE_PER_LEVEL) -> int:
    """How many neighbours are kept in reserve."""
    return max(1, per_level * (members - 1).bit_length())


def nearest(place: int, known: Iterable[int], silent: Collection[int], size: int) -> int | None:
    """The next one clockwise that is not silent, of those that are known."""
    live = (node for node in known if node != place and node not in silent)
    return min(live, key=lambda node: (node - place) % size, default=None)


def nearer(place: int, candidate: int, known: Iterable[int], silent: Collection[int], size: int) -> int | None:
    """Of those that a candidate knows, the next one clockwise; None where none lies before the candidate itself."""
    found = nearest(place, known, silent, size)
    is_nearer = found is not None and (found - place) % size < (candidate - place) % size
    return found if is_nearer else None
