"""Placing without what is covered (`covering`): one change may place and withdraw entries of many subscriptions.

An acknowledged conjunction has at every moment something placed that covers it: its own entries, those of another that
covers it, or those of one that did, and is not withdrawn yet. Three rules see to that, over crashes and moves too:

- What is no longer wanted stays until all that was open then is known to be placed, and `RETAIN_US` longer. For what
  was open is all that may take its place. What is opened later need not be waited for, so that steady subscribing
  delays nothing for ever. A home that starts counts from then: all that is wanted and not known to be placed is open.
- What is begun is placed to the end, wanted or not, and only then withdrawn: others may wait for it.
- A change is acknowledged when its own entries are placed, and those of all that cover what it does not place.

All of it follows from the subscriptions as they are on disk: which conjunctions are placed is never written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.language.filters.filter import Filter
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.wait_all import when_all
from meetpoint.placement.entries.barrier import Barrier, Lane
from meetpoint.placement.entries.covering import Coverage, Covering
from meetpoint.placement.entries.installer import EntryInstaller
from meetpoint.placement.entries.placement import Kept, Open, Placed, Placement, Places
from meetpoint.placement.messages import Entry

__all__ = ["CoveredPlacement"]

AT_ONCE_MAX: Final = 1_000
"""How many entries of a home are planted or uprooted at a time: thousands may come to light with one that ends."""


class _Here:
    """What is known of one home here, beside its places."""

    __slots__ = ("covering", "lane", "left", "retiring", "starting")

    def __init__(self, coverage: Coverage) -> None:
        self.covering = Covering(coverage)
        self.retiring = Barrier()
        self.lane = Lane(AT_ONCE_MAX)
        self.starting = True
        self.left: list[tuple[str, Places, int]] = []  # what the change under way does without


class CoveredPlacement(Placement):
    """All entries of the homes here, wherever they are placed."""

    def __init__(
        self,
        services: Runtime,
        hosting: HomeManager,
        wanted: Callable[[HomeId, int, Filter, int], Sequence[Entry]],
        planter: EntryInstaller,
        coverage: Coverage,
    ) -> None:
        super().__init__(services, hosting, wanted, planter)
        self._coverage = coverage
        self._here: dict[HomeId, _Here] = {}

    def home_started(self, home: Home) -> None:
        """A home serves here: what it had not finished goes on, and what was to be withdrawn waits for all of it."""
        here = self._here[home.id] = _Here(self._coverage)
        for name in home.filters:
            self._change(home, here, name)
        self._recover(home)
        places = self._places[home.id]
        here.left += [(name, each, number) for name, each in places.items() for number in each.leaving]
        self._follow(home, here, list(dict.fromkeys((*home.filters, *places))))
        here.starting = False

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""
        super().home_stopped(home)
        here = self._here.pop(home, None)
        if here is not None:
            here.lane.close()

    def place(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """A subscription is new, changed or gone: `then` when something placed covers all that its filter needs."""
        here = self._here[home.id]
        touched = self._change(home, here, name)
        safe = self._follow(home, here, list(dict.fromkeys((name, *touched))))
        self._call_after(home, here, [*self._awaited(home, here, name), safe], then)

    def when_placed(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """Call `then` when something placed covers all that a filter needs; at once where it does."""
        here = self._here[home.id]
        waits = self._awaited(home, here, name)
        if waits:
            self._call_after(home, here, waits, then)
        else:
            then()

    def _call_after(
        self, home: Home, here: _Here, waits: Sequence[list[Callable[[], None]]], then: Callable[[], None]
    ) -> None:
        """Call `then` when all that calls these lists has done so, if the home is still here."""

        def all_are_safe() -> None:
            if self._here.get(home.id) is here:
                then()

        one_is_safe = when_all(len(waits), all_are_safe)
        for each in waits:
            each.append(one_is_safe)

    def _change(self, home: Home, here: _Here, name: str) -> list[str]:
        subscription, filter_ = home.subscription(name), home.filters.get(name)
        if subscription is None or filter_ is None:
            return here.covering.change(name, 0, None)
        return here.covering.change(name, subscription.number, filter_)

    def _awaited(self, home: Home, here: _Here, name: str) -> list[list[Callable[[], None]]]:
        """What must be placed before a subscription is acknowledged: what is called when each is."""
        found = []
        for each in (name, *here.covering.coverers(name)):
            places = self._places[home.id].get(each)
            if places is not None:
                found += [
                    places.open[placed.number].then
                    for placed in places.entries.values()
                    if placed.number in places.open
                ]
        return found

    def _follow(self, home: Home, here: _Here, names: Sequence[str]) -> list[Callable[[], None]]:
        """Let what is placed follow subscriptions; what is in the list returned is called when that is on disk."""
        values: list[tuple[str, bytes]] = []
        moved: list[tuple[str, Places, list[int]]] = []
        for name in names:
            version = here.covering.version(name)
            ats = here.covering.placed(name)
            wanted = {} if version is None else self._wanted_for(home.id, *version, ats)
            places = self._places[home.id].get(name)
            if places is None:
                if not wanted:
                    continue  # all of it is covered
                places = self._places[home.id][name] = Places(Kept((), (), True))
            if self._move(home, name, places, wanted):
                values.append(self._record(name, places))
            moved.append((name, places, [number for number, opened in places.open.items() if not opened.begun]))
        safe: list[Callable[[], None]] = [partial(self._go_on, home, *each) for each in moved]
        safe.append(partial(here.retiring.close, here.retiring.open()))  # nothing goes before that it goes is on disk

        def all_safe() -> None:
            for each in safe:
                each()

        home.keeper.write([self._count(home), *values] if values else (), (), all_safe)
        self._retire(home, here)
        return safe

    # -- entries -------------------------------------------------------------------------------------------------------

    def _open(self, home: Home) -> Open:
        here = self._here[home.id]
        opened = Open()
        opened.then = [partial(here.retiring.close, here.retiring.open())]
        return opened

    def _go_on(self, home: Home, name: str, places: Places, numbers: Sequence[int]) -> None:
        if not self._is_here(home, name, places):
            return
        found = [(wanted, placed) for wanted, placed in places.entries.items() if placed.number in numbers]
        found += [(placed.at, placed) for placed in places.leaving.values() if placed.number in numbers]
        lane = self._here[home.id].lane
        for wanted, placed in found:
            opened = places.open.get(placed.number)
            if opened is None or opened.begun:
                continue
            begin = partial(self._plant, home, name, places, wanted, placed)
            if opened.entered:
                begin()  # for the second time, at another place
            else:
                opened.entered = True
                opened.then.append(lane.leave)
                lane.enter(begin)
        self._confirm(home, name, places)

    def _write(self, home: Home, name: str, places: Places, values: Sequence[tuple[str, bytes]]) -> None:
        super()._write(home, name, places, values)
        self._retire(home, self._here[home.id])

    def _leave(self, home: Home, name: str, places: Places, placed: Placed) -> None:
        """An entry is wanted no longer. What is not placed yet is placed nevertheless: others may wait for it."""
        here = self._here[home.id]
        places.leaving[placed.number] = placed
        here.left.append((name, places, placed.number))
        if here.starting and (opened := places.open.pop(placed.number, None)) is not None:
            for each in opened.then:
                each()  # nobody waits for it yet, and it may have been withdrawn before an old copy came back

    def _retire(self, home: Home, here: _Here) -> None:
        left, here.left = here.left, []
        if left:
            here.retiring.when_closed(lambda: self._withdraw_later(home, left))

    def _confirm(self, home: Home, name: str, places: Places) -> None:
        if not (places.entries or places.leaving) and not self._is_held(home, name):
            self._forget(home, name, places)

    def _is_held(self, home: Home, name: str) -> bool:
        return self._here[home.id].covering.version(name) is not None

    def _forget(self, home: Home, name: str, places: Places) -> None:
        """Nothing is placed. Of a subscription that there is, this is kept: an old copy may say that something is."""
        if self._is_held(home, name):
            home.keeper.write([self._record(name, places)])
        else:
            super()._forget(home, name, places)

    def _uproot(self, home: Home, name: str, places: Places, placed: Placed) -> None:
        lane = self._here[home.id].lane

        def done() -> None:
            self._has_withdrawn(home, name, places, placed.number)
            lane.leave()

        def begin() -> None:
            self._planter.uproot(home.id, placed.number, placed.at, done)

        lane.enter(begin)
