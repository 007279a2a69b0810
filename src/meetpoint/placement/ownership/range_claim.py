"""Range claims: how a home that owns nothing yet comes by its place, or learns that it has none.

Where a home's place follows from its id, it asks the homes that follow it on the ring, and the one in whose range it
lies gives it the part up to its place. Where nodes have places that do not follow from their ids (`Overlay.places`),
no home gives anything for being asked: the rebalancer brings a home what belongs to it.

In both cases it may be that nobody owns what a home claims: all replicas of a home are lost. When a home has asked all
others twice, and nothing changed between, it takes what is missing: its own place, or everything, which is then brought
to where it belongs.
"""

from __future__ import annotations

from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.key_range import KeyRange, without
from meetpoint.placement.messages import ClaimRange, ClaimReply
from meetpoint.placement.ownership.handoff import Handoff
from meetpoint.placement.ownership.home_rpc import HomeRpc
from meetpoint.placement.ownership.range_store import StoredRanges, split

__all__ = ["RangeClaims"]

PAUSE_US: Final = 250_000
"""How long to wait before others are asked again."""
PAUSE_US_MAX: Final = 4_000_000
"""The same, after many rounds, where no home gives anything for being asked."""
REMIND_US: Final = 5_000_000
"""How long a home that claimed a range may take to pull it, before it is told of it."""


