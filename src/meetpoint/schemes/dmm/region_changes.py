"""Splits and merges of the regions whose keys homes here own: what a parent does (`rules`), and when.

Each region that is on its way from one state to another has a *task* here, which sends commands to its children until
they are obeyed. A task begins from the region's record, also after a crash or when the region came from another home,
and ends when the record says something else or is no longer owned here. All of it goes through `_look_at`, which sees
that every region has the task it needs: told of each change, and from time to time, should something have been missed.

A split that cannot be finished in time is given up, since the region refuses changes meanwhile; so is a merge, since
nobody serves what it closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.dmm import rules
from meetpoint.schemes.dmm.entries import RegionStore, StoredRegion, region_entry_name
from meetpoint.schemes.dmm.messages import (
    CloseHalf,
    CloseReply,
    CommandReply,
    DissolveHalf,
    OpenHalf,
    Preload,
    RegionCommand,
    RegionEntry,
)
from meetpoint.schemes.dmm.regions import Regions, pages
from meetpoint.schemes.dmm.rules import RegionRecord, RegionState
from meetpoint.schemes.dmm.space import Box, Code

if TYPE_CHECKING:
    from meetpoint.schemes.dmm.split_policy import SplitPolicy

__all__ = ["RegionChanges", "RegionTask"]

LOOK_US: Final = 5 * SECOND_US
"""How often all regions are looked at."""
SPLIT_US: Final = 8 * SECOND_US
"""How long a split may go on without a page of entries that has arrived; as long the region refuses changes."""
MERGE_US: Final = 4 * SECOND_US
"""How long a merge may go on without a page that has arrived; as long nobody serves what was closed."""
WITHDRAWN_US: Final = 60 * SECOND_US
"""How long a region remembers that an entry was withdrawn: longer than any message is on its way."""
GONE_US: Final = 600 * SECOND_US
"""How long a region that is dissolved is remembered: longer than a message of its parent or an old copy lives."""


class RegionTask:
    """The change of a region that is under way."""

    __slots__ = ("alive", "asked", "code", "home", "left", "record", "timer")

    def __init__(self, home: Home, code: Code, record: RegionRecord) -> None:
        self.home = home
        self.code = code
        self.record = record
        self.asked: dict[Code, int] = {}
        self.timer: int | None = None
        self.left: dict[Code, None] = {}  # children that have not done what is wanted
        self.alive = True

    def is_for(self, record: RegionRecord | None) -> bool:
        """Return whether a region with this record needs this task."""
        own = self.record
        return record is not None and (own.state, own.epoch, own.is_informed) == (
            record.state,
            record.epoch,
            record.is_informed,
        )


class RegionChanges:
    """All tasks at this node. `policy` decides about a leaf that nothing happens to."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        store: RegionStore,
        regions: Regions,
        policy: SplitPolicy,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._store = store
        self._regions = regions
        self._space = regions.space
        self._policy = policy
        self._tasks: dict[tuple[HomeId, Code], RegionTask] = {}
        self._written: dict[tuple[HomeId, Code], tuple[RegionState, int]] = {}  # what was begun here, not taken over
        self._gone: dict[tuple[HomeId, Code], int] = {}  # since when
        self._changed: dict[tuple[HomeId, Code], None] = {}
        regions.changed = self._has_changed

    def look_at_all(self) -> None:
        """Look at all regions, from now on."""
        for key, task in list(self._tasks.items()):
            if self._home_manager.homes.get(key[0]) is not task.home:
                self._stop(task)
        for home, region in self._store.regions():
            self._look_at(home, region.code)
        there = {(home, region.code) for home, region in self._store.regions()}
        for table in (self._written, self._gone):
            for key in [key for key in table if key not in there]:
                del table[key]
        self._runtime.after(LOOK_US, self.look_at_all)

    def begin_split(self, home: Home, code: Code) -> int:
        """Begin to split a leaf at rest, and return the epoch of the split."""
        record = self._regions.at(home, code).record
        assert record is not None
        splitting = rules.begin_split(record)
        self._write(home, code, splitting)
        return splitting.epoch

    def begin_merge(self, home: Home, code: Code) -> None:
        """Begin to make a region a leaf again."""
        record = self._regions.at(home, code).record
        assert record is not None
        self._write(home, code, rules.begin_merge(record))

    def reopen(self, home: Home, code: Code) -> None:
        """Open both halves of a region again, as one is lost."""
        record = self._regions.at(home, code).record
        assert record is not None
        self._write(home, code, rules.reopen(record))

    def is_idle(self, home: Home, code: Code) -> bool:
        """Return whether nothing is being done for a region."""
        return (home.id, code) not in self._tasks

    # -- tasks begin and end -------------------------------------------------------------------------------------------

    def _write(self, home: Home, code: Code, record: RegionRecord) -> None:
        self._written[home.id, code] = (record.state, record.epoch)
        self._regions.write(home, code, record)

    def _has_changed(self, home: Home, code: Code) -> None:
        """Look at a region, once what is being done to it is done."""
        if not self._changed:
            self._runtime.after(0, self._look)
        self._changed[home.id, code] = None

    def _look(self) -> None:
        changed, self._changed = self._changed, {}
        for home, code in changed:
            self._look_at(home, code)

    def _look_at(self, home_id: HomeId, code: Code) -> None:
        """See that a region has the task it needs."""
        task = self._tasks.get((home_id, code))
        home = self._regions.holder(code)
        if home is None or home.id != home_id:
            if task is not None:
                self._stop(task)
            return
        region = self._regions.at(home, code)
        record = region.record
        if task is not None and self._goes_on(task):
            return
        if (
            record is None
            or record.state is RegionState.GONE
            or (record.state is RegionState.INTERIOR and record.is_informed)
        ):
            self._regions.drop_all(home, code)  # what came back with an old copy of the home
            self._forget_later(home, code, record)
        elif record.is_at_rest:
            self._forget_withdrawn(home, region)
            self._policy.judge(home, self._regions.at(home, code))
        elif record.state in (RegionState.EMBRYO, RegionState.FROZEN):
            pass  # its parent goes on
        else:
            self._begin(RegionTask(home, code, record))

    def _begin(self, task: RegionTask) -> None:
        self._tasks[task.home.id, task.code] = task
        if self._written.get((task.home.id, task.code)) != (task.record.state, task.record.epoch):
            self._runtime.observe("region_resumed", 1, str(task.record.state).encode())
        act = {
            RegionState.SPLITTING: self._preload,
            RegionState.INTERIOR: self._open,
            RegionState.MERGING: self._close,
            RegionState.LEAF: self._dissolve,
        }[task.record.state]
        self._regions.when_safe(task.home, lambda: act(task) if self._goes_on(task) else None)

    def _goes_on(self, task: RegionTask) -> bool:
        """Return whether a task is still wanted, and this node's; if not, end it, and begin another where one is
        needed.
        """
        here = task.alive and self._regions.holder(task.code) is task.home
        if here and task.is_for(self._regions.at(task.home, task.code).record):
            return True
        if task.alive:
            self._stop(task)
        return False

    def _stop(self, task: RegionTask) -> None:
        task.alive = False
        self._tasks.pop((task.home.id, task.code), None)
        for number in task.asked.values():
            self._regions.stop_asking(number)
        if task.timer is not None:
            self._runtime.cancel(task.timer)

    def _end(self, task: RegionTask, record: RegionRecord) -> None:
        """End a task that is done, and write the region's new record."""
        self._stop(task)
        now = self._regions.at(task.home, task.code).record
        assert now is not None
        told = max(record.parent_epoch, now.parent_epoch)  # its own parent may have said something meanwhile
        self._write(task.home, task.code, rules.with_parent_epoch(record, told))

    def _command(self, task: RegionTask, child: Code, command: RegionCommand, then: Callable[[Message], None]) -> None:
        """Send a command to a child; `then` gets its answer, unless the task is over by then."""

        def answered(answer: Message) -> None:
            task.asked.pop(child, None)
            if self._goes_on(task):
                then(answer)

        task.asked[child] = 0
        number = self._regions.ask(child, command, answered)
        if child in task.asked:
            task.asked[child] = number

    def _limit(self, task: RegionTask, limit_us: int) -> None:
        """Give a task up, should nothing come of it for a while from now on."""
        if task.timer is not None:
            self._runtime.cancel(task.timer)
        task.timer = self._runtime.after(limit_us, lambda: self._give_up(task))

    def _children(self, task: RegionTask) -> tuple[Code, Code]:
        children = self._space.children(task.code)
        assert children is not None, "only what has halves is split"
        task.left = dict.fromkeys(children)
        return children

    # -- splitting -----------------------------------------------------------------------------------------------------

    def _preload(self, task: RegionTask) -> None:
        self._limit(task, SPLIT_US)
        region = self._regions.at(task.home, task.code)
        items = self._regions.items(task.home, task.code)
        for child in self._children(task):
            lot = [item for item in items if not item.body or self._space.meets(child, self._box(region, item))]
            self._preload_page(task, child, list(pages(lot)))

    def _box(self, region: StoredRegion, item: RegionEntry) -> Box:
        return region.items[region_entry_name(item.home, item.number, region.code)].read.place

    def _preload_page(self, task: RegionTask, child: Code, left: list[list[RegionEntry]]) -> None:
        def answered(answer: Message) -> None:
            if not isinstance(answer, CommandReply) or not answer.done:
                self._give_up(task, _told(answer))
            elif len(left) > 1:
                self._limit(task, SPLIT_US)
                self._preload_page(task, child, left[1:])
            else:
                task.left.pop(child, None)
                if not task.left:
                    self._runtime.observe("region_split", 1, task.code.encode())
                    self._end(task, rules.finish_split(task.record))

        self._command(task, child, Preload(child, task.record.epoch, tuple(left[0])), answered)

    def _give_up(self, task: RegionTask, told: int = 0) -> None:
        if self._goes_on(task):
            self._runtime.observe(f"region_{task.record.state}_given_up", 1, task.code.encode())
            self._end(task, rules.give_up(task.record, told))

    # -- what children must know ---------------------------------------------------------------------------------------

    def _open(self, task: RegionTask) -> None:
        self._regions.drop_all(task.home, task.code)
        self._tell_both(task, OpenHalf)

    def _dissolve(self, task: RegionTask) -> None:
        self._tell_both(task, DissolveHalf)

    def _tell_both(self, task: RegionTask, kind: type[OpenHalf | DissolveHalf]) -> None:
        def answered(child: Code, answer: Message) -> None:
            if not isinstance(answer, CommandReply) or not answer.done:
                self._runtime.observe("region_stray", 1, child.encode())  # it, or its parent, was lost with all copies
            task.left.pop(child, None)
            if not task.left:
                self._end(task, rules.inform_children(task.record))

        for child in self._children(task):
            self._command(task, child, kind(child, task.record.epoch), partial(answered, child))

    # -- merging -------------------------------------------------------------------------------------------------------

    def _close(self, task: RegionTask) -> None:
        self._limit(task, MERGE_US)
        found: dict[tuple[HomeId, int], RegionEntry] = {}
        for child in self._children(task):
            self._close_page(task, child, "", found)

    def _close_page(
        self, task: RegionTask, child: Code, after: str, found: dict[tuple[HomeId, int], RegionEntry]
    ) -> None:
        def answered(answer: Message) -> None:
            if not isinstance(answer, CloseReply) or answer.items is None:
                self._give_up(task, _told(answer))
                return
            for item in answer.items:
                known = found.get((item.home, item.number))
                if known is None or known.body:  # what one of them knows to be withdrawn is withdrawn
                    found[item.home, item.number] = item
            if answer.more and answer.items:
                self._limit(task, MERGE_US)
                last = answer.items[-1]
                self._close_page(task, child, region_entry_name(last.home, last.number, child), found)
                return
            task.left.pop(child, None)
            if not task.left:
                self._take(task, list(found.values()))

        self._command(task, child, CloseHalf(child, task.record.epoch, after), answered)

    def _take(self, task: RegionTask, items: Sequence[RegionEntry]) -> None:
        """Take all entries of both children, which are closed."""
        self._regions.drop_all(task.home, task.code)
        self._regions.put(task.home, task.code, items)
        self._runtime.observe("region_merged", 1, task.code.encode())
        self._end(task, rules.finish_merge(task.record))

    # -- forgetting ----------------------------------------------------------------------------------------------------

    def _forget_withdrawn(self, home: Home, region: StoredRegion) -> None:
        until = self._runtime.now - WITHDRAWN_US
        self._regions.drop(home, [name for name, since in region.withdrawn.items() if since <= until])

    def _forget_later(self, home: Home, code: Code, record: RegionRecord | None) -> None:
        if record is not None and record.state is RegionState.GONE:
            since = self._gone.setdefault((home.id, code), self._runtime.now)
            if self._runtime.now - since >= GONE_US:
                self._regions.forget(home, code)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(task.alive for task in self._tasks.values())


def _told(answer: Message) -> int:
    """Return the epoch that a child that does not obey has heard of."""
    told = answer.parent_epoch if isinstance(answer, CommandReply | CloseReply) else 0
    return told if 0 <= told < rules.EPOCH_MAX else 0
