"""Routing messages to the owners of keys, and looking up owners, for all overlays.

Routing is recursive: each hop is one message, counted as it is sent. It is best effort, so whoever routes repeats. A
lookup repeats itself, each time over another link, so that one dead link does not stop it; the owner answers the asker
directly. An overlay derives a `Router` that chooses the links, and its messages from those here, with its own tags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import msgspec

from meetpoint.api.codec import WireError
from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime

__all__ = [
    "Deliver", "FindOwner", "KeyLookups", "LookupCallback", "OwnerFound", "PendingLookup", "RoutedMessage", "Router",
    "RoutingSettings",
]  # fmt: skip

Deliver = Callable[[Key, Message, Peer, int], None]
"""Takes a routed message at the owner of its key: the key, the message, its origin, and the hops that it took."""

LookupCallback: TypeAlias = Callable[[Peer | None, int], None]
"""Takes the owner of a key, and how many messages the lookup took; None where nobody answered in time."""


# -- messages ----------------------------------------------------------------------------------------------------------


class FindOwner(Message, frozen=True, array_like=True, gc=False):
    """A question for the owner of a key; the owner answers the asker directly. `attempt` chooses among the links."""

    key: Key
    asker: Peer
    number: int
    hops: int
    attempt: int = 0


class OwnerFound(Message, frozen=True, array_like=True, gc=False):
    """The owner's answer: the number of the question, and how many messages it took to come here."""

    number: int
    hops: int


class RoutedMessage(Message, frozen=True, array_like=True, gc=False):
    """A message on its way to the owner of a key; its body stays encoded until it arrives."""

    key: Key
    origin: Peer
    hops: int
    body: bytes


# -- lookups -----------------------------------------------------------------------------------------------------------


class RoutingSettings(Protocol):
    """The settings of an overlay that routing needs."""

    @property
    def lookup_timeout_us(self) -> int:
        """Time that one try waits for its answer."""

    @property
    def lookup_tries(self) -> int:
        """Number of tries of a lookup."""

    @property
    def lookups_max(self) -> int:
        """Largest number of lookups under way."""

    @property
    def hops_max(self) -> int:
        """Number of hops after which a message is dropped."""


class PendingLookup(msgspec.Struct):
    """A lookup under way: how often it was tried, and until when the last try waits for its answer."""

    key: Key
    then: LookupCallback
    tries_left: int
    via: Peer | None
    """The peer to ask first, where the lookup is for another network."""
    tried: int = 0
    until: int = 0


