"""A walk through the region tree: from a point or a box to the leaves that serve it. Pure: it says which regions are to
be asked, and takes what they answer.

Nobody knows the tree; each region knows whether it is a leaf, has been split (*interior*), or is not there (*absent*).
On the way from the root to any point there is one leaf, the regions above it are interior and those below it absent. So
its depth is found by binary search on the length of the code, between the deepest region that is known to be interior
and the shallowest that is known to be absent. A box is walked in parts: the first is the smallest region around it. A
part that is interior becomes those of its halves that the box meets; one whose leaf lies further up is served there.

The tree changes during a walk. A region that says it cannot serve now, and answers that contradict each other, end a
part's search: after a pause it begins anew, for the tree will have settled. What was served stays served: whoever
splits or merges regions carries along what they have. So a walk is done when the regions that served it cover it.

Deviation: the paper sends an event to the smallest region around it and then up, region by region (section 4.1.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from meetpoint.schemes.dmm.space import Code

__all__ = ["ASKED_MAX", "CACHE_MAX", "LeafCache", "Verdict", "Walk"]

ASKED_MAX: Final = 16
"""How many regions one walk asks at one time."""
CACHE_MAX: Final = 4_096
"""How many leaves a node remembers."""


class Verdict(StrEnum):
    """What a region says to a walk."""

    SERVED = "served"
    INTERIOR = "interior"
    ABSENT = "absent"
    BUSY = "busy"


class _Part:
    """One region that is to be covered: by a leaf at or above it, or by leaves below it."""

    __slots__ = ("asked", "code", "high", "low", "near")

    def __init__(self, code: Code, low: int, near: Sequence[int]) -> None:
        self.code = code
        self.low = low  # the length of the deepest prefix known to be interior
        self.high = len(code) + 1  # of the shallowest known to be absent
        self.near = list(near)  # lengths to try first
        self.asked = Code("")

    def next(self) -> Code:
        """The prefix to ask."""
        length = (self.low + self.high) // 2
        while self.near:
            near = self.near.pop(0)
            if self.low < near < self.high:
                length = near
                break
        self.asked = Code(self.code[:length])
        return self.asked

    def begin_anew(self) -> None:
        """What was known holds no longer; what was asked last is asked first."""
        last = len(self.asked)
        self.low, self.high, self.near = -1, len(self.code) + 1, [last, last - 1, last + 1]


class Walk:
    """One walk. `goal` is the smallest region around what is walked to; `below` names the halves of a region that it
    meets; `guess` is how deep a leaf at or above the goal may lie, if there is anything to guess from.
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
        """How many regions were asked."""
        self.rounds = 0
        """How often it paused since something was served."""

    @property
    def is_done(self) -> bool:
        """Whether all is served."""
        return not self._parts

    @property
    def is_paused(self) -> bool:
        """Whether some part waits to begin anew."""
        return any(map(self._is_open, self._paused))

    def _is_open(self, part: _Part) -> bool:
        return self._parts.get(part.code) is part

    def ready(self) -> list[Code]:
        """The regions to ask now, none twice at a time; each is to be answered."""
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
        """A region has answered."""
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
        """Interior regions of which a half is said to be absent."""
        gaps = [part for part in self._paused if self._is_open(part) and 0 <= part.low == part.high - 1]
        return list(dict.fromkeys(Code(part.code[: part.low]) for part in gaps))

    def resume(self) -> None:
        """The pause is over."""
        self.rounds += 1
        paused, self._paused = self._paused, []
        for part in filter(self._is_open, paused):
            part.begin_anew()
            self._fresh.append(part)


class LeafCache:
    """Leaves as walks found them. Nothing depends on it: one that is no leaf any more says so."""

    def __init__(self, limit: int = CACHE_MAX) -> None:
        self._limit = limit
        self._leaves: dict[Code, None] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def find(self, goal: Code) -> Code | None:
        """The deepest leaf that is known at or above a region."""
        for length in range(len(goal), -1, -1):
            code = Code(goal[:length])
            if code in self._leaves:
                del self._leaves[code]
                self._leaves[code] = None  # the one that was used last is forgotten last
                return code
        return None

    def guess(self, goal: Code) -> int | None:
        """How deep the leaf at or above a region may lie: as it was known, else as deep as another one."""
        leaf = self.find(goal)
        leaf = next(reversed(self._leaves), None) if leaf is None else leaf
        return None if leaf is None else len(leaf)

    def learn(self, code: Code, verdict: Verdict) -> None:
        """A region has answered."""
        self._leaves.pop(code, None)
        if verdict is Verdict.SERVED:
            for length in range(len(code)):
                self._leaves.pop(Code(code[:length]), None)
            self._leaves[code] = None
            if len(self._leaves) > self._limit:
                del self._leaves[next(iter(self._leaves))]
