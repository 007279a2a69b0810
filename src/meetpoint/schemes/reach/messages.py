"""What brokers that run `reach` say to each other.

What brokers that run `reach` say to each other beside events: where nothing is wanted, copies, and loads.
"""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.messages import Entry

__all__ = [
    "MESSAGES",
    "BusyRegion",
    "CopyReply",
    "CopyRequest",
    "CopyUpdate",
    "CopyUpdateAck",
    "DutyReply",
    "DutyRequest",
    "IdleQuery",
    "IdleReply",
    "LoadQuery",
    "LoadReply",
    "PackedRegion",
    "RevokeIdle",
    "RevokeIdleAck",
    "pack_bits",
    "unpack_bits",
]


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


def pack_bits(bits: int) -> bytes:
    """Bits as they travel: an id has more than a number in a message may have."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "big")


def unpack_bits(data: bytes, width: int) -> int | None:
    """Bits that have come from a peer; None where there are more than an id has."""
    bits = int.from_bytes(data, "big")
    return None if len(data) > (width + 7) // 8 or bits >> width else bits


# -- quenching, copies and loads ---------------------------------------------------------------------------------------


class PackedRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region as it travels."""

    bits: bytes
    length: int

    @staticmethod
    def of(region: Region) -> PackedRegion:
        """From a region."""
        return PackedRegion(pack_bits(region.bits), region.length)

    def region(self, width: int) -> Region | None:
        """The region, of ids with so many bits; None where it is none."""
        if not 0 <= self.length <= width:
            return None
        bits = unpack_bits(self.bits, self.length)
        return None if bits is None else Region(bits, self.length)


# -- where nothing is wanted -------------------------------------------------------------------------------------------


class IdleQuery(Message, frozen=True, array_like=True, gc=False, tag="r.idle"):
    """Errand, to all who hold ids of a region: is nothing wanted there, and at no subset of what lies there?"""

    where: PackedRegion
    origin: Peer
    life: int
    """Of the origin, in which it will know what it was told."""
    wait_us: int
    """How long the origin waits."""


class IdleReply(Message, frozen=True, array_like=True, gc=False, tag="r.idle_for"):
    """Nothing is wanted, as far as this holder goes, for so long; 0: something is, or may be."""

    us: int


class RevokeIdle(Query, frozen=True, array_like=True, gc=False, tag="r.awake"):
    """A region of which you were told that nothing is wanted there: something is now. Tell those who know by you."""

    life: int
    where: PackedRegion


class RevokeIdleAck(Reply, frozen=True, array_like=True, gc=False, tag="r.awoken"):
    """Nobody relies on it any more. Not known: it was told to a former life, and others may still rely on that."""

    known: bool


# -- copies ------------------------------------------------------------------------------------------------------------


class CopyRequest(Query, frozen=True, array_like=True, gc=False, tag="r.borrow"):
    """A copy of what lies in a region at this home, from one name on."""

    home: HomeId
    where: PackedRegion
    life: int
    number: int
    """Under which it was begun; 0: it begins."""
    after: str | None
    """None: it is here, and is to be good for longer."""


class CopyReply(Reply, frozen=True, array_like=True, gc=False, tag="r.lent"):
    """Some of it; number 0: it is not to be had."""

    number: int
    us: int
    """How long it is good."""
    entries: tuple[tuple[str, Entry], ...]
    more: bool


class CopyUpdate(Query, frozen=True, array_like=True, gc=False, tag="r.amend"):
    """Something has come to what was copied under this number."""

    life: int
    number: int
    name: str
    entry: Entry


class CopyUpdateAck(Reply, frozen=True, array_like=True, gc=False, tag="r.amended"):
    """The copy has it, or is not there any more."""


# -- who has much ------------------------------------------------------------------------------------------------------


class LoadQuery(Query, frozen=True, array_like=True, gc=False, tag="r.weigh"):
    """How many entries lie at the node of this home?"""

    home: HomeId


class LoadReply(Reply, frozen=True, array_like=True, gc=False, tag="r.weighed"):
    """So many."""

    entries: int
    node: NodeId
    takes: bool
    """Whether the home is here, and may be given more."""


MESSAGES: Final[tuple[type[Message], ...]] = (
    DutyRequest,
    DutyReply,
    IdleQuery,
    IdleReply,
    RevokeIdle,
    RevokeIdleAck,
    CopyRequest,
    CopyReply,
    CopyUpdate,
    CopyUpdateAck,
    LoadQuery,
    LoadReply,
)
