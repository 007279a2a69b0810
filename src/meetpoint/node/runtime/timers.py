"""Timers: `Deadlines`, one timer for many names, and `Debouncer`, a limit on how often a callback runs."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from meetpoint.node.runtime.runtime import Runtime

__all__ = ["FLUSH_US", "Deadlines", "Debouncer"]


class Deadlines:
    """Calls back with each name at its time, by one timer; or a little before."""

    def __init__(self, runtime: Runtime, ring: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._ring = ring
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}  # what of the heap still counts
        self._timer: tuple[int, int] | None = None  # the earliest, and its timer

    def set(self, name: str, at: int) -> None:
        """Call back with a name at a time at the latest; an earlier time that is set stays."""
        known = self._at.get(name)
        if known is None or at < known:
            self._at[name] = at
            heappush(self._heap, (at, name))
            self._wait()

    def clear(self) -> None:
        """Forget all names."""
        self._heap.clear()
        self._at.clear()
        if self._timer is not None:
            self._runtime.cancel(self._timer[1])
            self._timer = None

    def _wait(self) -> None:
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if not heap or (self._timer is not None and self._timer[0] <= heap[0][0]):
            return
        if self._timer is not None:
            self._runtime.cancel(self._timer[1])
        at = heap[0][0]
        self._timer = at, self._runtime.after(max(0, at - self._runtime.now), self._fired)

    def _fired(self) -> None:
        self._timer = None
        heap = self._heap
        while heap and heap[0][0] <= self._runtime.now:
            at, name = heappop(heap)
            if self._at.get(name) == at:
                del self._at[name]
                self._ring(name)
        self._wait()


FLUSH_US: Final = 20_000
"""The interval of writes that nobody waits for."""


class Debouncer:
    """Runs a callback at once, but at most once per interval."""

    __slots__ = ("_do", "_done_at", "_interval_us", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, interval_us: int, do: Callable[[], None]) -> None:
        self._runtime = runtime
        self._interval_us = interval_us
        self._do = do
        self._done_at: int | None = None
        self._timer: int | None = None

    def soon(self) -> None:
        """Run the callback now, or when the interval is over."""
        if self._timer is not None:
            return
        now = self._runtime.now
        wait = 0 if self._done_at is None else self._done_at + self._interval_us - now
        if wait <= 0:
            self._done_at = now
            self._do()
        else:
            self._timer = self._runtime.after(wait, self._fired)

    def stop(self) -> None:
        """Cancel what is due."""
        if self._timer is not None:
            self._runtime.cancel(self._timer)
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        self._done_at = self._runtime.now
        self._do()
