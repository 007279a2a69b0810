"""Leases on regions, and what must wait until they are revoked, or over (`placement.entries.leases`).

A lease is kept by the node that granted it, also when the home that it was about moves away. Holders take the clock
margin from what they rely on; for leases that are unknown here, a home adds it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Query, Reply
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.entries.leases import Lease, LeaseTable, unknown_us

__all__ = ["RegionLease", "RegionLeases"]

LEASES_MAX: Final = 16_384
TIMEOUT_US: Final = 1_000_000
AGAIN_US: Final = TIMEOUT_US // 4
"""How long to wait before a holder that was not reached is told again."""


class RegionLease(Lease):
    """A lease of one holder on a region; `waiting` are called when it is over."""

    __slots__ = ("ended", "life", "number", "peer", "region", "waiting")

    def __init__(self, number: int, peer: Peer, life: int, region: Region) -> None:
        super().__init__()
        self.number = number
        self.peer = peer
        self.life = life
        self.region = region
        self.ended = False
        """Whether it is being revoked: then it is not renewed, and its holder may get another one."""
        self.waiting: list[Callable[[], None]] = []


class RegionLeases:
    """All leases of one kind that a node has granted."""

    def __init__(self, runtime: Runtime, lease_us: int) -> None:
        self._runtime = runtime
        self._lease_us = lease_us
        self._numbers = runtime.random.getrandbits(48)
        self._table: LeaseTable[int, RegionLease] = LeaseTable()
        self._current: dict[tuple[bytes, int, Region], int] = {}

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Note that a home owns ranges that it did not own before: others may have leases of their former owner."""
        self._table.inherit(home, unknown_us(owed_us, self._lease_us), self._runtime.now)

    def ended(self, home: HomeId) -> None:
        """Forget a home that is not here any more; nothing waits for it to be ready any longer."""
        self._table.drop(home)

    def owed_us(self, home: HomeId) -> int:
        """Return how long leases on a home here, or on the former owner of its ranges, may last."""
        return self._table.owed_us(home, self._runtime.now)

    def when_ready(self, home: HomeId, then: Callable[[], None]) -> None:
        """Call `then` when no unknown leases are left; never, where the home goes meanwhile."""
        at = self._table.ready_at(home)
        if at is None:
            return
        if at > self._runtime.now:
            self._runtime.after(at - self._runtime.now, lambda: self.when_ready(home, then))
        else:
            then()

    # -- granting ------------------------------------------------------------------------------------------------------

    def all(self) -> list[RegionLease]:
        """Return the leases whose time is not over."""
        self._forget_the_old()
        return list(self._table.granted.values())

    def grant(self, peer: Peer, life: int, region: Region, us: int) -> RegionLease | None:
        """Grant a lease for a time, or renew it; None where there are too many."""
        granted, key = self._table.granted, (bytes(peer.id), life, region)
        lease = granted.get(self._current.get(key, 0))
        if lease is None or lease.ended:
            if len(granted) >= LEASES_MAX:
                self._forget_the_old()
                if len(granted) >= LEASES_MAX:
                    return None
            self._numbers += 1
            lease = granted[self._numbers] = RegionLease(self._numbers, peer, life, region)
            self._current[key] = lease.number
        lease.until = max(lease.until, self._runtime.now + us)
        return lease

    def _forget_the_old(self) -> None:
        for lease in self._table.expired(self._runtime.now):
            self.forget(lease)

    def forget(self, lease: RegionLease) -> None:
        """Drop a lease that is over, and call those who wait for that."""
        if self._table.granted.pop(lease.number, None) is not None:
            key = (bytes(lease.peer.id), lease.life, lease.region)
            if self._current.get(key) == lease.number:
                del self._current[key]
            waiting, lease.waiting = lease.waiting, []
            for then in waiting:
                then()

    # -- telling holders -----------------------------------------------------------------------------------------------

    def tell(self, lease: RegionLease, query: Callable[[int], Query], is_heard: Callable[[Reply], bool]) -> None:
        """Send a query to the holder of a lease, until `is_heard` accepts the answer or the lease is over."""
        is_told = False

        def answered(reply: Reply | None) -> None:
            nonlocal is_told
            if lease.number not in self._table.granted or is_told:
                return
            if reply is not None and is_heard(reply):
                is_told = True
            else:
                self._runtime.after(AGAIN_US, ask)

        def ask() -> None:
            self.look_at(lease)
            if lease.number in self._table.granted:
                self._runtime.ask(lease.peer, query(0), TIMEOUT_US).then(answered)

        ask()

    def look_at(self, lease: RegionLease) -> None:
        """Forget a lease if its time is over."""
        if lease.until <= self._runtime.now:
            self.forget(lease)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert len(self._table.granted) <= LEASES_MAX
        assert set(self._current.values()) <= self._table.granted.keys()
