"""Claims of regions, and who splits, merges and takes over regions: the decisions of the hypercube, as pure functions.

A *claim* says that a node hosts a region, in an *epoch*. Where two overlap the stronger one counts: of the higher
epoch, or else of the higher node. A region that is given away is claimed by its new host in the next epoch, so that
later news of the old host is weaker, and nobody need be asked. One that is taken over from a node that only fell silent
is claimed in a far *lower* one: should that node live, it has lost nothing.

So each id has one host among those who have heard of each other, whatever was lost, late or believed wrongly: a node
that hears of a stronger claim *cedes* what overlaps, and nobody cedes anything to a weaker one. No conflict makes a
hole.

The decisions follow paper C (Reach), section 3.3. A *member* hosts one region and knows its neighbours: their regions,
their hosts, and the number of standbys there. A region's *weight* is the length of its id, then the number of standbys.

| what | who decides | what happens |
| --- | --- | --- |
| join | a member with no lighter neighbour; others pass it to their lightest | it splits: keeps `0…`, gives `1…` away |
| join, ids of full length | the same | the joiner *stands by*: it hosts no ids until a region needs a host |
| leave | a region with no heavier neighbour; others pass it to their heaviest | see below |
| crash | the same, from the last known state of the node | the same; the host of `takeover_point` sees to it |

A region whose host has gone gets, in this order: a standby, here or where the search ends; its sibling, where the two
are the pair that the search ends with; the upper node of that pair, whose own ids the lower one takes. No neighbour of
the pair is longer, so neither half has been split. Each step of a search goes to a greater weight, except the one to a
sibling, from which the next goes to a greater weight again: it ends.

Lengths of neighbours differ by at most one, after joins and after leaves. So a member has at most two neighbours for
each bit of its id, and that is how many a change touches.

Deviations:

- In the paper the sibling always takes over. It is silent where that has been split, and where it has not, its id may
  become two bits shorter than a neighbour's. Here a leave is the mirror of a join. It moves two regions instead of one.
- In the paper a network has at most 2^n nodes and nothing is said of the next. n may be small, as it is the number of
  attributes: refusing would turn away brokers that clients could use. A standby serves clients as others do, and is the
  first to host a region. There is a limit, `STANDBYS_MAX`, and beyond it a join is refused.

Routing is point to point on regions of different lengths (paper C, sections 3.1 and 3.3), one step at one node. A
node's bits that differ from the target's are *wrong*. A step puts one of them right, the lowest first, and goes to the
neighbour that hosts the target with all other bits as they are here. So what is wrong there is wrong here, less that
bit: with ids of one length a path is exactly as long as the Hamming distance, with others never longer than the wrong
bits at its beginning, and it ends.

That neighbour has the longest suffix in common with the target, as the paper asks: all neighbours across the lowest
wrong bit agree with this node on its other bits, and this one with the target on those beyond.

Steps across different bits lead to different nodes. So where more than one bit is wrong, a node that is down can be
avoided, with no step more; where one is, the node that is down hosts the target.

All members of a network should use the same settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from meetpoint.api.limits import SECOND_US
from meetpoint.overlays.hypercube.regions import Region, apart, distance

__all__ = [
    "EPOCH_MAX", "FIRST_EPOCH", "STANDBYS_MAX", "TAKEOVER_EPOCHS", "UNHEARD_EPOCH", "Claim", "HypercubeSettings",
    "Link", "founding_regions", "mirror_regions", "next_hop", "overlap", "pass_join", "pass_leave", "resolved",
    "subtract", "takeover_point", "uncovered",
]  # fmt: skip

FIRST_EPOCH: Final = 1
"""The epoch of the founders of a network."""

TAKEOVER_EPOCHS: Final = 1 << 32
"""The difference to the lower epoch in which a region is taken over from a silent node."""

UNHEARD_EPOCH: Final = -(1 << 60)
"""The epoch of a claim to ids of which no host was ever heard: any other is stronger."""

EPOCH_MAX: Final = 1 << 62
"""The largest absolute value of an epoch."""


class Claim(NamedTuple):
    """A claim that a node hosts a region; `reserved_for` had it before, and may have it back, unless empty."""

    region: Region
    epoch: int
    node: bytes
    reserved_for: bytes = b""

    @property
    def strength(self) -> tuple[int, bytes]:
        """The order of claims: of two that overlap, the stronger one counts."""
        return self.epoch, self.node


def overlap(one: Region, other: Region) -> bool:
    """Return whether two regions have an id in common: then one holds the other."""
    return apart(one, other) == 0


def subtract(region: Region, other: Region) -> list[Region]:
    """Return the parts of a region without another: itself, nothing, or the halves on the way down to the other."""
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
    """Return the parts of a region that none of these covers."""
    left = [region]
    for other in others:
        if overlap(region, other):
            left = [part for each in left for part in subtract(each, other)]
    return left


def resolved(claims: Iterable[Claim], covered: Sequence[Region] = ()) -> list[Claim]:
    """Return what is left of each claim without stronger ones and what is covered anyway; in order."""
    done: list[Claim] = []
    for claim in sorted(claims, key=lambda each: each.strength, reverse=True):
        stronger = [*covered, *(each.region for each in done)]
        done += [claim._replace(region=part) for part in uncovered(claim.region, stronger)]
    return sorted(done)


def mirror_regions(region: Region) -> list[Region]:
    """Return a region with each of its bits flipped in turn; the hosts of their parts are its neighbours."""
    return [Region(region.bits ^ 1 << bit, region.length) for bit in range(region.length)]


Name = TypeVar("Name")

STANDBYS_MAX: Final = 16
"""Largest number of standbys at one member."""


class Link(NamedTuple, Generic[Name]):
    """A region as its neighbours know it."""

    region: Region
    host: Name
    standby_count: int = 0
    """Number of standbys there."""

    @property
    def weight(self) -> tuple[int, int]:
        """The weight that joins and leaves even out."""
        return self.region.length, self.standby_count


def founding_regions(count: int, dimensions: int) -> list[Region]:
    """Return the regions of so many nodes that begin together, as if they had joined one by one; in the order of keys.

    Where there are more nodes than ids, the others stand by.
    """
    count = min(count, 1 << dimensions)
    length = count.bit_length() - 1
    regions = [_at(number, length) for number in range(1 << length)]
    split = count - len(regions)
    return [half for each in regions[:split] for half in (each.half(0), each.half(1))] + regions[split:]


def _at(number: int, length: int) -> Region:
    """Return the region of one of equal parts of the keys: the lowest bit of an id is the highest of a key."""
    return Region(int(f"{number:0{length}b}"[::-1], 2) if length else 0, length)


# -- joining -----------------------------------------------------------------------------------------------------------


def pass_join(mine: Link[Name], links: Iterable[Link[Name]]) -> Link[Name] | None:
    """Return the neighbour to pass a join on to; None: the join is this region's."""
    lightest = min(links, key=lambda link: (link.weight, link.region), default=None)
    return lightest if lightest is not None and lightest.weight < mine.weight else None


