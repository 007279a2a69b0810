"""Ids of events and of conjunctions, their keys, and the trees that lead to subsets. Pure.

An id is a set of bits, such that what matches is a subset (paper C, sections 2, 4.1, 4.2). An event *may match* a
conjunction only if the event's id has every bit of the conjunction's. Then the conjunction is *sound* to look for among
the subsets of the event's id, and the filter decides. So a conjunction may set a bit only if every event that it
accepts has that bit:

| a constraint | its bit in `AttributeIds` | its bits in `SignatureIds` |
| --- | --- | --- |
| `=`, a value | the attribute's | the hash of the attribute, and of the attribute with the value |
| IN, several values | the same | of the attribute, and such as all its values share |
| a range, LIKE, `!=`, IS NOT NULL | the same | of the attribute |
| IS NULL | none: events without the attribute lack its bit | none |
| on an attribute that the schema lacks | none | none |

NOT and OR are gone in the normal form: NOT lies in what a constraint accepts, which is never NULL but for IS NULL, and
each conjunction of an OR has an id of its own. A filter that accepts everything has the empty id, which is a subset of
all: the node of the empty suffix is always visited.

The order of attributes is the schema's, the same everywhere, and a schema grows only at its end. So ids keep their low
bits, which are what nodes are chosen by.

Values that are equal have one hash, whatever their class: both sides use the meet keys of `matching.keys`, by which a
value and a constraint that accepts it share a key.

**Keys.** An id lies at one key, the first of those that stand for it in the hypercube. An arc then has the ids whose
keys lie on it, whatever cuts the ring: on a hypercube one region, on a ring some regions, of which the largest around
an id counts (`Cube.around`).

**Subset trees** lead from an event to every node that hosts a subset of its id, each exactly once (section 3.2). A node
is *required* if its id, read as bits, is a subset of the event's lowest bits: only then does its region hold an id that
is. The node of the empty suffix, all zeros, always is. An event first goes to the host of its own id. From there it is
handed on in *duties*: a duty fixes some bits and leaves the others free, and the node that has it answers for all
required nodes that agree with what is fixed. It serves its own ids, and parts the rest: for each bit that is free, set
in the event, and one of its own id's, a new duty has that bit cleared, and those dealt with before it as they are here.
These have nothing in common and leave nothing out. A duty goes to its *head*, the host of the event's id with the fixed
bits in place; that differs from where it comes from in one bit, so that it is a neighbour, one hop away.

The order in which bits are dealt with makes the tree. With ids of one length any order will do, and a public hash of
the message's id chooses it, so that the load spreads. With ids of different lengths an order can bring a duty to a node
whose id is too short to have a bit that is fixed, and then it gets two. Dealing with the lowest bits first never does:
two regions differ in a bit that both have, below all that only one has. So the hash reorders only the lowest `floor`
bits, and the others follow in order. Where no id is shorter than `floor`, each required node is reached exactly once,
with one message each: 2^b - 1 where all ids have m bits, b of them set in the event. A floor that is too high (a node
has left since) costs a second message to some, which serve once, and never misses any: each duty still has a head. A
floor of 0 is always exact.

Deviations: the paper's rule, from a node to those at Hamming distance 1 with one bit less, misses nodes where lengths
differ (`lab.printed`); and its examples leave out the node of the empty suffix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from meetpoint.api.ids import Key
from meetpoint.errors import SchemaError
from meetpoint.language import Absent, Kind, Schema
from meetpoint.language.filters.constraints import Constraint
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name
from meetpoint.matching.keys.meet_keys import (
    CELLS_MAX,
    KeySort,
    MeetKey,
    Sizes,
    candidates,
    canonical_name,
    keys_of_event,
    walk,
)
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube import DIMENSIONS_MAX
from meetpoint.overlays.hypercube.regions import Region, key_of, point_of
from meetpoint.placement.key_range import KeyRange

__all__ = [
    "EVERYTHING",
    "FLOOR_MAX",
    "AttributeIds",
    "Cube",
    "Duty",
    "Ids",
    "SignatureIds",
    "Tree",
    "below",
    "head_point",
    "is_below",
    "is_required",
    "is_subset",
    "meets_below",
    "parts",
    "pieces",
    "rank",
    "tree_of",
]


_SIZES: Final[Sizes] = {(KeySort.THERE, ""): (0,), **{(KeySort.VALUE, kind): (0,) for kind in Kind}}


def is_subset(conjunction: int, event: int) -> bool:
    """Return whether an event has all bits of a conjunction: only then may it match."""
    return conjunction & ~event == 0


class Ids(Protocol):
    """The ids of a network, made the same way at every node."""

    @property
    def width(self) -> int:
        """The number of bits: the dimensions of the hypercube."""

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """Return the id of an event, from its clean attributes."""

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return the id of a conjunction: a subset of the id of every event that it accepts."""


