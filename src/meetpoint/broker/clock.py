"""A broker's clock and timers.

The clock shows wall-clock microseconds since 1970 as it starts, and from then on time that never goes back. Leases,
lifetimes and timers are by this clock, so that nothing ends early or late when the machine's clock is set. What others
judge by the wall clock (tokens, certificates) is judged by it here too.

Nearly all timers are cancelled, as replies come in time. So cancelling only forgets, and one timer of the event loop
serves them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from time import monotonic_ns, time_ns
from typing import Final

from meetpoint.node.runtime.inputs import Instant

__all__ = ["Clock", "Timers"]


class Clock:
    """The clock of one process life; if the machine's clock is set, this one goes on as before until the next start."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time_ns() - monotonic_ns()

    def now(self) -> Instant:
        """Return microseconds since 1970."""
        return Instant((monotonic_ns() + self._offset_ns) // 1000)

    @property
    def off_s(self) -> float:
        """Seconds that the machine's clock is ahead of this one: it was set since, or runs wrong."""
        return (time_ns() - monotonic_ns() - self._offset_ns) / 1e9


FIRE_US: Final = 5_000
"""About how long timers fire in one turn of the loop.

Under load most of them repeat what was not answered in time, and must not keep the answers from being read.
"""
SPARE: Final = 1024
"""Number of forgotten timers that may lie in the heap before it is rebuilt."""


class Timers:
    """The due times of timers, by the broker's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, fire: Callable[[int], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._fire = fire
        self._heap: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._is_firing = False
        self._is_closed = False

    def set(self, timer: int, at: int) -> None:
        """Have a timer fire at an instant."""
        self._due[timer] = at
        heappush(self._heap, (at, timer))
        if (self._handle is None or at < self._armed_for) and not self._is_firing:
            self._arm(at)

    def cancel(self, timer: int) -> None:
        """Forget a timer."""
        self._due.pop(timer, None)
        heap = self._heap
        if len(heap) > SPARE + 2 * len(self._due):
            self._heap = [(at, each) for each, at in self._due.items()]
            heapify(self._heap)

    def __len__(self) -> int:
        return len(self._due)

    def _arm(self, at: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if not self._is_closed:
            self._armed_for = at
            self._handle = self._loop.call_later(max(0, at - self._clock.now()) / 1e6, self._ring)

    def _ring(self) -> None:
        self._handle = None
        now = self._clock.now()
        until = now + FIRE_US
        self._is_firing = True
        try:
            while self._heap and self._heap[0][0] <= now:
                at, timer = heappop(self._heap)
                if self._due.get(timer) == at:
                    del self._due[timer]
                    self._fire(timer)
                    if self._clock.now() > until:
                        break  # others have their turn; the rest fires in the next
        finally:
            self._is_firing = False
        if self._heap:
            self._arm(self._heap[0][0])

    def close(self) -> None:
        """Stop firing timers."""
        self._is_closed = True
        self._due.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