class KeyLookups:
    """The lookups under way at one node: each is sent, and sent again over another link, until it is answered."""

    __slots__ = ("_has_timer", "_numbers", "_pending", "_runtime", "_settings")

    def __init__(self, runtime: Runtime, settings: RoutingSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._pending: dict[int, PendingLookup] = {}  # by number, and so in the order of their timeouts
        self._has_timer = False
        # Numbers begin at random, or a late answer to a question of an earlier life would end a lookup of this one.
        self._numbers = runtime.random.getrandbits(32)

    def _is_member(self) -> bool:
        """Return whether lookups under way go on."""
        raise NotImplementedError

    def _is_here(self, key: bytes) -> bool:
        """Return whether this node owns a key."""
        raise NotImplementedError

    def _ask(self, lookup: PendingLookup, number: int) -> None:
        """Send one try of a lookup."""
        raise NotImplementedError

    def _may_look_up(self) -> bool:
        return self._is_member()

    def lookup(self, key: Key, then: LookupCallback) -> None:
        """Find the owner of a key, and how many messages that took."""
        self._begin(key, then, self._settings.lookup_tries, None)

    def lookup_via(self, peer: Peer, key: Key, then: LookupCallback) -> None:
        """Find the owner of a key in the network of a peer, as its members see it; in one try."""
        self._begin(key, then, 1, peer)

    def _begin(self, key: Key, then: LookupCallback, tries: int, via: Peer | None) -> None:
        if not self._may_look_up() or len(self._pending) >= self._settings.lookups_max:
            then(None, 0)
        else:
            self._try(PendingLookup(key, then, tries, via))

    def _try(self, lookup: PendingLookup) -> None:
        if lookup.via is None and self._is_here(lookup.key):
            lookup.then(self._runtime.me, 0)
            return
        timeout_us = self._settings.lookup_timeout_us
        lookup.tries_left -= 1
        self._numbers += 1
        lookup.until = self._runtime.now + timeout_us
        self._pending[self._numbers] = lookup
        if not self._has_timer:
            self._has_timer = True
            self._runtime.after(timeout_us, self._check_timeouts)
        self._ask(lookup, self._numbers)
        lookup.tried += 1

    def _check_timeouts(self) -> None:
        """Repeat or end the lookups whose time is over; one timer serves all, as nearly all are answered in time."""
        now = self._runtime.now
        while self._pending:
            number, lookup = next(iter(self._pending.items()))
            if lookup.until > now:
                self._runtime.after(lookup.until - now, self._check_timeouts)
                return
            del self._pending[number]
            if lookup.tries_left and self._is_member():
                self._try(lookup)
            else:
                lookup.then(None, 0)
        self._has_timer = False

    def _complete(self, source: Peer, number: int, hops: int) -> None:
        """End a lookup with its answer; late and repeated answers are counted and dropped."""
        lookup = self._pending.pop(number, None)
        if lookup is None:
            self._runtime.observe("reply_unexpected")
        else:
            lookup.then(source, hops)

    def check(self) -> None:
        """Assert the limits."""
        assert len(self._pending) <= self._settings.lookups_max, "lookups have a limit"


# -- routing -----------------------------------------------------------------------------------------------------------


class Router(KeyLookups):
    """Routing and lookups of one node, for overlays in which the owner of a key knows that it is."""

    __slots__ = ("_deliver",)

    name: ClassVar[str]
    """Prefix of the overlay's observations."""
    find: ClassVar[type[FindOwner]]
    routed: ClassVar[type[RoutedMessage]]

    def __init__(self, runtime: Runtime, settings: RoutingSettings, deliver: Deliver) -> None:
        super().__init__(runtime, settings)
        self._deliver = deliver

    # -- what an overlay defines ---------------------------------------------------------------------------------------

    def _next_hop(self, key: bytes, attempt: int) -> Peer | None:
        """Return the link to pass a message on to, another one for each attempt; None where there is none."""
        raise NotImplementedError

    def _may_pass_on(self, key: bytes) -> bool:
        """Return whether this node may pass on a message for a key that it does not own."""
        return True

    def _note_members(self, source: Peer, other: Peer) -> None:
        """Note two nodes that a passing message shows to have been members a moment ago."""

    def _answer(self, message: FindOwner) -> OwnerFound:
        """Return the answer to a question for a key of this node."""
        raise NotImplementedError

    # -- messages ------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""
        to = self._route(key, 0, 0)
        if to is None:
            self._deliver(key, body, self._runtime.me, 0)
        elif to is not self._runtime.me:
            self._runtime.send(to, self.routed(key, self._runtime.me, 1, self._runtime.codec.encode(body)))

    def on_routed(self, source: Peer, message: RoutedMessage) -> None:
        """Deliver a routed message, or pass it on."""
        if not self._is_valid(message.key, message.origin):
            return
        self._note_members(source, message.origin)
        to = self._route(message.key, 0, message.hops)
        if to is None:
            try:
                body = self._runtime.codec.decode(message.body)
            except WireError:
                self._observe("malformed")
                return
            self._deliver(message.key, body, message.origin, message.hops)
        elif to is not self._runtime.me:
            self._runtime.send(to, self.routed(message.key, message.origin, message.hops + 1, message.body))

    def _is_valid(self, key: bytes, origin: Peer) -> bool:
        holds = self._runtime.ring.holds
        if holds(key) and holds(origin.id) and origin.address:
            return True
        self._observe("malformed")
        return False

    def _route(self, key: bytes, attempt: int, hops: int) -> Peer | None:
        """Return where a message goes from here: None is this node's own, and this node itself is nowhere."""
        if self._is_here(key):
            return None
        if not self._may_pass_on(key):
            self._observe("not_ready")
            return self._runtime.me
        to = self._next_hop(key, attempt)
        if to is None or hops >= self._settings.hops_max:
            self._observe("unroutable" if to is None else "hops_exceeded")
            return self._runtime.me
        return to

    def _observe(self, what: str) -> None:
        self._runtime.observe(f"{self.name}_{what}")

    def _ask(self, lookup: PendingLookup, number: int) -> None:
        to = lookup.via or self._route(lookup.key, lookup.tried, 0)
        if to is not None and to is not self._runtime.me:
            self._runtime.send(to, self.find(lookup.key, self._runtime.me, number, 1, lookup.tried))

    def on_find(self, source: Peer, message: FindOwner) -> None:
        """Answer a question for the owner of a key, or pass it on."""
        if message.attempt < 0:
            self._observe("malformed")
            return
        if not self._is_valid(message.key, message.asker):
            return
        to = self._route_of_find(source, message)
        if to is None:
            answer = self._answer(message)
            if message.asker.id == self._runtime.me.id:
                self.on_located(self._runtime.me, answer)
            else:
                self._runtime.send(message.asker, answer)
        elif to is not self._runtime.me:
            attempt = max(message.attempt - 1, 0)
            self._runtime.send(to, self.find(message.key, message.asker, message.number, message.hops + 1, attempt))

    def _route_of_find(self, source: Peer, message: FindOwner) -> Peer | None:
        self._note_members(source, message.asker)
        return self._route(message.key, min(message.attempt, self._settings.lookup_tries), message.hops)

    def on_located(self, source: Peer, message: OwnerFound) -> None:
        """End a lookup with its answer."""
        if source.id != self._runtime.me.id:
            self._note_members(source, source)
        self._complete(source, message.number, message.hops)
