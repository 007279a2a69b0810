"""What a home holds of the circle, as it is kept: its arcs, those on their way to other homes, and how they change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.key_range import KeyRange, meets, without

__all__ = ["GivenRange", "OwnedRanges", "cut", "is_on", "joined", "split"]


class GivenRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arc that another home gets, or has got and not yet told."""

    number: int
    home: HomeId
    arc: KeyRange
    ending: bool
    """Whether the giver is to end, and tells the other."""
    moved: bool = False
    """Whether the arc belongs elsewhere now, and the giver, which goes on, tells the other."""

    @property
    def sought(self) -> bool:
        """Whether the other home asked for it."""
        return not (self.ending or self.moved)


class OwnedRanges(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a home holds, as it is kept; `version` counts the changes."""

    version: int
    arcs: tuple[KeyRange, ...]
    given: tuple[GivenRange, ...] = ()
    taken: tuple[tuple[HomeId, int], ...] = ()
    """Arcs that came from other homes, by the number there, until those have forgotten them."""
    placed: bool = True
    """Whether the home has once held its own place, or knows that it has none; else it still seeks it."""

    def arc(self, key: bytes) -> KeyRange | None:
        """The arc that a key lies on."""
        return next((arc for arc in self.arcs if arc.holds(key)), None)


def is_on(entry: Entry, arcs: Sequence[KeyRange]) -> bool:
    """Whether an entry lies on one of some arcs."""
    return any(meets(arc, entry.low, entry.high) for arc in arcs)


def split(holding: OwnedRanges, arc: KeyRange, home: HomeId) -> tuple[GivenRange, OwnedRanges]:
    """Give a home the part of an arc that ends at its place."""
    number = holding.version + 1
    given = GivenRange(number, home, KeyRange(arc.low, bytes(home)), ending=False)
    rest = () if arc.high == home else (KeyRange(bytes(home), arc.high),)
    arcs = (*(each for each in holding.arcs if each is not arc), *rest)
    return given, msgspec.structs.replace(holding, version=number, arcs=arcs, given=(*holding.given, given))


def cut(
    ring: Ring, holding: OwnedRanges, arc: KeyRange, home: HomeId, *, ending: bool
) -> tuple[GivenRange, OwnedRanges]:
    """Give a home an arc that lies on those held."""
    number = holding.version + 1
    given = GivenRange(number, home, arc, ending=ending, moved=not ending)
    arcs = without(ring, holding.arcs, (arc,))
    return given, msgspec.structs.replace(holding, version=number, arcs=arcs, given=(*holding.given, given))


def joined(arcs: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """The same keys in as few arcs as may be."""
    left = list(arcs)
    out: list[KeyRange] = []
    while left:
        arc = left.pop()
        before = next((each for each in (*left, *out) if each.high == arc.low and each != arc), None)
        if before is None or arc.low == arc.high:
            out.append(arc)
            continue
        (left if before in left else out).remove(before)
        left.append(KeyRange(before.low, arc.high))
    return tuple(sorted(out))
