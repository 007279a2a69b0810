"""What a home has accepted and an archive does not have yet, in the order of its numbers.

Where a broker archives, an event stays on the disks until it is settled *and* archived: whichever comes last erases it.
The driver is told of events in the order of their numbers, with gaps only where nothing was accepted, so that "archived
up to here" says it of all. When a home starts the driver is told again of all that may not be archived; it knows what
it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from meetpoint.api.ids import EventKey
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["ArchiveBacklog"]


class _Line:
    """A number that was given out, and what became of its event."""

    __slots__ = ("content", "event", "is_open")

    def __init__(self, event: EventKey) -> None:
        self.event = event
        self.content: bytes | None = None
        self.is_open = True


class ArchiveBacklog:
    """The accepted events of one home. Where nothing is archived it is empty."""

    def __init__(self, services: Runtime, is_kept: bool) -> None:
        self._services = services
        self._is_kept = is_kept
        self._open: dict[EventKey, _Line] = {}
        self._order: deque[_Line] = deque()
        self._told: deque[EventKey] = deque()
        self._held: set[EventKey] = set()

    def resume(self, events: Mapping[EventKey, bytes]) -> None:
        """A home starts, or goes on: these may not be archived."""
        for event in sorted(events):
            if event not in self._held:
                self.begin(event)
                self.accept(event, events[event])

    def begin(self, event: EventKey) -> None:
        """A number is given out, the next one."""
        if self._is_kept:
            line = self._open[event] = _Line(event)
            self._order.append(line)
            self._held.add(event)

    def accept(self, event: EventKey, content: bytes) -> None:
        """An event is safe, and its publisher is told so."""
        self._close(event, content)

    def withdraw(self, event: EventKey) -> None:
        """An event was not accepted after all."""
        self._held.discard(event)
        self._close(event, None)

    def _close(self, event: EventKey, content: bytes | None) -> None:
        line = self._open.pop(event, None)
        if line is None:
            return
        line.is_open, line.content = False, content
        order = self._order
        while order and not order[0].is_open:
            first = order.popleft()
            if first.content is not None:
                self._told.append(first.event)
                self._services.accepted(first.event, first.content)

    def holds(self, event: EventKey) -> bool:
        """Whether an event must be kept, since it may not be in the archive."""
        return event in self._held

    def archive(self, upto: EventKey) -> list[EventKey]:
        """All that were told are in the archive up to this one; returns those that were not before."""
        found = []
        while self._told and self._told[0] <= upto:
            event = self._told.popleft()
            self._held.discard(event)
            found.append(event)
        return found

    def first_open(self) -> EventKey | None:
        """The first event that is not in the archive, or may not come to it: all before it are, or never will be."""
        if self._told:
            return self._told[0]
        return self._order[0].event if self._order else None

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert list(self._told) == sorted(self._told)
        assert self._held.issuperset(self._told)
        assert not self._order or self._order[0].is_open
