"""What is placed for a home's subscriptions, and how that follows their changes.

A scheme says which entries a filter needs. What is placed, or about to be, stands in a record of the home,
`places/NAME`, so that nothing placed is ever forgotten: not after a crash, and not when the home moves.

- A change moves only the difference. What is new is placed first, and the change is acknowledged when all of it is safe
  where it belongs. What is no longer wanted stays for `RETAIN_US` after that: an event that is on its way meets either
  all of the old version or all of the new one, as no attempt to carry it lasts so long (`carrying`).
- Entries have numbers that are never used again, so that a late message brings nothing back for long.

How an entry gets to where it belongs is the planter's (`planting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.language.filters.filter import Filter
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.installer import EntryInstaller, Stop
from meetpoint.placement.messages import Entry

__all__ = ["RETAIN_US", "Kept", "Open", "Placed", "Placement", "Places"]

PLACES: Final = "places/"
COUNT: Final = "placements"
RETAIN_US: Final = 20 * SECOND_US
"""How long an entry stays after a change that does without it; longer than any attempt to carry an event."""


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry: its number, and where it is placed: another one than was wanted, where a key is crowded."""

    number: int
    at: Entry


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is placed for one subscription: what it wants; what is to be withdrawn; whether all is known to be there."""

    entries: tuple[tuple[Entry, Placed], ...]
    leaving: tuple[Placed, ...]
    confirmed: bool


class Open:
    """A placement that is not known to be there: how it is stopped, once it is begun, and what is to be done then."""

    __slots__ = ("begun", "entered", "stop", "then")

    def __init__(self) -> None:
        self.begun = False
        self.entered = False  # the lane, where there is one
        self.stop: Stop = _not_yet
        self.then: list[Callable[[], None]] = []


class Places:
    """The same in memory."""

    __slots__ = ("entries", "leaving", "open", "waiting")

    def __init__(self, kept: Kept) -> None:
        self.entries = dict(kept.entries)
        self.leaving = {placed.number: placed for placed in kept.leaving}
        self.open: dict[int, Open] = {}  # by number, what is not known to be there
        self.waiting: list[Callable[[], None]] = []


class Placement:
    """All entries of the homes here, wherever they are placed."""

    def __init__(
        self,
        services: Runtime,
        hosting: HomeManager,
        wanted: Callable[[HomeId, int, Filter, int], Sequence[Entry]],
        planter: EntryInstaller,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._wanted = wanted
        self._planter = planter
        self._places: dict[HomeId, dict[str, Places]] = {}
        self._counts: dict[HomeId, int] = {}

    def home_started(self, home: Home) -> None:
        """A home serves here: what it had not finished goes on."""
        self._recover(home)
        for name in dict.fromkeys((*home.filters, *self._places[home.id])):
            self.place(home, name, lambda: None)

    def _recover(self, home: Home) -> None:
        places = self._places[home.id] = {}
        record = home.keeper.records.get(COUNT)
        count = 0 if record is None or record.value is None else int.from_bytes(record.value, "big")
        self._counts[home.id] = max(count, (home.keeper.epoch - 1) << 32)  # it may have been lost with all copies
        for name, record in sorted(home.keeper.records.items()):
            if name.startswith(PLACES) and record.value is not None:
                kept = msgspec.msgpack.decode(record.value, type=Kept)
                each = places[name.removeprefix(PLACES)] = Places(kept)
                if not kept.confirmed:
                    each.open = {placed.number: self._open(home) for placed in each.entries.values()}

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer: what it had not finished goes on where it serves next."""
        for places in self._places.pop(home, {}).values():
            for opened in places.open.values():
                opened.stop()

    def place(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """A subscription is new, changed or gone: `then` when all that its filter needs is placed."""
        places = self._places[home.id].setdefault(name, Places(Kept((), (), True)))
        subscription, filter_ = home.subscription(name), home.filters.get(name)
        wanted: dict[Entry, None] = {}
        if filter_ is not None and subscription is not None:
            ats = range(len(filter_.conjunctions))
            wanted = self._wanted_for(home.id, subscription.number, filter_, ats)
        places.waiting.append(then)
        moved = self._move(home, name, places, wanted)
        self._write(home, name, places, [self._count(home), self._record(name, places)] if moved else [])

    def when_placed(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """Call `then` when all that is wanted for a subscription is placed; at once where it is."""
        places = self._places[home.id].get(name)
        if places is None or not places.open:
            then()
        else:
            places.waiting.append(then)

    def _wanted_for(self, home: HomeId, number: int, filter_: Filter, ats: Iterable[int]) -> dict[Entry, None]:
        """What some conjunctions of a filter need."""
        return {entry: None for at in ats for entry in self._wanted(home, number, filter_, at)}

    def _move(self, home: Home, name: str, places: Places, wanted: dict[Entry, None]) -> bool:
        """What is wanted is to be placed, and nothing else; whether that is news."""
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

    def _leave(self, home: Home, name: str, places: Places, placed: Placed) -> None:
        """An entry is wanted no longer. What is not placed yet need not be: what is new takes its place."""
        places.leaving[placed.number] = placed
        opened = places.open.pop(placed.number, None)
        if opened is not None:
            opened.stop()

    def _count(self, home: Home) -> tuple[str, bytes]:
        return COUNT, self._counts[home.id].to_bytes(8, "big")

    def _record(self, name: str, places: Places) -> tuple[str, bytes]:
        kept = Kept(tuple(places.entries.items()), tuple(places.leaving.values()), not places.open)
        return PLACES + name, msgspec.msgpack.encode(kept)

    def _is_here(self, home: Home, name: str, places: Places) -> bool:
        return self._hosting.homes.get(home.id) is home and self._places.get(home.id, {}).get(name) is places

    def _write(self, home: Home, name: str, places: Places, values: Sequence[tuple[str, bytes]]) -> None:
        numbers = [number for number, opened in places.open.items() if not opened.begun]
        home.keeper.write(values, (), lambda: self._go_on(home, name, places, numbers))

    def _go_on(self, home: Home, name: str, places: Places, numbers: Sequence[int]) -> None:
        """What is placed is on disk: place what is new, as far as that is on disk too."""
        if not self._is_here(home, name, places):
            return
        for wanted, placed in list(places.entries.items()):
            if placed.number in numbers:
                self._plant(home, name, places, wanted, placed)
        self._confirm(home, name, places)

    def _plant(self, home: Home, name: str, places: Places, wanted: Entry, placed: Placed) -> None:
        number = placed.number
        opened = places.open.get(number)
        if opened is None or opened.begun:
            return
        opened.begun = True  # it may be done before it can be stopped
        stop = self._planter.plant(
            home.id,
            number,
            placed.at,
            partial(self._placed, home, name, places, number),
            partial(self._place_at, home, name, places, wanted, number),
        )
        if places.open.get(number) is opened:
            opened.stop = stop

    def _place_at(self, home: Home, name: str, places: Places, wanted: Entry, number: int, at: Entry) -> None:
        """A key is crowded, and its holder names another one: it is written down before anything goes there."""
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

    def _placed(self, home: Home, name: str, places: Places, number: int) -> None:
        opened = places.open.pop(number, None)
        if opened is None or not self._is_here(home, name, places):
            return
        if not places.open:
            home.keeper.write([self._record(name, places)])
        for each in opened.then:
            each()
        self._confirm(home, name, places)

    def _confirm(self, home: Home, name: str, places: Places) -> None:
        if places.open:
            return
        waiting, places.waiting = places.waiting, []
        for then in waiting:
            then()
        if places.leaving:
            self._withdraw_later(home, [(name, places, number) for number in places.leaving])
        elif not places.entries:
            self._forget(home, name, places)

    def _withdraw_later(self, home: Home, leaving: Sequence[tuple[str, Places, int]]) -> None:
        def withdraw() -> None:
            for name, places, number in leaving:
                placed = places.leaving.get(number)
                if placed is not None and self._is_here(home, name, places):
                    self._uproot(home, name, places, placed)

        self._services.after(RETAIN_US, withdraw)

    def _uproot(self, home: Home, name: str, places: Places, placed: Placed) -> None:
        done = partial(self._has_withdrawn, home, name, places, placed.number)
        self._planter.uproot(home.id, placed.number, placed.at, done)

    def _has_withdrawn(self, home: Home, name: str, places: Places, number: int) -> None:
        if not self._is_here(home, name, places) or places.leaving.pop(number, None) is None:
            return
        if places.leaving:
            return
        if places.entries:
            home.keeper.write([self._record(name, places)])
        else:
            self._forget(home, name, places)

    def _forget(self, home: Home, name: str, places: Places) -> None:
        if not (places.open or places.waiting) and self._is_here(home, name, places):
            del self._places[home.id][name]
            home.keeper.write((), (PLACES + name,))

    def is_free(self, home: Home) -> bool:
        """Whether nothing is placed for a home."""
        return not self._places.get(home.id)


def _not_yet() -> None:
    """Stops what cannot be stopped yet."""