class AttributeIds:
    """Ids with a bit for each attribute, as in the paper: those an event has, and those a conjunction needs."""

    def __init__(self, schema: Schema) -> None:
        if not len(schema):
            raise SchemaError("reach: the schema has no attributes; ids need at least one: declare it")
        self._paths = [split_name(name) for name in schema.names]
        self._bits = {name: 1 << place for place, name in enumerate(schema.names)}

    @property
    def width(self) -> int:
        """The number of bits: as many as attributes."""
        return len(self._paths)

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """Return the bits of the attributes that are there."""
        return sum(1 << place for place, path in enumerate(self._paths) if find(attributes, path) is not None)

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return the bits of the attributes without which the conjunction does not hold."""
        bits = 0
        for name, constraint in conjunction.constraints:
            if not isinstance(constraint, Absent):
                bits |= self._bits.get(canonical_name(name), 0)
        return bits


class SignatureIds:
    """Ids with bits by hash, of attributes and of attributes with their values, so that values prune the tree too.

    Deviation: the paper has attributes only. An event sets up to two bits for each of its attributes; they should be
    few beside `width`, or every node is a subset of every event. Without a schema all attributes count.
    """

    def __init__(self, schema: Schema | None, width: int) -> None:
        if schema is not None and not len(schema):
            raise SchemaError("reach: the schema has no attributes; ids need at least one: declare it")
        if not 1 <= width <= DIMENSIONS_MAX:
            raise SchemaError(f"reach: a signature of {width} bits; it has 1 to {DIMENSIONS_MAX}")
        self._width = width
        self._names = None if schema is None else frozenset(schema.names)

    @property
    def width(self) -> int:
        """The number of bits to hash to."""
        return self._width

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """Return the bits of the attributes that are there, and of their values."""
        known = (name for name, _ in walk(attributes) if self._has(name))
        bits = 0
        for key in keys_of_event(attributes, {}, dict.fromkeys(known, _SIZES)):
            if key.sort is not KeySort.ALWAYS:
                bits |= self._bit(key)
        return bits

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return the bits of the attributes that must be there, and of their values where they are known."""
        bits = 0
        for written, constraint in conjunction.constraints:
            name = canonical_name(written)
            if self._has(name) and not isinstance(constraint, Absent):
                bits |= self._bit(MeetKey(KeySort.THERE, name)) | self._bits_of_values(name, constraint)
        return bits

    def _has(self, name: str) -> bool:
        return self._names is None or name in self._names

    def _bits_of_values(self, name: str, constraint: Constraint) -> int:
        """Return the bits that all values which a constraint accepts have in common: an event that it accepts has one
        of these.
        """
        common = 0
        for way in candidates(name, constraint, CELLS_MAX, fine=False):
            if way and all(key.sort is KeySort.VALUE for key in way):
                shared = -1
                for key in way:
                    shared &= self._bit(key)
                common |= shared
        return common

    def _bit(self, key: MeetKey) -> int:
        return 1 << key.digest() % self._width


# -- ids as keys -------------------------------------------------------------------------------------------------------