# -- leaving -----------------------------------------------------------------------------------------------------------


def pass_leave(mine: Link[Name], links: Iterable[Link[Name]]) -> Link[Name] | None:
    """Return the neighbour to pass the search for a new host on to; None: none is heavier.

    It then ends here if there is a standby. Else the sibling is asked the same, and if it does not pass it on either,
    the two are the pair that is merged.
    """
    heaviest = max(links, key=lambda link: (link.weight, link.region), default=None)
    return heaviest if heaviest is not None and heaviest.weight > mine.weight else None


def takeover_point(region: Region) -> int:
    """Return the id whose host sees to it that a silent node's region gets a new host."""
    return region.sibling.bits


def next_hop(me: Region, links: Sequence[Region], target: int, avoid: Collection[Region] = ()) -> Region | None:
    """Return the neighbour to pass a message on to; None where this node hosts the target, or no step leads nearer.

    `avoid` are neighbours that are taken to be down. Where none of the right ones is left, or tables are out of date,
    any step will do that leaves fewer wrong bits.
    """
    usable = [link for link in links if link not in avoid] if avoid else links
    wrong = (me.bits ^ target) & me.mask
    here = target ^ wrong  # the target, with the bits of this node
    left = wrong
    while left:
        lowest = left & -left
        for link in usable:
            if link.hosts(here ^ lowest):
                return link
        left ^= lowest
    nearer = [(distance(link, target), link) for link in usable]
    best = min(nearer, default=None)
    return best[1] if best is not None and best[0] < wrong.bit_count() else None


@dataclass(frozen=True, slots=True)
class HypercubeSettings:
    """Periods and limits.

    A dead neighbour is found within `silent_us`, a period and `ask_tries` timeouts, and at once where the driver
    reports the peer lost. Its region is then hosted by another at once, and reserved for it for `fallow_us`.
    """

    dimensions: int = 64
    """How many bits of a key choose its node, at most: 2^dimensions nodes can host something, others stand by. A scheme
    that places things by ids of its own says itself how many bits these have."""

    period_us: int = SECOND_US
    """How often a node tells its neighbours that it is there; each time an eighth of it more or less, by chance."""

    silent_us: int = 3 * SECOND_US
    """Time of silence after which a neighbour is asked."""

    ask_timeout_us: int = SECOND_US // 2
    ask_tries: int = 2
    """Number of questions in a row without an answer after which a node is taken for dead."""

    again_us: int = SECOND_US // 10
    """How long to wait before a question that was not answered is repeated."""

    greet_us: int = SECOND_US
    """How long to wait before one that is not known as a neighbour is greeted again."""

    hole_us: int = 2 * SECOND_US
    """Time that an id next to this node may have no known host before it is looked for."""

    claim_us: int = 5 * SECOND_US
    """Time, or up to twice that, before this node claims it."""

    heir_us: int = SECOND_US
    """Time between the neighbours of a dead node that take over in turn what the first has not."""

    fallow_us: int = 30 * SECOND_US
    """Time that a region is reserved for the node that fell silent."""

    tidy_us: int = 2 * SECOND_US
    """How often, an eighth more or less, a host is looked for, where a node has a region too many."""

    offer_us: int = 2 * SECOND_US
    """How long an offer is waited for."""

    join_retry_us: int = SECOND_US
    rejoin_us: int = 15 * SECOND_US
    """How often a standby asks for a region."""

    joiners_max: int = 16
    """Number of joiners that wait at a node until those before them have what they were offered."""

    merge_share: float = 0.3
    """Share of the periods in which a peer of the passive list is asked."""

    agreed_max: int = 8
    """Number of agreeing answers in a row after which peers that were never suspected are left in peace."""

    lookup_timeout_us: int = SECOND_US
    lookup_tries: int = 5
    lookups_max: int = 1024

    hops_max: int = 400
    """Number of hops after which a message is dropped; a path has as many hops as an id has bits."""

    passive_max: int = 64
    passive_told: int = 8
    """Number of peers of its passive list that a node tells to one that it offers a region."""

    known_max: int = 512

    def __post_init__(self) -> None:
        assert self.dimensions >= 1, "dimensions: an id has at least one bit"
        assert self.ask_tries >= 1, "silence is heard only after a question"
        assert self.silent_us > self.period_us, "a neighbour has time to speak"
        assert self.lookup_tries >= 1, "a lookup is tried at least once"
