"""Ids of keys, nodes, homes and events, and how a node is addressed."""

from __future__ import annotations

from typing import Annotated, NewType, TypeAlias

import msgspec

__all__ = ["EventKey", "HomeId", "Key", "NodeId", "Number", "Peer", "home_of"]

Key = NewType("Key", bytes)
NodeId = NewType("NodeId", Key)
HomeId = NewType("HomeId", bytes)
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A number that is counted up, as others say it: bounded, so that nobody's sums come to where 64 bits end."""


class Peer(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A node as others know it. A node that restarts comes back under the next incarnation."""

    id: NodeId
    address: str
    incarnation: Number = 0


class EventKey(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """An event by where it was published: the home, its stream (another once all copies were lost), the number."""

    home: HomeId
    stream: Number
    number: Number


def home_of(node: NodeId) -> HomeId:
    """The home that a node makes for itself."""
    return HomeId(bytes(node))
