"""The intake of events from publishers. The events of one publisher reach each subscriber in order.

A publisher that comes from another broker waits until its last event there is fully acknowledged; what it publishes
meanwhile waits behind. An event that a publisher takes back, since the disk is full, is dropped at the moment at which
it would have been answered.

Every event passes here: only the wait for another broker is a flow.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from meetpoint.api.ids import EventKey
from meetpoint.api.outcomes import Published, Refused
from meetpoint.api.requests import Publish
from meetpoint.errors import EventError
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.publisher_order import Watermark
from meetpoint.node.home.subscription_table import event_of
from meetpoint.node.runtime.records import LOCAL
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings

__all__ = ["PublishIntake"]

PASSED_MAX: Final = 1_000
"""How many events are remembered that need not be waited for any more."""


class PublishIntake:
    """Takes events from the publishers of one node."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        home_manager: HomeManager,
        scheme: Scheme,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._home_manager = home_manager
        self._scheme = scheme
        self._waiting: dict[str, list[tuple[int, bytes]]] = {}
        """By publisher: requests and events, in their order."""
        self._passed: dict[EventKey, None] = {}
        self._withdrawn: set[int] = set()

    @property
    def waiting(self) -> int:
        """The number of events that wait for others that went by another broker."""
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
            self._runtime.answer(request, Refused(reason, retry=True))
        elif behind is not None:
            behind.append((request, what.event))
        elif after is not None:
            self._waiting[publisher] = [(request, what.event)]
            self._runtime.start("wait for another broker", self._wait(publisher, after))

    def withdraw(self, request: int) -> None:
        """Publish an event no more: its publisher takes it to another broker, and it would come twice, hours later."""
        self._withdrawn.add(request)

    def _is_open(self, after: EventKey) -> bool:
        home = self._home_manager.own_home()
        return after not in self._passed and (home is None or after.home != home.id)

    async def _wait(self, publisher: str, after: EventKey) -> None:
        """Wait until an event at another broker has come to all homes that may want it, or for long enough."""
        until = self._runtime.now + self._settings.after_us
        question = Watermark(
            0, after.home, after.stream, after.number + 1, LOCAL
        )  # of no home: it must have come to all
        while True:
            told = await self._home_manager.watermarks.ask(question)
            if told is not None and told.below > after.number and min(told.pending, default=told.below) > after.number:
                break
            if self._runtime.now >= until:
                self._runtime.observe("order_given_up")
                break
            await self._runtime.sleep(self._settings.query_timeout_us // 4)
        self._pass(publisher, after)

    def _pass(self, publisher: str, after: EventKey) -> None:
        self._passed[after] = None
        if len(self._passed) > PASSED_MAX:
            del self._passed[next(iter(self._passed))]
        for request, content in self._waiting.pop(publisher):
            self._publish(content, request)

    def _publish(self, content: bytes, request: int) -> None:
        home = self._home_manager.own_home()
        if request in self._withdrawn:  # while it waited for others
            self._withdrawn.remove(request)
            self._runtime.observe("event_withdrawn")
        elif home is None:
            self._runtime.answer(request, Refused("this broker is leaving; ask another", retry=True))
        else:
            published = home.publish(content, request)
            if published is not None:
                event, safe = published
                safe.then(partial(self._published, request, home, event, content))

    def _published(self, request: int, home: Home, event: EventKey, content: bytes, _: object) -> None:
        """Answer for an event that is safe, and take it to all homes that may want it."""
        self._runtime.answer(request, Published(event))
        if request in self._withdrawn:
            self._withdrawn.remove(request)
            self._runtime.observe("event_withdrawn")
            home.withdraw(event)
        else:
            home.archive_backlog.accept(event, content)
            self._scheme.publish(event, content)
