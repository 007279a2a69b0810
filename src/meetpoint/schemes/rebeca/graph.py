"""The delivery graph: ranges of keys, edges, and neighbours in reserve (paper E, sections 4.1, 4.3, 5.1). Pure.

**Ranges.** Deviation: the paper's messages carry a range by its two ends, [key(u), r), and [key, key) is the whole ring
or nothing. Here a range is where it begins and its length, which says which.

**Edges** lead to the first member at or after a member's place + 2^k, for every k: Chord's fingers and the successor.
An event comes with a *range*; the member that gets it answers for all members in it. It serves those in its own keys,
and parts the rest among its edges: each gets what lies between where its keys begin and where those of the next begin,
as far as that is in the range. The parts have nothing in common, so that no member is served twice, whatever a member
believes of others; and where its edges are right they leave nothing out, so that each is served once. What no edge
answers for is *left*: an event is published completely only if nothing was left anywhere.

In the paper a node's keys begin at its place, and the next member's where that is. Here they are whatever the caller
says: on a network they are the range that its home owns, which ends at its place.

Every member is so the root of a tree of its own, on 2^k members at equal distances a binomial one. An edge has a
*level*, the k of its finger. Within a range the levels go down: what an edge answers for is parted among edges of lower
levels (section 4.4, with k counted the other way). That holds of the right edges; those of a time of change may lead
round, and nothing may then rest on itself (`edges`).

**Reserves.** A member keeps the next members clockwise in reserve, and only the first is an edge: when it is silent,
the next one takes its place. While one of them lives, the first that does is the right one. Where all are silent, or in
any doubt, the nearest that the member knows by any edge is a *candidate*, of those that lead away from it and of those
that lead to it. A candidate knows others, by its own edges of both kinds; those that lie between are nearer, and the
nearest of them is the next candidate. Each step is nearer, so that it ends.

Deviation: the paper keeps log2 N in reserve, with which half of the nodes seldom fail at once without a gap somewhere;
we keep twice as many. And it looks nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

__all__ = [
    "RANGES_MAX",
    "RESERVES_PER_LEVEL",
    "Graph",
    "GraphPart",
    "Range",
    "Split",
    "between",
    "fingered_by",
    "fingers",
    "following",
    "level",
    "levels_of",
    "merged",
    "reserve_count",
]


RANGES_MAX: Final = 256
"""Ranges that are named at a time; more are drawn together."""


class Range(NamedTuple):
    """A range of keys: so many from `begin` on, clockwise, on a ring of `size`. 0 is nothing, `size` everything."""

    begin: int
    length: int

    def holds(self, key: int, size: int) -> bool:
        """Return whether a key lies in the range."""
        return (key - self.begin) % size < self.length

    def meets(self, other: Range, size: int) -> bool:
        """Return whether a key lies in both."""
        if not self.length or not other.length:
            return False
        return self.holds(other.begin, size) or other.holds(self.begin, size)

    def encloses(self, other: Range, size: int) -> bool:
        """Return whether all keys of another range lie in this one."""
        if not other.length or self.length == size:
            return True
        return (other.begin - self.begin) % size + other.length <= self.length

    def end(self, size: int) -> int:
        """Return the first key after the range."""
        return (self.begin + self.length) % size

    def common(self, other: Range, size: int) -> list[Range]:
        """Return the keys that lie in both: on a ring that may be two ranges."""
        found = []
        ahead, behind = (other.begin - self.begin) % size, (self.begin - other.begin) % size
        if ahead < self.length and other.length:
            found.append(Range(other.begin, min(other.length, self.length - ahead)))
        if 0 < behind < other.length and self.length:
            found.append(Range(self.begin, min(self.length, other.length - behind)))
        return found


def merged(ranges: Iterable[Range], size: int) -> list[Range]:
    """Return the same keys in as few ranges as may be; where they are too many, more keys in one."""
    runs: list[tuple[int, int]] = []
    for each in ranges:
        end = each.begin + each.length
        if each.length:
            runs += [(each.begin, end)] if end <= size else [(each.begin, size), (0, end - size)]
    out: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((first, end))
    if len(out) > 1 and out[0][0] == 0 and out[-1][1] == size:
        out = [*out[1:-1], (out[-1][0], size + out[0][1])]
    if len(out) > RANGES_MAX:
        return [Range(out[0][0], out[-1][1] - out[0][0])]
    return [Range(first, end - first) for first, end in out]


# -- the graph ---------------------------------------------------------------------------------------------------------


def fingers(place: int, members: Sequence[int], size: int) -> list[int]:
    """Return the members that a member's edges lead to, nearest first, where `members` are all, sorted."""
    found: dict[int, None] = {}
    for exponent in range((size - 1).bit_length()):
        member = members[bisect_left(members, (place + (1 << exponent)) % size) % len(members)]
        if member != place:
            found[member] = None
    return sorted(found, key=lambda member: (member - place) % size)


