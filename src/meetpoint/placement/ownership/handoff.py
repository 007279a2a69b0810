"""How an arc gets from one home to another: with all that was placed there, and held by at most one of them.

Who gives an arc writes so on two disks before anyone hears of it, and answers for it no longer. Who gets it pulls what
was placed there, page by page, and answers for it once all is safe. Then the giver forgets it. Each of them goes on
until it is done, also after a restart: what is still to do is part of what it holds (`OwnedRanges.given`, `taken`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.decode import read_body
from meetpoint.placement.dissemination.home_queries import HomeQueries
from meetpoint.placement.messages import Entry, Forgot, Pull, Pulled, Take, Taken, Took
from meetpoint.placement.ownership.key_range import KeyRange
from meetpoint.placement.ownership.owned_ranges import GivenRange, OwnedRanges, is_on, joined
from meetpoint.placement.ownership.range_store import PLACED, StoredRanges

__all__ = ["Handoff"]

PAGE_BYTES_MAX: Final = 256 << 10
"""About how many bytes of entries are pulled at one time."""
PAGE_MAX: Final = 1_000
WAIT_US: Final = 500_000
"""How long to wait before a question is put again."""


class Handoff:
    """What is on its way to and from the homes here. `in_vain`: a home pulled what nobody gives it."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        hosting: HomeManager,
        homes: HomeQueries,
        kept: StoredRanges,
        in_vain: Callable[[Home], None],
    ) -> None:
        self._services = services
        self._timeout = settings.query_timeout_us
        self._hosting = hosting
        self._homes = homes
        self._kept = kept
        self._in_vain = in_vain
        self._pulling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._telling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._giving: dict[tuple[HomeId, HomeId, int], None] = {}
        homes.answer(Pull, self._pull)
        homes.answer(Took, self._took)
        homes.answer(Take, self._take)

    def go_on(self, home: Home, holding: OwnedRanges) -> None:
        """A home serves here: see to what was on its way."""
        for source, number in holding.taken:
            self._tell_taken(home, source, number)
        for given in holding.given:
            self.remind(home, given)

    # -- giving --------------------------------------------------------------------------------------------------------

    def give(self, home: Home, holding: OwnedRanges, gifts: Iterable[GivenRange]) -> None:
        """From now on a home holds this; once that is safe, others are told of what they get."""
        gifts = list(gifts)

        def safe() -> None:
            if self._kept.is_here(home):
                for each in gifts:
                    self.remind(home, each)

        self._kept.write(home, holding, then=safe)

    def remind(self, home: Home, given: GivenRange, wait_us: int = 0) -> None:
        """Tell another home that it gets an arc; goes on until it has it, and this one has forgotten it."""
        key = (home.id, given.home, given.number)
        if key in self._giving:
            return
        self._giving[key] = None

        def ask() -> None:
            holding = self._kept.holdings.get(home.id)
            if not self._kept.is_here(home) or holding is None or given not in holding.given:
                del self._giving[key]
                return
            entry = self._hosting.directory.get(given.home)
            if entry is not None and entry.gone:
                # It ended before it heard of this: what it never had, another may get.
                del self._giving[key]
                self._keep_after_all(home, holding, given)
                return
            self._homes.ask(
                given.home,
                lambda each: Take(each, given.home, home.id, given.number, given.arc),
                lambda _: (self._services.after(self._timeout, ask), None)[1],
                self._timeout,
            )

        if wait_us:
            self._services.after(wait_us, ask)
        else:
            ask()

    def _keep_after_all(self, home: Home, holding: OwnedRanges, given: GivenRange) -> None:
        left = tuple(each for each in holding.given if each != given)
        arcs = joined((*holding.arcs, given.arc))
        self._kept.write(home, msgspec.structs.replace(holding, version=holding.version + 1, arcs=arcs, given=left))

    def _pull(self, question: Pull, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self._kept.holdings.get(question.holder)
        if home is None or holding is None:
            return  # not here, or not yet: the question comes again
        given = next((each for each in holding.given if each.number == question.number), None)
        if given is None or given.home != question.home:
            reply(Pulled(question.request, None, False))
            return
        page: list[tuple[str, bytes]] = []
        size = 0
        for name, value in self._kept.placed_on(home, given.arc, question.after):
            if size >= PAGE_BYTES_MAX or len(page) >= PAGE_MAX:
                reply(Pulled(question.request, tuple(page), True))
                return
            page.append((name, value))
            size += len(value)
        reply(Pulled(question.request, tuple(page), False, self._kept.keeping.owed_us(home.id)))

    def _took(self, question: Took, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self._kept.holdings.get(question.holder)
        if home is None or holding is None:
            return  # not here, or not yet: the question comes again
        given = next((each for each in holding.given if each.number == question.number), None)
        if given is not None and given.home == question.home:
            left = tuple(each for each in holding.given if each is not given)
            holding = msgspec.structs.replace(holding, given=left)
            arcs = (*holding.arcs, *(each.arc for each in left))
            names = [name for name, entry in self._kept.entries[home.id].items() if not is_on(entry, arcs)]
            self._kept.drop(home, names)
            self._kept.write(home, holding, erased=[PLACED + name for name in names])
        home.keeper.write((), (), lambda: reply(Forgot(question.request)))

    # -- getting -------------------------------------------------------------------------------------------------------

    def _take(self, question: Take, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.home)
        unknown = self._hosting.directory.host(question.holder) is None
        if home is None or unknown or not self._kept.is_arc(question.arc):
            return  # not here, or not yet, or from nobody: the question comes again
        holding = self._kept.holdings.get(question.home, OwnedRanges(0, (), placed=False))
        if any(given.ending for given in holding.given):
            return  # about to end itself: nothing is to come any more
        if (question.holder, question.number) not in holding.taken:
            self.pull(home, question.holder, question.number, question.arc)
        reply(Taken(question.request))

    def pull(self, home: Home, holder: HomeId, number: int, arc: KeyRange) -> None:
        """Pull page by page; once all is safe, this home answers for the arc."""
        key = (home.id, holder, number)
        if key in self._pulling:
            return
        self._pulling[key] = None
        pulled: dict[str, bytes] = {}

        def answered(reply: Reply | None) -> None:
            if not self._kept.is_here(home):
                self._pulling.pop(key, None)
            elif not isinstance(reply, Pulled):
                self._services.after(WAIT_US, ask)
            elif reply.records is None:
                del self._pulling[key]  # an old offer
                self._in_vain(home)
            else:
                page = [each for each in reply.records if _is_entry(*each)]
                if len(page) < len(reply.records):
                    self._services.observe("entry_malformed", len(reply.records) - len(page))
                pulled.update(page)
                if not reply.more:
                    del self._pulling[key]
                    self._complete(home, (holder, number), arc, pulled, reply.owed_us)
                elif page:
                    home.keeper.write(page, (), ask)
                else:
                    self._services.after(WAIT_US, ask)

        def ask() -> None:
            if self._kept.is_here(home):
                last = max(pulled, default=PLACED).removeprefix(PLACED)
                self._homes.ask(holder, lambda each: Pull(each, holder, home.id, number, last), answered, self._timeout)
            else:
                self._pulling.pop(key, None)

        ask()

    def _complete(
        self, home: Home, source: tuple[HomeId, int], arc: KeyRange, pulled: dict[str, bytes], owed_us: int | None
    ) -> None:
        holding = self._kept.holdings.get(home.id)
        if holding is None or source not in holding.taken:
            then = lambda: self._tell_taken(home, *source)  # noqa: E731 - read beside the rest
            self._kept.gain(home, source, (arc,), pulled, owed_us, placed=arc.holds(home.id), then=then)

    def _tell_taken(self, home: Home, holder: HomeId, number: int) -> None:
        """Have the giver forget an arc; goes on until it has, or is gone."""
        key = (home.id, holder, number)
        if key in self._telling:
            return
        self._telling[key] = None

        def answered(reply: Reply | None) -> None:
            entry = self._hosting.directory.get(holder)
            holding = self._kept.holdings.get(home.id)
            if not self._kept.is_here(home) or holding is None:
                del self._telling[key]
            elif isinstance(reply, Forgot) or (entry is not None and entry.gone):
                del self._telling[key]
                taken = tuple(each for each in holding.taken if each != (holder, number))
                self._kept.write(home, msgspec.structs.replace(holding, taken=taken))
            else:
                self._services.after(self._timeout, ask)

        def ask() -> None:
            self._homes.ask(holder, lambda each: Took(each, holder, home.id, number), answered, self._timeout)

        ask()


def _is_entry(name: str, value: bytes) -> bool:
    """Whether a record that a peer sent is an entry."""
    return name.startswith(PLACED) and read_body(value, Entry) is not None
