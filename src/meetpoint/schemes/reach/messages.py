"""What brokers that run `reach` say to each other."""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId, Peer
from meetpoint.api.messages import Message

__all__ = ["MESSAGES", "BusyRegion", "DutyReply", "DutyRequest", "pack_bits", "unpack_bits"]


class DutyRequest(Message, frozen=True, array_like=True, gc=False, tag="r.handle"):
    """Errand: bring an event to all whose entries it matches, at the ids of a duty. `attempt` is its origin's number.

    Which ids an event may match follows from its content.
    """

    event: EventKey
    attempt: int
    settled: int
    fixed: bytes
    bits: bytes
    floor: int
    """Of the tree; whoever hands on may use a lower one."""
    within_us: int
    """How long whoever sends this waits at most."""
    hops: int
    """Messages by which the event has come to whoever sends this."""
    content: bytes


class BusyRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whoever is busy around the head of a duty: its node, its home, and how many bits its region has."""

    host: Peer
    home: HomeId
    length: int


class DutyReply(Message, frozen=True, array_like=True, gc=False, tag="r.handled"):
    """It has come to all places of the duty, and all homes have it but those that are named."""

    left: tuple[tuple[HomeId, tuple[int, ...]], ...]
    """Homes that did not say in time that they have it, each with the SubIDs that matched there."""
    served: int
    """At how many regions it was served."""
    stood_in: tuple[tuple[HomeId, NodeId], ...]
    """Homes of which regions were answered for by a copy, each with the node that did."""
    shortest: int
    """How many bits the shortest of them has."""
    busy: BusyRegion | None = None


MESSAGES: Final[tuple[type[Message], ...]] = (DutyRequest, DutyReply)


def pack_bits(bits: int) -> bytes:
    """Bits as they travel: an id has more than a number in a message may have."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "big")


def unpack_bits(data: bytes, width: int) -> int | None:
    """Bits that have come from a peer; None where there are more than an id has."""
    bits = int.from_bytes(data, "big")
    return None if len(data) > (width + 7) // 8 or bits >> width else bits
