"""What is placed for a home's subscriptions, and how that follows their changes.

A scheme says which entries a filter needs. What is placed, or about to be, stands in a record of the home,
`places/NAME`, so that nothing placed is ever forgotten: not after a crash, and not when the home moves.

- A change moves only the difference. What is new is placed first, and the change is acknowledged when all of it is safe
  where it belongs. What is no longer wanted stays for `RETAIN_US` after that: an event that is on its way meets either
  all of the old version or all of the new one, as no attempt to carry it lasts so long (`carrying`).
- Entries have numbers that are never used again, so that a late message brings nothing back for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from meetpoint.language.filters import Filter
from meetpoint.protocol.home import Home
from meetpoint.protocol.hosting import Hosting
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.protocol.messages import Message
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.custody import Custody
from meetpoint.rendezvous.errands import Errands, Reached
from meetpoint.rendezvous.messages import Crowded, Entry, Put, Removed, Stored, Withdraw

__all__ = ["RETAIN_US", "Placing", "entry_name"]

PLACES: Final = "places/"
COUNT: Final = "placements"
RETAIN_US: Final = 20 * MICROSECONDS
"""How long an entry stays after a change that does without it; longer than any attempt to carry an event."""
WITHDRAWN_MAX: Final = 4_096
"""How many withdrawn entries a node remembers, so that a late message does not bring them back."""


class _Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry: its number, and where it is placed: another one than was wanted, where a key is crowded."""

    number: int
    at: Entry


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is placed for one subscription: what it wants; what is to be withdrawn; whether all is known to be there."""

    entries: tuple[tuple[Entry, _Placed], ...]
    leaving: tuple[_Placed, ...]
    confirmed: bool


class _Places:
    """The same in memory."""

    __slots__ = ("entries", "leaving", "open", "waiting")

    def __init__(self, kept: _Kept) -> None:
        self.entries = dict(kept.entries)
        self.leaving = {placed.number: placed for placed in kept.leaving}
        self.open: dict[int, int] = {}  # by number, the errands for what is not known to be there; 0: not yet sent
        self.waiting: list[Callable[[], None]] = []


class Placing:
    """All entries of the homes here, wherever they are placed; and the errands that place entries at homes here."""

    def __init__(
        self,
        services: Services,
        hosting: Hosting,
        custody: Custody,
        errands: Errands,
        wanted: Callable[[HomeId, int, Filter], Sequence[Entry]],
        accept: Callable[[Home, str, Entry, Callable[[Message], None]], None],
        *,
        straight: bool,
        next_key: Callable[[Entry, bytes], bytes | None] | None = None,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._custody = custody
        self._errands = errands
        self._wanted = wanted
        self._accept = accept
        self._straight = straight
        self._places: dict[HomeId, dict[str, _Places]] = {}
        self._counts: dict[HomeId, int] = {}
        self._withdrawn: dict[str, None] = {}
        onward = None if next_key is None else lambda message, after: next_key(message.entry, after)
        errands.do(Put, self._put, onward)
        errands.do(Withdraw, self._withdraw, onward)

    # -- at the home of a subscription ---------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """A home serves here: what it had not finished goes on."""
        places = self._places[home.id] = {}
        record = home.keeper.records.get(COUNT)
        count = 0 if record is None or record.value is None else int.from_bytes(record.value, "big")
        self._counts[home.id] = max(count, (home.keeper.epoch - 1) << 32)  # it may have been lost with all copies
        unsure = []
        for name, record in sorted(home.keeper.records.items()):
            if name.startswith(PLACES) and record.value is not None:
                kept = msgspec.msgpack.decode(record.value, type=_Kept)
                places[name.removeprefix(PLACES)] = _Places(kept)
                if not kept.confirmed:
                    unsure.append(name.removeprefix(PLACES))
        for name in unsure:
            each = places[name]
            each.open = dict.fromkeys((placed.number for placed in each.entries.values()), 0)
        for name in dict.fromkeys((*home.filters, *places)):
            self.place(home, name, lambda: None)

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer: what it had not finished goes on where it serves next."""
        for places in self._places.pop(home, {}).values():
            for errand in places.open.values():
                self._errands.stop(errand)

    def place(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """A subscription is new, changed or gone: `then` when all that its filter needs is placed."""
        places = self._places[home.id].setdefault(name, _Places(_Kept((), (), True)))
        subscription, filter_ = home.subscription(name), home.filters.get(name)
        needed = () if filter_ is None or subscription is None else self._wanted(home.id, subscription.number, filter_)
        wanted = dict.fromkeys(needed)
        new = [entry for entry in wanted if entry not in places.entries]
        old = [entry for entry in places.entries if entry not in wanted]
        places.waiting.append(then)
        for entry in old:
            self._leave(places, places.entries.pop(entry))
        count = self._counts[home.id]
        for entry in new:
            count += 1
            places.entries[entry] = _Placed(count, entry)
            places.open[count] = 0
        self._counts[home.id] = count
        values = [(COUNT, count.to_bytes(8, "big")), self._record(name, places)] if new or old else []
        self._write(home, name, places, values)

    def _leave(self, places: _Places, placed: _Placed) -> None:
        places.leaving[placed.number] = placed
        if placed.number in places.open:
            self._errands.stop(places.open.pop(placed.number))

    def _record(self, name: str, places: _Places) -> tuple[str, bytes]:
        kept = _Kept(tuple(places.entries.items()), tuple(places.leaving.values()), not places.open)
        return PLACES + name, msgspec.msgpack.encode(kept)

    def _is_here(self, home: Home, name: str, places: _Places) -> bool:
        return self._hosting.homes.get(home.id) is home and self._places.get(home.id, {}).get(name) is places

    def _write(self, home: Home, name: str, places: _Places, values: Sequence[tuple[str, bytes]]) -> None:
        numbers = [number for number, errand in places.open.items() if not errand]
        home.keeper.write(values, (), lambda: self._go_on(home, name, places, numbers))

    def _go_on(self, home: Home, name: str, places: _Places, numbers: Sequence[int]) -> None:
        """What is placed is on disk: place what is new, as far as that is on disk too."""
        if not self._is_here(home, name, places):
            return
        for wanted, placed in list(places.entries.items()):
            if placed.number in numbers and places.open.get(placed.number) == 0:
                places.open[placed.number] = -1  # it may be done before it has a number
                errand = self._send(home, name, places, wanted, placed)
                if placed.number in places.open:
                    places.open[placed.number] = errand
        self._confirm(home, name, places)

    def _send(self, home: Home, name: str, places: _Places, wanted: Entry, placed: _Placed) -> int:
        crowded: list[Crowded] = []

        def answered(answer: Message, from_afar: bool) -> None:
            if isinstance(answer, Crowded):
                crowded.append(answer)

        def done() -> None:
            if crowded:
                self._place_at(home, name, places, wanted, placed, crowded[0].at)
            else:
                self._placed(home, name, places, placed.number)

        put = Put(home.id, placed.number, placed.at)
        at = placed.at
        return self._errands.run(at.low, at.high, put, done, answered=answered, straight=self._straight)

    def _place_at(self, home: Home, name: str, places: _Places, wanted: Entry, placed: _Placed, at: Entry) -> None:
        """A key is crowded, and its holder names another one: it is written down before anything goes there."""
        if places.open.pop(placed.number, None) is None or not self._is_here(home, name, places):
            return
        count = self._counts[home.id] = self._counts[home.id] + 1
        places.entries[wanted] = _Placed(count, at)
        places.open[count] = 0
        self._write(home, name, places, [(COUNT, count.to_bytes(8, "big")), self._record(name, places)])

    def _placed(self, home: Home, name: str, places: _Places, number: int) -> None:
        if places.open.pop(number, None) is None or not self._is_here(home, name, places):
            return
        if not places.open:
            home.keeper.write([self._record(name, places)])
        self._confirm(home, name, places)

    def _confirm(self, home: Home, name: str, places: _Places) -> None:
        if places.open:
            return
        waiting, places.waiting = places.waiting, []
        for then in waiting:
            then()
        if places.leaving:
            numbers = tuple(places.leaving)
            self._services.after(RETAIN_US, lambda: self._withdraw_all(home, name, places, numbers))
        elif not places.entries:
            self._forget(home, name, places)

    def _withdraw_all(self, home: Home, name: str, places: _Places, numbers: tuple[int, ...]) -> None:
        if not self._is_here(home, name, places):
            return
        for number in numbers:
            placed = places.leaving.get(number)
            if placed is not None:
                withdraw = Withdraw(home.id, number, placed.at)
                done = partial(self._has_withdrawn, home, name, places, number)
                self._errands.run(placed.at.low, placed.at.high, withdraw, done, straight=self._straight)

    def _has_withdrawn(self, home: Home, name: str, places: _Places, number: int) -> None:
        if not self._is_here(home, name, places) or places.leaving.pop(number, None) is None:
            return
        if places.leaving:
            return
        if places.entries:
            home.keeper.write([self._record(name, places)])
        else:
            self._forget(home, name, places)

    def _forget(self, home: Home, name: str, places: _Places) -> None:
        if not places.open and self._is_here(home, name, places):
            del self._places[home.id][name]
            home.keeper.write((), (PLACES + name,))

    def is_free(self, home: Home) -> bool:
        """Whether nothing is placed for a home."""
        return not self._places.get(home.id)

    # -- at the holder of a key ----------------------------------------------------------------------------------------

    def _put(self, home: Home, reached: Reached, put: Put, answer: Callable[[Message], None]) -> None:
        name = entry_name(put.home, put.number)
        if name in self._withdrawn:
            self._services.observe("entry_late")
            answer(Stored())
            return
        self._accept(home, name, put.entry, answer)

    def _withdraw(self, home: Home, reached: Reached, withdraw: Withdraw, answer: Callable[[Message], None]) -> None:
        name = entry_name(withdraw.home, withdraw.number)
        self._withdrawn[name] = None
        if len(self._withdrawn) > WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]
        self._custody.remove(home, name, lambda: answer(Removed()))


def entry_name(home: HomeId, number: int) -> str:
    """The name of an entry wherever it is placed."""
    return f"{home.hex()}/{number}"
