"""Leases: what a node told others for a time, and how long others must wait for that time to be over.

The holder of a lease counts from when it asked, the granter from when it answers. Clocks run at different speeds, so
one of the two adds a margin: a lease is over at its holder before it is over at its granter.

After a restart, or when key ranges have come from another home, there may be leases that nobody here knows of. Their
subject, a home or a member of a graph, is not *ready* until the longest of them is over. The giver of ranges says
how long that may be (`owed_us`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["CLOCK_MARGIN", "Lease", "LeaseTable", "granter_us", "holder_us", "unknown_us"]


CLOCK_MARGIN: Final = 8
"""Two clocks may differ in the time of a lease by one part of it in so many."""


def granter_us(us: int) -> int:
    """Return how long a granter waits for a lease of this time."""
    return us + us // CLOCK_MARGIN


def holder_us(us: int) -> int:
    """Return how long a holder relies on a lease of this time."""
    return us - us // CLOCK_MARGIN


def unknown_us(owed_us: int | None, lease_us: int) -> int:
    """Return how long leases that are unknown here may last: as a peer says, and never longer than any lease."""
    return lease_us if owed_us is None else min(owed_us, lease_us)


class Lease:
    """A lease that was granted here, which is over at `until` by the clock here."""

    __slots__ = ("until",)

    def __init__(self, until: int = 0) -> None:
        self.until = until


KeyT = TypeVar("KeyT", bound=Hashable)
LeaseT = TypeVar("LeaseT", bound=Lease)


class LeaseTable(Generic[KeyT, LeaseT]):
    """The leases that a node has granted, and until when each subject may have leases that are not known here."""

    def __init__(self) -> None:
        self.granted: dict[KeyT, LeaseT] = {}
        self._ready_at: dict[Hashable, int] = {}

    def inherit(self, subject: Hashable, owed_us: int, now: int) -> None:
        """Wait for leases that others granted on a subject, and that end within `owed_us` from now."""
        self._ready_at[subject] = max(self._ready_at.get(subject, 0), now + granter_us(owed_us))

    def drop(self, subject: Hashable) -> None:
        """Forget a subject: it is not here any more."""
        self._ready_at.pop(subject, None)

    def ready_at(self, subject: Hashable) -> int | None:
        """Return when the unknown leases of a subject are over; None where the subject is not here."""
        return self._ready_at.get(subject)

    def owed_us(self, subject: Hashable, now: int) -> int:
        """Return how long others may still rely on a lease on a subject, granted here or before."""
        until = max((lease.until for lease in self.granted.values()), default=0)
        return max(0, until - now, self._ready_at.get(subject, 0) - now)

    def expired(self, now: int) -> list[LeaseT]:
        """Return the leases whose time is over; the granter removes them from `granted`."""
        return [lease for lease in self.granted.values() if lease.until <= now]
