"""What a home has published and not every home has that may want it; and who waits to hear that all have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.node.home.sequence_set import SequenceSet

__all__ = ["Outbox"]


def _nobody() -> None:
    """Who waited does not any more."""


class _Stream:
    """The events of one stream that are settled, and those who wait."""

    __slots__ = ("last", "settled", "waiting")

    def __init__(self, floor: int) -> None:
        self.settled = SequenceSet(floor)
        self.last = floor
        self.waiting: dict[int, tuple[int, Callable[[], None]]] = {}  # the number all below which is to be settled


class Outbox:
    """The unsettled events of one home, by their keys."""

    def __init__(self, home: HomeId) -> None:
        self._home = home
        self._events: dict[EventKey, bytes] = {}
        self._streams: dict[int, _Stream] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[EventKey]:
        return iter(self._events)

    def __contains__(self, event: EventKey) -> bool:
        return event in self._events

    def __getitem__(self, event: EventKey) -> bytes:
        return self._events[event]

    def put(self, event: EventKey, content: bytes) -> None:
        """An event is published: the next of its stream. What is left out (see `recover`) was settled."""
        stream = self._streams.get(event.stream)
        if stream is None:
            stream = self._streams[event.stream] = _Stream(event.number - 1)
        for number in range(stream.last + 1, event.number):
            stream.settled.add(number)
        stream.last = event.number
        self._events[event] = content

    def recover(self, events: dict[EventKey, bytes]) -> None:
        """Take back what was on disk: what is missing between its numbers was settled."""
        self._events = dict(sorted(events.items()))
        last: dict[int, int] = {}
        for event in self._events:
            if event.stream not in self._streams:
                self._streams[event.stream] = _Stream(event.number - 1)
                last[event.stream] = event.number
            for number in range(last[event.stream] + 1, event.number):
                self._streams[event.stream].settled.add(number)
            self._streams[event.stream].last = last[event.stream] = event.number

    def settle(self, event: EventKey) -> bool:
        """All have it; false where that was known."""
        if self._events.pop(event, None) is None:
            return False
        stream = self._streams[event.stream]
        stream.settled.add(event.number)
        if stream.waiting:
            floor = stream.settled.floor
            for serial in [serial for serial, (number, _) in stream.waiting.items() if number <= floor + 1]:
                stream.waiting.pop(serial, (0, _nobody))[1]()  # another may have stopped waiting by then
        return True

    def floor(self, stream: int) -> int:
        """All events of a stream up to this number are settled; 0 where none is on its way and none was known."""
        known = self._streams.get(stream)
        return 0 if known is None else known.settled.floor

    def unsettled(self, stream: int, below: int, most: int, above: int = 0) -> tuple[list[int], int]:
        """The events of a stream above a number that are on their way; where they are many, only those below another
        number, which is returned. Who asks wants to know at least of those below one.
        """
        known = self._streams.get(stream)
        found: list[int] = []
        if known is None:
            return found, below
        below = max(below, known.last + 1)
        for low, high in known.settled.holes(known.last + 1):
            for number in range(max(low, above + 1), high + 1):
                if len(found) == most:
                    return found, number
                found.append(number)
        return found, below

    def when_settled(self, stream: int, number: int, then: Callable[[], None]) -> int:
        """Call `then` when all below a number are settled, which they are not yet; `stop_waiting` with what returns."""
        self._serial += 1
        self._streams[stream].waiting[self._serial] = (number, then)
        return self._serial

    def stop_waiting(self, serial: int) -> None:
        """Nobody waits any more."""
        for stream in self._streams.values():
            stream.waiting.pop(serial, None)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(event.home == self._home for event in self._events)
        for event in self._events:
            assert event.number not in self._streams[event.stream].settled, "settled, and on its way"
