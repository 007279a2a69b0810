"""When regions are split and merged.

A region is split as soon as it is full and `rules.should_split` says that it helps. Two halves are merged as soon as
they are together down to half of what makes one full, so that they are not split again at once.

Where the decision needs it, those who would own the halves are asked for their loads first. A region whose split was
refused is judged again when it has grown. A half that runs low tells its parent, which asks both for their loads and
decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, Reached
from meetpoint.schemes.dmm.entries import RegionStore, StoredRegion
from meetpoint.schemes.dmm.messages import LoadQuery, LoadReply, ReviewHalves, ReviewHalvesAck
from meetpoint.schemes.dmm.region_changes import RegionChanges
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.rules import (
    DmmSettings,
    HolderLoad,
    RegionState,
    SplitCounts,
    ask_again_at,
    should_split,
    split_counts,
)
from meetpoint.schemes.dmm.space import Code, parent

__all__ = ["SplitPolicy"]

SPLIT_AGAIN_US: Final = 10 * SECOND_US
"""How long after a split that was begun the next is begun; doubled each time, up to `AGAIN_US_MAX`."""
LOW_AGAIN_US: Final = 2 * SECOND_US
"""How long after a half told that it runs low it tells so again; doubled each time, up to `AGAIN_US_MAX`."""
AGAIN_US_MAX: Final = 320 * SECOND_US
LOAD_US: Final = 4 * SECOND_US
"""How long the halves may take to tell their loads, and a parent to hear that a half runs low."""


class _Backoff:
    """The time when something may be done again: after a longer pause each time."""

    __slots__ = ("at", "wait")

    def __init__(self) -> None:
        self.at = self.wait = 0

    def later(self, now: int, first_us: int) -> None:
        """Note that it was done now."""
        self.wait = min(2 * self.wait, AGAIN_US_MAX) if self.wait else first_us
        self.at = now + self.wait


class _Review:
    """The decisions about a region, as long as this node owns it."""

    __slots__ = ("asking", "entries", "epoch", "split", "split_from", "tell")

    def __init__(self) -> None:
        self.asking = False
        self.split = _Backoff()
        self.split_from = 0  # with so many entries it is judged again
        self.epoch = 0  # of the split that was begun last
        self.tell = _Backoff()
        self.entries = -1  # how many it had when it told its parent that it runs low


class SplitPolicy:
    """The decisions about all regions here."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        rpc: KeyedRpc,
        store: RegionStore,
        regions: Regions,
        settings: DmmSettings,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._regions = regions
        self._settings = settings
        self.changes = RegionChanges(runtime, home_manager, store, regions, self)
        self._judged: dict[tuple[HomeId, Code], _Review] = {}
        rpc.do(ReviewHalves, self._review_halves)

    def judge(self, home: Home, region: StoredRegion) -> None:
        """Split a leaf at rest that is full, or tell the parent of one that runs low."""
        count, judged, now = len(region.items), self._about(home, region.code), self._runtime.now
        if judged.asking:
            return
        if count > self._settings.threshold and self._settings.delegation != "never":
            if region.record is not None and region.record.epoch != judged.epoch:
                judged.split = _Backoff()  # the last split was not given up
            if count >= judged.split_from and now >= judged.split.at:
                self._consider(home, region, judged)
        elif count <= self._settings.threshold // 2 and region.code:
            if count != judged.entries:
                judged.tell = _Backoff()
            if now >= judged.tell.at:
                self._tell_parent(region.code, judged, count)

    def _about(self, home: Home, code: Code) -> _Review:
        found = self._judged.get((home.id, code))
        if found is None:
            there = {(each, region.code) for each, region in self._store.regions()}
            self._judged = {where: judged for where, judged in self._judged.items() if where in there or judged.asking}
            found = self._judged[home.id, code] = _Review()
        return found

    def _ask(self, judged: _Review, codes: tuple[Code, ...], kind: type[LoadQuery | ReviewHalves],
             then: Callable[[list[Message | None]], None]) -> None:  # fmt: skip
        """Ask regions something; `then` gets the answers, None for each that does not come in time."""
        answers: dict[Code, Message] = {}
        numbers: list[int] = []
        judged.asking = True

        def end() -> None:
            for number in numbers:
                self._regions.stop_asking(number)
            judged.asking = False
            then([answers.get(code) for code in codes])

        def answered(code: Code, answer: Message) -> None:
            answers[code] = answer
            if len(answers) == len(codes):
                self._runtime.cancel(timer)
                self._runtime.after(0, end)  # not before all have been asked

        timer = self._runtime.after(LOAD_US, end)
        numbers += [self._regions.ask(code, kind(code), partial(answered, code)) for code in codes]

    # -- splitting -----------------------------------------------------------------------------------------------------

    def _consider(self, home: Home, region: StoredRegion, judged: _Review) -> None:
        parts, count = self._parts(region), len(region.items)
        here = HolderLoad(self._runtime.me.id, self._store.load)
        if parts is None:
            judged.split_from = ask_again_at(count)  # no split ever parts them
        elif should_split(count, parts.left, parts.right, here, None, self._settings):
            self._split(home, region.code, judged)
        else:
            self._ask(judged, parts.halves, LoadQuery, partial(self._split_if_room, home, region.code, parts, judged))

    def _parts(self, region: StoredRegion) -> SplitCounts | None:
        return split_counts(self._regions.space, region.code, [item.read.place for item in region.items.values()])

    def _split_if_room(
        self, home: Home, code: Code, asked: SplitCounts, judged: _Review, answers: list[Message | None]
    ) -> None:
        """Split a region if those who would own its parts have room, as their loads say."""
        seats = [HolderLoad(each.node, each.load) for each in answers if isinstance(each, LoadReply) and each.load >= 0]
        region = self._regions.at(home, code)
        parts, count = self._parts(region), len(region.items)  # there may be others than before
        if not self._is_idle(home, code) or region.record is None or not region.record.is_at_rest:
            return
        if len(seats) < len(answers) or parts is None or parts.halves != asked.halves:
            judged.epoch = region.record.epoch
            judged.split.later(self._runtime.now, SPLIT_AGAIN_US)
            return
        here = HolderLoad(self._runtime.me.id, self._store.load)
        if should_split(count, parts.left, parts.right, here, (seats[0], seats[1]), self._settings):
            self._split(home, code, judged)
        else:
            self._runtime.observe("region_split_refused", 1, code.encode())
            judged.split_from = ask_again_at(count)

    def _is_idle(self, home: Home, code: Code) -> bool:
        return self._regions.holder(code) is home and self.changes.is_idle(home, code)

    def _split(self, home: Home, code: Code, judged: _Review) -> None:
        judged.split.later(self._runtime.now, SPLIT_AGAIN_US)  # should it be given up
        judged.epoch = self.changes.begin_split(home, code)

    # -- merging -------------------------------------------------------------------------------------------------------

    def _tell_parent(self, code: Code, judged: _Review, count: int) -> None:
        """Tell the parent that few entries are left, now and then."""
        judged.entries = count
        judged.tell.later(self._runtime.now, LOW_AGAIN_US)
        self._ask(judged, (parent(code),), ReviewHalves, lambda answers: None)

    def _review_halves(
        self, home: Home, reached: Reached, review: ReviewHalves, answer: Callable[[Message], None]
    ) -> None:
        """Ask both halves of a region here for their loads: one runs low, or seems to be missing."""
        if not self._regions.space.is_code(review.code) or reached.key != self._regions.key(Code(review.code)):
            self._runtime.observe("region_malformed")
            return
        answer(ReviewHalvesAck())
        code = Code(review.code)
        judged = self._about(home, code)
        halves = self._regions.space.children(code)
        if halves is not None and self._may_merge(home, code) and not judged.asking:
            self._ask(judged, halves, LoadQuery, partial(self._merge_or_reopen, home, code))

    def _merge_or_reopen(self, home: Home, code: Code, answers: list[Message | None]) -> None:
        if not self._may_merge(home, code):
            return
        if any(isinstance(answer, LoadReply) and not answer.known for answer in answers):
            self.changes.reopen(home, code)
            return
        weights = [answer.entries for answer in answers if isinstance(answer, LoadReply) and answer.entries is not None]
        small = len(weights) == len(answers) and 0 <= sum(weights) <= self._settings.threshold // 2
        if small:
            self.changes.begin_merge(home, code)

    def _may_merge(self, home: Home, code: Code) -> bool:
        record = self._regions.at(home, code).record
        return (
            self._is_idle(home, code)
            and record is not None
            and record.state is RegionState.INTERIOR
            and record.is_informed
        )

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at all times."""
        self.changes.check()
