"""One timer for many names: each is called at its time, or a little before."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Deadlines"]


class Deadlines:
    """When to look after what."""

    def __init__(self, services: Runtime, ring: Callable[[str], None]) -> None:
        self._services = services
        self._ring = ring
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}  # what of the heap still counts
        self._timer: tuple[int, int] | None = None  # the earliest, and its timer

    def set(self, name: str, at: int) -> None:
        """Look after a name at a time at the latest; one that is set before stays."""
        known = self._at.get(name)
        if known is None or at < known:
            self._at[name] = at
            heappush(self._heap, (at, name))
            self._wait()

    def clear(self) -> None:
        """Look after nothing any more."""
        self._heap.clear()
        self._at.clear()
        if self._timer is not None:
            self._services.cancel(self._timer[1])
            self._timer = None

    def _wait(self) -> None:
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if not heap or (self._timer is not None and self._timer[0] <= heap[0][0]):
            return
        if self._timer is not None:
            self._services.cancel(self._timer[1])
        at = heap[0][0]
        self._timer = at, self._services.after(max(0, at - self._services.now), self._fired)

    def _fired(self) -> None:
        self._timer = None
        heap = self._heap
        while heap and heap[0][0] <= self._services.now:
            at, name = heappop(heap)
            if self._at.get(name) == at:
                del self._at[name]
                self._ring(name)
        self._wait()
