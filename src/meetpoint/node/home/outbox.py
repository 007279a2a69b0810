"""The outbox of a home, and its archive backlog: the events that a home has accepted and that still need work.

An event is in the outbox until every home that may want it has it: it is *fully acknowledged* then.

Where a broker archives, an event stays on the disks until it is fully acknowledged *and* archived: whichever comes last
erases it. The driver is told of events in the order of their numbers, with gaps only where nothing was accepted; so
"archived up to here" says it of all. When a home starts the driver is told again of all that may not be archived; it
knows what it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.node.home.sequence_set import SequenceSet
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["ArchiveBacklog", "Outbox"]


class _Stream:
    """Which events of one stream are fully acknowledged, and the signals that wait for some."""

    __slots__ = ("acknowledged", "last", "waiting")

    def __init__(self, floor: int) -> None:
        self.acknowledged = SequenceSet(floor)
        self.last = floor
        self.waiting: dict[Signal[None], int] = {}  # the number below which all is to be acknowledged


class Outbox:
    """The events of one home that are not fully acknowledged, by their keys."""

    def __init__(self, home: HomeId) -> None:
        self._home = home
        self._events: dict[EventKey, bytes] = {}
        self._streams: dict[int, _Stream] = {}

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[EventKey]:
        return iter(self._events)

    def __contains__(self, event: EventKey) -> bool:
        return event in self._events

    def __getitem__(self, event: EventKey) -> bytes:
        return self._events[event]

    def put(self, event: EventKey, content: bytes) -> None:
        """Add an event, the next of its stream. What is left out (see `recover`) was fully acknowledged."""
        stream = self._streams.get(event.stream)
        if stream is None:
            stream = self._streams[event.stream] = _Stream(event.number - 1)
        for number in range(stream.last + 1, event.number):
            stream.acknowledged.add(number)
        stream.last = event.number
        self._events[event] = content

    def recover(self, events: dict[EventKey, bytes]) -> None:
        """Take back what was on disk: what is missing between its numbers was fully acknowledged."""
        self._events = dict(sorted(events.items()))
        last: dict[int, int] = {}
        for event in self._events:
            if event.stream not in self._streams:
                self._streams[event.stream] = _Stream(event.number - 1)
                last[event.stream] = event.number
            for number in range(last[event.stream] + 1, event.number):
                self._streams[event.stream].acknowledged.add(number)
            self._streams[event.stream].last = last[event.stream] = event.number

    def acknowledge(self, event: EventKey) -> bool:
        """Take note that all homes that may want an event have it; return whether that is news."""
        if self._events.pop(event, None) is None:
            return False
        stream = self._streams[event.stream]
        stream.acknowledged.add(event.number)
        if stream.waiting:
            floor = stream.acknowledged.floor
            for signal in [each for each, number in stream.waiting.items() if number <= floor + 1]:
                if stream.waiting.pop(signal, None) is not None:  # another may have stopped waiting by then
                    signal.set(None)
        return True

    def floor(self, stream: int) -> int:
        """Return up to which number all events of a stream are fully acknowledged; 0 where none was known."""
        known = self._streams.get(stream)
        return 0 if known is None else known.acknowledged.floor

    def pending(self, stream: int, below: int, most: int, above: int = 0) -> tuple[list[int], int]:
        """Return the events of a stream above a number that are pending, and below which number that is all.

        The asker wants to know at least of those below a number; of many, only the first `most` are returned.
        """
        known = self._streams.get(stream)
        found: list[int] = []
        if known is None:
            return found, below
        below = max(below, known.last + 1)
        for low, high in known.acknowledged.holes(known.last + 1):
            for number in range(max(low, above + 1), high + 1):
                if len(found) == most:
                    return found, number
                found.append(number)
        return found, below

    def acknowledged_below(self, stream: int, number: int) -> Signal[None]:
        """Return a signal that is set when all events below a number are fully acknowledged, which they are not yet."""
        signal: Signal[None] = Signal()
        self._streams[stream].waiting[signal] = number
        return signal

    def stop_waiting(self, signal: Signal[None]) -> None:
        """Forget a signal of `acknowledged_below`."""
        for stream in self._streams.values():
            stream.waiting.pop(signal, None)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(event.home == self._home for event in self._events)
        for event in self._events:
            assert event.number not in self._streams[event.stream].acknowledged, "fully acknowledged, and on its way"


class _Numbered:
    """A number that was given out, and what became of its event."""

    __slots__ = ("content", "event", "is_open")

    def __init__(self, event: EventKey) -> None:
        self.event = event
        self.content: bytes | None = None
        self.is_open = True


class ArchiveBacklog:
    """The accepted events of one home that are not archived; empty where nothing is archived."""

    def __init__(self, runtime: Runtime, is_kept: bool) -> None:
        self._runtime = runtime
        self._is_kept = is_kept
        self._open: dict[EventKey, _Numbered] = {}
        self._order: deque[_Numbered] = deque()
        self._told: deque[EventKey] = deque()
        self._held: set[EventKey] = set()

    def resume(self, events: Mapping[EventKey, bytes]) -> None:
        """Tell the driver again of events that may not be archived: the home starts, or goes on."""
        for event in sorted(events):
            if event not in self._held:
                self.begin(event)
                self.accept(event, events[event])

    def begin(self, event: EventKey) -> None:
        """Take note that a number is given out, the next one."""
        if self._is_kept:
            numbered = self._open[event] = _Numbered(event)
            self._order.append(numbered)
            self._held.add(event)

    def accept(self, event: EventKey, content: bytes) -> None:
        """Have an event archived: it is safe, and its publisher is told so."""
        self._close(event, content)

    def withdraw(self, event: EventKey) -> None:
        """Drop an event that was not accepted after all."""
        self._held.discard(event)
        self._close(event, None)

    def _close(self, event: EventKey, content: bytes | None) -> None:
        numbered = self._open.pop(event, None)
        if numbered is None:
            return
        numbered.is_open, numbered.content = False, content
        order = self._order
        while order and not order[0].is_open:
            first = order.popleft()
            if first.content is not None:
                self._told.append(first.event)
                self._runtime.accepted(first.event, first.content)

    def holds(self, event: EventKey) -> bool:
        """Return whether an event must be kept, since it may not be in the archive."""
        return event in self._held

    def archive(self, upto: EventKey) -> list[EventKey]:
        """Take note that events are in the archive up to this one; return those of which that is news."""
        found = []
        while self._told and self._told[0] <= upto:
            event = self._told.popleft()
            self._held.discard(event)
            found.append(event)
        return found

    def first_open(self) -> EventKey | None:
        """Return the first event that is not in the archive; all before it are, or never will be."""
        if self._told:
            return self._told[0]
        return self._order[0].event if self._order else None

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert list(self._told) == sorted(self._told)
        assert self._held.issuperset(self._told)
        assert not self._order or self._order[0].is_open
