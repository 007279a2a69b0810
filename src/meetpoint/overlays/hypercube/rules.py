"""How regions are split and merged when nodes come and go, as pure steps from state to state.

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

Only the host of a region splits it, and two regions become one only with both in hand. So whatever a member believes of
its neighbours, each id has one host: what is out of date can only make lengths uneven.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from meetpoint.overlays.hypercube.regions import WHOLE, Region, are_neighbours

__all__ = [
    "STANDBYS_MAX",
    "Admitted",
    "Change",
    "Link",
    "Member",
    "admit",
    "dismiss",
    "found",
    "hand_over",
    "heir_point",
    "merge",
    "pass_join",
    "pass_leave",
    "release",
    "told",
]

STANDBYS_MAX: Final = 16
"""How many stand by at one member."""


class Link(NamedTuple):
    """A region as its neighbours know it."""

    region: Region
    host: str
    spare: int = 0
    """How many stand by there."""

    @property
    def weight(self) -> tuple[int, int]:
        """What joins and leaves even out."""
        return self.region.length, self.spare


class Member(NamedTuple):
    """What the host of a region knows: its region, who stands by, and its neighbours in order."""

    region: Region
    host: str
    standbys: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def shown(self) -> Link:
        """How neighbours are to know it."""
        return Link(self.region, self.host, len(self.standbys))


class Change(NamedTuple):
    """What the neighbours of those concerned are told, all at once: which links are no more, and which are new."""

    gone: tuple[Region, ...]
    come: tuple[Link, ...]


class Admitted(NamedTuple):
    """A join that was accepted: the member that did it, the one that is new unless it stands by, what is told."""

    member: Member
    joined: Member | None
    change: Change


def found(host: str) -> Member:
    """The first node hosts everything."""
    return Member(WHOLE, host)


def told(member: Member, change: Change) -> Member:
    """A neighbour has changed."""
    kept = [link for link in member.links if link.region not in change.gone]
    return member._replace(links=_linked(member.region, (*kept, *change.come)))


# -- joining -----------------------------------------------------------------------------------------------------------


def pass_join(member: Member) -> Region | None:
    """To whom a join is passed on; None: it is this member's."""
    lightest = min(member.links, key=lambda link: (link.weight, link.region), default=None)
    return lightest.region if lightest is not None and lightest.weight < member.shown.weight else None


def admit(member: Member, joiner: str, dimensions: int) -> Admitted | None:
    """A joiner gets half of the ids, or stands by where there is only one; None: as many as may stand by already."""
    if member.region.length < dimensions:
        return _split(member, joiner)
    if len(member.standbys) >= STANDBYS_MAX:
        return None
    after = member._replace(standbys=(*member.standbys, joiner))
    return Admitted(after, None, _replaced(after))


def _split(member: Member, joiner: str) -> Admitted:
    lower, upper = member.region.half(0), member.region.half(1)
    kept = Member(lower, member.host, member.standbys)
    given = Member(upper, joiner)
    links = member.links
    return Admitted(
        kept._replace(links=_linked(lower, (*links, given.shown))),
        given._replace(links=_linked(upper, (*links, kept.shown))),
        Change((member.region,), (kept.shown, given.shown)),
    )


# -- leaving -----------------------------------------------------------------------------------------------------------


def pass_leave(member: Member) -> Region | None:
    """To whom the search for a new host is passed on; None: no neighbour is heavier.

    It then ends here if someone stands by. Else the sibling is asked the same, and if it does not pass it on either,
    the two are the pair that is merged.
    """
    heaviest = max(member.links, key=lambda link: (link.weight, link.region), default=None)
    return heaviest.region if heaviest is not None and heaviest.weight > member.shown.weight else None


def heir_point(region: Region) -> int:
    """The id whose host sees to it that a region gets a new host when its own is silent."""
    return region.sibling.bits


def merge(kept: Member, given: Member) -> tuple[Member, Change]:
    """Two halves become one region, at the host of the first; that of the second is free."""
    assert kept.region.sibling == given.region, "only halves of one region are merged"
    parent = kept.region.parent
    after = Member(parent, kept.host, kept.standbys + given.standbys)
    after = after._replace(links=_linked(parent, (*kept.links, *given.links)))
    return after, Change((kept.region, given.region), (after.shown,))


def hand_over(member: Member, host: str) -> tuple[Member, Change]:
    """A region gets another host: one that stood by, or one that is free."""
    standbys = tuple(each for each in member.standbys if each != host)
    after = member._replace(host=host, standbys=standbys)
    return after, _replaced(after)


def release(member: Member) -> tuple[Member, str, Change]:
    """The first who stands by is needed elsewhere."""
    after = member._replace(standbys=member.standbys[1:])
    return after, member.standbys[0], _replaced(after)


def dismiss(member: Member, name: str) -> tuple[Member, Change]:
    """One who stood by has gone."""
    after = member._replace(standbys=tuple(each for each in member.standbys if each != name))
    return after, _replaced(after)


def _replaced(member: Member) -> Change:
    return Change((member.region,), (member.shown,))


def _linked(region: Region, links: Iterable[Link]) -> tuple[Link, ...]:
    """Those that are neighbours of a region, in order and none twice: what was said last counts."""
    near = {link.region: link for link in links if are_neighbours(region, link.region)}
    return tuple(near[each] for each in sorted(near))
