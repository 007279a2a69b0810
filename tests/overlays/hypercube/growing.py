"""A network of members in one process, by the rules that nodes are to run: it only carries what they say.

Each step reads one member and tells the neighbours of those concerned. It counts who was asked and whose links changed.
A node that crashes stays the host of its region until `repair`, which works with what was last known of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from meetpoint.overlays.hypercube.invariant import UNEVEN_MAX, departures
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.overlays.hypercube.rules import next_hop, takeover_point
from tests.overlays.hypercube.members import (
    Change,
    Member,
    admit,
    dismiss,
    found,
    hand_over,
    merge,
    pass_join,
    pass_leave,
    release,
    told,
)

__all__ = [
    "Cube",
    "Effort",
    "Made",
    "Seen",
    "SiblingTakesOver",
    "broken",
    "even",
    "grown",
    "lopsided",
    "path",
    "seen",
    "taker",
]


Made: TypeAlias = "Callable[[int, int, random.Random], Cube]"
"""Makes a network: dimensions, nodes, chance."""


class Seen(NamedTuple):
    """A node as the invariant sees it."""

    pieces: tuple[tuple[Region, int], ...] = ()
    sponsor: str | None = None
    standbys: tuple[str, ...] = ()
    links: tuple[tuple[Region, str], ...] = ()


def broken(members: Mapping[Region, Member], dimensions: int, uneven_max: int = UNEVEN_MAX) -> str | None:
    """Return what is wrong with members and standbys, in a sentence, or None."""
    names = Counter(name for member in members.values() for name in (member.host, *member.standbys))
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        return f"{twice[0]} has {names[twice[0]]} places"
    for region, member in members.items():
        for link in member.links:
            if link.region in members and link.standby_count != len(members[link.region].standbys):
                return f"{region} takes {link.region} for what it is not: {link}"
    return departures(seen(members), dimensions, uneven_max)


def seen(members: Mapping[Region, Member]) -> dict[str, Seen]:
    """All nodes, by their names."""
    views = {}
    for region, member in members.items():
        links = tuple((link.region, link.host) for link in member.links)
        views[member.host] = Seen(((region, 1),), None, member.standbys, links)
        views |= {name: Seen(sponsor=member.host) for name in member.standbys}
    return views


class Effort(NamedTuple):
    """The effort of a join or a leave: members that were asked, and members whose state changed."""

    asked: int
    touched: int


class Cube:
    """All members, by region."""

    def __init__(self, dimensions: int, first: str = "n0") -> None:
        self.dimensions = dimensions
        self.members: dict[Region, Member] = {}
        self.down: set[str] = set()
        self.refused = 0
        self._touched: set[Region] = set()
        self._asked = 0
        self._keep(found(first))

    # -- what may be seen ----------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """All nodes that are up."""
        every = (name for member in self.members.values() for name in (member.host, *member.standbys))
        return sorted(name for name in every if name not in self.down)

    @property
    def gap(self) -> int:
        """The global gap: by how much the lengths of any two ids differ."""
        lengths = [region.length for region in self.members]
        return max(lengths) - min(lengths)

    def owner(self, point: int) -> Region:
        """Return the host of an id, seen from above; nothing that is tested routes by it."""
        return next(region for region in self.members if region.hosts(point))

    def links(self, region: Region) -> list[Region]:
        """The neighbours that a member knows."""
        return [link.region for link in self.members[region].links]

    # -- what may happen -----------------------------------------------------------------------------------------------

    def join(self, name: str, at: Region) -> Effort:
        """A node comes, through the member that hosts a region. Where it meets one that is silent it is not let in."""
        self._begin()
        while (further := pass_join(self._ask(at))) is not None:
            at = further
        before = self.members[at]
        admitted = None if before.host in self.down else admit(before, name, self.dimensions)
        if admitted is None:
            self.refused += 1
            return self._effort()
        del self.members[at]
        self._keep(admitted.member)
        if admitted.joined is not None:
            self._keep(admitted.joined)
        self._on_change((before,), admitted.change)
        return self._effort()

    def leave(self, name: str) -> Effort:
        """A node goes, and says so."""
        self._begin()
        self._dismiss({name, *self.down})
        while hosted := [region for region, member in self.members.items() if member.host == name]:
            self._succeed(hosted[0], name)
        return self._effort()

    def crash(self, name: str) -> None:
        """A node goes without a word."""
        self.down.add(name)

    def repair(self) -> Effort:
        """Every region whose host is silent gets another, the heaviest first."""
        self._begin()
        self._dismiss(self.down)
        while dead := [each for each in self.members.values() if each.host in self.down]:
            heaviest = max(dead, key=lambda each: (each.link_of.weight, each.region))
            self._succeed(heaviest.region, heaviest.host)
        self.down.clear()
        return self._effort()

    def _dismiss(self, names: set[str]) -> None:
        for member in list(self.members.values()):
            for name in member.standbys:
                if name in names:
                    now = self.members[member.region]
                    self._put(now, *dismiss(now, name))

    def place(self, name: str) -> Region:
        """The region where a node hosts or stands by."""
        return next(r for r, m in self.members.items() if name == m.host or name in m.standbys)

    def _succeed(self, region: Region, leaver: str) -> None:
        """A region gets a new host in place of one that goes or has gone; or else there is one region less."""
        member = self.members[region]
        if member.standbys:
            self._put(member, *hand_over(member, member.standbys[0]))
            return
        end = self._search(region)
        if end.standbys:
            after, name, change = release(end)
            self._put(end, after, change)
            now = self.members[region]
            self._put(now, *hand_over(now, name))
            return
        lower, upper = sorted((end, self._ask(end.region.sibling)))
        gone = {leaver, *self.down}
        if lower.host in gone:  # then the upper one keeps both, unless it has gone too
            lower, upper = upper, lower
        del self.members[lower.region], self.members[upper.region]
        after, change = merge(lower, upper)
        self._keep(after)
        self._on_change((lower, upper), change)
        if upper.host not in gone:
            now = self.members[region]
            self._put(now, *hand_over(now, upper.host))

    def _search(self, at: Region) -> Member:
        """To where a host can be spared."""
        while True:
            while (further := pass_leave(self._ask(at))) is not None:
                at = further
            here = self.members[at]
            if here.standbys or pass_leave(self._ask(at.sibling)) is None:
                return here
            at = at.sibling

    # -- states --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._touched.clear()
        self._asked = 0

    def _effort(self) -> Effort:
        return Effort(self._asked, len(self._touched & self.members.keys()))

    def _ask(self, region: Region) -> Member:
        self._asked += 1
        return self.members[region]

    def _keep(self, member: Member) -> None:
        self.members[member.region] = member
        self._touched.add(member.region)

    def _put(self, before: Member, after: Member, change: Change) -> None:
        self._keep(after)
        self._on_change((before,), change)

    def _on_change(self, concerned: Iterable[Member], change: Change) -> None:
        for region in sorted({link.region for member in concerned for link in member.links}):
            if region in self.members and region not in change.gone:
                after = told(self.members[region], change)
                if after != self.members[region]:
                    self._keep(after)


class SiblingTakesOver(Cube):
    """The paper's leave: the sibling takes over, and only where it has split a pair within it is merged."""

    def _search(self, at: Region) -> Member:
        while at.sibling not in self.members:
            at = next(link for link in self.links(at) if at.sibling.holds(link))
            self._ask(at)
        return self.members[at]


