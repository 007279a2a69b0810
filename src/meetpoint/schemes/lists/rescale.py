"""The scales of the order-preserving hash, changed while brokers run: when that is worth it, and what lies by which.

Brokers agree on versions of all scales (`protocol.versions`); here is what a version says, the cuts of some attributes
(`Quantiles`), and the hashing of each. While two versions count, an entry of a number lies by both, and an event asks
by both. What a version leaves as it is stays where it is: an entry names its attribute's scale, not the version, and
whoever holds a key need know neither, as the value itself is tried.

    no event misses an entry    there is a version by which the event asks under each of its attributes, and by which
                                each entry of the conjunction lies (the invariant of `protocol.versions`)
    none is told twice          what was found is a set of SubIDs, whichever key it was found at

A scale is exchanged only if it crowds values much more than one from the cuts that were measured now: to move entries
costs more than to have them a little uneven.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from meetpoint.language.schema.schema import Schema
from meetpoint.matching.keys.feedback import Line
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Quantiles, Scale, crowding
from meetpoint.schemes.lists.settings import ListsSettings
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = ["PARTS", "Cuts", "HashingVersions", "pack_cuts", "read_cuts"]

PARTS: Final = 128
"""Into how many parts of equally many values an attribute is cut."""
ATTRIBUTES_MAX: Final = 32
"""How many attributes a version has cuts of: it travels in one message."""
WORTH: Final = 1.5
"""How much fuller the fullest stretch of the ring must be than it need be, before a scale is exchanged."""
MADE_MAX: Final = 8
"""How many hashings are kept at hand: those that count, and some that lately did."""

Cuts: TypeAlias = dict[str, tuple[float, ...]]
"""By attribute, where its values are cut."""


def pack_cuts(cuts: Cuts) -> bytes:
    """A version: equal cuts are equal bytes."""
    return msgspec.msgpack.encode(sorted(cuts.items()))


def read_cuts(body: bytes) -> Cuts | None:
    """What a version says; None where it is none."""
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

    def __init__(self, ring: Ring, settings: ListsSettings) -> None:
        self._ring = ring
        self._schema = Schema.from_yaml(settings.schema) if settings.schema else None
        self._settings = settings
        self._made: dict[bytes, Hashing] = {}
        self.base = self._make({})
        self.counting: tuple[Hashing, ...] = (self.base,)
        """By which entries lie and events ask."""
        self.names: tuple[bytes, ...] = ()
        """What they are called on the way; nothing where there is but the base."""

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
        """Those with some names, of versions that are known or lately counted; None where one is not among them."""
        if not names:
            return (self.base,)
        bodies = {_digest(body): body for body in (b"", *known)}
        found = [self._of(bodies[name]) if name in bodies else self._made.get(name) for name in names]
        there = tuple(each for each in found if each is not None)
        return there if len(there) == len(found) else None

    def with_scale(self, attribute: str, mark: bytes) -> Hashing:
        """One by which an attribute has a scale of this name; where it is not known, another."""
        made = (each for each in self._made.values() if each.mark(attribute) == mark)
        return next(made, self.base) if mark else self.base

    def improved(self, body: bytes, measured: Mapping[str, Line]) -> bytes | None:
        """A version with better cuts than another, as events were measured; None where that is not worth it."""
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
        scales = {name: self._scale(name, each) for name, each in {**self._settings.quantiles, **cuts}.items()}
        marks = {name: _digest(msgspec.msgpack.encode((name, each))) for name, each in cuts.items()}
        in_order = self._settings.hash == "order"
        return Hashing(self._ring, self._schema, order_preserving=in_order, scales=scales, marks=marks)

    def _scale(self, name: str, cuts: Sequence[float]) -> Scale:
        return Quantiles.of(cuts, None if self._schema is None else self._schema.get(name))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8).digest()
