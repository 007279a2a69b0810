"""Messages between brokers that run `reach`."""

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


class DutyRequest(Message, frozen=True, tag="r.handle"):
    """Keyed request: bring an event to all whose entries it matches, at the ids of a duty.

    Which ids an event may match follows from its content. `attempt` is its origin's number.
    """

    event: EventKey
    attempt: int
    settled: int
    fixed: bytes
    bits: bytes
    floor: int
    """Of the tree; a node that hands on may use a lower one."""
    within_us: int
    """How long the sender waits at most."""
    hops: int
    """Messages by which the event has come to the sender."""
    content: bytes


class BusyRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A busy home around the head of a duty: its node, and how many bits its region has."""

    host: Peer
    home: HomeId
    length: int


class DutyReply(Message, frozen=True, tag="r.handled"):
    """Says that a duty is done: all homes have the event but those in `left`."""

    left: tuple[tuple[HomeId, tuple[int, ...]], ...]
    """Homes that did not say in time that they have it, each with the SubIDs that matched there."""
    served: int
    """The number of regions where it was served."""
    stood_in: tuple[tuple[HomeId, NodeId], ...]
    """Homes of which regions were answered for by a copy, each with the node that did."""
    shortest: int
    """The length of the shortest region that served it."""
    busy: BusyRegion | None = None


def pack_bits(bits: int) -> bytes:
    """Pack bits: an id has more than a number in a message may have."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "big")


def unpack_bits(data: bytes, width: int) -> int | None:
    """Unpack bits of a peer; None where there are more than an id has."""
    bits = int.from_bytes(data, "big")
    return None if len(data) > (width + 7) // 8 or bits >> width else bits


# -- quenching, copies and loads ---------------------------------------------------------------------------------------


class PackedRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region in a message."""

    bits: bytes
    length: int

    @staticmethod
    def of(region: Region) -> PackedRegion:
        """Pack a region."""
        return PackedRegion(pack_bits(region.bits), region.length)

    def region(self, width: int) -> Region | None:
        """Unpack the region, of ids with so many bits; None where it is malformed."""
        if not 0 <= self.length <= width:
            return None
        bits = unpack_bits(self.bits, self.length)
        return None if bits is None else Region(bits, self.length)


# -- where nothing is wanted -------------------------------------------------------------------------------------------


class IdleQuery(Message, frozen=True, tag="r.idle"):
    """Keyed request, to all owners of ids of a region: is nothing wanted there, nor at a subset of what lies there?"""

    where: PackedRegion
    origin: Peer
    life: int
    """The life of the origin in which it will know what it was told."""
    wait_us: int
    """How long the origin waits."""


class IdleReply(Message, frozen=True, tag="r.idle_for"):
    """Says for how long nothing is wanted, as far as this owner goes; 0: something is, or may be."""

    us: int


class RevokeIdle(Query, frozen=True, tag="r.awake"):
    """Revokes what a node was told: something is wanted in a region now. Those who know by that node are told by it."""

    life: int
    where: PackedRegion


class RevokeIdleAck(Reply, frozen=True, tag="r.awoken"):
    """Says that nobody relies on it any more.

    Not known: it was told to a former life, and others may still rely on that.
    """

    known: bool


# -- copies ------------------------------------------------------------------------------------------------------------


class CopyRequest(Query, frozen=True, tag="r.borrow"):
    """Asks for a copy of what lies in a region at this home, from one name on."""

    home: HomeId
    where: PackedRegion
    life: int
    number: int
    """The number under which the copy was begun; 0: it begins."""
    after: str | None
    """The last name that has come; None: the copy is complete, and is to be good for longer."""


class CopyReply(Reply, frozen=True, tag="r.lent"):
    """A page of the copy; number 0: it is not to be had."""

    number: int
    us: int
    """How long the copy is good."""
    entries: tuple[tuple[str, Entry], ...]
    more: bool


class CopyUpdate(Query, frozen=True, tag="r.amend"):
    """Tells that something has come to what was copied under this number."""

    life: int
    number: int
    name: str
    entry: Entry


class CopyUpdateAck(Reply, frozen=True, tag="r.amended"):
    """Says that the copy has it, or is not there any more."""


# -- who has much ------------------------------------------------------------------------------------------------------


class LoadQuery(Query, frozen=True, tag="r.weigh"):
    """Asks how many entries lie at the node of this home."""

    home: HomeId


class LoadReply(Reply, frozen=True, tag="r.weighed"):
    """The number of entries at a node."""

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
