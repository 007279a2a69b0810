"""The CPU budget: peers that are unknown or send invalid messages share bounded time, so they cannot starve the others.

A connection has a penalty while nobody knows it yet, and when much of what it sends is refused. The time that its bytes
took is charged to one `CpuBudget` that all such connections share; while that is spent they are not read from, and TCP
holds them up.

While the process has nothing else to do the budget grows as fast as time passes. The more others need, the slower it
grows, such that they could always have as much again; and by a small part of the time (`SHARE`) even where they need
all. So a broker at rest lets a thousand clients in as fast as it can, and a busy one goes on with its work.

The need of others is measured by the processor time of the whole process: threads that write want Python's lock too,
and the loop is not late while it waits for them. Where the machine is busy with something else that says too little,
and a tick that comes late says enough.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Final

__all__ = ["NEWCOMER_PENALTY", "PENALIZED_FROM", "CpuBudget", "penalty_after"]

SHARE: Final = 0.06
"""The part of busy time that penalized connections get."""
PENALIZED_FROM: Final = 0.3
"""The penalty from which a connection shares the budget: about so much of what it sends is refused."""
NEWCOMER_PENALTY: Final = 0.4
"""The penalty of a new connection, until a few of its messages were good."""
CREDIT_S: Final = 0.01
"""The time that may be saved up."""
DEBT_S: Final = 0.05
"""The time that may be owed.

A process that was stopped in the middle of a turn, or a machine that stood still, is nobody's fault: what is owed then
is paid within a second, and connections that come meanwhile are served before their handshake times out.
"""
TICK_S: Final = 0.002
"""How often waiting connections are checked."""
BATCH: Final = 8
"""Number of them that go on at a time: only afterwards is known how long that took."""
_LATE_S: Final = 0.004
"""A tick later than this after the one before was held up."""
_WEIGHT: Final = 0.1
_WINDOW_S: Final = 0.1
"""About how long the need of others is averaged."""


def penalty_after(penalty: float, good: int, refused: int) -> float:
    """Return the penalty after some more messages: the part of them that was refused, of late."""
    good_share = (1.0 - _WEIGHT) ** refused
    return 1.0 - (1.0 - penalty * (1.0 - _WEIGHT) ** good) * good_share


class CpuBudget:
    """The time for penalized connections, and those that wait for it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = perf_counter,
        used: Callable[[], float] = process_time,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._used = used
        self._credit_s = CREDIT_S
        self._looked_at = clock()
        self._used_before = used()
        self._spent_s = 0.0  # since then
        self._others = 0.0
        """The recent part of the time that others need."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_ticking = False

    def spend(self, seconds: float) -> None:
        """Charge time that a penalized connection took."""
        self._credit_s = max(-DEBT_S, self._credit_s - seconds)
        self._spent_s += seconds

    @property
    def is_spent(self) -> bool:
        """Whether penalized connections have to wait."""
        if not self._is_ticking:
            self._grow(is_watched=False)
        return self._credit_s <= 0

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call this, in order, when there is time again."""
        self._waiting.append(go_on)
        if not self._is_ticking:
            self._is_ticking = True
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._grow(is_watched=True)
        for _ in range(BATCH):
            if not self._waiting or self._credit_s <= 0:
                break
            self._waiting.popleft()()
        self._is_ticking = bool(self._waiting)
        if self._is_ticking:
            self._loop.call_later(TICK_S, self._tick)

    def _grow(self, *, is_watched: bool) -> None:
        """Grow by the elapsed time; a tick that came when it was due, but for time spent here, held up nobody."""
        now, used = self._clock(), self._used()
        elapsed, self._looked_at = now - self._looked_at, now
        spent, self._spent_s = self._spent_s, 0.0
        others, self._used_before = max(0.0, used - self._used_before - spent), used
        if elapsed > 0:
            self._others += (min(1.0, others / elapsed) - self._others) * min(1.0, elapsed / _WINDOW_S)
        is_late = not is_watched or elapsed - spent > _LATE_S
        share = SHARE if is_late else max(SHARE, 1.0 - 2.0 * self._others)
        self._credit_s = min(CREDIT_S, self._credit_s + share * elapsed)
