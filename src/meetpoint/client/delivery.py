"""An event as a subscriber gets it: the event, for which subscriptions it came, and what to say of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from meetpoint.api.ids import EventKey
from meetpoint.language.events.event import Event
from meetpoint.language.values import Value

if TYPE_CHECKING:
    from meetpoint.client.connection import Connection
    from meetpoint.client.subscription import Subscription

__all__ = ["Delivery"]


class Delivery:
    """An event that matched. It is read like the event itself, or by attribute: `event["price"]`."""

    __slots__ = ("_link", "_subscription", "event", "is_settled", "key", "matched_by", "redelivered")

    def __init__(
        self, event: Event, key: EventKey, matched_by: tuple[str, ...], redelivered: bool,
        subscription: Subscription, link: Connection | None,
    ) -> None:  # fmt: skip
        self.event = event
        self.key = key
        """Where it was published, and as which number there."""
        self.matched_by = matched_by
        """The names of this client's subscriptions for which the broker brought it."""
        self.redelivered = redelivered
        """Whether it may have come before. An event that is not marked has not."""
        self.is_settled = False
        """Whether it has been acknowledged or rejected."""
        self._subscription = subscription
        self._link = link

    @property
    def id(self) -> str:
        """The event's id, which its publisher gave it."""
        return self.event.id

    @property
    def publisher(self) -> str:
        """Who published it."""
        return self.event.publisher

    @property
    def sequence(self) -> int:
        """Its number among the publisher's events."""
        return self.event.sequence

    @property
    def time(self) -> datetime:
        """When it was published, by its publisher."""
        return self.event.time

    @property
    def attributes(self) -> dict[str, Value]:
        """What filters see of it. Copy it before you change it: this client's other subscriptions have the same."""
        return self.event.attributes

    @property
    def link(self) -> Connection | None:
        """The connection that brought it; None where it is history."""
        return self._link

    def get(self, name: str) -> Value:
        """The value of an attribute by its dotted name; None where it is missing."""
        return self.event.get(name)

    def __getitem__(self, name: str) -> Value:
        value = self.event.get(name)
        if value is None:
            raise KeyError(name)
        return value

    async def ack(self) -> None:
        """It is done: once this returns it does not come again. Nothing happens where that was said before."""
        await self._subscription.settle(self, None)

    async def nack(self, reason: str = "") -> None:
        """It could not be used: it comes again later, and after some tries becomes a dead letter with this reason."""
        await self._subscription.settle(self, reason)

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return f"<event {self.id} {self.attributes} for {', '.join(self.matched_by)}{again}>"
