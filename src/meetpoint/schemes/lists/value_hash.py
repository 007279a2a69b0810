"""Where an attribute and its values lie on the ring of one network (paper A, sections 3.1 and 4.1; B, section 4.1).

| what | its key |
| --- | --- |
| a text: a value, or the beginning or end of one | the plain hash of attribute and bare text |
| a number, a timestamp | the plain or the order-preserving hash (`number_lines`) |
| a boolean | the plain hash |
| an attribute whatever its value | the plain hash of the attribute, its *any* key |
| every event | the *always* key |

Deviation: the papers hash the value alone, so that equal values of all attributes crowd at one node; the attribute is
hashed with it. Paper B's example 1 hashes `OT*` with its star and its figure 4 asks without one, so that the two never
meet; here texts are bare, and a value, a prefix and a suffix that are spelt alike share a key.

Two keys that happen to be the same do no harm: the node that answers checks the value itself.

The scales of the order-preserving hash change while brokers run. Brokers agree on versions of all scales
(`node.cluster.config_epochs`); a version says the cuts of some attributes (`Quantiles`). While two versions count, an
entry of a number lies by both, and an event asks by both. What a version leaves as it is stays where it is: an entry
names its attribute's scale, not the version, and the owner of a key need know neither, as the value itself is tried.

    no event misses an entry    there is a version by which the event asks under each of its attributes, and by which
                                each entry of the conjunction lies (the invariant of `config_epochs`)
    none is told twice          what was found is a set of SubIDs, whichever key it was found at

A scale is exchanged only if it crowds values much more than one from the cuts that were measured now: to move entries
costs more than to have them a little uneven.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import Key
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind, Type
from meetpoint.matching.keys.feedback import MeasuredQuantiles
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Codes, Linear, Quantiles, Scale, crowding
from meetpoint.schemes.lists.number_lines import Grid, NumberLine, OrderedLine, PlainLine
from meetpoint.schemes.lists.subids import AttributeBits

__all__ = ["PARTS", "PART_MAX", "POINTS_MAX", "Cuts", "Hashing", "HashingVersions", "pack_cuts", "read_cuts"]


POINTS_MAX: Final = 256
"""Keys, or arcs, of one constraint; one that would need more lies more widely."""
PART_MAX: Final = 32
"""Characters of a prefix or suffix that is asked for; of a longer one only so many count."""

_CACHED_MAX: Final = 4_096
"""Texts whose keys are remembered: to hash one takes six times as long."""


class Hashing:
    """The hashing of one network, the same at every node."""

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
        """Make a hashing.

        `scales` are for the order-preserving hash, by attribute, instead of what the schema says. `marks` are names of
        scales that came while the network ran.
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
        """Return the key of a text."""
        return self.ring.hash(f"{attribute}\0{text}".encode())

    def truth(self, attribute: str, value: bool) -> Key:
        """Return the key of a boolean."""
        return self.text(attribute, "true" if value else "false")

    def any(self, attribute: str) -> Key:
        """Return the key of an attribute, whatever its value."""
        return self.text(attribute, "\0any")

    def is_text(self, attribute: str) -> bool:
        """Return whether an attribute is declared to hold strings."""
        declared = None if self.schema is None else self.schema.get(attribute)
        return declared is not None and declared.type is Type.STRING

    def mark(self, attribute: str) -> bytes:
        """Return the name of the scale by which an attribute's numbers lie; empty where the network began with it."""
        return self._marks.get(attribute, b"")

    def line(self, attribute: str, kind: Kind) -> NumberLine:
        """Return the line of an attribute's numbers, or of its timestamps."""
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
        """Return the scale by which an attribute's numbers, or its timestamps, lie in their order."""
        scale = self._scales.get(attribute)
        if scale is not None:
            return scale
        declared = self._declared(attribute, kind)
        return (None if declared is None else Linear.of(declared)) or Codes(kind)

    def _declared(self, attribute: str, kind: Kind) -> Attribute | None:
        """Return the declaration of an attribute; None where it would refuse values of this kind."""
        declared = None if self.schema is None else self.schema.get(attribute)
        return declared if declared is not None and declared.type.kind is kind else None


# -- versions of the scales --------------------------------------------------------------------------------------------

PARTS: Final = 128
"""Parts of equally many values into which an attribute is cut."""
ATTRIBUTES_MAX: Final = 32
"""Attributes that a version has cuts of: it travels in one message."""
WORTH: Final = 1.5
"""How much fuller the fullest stretch of the ring must be than it need be, before a scale is exchanged."""
MADE_MAX: Final = 8
"""Hashings that are kept at hand: those that count, and some that lately did."""

