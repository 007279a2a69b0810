"""Who splits, merges and takes over regions when nodes come and go: the decisions, as pure functions.

After paper C (Reach), section 3.3. A *member* hosts one region and knows its neighbours: their regions, who hosts them,
and how many stand by there. A region's *weight* is the length of its id, then how many stand by.

| what | who decides | what happens |
| --- | --- | --- |
| join | a member with no lighter neighbour; others pass it to their lightest | it splits: keeps `0…`, gives `1…` away |
| join, ids of full length | the same | the joiner *stands by*: it hosts no ids until a region needs a host |
| leave | a region with no heavier neighbour; others pass it to their heaviest | see below |
| crash | the same, from the last known state of the node | the same; the host of `heir_point` sees to it |

A region whose host has gone gets, in this order: one who stands by, here or where the walk ends; its sibling, where
the two are the pair that the walk ends with; the upper node of that pair, whose own ids the lower one takes. No
neighbour of the pair is longer, so neither half has been split. Each step of a walk goes to a greater weight, except
the one to a sibling, from which the next goes to a greater weight again: it ends.

Lengths of neighbours differ by at most one, after joins and after leaves. So a member has at most two neighbours for
each bit of its id, and that is how many a change touches.

Deviations:

- In the paper the sibling always takes over. It is silent where that has been split, and where it has not, its id may
  become two bits shorter than a neighbour's. Here a leave is the mirror of a join. It moves two regions instead of one.
- In the paper a network has at most 2^n nodes and nothing is said of the next. n may be small, as it is the number of
  attributes: refusing would turn away brokers that clients could use. One that stands by serves clients as others do,
  and is the first to host a region. There is a limit, `STANDBYS_MAX`, and beyond it a join is refused.

What makes these steps safe while messages are lost and nodes decide on what is out of date is in `claims`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from meetpoint.overlays.hypercube.regions import Region

__all__ = ["STANDBYS_MAX", "Link", "founding_regions", "heir_point", "pass_join", "pass_leave"]

Name = TypeVar("Name")

STANDBYS_MAX: Final = 16
"""How many stand by at one member."""


class Link(NamedTuple, Generic[Name]):
    """A region as its neighbours know it."""

    region: Region
    host: Name
    spare: int = 0
    """How many stand by there."""

    @property
    def weight(self) -> tuple[int, int]:
        """What joins and leaves even out."""
        return self.region.length, self.spare


def founding_regions(count: int, dimensions: int) -> list[Region]:
    """The regions of so many nodes that begin together, as if they had joined one by one; in the order of keys.

    Where there are more nodes than ids, the others stand by.
    """
    count = min(count, 1 << dimensions)
    length = count.bit_length() - 1
    regions = [_at(number, length) for number in range(1 << length)]
    split = count - len(regions)
    return [half for each in regions[:split] for half in (each.half(0), each.half(1))] + regions[split:]


def _at(number: int, length: int) -> Region:
    """The region whose keys are the so many-th of equal parts: the lowest bit of an id is the highest of a key."""
    return Region(int(f"{number:0{length}b}"[::-1], 2) if length else 0, length)


# -- joining -----------------------------------------------------------------------------------------------------------


def pass_join(mine: Link[Name], links: Iterable[Link[Name]]) -> Link[Name] | None:
    """To which of its neighbours a join is passed on; None: it is this region's."""
    lightest = min(links, key=lambda link: (link.weight, link.region), default=None)
    return lightest if lightest is not None and lightest.weight < mine.weight else None


# -- leaving -----------------------------------------------------------------------------------------------------------


def pass_leave(mine: Link[Name], links: Iterable[Link[Name]]) -> Link[Name] | None:
    """To which of its neighbours the search for a new host is passed on; None: none is heavier.

    It then ends here if someone stands by. Else the sibling is asked the same, and if it does not pass it on either,
    the two are the pair that is merged.
    """
    heaviest = max(links, key=lambda link: (link.weight, link.region), default=None)
    return heaviest if heaviest is not None and heaviest.weight > mine.weight else None


def heir_point(region: Region) -> int:
    """The id whose host sees to it that a region gets a new host when its own is silent."""
    return region.sibling.bits
