"""What all handlers share, and the parts that live as long as the gateway does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.connections import Connections
from meetpoint.gateway.counts import Counts
from meetpoint.gateway.http.access import Door
from meetpoint.gateway.http.routes import Route
from meetpoint.gateway.http.stream_limits import Slots

__all__ = ["Gateway", "Part"]


class Part(Protocol):
    """Some routes, with what they need while the gateway runs."""

    @property
    def routes(self) -> Sequence[Route]:
        """What it serves."""

    async def start(self, gateway: Gateway) -> None:
        """The gateway begins to serve."""

    async def stop(self) -> None:
        """The gateway ends. Called after every `start` that returned."""


class Gateway:
    """One gateway, while it runs."""

    def __init__(self, settings: GatewaySettings, parts: Sequence[Part]) -> None:
        self.settings = settings
        self.parts = tuple(parts)
        self.counts = Counts()
        self.door = Door(settings)
        self.connections = Connections(settings)
        self.slots = Slots(settings.limits)
        """Streams that are open."""
        self.counts.gauges.append(
            lambda: {"connections": float(len(self.connections)), "streams": float(len(self.slots))}
        )
        self._started: list[Part] = []

    async def start(self) -> None:
        """Begin, in the order of the parts."""
        await self.connections.start()
        for part in self.parts:
            await part.start(self)
            self._started.append(part)

    async def stop(self) -> None:
        """End, in the opposite order."""
        self.slots.close()
        while self._started:
            await self._started.pop().stop()
        await self.connections.close()
