"""An event as a subscriber gets it, with the subscriptions that it matched and the ways to acknowledge it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from meetpoint.api.ids import EventKey
from meetpoint.language.events.event import Event
from meetpoint.language.values import Value

if TYPE_CHECKING:
    from meetpoint.client.connection import Connection
    from meetpoint.client.subscription import Subscription

__all__ = ["DeliveredEvent", "Delivery"]


class DeliveredEvent:
    """The readable part of a delivery: the event's fields, and its attributes as `event["price"]`."""

    __slots__ = ("event", "key", "matched_by", "redelivered")

    def __init__(self, event: Event, key: EventKey, matched_by: tuple[str, ...], redelivered: bool) -> None:
        self.event = event
        self.key = key
        """The place where the event was published, which brokers' journals name it by."""
        self.matched_by = matched_by
        """The names of this client's subscriptions that the event matched."""
        self.redelivered = redelivered
        """Whether the event may have come before. An event without this mark has not."""

    @property
    def id(self) -> str:
        """The event's id, which its publisher chose."""
        return self.event.id

    @property
    def publisher(self) -> str:
        """The name of the event's publisher."""
        return self.event.publisher

    @property
    def sequence(self) -> int:
        """The event's number among those of its publisher."""
        return self.event.sequence

    @property
    def time(self) -> datetime:
        """The time of the event, by its publisher's clock."""
        return self.event.time

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes of the event. Copy them before you change them: other subscriptions share them."""
        return self.event.attributes

    def get(self, name: str) -> Value:
        """Return the value of an attribute by its dotted name (`order.price`), or None where the event has none."""
        return self.event.get(name)

    def __getitem__(self, name: str) -> Value:
        value = self.event.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __repr__(self) -> str:
        again = " redelivered" if self.redelivered else ""
        return f"<{type(self).__name__} {self.id} {self.attributes} matched_by={', '.join(self.matched_by)}{again}>"


class Delivery(DeliveredEvent):
    """An event that matched a subscription, for asyncio."""

    __slots__ = ("_connection", "_subscription", "is_acknowledged")

    def __init__(
        self, event: Event, key: EventKey, matched_by: tuple[str, ...], redelivered: bool,
        subscription: Subscription, connection: Connection | None,
    ) -> None:  # fmt: skip
        super().__init__(event, key, matched_by, redelivered)
        self.is_acknowledged = False
        """Whether `ack` or `nack` was called. Then the subscriber is done with the event."""
        self._subscription = subscription
        self._connection = connection

    @property
    def connection(self) -> Connection | None:
        """The connection that the event came by; None for an event of history."""
        return self._connection

    async def ack(self) -> None:
        """Acknowledge the event: once this returns, it is not delivered again. A second call does nothing.

        Raises NetworkError if no broker has noted it within the client's timeout; then the event comes again.

        >>> await event.ack()  # doctest: +SKIP
        """
        await self._subscription.acknowledge(self, None)

    async def nack(self, reason: str = "") -> None:
        """Reject the event: it comes again later, and after some tries becomes a dead letter with the `reason`.

        Raises NetworkError if no broker has noted it within the client's timeout.

        >>> await event.nack("the database is away")  # doctest: +SKIP
        """
        await self._subscription.acknowledge(self, reason)
