"""The interface of an overlay to the node and its schemes, after the common API of Dabek et al.

An overlay knows peers and routes keys. It keeps nothing on disk: a node that restarts joins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message

__all__ = ["Handler", "Overlay", "OverlayView", "Places", "Span", "Upcalls"]

Handler: TypeAlias = Callable[[Peer, Message], None]
"""Takes a message of one kind, and its sender."""


class OverlayView(Protocol):
    """An overlay as it is seen from outside; each overlay has more to show."""

    @property
    def joined(self) -> bool:
        """Whether the node is a member."""


class Upcalls(Protocol):
    """Is told by an overlay: the node that it is part of."""

    def joined(self) -> None:
        """Take note that the node has become a member; it may route."""

    def neighbours_changed(self) -> None:
        """Take note that `neighbours`, or what the node is responsible for, may have changed."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Take a routed message: this node is responsible for its key."""


class Span(NamedTuple):
    """The keys from `first` to `last`, both included; it does not go round the end of the circle."""

    first: bytes
    last: bytes


class Places(Protocol):
    """Knows which keys nodes have, in an overlay in which that does not follow from their ids."""

    def founding(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, Span]:
        """Return the keys of nodes that begin a network together, the same at every node; others have none."""

    def mine(self) -> tuple[Span, ...] | None:
        """Return the keys that are this node's now, none where it stands by; None where it seeks its place."""

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the node that has a key, and its span around it; None where nobody answered in time."""


class Overlay(Protocol):
    """An overlay's part at a node."""

    places: Places | None
    """Where nodes have keys that do not follow from their ids; None where they follow."""

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Return the handlers of the overlay's messages."""

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network together with these peers, all of whom do the same; one alone is enough."""

    def join(self, contact: Peer) -> None:
        """Become a member through one; goes on trying until `Upcalls.joined`. May be called again with another."""

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""

    def remember(self, peers: Sequence[Peer]) -> None:
        """Take note of peers that were members: should they be in a ring of their own, the two become one."""

    def suspect(self, peer: Peer) -> None:
        """Take note that a peer was silent or unreachable."""

    def route(self, key: Key, body: Message) -> None:
        """Send a message to the node responsible for a key. It may be lost: the sender repeats it."""

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the node responsible for a key, and the messages it took; None where nobody answered in time."""

    def next_hop(self, key: Key) -> Peer | None:
        """Return the peer to which a message for a key would go; None where this node is responsible for the key.

        Also None where the way is not known: of a node that is no member, or knows no other.
        """

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """Return the next nodes, nearest first, which would get this node's keys: the places for replicas."""

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        """Return peers that together reach all nodes of a scope, each with its part; None is all but this node."""

    def peers(self) -> tuple[Peer, ...]:
        """Return all peers that the overlay knows now, in the order of their ids."""

    def check(self) -> None:
        """Assert what must hold in this node at all times."""

    def view(self) -> OverlayView:
        """Return the overlay as it is seen from outside."""
