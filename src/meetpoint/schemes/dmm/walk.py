"""Walks through the region tree, from a point or a box to the leaves that serve it: for events, and for entries.

`Walk` is pure: it says which regions are to be asked, and takes what they answer. `Walker` asks them by keyed requests.

Nobody knows the tree; each region knows whether it is a leaf, has been split (*interior*), or is not there (*absent*).
On the way from the root to any point there is one leaf, the regions above it are interior and those below it absent. So
its depth is found by binary search on the length of the code, between the deepest region that is known to be interior
and the shallowest that is known to be absent. A box is walked in parts: the first is the smallest region around it. A
part that is interior becomes those of its halves that the box meets; one whose leaf lies further up is served there.

The tree changes during a walk. A region that says it cannot serve now, and answers that contradict each other, end a
part's search: after a pause it begins anew, as the tree will be at rest by then. What was served stays served: splits
and merges of regions carry entries along. So a walk is done when the regions that served it cover it.

Deviation: the paper sends an event to the smallest region around it and then up, region by region (section 4.1.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.installer import Installation, Stop
from meetpoint.placement.messages import Entry
from meetpoint.schemes.dmm.entries import read_body
from meetpoint.schemes.dmm.messages import (
    AddEntry,
    EntryReply,
    MatchReply,
    MatchRequest,
    RegionEntry,
    RemoveEntry,
    ReviewHalves,
)
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.rules import Verdict
from meetpoint.schemes.dmm.space import Box, Code

__all__ = ["ASKED_MAX", "CACHE_MAX", "LeafCache", "Walk", "Walker"]


ASKED_MAX: Final = 16
"""Regions that one walk asks at one time."""
CACHE_MAX: Final = 4_096
"""Leaves that a node remembers."""


class _Part:
    """A region that is to be covered: by a leaf at or above it, or by leaves below it."""

    __slots__ = ("asked", "code", "high", "low", "near")

    def __init__(self, code: Code, low: int, near: Sequence[int]) -> None:
        self.code = code
        self.low = low  # the length of the deepest prefix known to be interior
        self.high = len(code) + 1  # of the shallowest known to be absent
        self.near = list(near)  # lengths to try first
        self.asked = Code("")

    def next(self) -> Code:
        """Choose the prefix to ask, and return it."""
        length = (self.low + self.high) // 2
        while self.near:
            near = self.near.pop(0)
            if self.low < near < self.high:
                length = near
                break
        self.asked = Code(self.code[:length])
        return self.asked

    def begin_anew(self) -> None:
        """Forget what was known, as it does not hold any more; what was asked last is asked first."""
        last = len(self.asked)
        self.low, self.high, self.near = -1, len(self.code) + 1, [last, last - 1, last + 1]


class Walk:
    """A walk.

    `goal` is the smallest region around what is walked to; `below` names the halves of a region that it meets; `guess`
    is how deep a leaf at or above the goal may lie, if there is anything to guess from.
    """

    def __init__(self, goal: Code, below: Callable[[Code], Iterable[Code]], guess: int | None = None) -> None:
        self._below = below
        near = [] if guess is None else [guess, guess + 1, guess - 1]  # it may have been split or merged since
        first = _Part(goal, -1, near)
        self._parts: dict[Code, _Part] = {goal: first}  # none lies in another
        self._fresh: deque[_Part] = deque([first])
        self._asked: dict[Code, list[_Part]] = {}
        self._paused: list[_Part] = []
        self.steps = 0
        """The number of regions that were asked."""
        self.rounds = 0
        """The number of pauses since something was served."""

    @property
    def is_done(self) -> bool:
        """Return whether all is served."""
        return not self._parts

    @property
    def is_paused(self) -> bool:
        """Return whether some part waits to begin anew."""
        return any(map(self._is_open, self._paused))

    def _is_open(self, part: _Part) -> bool:
        return self._parts.get(part.code) is part

    def ready(self) -> list[Code]:
        """Return the regions to ask now, none twice at a time; each is to be answered."""
        out: list[Code] = []
        while self._fresh and len(self._asked) < ASKED_MAX:
            part = self._fresh.popleft()
            if not self._is_open(part):
                continue
            code = part.next()
            if code in self._asked:
                self._asked[code].append(part)
            else:
                self._asked[code] = [part]
                out.append(code)
        self.steps += len(out)
        return out

    def answered(self, code: Code, verdict: Verdict) -> None:
        """Take the answer of a region."""
        parts = [part for part in self._asked.pop(code, ()) if self._is_open(part)]
        if verdict is Verdict.SERVED:
            self.rounds = 0
            under = [code] if code in self._parts else [each for each in self._parts if each.startswith(code)]
            for served in under:
                del self._parts[served]
            return
        for part in parts:
            if verdict is Verdict.BUSY:
                self._paused.append(part)
            elif verdict is Verdict.ABSENT:
                self._search(part, part.low, min(part.high, len(code)))
            elif code == part.code:
                self._descend(part)
            else:
                self._search(part, max(part.low, len(code)), part.high)

    def _search(self, part: _Part, low: int, high: int) -> None:
        part.low, part.high = low, high
        # Interior, and the next one absent: things move.
        (self._fresh if high - low > 1 else self._paused).append(part)

    def _descend(self, part: _Part) -> None:
        halves = list(self._below(part.code))
        if not halves:
            self._paused.append(part)  # it cannot be interior
            return
        del self._parts[part.code]
        for half in halves:
            self._parts[half] = _Part(half, len(part.code), ())
            self._fresh.append(self._parts[half])

    def gaps(self) -> list[Code]:
        """Return interior regions of which a half is said to be absent."""
        gaps = [part for part in self._paused if self._is_open(part) and 0 <= part.low == part.high - 1]
        return list(dict.fromkeys(Code(part.code[: part.low]) for part in gaps))

    def resume(self) -> None:
        """Go on after a pause."""
        self.rounds += 1
        paused, self._paused = self._paused, []
        for part in filter(self._is_open, paused):
            part.begin_anew()
            self._fresh.append(part)


class LeafCache:
    """Leaves as walks found them. Nothing depends on it: a region that is no leaf any more says so."""

    def __init__(self, limit: int = CACHE_MAX) -> None:
        self._limit = limit
        self._leaves: dict[Code, None] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def find(self, goal: Code) -> Code | None:
        """Return the deepest leaf that is known at or above a region."""
        for length in range(len(goal), -1, -1):
            code = Code(goal[:length])
            if code in self._leaves:
                del self._leaves[code]
                self._leaves[code] = None  # the one that was used last is forgotten last
                return code
        return None

    def guess(self, goal: Code) -> int | None:
        """Return how deep the leaf at or above a region may lie: as it was known, else as deep as another one."""
        leaf = self.find(goal)
        leaf = next(reversed(self._leaves), None) if leaf is None else leaf
        return None if leaf is None else len(leaf)

    def learn(self, code: Code, verdict: Verdict) -> None:
        """Learn from the answer of a region."""
        self._leaves.pop(code, None)
        if verdict is Verdict.SERVED:
            for length in range(len(code)):
                self._leaves.pop(Code(code[:length]), None)
            self._leaves[code] = None
            if len(self._leaves) > self._limit:
                del self._leaves[next(iter(self._leaves))]


# -- walks on the network ----------------------------------------------------------------------------------------------

PAUSE_US: Final = SECOND_US // 5
"""How long a walk waits where regions change; doubled each time, up to `PAUSE_US_MAX`."""
PAUSE_US_MAX: Final = 2 * SECOND_US
GAP_ROUNDS: Final = 6
"""Pauses in a row after which a region is told that it misses a half: longer than a split or a merge takes."""


WalkMessage: TypeAlias = MatchRequest | AddEntry | RemoveEntry
"""A message to each region of a walk, with the region's code."""


