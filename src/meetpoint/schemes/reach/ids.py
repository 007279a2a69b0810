"""Ids of events and of conjunctions: sets of bits, such that what matches is a subset (paper C, sections 2, 4.1, 4.2).

An event *may match* a conjunction only if the event's id has every bit of the conjunction's. Then the conjunction is
*sound* to look for among the subsets of the event's id, and the filter decides. So a conjunction may set a bit only if
every event that it accepts has that bit:

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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from meetpoint.errors import SchemaError
from meetpoint.language import Absent, Conjunction, Kind, Schema
from meetpoint.language.filters.constraints import Constraint
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
from meetpoint.overlays.hypercube import DIMENSIONS_MAX

__all__ = ["AttributeIds", "Ids", "SignatureIds", "is_subset"]

_SIZES: Final[Sizes] = {(KeySort.THERE, ""): (0,), **{(KeySort.VALUE, kind): (0,) for kind in Kind}}


def is_subset(conjunction: int, event: int) -> bool:
    """Whether an event has all bits of a conjunction: only then may it match."""
    return conjunction & ~event == 0


class Ids(Protocol):
    """How ids are made: the same at every node of a network."""

    @property
    def width(self) -> int:
        """How many bits they have: the dimensions of the hypercube."""

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """The id of an event, from its clean attributes."""

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """The id of a conjunction: a subset of the id of every event that it accepts."""


class AttributeIds:
    """A bit for each attribute, as in the paper: what an event has, and what a conjunction needs it to have."""

    def __init__(self, schema: Schema) -> None:
        if not len(schema):
            raise SchemaError("reach: the schema has no attributes; ids need at least one: declare it")
        self._paths = [split_name(name) for name in schema.names]
        self._bits = {name: 1 << place for place, name in enumerate(schema.names)}

    @property
    def width(self) -> int:
        """As many bits as attributes."""
        return len(self._paths)

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """The attributes that are there."""
        return sum(1 << place for place, path in enumerate(self._paths) if find(attributes, path) is not None)

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """The attributes without which it does not hold."""
        bits = 0
        for name, constraint in conjunction.constraints:
            if not isinstance(constraint, Absent):
                bits |= self._bits.get(canonical_name(name), 0)
        return bits


class SignatureIds:
    """Bits by hash, of attributes and of attributes with their values, so that values prune the tree too.

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
        """How many bits there are to hash to."""
        return self._width

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """What is there, and with which values."""
        known = (name for name, _ in walk(attributes) if self._has(name))
        bits = 0
        for key in keys_of_event(attributes, {}, dict.fromkeys(known, _SIZES)):
            if key.sort is not KeySort.ALWAYS:
                bits |= self._bit(key)
        return bits

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """What must be there, and with which values where they are known."""
        bits = 0
        for written, constraint in conjunction.constraints:
            name = canonical_name(written)
            if self._has(name) and not isinstance(constraint, Absent):
                bits |= self._bit(MeetKey(KeySort.THERE, name)) | self._bits_of_values(name, constraint)
        return bits

    def _has(self, name: str) -> bool:
        return self._names is None or name in self._names

    def _bits_of_values(self, name: str, constraint: Constraint) -> int:
        """The bits that all values which a constraint accepts have in common. An event it accepts has one of them."""
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
