"""Routing, and finding who is responsible for a key, as overlays have it in common.

It is recursive, each hop one message, counted as it is sent; routing is best effort. A lookup repeats itself, each time
by another link, so that one dead link does not stop it (`lookups`), and is answered straight to the asker. Where a
message goes from a node is the overlay's matter: it derives from `Finding`, and its messages from those here, with tags
of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol

from meetpoint.api.codec import WireError
from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.overlays.lookups import Lookups

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.lookups import Lookup, Then

__all__ = ["Deliver", "Find", "Finding", "Limits", "Located", "Routed"]

Deliver = Callable[[Key, Message, Peer, int], None]


class Find(Message, frozen=True, array_like=True, gc=False):
    """Who is responsible for a key? The answer goes straight to the asker."""

    key: Key
    asker: Peer
    number: int
    hops: int
    care: int = 0


class Located(Message, frozen=True, array_like=True, gc=False):
    """I am, and the question took so many messages to come to me."""

    number: int
    hops: int


class Routed(Message, frozen=True, array_like=True, gc=False):
    """A message on its way to whoever is responsible for a key; closed until it arrives."""

    key: Key
    origin: Peer
    hops: int
    body: bytes


class Limits(Protocol):
    """What an overlay's settings say of it."""

    @property
    def lookup_timeout_us(self) -> int:
        """How long one try waits for its answer."""

    @property
    def lookup_tries(self) -> int:
        """How often a lookup is tried."""

    @property
    def lookups_max(self) -> int:
        """How many are under way at most."""

    @property
    def hops_max(self) -> int:
        """A message that was passed on so often is dropped."""


class Finding:
    """One node's part in it."""

    __slots__ = ("_deliver", "_limits", "_lookups", "_services")

    name: ClassVar[str]
    """Of the overlay, in what is observed."""
    find: ClassVar[type[Find]]
    routed: ClassVar[type[Routed]]

    def __init__(self, services: Runtime, limits: Limits, deliver: Deliver) -> None:
        self._services = services
        self._limits = limits
        self._deliver = deliver
        self._lookups = Lookups(
            services, limits.lookup_timeout_us, limits.lookups_max, self._is_member, self._is_here, self._ask
        )

    # -- what an overlay adds ------------------------------------------------------------------------------------------

    def _is_member(self) -> bool:
        """Whether lookups that are under way go on."""
        raise NotImplementedError

    def _is_here(self, key: bytes) -> bool:
        """Whether a key is this node's."""
        raise NotImplementedError

    def _next_hop(self, key: bytes, care: int) -> Peer | None:
        """The link to pass a message on to; with more care another; None where there is none."""
        raise NotImplementedError

    def _passes(self, key: bytes) -> bool:
        """Whether this node may pass on a message that it has no right to."""
        return True

    def _met(self, source: Peer, other: Peer) -> None:
        """What passes by tells of two nodes that were members a moment ago."""

    def _answer(self, message: Find) -> Located:
        """The answer to a question for a key of this node."""
        raise NotImplementedError

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""
        way = self._onward(key, 0, 0)
        if way is None:
            self._deliver(key, body, self._services.me, 0)
        elif way is not self._services.me:
            self._services.send(way, self.routed(key, self._services.me, 1, self._services.codec.encode(body)))

    def on_routed(self, source: Peer, message: Routed) -> None:
        """A routed message came by."""
        if not self._is_well(message.key, message.origin):
            return
        self._met(source, message.origin)
        to = self._onward(message.key, 0, message.hops)
        if to is None:
            try:
                body = self._services.codec.decode(message.body)
            except WireError:
                self._observe("malformed")
                return
            self._deliver(message.key, body, message.origin, message.hops)
        elif to is not self._services.me:
            self._services.send(to, self.routed(message.key, message.origin, message.hops + 1, message.body))

    def _is_well(self, key: bytes, origin: Peer) -> bool:
        holds = self._services.ring.holds
        if holds(key) and holds(origin.id) and origin.address:
            return True
        self._observe("malformed")
        return False

    def _onward(self, key: bytes, care: int, hops: int) -> Peer | None:
        """Where a message goes from here; None is here, and this node itself: it goes nowhere."""
        if self._is_here(key):
            return None
        if not self._passes(key):
            self._observe("not_ready")
            return self._services.me
        to = self._next_hop(key, care)
        if to is None or hops >= self._limits.hops_max:
            self._observe("unroutable" if to is None else "hops_exceeded")
            return self._services.me
        return to

    def _observe(self, what: str) -> None:
        self._services.observe(f"{self.name}_{what}")

    # -- lookups -------------------------------------------------------------------------------------------------------

    def lookup(self, key: Key, then: Then) -> None:
        """Find the owner of a key, and how many messages that took."""
        self._begin(key, then, self._limits.lookup_tries, None)

    def lookup_via(self, peer: Peer, key: Key, then: Then) -> None:
        """Find the owner of a key in the network that a peer is in, as its members see it; one try."""
        self._begin(key, then, 1, peer)

    def _begin(self, key: Key, then: Then, tries: int, via: Peer | None) -> None:
        if self._may_look_up():
            self._lookups.begin(key, then, tries, via)
        else:
            then(None, 0)

    def _may_look_up(self) -> bool:
        return self._is_member()

    def _ask(self, lookup: Lookup, number: int) -> None:
        to = lookup.via or self._onward(lookup.key, lookup.tried, 0)
        if to is not None and to is not self._services.me:
            self._services.send(to, self.find(lookup.key, self._services.me, number, 1, lookup.tried))

    def on_find(self, source: Peer, message: Find) -> None:
        """Someone looks for the owner of a key."""
        if message.care < 0:
            self._observe("malformed")
            return
        if not self._is_well(message.key, message.asker):
            return
        to = self._way_of(source, message)
        if to is None:
            answer = self._answer(message)
            if message.asker.id == self._services.me.id:
                self.on_located(self._services.me, answer)
            else:
                self._services.send(message.asker, answer)
        elif to is not self._services.me:
            care = max(message.care - 1, 0)
            self._services.send(to, self.find(message.key, message.asker, message.number, message.hops + 1, care))

    def _way_of(self, source: Peer, message: Find) -> Peer | None:
        self._met(source, message.asker)
        return self._onward(message.key, min(message.care, self._limits.lookup_tries), message.hops)

    def on_located(self, source: Peer, message: Located) -> None:
        """The answer to a lookup."""
        if source.id != self._services.me.id:
            self._met(source, source)
        self._lookups.located(source, message.number, message.hops)

    def check(self) -> None:
        """Assert the limits."""
        self._lookups.check()
