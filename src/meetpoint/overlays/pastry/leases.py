"""When leases end, by this node's clock alone.

A lease counts for who holds it from when it asked, for who grants it from when it granted, and there an eighth longer:
so it has ended for the one before it ends for the other, if their clocks go wrong by less than that. One timer serves
all of them: nearly all are renewed in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.overlays.pastry.rules import Side

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Leases"]


class Leases:
    """The ends of one node's leases; `over` is called when one of them may have come."""

    __slots__ = ("_granted_until", "_held_until", "_lease_us", "_over", "_services", "_timer", "_wakes_at")

    def __init__(self, services: Runtime, lease_us: int, over: Callable[[], None]) -> None:
        self._services = services
        self._lease_us = lease_us
        self._over = over
        self._held_until = [0, 0]
        self._granted_until: dict[tuple[Side, bytes], int] = {}
        self._timer: int | None = None
        self._wakes_at = 0

    def clear(self) -> None:
        """A life begins or ends: there are none."""
        self._held_until = [0, 0]
        self._granted_until.clear()

    def hold(self, side: Side, asked_at: int) -> None:
        """A lease is held on a side, for its time from when it was asked for."""
        self._held_until[side] = max(self._held_until[side], asked_at + self._lease_us)
        self._wake_at(self._held_until[side])

    def bind(self, side: Side, node: bytes) -> None:
        """A lease is granted to a node, or one of it is taken, which binds as well."""
        until = self._granted_until[side, node] = self._services.now + self._lease_us + self._lease_us // 8
        self._wake_at(until)

    def free(self, node: bytes) -> None:
        """A life of a node is over, and its leases with it."""
        for bound in [bound for bound in self._granted_until if bound[1] == node]:
            del self._granted_until[bound]

    def left_us(self, side: Side) -> int:
        """For how long the lease on a side is still good; not above zero: it is over."""
        return self._held_until[side] - self._services.now

    def take_ended(self) -> list[tuple[Side, bytes]]:
        """The leases granted that have ended since the last time."""
        ended = [bound for bound, until in self._granted_until.items() if until <= self._services.now]
        for bound in ended:
            del self._granted_until[bound]
        return ended

    def is_bound(self, side: Side, node: bytes) -> bool:
        """Whether a lease granted to a node may not have ended."""
        return (side, node) in self._granted_until

    # -- the timer -----------------------------------------------------------------------------------------------------

    def look_at_the_clock(self) -> None:
        """See whether a lease is over before anything else is done: the timer is late where a process was stopped."""
        if self._timer is not None and self._services.now >= self._wakes_at:
            self._services.cancel(self._timer)
            self._wake()

    def _wake_at(self, until: int) -> None:
        if self._timer is not None:
            if self._wakes_at <= until:
                return
            self._services.cancel(self._timer)
        self._wakes_at = until
        self._timer = self._services.after(max(until - self._services.now, 1), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._over()
        now = self._services.now
        if self._timer is None:
            later = [until for until in (*self._held_until, *self._granted_until.values()) if until > now]
            if later:
                self._wake_at(min(later))
