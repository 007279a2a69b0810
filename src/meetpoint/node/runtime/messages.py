"""What nodes say to each other: the base of all messages, and who is meant by a peer.

A message is a frozen struct, on the wire an array that begins with its tag, so that fields may be added at the end with
defaults: an older reader skips them, a newer one fills them in. Ids are bytes. A `Query` carries the number its sender
gave it, and the `Reply` carries it back; `Services.ask` keeps the two together.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from meetpoint.node.runtime.ring import NodeId

__all__ = ["Message", "Number", "Peer", "Query", "Reply"]

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A number that is counted up, as others say it: bounded, so that nobody's sums come to where 64 bits end."""


class Peer(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A node as others know it. A node that restarts comes back under the next incarnation."""

    id: NodeId
    address: str
    incarnation: Number = 0


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Any message. Each kind has a `tag` of its own, short, and unique among all parts of a network."""


class Query(Message, frozen=True, array_like=True, gc=False):
    """A message that wants a reply; `request` is its sender's number for it."""

    request: int


class Reply(Message, frozen=True, array_like=True, gc=False):
    """The answer to a query, with the query's number."""

    request: int
