"""How many streams are open, of whom; and how they end when the gateway does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meetpoint.gateway.config import GatewayLimits
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.http.errors import ApiError

__all__ = ["Slots"]


class Slots:
    """All open streams and WebSockets of one gateway."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._endings: set[Callable[[], object]] = set()
        self.is_closing = False

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def take(self, caller: Caller) -> Iterator[None]:
        """A place for one stream, while it is open."""
        self.check(caller)
        self._held[caller.owner] += 1
        try:
            yield
        finally:
            self._held[caller.owner] -= 1
            if not self._held[caller.owner]:
                del self._held[caller.owner]

    def check(self, caller: Caller) -> None:
        """See that there is a place."""
        if self.is_closing:
            raise ApiError(503, "closing", "the gateway stops; try again soon", headers={"Retry-After": "1"})
        limits = self._limits
        if len(self) >= limits.streams or self._held[caller.owner] >= limits.streams_per_client:
            raise ApiError(429, "streams", "too many streams are open; close some", headers={"Retry-After": "5"})

    @contextmanager
    def ending_with(self, end: Callable[[], object]) -> Iterator[None]:
        """Have a stream end when the gateway does."""
        if self.is_closing:
            end()
        self._endings.add(end)
        try:
            yield
        finally:
            self._endings.discard(end)

    def close(self) -> None:
        """End all streams."""
        self.is_closing = True
        for end in tuple(self._endings):
            end()
