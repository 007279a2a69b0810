"""Placement: keeps the stored entries in step with the subscriptions of a home.

A scheme says which entries a filter needs. What is placed, or about to be, stands in a record of the home,
`places/NAME`, so that nothing placed is ever forgotten: not after a crash, and not when the home moves.

- A change moves only the difference. New entries are placed first, and the change is acknowledged when all of it is
  safe where it belongs. Entries that are no longer wanted stay for `RETAIN_US` after that: an event that is on its way
  meets either all of the old version or all of the new one, as no publish attempt lasts so long (`dissemination`).
- Entries have numbers that are never used again, so that a late message brings nothing back for long.

An `EntryInstaller` brings an entry to where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.language.filters.filter import Filter
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import DONE, Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.installer import EntryInstaller, Stop
from meetpoint.placement.messages import Entry

__all__ = ["RETAIN_US", "EntrySource", "Kept", "Open", "Placed", "PlacedSubscription", "Placement"]

PLACES: Final = "places/"
COUNT: Final = "placements"
RETAIN_US: Final = 20 * SECOND_US
"""How long an entry stays after a change that does without it; longer than any publish attempt."""


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry: its number, and its place, which is another than wanted where a key has many entries."""

    number: int
    at: Entry


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of one subscription: its entries; those to withdraw; whether all are known to be there."""

    entries: tuple[tuple[Entry, Placed], ...]
    leaving: tuple[Placed, ...]
    confirmed: bool


class Open:
    """An entry that is not known to be there: how its installation is stopped, and a signal for when it is there."""

    __slots__ = ("begun", "entered", "placed", "stop")

    def __init__(self) -> None:
        self.begun = False
        self.entered = False  # the lane, where there is one
        self.stop: Stop = _not_yet
        self.placed: Signal[None] = Signal()


class PlacedSubscription:
    """The entries of one subscription, in memory."""

    __slots__ = ("entries", "leaving", "open", "waiting")

    def __init__(self, kept: Kept) -> None:
        self.entries = dict(kept.entries)
        self.leaving = {placed.number: placed for placed in kept.leaving}
        self.open: dict[int, Open] = {}  # by number, what is not known to be there
        self.waiting: list[Signal[None]] = []


class EntrySource(Protocol):
    """Says which entries a filter needs."""

    def entries_for(self, home: HomeId, number: int, filter_: Filter, at: int) -> Sequence[Entry]:
        """Return the entries for one conjunction of a subscription of a home, which has a number there."""


class Placement:
    """Places the entries of the homes here, wherever they belong."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        source: EntrySource,
        installer: EntryInstaller,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._source = source
        self._installer = installer
        self._places: dict[HomeId, dict[str, PlacedSubscription]] = {}
        self._counts: dict[HomeId, int] = {}

    def home_started(self, home: Home) -> None:
        """Go on with what a home that serves here had not finished."""
        self._recover(home)
        for name in dict.fromkeys((*home.filters, *self._places[home.id])):
            self.place(home, name)

    def _recover(self, home: Home) -> None:
        places = self._places[home.id] = {}
        record = home.replicator.records.get(COUNT)
        count = 0 if record is None or record.value is None else int.from_bytes(record.value, "big")
        self._counts[home.id] = max(count, (home.replicator.epoch - 1) << 32)  # it may have been lost with all copies
        for name, record in sorted(home.replicator.records.items()):
            if name.startswith(PLACES) and record.value is not None:
                kept = msgspec.msgpack.decode(record.value, type=Kept)
                each = places[name.removeprefix(PLACES)] = PlacedSubscription(kept)
                if not kept.confirmed:
                    each.open = {placed.number: self._open(home) for placed in each.entries.values()}

    def home_stopped(self, home: HomeId) -> None:
        """Stop what a home has not finished: it goes on where the home serves next."""
        for places in self._places.pop(home, {}).values():
            for opened in places.open.values():
                opened.stop()

    def place(self, home: Home, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when all that its filter needs is there."""
        places = self._places[home.id].setdefault(name, PlacedSubscription(Kept((), (), True)))
        subscription, filter_ = home.subscription(name), home.filters.get(name)
        wanted: dict[Entry, None] = {}
        if filter_ is not None and subscription is not None:
            ats = range(len(filter_.conjunctions))
            wanted = self._wanted_for(home.id, subscription.number, filter_, ats)
        placed: Signal[None] = Signal()
        places.waiting.append(placed)
        moved = self._move(home, name, places, wanted)
        self._write(home, name, places, [self._count(home), self._record(name, places)] if moved else [])
        return placed

    def when_placed(self, home: Home, name: str) -> Signal[None]:
        """Return a signal that is set when all that is wanted for a subscription is there."""
        places = self._places[home.id].get(name)
        if places is None or not places.open:
            return DONE
        placed: Signal[None] = Signal()
        places.waiting.append(placed)
        return placed

    def _wanted_for(self, home: HomeId, number: int, filter_: Filter, ats: Iterable[int]) -> dict[Entry, None]:
        """Return the entries that some conjunctions of a filter need."""
        return {entry: None for at in ats for entry in self._source.entries_for(home, number, filter_, at)}

    def _move(self, home: Home, name: str, places: PlacedSubscription, wanted: dict[Entry, None]) -> bool:
        """Open the entries that are wanted, and let all others leave; return whether that is news."""
        new = [entry for entry in wanted if entry not in places.entries]
        old = [entry for entry in places.entries if entry not in wanted]
        for entry in old:
            self._leave(home, name, places, places.entries.pop(entry))
        for entry in new:
            count = self._counts[home.id] = self._counts[home.id] + 1
            places.entries[entry] = Placed(count, entry)
            places.open[count] = self._open(home)
        return bool(new or old)

    def _open(self, home: Home) -> Open:
        return Open()

    def _leave(self, home: Home, name: str, places: PlacedSubscription, placed: Placed) -> None:
        """Let an entry leave; one that is not there yet need not come: what is new takes its place."""
        places.leaving[placed.number] = placed
        opened = places.open.pop(placed.number, None)
        if opened is not None:
            opened.stop()

    def _count(self, home: Home) -> tuple[str, bytes]:
        return COUNT, self._counts[home.id].to_bytes(8, "big")

    def _record(self, name: str, places: PlacedSubscription) -> tuple[str, bytes]:
        kept = Kept(tuple(places.entries.items()), tuple(places.leaving.values()), not places.open)
        return PLACES + name, msgspec.msgpack.encode(kept)

    def _is_here(self, home: Home, name: str, places: PlacedSubscription) -> bool:
        return self._home_manager.homes.get(home.id) is home and self._places.get(home.id, {}).get(name) is places

    def _write(self, home: Home, name: str, places: PlacedSubscription, values: Sequence[tuple[str, bytes]]) -> None:
        numbers = [number for number, opened in places.open.items() if not opened.begun]
        home.replicator.commit(values).then(lambda _: self._go_on(home, name, places, numbers))

    def _go_on(self, home: Home, name: str, places: PlacedSubscription, numbers: Sequence[int]) -> None:
        """Install what is new, as far as its record is on disk."""
        if not self._is_here(home, name, places):
            return
        for wanted, placed in list(places.entries.items()):
            if placed.number in numbers:
                self._install(home, name, places, wanted, placed)
        self._confirm(home, name, places)

    def _install(self, home: Home, name: str, places: PlacedSubscription, wanted: Entry, placed: Placed) -> None:
        number = placed.number
        opened = places.open.get(number)
        if opened is None or opened.begun:
            return
        opened.begun = True  # it may be done before it can be stopped
        installation = self._installer.install(home.id, number, placed.at)
        opened.stop = installation.stop
        installation.ended.then(partial(self._installed, home, name, places, wanted, number))

    def _installed(
        self, home: Home, name: str, places: PlacedSubscription, wanted: Entry, number: int, instead: Entry | None
    ) -> None:
        if instead is None:
            self._placed(home, name, places, number)
        else:
            self._place_at(home, name, places, wanted, number, instead)

    def _place_at(
        self, home: Home, name: str, places: PlacedSubscription, wanted: Entry, number: int, at: Entry
    ) -> None:
        """Place an entry elsewhere, as the owner of its crowded key says: that is on disk before it goes there."""
        opened = places.open.pop(number, None)
        if opened is None or not self._is_here(home, name, places):
            return
        opened.begun, opened.stop = False, _not_yet
        count = self._counts[home.id] = self._counts[home.id] + 1
        places.open[count] = opened
        if number in places.leaving:
            del places.leaving[number]
            self._leave(home, name, places, Placed(count, at))
        else:
            places.entries[wanted] = Placed(count, at)
        self._write(home, name, places, [self._count(home), self._record(name, places)])

    def _placed(self, home: Home, name: str, places: PlacedSubscription, number: int) -> None:
        opened = places.open.pop(number, None)
        if opened is None or not self._is_here(home, name, places):
            return
        if not places.open:
            home.replicator.write([self._record(name, places)])
        opened.placed.set(None)
        self._confirm(home, name, places)

    def _confirm(self, home: Home, name: str, places: PlacedSubscription) -> None:
        if places.open:
            return
        waiting, places.waiting = places.waiting, []
        for signal in waiting:
            signal.set(None)
        if places.leaving:
            self._withdraw_later(home, [(name, places, number) for number in places.leaving])
        elif not places.entries:
            self._forget(home, name, places)

    def _withdraw_later(self, home: Home, leaving: Sequence[tuple[str, PlacedSubscription, int]]) -> None:
        def withdraw() -> None:
            for name, places, number in leaving:
                placed = places.leaving.get(number)
                if placed is not None and self._is_here(home, name, places):
                    self._uninstall(home, name, places, placed)

        self._runtime.after(RETAIN_US, withdraw)

    def _uninstall(self, home: Home, name: str, places: PlacedSubscription, placed: Placed) -> None:
        gone = self._installer.uninstall(home.id, placed.number, placed.at)
        gone.then(lambda _: self._has_withdrawn(home, name, places, placed.number))

    def _has_withdrawn(self, home: Home, name: str, places: PlacedSubscription, number: int) -> None:
        if not self._is_here(home, name, places) or places.leaving.pop(number, None) is None:
            return
        if places.leaving:
            return
        if places.entries:
            home.replicator.write([self._record(name, places)])
        else:
            self._forget(home, name, places)

    def _forget(self, home: Home, name: str, places: PlacedSubscription) -> None:
        if not (places.open or places.waiting) and self._is_here(home, name, places):
            del self._places[home.id][name]
            home.replicator.write((), (PLACES + name,))

    def is_free(self, home: Home) -> bool:
        """Return whether nothing is placed for a home."""
        return not self._places.get(home.id)


def _not_yet() -> None:
    """Stop nothing: the installation has not begun."""
