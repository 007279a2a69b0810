"""Walks through the tree by errands: for events, and for entries that are planted and uprooted (`walking`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.keyed_rpc import KeyedRpc
from meetpoint.placement.entries.installer import Stop
from meetpoint.placement.messages import Entry
from meetpoint.schemes.dmm.entries import read_body
from meetpoint.schemes.dmm.messages import AddEntry, EntryReply, MatchReply, RegionEntry, RemoveEntry, ReviewHalves
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.space import Box, Code
from meetpoint.schemes.dmm.walk import LeafCache, Verdict, Walk

__all__ = ["Walker"]

PAUSE_US: Final = SECOND_US // 5
"""How long a walk waits where things move; doubled each time, up to `PAUSE_US_MAX`."""
PAUSE_US_MAX: Final = 2 * SECOND_US
GAP_ROUNDS: Final = 6
"""After how many pauses in a row a region is told that it misses a half: longer than a split or a merge takes."""


class _OpenWalk:
    """A walk under way."""

    __slots__ = ("alive", "asked", "done", "message", "stepping", "timer", "told", "walk")

    def __init__(self, walk: Walk, message: Callable[[Code], Message], done: Callable[[int], None]) -> None:
        self.walk = walk
        self.message = message
        self.done = done
        self.asked: dict[Code, int] = {}
        self.told: dict[Code, int] = {}  # regions that are told to look at their halves
        self.timer: int | None = None
        self.stepping = False
        self.alive = True


class Walker:
    """All walks that begin at this node; a `Planter`."""

    def __init__(self, services: Runtime) -> None:
        self._services = services
        self.cache = LeafCache()
        self._errands: KeyedRpc
        self._regions: Regions

    def begin(self, errands: KeyedRpc, regions: Regions) -> None:
        """What it needs of the others, who need it first."""
        self._errands = errands
        self._regions = regions

    # -- what is walked to ---------------------------------------------------------------------------------------------

    def to_point(self, code: Code, message: Callable[[Code], Message], done: Callable[[int], None]) -> Stop:
        """Find the leaf around a point; `done` gets how many regions were asked."""
        return self._run(Walk(code, lambda _: (), self.cache.guess(code)), message, done)

    def to_box(self, box: Box, message: Callable[[Code], Message], done: Callable[[int], None]) -> Stop:
        """Find all leaves that a box meets."""
        space = self._regions.space
        goal = space.enclosing(box)

        def below(code: Code) -> list[Code]:
            return [half for half in space.children(code) or () if space.meets(half, box)]

        known = self.cache.find(goal)
        return self._run(Walk(goal, below, len(goal if known is None else known)), message, done)

    def plant(
        self, home: HomeId, number: int, entry: Entry, placed: Callable[[], None], crowded: Callable[[Entry], None]
    ) -> Stop:
        """Place an entry in all leaves that it meets."""
        item = RegionEntry(home, number, entry.body)

        def done(steps: int) -> None:
            self._services.observe("entry_planted", steps)
            placed()

        return self.to_box(self._box(entry), lambda code: AddEntry(code, item), done)

    def uproot(self, home: HomeId, number: int, entry: Entry, done: Callable[[], None]) -> Stop:
        """Take an entry out of all leaves that it meets."""
        return self.to_box(self._box(entry), lambda code: RemoveEntry(code, home, number), lambda _: done())

    def _box(self, entry: Entry) -> Box:
        read = read_body(entry.body, self._regions.space)
        assert read is not None, "an entry of a home here"
        return read.place

    # -- walks under way -----------------------------------------------------------------------------------------------

    def _run(self, walk: Walk, message: Callable[[Code], Message], done: Callable[[int], None]) -> Stop:
        running = _OpenWalk(walk, message, done)
        self._step(running)
        return lambda: self._stop(running)

    def _stop(self, running: _OpenWalk) -> None:
        running.alive = False
        for number in (*running.asked.values(), *running.told.values()):
            self._errands.stop(number)
        if running.timer is not None:
            self._services.cancel(running.timer)

    def _step(self, running: _OpenWalk) -> None:
        """Ask whoever is to be asked."""
        if running.stepping or not running.alive:
            return  # a region here has answered at once; whoever asked it looks again
        running.stepping = True
        walk = running.walk
        while running.alive and (codes := walk.ready()):
            for code in codes:
                self._ask(running, code)
        running.stepping = False
        self._end_or_wait(running)

    def _end_or_wait(self, running: _OpenWalk) -> None:
        walk = running.walk
        if running.alive and walk.is_done:
            self._stop(running)
            running.done(walk.steps)
        elif running.alive and walk.is_paused and running.timer is None:
            wait = min(PAUSE_US << min(walk.rounds, 8), PAUSE_US_MAX)
            running.timer = self._services.after(wait, lambda: self._resume(running))
            if walk.rounds >= GAP_ROUNDS:
                self._tell(running, walk.gaps())

    def _tell(self, running: _OpenWalk, gaps: list[Code]) -> None:
        """Have regions look at their halves, of which one seems to be lost."""
        for code in gaps:
            if code not in running.told:
                running.told[code] = 0
                key, heard = self._regions.key(code), partial(self._has_heard, running, code)
                straight = self._regions.holder(code) is not None
                number = self._errands.run(key, key, ReviewHalves(code), heard, straight=straight)
                if code in running.told:
                    running.told[code] = number

    def _has_heard(self, running: _OpenWalk, code: Code) -> None:
        running.told.pop(code, None)

    def _resume(self, running: _OpenWalk) -> None:
        running.timer = None
        running.walk.resume()
        self._step(running)

    def _ask(self, running: _OpenWalk, code: Code) -> None:
        answers: list[Message] = []

        def done() -> None:
            running.asked.pop(code, None)
            verdict = self._read(answers[0])
            self.cache.learn(code, verdict)
            if running.alive:
                running.walk.answered(code, verdict)
                self._step(running)

        running.asked[code] = 0
        key = self._regions.key(code)
        number = self._errands.run(
            key,
            key,
            running.message(code),
            done,
            answered=lambda answer, _: answers.append(answer),
            straight=self._regions.holder(code) is not None,
        )
        if code in running.asked:
            running.asked[code] = number

    def _read(self, answer: Message) -> Verdict:
        if isinstance(answer, MatchReply | EntryReply):
            return answer.verdict
        self._services.observe("region_malformed")
        return Verdict.BUSY  # after a pause it may be another that answers
