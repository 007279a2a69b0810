"""How the origin brings an event to the homes of the SubIDs that match it (paper B, section 5.1)."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

from meetpoint.api.ids import HomeId
from meetpoint.schemes.lists.subids import SubId

__all__ = ["homes_of", "is_walk_cheaper"]


def homes_of(sub_ids: Iterable[SubId]) -> dict[HomeId, list[int]]:
    """Each home once, however many of its conjunctions match, with their numbers; in the order of homes."""
    homes: dict[HomeId, list[int]] = {}
    for sub_id in sub_ids:
        homes.setdefault(sub_id.home, []).append(sub_id.number)
    return {home: sorted(homes[home]) for home in sorted(homes)}


def is_walk_cheaper(homes: int, nodes: int) -> bool:
    """Whether one walk round a ring of so many nodes takes no more hops than a way to each of so many homes.

    Unicasts where k * ½ log2 N < N, else the walk. Deviation: the paper's k counts SubIDs; homes are what is contacted.
    """
    return homes * log2(nodes) / 2 >= nodes
