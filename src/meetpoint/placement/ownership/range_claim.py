"""How a home that holds nothing yet comes by its place, or learns that it has none.

Where a home's place follows from its id, it asks the homes that follow it on the circle, and the one in whose arc it
lies gives it the part up to its place. Where nodes have places that do not follow from their ids (`Overlay.places`),
nobody gives anything for being asked: what belongs to a home is brought to it (`following`).

In both cases it may be that nobody holds what it seeks: all copies of a home are lost. When a home has asked all others
twice, and nothing changed between, it takes what is missing: its own place, or everything, which is then brought to
where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.dissemination.home_queries import HomeQueries
from meetpoint.placement.messages import Seek, Sought
from meetpoint.placement.ownership.handoff import Handoff
from meetpoint.placement.ownership.key_range import KeyRange, without
from meetpoint.placement.ownership.owned_ranges import split
from meetpoint.placement.ownership.range_store import StoredRanges

__all__ = ["RangeClaims"]

PAUSE_US: Final = 250_000
"""How long to wait before others are asked again."""
PAUSE_US_MAX: Final = 4_000_000
"""The same, after many rounds, where nobody gives anything for being asked."""
REMIND_US: Final = 5_000_000
"""How long a home that sought an arc may take to pull it, before it is told of it."""


class RangeClaims:
    """The homes here that seek, and what others are told that do. `by_place`: a home's place follows from its id."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        hosting: HomeManager,
        homes: HomeQueries,
        kept: StoredRanges,
        handing: Handoff,
        *,
        by_place: bool,
    ) -> None:
        self._services = services
        self._timeout = settings.query_timeout_us
        self._hosting = hosting
        self._homes = homes
        self._kept = kept
        self._handing = handing
        self._by_place = by_place
        homes.answer(Seek, self._seek)

    # -- who seeks -----------------------------------------------------------------------------------------------------

    def begin(self, home: Home) -> None:
        """Seek until the home has its place; one that has had it does not."""
        self._ask(home, 0, {}, None)

    def _is_placed(self, home: Home) -> bool:
        holding = self._kept.holdings.get(home.id)
        return holding is not None and holding.placed

    def _ask(
        self,
        home: Home,
        turn: int,
        heard: dict[HomeId, Sought],
        before: dict[HomeId, int] | None,
        pause_us: int = PAUSE_US,
    ) -> None:
        """Ask the homes that follow, nearest first. `before` are the versions that the round before this one heard."""
        if not self._kept.is_here(home) or self._is_placed(home):
            return
        homes = self._hosting.directory.homes()
        following = [each for each in homes if each > home.id] + [each for each in homes if each < home.id]

        def again(at: int, heard: dict[HomeId, Sought]) -> None:
            self._services.after(PAUSE_US, lambda: self._ask(home, at, heard, before, pause_us))

        def answered(reply: Reply | None) -> None:
            if not self._kept.is_here(home):
                return
            if not isinstance(reply, Sought) or not all(map(self._kept.is_arc, reply.arcs)):
                again(turn + 1, heard)
            elif reply.arc is not None and self._kept.is_arc(reply.arc):
                self._handing.pull(home, holder, reply.number, reply.arc)
            elif reply.settled:
                self._merge(holder, reply.digest)
                self._ask(home, turn + 1, {**heard, holder: reply}, before, pause_us)
            else:
                # Who does not list this home yet gives it nothing, and learns of it now.
                again(turn if self._merge(holder, reply.digest) else turn + 1, {**heard, holder: reply})

        if turn < len(following):
            holder = following[turn]
            self._homes.ask(holder, lambda number: Seek(number, holder, home.id), answered, self._timeout)
            return
        versions = {each: reply.version for each, reply in heard.items() if reply.settled}
        own = self._kept.holdings.get(home.id)
        if own is None or not own.given:  # what this home gives away must not seem to be missing either
            versions[home.id] = 0 if own is None else own.version
        merged = all(self._hosting.directory.has_merged(reply.digest) for reply in heard.values())
        arcs = [arc for each in following if each in heard for arc in heard[each].arcs]
        if versions.keys() == {home.id, *following} and merged and versions == before:
            self._take_missing(home, arcs)
        elif not self._by_place and not self._missing(home, arcs):
            self._take_missing(home, arcs)  # nothing: that is always safe
        else:
            longer_us = pause_us if self._by_place else min(2 * pause_us, PAUSE_US_MAX)
            self._services.after(pause_us, lambda: self._ask(home, 0, {}, versions, longer_us))

    def _merge(self, holder: HomeId, digest: bytes) -> bool:
        """Compare lists that differ: who has merged those of all homes in its own knows all homes that serve."""
        host = self._hosting.directory.host(holder)
        differ = host is not None and host.id != self._services.me.id and digest != self._hosting.directory.digest
        if host is not None and differ:
            self._hosting.directory.compare(host, lambda _: None)
        return differ

    def _missing(self, home: Home, arcs: list[KeyRange]) -> tuple[KeyRange, ...]:
        """What nobody holds of what a home may take, where others hold these arcs."""
        ring, holding = self._services.ring, self._kept.holdings.get(home.id)
        arcs = arcs if holding is None else [*arcs, *holding.arcs]
        if not self._by_place:
            return without(ring, (KeyRange(bytes(home.id), bytes(home.id)),), arcs)
        low = min((arc.high for arc in arcs), key=lambda high: ring.distance(high, home.id), default=home.id)
        return (KeyRange(low, bytes(home.id)),)

    def _take_missing(self, home: Home, arcs: list[KeyRange]) -> None:
        """Nobody holds the place of this home: all copies of what lay there are lost."""
        missing = self._missing(home, arcs)
        if missing:
            self._services.observe("arc_lost")
        self._kept.gain(home, None, missing, {}, None if missing else 0, placed=True)

    # -- who is asked --------------------------------------------------------------------------------------------------

    def _seek(self, question: Seek, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self._kept.holdings.get(question.holder)
        digest = self._hosting.directory.digest
        listed = self._hosting.directory.host(question.home) is not None
        first = question.home < question.holder  # of two that seek, and wait for each other, the lower takes a gap
        if home is None or holding is None:
            reply(Sought(question.request, None, 0, 0, (), home is not None and listed and first, digest))
            return
        if question.home == question.holder or not listed:
            reply(Sought(question.request, None, 0, holding.version, holding.arcs, False, digest))
            return
        given = next((each for each in holding.given if each.home == question.home and each.sought), None)
        if given is None:
            arc = holding.arc(question.home) if self._by_place else None
            if arc is None or self._kept.hidden.get(home.id):
                settled = arc is None and not holding.given and (holding.placed or first)
                reply(Sought(question.request, None, 0, holding.version, holding.arcs, settled, digest))
                return
            given, holding = split(holding, arc, question.home)
            self._kept.write(home, holding)
        gift = given
        answer = Sought(question.request, gift.arc, gift.number, holding.version, holding.arcs, True, digest)

        def safe() -> None:
            reply(answer)
            self._handing.remind(home, gift, REMIND_US)

        home.keeper.write((), (), safe)
