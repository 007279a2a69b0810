"""What is driven from outside by inputs: the one call by which protocol state changes, and where each input goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.effects import Effect
from meetpoint.node.runtime.inputs import (
    Archived,
    ClientRequest,
    ContactsFound,
    Input,
    Instant,
    Measured,
    PeerUnreachable,
    Persisted,
    Received,
    Started,
    TimerFired,
    Withdrawn,
)
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Driven"]


class Driven:
    """Takes one input at a time and returns effects. Who is driven starts, is asked, and has an overlay."""

    overlay: Overlay

    def __init__(self, services: Runtime) -> None:
        self._services = services
        self._handlers: dict[type[Message], Handler] = {}
        self._others: dict[type, Callable[[Any], None]] = {
            TimerFired: lambda item: services.fired(item.timer),
            Persisted: lambda item: services.persisted(item.ticket),
            ClientRequest: self._asked,
            Withdrawn: self._withdrawn,
            Archived: self._archived,
            Measured: self._measured,
            PeerUnreachable: self._lost,
            Started: self._start,
            ContactsFound: self._met,
        }

    @property
    def me(self) -> Peer:
        """The node as its peers know it."""
        return self._services.me

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        """Take one input; return what is to be done, in order."""
        services = self._services
        effects = services.begin(now)
        if type(item) is not Received:
            self._others[type(item)](item)
            return effects
        message = item.message
        handler = self._handlers.get(type(message))
        if item.source.id == services.me.id:
            services.observe("message_from_oneself")  # of someone who lies
        elif handler is not None:
            handler(item.source, message)
        elif isinstance(message, Reply):
            services.replied(item.source, message)
        else:
            services.observe("message_unexpected")
        return effects

    def _lost(self, item: PeerUnreachable) -> None:
        self._services.lost(item.peer)
        self.overlay.suspect(item.peer)

    def _asked(self, item: ClientRequest) -> None:
        raise NotImplementedError

    def _withdrawn(self, item: Withdrawn) -> None:
        raise NotImplementedError

    def _archived(self, item: Archived) -> None:
        raise NotImplementedError

    def _measured(self, item: Measured) -> None:
        raise NotImplementedError

    def _start(self, item: Started) -> None:
        raise NotImplementedError

    def _met(self, item: ContactsFound) -> None:
        raise NotImplementedError
