"""Placement without what is covered (`covering`): one change may place and withdraw entries of many subscriptions.

An acknowledged conjunction has at every moment something placed that covers it: its own entries, those of another that
covers it, or those of one that did, and is not withdrawn yet. Three rules see to that, over crashes and moves too:

- An entry that is no longer wanted stays until all that was open then is known to be placed, and `RETAIN_US` longer.
  For what was open is all that may take its place. What is opened later need not be waited for (`Barrier`), so that
  steady subscribing delays nothing for ever. A home that starts counts from then: all that is wanted and not known to
  be placed is open.
- An entry that is begun is placed to the end, wanted or not, and only then withdrawn: others may wait for it.
- A change is acknowledged when its own entries are placed, and those of all that cover what it does not place.

All of it follows from the subscriptions as they are on disk: which conjunctions are placed is never written down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import DONE, Signal, all_set
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.covering import Coverage, Covering
from meetpoint.placement.entries.installer import EntryInstaller
from meetpoint.placement.entries.placement import EntrySource, Kept, Open, Placed, PlacedSubscription, Placement

__all__ = ["Barrier", "CoveredPlacement", "Lane"]


class Barrier:
    """Sets a signal once every operation that was open when it was asked for has finished."""

    def __init__(self) -> None:
        self._last = 0
        self._open: set[int] = set()  # only asked, never walked through
        self._order: deque[int] = deque()  # the open tickets, and closed ones behind the first
        self._waiting: deque[tuple[int, Signal[None]]] = deque()

    def open(self) -> int:
        """Begin an operation; return its ticket."""
        self._last += 1
        self._open.add(self._last)
        self._order.append(self._last)
        return self._last

    def close(self, ticket: int) -> None:
        """Finish the operation of a ticket."""
        self._open.discard(ticket)
        self._look()

    def all_closed(self) -> Signal[None]:
        """Return a signal that is set when all operations that are open now have finished."""
        closed: Signal[None] = Signal()
        self._waiting.append((self._last, closed))
        self._look()
        return closed

    def _look(self) -> None:
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
        while self._waiting and (not self._order or self._waiting[0][0] < self._order[0]):
            self._waiting.popleft()[1].set(None)


class Lane:
    """Limits how much is done at a time: what comes when all is taken waits in order."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[Callable[[], None]] = deque()
        self._beginning = False

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` as soon as there is room; `leave` when it is done."""
        self._waiting.append(begin)
        self._go_on()

    def leave(self) -> None:
        """Make room for another."""
        self._free += 1
        self._go_on()

    def close(self) -> None:
        """Begin nothing any more."""
        self._free = 0
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._beginning:
            return  # one that began is done already: the loop below it goes on
        self._beginning = True
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft()()
        self._beginning = False


AT_ONCE_MAX: Final = 1_000
"""How many entries of a home are installed or removed at a time: thousands may come to light with one that ends."""


class _Here:
    """State of one home here, beside its places."""

    __slots__ = ("barrier", "covering", "lane", "left", "starting")

    def __init__(self, coverage: Coverage) -> None:
        self.covering = Covering(coverage)
        self.barrier = Barrier()
        self.lane = Lane(AT_ONCE_MAX)
        self.starting = True
        self.left: list[tuple[str, PlacedSubscription, int]] = []  # what the change under way does without


class CoveredPlacement(Placement):
    """Places the entries of the homes here that no other entry of the same home covers."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        source: EntrySource,
        installer: EntryInstaller,
        coverage: Coverage,
    ) -> None:
        super().__init__(runtime, home_manager, source, installer)
        self._coverage = coverage
        self._here: dict[HomeId, _Here] = {}

    def home_started(self, home: Home) -> None:
        """Go on with what a home that serves here had not finished; what was to be withdrawn waits for all of it."""
        here = self._here[home.id] = _Here(self._coverage)
        for name in home.filters:
            self._change(home, here, name)
        self._recover(home)
        places = self._places[home.id]
        here.left += [(name, each, number) for name, each in places.items() for number in each.leaving]
        self._follow(home, here, list(dict.fromkeys((*home.filters, *places))))
        here.starting = False

    def home_stopped(self, home: HomeId) -> None:
        """Stop what a home has not finished, and begin nothing more for it."""
        super().home_stopped(home)
        here = self._here.pop(home, None)
        if here is not None:
            here.lane.close()

    def place(self, home: Home, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when something placed covers all that it needs."""
        here = self._here[home.id]
        touched = self._change(home, here, name)
        safe = self._follow(home, here, list(dict.fromkeys((name, *touched))))
        return self._while_here(home, here, [*self._awaited(home, here, name), safe])

    def when_placed(self, home: Home, name: str) -> Signal[None]:
        """Return a signal that is set when something placed covers all that a filter needs."""
        here = self._here[home.id]
        waits = self._awaited(home, here, name)
        return self._while_here(home, here, waits) if waits else DONE

    def _while_here(self, home: Home, here: _Here, waits: Sequence[Signal[None]]) -> Signal[None]:
        """Return a signal that is set when all of these are, if the home is still here."""
        placed: Signal[None] = Signal()

        def all_are_set(_: object) -> None:
            if self._here.get(home.id) is here:
                placed.set(None)

        all_set(waits).then(all_are_set)
        return placed

    def _change(self, home: Home, here: _Here, name: str) -> list[str]:
        subscription, filter_ = home.subscription(name), home.filters.get(name)
        if subscription is None or filter_ is None:
            return here.covering.change(name, 0, None)
        return here.covering.change(name, subscription.number, filter_)

    def _awaited(self, home: Home, here: _Here, name: str) -> list[Signal[None]]:
        """Return a signal for each entry that must be placed before a subscription is acknowledged."""
        found = []
        for each in (name, *here.covering.coverers(name)):
            places = self._places[home.id].get(each)
            if places is not None:
                found += [
                    places.open[placed.number].placed
                    for placed in places.entries.values()
                    if placed.number in places.open
                ]
        return found

    def _follow(self, home: Home, here: _Here, names: Sequence[str]) -> Signal[None]:
        """Let what is placed follow subscriptions; set when that is on disk, and has begun."""
        values: list[tuple[str, bytes]] = []
        moved: list[tuple[str, PlacedSubscription, list[int]]] = []
        for name in names:
            version = here.covering.version(name)
            ats = here.covering.placed(name)
            wanted = {} if version is None else self._wanted_for(home.id, *version, ats)
            places = self._places[home.id].get(name)
            if places is None:
                if not wanted:
                    continue  # all of it is covered
                places = self._places[home.id][name] = PlacedSubscription(Kept((), (), True))
            if self._move(home, name, places, wanted):
                values.append(self._record(name, places))
            moved.append((name, places, [number for number, opened in places.open.items() if not opened.begun]))
        ticket = here.barrier.open()  # nothing goes before that it goes is on disk

        def begin(_: object) -> None:
            for each in moved:
                self._go_on(home, *each)
            here.barrier.close(ticket)

        safe = home.replicator.commit([self._count(home), *values] if values else ())
        safe.then(begin)
        self._retire(home, here)
        return safe

    # -- entries -------------------------------------------------------------------------------------------------------

    def _open(self, home: Home) -> Open:
        here = self._here[home.id]
        opened = Open()
        ticket = here.barrier.open()
        opened.placed.then(lambda _: here.barrier.close(ticket))
        return opened

    def _go_on(self, home: Home, name: str, places: PlacedSubscription, numbers: Sequence[int]) -> None:
        if not self._is_here(home, name, places):
            return
        found = [(wanted, placed) for wanted, placed in places.entries.items() if placed.number in numbers]
        found += [(placed.at, placed) for placed in places.leaving.values() if placed.number in numbers]
        lane = self._here[home.id].lane
        for wanted, placed in found:
            opened = places.open.get(placed.number)
            if opened is None or opened.begun:
                continue
            begin = partial(self._install, home, name, places, wanted, placed)
            if opened.entered:
                begin()  # for the second time, at another place
            else:
                opened.entered = True
                opened.placed.then(lambda _: lane.leave())
                lane.enter(begin)
        self._confirm(home, name, places)

    def _write(self, home: Home, name: str, places: PlacedSubscription, values: Sequence[tuple[str, bytes]]) -> None:
        super()._write(home, name, places, values)
        self._retire(home, self._here[home.id])

    def _leave(self, home: Home, name: str, places: PlacedSubscription, placed: Placed) -> None:
        """Let an entry leave. One that is not there yet is placed nevertheless: others may wait for it."""
        here = self._here[home.id]
        places.leaving[placed.number] = placed
        here.left.append((name, places, placed.number))
        if here.starting and (opened := places.open.pop(placed.number, None)) is not None:
            opened.placed.set(None)  # nobody waits for it, and it may have been withdrawn before an old copy came back

    def _retire(self, home: Home, here: _Here) -> None:
        left, here.left = here.left, []
        if left:
            here.barrier.all_closed().then(lambda _: self._withdraw_later(home, left))

    def _confirm(self, home: Home, name: str, places: PlacedSubscription) -> None:
        if not (places.entries or places.leaving) and not self._is_held(home, name):
            self._forget(home, name, places)

    def _is_held(self, home: Home, name: str) -> bool:
        return self._here[home.id].covering.version(name) is not None

    def _forget(self, home: Home, name: str, places: PlacedSubscription) -> None:
        """Forget what was placed. Of a subscription that there is, a record stays: an old copy may say more."""
        if self._is_held(home, name):
            home.replicator.write([self._record(name, places)])
        else:
            super()._forget(home, name, places)

    def _uninstall(self, home: Home, name: str, places: PlacedSubscription, placed: Placed) -> None:
        lane = self._here[home.id].lane

        def done(_: object) -> None:
            self._has_withdrawn(home, name, places, placed.number)
            lane.leave()

        def begin() -> None:
            self._installer.uninstall(home.id, placed.number, placed.at).then(done)

        lane.enter(begin)