def grown(dimensions: int, count: int, rng: random.Random) -> Cube:
    """A network of so many nodes, each of which joined through a random member."""
    cube = Cube(dimensions)
    for number in range(1, count):
        cube.join(f"n{number}", rng.choice(sorted(cube.members)))
    return cube


def even(dimensions: int, length: int) -> Cube:
    """A network of 2^length nodes with ids of one length."""
    cube = Cube(dimensions)
    for number in range(1, 1 << length):
        cube.join(f"n{number}", min(cube.members, key=lambda region: (region.length, region)))
    return cube


def lopsided(dimensions: int, count: int, rng: random.Random) -> Cube:
    """A network that nobody keeps even: each node splits any other."""
    cube = Cube(dimensions)
    for number in range(1, count):
        region = rng.choice([each for each in sorted(cube.members) if each.length < dimensions])
        split = admit(cube.members.pop(region), f"n{number}", dimensions)
        assert split is not None
        assert split.joined is not None
        cube.members = {each: told(member, split.change) for each, member in cube.members.items()}
        cube.members |= {split.member.region: split.member, split.joined.region: split.joined}
    return cube


def path(cube: Cube, start: Region, target: int, avoid: frozenset[Region] = frozenset()) -> list[Region]:
    """The members that a message comes through, by the tables that they have."""
    way = [start]
    while (further := next_hop(way[-1], cube.links(way[-1]), target, avoid)) is not None:
        way.append(further)
        assert len(way) <= cube.dimensions + 1, "it does not end"
    return way


def taker(cube: Cube, region: Region) -> Region:
    """Return the region that sees to one whose host is silent, as found by routing from any of its neighbours."""
    return path(cube, cube.links(region)[0], takeover_point(region), frozenset((region,)))[-1]
