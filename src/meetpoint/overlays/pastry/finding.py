"""Routing, and finding who is responsible for a key; recursive, each hop one message, counted as it is sent.

Only ready nodes deliver (`rules`). Deviation: in LuPastry only they pass messages on, too; here any member does, and
what would be its own while it waits for a lease is dropped. Routing is best effort. A lookup repeats itself, each time
by another link, so that one dead link does not stop it. Who is met on the way is remembered: the origin of what passes
by, and whoever answers (`table`, the route cache).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.overlays.lookups import Lookups
from meetpoint.overlays.pastry.messages import Find, Located, Routed
from meetpoint.wire import WireError

if TYPE_CHECKING:
    from meetpoint.overlays.lookups import Lookup, Then
    from meetpoint.overlays.pastry.settings import PastrySettings
    from meetpoint.overlays.pastry.table import Table
    from meetpoint.protocol.messages import Message, Peer
    from meetpoint.protocol.ring import Key
    from meetpoint.protocol.services import Services

__all__ = ["Finding"]

Deliver = Callable[["Key", "Message", "Peer", int], None]


class Finding:
    """One node's part in routing and lookups."""

    __slots__ = ("_deliver", "_lookups", "_services", "_settings", "_table")

    def __init__(self, services: Services, table: Table, settings: PastrySettings, deliver: Deliver) -> None:
        self._services = services
        self._table = table
        self._settings = settings
        self._deliver = deliver
        self._lookups = Lookups(
            services, settings.lookup_timeout_us, settings.lookups_max, self._is_member, self._is_here, self._ask
        )

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""
        way = self._onward(key, 0, 0)
        if way is None:
            self._deliver(key, body, self._services.me, 0)
        elif way is not self._services.me:
            self._services.send(way, Routed(key, self._services.me, 1, self._services.codec.encode(body)))

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
                self._services.observe("pastry_malformed")
                return
            self._deliver(message.key, body, message.origin, message.hops)
        elif to is not self._services.me:
            self._services.send(to, Routed(message.key, message.origin, message.hops + 1, message.body))

    def _is_well(self, key: bytes, origin: Peer) -> bool:
        holds = self._services.ring.holds
        if holds(key) and holds(origin.id) and origin.address:
            return True
        self._services.observe("pastry_malformed")
        return False

    def _met(self, source: Peer, origin: Peer) -> None:
        """What passes by tells of two nodes that were members a moment ago."""
        self._table.heard(source)
        self._table.learn_cache(source)
        self._table.learn_cache(origin)

    def _onward(self, key: bytes, care: int, hops: int) -> Peer | None:
        """Where a message goes from here; None is here, and this node itself: it goes nowhere."""
        table = self._table
        is_own = table.covers(key)
        if is_own and table.is_ready:
            return None
        if is_own or table.state is None or table.state.waits:
            self._services.observe("pastry_not_ready")
            return self._services.me
        to = table.next_hop(key, care)
        if to is None or hops >= self._settings.hops_max:
            self._services.observe("pastry_unroutable" if to is None else "pastry_hops_exceeded")
            return self._services.me
        return to

    # -- lookups -------------------------------------------------------------------------------------------------------

    def lookup(self, key: Key, then: Then) -> None:
        """Find the owner of a key, and how many messages that took."""
        self._begin(key, then, self._settings.lookup_tries, None)

    def lookup_via(self, peer: Peer, key: Key, then: Then) -> None:
        """Find the owner of a key in the network that a peer is in, as its members see it; one try."""
        self._begin(key, then, 1, peer)

    def _begin(self, key: Key, then: Then, tries: int, via: Peer | None) -> None:
        if self._table.state is None:
            then(None, 0)
        else:
            self._lookups.begin(key, then, tries, via)

    def _is_member(self) -> bool:
        return self._table.joined

    def _is_here(self, key: bytes) -> bool:
        return self._table.is_ready and self._table.covers(key)

    def _ask(self, lookup: Lookup, number: int) -> None:
        to = lookup.via or self._onward(lookup.key, lookup.tried, 0)
        if to is not None and to is not self._services.me:
            self._services.send(to, Find(lookup.key, self._services.me, number, 1, lookup.tried))

    def on_find(self, source: Peer, message: Find) -> None:
        """Someone looks for the owner of a key."""
        if message.care < 0:
            self._services.observe("pastry_malformed")
            return
        if not self._is_well(message.key, message.asker):
            return
        if message.key == message.asker.id:
            to = self._beside(message)
        else:
            self._met(source, message.asker)
            to = self._onward(message.key, message.care, message.hops)
        if to is None:
            if message.asker.id == self._services.me.id:
                self.on_located(self._services.me, Located(message.number, message.hops))
            else:
                self._services.send(message.asker, Located(message.number, message.hops))
        elif to is not self._services.me:
            self._services.send(
                to, Find(message.key, message.asker, message.number, message.hops + 1, max(message.care - 1, 0))
            )  # fmt: skip

    def _beside(self, message: Find) -> Peer | None:
        """Where a question of a node about its own id goes: to whoever has it here, where that node may be unknown."""
        if not self._table.is_ready or message.hops >= self._settings.hops_max:
            return self._services.me
        return self._table.next_hop_beside(message.key)

    def on_located(self, source: Peer, message: Located) -> None:
        """The answer to a lookup."""
        if source.id != self._services.me.id:
            self._met(source, source)
        self._lookups.located(source, message.number, message.hops)

    def check(self) -> None:
        """Assert the limits."""
        self._lookups.check()
