"""What Pastry nodes say to each other. Who sent a message comes with it from the driver, and is not repeated inside.

A *life* is one time that a node has joined: its incarnation, and by its own clock when it began to join. One that gives
up its place and joins anew is, to others, another node with the same id, as one that restarts is. Incarnations alone
would not do: a node that has lost its disk may come back under one that others have heard of before.
"""

from __future__ import annotations

from typing import TypeAlias

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays import key_lookup

__all__ = [
    "MESSAGES", "Find", "Greet", "Greeted", "Join", "Leaving", "Life", "Located", "Routed", "Stranger",
    "Welcome",
]  # fmt: skip

# -- leaves ------------------------------------------------------------------------------------------------------------

Life: TypeAlias = tuple[int, int]


class Greet(Query, frozen=True, array_like=True, gc=False, tag="p.gr"):
    """This is where I stand; where do you? With `asks`: grant me a lease, or renew it.

    `standing` is in bits (module `standing`). `version` is that of my leaves, `seen` that of yours that I know: if they
    are others now, tell them. `granted` are my sides, 1 the left and 2 the right one, on which you have a lease, as you
    asked me at your time `echo`.
    """

    life: Life
    near: tuple[bytes, bytes]
    standing: int
    asks: bool
    version: int
    seen: int
    echo: int = 0
    granted: int = 0


class Greeted(Reply, frozen=True, array_like=True, gc=False, tag="p.gd"):
    """This is where I stand, and on which of my sides you have a lease. With `asks`: grant me one, too, next time.

    `leaves` are told where they are of another version than the one you know.
    """

    life: Life
    near: tuple[bytes, bytes]
    standing: int
    granted: int
    asks: bool
    stamp: int
    version: int
    leaves: tuple[Peer, ...] | None = None


class Stranger(Reply, frozen=True, array_like=True, gc=False, tag="p.st"):
    """The node asked is up, but has no place: it has not found it yet, or has left."""

    life: Life


class Join(Message, frozen=True, array_like=True, gc=False, tag="p.jo"):
    """A joiner looks for its place: on its way to the node between which and whose right neighbour it lies."""

    joiner: Peer
    life: Life
    number: int
    hops: int


class Welcome(Message, frozen=True, array_like=True, gc=False, tag="p.we"):
    """Your place is after me; these are my leaves, and some of my passive list."""

    number: int
    leaves: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class Leaving(Message, frozen=True, array_like=True, gc=False, tag="p.lv"):
    """I am gone, in this life: I leave, or look for another place."""

    life: Life


# -- keys --------------------------------------------------------------------------------------------------------------


class Find(key_lookup.Find, frozen=True, array_like=True, gc=False, tag="p.fi"):
    """Who is responsible for a key?"""


class Located(key_lookup.Located, frozen=True, array_like=True, gc=False, tag="p.lo"):
    """I am."""


class Routed(key_lookup.Routed, frozen=True, array_like=True, gc=False, tag="p.ro"):
    """A message on its way to whoever is responsible for a key."""


MESSAGES: tuple[type[Message], ...] = (Find, Greet, Greeted, Join, Leaving, Located, Routed, Stranger, Welcome)
