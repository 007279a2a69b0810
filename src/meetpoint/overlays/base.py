"""The base classes of overlays: the overlay with its periodic timer, and its table of links.

`RingTable` is for overlays whose broadcasts cut the circle into arcs: each link gets the part up to the next link.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, NodeId, Peer
    from meetpoint.api.messages import Message
    from meetpoint.node.runtime.inputs import Instant
    from meetpoint.node.runtime.ring import Ring
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.contacts import Contacts
    from meetpoint.overlays.routing import LookupCallback

__all__ = ["LinkTable", "OverlayBase", "RingTable"]


class Checkable(Protocol):
    """A part with assertions that hold between two inputs."""

    def check(self) -> None:
        """Assert what must hold at all times."""


class RoutesKeys(Checkable, Protocol):
    """A router with its lookups."""

    def route(self, key: Key, body: Message) -> None: ...

    def lookup(self, key: Key, then: LookupCallback) -> None: ...


class LinkTable:
    """The links of one node; it reports changes of neighbours once per step."""

    __slots__ = ("_changed", "_is_stale", "_on_change", "_view", "contacts", "id", "version")

    _view: Any

    def __init__(self, me: NodeId, contacts: Contacts, on_change: Callable[[], None]) -> None:
        self.id = me
        self.contacts = contacts
        self.version = 0
        self._on_change = on_change
        self._changed = False
        self._is_stale = True
        self._view = None

    def peers(self) -> tuple[Peer, ...]:
        """Return all live links, ordered by id."""
        raise NotImplementedError

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Return the links in a scope, each with its part of it."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert what must hold of the links."""
        raise NotImplementedError

    def report_changes(self) -> None:
        """Report changed neighbours, if there are any; called when a step is complete."""
        if self._changed:
            self._changed = False
            self._on_change()


class RingTable(LinkTable):
    """The links of one node of a ring; what routing needs is rebuilt only after a change."""

    __slots__ = ("_clockwise", "_first", "_order", "_parts", "ring")

    def __init__(self, me: NodeId, ring: Ring, contacts: Contacts, on_change: Callable[[], None]) -> None:
        super().__init__(me, contacts, on_change)
        self.ring = ring
        self._order: list[bytes] = []  # the ids of all links, sorted
        self._first = 0  # where among them the first one after this node is
        self._clockwise: list[Peer] = []  # all links, clockwise from this node
        self._parts: list[tuple[Peer, bytes]] = []  # the same, each with the id of the next; the last with this node's

    def _is_neighbour(self, node: bytes) -> bool:
        """Return whether a change of a node is news for the neighbours' sake."""
        raise NotImplementedError

    def _drop(self, node: bytes) -> None:
        """Drop a node from the links that maintenance does not see to."""
        raise NotImplementedError

    def _sort(self) -> None:
        """Rebuild what is kept sorted, and clear `_is_stale`."""
        raise NotImplementedError

    def _invalidate(self) -> None:
        self.version += 1
        self._is_stale = True
        self._view = None

    def suspect(self, peer: Peer, now: Instant) -> bool:
        """Drop a peer from the links that was silent or has left; return whether that is news."""
        if not self.contacts.suspect(peer, now):
            return False
        self._drop(peer.id)
        self._invalidate()
        self._changed = self._changed or self._is_neighbour(peer.id)
        return True

    def heard(self, peer: Peer) -> None:
        """Note that a peer spoke as a member."""
        if self.contacts.heard(peer):
            self._invalidate()
            self._changed = self._changed or self._is_neighbour(peer.id)

    def _cut(self, links: Mapping[bytes, Peer]) -> None:
        """Cut the circle into the parts of these links."""
        order = self._order = sorted(links)
        at = self._first = bisect_right(order, self.id)
        self._clockwise = [links[node] for node in order[at:] + order[:at]]
        ends = [*(peer.id for peer in self._clockwise[1:]), self.id]
        self._parts = list(zip(self._clockwise, ends, strict=True)) if self._clockwise else []

    def clockwise(self) -> Sequence[Peer]:
        """Return all links with parts, clockwise from this node."""
        if self._is_stale:
            self._sort()
        return self._clockwise

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Return the links before the end of a scope, each with the end of its own part."""
        if self._is_stale:
            self._sort()
        if scope is None:
            return list(self._parts)
        if scope == self.id:
            return []  # nothing lies between; from a node to itself only an origin has the whole circle
        count = bisect_left(self._order, scope) - self._first
        if scope < self.id:  # the scope goes round past zero
            count += len(self._order)
        parts = self._parts[:count]
        if parts:
            parts[-1] = (parts[-1][0], scope)
        return parts


class OverlayBase:
    """The methods of an `Overlay` that all three overlays share."""

    __slots__ = ("_timer",)

    _runtime: Runtime
    _table: LinkTable
    _maintenance: Checkable
    _router: RoutesKeys
    _timer: int | None

    def route(self, key: Key, body: Message) -> None:
        """Send a message to the owner of a key; best effort."""
        self._router.route(key, body)

    def lookup(self, key: Key, then: LookupCallback) -> None:
        """Find the owner of a key and the messages that took; None where nobody answered in time."""
        self._router.lookup(key, then)

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Return the links in a scope, each with its part of it; the table defines how a scope is written."""
        return self._table.split(scope)

    def peers(self) -> tuple[Peer, ...]:
        """Return all live links, ordered by id."""
        return self._table.peers()

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
        self._table.check()
        self._table.contacts.check()
        self._maintenance.check()
        self._router.check()

    # -- the periodic timer --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Run one period of maintenance, and schedule the next."""
        raise NotImplementedError

    def _start_ticks(self, period_us: int) -> None:
        # The first period ends at a random point, or nodes that begin together would all send at the same moments.
        if self._timer is None:
            self._timer = self._runtime.after(1 + self._runtime.random.randrange(period_us), self._tick)

    def _schedule_tick(self, period_us: int, jitter: int) -> None:
        """Schedule the next tick after one period, at most a part of 1/jitter earlier or later."""
        delay = period_us - period_us // jitter + self._runtime.random.randrange(2 * period_us // jitter + 1)
        self._timer = self._runtime.after(delay, self._tick)

    def _stop_ticks(self) -> None:
        if self._timer is not None:
            self._runtime.cancel(self._timer)
            self._timer = None