class Cube:
    """All ids of a network, and their keys."""

    def __init__(self, ring: Ring, ids: Ids) -> None:
        self._ring = ring
        self._ids = ids
        self.width = min(ids.width, ring.bits)
        """The number of bits of an id; those that a key has no room for are left out."""
        self._all = (1 << self.width) - 1

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """Return the id of an event, from its clean attributes."""
        return self._ids.of_event(attributes) & self._all

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return the id of a conjunction."""
        return self._ids.of_conjunction(conjunction) & self._all

    def key(self, point: int) -> Key:
        """Return the key at which an id lies."""
        return key_of(self._ring, point, self.width)

    def point(self, key: bytes) -> int:
        """Return the id that a key stands for."""
        return point_of(self._ring, key, self.width)

    def ends(self, region: Region) -> tuple[Key, Key]:
        """Return the first and the last key at which ids of a region lie."""
        above = self._all & ~region.mask
        return self.key(region.bits), self.key(region.bits | above)

    def around(self, arc: KeyRange, point: int) -> Region:
        """Return the largest region around an id, which lies on an arc, that has all its ids on the arc."""
        region = Region(point, self.width)
        while region.length and self.is_on(arc, region.parent):
            region = region.parent
        return region

    def is_on(self, arc: KeyRange, region: Region) -> bool:
        """Return whether all ids of a region lie on an arc."""
        first, count = self._ids_on(arc)
        every, size = 1 << self.width, 1 << self.width - region.length
        return count == every or (self._index(self.key(region.bits)) - first) % every + size <= count

    def shortest(self, arc: KeyRange) -> int:
        """Return a length such that no region on an arc has fewer bits."""
        _, count = self._ids_on(arc)
        return self.width - max(count.bit_length() - 1, 0)

    def _ids_on(self, arc: KeyRange) -> tuple[int, int]:
        """Return the first id on an arc, as ids follow each other on the ring, and how many there are."""
        before, last = self._index(arc.low), self._index(arc.high)
        every = 1 << self.width
        if before == last:
            return last + 1, every if arc.low >= arc.high else 0
        return before + 1, (last - before) % every

    def _index(self, key: bytes) -> int:
        """Return how many ids lie before a key or at it, less one."""
        return self._ring.number(key) >> self._ring.bits - self.width


# -- subset trees ------------------------------------------------------------------------------------------------------

FLOOR_MAX: Final = 32
"""Bits that a tree reorders: more nodes than 2^32 there are none."""


class Duty(NamedTuple):
    """Required nodes with these bits at the positions that are fixed."""

    fixed: int
    bits: int


EVERYTHING: Final = Duty(0, 0)
"""All required nodes: the duty of the host of the event's id."""


class Tree(NamedTuple):
    """An order of bits: the lowest ones as said here, then the others from the lowest."""

    lowest: tuple[int, ...] = ()

    def positions(self, length: int) -> Iterator[int]:
        """Yield all positions of an id of a length."""
        yield from (position for position in self.lowest if position < length)
        yield from range(len(self.lowest), length)


def tree_of(message: str, floor: int) -> Tree:
    """Return the tree of a message, the same at every node. `floor`: no node's id is known to be shorter."""
    floor = min(floor, FLOOR_MAX)
    drawn = blake2b(message.encode(), digest_size=2 * FLOOR_MAX, person=b"meetpoint tree 1").digest()
    return Tree(tuple(sorted(range(floor), key=lambda at: (drawn[2 * at : 2 * at + 2], at))))


def is_required(region: Region, event: int) -> bool:
    """Return whether a region holds a subset of an event's id."""
    return region.bits & ~event == 0


def head_point(event: int, duty: Duty) -> int:
    """Return the id whose host is to have a duty."""
    return event & ~duty.fixed | duty.bits


def parts(me: Region, event: int, duty: Duty, tree: Tree) -> list[Duty]:
    """Return the duties that the head of a duty hands on."""
    assert me.hosts(head_point(event, duty)), "a duty is its head's"
    handed: list[Duty] = []
    for position in tree.positions(me.length):
        bit = 1 << position
        if event & bit and not duty.fixed & bit:
            handed.append(Duty(duty.fixed | bit, duty.bits))
            duty = Duty(duty.fixed | bit, duty.bits | bit)
    return handed


# -- regions and what lies below them ----------------------------------------------------------------------------------


def pieces(ring: Ring, width: int, first: bytes, last: bytes) -> Iterator[Region]:
    """Yield few regions with the ids whose keys lie from `first` to `last`, which does not lead round the ring."""
    free = ring.bits - width
    at, end = -(-ring.number(first) >> free), (ring.number(last) >> free) + 1
    while at < end:
        size = at & -at or 1 << width
        while at + size > end:
            size >>= 1
        length = width - size.bit_length() + 1
        place = at >> width - length
        yield Region(int(f"{place:0{length}b}"[::-1], 2) if length else 0, length)
        at += size


def below(region: Region) -> list[Region]:
    """Return the regions with one set bit less.

    All subsets of a region's ids lie there, in the region, or below them.
    """
    return [Region(region.bits ^ 1 << at, region.length) for at in range(region.length) if region.bits >> at & 1]


def is_below(point: int, region: Region) -> bool:
    """Return whether an id is a subset of one that a region has."""
    return point & region.mask & ~region.bits == 0


def meets_below(lower: Region, region: Region) -> bool:
    """Return whether a region has ids that are subsets of another's."""
    return lower.bits & lower.mask & region.mask & ~region.bits == 0


def rank(region: Region, width: int) -> int:
    """Return the highest id of a region: less in a part of it, and less still with one set bit less."""
    return region.bits | (1 << width) - 1 & ~region.mask
