"""The ends of leases, by this node's clock alone, and the timeout of a node that does not get them.

A lease counts for its holder from when it asked, for its granter from when it granted, and there an eighth longer. So
it has ended for the holder before it ends for the granter, if their clocks go wrong by less than that. One timer serves
all leases: nearly all are renewed in time.

A node that is not ready looks for another place after a time that is drawn at random, so that two that keep each other
from being ready do not begin again together. A member waits twice as long as a joiner, on whom nobody counts. It stays
while it hears of no node that is ready: nobody could help it, and where all go nobody is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.overlays.pastry.rules import Side

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.rules import PastrySettings

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
        """Forget all leases, as a life begins or ends."""
        self._held_until = [0, 0]
        self._granted_until.clear()

    def hold(self, side: Side, asked_at: int) -> None:
        """Hold a lease on a side, for its time from when it was asked for."""
        self._held_until[side] = max(self._held_until[side], asked_at + self._lease_us)
        self._arm(self._held_until[side])

    def bind(self, side: Side, node: bytes) -> None:
        """Note a lease that is granted to a node, or taken from it, which binds as well."""
        until = self._granted_until[side, node] = self._runtime.now + self._lease_us + self._lease_us // 8
        self._arm(until)

    def free(self, node: bytes) -> None:
        """Forget the leases of a node whose life is over."""
        for bound in [bound for bound in self._granted_until if bound[1] == node]:
            del self._granted_until[bound]

    def remaining_us(self, side: Side) -> int:
        """Return how long the lease on a side is still good; at zero or below it is over."""
        return self._held_until[side] - self._runtime.now

    def take_ended(self) -> list[tuple[Side, bytes]]:
        """Return the granted leases that have ended since the last call."""
        ended = [bound for bound, until in self._granted_until.items() if until <= self._runtime.now]
        for bound in ended:
            del self._granted_until[bound]
        return ended

    def is_bound(self, side: Side, node: bytes) -> bool:
        """Return whether a lease granted to a node may not have ended."""
        return (side, node) in self._granted_until

    # -- the timer -----------------------------------------------------------------------------------------------------

    def check_expiry(self) -> None:
        """Expire leases before anything else is done; the timer is late where a process was stopped."""
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
    """The time that one node waits for its leases before it looks for another place."""

    __slots__ = ("_met_ready_at", "_patience_us", "_runtime", "_settings", "_since")

    def __init__(self, runtime: Runtime, settings: PastrySettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._since = 0
        self._patience_us = 0
        self._met_ready_at = 0

    def begin(self) -> None:
        """Start waiting: the node is not ready from now on."""
        patience_us = self._settings.patience_us
        self._since = self._runtime.now
        self._patience_us = patience_us + self._runtime.random.randrange(patience_us)

    def met_ready(self) -> None:
        """Note that a node has said that it is ready."""
        self._met_ready_at = self._runtime.now

    def is_over(self, member: bool) -> bool:
        """Return whether it is time to look for another place."""
        unready_us = self._runtime.now - self._since
        if not member:
            return unready_us > self._patience_us
        return unready_us > 2 * self._patience_us and self._runtime.now - self._met_ready_at < self._settings.lease_us
