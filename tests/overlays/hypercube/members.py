"""The rules of joins and leaves as whole steps from state to state: a model in which nothing is lost or late.

A *member* hosts one region and knows its neighbours. Only the host of a region splits it, and two regions become one
only with both in hand. So whatever a member believes of its neighbours, each id has one host: what is out of date can
only make lengths uneven.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from meetpoint.overlays.hypercube import rules
from meetpoint.overlays.hypercube.regions import WHOLE, Region, are_neighbours
from meetpoint.overlays.hypercube.rules import STANDBYS_MAX

__all__ = [
    "Admitted",
    "Change",
    "Link",
    "Member",
    "admit",
    "dismiss",
    "found",
    "hand_over",
    "merge",
    "pass_join",
    "pass_leave",
    "release",
    "told",
]

Link: TypeAlias = rules.Link[str]
"""With the names of hosts."""


class Member(NamedTuple):
    """The state of a region's host: its region, its standbys, and its neighbours in order."""

    region: Region
    host: str
    standbys: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def link_of(self) -> Link:
        """How neighbours are to know it."""
        return Link(self.region, self.host, len(self.standbys))


class Change(NamedTuple):
    """A message to all neighbours of a change, at once: which links are no more, and which are new."""

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
    reserved_for = [link for link in member.links if link.region not in change.gone]
    return member._replace(links=_linked(member.region, (*reserved_for, *change.come)))


# -- joining -----------------------------------------------------------------------------------------------------------


def pass_join(member: Member) -> Region | None:
    """To whom a join is passed on; None: it is this member's."""
    lightest = rules.pass_join(member.link_of, member.links)
    return None if lightest is None else lightest.region


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
    reserved_for = Member(lower, member.host, member.standbys)
    given = Member(upper, joiner)
    links = member.links
    return Admitted(
        reserved_for._replace(links=_linked(lower, (*links, given.link_of))),
        given._replace(links=_linked(upper, (*links, reserved_for.link_of))),
        Change((member.region,), (reserved_for.link_of, given.link_of)),
    )


# -- leaving -----------------------------------------------------------------------------------------------------------


def pass_leave(member: Member) -> Region | None:
    """To whom the search for a new host is passed on; None: no neighbour is heavier."""
    heaviest = rules.pass_leave(member.link_of, member.links)
    return None if heaviest is None else heaviest.region


def merge(reserved_for: Member, given: Member) -> tuple[Member, Change]:
    """Two halves become one region, at the host of the first; that of the second is free."""
    assert reserved_for.region.sibling == given.region, "only halves of one region are merged"
    parent = reserved_for.region.parent
    after = Member(parent, reserved_for.host, reserved_for.standbys + given.standbys)
    after = after._replace(links=_linked(parent, (*reserved_for.links, *given.links)))
    return after, Change((reserved_for.region, given.region), (after.link_of,))


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
    """Remove a standby that has gone."""
    after = member._replace(standbys=tuple(each for each in member.standbys if each != name))
    return after, _replaced(after)


def _replaced(member: Member) -> Change:
    return Change((member.region,), (member.link_of,))


def _linked(region: Region, links: Iterable[Link]) -> tuple[Link, ...]:
    """Return the neighbours of a region, in order and none twice: the last word counts."""
    near = {link.region: link for link in links if are_neighbours(region, link.region)}
    return tuple(near[each] for each in sorted(near))
