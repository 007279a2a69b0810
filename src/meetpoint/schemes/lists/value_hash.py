"""Where an attribute and its values lie on the ring of one network (paper A, sections 3.1 and 4.1; B, section 4.1).

| what | its key |
| --- | --- |
| a text: a value, or the beginning or end of one | the plain hash of attribute and bare text |
| a number, a timestamp | the plain or the order-preserving hash (`lines`) |
| a boolean | the plain hash |
| an attribute whatever its value | the plain hash of the attribute, its *any* key |
| every event | the *always* key |

Deviation: the papers hash the value alone, so that equal values of all attributes crowd at one node; the attribute is
hashed with it. Paper B's example 1 hashes `OT*` with its star and its figure 4 asks without one, so that the two never
meet; here texts are bare, and a value, a prefix and a suffix that are spelt alike share a key.

Two keys that happen to be the same do no harm: whoever answers checks the value itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from meetpoint.api.ids import Key
from meetpoint.language.schema.attribute import Attribute
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Kind, Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Codes, Linear, Scale
from meetpoint.schemes.lists.lines import Grid, NumberLine, OrderedLine, PlainLine
from meetpoint.schemes.lists.subids import AttributeBits

__all__ = ["PART_MAX", "POINTS_MAX", "Hashing"]

POINTS_MAX: Final = 256
"""Keys, or arcs, of one constraint; one that would need more lies more widely."""
PART_MAX: Final = 32
"""Characters of a prefix or suffix that is asked for; one that is longer lies where so many of its characters lie."""

_CACHED_MAX: Final = 4_096
"""Texts whose keys are remembered: to hash one takes six times as long."""


class Hashing:
    """One network's way of hashing: the same at every node."""

    def __init__(
        self,
        ring: Ring,
        schema: Schema | None = None,
        *,
        order_preserving: bool = False,
        scales: Mapping[str, Scale] | None = None,
        marks: Mapping[str, bytes] | None = None,
        points_max: int = POINTS_MAX,
    ) -> None:
        """`scales` are for the order-preserving hash, by attribute, instead of what the schema says.

        `marks` are names of those that came while the network ran (`rescaling`).
        """
        self.ring = ring
        self.schema = schema
        self.order_preserving = order_preserving
        self.points_max = points_max
        self.bits = AttributeBits(schema)
        self.always: Key = ring.hash(b"always")
        self._scales = dict(scales or {})
        self._marks = dict(marks or {})
        self._lines: dict[tuple[str, Kind], NumberLine] = {}
        self.text = lru_cache(_CACHED_MAX)(self._text)

    def _text(self, attribute: str, text: str) -> Key:
        """The key of a text."""
        return self.ring.hash(f"{attribute}\0{text}".encode())

    def truth(self, attribute: str, value: bool) -> Key:
        """The key of a boolean."""
        return self.text(attribute, "true" if value else "false")

    def any(self, attribute: str) -> Key:
        """The key of an attribute, whatever its value."""
        return self.text(attribute, "\0any")

    def is_text(self, attribute: str) -> bool:
        """Whether an attribute is declared to hold strings."""
        declared = None if self.schema is None else self.schema.get(attribute)
        return declared is not None and declared.type is Type.STRING

    def mark(self, attribute: str) -> bytes:
        """The name of the scale by which an attribute's numbers lie; empty where the network began with it."""
        return self._marks.get(attribute, b"")

    def line(self, attribute: str, kind: Kind) -> NumberLine:
        """The keys of an attribute's numbers, or of its timestamps."""
        line = self._lines.get((attribute, kind))
        if line is None:
            line = self._lines[attribute, kind] = self._make_line(attribute, kind)
        return line

    def _make_line(self, attribute: str, kind: Kind) -> NumberLine:
        declared = self._declared(attribute, kind)
        grid = None if declared is None else Grid.of(declared)
        if not self.order_preserving:
            return PlainLine(self.ring, attribute, grid, self.points_max)
        return OrderedLine(self.ring, attribute, grid, self.scale(attribute, kind), self.points_max)

    def scale(self, attribute: str, kind: Kind) -> Scale:
        """By which an attribute's numbers lie in their order, or its timestamps."""
        scale = self._scales.get(attribute)
        if scale is not None:
            return scale
        declared = self._declared(attribute, kind)
        return (None if declared is None else Linear.of(declared)) or Codes(kind)

    def _declared(self, attribute: str, kind: Kind) -> Attribute | None:
        """What the schema says of it; None where it would refuse such values."""
        declared = None if self.schema is None else self.schema.get(attribute)
        return declared if declared is not None and declared.type.kind is kind else None
