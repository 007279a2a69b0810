"""What a node has promised others for a time, and what must wait until it is taken back, or its time is over.

Whoever asks counts the time from when it asked, and a little less than it was told; who promises counts from when it
answers: so a promise is over with the one who relies on it before it is with the one who gave it.

A promise is kept by the node that gave it, also when the home that it was about moves away. After a restart, or when
arcs have come from another home, there may be promises that nobody here knows of. A home then is not *ready* until the
longest of them is over; a home that gives arcs says how long that may be (`owed_us`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Query, Reply
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region

__all__ = ["MARGIN", "Promise", "Promises"]

MARGIN: Final = 32
"""Clocks differ: one part in so many is left out."""
PROMISES_MAX: Final = 16_384
TIMEOUT_US: Final = 1_000_000
AGAIN_US: Final = TIMEOUT_US // 4
"""How long to wait before one that was not reached is told again."""


class Promise:
    """What one other was promised; `waiting` are those to call when it is over."""

    __slots__ = ("ended", "life", "number", "peer", "region", "until", "waiting")

    def __init__(self, number: int, peer: Peer, life: int, region: Region) -> None:
        self.number = number
        self.peer = peer
        self.life = life
        self.region = region
        self.until = 0
        self.ended = False
        """It is being taken back: it is not renewed, as whoever lets go of it may be promised the same anew."""
        self.waiting: list[Callable[[], None]] = []


class Promises:
    """All promises of one kind that a node has given."""

    def __init__(self, services: Runtime, lease_us: int) -> None:
        self._services = services
        self._lease_us = lease_us
        self._numbers = services.random.getrandbits(48)
        self._open: dict[int, Promise] = {}
        self._current: dict[tuple[bytes, int, Region], int] = {}
        self._ready_at: dict[HomeId, int] = {}

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs that it did not hold before, and others may rely on promises of who held them."""
        owed = self._lease_us if owed_us is None else min(owed_us, self._lease_us)
        at = self._services.now + owed + -(-owed // MARGIN)
        self._ready_at[home] = max(self._ready_at.get(home, 0), at)

    def ended(self, home: HomeId) -> None:
        """A home is not here any more: what waits for it to be ready waits no longer."""
        self._ready_at.pop(home, None)

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what a home here has promised, or who held its arcs before."""
        now = self._services.now
        until = max((promise.until for promise in self._open.values()), default=0)
        return max(0, until - now, self._ready_at.get(home, 0) - now)

    def when_ready(self, home: HomeId, then: Callable[[], None]) -> None:
        """Call back when no promises of before are left; never, where the home goes meanwhile."""
        at = self._ready_at.get(home)
        if at is None:
            return
        if at > self._services.now:
            self._services.after(at - self._services.now, lambda: self.when_ready(home, then))
        else:
            then()

    # -- giving --------------------------------------------------------------------------------------------------------

    def all(self) -> list[Promise]:
        """Those whose time is not over."""
        self._forget_the_old()
        return list(self._open.values())

    def give(self, peer: Peer, life: int, region: Region, us: int) -> Promise | None:
        """Promise something for a time, or renew it; None where there are too many."""
        key = (bytes(peer.id), life, region)
        promise = self._open.get(self._current.get(key, 0))
        if promise is None or promise.ended:
            if len(self._open) >= PROMISES_MAX:
                self._forget_the_old()
                if len(self._open) >= PROMISES_MAX:
                    return None
            self._numbers += 1
            promise = self._open[self._numbers] = Promise(self._numbers, peer, life, region)
            self._current[key] = promise.number
        promise.until = max(promise.until, self._services.now + us)
        return promise

    def _forget_the_old(self) -> None:
        now = self._services.now
        for promise in [each for each in self._open.values() if each.until <= now]:
            self.forget(promise)

    def forget(self, promise: Promise) -> None:
        """It is over: whoever waits for that goes on."""
        if self._open.pop(promise.number, None) is not None:
            key = (bytes(promise.peer.id), promise.life, promise.region)
            if self._current.get(key) == promise.number:
                del self._current[key]
            waiting, promise.waiting = promise.waiting, []
            for then in waiting:
                then()

    # -- taking back ---------------------------------------------------------------------------------------------------

    def tell(self, promise: Promise, word: Callable[[int], Query], heard: Callable[[Reply], bool]) -> None:
        """Say something to whom a promise was given, until `heard` takes the answer, or it is over."""
        is_told = False

        def answered(reply: Reply | None) -> None:
            nonlocal is_told
            if promise.number not in self._open or is_told:
                return
            if reply is not None and heard(reply):
                is_told = True
            else:
                self._services.after(AGAIN_US, ask)

        def ask() -> None:
            self.look_at(promise)
            if promise.number in self._open:
                self._services.ask(promise.peer, word, answered, TIMEOUT_US)

        ask()

    def look_at(self, promise: Promise) -> None:
        """Forget it, if its time is over."""
        if promise.until <= self._services.now:
            self.forget(promise)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert len(self._open) <= PROMISES_MAX
        assert set(self._current.values()) <= self._open.keys()
