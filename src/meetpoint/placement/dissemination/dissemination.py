"""Carrying an event: attempts, each with all its visits within a bounded time, until one is complete.

An attempt that takes longer than `ATTEMPT_US` begins anew, with every visit: entries of an old version of a
subscription stay long enough for one attempt, not for the pieces of several (`placing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.placement import RETAIN_US

__all__ = ["ATTEMPT_US", "Dissemination", "PublishAttempt"]

ATTEMPT_US: Final = 8 * SECOND_US
"""How long one attempt to carry an event may take."""
assert 2 * ATTEMPT_US < RETAIN_US, "an attempt is over before what it may need is gone, whatever the clocks do"


class PublishAttempt:
    """One attempt to carry an event."""

    __slots__ = ("_ended", "alive", "content", "event", "may_reach", "on_end", "settled")

    def __init__(self, event: EventKey, content: bytes, settled: int, ended: Callable[[PublishAttempt], None]) -> None:
        self.event = event
        self.content = content
        self.settled = settled
        """All events of the stream up to this number need not be carried any more."""
        self.alive = True
        self.may_reach: Callable[[HomeId], bool] = lambda home: True
        """Whether the event may still come to a home, as far as the attempt knows by now."""
        self.on_end: Callable[[], None] | None = None
        """What to do when the attempt is over, one way or the other."""
        self._ended = ended

    def complete(self) -> None:
        """All homes that may want the event have it."""
        if self.alive:
            self._ended(self)

    def end(self) -> None:
        """It is over."""
        self.alive = False
        if self.on_end is not None:
            self.on_end()


class Dissemination:
    """All events of homes here that are on their way."""

    def __init__(self, services: Runtime, hosting: HomeManager, begin: Callable[[PublishAttempt], None]) -> None:
        self._services = services
        self._hosting = hosting
        self._begin = begin
        self._attempts: dict[EventKey, tuple[PublishAttempt, int]] = {}

    def publish(self, event: EventKey, content: bytes) -> None:
        """Carry an event until all homes that may want it have it."""
        if event not in self._attempts:
            self._attempt(event, content)

    def _attempt(self, event: EventKey, content: bytes) -> None:
        attempt = PublishAttempt(event, content, self._settled(event), self._complete)
        timer = self._services.after(ATTEMPT_US, lambda: self._again(attempt))
        self._attempts[event] = (attempt, timer)
        self._begin(attempt)

    def _settled(self, event: EventKey) -> int:
        home = self._hosting.homes.get(event.home)
        return 0 if home is None else home.outbox.floor(event.stream)

    def _again(self, attempt: PublishAttempt) -> None:
        del self._attempts[attempt.event]
        attempt.end()
        if attempt.event.home in self._hosting.homes:  # one that moved away took its events along
            self._services.observe("event_again")
            self._attempt(attempt.event, attempt.content)

    def _complete(self, attempt: PublishAttempt) -> None:
        _, timer = self._attempts.pop(attempt.event)
        self._services.cancel(timer)
        attempt.end()
        self._hosting.settled(attempt.event)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Whether an event on its way may still come to a home, as far as is known."""
        found = self._attempts.get(event)
        return found is None or found[0].may_reach(home)

    @property
    def waiting(self) -> int:
        """How many are on their way."""
        return len(self._attempts)
