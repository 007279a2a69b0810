"""An event as it came over a link: read once, for however many subscriptions of this client it came."""

from __future__ import annotations

from meetpoint.api.client_messages import Notification
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["IncomingMessage"]


class IncomingMessage:
    """A notification, the names it is for as their users know them, and the event in it once somebody reads it."""

    __slots__ = ("_event", "key", "names", "notification")

    def __init__(self, notification: Notification, names: tuple[str, ...]) -> None:
        self.notification = notification
        self.key = notification.event
        self.names = names
        self._event: Event | None = None

    @property
    def event(self) -> Event:
        """The event; EventError where its bytes are none."""
        if self._event is None:
            self._event = from_msgpack(self.notification.content)
        return self._event
