"""Taking events from publishers. One that comes from another broker waits until what it published there is settled,
so that its events reach each subscriber in order; what it publishes meanwhile waits behind. An event that a publisher
takes back, since the disk is full, is settled at the moment at which it would have been acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from meetpoint.api.ids import EventKey
from meetpoint.api.outcomes import Refused
from meetpoint.api.requests import Publish
from meetpoint.errors import EventError
from meetpoint.node.home.home import Home
from meetpoint.node.home.publisher_order import Watermark, Watermarked, Watermarks
from meetpoint.node.home.subscription_table import event_of
from meetpoint.node.runtime.records import LOCAL
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["PublishIntake"]

PASSED_MAX: Final = 1_000
"""How many events are remembered that need not be waited for any more."""


class PublishIntake:
    """One node's publishers."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        watermarks: Watermarks,
        home: Callable[[], Home | None],
        carry: Callable[[EventKey, bytes], None],
    ) -> None:
        self._services = services
        self._settings = settings
        self._watermarks = watermarks
        self._home = home
        self._carry = carry
        self._waiting: dict[str, list[tuple[int, bytes]]] = {}
        """By publisher: requests and events, in their order."""
        self._passed: dict[EventKey, None] = {}
        self._withdrawn: set[int] = set()

    @property
    def waiting(self) -> int:
        """How many events wait for others that went by another broker."""
        return sum(map(len, self._waiting.values()))

    def publish(self, what: Publish, request: int) -> None:
        """Take an event, or let it wait."""
        after = what.after if what.after is not None and self._is_open(what.after) else None
        if after is None and not self._waiting:
            self._publish(what.event, request)
            return
        try:
            publisher = event_of(what.event).publisher
        except EventError:
            self._publish(what.event, request)  # and be told why not
            return
        behind = self._waiting.get(publisher)
        if behind is None and after is None:
            self._publish(what.event, request)
        elif self.waiting >= self._settings.requests_held_max:
            reason = "too many events wait here for those that went by another broker; publish again soon"
            self._services.answer(request, Refused(reason, retry=True))
        elif behind is not None:
            behind.append((request, what.event))
        elif after is not None:
            self._waiting[publisher] = [(request, what.event)]
            self._wait(publisher, after, self._services.now + self._settings.after_us)

    def withdraw(self, request: int) -> None:
        """The publisher brings the event to another broker: it is not carried from here too, minutes or hours later."""
        self._withdrawn.add(request)

    def _is_open(self, after: EventKey) -> bool:
        home = self._home()
        return after not in self._passed and (home is None or after.home != home.id)

    def _wait(self, publisher: str, after: EventKey, until: int) -> None:
        def answered(told: Watermarked | None) -> None:
            if told is not None and told.below > after.number and all(
                number > after.number for number in told.unsettled
            ):  # fmt: skip
                self._pass(publisher, after)
            elif self._services.now >= until:
                self._services.observe("order_given_up")
                self._pass(publisher, after)
            else:
                self._services.after(self._settings.query_timeout_us // 4, ask)

        def ask() -> None:
            # Nobody's home asks: it shall have come to all.
            self._watermarks.ask(Watermark(0, after.home, after.stream, after.number + 1, LOCAL), answered)

        ask()

    def _pass(self, publisher: str, after: EventKey) -> None:
        self._passed[after] = None
        if len(self._passed) > PASSED_MAX:
            del self._passed[next(iter(self._passed))]
        for request, content in self._waiting.pop(publisher):
            self._publish(content, request)

    def _publish(self, content: bytes, request: int) -> None:
        home = self._home()
        if request in self._withdrawn:  # while it waited for others
            self._withdrawn.remove(request)
            self._services.observe("event_withdrawn")
        elif home is None:
            self._services.answer(request, Refused("this broker is leaving; ask another", retry=True))
        else:
            home.publish(content, partial(self._go, request, home), request)

    def _go(self, request: int, home: Home, event: EventKey, content: bytes) -> None:
        """An event is safe, and is carried to whoever wants it."""
        if request in self._withdrawn:
            self._withdrawn.remove(request)
            self._services.observe("event_withdrawn")
            home.withdraw(event)
        else:
            home.ledger.accept(event, content)
            self._carry(event, content)
