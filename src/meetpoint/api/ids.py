"""Ids of keys, nodes, homes and events, and the address of a node."""

from __future__ import annotations

from typing import Annotated, NewType, TypeAlias

import msgspec

__all__ = ["EventId", "EventKey", "HomeId", "Key", "NodeId", "Number", "Peer", "home_of"]

Key = NewType("Key", bytes)
NodeId = NewType("NodeId", Key)
HomeId = NewType("HomeId", bytes)
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A counter that comes from a peer. The bound keeps sums of it within 64 bits."""


class Peer(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A node as others know it. A node that restarts comes back under the next incarnation."""

    id: NodeId
    address: str
    incarnation: Number = 0


class EventKey(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """The place where an event was published: the home, its stream and the number in it.

    A home begins another stream once all copies of the former one were lost.
    """

    home: HomeId
    stream: Number
    number: Number


class EventId(str):
    """The id of a published event: a `str`, with the place where the event was published as `key`.

    >>> ids = EventId("ann/1", EventKey(HomeId(b"home"), 1, 7))
    >>> ids == "ann/1", ids.key.number
    (True, 7)
    """

    __slots__ = ("_key",)
    _key: EventKey

    def __new__(cls, id_: str, key: EventKey) -> EventId:
        made = super().__new__(cls, id_)
        made._key = key
        return made

    @property
    def key(self) -> EventKey:
        """The home that accepted the event, and the event's number there."""
        return self._key

    def __getnewargs__(self) -> tuple[str, EventKey]:  # type: ignore[override]
        return str(self), self._key  # a copy or a pickle keeps the key


def home_of(node: NodeId) -> HomeId:
    """Return the home that a node makes for itself."""
    return HomeId(bytes(node))
