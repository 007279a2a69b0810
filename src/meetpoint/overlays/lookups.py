"""Lookups under way at one node: each is sent, and sent again by another way, until someone answers or enough is tried.

How a question finds its way is the overlay's matter; what is the same in all of them is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from meetpoint.api.ids import Key, Peer
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Lookup", "Lookups", "Then"]

Then: TypeAlias = Callable[[Peer | None, int], None]
"""Takes who is responsible, and how many messages that took; None where nobody answered in time."""


class Lookup(msgspec.Struct):
    """One lookup: how often it was tried, and until when the last try waits for its answer."""

    key: Key
    then: Then
    tries_left: int
    via: Peer | None
    """Whom to ask first, where it is another network that is asked."""
    tried: int = 0
    until: int = 0


class Lookups:
    """All of one node. `goes_on`: whether it is a member; `is_here`: whether a key is its own; `send` asks for one."""

    __slots__ = (
        "_goes_on", "_is_here", "_looking_out", "_lookups", "_max", "_numbers", "_send", "_services", "_timeout_us",
    )  # fmt: skip

    def __init__(
        self,
        services: Runtime,
        timeout_us: int,
        lookups_max: int,
        goes_on: Callable[[], bool],
        is_here: Callable[[bytes], bool],
        send: Callable[[Lookup, int], None],
    ) -> None:
        self._services = services
        self._timeout_us = timeout_us
        self._max = lookups_max
        self._goes_on = goes_on
        self._is_here = is_here
        self._send = send
        self._lookups: dict[int, Lookup] = {}  # by number, and so by when their time is over
        self._looking_out = False
        self._numbers = services.random.getrandbits(32)  # in each life others: a late answer finds no lookup

    def begin(self, key: Key, then: Then, tries: int, via: Peer | None = None) -> None:
        """Look for the owner of a key; with `via`, as those see it whom that peer would ask."""
        if len(self._lookups) >= self._max:
            then(None, 0)
        else:
            self._try(Lookup(key, then, tries, via))

    def _try(self, lookup: Lookup) -> None:
        if lookup.via is None and self._is_here(lookup.key):
            lookup.then(self._services.me, 0)
            return
        lookup.tries_left -= 1
        self._numbers += 1
        lookup.until = self._services.now + self._timeout_us
        self._lookups[self._numbers] = lookup
        if not self._looking_out:
            self._looking_out = True
            self._services.after(self._timeout_us, self._look_out)
        self._send(lookup, self._numbers)
        lookup.tried += 1

    def _look_out(self) -> None:
        """Take up the lookups whose time is over. One timer serves all: nearly all are answered in time."""
        now = self._services.now
        while self._lookups:
            number, lookup = next(iter(self._lookups.items()))
            if lookup.until > now:
                self._services.after(lookup.until - now, self._look_out)
                return
            del self._lookups[number]
            if lookup.tries_left and self._goes_on():
                self._try(lookup)
            else:
                lookup.then(None, 0)
        self._looking_out = False

    def awaits(self, number: int) -> bool:
        """Whether an answer under this number is waited for."""
        return number in self._lookups

    def located(self, source: Peer, number: int, hops: int) -> None:
        """The answer to a lookup; late and repeated ones are counted and dropped."""
        lookup = self._lookups.pop(number, None)
        if lookup is None:
            self._services.observe("reply_unexpected")
        else:
            lookup.then(source, hops)

    def check(self) -> None:
        """Assert the limits."""
        assert len(self._lookups) <= self._max, "lookups have a limit"
