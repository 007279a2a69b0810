"""SubIDs as the network carries them, and which attributes they declare (paper B, section 3.2 and footnote 4).

A SubID is c1, the home; c2, the number of the conjunction there; c3, the attributes that it declares. Deviation: in the
papers c3 is as wide as the schema. A schema is optional here and may be larger than any field, so c3 is a bit vector
only where the schema knows all the attributes, among its first `BITS`; else it is their names, sorted. Both are exact:
a bit that stood for several names (a hash of them) would let SubIDs pass that an event cannot satisfy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.keys.meet_keys import walk

__all__ = ["BITS", "AttributeBits", "AttributeSet", "Declared", "FlatEvent", "SubId", "conjunction_number", "count"]

BITS: Final = 64
"""Bits of an integer on the wire."""

Declared: TypeAlias = int | tuple[str, ...]
"""Some attributes: bits, the i-th for the i-th attribute of the schema, or names."""


class SubId(msgspec.Struct, frozen=True, array_like=True, cache_hash=True, gc=False):
    """A conjunction: its home, its number there, and the attributes that it declares."""

    home: HomeId
    number: int
    attributes: Declared


def conjunction_number(subscription: int, place: int) -> int:
    """Return the number at its home of the conjunction at some place in a subscription of some number."""
    assert 0 <= place < CONJUNCTIONS_MAX
    return subscription * CONJUNCTIONS_MAX + place


def count(declared: Declared) -> int:
    """Return how many attributes these are: c3 in paper A."""
    return declared.bit_count() if isinstance(declared, int) else len(declared)


class AttributeSet:
    """A set of attributes to compare with what SubIDs declare."""

    __slots__ = ("bits", "names")

    def __init__(self, names: Iterable[str], bits: int) -> None:
        self.names = frozenset(names)
        self.bits = bits

    def __or__(self, other: AttributeSet) -> AttributeSet:
        return AttributeSet(self.names | other.names, self.bits | other.bits)

    def has_all(self, declared: Declared) -> bool:
        """Return whether all of some attributes are among these."""
        if isinstance(declared, int):
            return not declared & ~self.bits
        return self.names.issuperset(declared)

    def has_none(self, declared: Declared) -> bool:
        """Return whether none of some attributes is among these."""
        if isinstance(declared, int):
            return not declared & self.bits
        return self.names.isdisjoint(declared)


class FlatEvent:
    """An event as list nodes see it: the value of every attribute that is there, by its canonical name."""

    __slots__ = ("attributes", "values")

    def __init__(self, values: dict[str, object], attributes: AttributeSet) -> None:
        self.values = values
        self.attributes = attributes


class AttributeBits:
    """The bits of the attributes of a schema."""

    def __init__(self, schema: Schema | None) -> None:
        names = () if schema is None else schema.names[:BITS]
        self._bits = {name: 1 << place for place, name in enumerate(names)}

    def declare(self, names: Iterable[str]) -> Declared:
        """Return some attributes as a SubID declares them."""
        held = sorted(names)
        bits = 0
        for name in held:
            if name not in self._bits:
                return tuple(held)
            bits |= self._bits[name]
        return bits

    def gather(self, names: Iterable[str]) -> AttributeSet:
        """Return some attributes to compare with."""
        held = tuple(names)
        bits = 0
        for name in held:
            bits |= self._bits.get(name, 0)
        return AttributeSet(held, bits)

    def spread(self, declared: Declared) -> AttributeSet:
        """Return what was declared, to compare with."""
        if isinstance(declared, int):
            return AttributeSet((name for name, bit in self._bits.items() if declared & bit), declared)
        return self.gather(declared)

    def flatten(self, attributes: Mapping[str, object]) -> FlatEvent:
        """Return the clean attributes of an event."""
        values = dict(walk(attributes))
        return FlatEvent(values, self.gather(values))
