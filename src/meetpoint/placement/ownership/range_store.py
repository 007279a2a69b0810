"""What the homes of a node keep of the circle: their arcs, what is placed there, and whoever works with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.key_range import KeyRange
from meetpoint.placement.ownership.owned_ranges import OwnedRanges, is_on, joined

__all__ = ["PLACED", "RangeStore", "StoredRanges"]

CUSTODY: Final = "custody"
PLACED: Final = "placed/"
"""Records with this prefix are entries; their names go on with whose they are."""


class RangeStore:
    """Who works with what is placed at the homes of a node; a scheme makes its own of it."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here that it did not hold before, of which others may have been told.

        `owed_us` is how long they may still rely on that: 0 where nobody held the arcs, None where nobody knows.
        """

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what a home here has told them, or may have told."""
        return 0

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""

    def removed(self, home: HomeId, name: str) -> None:
        """An entry does no longer."""

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """What stays at a home here, though the overlay leads it elsewhere (`following`)."""
        return ()


class StoredRanges:
    """The arcs of the homes here and what is placed there, in memory and as records of the homes."""

    def __init__(self, services: Runtime, hosting: HomeManager, keeping: RangeStore) -> None:
        self._services = services
        self._hosting = hosting
        self.keeping = keeping
        self.holdings: dict[HomeId, OwnedRanges] = {}
        self.entries: dict[HomeId, dict[str, Entry]] = {}
        self.hidden: dict[HomeId, list[KeyRange]] = {}
        """Arcs that homes here hold and do not answer for yet: they are not safe."""

    def is_here(self, home: Home) -> bool:
        """Whether a home still serves here."""
        return self._hosting.homes.get(home.id) is home

    def is_arc(self, arc: KeyRange) -> bool:
        """Whether what came from a peer is an arc of this ring."""
        return self._services.ring.holds(arc.low) and self._services.ring.holds(arc.high)

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def read(self, home: Home) -> OwnedRanges | None:
        """What a home held when it served last, here or elsewhere."""
        record = home.keeper.records.get(CUSTODY)
        return (
            None if record is None or record.value is None else msgspec.msgpack.decode(record.value, type=OwnedRanges)
        )

    def begin(self, home: Home, holding: OwnedRanges, owed_us: int | None) -> None:
        """A home serves here, and holds this."""
        self.holdings[home.id] = holding
        entries = self.entries[home.id] = {}
        stray = []
        for name, record in sorted(home.keeper.records.items()):
            if not name.startswith(PLACED) or record.value is None:
                continue
            entry = msgspec.msgpack.decode(record.value, type=Entry)
            if is_on(entry, holding.arcs) or any(is_on(entry, (given.arc,)) for given in holding.given):
                entries[name.removeprefix(PLACED)] = entry
            else:
                stray.append(name)  # pulled, before the node crashed, for an arc that it did not get
        if stray:
            home.keeper.write((), stray)
        self.keeping.began(home.id, owed_us)
        for name, entry in entries.items():
            self.keeping.added(home.id, name, entry)

    def end(self, home: HomeId) -> None:
        """A home serves here no longer."""
        self.hidden.pop(home, None)
        if self.holdings.pop(home, None) is not None:
            del self.entries[home]
            self.keeping.ended(home)

    # -- what changes --------------------------------------------------------------------------------------------------

    def write(
        self,
        home: Home,
        holding: OwnedRanges,
        values: Sequence[tuple[str, bytes]] = (),
        erased: Sequence[str] = (),
        then: Callable[[], None] | None = None,
    ) -> None:
        """From now on a home holds something else; `then` when that is safe, and what else is written or erased."""
        self.holdings[home.id] = holding
        home.keeper.write([*values, (CUSTODY, msgspec.msgpack.encode(holding))], erased, then)

    def gain(
        self,
        home: Home,
        source: tuple[HomeId, int] | None,
        arcs: tuple[KeyRange, ...],
        pulled: dict[str, bytes],
        owed_us: int | None,
        *,
        placed: bool,
        then: Callable[[], None] | None = None,
    ) -> None:
        """All that was placed on some arcs is here: once that is safe, this home answers for them, and `then`."""
        before = self.holdings.get(home.id)
        is_first = before is None
        if before is None:
            before = OwnedRanges(0, (), placed=False)
            self.entries[home.id] = {}
        holding = msgspec.structs.replace(
            before,
            version=max(before.version, (home.keeper.epoch - 1) << 32) + 1,  # none twice, whatever was lost
            arcs=joined((*before.arcs, *arcs)),
            taken=before.taken if source is None else (*before.taken, source),
            placed=before.placed or placed,
        )
        hidden = self.hidden.setdefault(home.id, [])
        hidden += arcs

        def safe() -> None:
            if not self.is_here(home) or self.hidden.get(home.id) is not hidden:
                return
            for arc in arcs:
                hidden.remove(arc)
            if arcs or is_first:
                self.keeping.began(home.id, owed_us)
            for name, value in pulled.items():
                self._add(home, name.removeprefix(PLACED), msgspec.msgpack.decode(value, type=Entry))
            if then is not None:
                then()

        self.write(home, holding, list(pulled.items()), then=safe)

    def _add(self, home: Home, name: str, entry: Entry) -> None:
        if name not in self.entries[home.id]:
            self.entries[home.id][name] = entry
            self.keeping.added(home.id, name, entry)

    def drop(self, home: Home, names: list[str]) -> None:
        """Entries lie at a home no longer."""
        entries = self.entries[home.id]
        for name in names:
            if entries.pop(name, None) is not None:
                self.keeping.removed(home.id, name)

    def placed_on(self, home: Home, arc: KeyRange, after: str = "") -> Iterator[tuple[str, bytes]]:
        """The records of all entries on an arc, in the order of their names, from one on."""
        entries = self.entries[home.id]
        for name in sorted(name for name, entry in entries.items() if name > after and is_on(entry, (arc,))):
            yield PLACED + name, msgspec.msgpack.encode(entries[name])
