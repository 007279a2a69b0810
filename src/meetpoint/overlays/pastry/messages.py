"""What Pastry nodes say to each other. Who sent a message comes with it from the driver, and is not repeated inside.

A *life* is one time that a node has joined: its incarnation, and by its own clock when it began to join. One that gives
up its place and joins anew is, to others, another node with the same id, as one that restarts is. Incarnations alone
would not do: a node that has lost its disk may come back under one that others have heard of before.

Where a node stands, as it tells others in the bits of one number beside the names of its neighbours.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays.pastry.rules import LEFT, PastryState, PeerStatus
from meetpoint.overlays.routing import FindOwner, OwnerFound, RoutedMessage

__all__ = [
    "MESSAGES",
    "Greet",
    "GreetReply",
    "Life",
    "NotMember",
    "PastryFind",
    "PastryFound",
    "PastryJoin",
    "PastryJoinReply",
    "PastryLeaving",
    "PastryRouted",
    "decode_status",
    "encode_status",
]

# -- leaves ------------------------------------------------------------------------------------------------------------

Life: TypeAlias = tuple[int, int]


class Greet(Query, frozen=True, array_like=True, gc=False, tag="p.gr"):
    """This is where I stand; where do you? With `asks`: grant me a lease, or renew it.

    `status` is in bits (module `status`). `version` is that of my leaves, `seen` that of yours that I know: if they
    are others now, tell them. `granted` are my sides, 1 the left and 2 the right one, on which you have a lease, as you
    asked me at your time `echo`.
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
    """This is where I stand, and on which of my sides you have a lease. With `asks`: grant me one, too, next time.

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
    """The node asked is up, but has no place: it has not found it yet, or has left."""

    life: Life


class PastryJoin(Message, frozen=True, array_like=True, gc=False, tag="p.jo"):
    """A joiner looks for its place: on its way to the node between which and whose right neighbour it lies."""

    joiner: Peer
    life: Life
    number: int
    hops: int


class PastryJoinReply(Message, frozen=True, array_like=True, gc=False, tag="p.we"):
    """Your place is after me; these are my leaves, and some of my passive list."""

    number: int
    leaves: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class PastryLeaving(Message, frozen=True, array_like=True, gc=False, tag="p.lv"):
    """I am gone, in this life: I leave, or look for another place."""

    life: Life


# -- keys --------------------------------------------------------------------------------------------------------------


class PastryFind(FindOwner, frozen=True, array_like=True, gc=False, tag="p.fi"):
    """Who is responsible for a key?"""


class PastryFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="p.lo"):
    """I am."""


class PastryRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="p.ro"):
    """A message on its way to whoever is responsible for a key."""


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
"""Whose lease it is was not told: that it is held is all that matters."""


def encode_status(state: PastryState) -> int:
    """Where a node stands, as it is told."""
    left, right = state.leases
    return (
        HOLDS_LEFT * (left is not None)
        | HOLDS_RIGHT * (right is not None)
        | NEIGHBOURS_OWN * (left == state.near[LEFT])
        | WAITS * state.waits
        | MEMBER * state.member
    )


def decode_status(node: bytes, message: Greet | GreetReply) -> PeerStatus:
    """What a node has told of where it stands."""
    status, near = message.status, message.near
    left = near[LEFT] if status & NEIGHBOURS_OWN else UNNAMED
    return PeerStatus(
        node,
        near,
        (left if status & HOLDS_LEFT else None, UNNAMED if status & HOLDS_RIGHT else None),
        bool(status & WAITS),
        bool(status & MEMBER),
    )