class RangeClaims:
    """Claims ranges for the homes here, and answers others' claims. `by_place`: a home's place follows from its id."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        home_manager: HomeManager,
        homes: HomeRpc,
        kept: StoredRanges,
        handoff: Handoff,
        *,
        by_place: bool,
    ) -> None:
        self._runtime = runtime
        self._timeout = settings.query_timeout_us
        self._home_manager = home_manager
        self._homes = homes
        self._kept = kept
        self._handoff = handoff
        self._by_place = by_place
        homes.answer(ClaimRange, self._seek)

    # -- claiming ------------------------------------------------------------------------------------------------------

    def begin(self, home: Home) -> None:
        """Claim until the home has its place; one that has had it does not."""
        self._runtime.start("claim a range", self._claim(home), home.id)

    def _is_placed(self, home: Home) -> bool:
        owned = self._kept.owned_ranges.get(home.id)
        return owned is not None and owned.placed

    async def _claim(self, home: Home) -> None:
        """Ask all homes, round after round; take what is missing once two rounds have heard the same."""
        before: dict[HomeId, int] | None = None  # the versions that the round before heard
        pause_us = PAUSE_US
        while self._kept.is_here(home) and not self._is_placed(home):
            heard = await self._ask_round(home)
            if heard is None:
                return
            versions, arcs, has_merged = heard
            if has_merged and versions == before:
                self._take_missing(home, arcs)
                return
            if not self._by_place and not self._missing(home, arcs):
                self._take_missing(home, arcs)  # nothing: that is always safe
                return
            before = versions
            await self._runtime.sleep(pause_us)
            if not self._by_place:
                pause_us = min(2 * pause_us, PAUSE_US_MAX)

    async def _ask_round(self, home: Home) -> tuple[dict[HomeId, int], list[KeyRange], bool] | None:
        """Ask the homes that follow, nearest first; None where the home has got its place meanwhile, or gets it now.

        Returned are the versions that were heard of stable owners, the ranges that others own, and whether the round
        has heard every home, and knows no fewer homes than any of them.
        """
        heard: dict[HomeId, ClaimReply] = {}
        turn = 0
        while True:
            if self._is_placed(home):
                return None
            homes = self._home_manager.directory.homes()
            following = [each for each in homes if each > home.id] + [each for each in homes if each < home.id]
            if turn >= len(following):
                break
            holder = following[turn]
            reply = await self._homes.ask(holder, ClaimRange(0, holder, home.id), self._timeout)
            turn += 1
            if not isinstance(reply, ClaimReply) or not all(map(self._kept.is_arc, reply.arcs)):
                await self._runtime.sleep(PAUSE_US)
            elif reply.arc is not None and self._kept.is_arc(reply.arc):
                self._handoff.pull(home, holder, reply.number, reply.arc)
                return None
            else:
                heard[holder] = reply
                differs = self._merge(holder, reply.digest)
                if not reply.stable:
                    # A home that does not list this one yet gives it nothing, and learns of it now.
                    turn -= differs
                    await self._runtime.sleep(PAUSE_US)
        versions = {each: reply.version for each, reply in heard.items() if reply.stable}
        own = self._kept.owned_ranges.get(home.id)
        if own is None or not own.given:  # what this home gives away must not seem to be missing either
            versions[home.id] = 0 if own is None else own.version
        merged = all(self._home_manager.directory.has_merged(reply.digest) for reply in heard.values())
        arcs = [arc for each in following if each in heard for arc in heard[each].arcs]
        return versions, arcs, merged and versions.keys() == {home.id, *following}

    def _merge(self, holder: HomeId, digest: bytes) -> bool:
        """Compare lists that differ: a node that has merged those of all homes it lists knows all that serve."""
        host = self._home_manager.directory.host(holder)
        differ = host is not None and host.id != self._runtime.me.id and digest != self._home_manager.directory.digest
        if host is not None and differ:
            self._home_manager.directory.compare(host)
        return differ

    def _missing(self, home: Home, arcs: list[KeyRange]) -> tuple[KeyRange, ...]:
        """Return what nobody owns of what a home may take, where others own these ranges."""
        ring, owned = self._runtime.ring, self._kept.owned_ranges.get(home.id)
        arcs = arcs if owned is None else [*arcs, *owned.arcs]
        if not self._by_place:
            return without(ring, (KeyRange(bytes(home.id), bytes(home.id)),), arcs)
        low = min((arc.high for arc in arcs), key=lambda high: ring.distance(high, home.id), default=home.id)
        return (KeyRange(low, bytes(home.id)),)

    def _take_missing(self, home: Home, arcs: list[KeyRange]) -> None:
        """Take what nobody owns: all replicas of what lay there are lost."""
        missing = self._missing(home, arcs)
        if missing:
            self._runtime.observe("arc_lost")
        self._kept.gain(home, None, missing, {}, None if missing else 0, placed=True)

    # -- answering -----------------------------------------------------------------------------------------------------

    def _seek(self, question: ClaimRange) -> Signal[Reply]:
        home = self._home_manager.homes.get(question.holder)
        owned = self._kept.owned_ranges.get(question.holder)
        digest = self._home_manager.directory.digest
        listed = self._home_manager.directory.host(question.home) is not None
        first = question.home < question.holder  # of two that claim, and wait for each other, the lower takes a gap
        if home is None or owned is None:
            return Signal.of(
                ClaimReply(question.request, None, 0, 0, (), home is not None and listed and first, digest)
            )
        if question.home == question.holder or not listed:
            return Signal.of(ClaimReply(question.request, None, 0, owned.version, owned.arcs, False, digest))
        given = next((each for each in owned.given if each.home == question.home and each.sought), None)
        if given is None:
            arc = owned.arc(question.home) if self._by_place else None
            if arc is None or self._kept.hidden.get(home.id):
                stable = arc is None and not owned.given and (owned.placed or first)
                return Signal.of(ClaimReply(question.request, None, 0, owned.version, owned.arcs, stable, digest))
            given, owned = split(owned, arc, question.home)
            self._kept.write(home, owned)
        gift = given
        answer = ClaimReply(question.request, gift.arc, gift.number, owned.version, owned.arcs, True, digest)

        answered: Signal[Reply] = Signal()

        def safe(_: object) -> None:
            answered.set(answer)
            self._handoff.remind(home, gift, REMIND_US)

        home.replicator.commit().then(safe)
        return answered
