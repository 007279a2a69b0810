"""An overlay that is put together of a table, its upkeep, and a way to find keys: what it just hands on to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, Peer
    from meetpoint.api.messages import Message
    from meetpoint.overlays.contacts import Contacts

__all__ = ["Assembled"]


class Checked(Protocol):
    """Any part."""

    def check(self) -> None:
        """Assert what must hold of it at all times."""


class Links(Checked, Protocol):
    """What a node knows of others."""

    @property
    def contacts(self) -> Contacts:
        """Its address book."""

    def peers(self) -> tuple[Peer, ...]:
        """All live links, in the order of their ids."""

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """The links in a scope, each with its part of it."""


class Routing(Checked, Protocol):
    """How it finds keys."""

    def route(self, key: Key, body: Message) -> None:
        """Send a message on its way to a key."""

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the owner of a key, and how many messages that took."""


class Parts(Protocol):
    """An overlay, as far as this goes."""

    @property
    def _finding(self) -> Routing: ...

    @property
    def _table(self) -> Links: ...

    @property
    def _upkeep(self) -> Checked: ...


class Assembled:
    """The methods of an `Overlay` that are the same in all that are put together so."""

    __slots__ = ()

    def route(self: Parts, key: Key, body: Message) -> None:
        """Send a message to the owner of a key; best effort."""
        self._finding.route(key, body)

    def lookup(self: Parts, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the owner of a key, and the messages it took; None where nobody answered in time."""
        self._finding.lookup(key, then)

    def split(self: Parts, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """The links in a scope, each with its part of it; how a scope is written is the table's matter."""
        return self._table.split(scope)

    def peers(self: Parts) -> tuple[Peer, ...]:
        """All live links, in the order of their ids."""
        return self._table.peers()

    def check(self: Parts) -> None:
        """Assert what must hold in this node at all times."""
        self._table.check()
        self._table.contacts.check()
        self._upkeep.check()
        self._finding.check()
