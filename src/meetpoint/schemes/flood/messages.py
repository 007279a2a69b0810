"""What brokers say to each other when every event goes to every broker."""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message

__all__ = ["MESSAGES", "FloodAck", "FloodEvent", "HomeProgress"]


class FloodEvent(Message, frozen=True, array_like=True, gc=False, tag="flooding"):
    """An event; `scope` is the part of the overlay to pass it on to, None for nobody.

    `settled`: all events of its stream up to this number have reached everyone.
    """

    event: EventKey
    origin: Peer
    settled: int
    hops: int
    scope: bytes | None
    content: bytes


class HomeProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a home has of a stream: all up to `floor`, and some above."""

    home: HomeId
    source: HomeId
    stream: int
    floor: int
    above: tuple[int, ...]


class FloodAck(Message, frozen=True, array_like=True, gc=False, tag="flooded"):
    """What homes of the sender have, and the digest of its directory."""

    digest: bytes
    done: tuple[HomeProgress, ...]


MESSAGES: Final = (FloodEvent, FloodAck)
