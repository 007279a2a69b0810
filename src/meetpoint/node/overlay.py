"""What an overlay offers to the node and to its schemes, and what it tells them (after the common API of Dabek et al.).

An overlay knows peers and routes keys. It keeps nothing on disk: a node that restarts joins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message

__all__ = ["Handler", "Overlay", "OverlayView", "Places", "Span", "Upcalls"]

Handler: TypeAlias = Callable[[Peer, Message], None]
"""Takes a message of one kind: who sent it, and the message."""


class OverlayView(Protocol):
    """What may be seen of an overlay from outside; each overlay has more to show."""

    @property
    def joined(self) -> bool:
        """Whether the node is a member."""


class Upcalls(Protocol):
    """What an overlay tells the node that it is part of."""

    def joined(self) -> None:
        """The node has become a member; it may route."""

    def neighbours_changed(self) -> None:
        """`neighbours` or what the node is responsible for may have changed."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """A routed message has come to the node that is responsible for its key: this one."""


class Span(NamedTuple):
    """The keys from `first` to `last`, both included; it does not go round the end of the circle."""

    first: bytes
    last: bytes


class Places(Protocol):
    """Which keys nodes have, in an overlay in which that does not follow from their ids."""

    def founding(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, Span]:
        """The keys of nodes that begin a network together; who is not named has none. The same at every node."""

    def mine(self) -> tuple[Span, ...] | None:
        """The keys that are this node's now, none where it stands by; None where it has yet to find its place."""

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the node that has a key, and its span around it; None where nobody answered in time."""


class Overlay(Protocol):
    """One node's part of an overlay."""

    places: Places | None
    """Where nodes have keys that do not follow from their ids; None where they follow."""

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Which messages are the overlay's, and who takes them."""

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network together with these peers, all of whom do the same; one alone is enough."""

    def join(self, contact: Peer) -> None:
        """Become a member through one; goes on trying until `Upcalls.joined`. May be called again with another."""

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""

    def remember(self, peers: Sequence[Peer]) -> None:
        """Peers that were members before: should they be in a ring of their own, the two become one."""

    def suspect(self, peer: Peer) -> None:
        """Someone found a peer silent or unreachable."""

    def route(self, key: Key, body: Message) -> None:
        """Send a message to the node responsible for a key. Best effort: whoever routes repeats."""

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the node responsible for a key, and the messages it took; None where nobody answered in time."""

    def next_hop(self, key: Key) -> Peer | None:
        """The peer to which a message for a key would go from here; None where this node is responsible for the key.

        Also None where the way is not known: of a node that is no member, or knows no other.
        """

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """The next nodes, nearest first, to which this node's keys would fall: where copies belong. Never this one."""

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Peers that together reach all nodes of a scope, each with its part of it; None is everyone but this node."""

    def peers(self) -> tuple[Peer, ...]:
        """All peers that the overlay knows now, in the order of their ids."""

    def check(self) -> None:
        """Assert what must hold in this node at all times."""

    def view(self) -> OverlayView:
        """What may be seen from outside."""
