"""When leases end, by this node's clock alone.

A lease counts for who holds it from when it asked, for who grants it from when it granted, and there an eighth longer:
so it has ended for the one before it ends for the other, if their clocks go wrong by less than that. One timer serves
all of them: nearly all are renewed in time.

How long a node that is not ready bears it, before it looks for another place.

The time is drawn, so that two that keep each other from being ready do not begin again together. A member bears it
twice as long as a joiner, on whom nobody counts, and does not go while it hears of no node that is ready: nobody could
help it, and where all go nobody is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.overlays.pastry.rules import Side

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.settings import PastrySettings

__all__ = ["LeaseTimer", "UnreadyTimeout"]


class LeaseTimer:
    """The ends of one node's leases; `over` is called when one of them may have come."""

    __slots__ = ("_fires_at", "_granted_until", "_held_until", "_lease_us", "_on_expired", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, lease_us: int, over: Callable[[], None]) -> None:
        self._runtime = runtime
        self._lease_us = lease_us
        self._on_expired = over
        self._held_until = [0, 0]
        self._granted_until: dict[tuple[Side, bytes], int] = {}
        self._timer: int | None = None
        self._fires_at = 0

    def clear(self) -> None:
        """A life begins or ends: there are none."""
        self._held_until = [0, 0]
        self._granted_until.clear()

    def hold(self, side: Side, asked_at: int) -> None:
        """A lease is held on a side, for its time from when it was asked for."""
        self._held_until[side] = max(self._held_until[side], asked_at + self._lease_us)
        self._arm(self._held_until[side])

    def bind(self, side: Side, node: bytes) -> None:
        """A lease is granted to a node, or one of it is taken, which binds as well."""
        until = self._granted_until[side, node] = self._runtime.now + self._lease_us + self._lease_us // 8
        self._arm(until)

    def free(self, node: bytes) -> None:
        """A life of a node is over, and its leases with it."""
        for bound in [bound for bound in self._granted_until if bound[1] == node]:
            del self._granted_until[bound]

    def remaining_us(self, side: Side) -> int:
        """For how long the lease on a side is still good; not above zero: it is over."""
        return self._held_until[side] - self._runtime.now

    def take_ended(self) -> list[tuple[Side, bytes]]:
        """The leases granted that have ended since the last time."""
        ended = [bound for bound, until in self._granted_until.items() if until <= self._runtime.now]
        for bound in ended:
            del self._granted_until[bound]
        return ended

    def is_bound(self, side: Side, node: bytes) -> bool:
        """Whether a lease granted to a node may not have ended."""
        return (side, node) in self._granted_until

    # -- the timer -----------------------------------------------------------------------------------------------------

    def check_expiry(self) -> None:
        """See whether a lease is over before anything else is done: the timer is late where a process was stopped."""
        if self._timer is not None and self._runtime.now >= self._fires_at:
            self._runtime.cancel(self._timer)
            self._fire()

    def _arm(self, until: int) -> None:
        if self._timer is not None:
            if self._fires_at <= until:
                return
            self._runtime.cancel(self._timer)
        self._fires_at = until
        self._timer = self._runtime.after(max(until - self._runtime.now, 1), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._on_expired()
        now = self._runtime.now
        if self._timer is None:
            later = [until for until in (*self._held_until, *self._granted_until.values()) if until > now]
            if later:
                self._arm(min(later))


class UnreadyTimeout:
    """One node's."""

    __slots__ = ("_met_ready_at", "_patience_us", "_runtime", "_settings", "_since")

    def __init__(self, runtime: Runtime, settings: PastrySettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._since = 0
        self._patience_us = 0
        self._met_ready_at = 0

    def begin(self) -> None:
        """The node is not ready from now on."""
        patience_us = self._settings.patience_us
        self._since = self._runtime.now
        self._patience_us = patience_us + self._runtime.random.randrange(patience_us)

    def met_ready(self) -> None:
        """A node has said that it is ready."""
        self._met_ready_at = self._runtime.now

    def is_over(self, member: bool) -> bool:
        """Whether it is time to look for another place."""
        unready_us = self._runtime.now - self._since
        if not member:
            return unready_us > self._patience_us
        return unready_us > 2 * self._patience_us and self._runtime.now - self._met_ready_at < self._settings.lease_us
