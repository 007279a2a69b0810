"""Handoff: a range goes from one home to another, with all that is stored there, owned by at most one of them.

The giver writes so on two disks before anyone hears of it, and answers for the range no longer. The taker pulls what
was stored there, page by page, and answers for it once all is safe. Then the giver forgets it. Each of them goes on
until it is done, also after a restart: what is still to do is part of what it owns (`OwnedRanges.given`, `taken`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import (
    Entry,
    OfferAccepted,
    OfferRange,
    PullRange,
    PullReply,
    RangeForgotten,
    RangeTaken,
    read_body,
)
from meetpoint.placement.ownership.home_rpc import HomeRpc
from meetpoint.placement.ownership.range_store import PLACED, GivenRange, OwnedRanges, StoredRanges, is_on, joined

__all__ = ["Handoff"]

PAGE_BYTES_MAX: Final = 256 << 10
"""About how many bytes of entries are pulled at one time."""
PAGE_MAX: Final = 1_000
WAIT_US: Final = 500_000
"""How long to wait before a question is put again."""


class Handoff:
    """Gives and takes ranges for the homes here. `in_vain`: a home pulled what nobody gives it."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        home_manager: HomeManager,
        homes: HomeRpc,
        kept: StoredRanges,
        in_vain: Callable[[Home], None],
    ) -> None:
        self._runtime = runtime
        self._timeout = settings.query_timeout_us
        self._home_manager = home_manager
        self._homes = homes
        self._kept = kept
        self._in_vain = in_vain
        self._pulling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._telling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._giving: dict[tuple[HomeId, HomeId, int], None] = {}
        homes.answer(PullRange, self._pull)
        homes.answer(RangeTaken, self._took)
        homes.answer(OfferRange, self._take)

    def go_on(self, home: Home, owned: OwnedRanges) -> None:
        """Go on with what was on its way: a home serves here."""
        for source, number in owned.taken:
            self._tell_taken(home, source, number)
        for given in owned.given:
            self.remind(home, given)

    # -- giving --------------------------------------------------------------------------------------------------------

    def give(self, home: Home, owned: OwnedRanges, gifts: Iterable[GivenRange]) -> None:
        """Have a home own this from now on; once that is safe, tell others what they get."""
        gifts = list(gifts)

        def safe(_: object) -> None:
            if self._kept.is_here(home):
                for each in gifts:
                    self.remind(home, each)

        self._kept.commit(home, owned).then(safe)

    def remind(self, home: Home, given: GivenRange, wait_us: int = 0) -> None:
        """Tell another home that it gets a range; go on until it has it, and this one has forgotten it."""
        key = (home.id, given.home, given.number)
        if key not in self._giving:
            self._giving[key] = None
            self._runtime.start("give a range", self._remind(home, given, wait_us), home.id)

    async def _remind(self, home: Home, given: GivenRange, wait_us: int) -> None:
        try:
            if wait_us:
                await self._runtime.sleep(wait_us)
            while (owned := self._kept.owned_ranges.get(home.id)) and given in owned.given:
                entry = self._home_manager.directory.get(given.home)
                if entry is not None and entry.gone:
                    # It ended before it heard of this: what it never had, another may get.
                    self._keep_after_all(home, owned, given)
                    return
                await self._homes.ask(
                    given.home, OfferRange(0, given.home, home.id, given.number, given.arc), self._timeout
                )
                await self._runtime.sleep(self._timeout)
        finally:
            del self._giving[home.id, given.home, given.number]

    def _keep_after_all(self, home: Home, owned: OwnedRanges, given: GivenRange) -> None:
        left = tuple(each for each in owned.given if each != given)
        arcs = joined((*owned.arcs, given.arc))
        self._kept.write(home, msgspec.structs.replace(owned, version=owned.version + 1, arcs=arcs, given=left))

    def _pull(self, question: PullRange) -> Signal[Reply] | None:
        home = self._home_manager.homes.get(question.holder)
        owned = self._kept.owned_ranges.get(question.holder)
        if home is None or owned is None:
            return None  # not here, or not yet: the question comes again
        given = next((each for each in owned.given if each.number == question.number), None)
        if given is None or given.home != question.home:
            return Signal.of(PullReply(question.request, None, False))
        page: list[tuple[str, bytes]] = []
        size = 0
        for name, value in self._kept.placed_on(home, given.arc, question.after):
            if size >= PAGE_BYTES_MAX or len(page) >= PAGE_MAX:
                return Signal.of(PullReply(question.request, tuple(page), True))
            page.append((name, value))
            size += len(value)
        return Signal.of(PullReply(question.request, tuple(page), False, self._kept.listener.owed_us(home.id)))

    def _took(self, question: RangeTaken) -> Signal[Reply] | None:
        home = self._home_manager.homes.get(question.holder)
        owned = self._kept.owned_ranges.get(question.holder)
        if home is None or owned is None:
            return None  # not here, or not yet: the question comes again
        given = next((each for each in owned.given if each.number == question.number), None)
        if given is not None and given.home == question.home:
            left = tuple(each for each in owned.given if each is not given)
            owned = msgspec.structs.replace(owned, given=left)
            arcs = (*owned.arcs, *(each.arc for each in left))
            names = [name for name, entry in self._kept.entries[home.id].items() if not is_on(entry, arcs)]
            self._kept.drop(home, names)
            self._kept.write(home, owned, erased=[PLACED + name for name in names])
        forgotten: Signal[Reply] = Signal()
        home.replicator.commit().then(lambda _: forgotten.set(RangeForgotten(question.request)))
        return forgotten

    # -- getting -------------------------------------------------------------------------------------------------------

    def _take(self, question: OfferRange) -> Signal[Reply] | None:
        home = self._home_manager.homes.get(question.home)
        unknown = self._home_manager.directory.host(question.holder) is None
        if home is None or unknown or not self._kept.is_arc(question.arc):
            return None  # not here, or not yet, or from nobody: the question comes again
        owned = self._kept.owned_ranges.get(question.home, OwnedRanges(0, (), placed=False))
        if any(given.ending for given in owned.given):
            return None  # about to end itself: nothing is to come any more
        if (question.holder, question.number) not in owned.taken:
            self.pull(home, question.holder, question.number, question.arc)
        return Signal.of(OfferAccepted(question.request))

    def pull(self, home: Home, holder: HomeId, number: int, arc: KeyRange) -> None:
        """Pull a range page by page; once all is safe, this home answers for it."""
        key = (home.id, holder, number)
        if key not in self._pulling:
            self._pulling[key] = None
            self._runtime.start("pull a range", self._pull_all(home, holder, number, arc), home.id)

    async def _pull_all(self, home: Home, holder: HomeId, number: int, arc: KeyRange) -> None:
        try:
            pulled, owed_us = await self._pull_pages(home, holder, number)
        finally:
            del self._pulling[home.id, holder, number]
        if pulled is None:
            self._in_vain(home)  # an old offer
        else:
            self._complete(home, (holder, number), arc, pulled, owed_us)

    async def _pull_pages(self, home: Home, holder: HomeId, number: int) -> tuple[dict[str, bytes] | None, int | None]:
        """Return what is stored on a range, and how long others may rely on it; None where nobody gives it."""
        pulled: dict[str, bytes] = {}
        while True:
            last = max(pulled, default=PLACED).removeprefix(PLACED)
            reply = await self._homes.ask(holder, PullRange(0, holder, home.id, number, last), self._timeout)
            if not isinstance(reply, PullReply):
                await self._runtime.sleep(WAIT_US)
                continue
            if reply.records is None:
                return None, None
            page = [each for each in reply.records if _is_entry(*each)]
            if len(page) < len(reply.records):
                self._runtime.observe("entry_malformed", len(reply.records) - len(page))
            pulled.update(page)
            if not reply.more:
                return pulled, reply.owed_us
            if page:
                await home.replicator.commit(page)
            else:
                await self._runtime.sleep(WAIT_US)

    def _complete(
        self, home: Home, source: tuple[HomeId, int], arc: KeyRange, pulled: dict[str, bytes], owed_us: int | None
    ) -> None:
        owned = self._kept.owned_ranges.get(home.id)
        if owned is None or source not in owned.taken:
            gained = self._kept.gain(home, source, (arc,), pulled, owed_us, placed=arc.holds(home.id))
            gained.then(lambda _: self._tell_taken(home, *source))

    def _tell_taken(self, home: Home, holder: HomeId, number: int) -> None:
        """Have the giver forget a range; go on until it has, or is gone."""
        key = (home.id, holder, number)
        if key not in self._telling:
            self._telling[key] = None
            self._runtime.start("tell that a range is taken", self._tell(home, holder, number), home.id)

    async def _tell(self, home: Home, holder: HomeId, number: int) -> None:
        try:
            while True:
                reply = await self._homes.ask(holder, RangeTaken(0, holder, home.id, number), self._timeout)
                entry = self._home_manager.directory.get(holder)
                if isinstance(reply, RangeForgotten) or (entry is not None and entry.gone):
                    break
                await self._runtime.sleep(self._timeout)
        finally:
            del self._telling[home.id, holder, number]
        owned = self._kept.owned_ranges[home.id]
        taken = tuple(each for each in owned.taken if each != (holder, number))
        self._kept.write(home, msgspec.structs.replace(owned, taken=taken))


def _is_entry(name: str, value: bytes) -> bool:
    """Return whether a record that a peer sent is an entry."""
    return name.startswith(PLACED) and read_body(value, Entry) is not None