Cuts: TypeAlias = dict[str, tuple[float, ...]]
"""By attribute, where its values are cut."""


def pack_cuts(cuts: Cuts) -> bytes:
    """Pack a version: equal cuts are equal bytes."""
    return msgspec.msgpack.encode(sorted(cuts.items()))


def read_cuts(body: bytes) -> Cuts | None:
    """Read a version; None where it is malformed."""
    try:
        cuts = dict(msgspec.msgpack.decode(body, type=list[tuple[str, tuple[float, ...]]])) if body else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    well = len(cuts) <= ATTRIBUTES_MAX and all(
        0 < len(each) < PARTS and all(map(math.isfinite, each)) for each in cuts.values()
    )
    return cuts if well else None


class HashingVersions:
    """All hashings of one network, by what their versions say."""

    def __init__(
        self, ring: Ring, schema: Schema | None, quantiles: Mapping[str, tuple[float, ...]], *, order_preserving: bool
    ) -> None:
        self._ring = ring
        self._schema = schema
        self._quantiles = quantiles
        self._order_preserving = order_preserving
        self._made: dict[bytes, Hashing] = {}
        self.base = self._make({})
        self.counting: tuple[Hashing, ...] = (self.base,)
        """The hashings by which entries lie and events ask."""
        self.names: tuple[bytes, ...] = ()
        """Their names in messages; none where there is but the base."""

    def count(self, bodies: Sequence[bytes]) -> None:
        """Go by these versions from now on."""
        self.counting = tuple(self._of(body) for body in bodies)
        names = tuple(_digest(body) for body in bodies)
        self.names = () if self.counting == (self.base,) else names
        for name, hashing in zip(names, self.counting, strict=True):
            self._made.pop(name, None)
            self._made[name] = hashing
        for name in [*self._made][:-MADE_MAX]:
            del self._made[name]

    def named(self, names: Sequence[bytes], known: Sequence[bytes]) -> tuple[Hashing, ...] | None:
        """Return the hashings with some names, of versions that count or are known; None where one is unknown."""
        if not names:
            return (self.base,)
        bodies = {_digest(body): body for body in (b"", *known)}
        found = [self._of(bodies[name]) if name in bodies else self._made.get(name) for name in names]
        there = tuple(each for each in found if each is not None)
        return there if len(there) == len(found) else None

    def with_scale(self, attribute: str, mark: bytes) -> Hashing:
        """Return a hashing by which an attribute has a scale of this name; where it is not known, another."""
        made = (each for each in self._made.values() if each.mark(attribute) == mark)
        return next(made, self.base) if mark else self.base

    def improved(self, body: bytes, measured: Mapping[str, MeasuredQuantiles]) -> bytes | None:
        """Return a version with better cuts, as events were measured; None where that is not worth it."""
        now = self._of(body)
        gains: list[tuple[float, str]] = []
        better: Cuts = {}
        for name, line in measured.items():
            values = [value for value in line.values if math.isfinite(value)]
            if not values:
                continue
            best = crowding(self._scale(name, values), values)
            gain = crowding(now.scale(name, line.kind), values) / best
            if gain >= WORTH:
                better[name] = tuple(sorted(set(values)))
                gains.append((-gain, name))
        chosen = {name: better[name] for _, name in sorted(gains)[:ATTRIBUTES_MAX]}
        kept = read_cuts(body) or {}
        room = ATTRIBUTES_MAX - len(chosen)
        kept = {name: kept[name] for name in [name for name in sorted(kept) if name not in chosen][:room]}
        return pack_cuts({**kept, **chosen}) if chosen else None

    def _of(self, body: bytes) -> Hashing:
        found = self._made.get(_digest(body)) if body else self.base
        return self._make(read_cuts(body) or {}) if found is None else found

    def _make(self, cuts: Cuts) -> Hashing:
        scales = {name: self._scale(name, each) for name, each in {**self._quantiles, **cuts}.items()}
        marks = {name: _digest(msgspec.msgpack.encode((name, each))) for name, each in cuts.items()}
        return Hashing(self._ring, self._schema, order_preserving=self._order_preserving, scales=scales, marks=marks)

    def _scale(self, name: str, cuts: Sequence[float]) -> Scale:
        return Quantiles.of(cuts, None if self._schema is None else self._schema.get(name))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8).digest()
