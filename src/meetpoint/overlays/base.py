"""The base class of the overlays: a routing table, its maintenance, a router, and a periodic timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, Peer
    from meetpoint.api.messages import Message
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.contacts import Contacts
    from meetpoint.overlays.routing import LookupCallback

__all__ = ["OverlayBase"]


class Checkable(Protocol):
    """A part with assertions that hold between two inputs."""

    def check(self) -> None:
        """Assert what must hold at all times."""


class RoutingTable(Checkable, Protocol):
    """The links of one node."""

    @property
    def contacts(self) -> Contacts: ...

    def peers(self) -> tuple[Peer, ...]: ...

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]: ...


class RoutesKeys(Checkable, Protocol):
    """A router with its lookups."""

    def route(self, key: Key, body: Message) -> None: ...

    def lookup(self, key: Key, then: LookupCallback) -> None: ...


class OverlayBase:
    """The methods of an `Overlay` that all three overlays share."""

    __slots__ = ("_timer",)

    _runtime: Runtime
    _table: RoutingTable
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
