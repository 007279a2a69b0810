"""What may go once all that was open at a moment is closed, whatever is opened later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["Barrier", "Lane"]


class Barrier:
    """Tickets that are open, and who waits for all that were at a moment."""

    def __init__(self) -> None:
        self._last = 0
        self._open: set[int] = set()  # only asked, never walked through
        self._order: deque[int] = deque()  # the open tickets, and closed ones behind the first
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def open(self) -> int:
        """A new ticket."""
        self._last += 1
        self._open.add(self._last)
        self._order.append(self._last)
        return self._last

    def close(self, ticket: int) -> None:
        """A ticket is done with; whoever waited only for it and others that are is called."""
        self._open.discard(ticket)
        self._look()

    def when_closed(self, then: Callable[[], None]) -> None:
        """Call `then` when all tickets that are open now are closed; at once where there is none."""
        self._waiting.append((self._last, then))
        self._look()

    def _look(self) -> None:
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
        while self._waiting and (not self._order or self._waiting[0][0] < self._order[0]):
            self._waiting.popleft()[1]()


class Lane:
    """A limit on what is done at a time: what comes when all is taken waits its turn."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[Callable[[], None]] = deque()
        self._beginning = False

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` as soon as there is room; `leave` when it is done."""
        self._waiting.append(begin)
        self._go_on()

    def leave(self) -> None:
        """There is room for another."""
        self._free += 1
        self._go_on()

    def close(self) -> None:
        """Nothing is to begin any more."""
        self._free = 0
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._beginning:
            return  # one that began is done already: whoever began it goes on
        self._beginning = True
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft()()
        self._beginning = False
