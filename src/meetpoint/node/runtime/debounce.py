"""Something done for many at a time: at once where it was done long ago, else after a short while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.node.runtime.runtime import Runtime

__all__ = ["FLUSH_US", "Debouncer"]

FLUSH_US: Final = 20_000
"""How often what nobody waits for is written, at most."""


class Debouncer:
    """Calls `do` soon after it is asked to, and never twice within an interval."""

    __slots__ = ("_do", "_done_at", "_interval_us", "_services", "_timer")

    def __init__(self, services: Runtime, interval_us: int, do: Callable[[], None]) -> None:
        self._services = services
        self._interval_us = interval_us
        self._do = do
        self._done_at: int | None = None
        self._timer: int | None = None

    def soon(self) -> None:
        """Do it now, or when the interval is over."""
        if self._timer is not None:
            return
        now = self._services.now
        wait = 0 if self._done_at is None else self._done_at + self._interval_us - now
        if wait <= 0:
            self._done_at = now
            self._do()
        else:
            self._timer = self._services.after(wait, self._fired)

    def stop(self) -> None:
        """Not until it is asked for again."""
        if self._timer is not None:
            self._services.cancel(self._timer)
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        self._done_at = self._services.now
        self._do()
