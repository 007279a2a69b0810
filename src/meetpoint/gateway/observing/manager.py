"""/api/nodes: brokers of this machine come and go, where whoever runs the gateway runs them too."""

from __future__ import annotations

from typing import Protocol

from meetpoint.gateway.observing.shapes import NodeIs

__all__ = ["Manager"]


class Manager(Protocol):
    """Whoever runs the brokers. What cannot be done is an ApiError with the reason."""

    def nodes(self) -> list[NodeIs]:
        """All of them, also those that are stopped."""

    async def join(self) -> str:
        """Start a new one; returns what was done, in words."""

    async def leave(self, address: str) -> str:
        """Have one hand everything over, and stop."""

    async def crash(self, address: str) -> str:
        """Kill one. It stays down until it is started."""

    async def start(self, address: str) -> str:
        """Start one that is down."""
