"""Half of the members fail at once: is the ring whole by reserves alone, and after repair? A model, by the real rules.

By reserves alone every survivor needs one that lives among the next ones clockwise: how many these are says
`schemes.rebeca.reserves`. That is cheap to look at, so there are many trials. Where the ring is cut, all look for
their successors by any edge that they know, in or out (`mend`); of such trials some are looked at. Nobody else fails
meanwhile, and both ends of an edge know it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from statistics import mean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.rebeca.trees import SIZE, hashed
from meetpoint.schemes.rebeca.graph import between, fingers, following, reserve_count

__all__ = ["Failed", "Ring", "fail", "lost_alone", "mend", "run_survival"]

ROUNDS_MAX = 64


class Failed(NamedTuple):
    """Those that live, and how many of them have lost their successor, by the reserve alone and after repair."""

    live: list[int]
    lost: int
    lost_for_good: int
    asked: int
    """Questions for the repair in all."""


class Ring:
    """Members with their reserves and edges, before anybody fails."""

    def __init__(self, count: int, seed: int, per_level: float) -> None:
        self.members = members = hashed(count, seed)
        self.reserve = reserve = min(reserve_count(count, per_level), count - 1)
        self.outgoing = {
            member: [*(members[(at + step) % count] for step in range(1, reserve + 1)), *fingers(member, members, SIZE)]
            for at, member in enumerate(members)
        }

    def without(self, silent: frozenset[int]) -> Failed:
        """These fail."""
        live = [member for member in self.members if member not in silent]
        known: dict[int, dict[int, None]] = {member: dict.fromkeys(self.outgoing[member]) for member in live}
        for member in live:
            for other in self.outgoing[member]:
                if other in known:
                    known[other][member] = None  # an edge is known at both its ends
        right = {member: live[(at + 1) % len(live)] for at, member in enumerate(live)}
        reserves = {member: self.outgoing[member][: self.reserve] for member in live}
        lost = sum(_first(member, reserves[member], silent) != right[member] for member in live)
        found, asked = mend(known, silent)
        return Failed(live, lost, sum(found[member] != right[member] for member in live), asked)


def fail(count: int, seed: int, per_level: float = 2, share: float = 0.5) -> Failed:
    """Let a share of the members fail at once."""
    ring = Ring(count, seed, per_level)
    return ring.without(frozenset(random.Random(seed).sample(ring.members, round(count * share))))


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


def lost_alone(is_up: npt.NDArray[np.bool_], reserve: int) -> int:
    """How many that are up have nobody that is up among so many that follow, in the order of the ring."""
    up = np.flatnonzero(is_up)
    gaps = np.diff(up, append=up[0] + len(is_up))
    return int(np.count_nonzero(gaps > reserve))


def run_survival(parameters: Parameters, seed: int) -> Metrics:
    """How often the ring is whole, alone and after repair, in many trials."""
    nodes, per_level = int(parameters["nodes"]), float(parameters["per_level"])
    ring = Ring(nodes, seed, per_level)
    rng = np.random.default_rng([seed, nodes])
    cut: list[npt.NDArray[np.bool_]] = []
    lost = []
    trials = int(parameters["trials"])
    for _ in range(trials):
        is_up = rng.permutation(nodes) >= nodes // 2
        lost.append(lost_alone(is_up, ring.reserve))
        if lost[-1]:
            cut.append(is_up)
    looked_at = [
        ring.without(frozenset(member for member, up in zip(ring.members, is_up, strict=True) if not up))
        for is_up in cut[: int(parameters["repairs"])]
    ]
    whole = 1 - len(cut) / trials
    mended = mean([not each.lost_for_good for each in looked_at]) if looked_at else 1.0
    metrics = {
        "whole_alone": whole,
        "whole_repaired": whole + (1 - whole) * mended,
        "lost_alone": mean(lost),
        "cut": len(cut),
        "repairs_looked_at": len(looked_at),
    }
    if looked_at:
        metrics["questions_per_survivor"] = mean(each.asked / len(each.live) for each in looked_at)
    return metrics
