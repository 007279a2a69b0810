"""The last events, for whoever looks on: what was published here, and which subscribers here were told of what.

Nothing is remembered while nobody asks: the first question begins it, and some seconds after the last one it ends.
What is remembered is numbered, so that each question gets what is new; under load, only the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from meetpoint.api.client_messages import RecentEvent, RecentIs, RecentMatch
from meetpoint.api.limits import SECOND_US
from meetpoint.node.runtime.effects import Effect, Trace
from meetpoint.node.runtime.inputs import Input

__all__ = ["RecentEvents"]

LOOK_US: Final = 20 * SECOND_US
"""For so long after a question it goes on."""
EVENTS_MAX: Final = 200
MATCHES_MAX: Final = 1_000
ANSWER_BYTES: Final = 256 << 10
"""About how many bytes of events an answer has; the newest come first into it."""


class RecentEvents:
    """What one broker remembers of the last events, while anyone looks on."""

    def __init__(self) -> None:
        self.on_change: Callable[[bool], None] = lambda is_looking: None
        self._until = 0
        self._number = 0
        self._events: deque[RecentEvent] = deque(maxlen=EVENTS_MAX)
        self._matches: deque[RecentMatch] = deque(maxlen=MATCHES_MAX)

    def took(self, item: Input, effects: Sequence[Effect], now: int) -> None:
        """The node has taken an input, and wants these things done."""
        if now >= self._until:
            self._events.clear()
            self._matches.clear()
            self.on_change(False)
            return
        for effect in effects:
            if type(effect) is not Trace:
                continue
            if effect.step == "published":
                self._number += 1
                self._events.append(RecentEvent(self._number, now, effect.event, effect.content))
            elif effect.step in ("taken", "notified") and effect.names:
                self._number += 1
                is_told = effect.step == "notified" and not effect.detail
                self._matches.append(RecentMatch(self._number, now, effect.event, len(effect.names), is_told))

    def since(self, number: int, now: int) -> RecentIs:
        """What came after a number, and go on for a while."""
        is_new = now >= self._until
        self._until = now + LOOK_US
        if is_new:
            self.on_change(True)
        events: list[RecentEvent] = []
        size = 0
        for event in reversed(self._events):
            size += len(event.content)
            if event.number <= number or (events and size > ANSWER_BYTES):
                break
            events.append(event)
        matches = tuple(match for match in self._matches if match.number > number)
        return RecentIs(self._number, tuple(reversed(events)), matches)
