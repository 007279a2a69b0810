"""The delivery graph: whom a node hands an event to, and for which range each answers (paper E, sections 4.1, 4.3).

A node's edges lead to the first member at or after its place + 2^k, for every k: Chord's fingers and the successor. An
event comes with a *range*; whoever gets it answers for all members in it. A node serves those in its own keys, and
parts the rest among its edges: each gets what lies between where its keys begin and where those of the next begin, as
far as that is in the range. The parts have nothing in common, so that no member is served twice, whatever a node
believes of others; and where its edges are right they leave nothing out, so that each is served once. What no edge
answers for is *left*: an event is carried completely only if nothing was left anywhere.

In the paper a node's keys begin at its place, and the next member's where that is. Here they are whatever the caller
says: on a network they are the arc in the custody of its home, which ends at its place.

Every node is so the root of a tree of its own, on 2^k members at equal distances a binomial one. An edge has a *level*,
the k of its finger. Within a range the levels go down: what an edge answers for is parted among edges of lower levels
(section 4.4, with k counted the other way). That holds of the right edges; those of a time of change may lead round,
and nothing may then rest on itself (`edges`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from meetpoint.schemes.rebeca.ranges import Range, merged

__all__ = ["Graph", "GraphPart", "Split", "fingered_by", "fingers", "level"]


def fingers(place: int, members: Sequence[int], size: int) -> list[int]:
    """Whom a member's edges lead to, nearest first, where `members` are all, sorted."""
    found: dict[int, None] = {}
    for exponent in range((size - 1).bit_length()):
        member = members[bisect_left(members, (place + (1 << exponent)) % size) % len(members)]
        if member != place:
            found[member] = None
    return sorted(found, key=lambda member: (member - place) % size)


def fingered_by(keys: Range, size: int) -> list[Range]:
    """Where those lie whose edges lead to whoever has these keys: all who have one of them at their place + 2^k."""
    steps = (1 << exponent for exponent in range((size - 1).bit_length()))
    return merged((Range((keys.begin - step) % size, keys.length) for step in steps), size)


def level(place: int, other: int, size: int) -> int:
    """The highest k of the finger from one place to another."""
    return ((other - place) % size).bit_length() - 1


class GraphPart(NamedTuple):
    """What a node hands on: to whom, and for which range."""

    node: int
    range: Range


class Split(NamedTuple):
    """How a node parts a range: what it serves itself, what it hands on, the longest first, and what nobody has."""

    mine: Range
    parts: list[GraphPart]
    left: list[Range]


class Graph:
    """One node's edges: its place, its own keys, and for each edge where the keys of the other begin."""

    __slots__ = ("_bounds", "_order", "own", "place", "responsible", "size")

    def __init__(self, size: int, place: int, own: Range, links: Mapping[int, int]) -> None:
        self.size = size
        self.place = place
        self.own = own
        end = own.end(size)

        def past(key: int) -> int:
            """How far a key is beyond this node's own."""
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
        """What each edge answers for, when all is parted."""

    @property
    def nodes(self) -> Iterable[int]:
        """Where the edges lead, nearest first."""
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
