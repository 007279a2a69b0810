"""Half of the nodes fail at once: who finds its successor again, by its reserve alone, and by all edges that it has."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from meetpoint.schemes.filters import fingers
from meetpoint.schemes.filters.reserves import between, following, reserve_count
from tests.schemes.filters.rings import SIZE, hashed

__all__ = ["Failed", "fail"]

ROUNDS_MAX = 64


class Failed(NamedTuple):
    """Those that live, and how many of them have lost their successor, by the reserve alone and after repair."""

    live: list[int]
    lost: int
    lost_for_good: int
    asked: int
    """Questions for the repair in all."""


def fail(count: int, seed: int, per_level: float = 2, share: float = 0.5) -> Failed:
    """Let a share of the members fail at once."""
    rng = random.Random(seed)
    members = hashed(count, seed)
    reserve = min(reserve_count(count, per_level), count - 1)
    outgoing = {
        member: [*(members[(at + step) % count] for step in range(1, reserve + 1)), *fingers(member, members, SIZE)]
        for at, member in enumerate(members)
    }
    silent = frozenset(rng.sample(members, round(count * share)))
    live = [member for member in members if member not in silent]
    known: dict[int, dict[int, None]] = {member: dict.fromkeys(outgoing[member]) for member in live}
    for member in live:
        for other in outgoing[member]:
            if other in known:
                known[other][member] = None  # an edge is known at both its ends
    right = {member: live[(at + 1) % len(live)] for at, member in enumerate(live)}
    alone = [_first(member, outgoing[member][:reserve], silent) == right[member] for member in live]
    found, asked = mend(known, silent)
    return Failed(live, alone.count(False), sum(found[member] != right[member] for member in live), asked)


def mend(known: Mapping[int, dict[int, None]], silent: frozenset[int]) -> tuple[dict[int, int | None], int]:
    """All look for their successors, again and again until nobody finds a nearer one."""
    found: dict[int, int | None] = {}
    asked = 0
    for _ in range(ROUNDS_MAX):
        before = dict(found)
        for member in known:
            candidate = _first(member, known[member], silent)
            while candidate is not None:
                asked += 1
                known[member][candidate] = known[candidate][member] = None
                closer = between(member, candidate, known[candidate].keys() - silent, 1, SIZE)
                if not closer:
                    break
                candidate = closer[0]
            found[member] = candidate
        if found == before:
            break
    return found, asked


def _first(member: int, known: Iterable[int], silent: frozenset[int]) -> int | None:
    """The next one clockwise that is not silent."""
    return next(iter(following(member, {*known} - silent, 1, SIZE)), None)
