"""The messages of Pastry nodes. The driver tells who sent a message, so that messages do not repeat it.

A *life* is one time that a node has joined: its incarnation, and by its own clock when it began to join. One that gives
up its place and joins anew is, to others, another node with the same id, as one that restarts is. Incarnations alone
would not do: a node that has lost its disk may come back under one that others have heard of before.

A node tells its status as the bits of one number, beside the ids of its neighbours.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays.pastry.rules import LEFT, PastryState, PeerStatus
from meetpoint.overlays.routing import FindOwner, OwnerFound, RoutedMessage

__all__ = [
    "MESSAGES", "Greet", "GreetReply", "Life", "NotMember", "PastryFind", "PastryFound", "PastryJoin",
    "PastryJoinReply", "PastryLeaving", "PastryRouted", "decode_status", "encode_status",
]  # fmt: skip

# -- leaves ------------------------------------------------------------------------------------------------------------

Life: TypeAlias = tuple[int, int]


class Greet(Query, frozen=True, array_like=True, gc=False, tag="p.gr"):
    """A greeting: the sender's status, and a question for the receiver's. With `asks`: grant me a lease, or renew it.

    `version` is that of my leaves, `seen` that of yours that I know: if they are others now, tell them. `granted` are
    my sides, 1 the left and 2 the right one, on which you have a lease, as you asked me at your time `echo`.
    """

    life: Life
    near: tuple[bytes, bytes]
    status: int
    asks: bool
    version: int
    seen: int
    echo: int = 0
    granted: int = 0


class GreetReply(Reply, frozen=True, array_like=True, gc=False, tag="p.gd"):
    """An answer to a greeting: the status, and the sides on which you have a lease. With `asks`: grant me one next
    time.

    `leaves` are told where they are of another version than the one you know.
    """

    life: Life
    near: tuple[bytes, bytes]
    status: int
    granted: int
    asks: bool
    stamp: int
    version: int
    leaves: tuple[Peer, ...] | None = None


class NotMember(Reply, frozen=True, array_like=True, gc=False, tag="p.st"):
    """An answer of a node that is up but has no place: it has not found it yet, or has left."""

    life: Life


class PastryJoin(Message, frozen=True, array_like=True, gc=False, tag="p.jo"):
    """A joiner's question for its place, on its way to the node between which and whose right neighbour it lies."""

    joiner: Peer
    life: Life
    number: int
    hops: int


class PastryJoinReply(Message, frozen=True, array_like=True, gc=False, tag="p.we"):
    """The place of a joiner, after the sender; with the sender's leaves, and some of its passive list."""

    number: int
    leaves: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class PastryLeaving(Message, frozen=True, array_like=True, gc=False, tag="p.lv"):
    """A node leaves in this life, or looks for another place."""

    life: Life


# -- keys --------------------------------------------------------------------------------------------------------------


class PastryFind(FindOwner, frozen=True, array_like=True, gc=False, tag="p.fi"):
    """Pastry's question for the owner of a key."""


class PastryFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="p.lo"):
    """Pastry's answer of an owner."""


class PastryRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="p.ro"):
    """Pastry's routed message."""


MESSAGES: tuple[type[Message], ...] = (
    PastryFind,
    Greet,
    GreetReply,
    PastryJoin,
    PastryLeaving,
    PastryFound,
    PastryRouted,
    NotMember,
    PastryJoinReply,
)


HOLDS_LEFT: Final = 1
HOLDS_RIGHT: Final = 2
NEIGHBOURS_OWN: Final = 4
"""The lease that it holds on the left is of the neighbour that it names there, not of one before."""
WAITS: Final = 8
MEMBER: Final = 16
UNNAMED: Final = b""
"""A granter that was not told: all that matters is that the lease is held."""


def encode_status(state: PastryState) -> int:
    """Return a node's status as it is told."""
    left, right = state.leases
    return (
        HOLDS_LEFT * (left is not None)
        | HOLDS_RIGHT * (right is not None)
        | NEIGHBOURS_OWN * (left == state.near[LEFT])
        | WAITS * state.waits
        | MEMBER * state.member
    )


def decode_status(node: bytes, message: Greet | GreetReply) -> PeerStatus:
    """Return the status that a node has told."""
    status, near = message.status, message.near
    left = near[LEFT] if status & NEIGHBOURS_OWN else UNNAMED
    return PeerStatus(
        node,
        near,
        (left if status & HOLDS_LEFT else None, UNNAMED if status & HOLDS_RIGHT else None),
        bool(status & WAITS),
        bool(status & MEMBER),
    )
