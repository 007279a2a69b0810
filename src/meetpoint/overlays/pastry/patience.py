"""How long a node that is not ready bears it, before it looks for another place.

The time is drawn, so that two that keep each other from being ready do not begin again together. A member bears it
twice as long as a joiner, on whom nobody counts, and does not go while it hears of no node that is ready: nobody could
help it, and where all go nobody is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.settings import PastrySettings

__all__ = ["Patience"]


class Patience:
    """One node's."""

    __slots__ = ("_met_ready_at", "_patience_us", "_services", "_settings", "_since")

    def __init__(self, services: Runtime, settings: PastrySettings) -> None:
        self._services = services
        self._settings = settings
        self._since = 0
        self._patience_us = 0
        self._met_ready_at = 0

    def begin(self) -> None:
        """The node is not ready from now on."""
        patience_us = self._settings.patience_us
        self._since = self._services.now
        self._patience_us = patience_us + self._services.random.randrange(patience_us)

    def met_ready(self) -> None:
        """A node has said that it is ready."""
        self._met_ready_at = self._services.now

    def is_over(self, member: bool) -> bool:
        """Whether it is time to look for another place."""
        unready_us = self._services.now - self._since
        if not member:
            return unready_us > self._patience_us
        return unready_us > 2 * self._patience_us and self._services.now - self._met_ready_at < self._settings.lease_us
