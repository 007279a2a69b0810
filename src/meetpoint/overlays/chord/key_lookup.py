"""Routing, and finding who is responsible for a key; recursive, each hop one message, counted as it is sent.

A message goes to the link nearest before its key until a node finds the key between itself and its first live
successor; that one gets it as *final*. Under churn the sender of a final message may be behind the times:

- the receiver's predecessor lies between: it is new to the sender. The message goes back to it, still final;
- the receiver knows its predecessor to be dead: the key has fallen to the receiver.

Any other node that gets a message for a key that is not its own passes it on. Nothing is passed on more than `hops_max`
times. Routing is best effort. A lookup repeats itself, each time by other links, so that one dead finger does not stop
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.api.codec import WireError
from meetpoint.overlays.chord.messages import Find, Located, Routed
from meetpoint.overlays.lookups import Lookups

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, Peer
    from meetpoint.api.messages import Message
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.settings import ChordSettings
    from meetpoint.overlays.chord.table import Table
    from meetpoint.overlays.lookups import Lookup, Then

__all__ = ["Finding"]

Deliver = Callable[["Key", "Message", "Peer", int], None]


class Finding:
    """One node's part in routing and lookups."""

    __slots__ = ("_deliver", "_lookups", "_services", "_settings", "_table", "_width")

    def __init__(self, services: Runtime, table: Table, settings: ChordSettings, deliver: Deliver) -> None:
        self._services = services
        self._table = table
        self._settings = settings
        self._deliver = deliver
        self._lookups = Lookups(
            services, settings.lookup_timeout_us, settings.lookups_max, self._is_member, table.owns, self._ask
        )
        self._width = services.ring.width

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""
        table = self._table
        if table.owns(key):
            self._deliver(key, body, self._services.me, 0)
            return
        to, final = table.next_hop(key)
        if to is None:
            self._services.observe("chord_unroutable")
            return
        self._services.send(to, Routed(key, self._services.me, 1, self._services.codec.encode(body), final))

    def on_routed(self, source: Peer, message: Routed) -> None:
        """A routed message came by."""
        key = message.key
        if len(key) != self._width:
            self._services.observe("chord_malformed")
            return
        to, final = self._onward(source, key, message.final, 0)
        if to is not None:
            if message.hops < self._settings.hops_max:
                self._services.send(to, Routed(key, message.origin, message.hops + 1, message.body, final))
            else:
                self._services.observe("chord_hops_exceeded")
        elif final:
            try:
                body = self._services.codec.decode(message.body)
            except WireError:
                self._services.observe("chord_malformed")
                return
            self._deliver(key, body, message.origin, message.hops)

    def _onward(self, source: Peer, key: bytes, final: bool, care: int) -> tuple[Peer | None, bool]:
        """Where a message goes from here, and whether that is final; nowhere and final is here."""
        table = self._table
        if table.state is None:
            self._services.observe("chord_not_a_member")
            return None, False
        if source.id in table.contacts.suspects:
            table.heard(source)
        if not final and not care:
            return table.way(key)
        if table.owns(key):
            return None, True
        if final:
            prdc = table.prdc()
            if prdc is None:
                return None, True
            if prdc.id != source.id:
                return prdc, True
        return table.next_hop(key, care)

    def _beyond(self, asker: Peer) -> tuple[Peer | None, bool]:
        """Where a question goes that has come to its asker, who did not know: to those after it."""
        after = self._table.next_after(asker.id)
        if after is not None:
            return after, True
        prdc = self._table.prdc()
        return (None, True) if prdc is None or prdc.id == asker.id else (prdc, True)

    # -- lookups -------------------------------------------------------------------------------------------------------

    def lookup(self, key: Key, then: Then) -> None:
        """Find the owner of a key, and how many messages that took."""
        self._begin(key, then, self._settings.lookup_tries, None)

    def lookup_via(self, peer: Peer, key: Key, then: Then) -> None:
        """Find the owner of a key in the ring that a peer is in, as its members see it; one try."""
        self._begin(key, then, 1, peer)

    def _begin(self, key: Key, then: Then, tries: int, via: Peer | None) -> None:
        if self._table.state is None:
            then(None, 0)
        else:
            self._lookups.begin(key, then, tries, via)

    def _is_member(self) -> bool:
        return self._table.state is not None

    def _ask(self, lookup: Lookup, number: int) -> None:
        to, final = lookup.via, False
        if to is None:
            to, final = self._table.next_hop(lookup.key, lookup.tried)
        if to is not None:
            self._services.send(to, Find(lookup.key, self._services.me, number, 1, lookup.tried, final))

    def on_find(self, source: Peer, message: Find) -> None:
        """Someone looks for the owner of a key."""
        key = message.key
        if len(key) != self._width or message.care < 0:
            self._services.observe("chord_malformed")
            return
        to, final = self._onward(source, key, message.final, message.care)
        if to is not None and to.id == message.asker.id:
            to, final = self._beyond(message.asker)
        if to is not None:
            if message.hops < self._settings.hops_max:
                self._services.send(to, Find(key, message.asker, message.number, message.hops + 1, message.care, final))
            else:
                self._services.observe("chord_hops_exceeded")
        elif final:
            if message.asker.id == self._table.id:
                self.on_located(self._services.me, Located(message.number, message.hops))
            else:
                self._services.send(message.asker, Located(message.number, message.hops))

    def on_located(self, source: Peer, message: Located) -> None:
        """The answer to a lookup."""
        if self._lookups.awaits(message.number):
            self._table.heard(source)
        self._lookups.located(source, message.number, message.hops)

    def check(self) -> None:
        """Assert the limits."""
        self._lookups.check()
