"""How often each subscription is matched: counted in slices of some seconds, of which the last few are remembered.

Counting a match is adding to a number in a table; what a minute had is added up when someone asks. Subscriptions that
are gone are forgotten now and then, and there is a limit to how many are counted at all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from meetpoint.api.limits import SECOND_US

__all__ = ["Rate", "Rates"]

SLICE_US: Final = 10 * SECOND_US
SLICES: Final = 6
"""So many whole slices, and the one that has begun, are the last minute."""
NAMES_MAX: Final = 200_000


class Rate(msgspec.Struct, gc=False):
    """One subscription's matches: how many, how many lately, and about when it had the last."""

    total: int = 0
    lately: int = 0
    last_us: int = 0


class Rates:
    """The matches of all subscriptions here, since `since_us`."""

    def __init__(self, now: int) -> None:
        self.since_us = now
        self._until = now + SLICE_US
        self._slice: defaultdict[str, int] = defaultdict(int)
        self._slices: deque[dict[str, int]] = deque(maxlen=SLICES)
        self._older: dict[str, Rate] = {}

    def matched(self, names: Iterable[str], now: int) -> None:
        """An event matched these."""
        if now >= self._until:
            self._turn(now)
        slice_ = self._slice
        for name in names:
            slice_[name] += 1

    def of(self, name: str, now: int) -> Rate:
        """How one subscription is."""
        if now >= self._until:
            self._turn(now)
        older = self._older.get(name, Rate())
        here = self._slice.get(name, 0)
        lately = here + sum(each.get(name, 0) for each in self._slices)
        return Rate(older.total + here, lately, self._until - SLICE_US if here else older.last_us)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but these."""
        kept = set(names)
        for gone in [name for name in self._older if name not in kept]:
            del self._older[gone]

    def __len__(self) -> int:
        return len(self._older)

    def _turn(self, now: int) -> None:
        """A slice is over: what was counted in it is remembered with its beginning."""
        for name, count in self._slice.items():
            older = self._older.get(name)
            if older is None:
                if len(self._older) >= NAMES_MAX:
                    continue
                older = self._older[name] = Rate()
            older.total += count
            older.last_us = self._until - SLICE_US
        passed = (now - self._until) // SLICE_US
        self._slices.append(dict(self._slice))
        for _ in range(min(passed, SLICES)):
            self._slices.append({})
        self._slice = defaultdict(int)
        self._until += (passed + 1) * SLICE_US