def fingered_by(keys: Range, size: int) -> list[Range]:
    """Return where members lie whose edges lead to the one with these keys: one of the keys is their place + 2^k."""
    steps = (1 << exponent for exponent in range((size - 1).bit_length()))
    return merged((Range((keys.begin - step) % size, keys.length) for step in steps), size)


def level(place: int, other: int, size: int) -> int:
    """Return the highest k of the finger from one place to another."""
    return ((other - place) % size).bit_length() - 1


class GraphPart(NamedTuple):
    """A part of a range that is handed on, and to which member."""

    node: int
    range: Range


class Split(NamedTuple):
    """A range, parted: what a member serves itself, what it hands on, the longest first, and what nobody has."""

    mine: Range
    parts: list[GraphPart]
    left: list[Range]


class Graph:
    """The edges of one member: its place, its own keys, and for each edge where the keys of the other begin."""

    __slots__ = ("_bounds", "_order", "own", "place", "responsible", "size")

    def __init__(self, size: int, place: int, own: Range, links: Mapping[int, int]) -> None:
        self.size = size
        self.place = place
        self.own = own
        end = own.end(size)

        def past(key: int) -> int:
            """Return how far a key is beyond this member's own."""
            return (key - end) % size

        self._order = sorted((node for node in links if not own.holds(node, size)), key=past)
        bounds: list[int] = []
        last = -1
        for node in self._order:
            begin = past(links[node])
            # Where another lies between, the keys cannot be its: what is known of it is old. Its place is its own.
            bounds.append(begin if last < begin <= past(node) else past(node))
            last = past(node)
        self._bounds = bounds
        self.responsible: dict[int, Range] = {
            node: Range((end + begin) % size, until - begin)
            for node, (begin, until) in zip(self._order, pairwise([*bounds, size - own.length]), strict=True)
        }
        """The range that each edge answers for, when all is parted."""

    @property
    def nodes(self) -> Iterable[int]:
        """The members that edges lead to, nearest first."""
        return self._order

    def split(self, asked: Range) -> Split:
        """Part a range that was handed to this node."""
        size, own = self.size, self.own
        first = (asked.begin - own.begin) % size
        left: list[Range] = []
        if first >= own.length:  # it begins before this node's keys, which others took for longer than they are
            before = min(size - first, asked.length)
            left.append(Range(asked.begin, before))
            asked, first = Range(own.begin, asked.length - before), 0
        last = min(first + asked.length, size)  # both count from where this node's keys begin
        if first + asked.length > size:  # it goes round to keys of this node before those where it begins
            left.append(Range(own.begin, first + asked.length - size))
        mine = Range(asked.begin, max(0, min(last, own.length) - first))
        gap_end = own.length + (self._bounds[0] if self._bounds else size - own.length)
        if own.length < min(last, gap_end):
            left.append(Range(own.end(size), min(last, gap_end) - own.length))
        parts = []
        for node, range_ in self.responsible.items():
            begin = (range_.begin - own.begin) % size
            length = min(range_.length, last - begin)
            if length > 0:
                parts.append(GraphPart(node, Range(range_.begin, length)))
        parts.sort(key=lambda part: -part.range.length)
        return Split(mine, parts, left)


# -- reserves ----------------------------------------------------------------------------------------------------------

RESERVES_PER_LEVEL: Final = 2.0
"""Neighbours in reserve for each doubling of the number of members."""


def levels_of(members: int) -> int:
    """Return how often so many members are doubled: how deep their trees are, about."""
    return max(members - 1, 0).bit_length()


def reserve_count(members: int, per_level: float = RESERVES_PER_LEVEL) -> int:
    """Return how many neighbours are kept in reserve."""
    return max(1, ceil(per_level * levels_of(members)))


def following(place: int, known: Iterable[int], count: int, size: int) -> list[int]:
    """Return the next ones clockwise of those that are known, so many at most, and never the member itself."""
    return sorted({*known} - {place}, key=lambda node: (node - place) % size)[:count]


def between(place: int, candidate: int, known: Iterable[int], count: int, size: int) -> list[int]:
    """Return the next ones clockwise that lie before a candidate, of those that it knows."""
    span = (candidate - place) % size
    return following(place, (node for node in known if (node - place) % size < span), count, size)
