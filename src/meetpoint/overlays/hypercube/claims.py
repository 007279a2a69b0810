"""Who hosts what, as claims that may contradict each other, and how that is settled: pure, point by point.

A *claim* says that a node hosts a region, in an *epoch*. Where two overlap the stronger one counts: of the higher
epoch, or else of the higher node. A region that is given away is claimed by its new host in the next epoch, so that
whatever is said of the old one later is weaker, and nobody need be asked. One that is taken over from a node that only
fell silent is claimed in a far *lower* one: should that node live, it has lost nothing.

So each id has one host among those who have heard of each other, whatever was lost, late or believed wrongly: who hears
of a stronger claim *cedes* what overlaps, and nobody cedes anything to a weaker one. No conflict makes a hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from meetpoint.overlays.hypercube.regions import Region, apart

__all__ = ["EPOCH_MAX", "FIRST", "TAKEN", "UNHEARD", "Claim", "minus", "mirrors", "overlap", "settled", "uncovered"]

FIRST: Final = 1
"""The epoch of those who found a network."""

TAKEN: Final = 1 << 32
"""So much lower is the epoch in which a region is taken over from a silent node."""

UNHEARD: Final = -(1 << 60)
"""The epoch of a claim to ids of which no host was ever heard: any other is stronger."""

EPOCH_MAX: Final = 1 << 62
"""An epoch beyond this, or below the same with a minus, is none."""


class Claim(NamedTuple):
    """A node hosts a region. `kept`: the node that had it before, and may have it back; empty: nobody."""

    region: Region
    epoch: int
    node: bytes
    kept: bytes = b""

    @property
    def strength(self) -> tuple[int, bytes]:
        """The stronger of two that overlap counts."""
        return self.epoch, self.node


def overlap(one: Region, other: Region) -> bool:
    """Whether they have an id in common: then one holds the other."""
    return apart(one, other) == 0


def minus(region: Region, other: Region) -> list[Region]:
    """What is left of a region without another: itself, nothing, or all halves on the way down to the other."""
    if not overlap(region, other):
        return [region]
    if region.length >= other.length:
        return []
    left = []
    while region.length < other.length:
        bit = other.bits >> region.length & 1
        left.append(region.half(1 - bit))
        region = region.half(bit)
    return left


def uncovered(region: Region, others: Iterable[Region]) -> list[Region]:
    """What is left of a region without all these."""
    left = [region]
    for other in others:
        if overlap(region, other):
            left = [part for each in left for part in minus(each, other)]
    return left


def settled(claims: Iterable[Claim], covered: Sequence[Region] = ()) -> list[Claim]:
    """What is left of each claim where stronger ones, and what is covered anyway, are taken away; in order."""
    done: list[Claim] = []
    for claim in sorted(claims, key=lambda each: each.strength, reverse=True):
        stronger = [*covered, *(each.region for each in done)]
        done += [claim._replace(region=part) for part in uncovered(claim.region, stronger)]
    return sorted(done)


def mirrors(region: Region) -> list[Region]:
    """A region with each of its bits turned in turn: whoever hosts a part of one of them is a neighbour."""
    return [Region(region.bits ^ 1 << bit, region.length) for bit in range(region.length)]
