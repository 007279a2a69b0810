"""What a home holds of the circle, as it is kept: its arcs, those on their way to other homes, and how they change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Ring
from meetpoint.rendezvous.arcs import Arc, meets, without
from meetpoint.rendezvous.messages import Entry

__all__ = ["Given", "Holding", "cut", "is_on", "joined", "split"]


class Given(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arc that another home gets, or has got and not yet told."""

    number: int
    home: HomeId
    arc: Arc
    ending: bool
    """Whether the giver is to end, and tells the other."""
    moved: bool = False
    """Whether the arc belongs elsewhere now, and the giver, which goes on, tells the other."""

    @property
    def sought(self) -> bool:
        """Whether the other home asked for it."""
        return not (self.ending or self.moved)


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a home holds, as it is kept; `version` counts the changes."""

    version: int
    arcs: tuple[Arc, ...]
    given: tuple[Given, ...] = ()
    taken: tuple[tuple[HomeId, int], ...] = ()
    """Arcs that came from other homes, by the number there, until those have forgotten them."""
    placed: bool = True
    """Whether the home has once held its own place, or knows that it has none; else it still seeks it."""

    def arc(self, key: bytes) -> Arc | None:
        """The arc that a key lies on."""
        return next((arc for arc in self.arcs if arc.holds(key)), None)


def is_on(entry: Entry, arcs: Sequence[Arc]) -> bool:
    """Whether an entry lies on one of some arcs."""
    return any(meets(arc, entry.low, entry.high) for arc in arcs)


def split(holding: Holding, arc: Arc, home: HomeId) -> tuple[Given, Holding]:
    """Give a home the part of an arc that ends at its place."""
    number = holding.version + 1
    given = Given(number, home, Arc(arc.low, bytes(home)), ending=False)
    rest = () if arc.high == home else (Arc(bytes(home), arc.high),)
    arcs = (*(each for each in holding.arcs if each is not arc), *rest)
    return given, msgspec.structs.replace(holding, version=number, arcs=arcs, given=(*holding.given, given))


def cut(ring: Ring, holding: Holding, arc: Arc, home: HomeId, *, ending: bool) -> tuple[Given, Holding]:
    """Give a home an arc that lies on those held."""
    number = holding.version + 1
    given = Given(number, home, arc, ending=ending, moved=not ending)
    arcs = without(ring, holding.arcs, (arc,))
    return given, msgspec.structs.replace(holding, version=number, arcs=arcs, given=(*holding.given, given))


def joined(arcs: Sequence[Arc]) -> tuple[Arc, ...]:
    """The same keys in as few arcs as may be."""
    left = list(arcs)
    out: list[Arc] = []
    while left:
        arc = left.pop()
        before = next((each for each in (*left, *out) if each.high == arc.low and each != arc), None)
        if before is None or arc.low == arc.high:
            out.append(arc)
            continue
        (left if before in left else out).remove(before)
        left.append(Arc(before.low, arc.high))
    return tuple(sorted(out))