class _OpenWalk:
    """A walk under way."""

    __slots__ = ("alive", "asked", "done", "message", "stepping", "timer", "told", "walk")

    def __init__(self, walk: Walk, message: WalkMessage, done: Callable[[int], None]) -> None:
        self.walk = walk
        self.message = message
        self.done = done
        self.asked: dict[Code, int] = {}
        self.told: dict[Code, int] = {}  # regions that are told to look at their halves
        self.timer: int | None = None
        self.stepping = False
        self.alive = True


class Walker:
    """All walks that begin at this node; an `EntryInstaller`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.cache = LeafCache()
        self._regions: Regions

    def begin(self, regions: Regions) -> None:
        """Set the regions to walk through, which are made after this."""
        self._regions = regions

    # -- what is walked to ---------------------------------------------------------------------------------------------

    def to_point(self, code: Code, message: WalkMessage, done: Callable[[int], None]) -> Stop:
        """Find the leaf around a point; `done` gets how many regions were asked."""
        return self._run(Walk(code, lambda _: (), self.cache.guess(code)), message, done)

    def to_box(self, box: Box, message: WalkMessage, done: Callable[[int], None]) -> Stop:
        """Find all leaves that a box meets."""
        space = self._regions.space
        goal = space.enclosing(box)

        def below(code: Code) -> list[Code]:
            return [half for half in space.children(code) or () if space.meets(half, box)]

        known = self.cache.find(goal)
        return self._run(Walk(goal, below, len(goal if known is None else known)), message, done)

    def install(self, home: HomeId, number: int, entry: Entry) -> Installation:
        """Place an entry in all leaves that it meets."""
        item = RegionEntry(home, number, entry.body)
        ended: Signal[Entry | None] = Signal()

        def done(steps: int) -> None:
            self._runtime.observe("entry_planted", steps)
            ended.set(None)

        return Installation(ended, self.to_box(self._box(entry), AddEntry("", item), done))

    def uninstall(self, home: HomeId, number: int, entry: Entry) -> Signal[None]:
        """Take an entry out of all leaves that it meets."""
        gone: Signal[None] = Signal()
        self.to_box(self._box(entry), RemoveEntry("", home, number), lambda _: gone.set(None))
        return gone

    def _box(self, entry: Entry) -> Box:
        read = read_body(entry.body, self._regions.space)
        assert read is not None, "an entry of a home here"
        return read.place

    # -- walks under way -----------------------------------------------------------------------------------------------

    def _run(self, walk: Walk, message: WalkMessage, done: Callable[[int], None]) -> Stop:
        running = _OpenWalk(walk, message, done)
        self._step(running)
        return lambda: self._stop(running)

    def _stop(self, running: _OpenWalk) -> None:
        running.alive = False
        for number in (*running.asked.values(), *running.told.values()):
            self._regions.stop_asking(number)
        if running.timer is not None:
            self._runtime.cancel(running.timer)

    def _step(self, running: _OpenWalk) -> None:
        """Ask the regions that are to be asked now."""
        if running.stepping or not running.alive:
            return  # a region here has answered at once; the caller looks again
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
            running.timer = self._runtime.after(wait, lambda: self._resume(running))
            if walk.rounds >= GAP_ROUNDS:
                self._tell(running, walk.gaps())

    def _tell(self, running: _OpenWalk, gaps: list[Code]) -> None:
        """Have regions look at their halves, of which one seems to be lost."""
        for code in gaps:
            if code not in running.told:
                running.told[code] = 0
                number = self._regions.ask(code, ReviewHalves(code), partial(self._is_reviewed, running, code))
                if code in running.told:
                    running.told[code] = number

    def _is_reviewed(self, running: _OpenWalk, code: Code, answer: Message) -> None:
        running.told.pop(code, None)

    def _resume(self, running: _OpenWalk) -> None:
        running.timer = None
        running.walk.resume()
        self._step(running)

    def _ask(self, running: _OpenWalk, code: Code) -> None:

        def answered(answer: Message) -> None:
            running.asked.pop(code, None)
            verdict = self._read(answer)
            self.cache.learn(code, verdict)
            if running.alive:
                running.walk.answered(code, verdict)
                self._step(running)

        running.asked[code] = 0
        number = self._regions.ask(code, msgspec.structs.replace(running.message, code=code), answered)
        if code in running.asked:
            running.asked[code] = number

    def _read(self, answer: Message) -> Verdict:
        if isinstance(answer, MatchReply | EntryReply):
            return answer.verdict
        self._runtime.observe("region_malformed")
        return Verdict.BUSY  # after a pause it may be another that answers
