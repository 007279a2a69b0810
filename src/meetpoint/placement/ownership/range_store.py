"""The store of key ranges: what the homes of a node own, what is stored there, and who is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange, meets, without
from meetpoint.placement.messages import Entry

__all__ = ["PLACED", "GivenRange", "OwnedRanges", "RangeListener", "StoredRanges", "cut", "is_on", "joined", "split"]


class GivenRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range that another home gets, or has got and not yet told."""

    number: int
    home: HomeId
    arc: KeyRange
    ending: bool
    """Whether the giver is to end, and tells the other."""
    moved: bool = False
    """Whether the range belongs elsewhere now, and the giver, which goes on, tells the other."""

    @property
    def sought(self) -> bool:
        """Whether the other home claimed it."""
        return not (self.ending or self.moved)


class OwnedRanges(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of what a home owns; `version` counts the changes."""

    version: int
    arcs: tuple[KeyRange, ...]
    given: tuple[GivenRange, ...] = ()
    taken: tuple[tuple[HomeId, int], ...] = ()
    """Ranges that came from other homes, by the number there, until those have forgotten them."""
    placed: bool = True
    """Whether the home has once owned its own place, or knows that it has none; else it still claims it."""

    def arc(self, key: bytes) -> KeyRange | None:
        """Return the range that a key is in."""
        return next((arc for arc in self.arcs if arc.holds(key)), None)


def is_on(entry: Entry, arcs: Sequence[KeyRange]) -> bool:
    """Return whether an entry is in one of some ranges."""
    return any(meets(arc, entry.low, entry.high) for arc in arcs)


def split(owned: OwnedRanges, arc: KeyRange, home: HomeId) -> tuple[GivenRange, OwnedRanges]:
    """Give a home the part of a range that ends at its place."""
    number = owned.version + 1
    given = GivenRange(number, home, KeyRange(arc.low, bytes(home)), ending=False)
    rest = () if arc.high == home else (KeyRange(bytes(home), arc.high),)
    arcs = (*(each for each in owned.arcs if each is not arc), *rest)
    return given, msgspec.structs.replace(owned, version=number, arcs=arcs, given=(*owned.given, given))


def cut(ring: Ring, owned: OwnedRanges, arc: KeyRange, home: HomeId, *, ending: bool) -> tuple[GivenRange, OwnedRanges]:
    """Give a home a range that lies in those owned."""
    number = owned.version + 1
    given = GivenRange(number, home, arc, ending=ending, moved=not ending)
    arcs = without(ring, owned.arcs, (arc,))
    return given, msgspec.structs.replace(owned, version=number, arcs=arcs, given=(*owned.given, given))


def joined(arcs: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the same keys in as few ranges as may be."""
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


OWNED: Final = "custody"
PLACED: Final = "placed/"
"""Records with this prefix are entries; their names go on with whose they are."""


class RangeListener:
    """Is told of the ranges and entries at the homes of a node; a scheme makes its own of it."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Take note that a home owns ranges that it did not own before, of which others may have been told.

        `owed_us` is how long they may still rely on that: 0 where nobody owned the ranges, None where nobody knows.
        """

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may still rely on what a home here has told them, or may have told."""
        return 0

    def ended(self, home: HomeId) -> None:
        """Take note that a home owns nothing here any more."""

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Take note of an entry at a home here."""

    def removed(self, home: HomeId, name: str) -> None:
        """Take note that an entry is gone."""

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """Return what stays at a home here, though the overlay leads it elsewhere (`Rebalancer`)."""
        return ()


class StoredRanges:
    """Keeps the ranges of the homes here and what is stored there, in memory and as records of the homes."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager, listener: RangeListener) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self.listener = listener
        self.owned_ranges: dict[HomeId, OwnedRanges] = {}
        self.entries: dict[HomeId, dict[str, Entry]] = {}
        self.hidden: dict[HomeId, list[KeyRange]] = {}
        """Ranges that homes here own and do not answer for yet: they are not safe."""

    def is_here(self, home: Home) -> bool:
        """Return whether a home still serves here."""
        return self._home_manager.homes.get(home.id) is home

    def is_arc(self, arc: KeyRange) -> bool:
        """Return whether a range of a peer is one of this ring."""
        return self._runtime.ring.holds(arc.low) and self._runtime.ring.holds(arc.high)

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def read(self, home: Home) -> OwnedRanges | None:
        """Return what a home owned when it served last, here or elsewhere."""
        record = home.replicator.records.get(OWNED)
        return (
            None if record is None or record.value is None else msgspec.msgpack.decode(record.value, type=OwnedRanges)
        )

    def begin(self, home: Home, owned: OwnedRanges, owed_us: int | None) -> None:
        """Take note that a home serves here, and owns this."""
        self.owned_ranges[home.id] = owned
        entries = self.entries[home.id] = {}
        stray = []
        for name, record in sorted(home.replicator.records.items()):
            if not name.startswith(PLACED) or record.value is None:
                continue
            entry = msgspec.msgpack.decode(record.value, type=Entry)
            if is_on(entry, owned.arcs) or any(is_on(entry, (given.arc,)) for given in owned.given):
                entries[name.removeprefix(PLACED)] = entry
            else:
                stray.append(name)  # pulled, before the node crashed, for an arc that it did not get
        if stray:
            home.replicator.write((), stray)
        self.listener.began(home.id, owed_us)
        for name, entry in entries.items():
            self.listener.added(home.id, name, entry)

    def end(self, home: HomeId) -> None:
        """Forget a home that serves here no longer."""
        self.hidden.pop(home, None)
        if self.owned_ranges.pop(home, None) is not None:
            del self.entries[home]
            self.listener.ended(home)

    # -- what changes --------------------------------------------------------------------------------------------------

    def write(self, home: Home, owned: OwnedRanges, erased: Sequence[str] = ()) -> None:
        """Have a home own something else from now on, and erase records with that; nobody waits for it."""
        self.owned_ranges[home.id] = owned
        home.replicator.write([(OWNED, msgspec.msgpack.encode(owned))], erased)

    def commit(self, home: Home, owned: OwnedRanges, values: Sequence[tuple[str, bytes]] = ()) -> Signal[None]:
        """Have a home own something else from now on, and write records with that; set when it is safe."""
        self.owned_ranges[home.id] = owned
        return home.replicator.commit([*values, (OWNED, msgspec.msgpack.encode(owned))])

    def gain(
        self,
        home: Home,
        source: tuple[HomeId, int] | None,
        arcs: tuple[KeyRange, ...],
        pulled: dict[str, bytes],
        owed_us: int | None,
        *,
        placed: bool,
    ) -> Signal[None]:
        """Own ranges of which all that is stored is here; set once that is safe, and this home answers for them."""
        before = self.owned_ranges.get(home.id)
        is_first = before is None
        if before is None:
            before = OwnedRanges(0, (), placed=False)
            self.entries[home.id] = {}
        owned = msgspec.structs.replace(
            before,
            version=max(before.version, (home.replicator.epoch - 1) << 32) + 1,  # none twice, whatever was lost
            arcs=joined((*before.arcs, *arcs)),
            taken=before.taken if source is None else (*before.taken, source),
            placed=before.placed or placed,
        )
        hidden = self.hidden.setdefault(home.id, [])
        hidden += arcs

        gained: Signal[None] = Signal()

        def safe(_: object) -> None:
            if not self.is_here(home) or self.hidden.get(home.id) is not hidden:
                return
            for arc in arcs:
                hidden.remove(arc)
            if arcs or is_first:
                self.listener.began(home.id, owed_us)
            for name, value in pulled.items():
                self._add(home, name.removeprefix(PLACED), msgspec.msgpack.decode(value, type=Entry))
            gained.set(None)

        self.commit(home, owned, list(pulled.items())).then(safe)
        return gained

    def _add(self, home: Home, name: str, entry: Entry) -> None:
        if name not in self.entries[home.id]:
            self.entries[home.id][name] = entry
            self.listener.added(home.id, name, entry)

    def drop(self, home: Home, names: list[str]) -> None:
        """Drop entries of a home."""
        entries = self.entries[home.id]
        for name in names:
            if entries.pop(name, None) is not None:
                self.listener.removed(home.id, name)

    def placed_on(self, home: Home, arc: KeyRange, after: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the records of all entries in a range, in the order of their names, from one on."""
        entries = self.entries[home.id]
        for name in sorted(name for name, entry in entries.items() if name > after and is_on(entry, (arc,))):
            yield PLACED + name, msgspec.msgpack.encode(entries[name])
