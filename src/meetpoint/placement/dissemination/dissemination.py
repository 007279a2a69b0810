"""Dissemination: takes an event to the owners of its keys, in attempts of bounded time, until one is complete.

An attempt that takes longer than `ATTEMPT_US` begins anew, from the beginning: entries of an old version of a
subscription stay long enough for one attempt, not for the pieces of several (`placement.entries.placement`).

Each event comes here: it goes on by callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.placement import RETAIN_US

__all__ = ["ATTEMPT_US", "Dissemination", "PublishAttempt"]

ATTEMPT_US: Final = 8 * SECOND_US
"""How long one attempt may take."""
assert 2 * ATTEMPT_US < RETAIN_US, "an attempt is over before what it may need is gone, whatever the clocks do"


class PublishAttempt:
    """An attempt to bring an event to all homes that may want it."""

    __slots__ = ("_dissemination", "alive", "content", "event", "floor", "may_reach", "on_end")

    def __init__(self, event: EventKey, content: bytes, floor: int, dissemination: Dissemination) -> None:
        self.event = event
        self.content = content
        self.floor = floor
        """All events of the stream up to this number are fully acknowledged."""
        self.alive = True
        self.may_reach: Callable[[HomeId], bool] = lambda home: True
        """Says whether the event may still come to a home, as far as the attempt knows by now."""
        self.on_end: Callable[[], None] | None = None
        """Called when the attempt is over, one way or the other."""
        self._dissemination = dissemination

    def complete(self) -> None:
        """Take note that all homes that may want the event have it."""
        if self.alive:
            self._dissemination.complete(self)

    def end(self) -> None:
        """End the attempt."""
        self.alive = False
        if self.on_end is not None:
            self.on_end()


class AttemptScheme(Protocol):
    """Knows where an event goes."""

    def begin_attempt(self, attempt: PublishAttempt) -> None:
        """Begin an attempt to bring an event to all homes that may want it."""


class Dissemination:
    """Knows all events of homes here that are on their way."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager, scheme: AttemptScheme) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._scheme = scheme
        self._attempts: dict[EventKey, tuple[PublishAttempt, int]] = {}

    def publish(self, event: EventKey, content: bytes) -> None:
        """Attempt to bring an event to all homes that may want it, until they have it."""
        if event not in self._attempts:
            self._attempt(event, content)

    def _attempt(self, event: EventKey, content: bytes) -> None:
        attempt = PublishAttempt(event, content, self._floor(event), self)
        timer = self._runtime.after(ATTEMPT_US, lambda: self._again(attempt))
        self._attempts[event] = (attempt, timer)
        self._scheme.begin_attempt(attempt)

    def _floor(self, event: EventKey) -> int:
        home = self._home_manager.homes.get(event.home)
        return 0 if home is None else home.outbox.floor(event.stream)

    def _again(self, attempt: PublishAttempt) -> None:
        del self._attempts[attempt.event]
        attempt.end()
        if attempt.event.home in self._home_manager.homes:  # one that moved away took its events along
            self._runtime.observe("event_again")
            self._attempt(attempt.event, attempt.content)

    def complete(self, attempt: PublishAttempt) -> None:
        """Take note that an attempt has brought its event to all."""
        _, timer = self._attempts.pop(attempt.event)
        self._runtime.cancel(timer)
        attempt.end()
        self._home_manager.fully_acknowledged(attempt.event)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event on its way may still come to a home, as far as is known."""
        found = self._attempts.get(event)
        return found is None or found[0].may_reach(home)

    @property
    def waiting(self) -> int:
        """The number of events on their way."""
        return len(self._attempts)
