"""What brokers that run `lists` say to each other."""

from __future__ import annotations

from typing import Final

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.schemes.lists.entries import ListSort
from meetpoint.schemes.lists.subids import Declared, SubId

__all__ = [
    "MESSAGES",
    "ChainAck",
    "ChainResult",
    "ChainResultAck",
    "ChainStep",
    "DeliverToHomes",
    "DeliverToHomesAck",
    "ListQuery",
    "ListReply",
]


class ListQuery(Message, frozen=True, array_like=True, gc=False, tag="collect"):
    """Errand: which SubIDs in lists of an attribute may an event with this value, and these attributes, satisfy?"""

    attribute: str
    sorts: tuple[ListSort, ...]
    value: bytes
    attributes: Declared


class ListReply(Message, frozen=True, array_like=True, gc=False, tag="collected"):
    """These."""

    sub_ids: tuple[SubId, ...]


class ChainStep(Message, frozen=True, array_like=True, gc=False, tag="chain"):
    """Errand: collect for a group of an event's lookups, filter what came, and pass the rest on to the next group."""

    origin: Peer
    attempt: int
    group: int
    told: int
    """How many groups before this one have told the origin something."""
    event: EventKey
    content: bytes
    sub_ids: tuple[SubId, ...]
    order: bytes = b""
    """In which order the event's attributes are asked for, as its origin has it (`collecting.pack_order`)."""
    scales: tuple[bytes, ...] = ()
    """By which scales its numbers are looked for (`rescaling.Hashings.names`); none: those the network began with."""


class ChainAck(Message, frozen=True, array_like=True, gc=False, tag="accepted"):
    """It will be done."""


class ChainResult(Query, frozen=True, array_like=True, gc=False, tag="told"):
    """SubIDs that match, from one group of an event's lookups; the last group ends the chain."""

    attempt: int
    group: int
    of: int
    """How many groups tell something, this one among them: known by the last, 0 for the others."""
    sub_ids: tuple[SubId, ...]


class ChainResultAck(Reply, frozen=True, array_like=True, gc=False, tag="heard"):
    """They are here."""


class DeliverToHomes(Message, frozen=True, array_like=True, gc=False, tag="carry"):
    """Errand: bring an event to those of some homes that are here, each with the numbers that matched."""

    event: EventKey
    settled: int
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    content: bytes


class DeliverToHomesAck(Message, frozen=True, array_like=True, gc=False, tag="carried"):
    """These homes have it."""

    homes: tuple[HomeId, ...]


MESSAGES: Final[tuple[type[Message], ...]] = (
    ListQuery,
    ListReply,
    ChainStep,
    ChainAck,
    ChainResult,
    ChainResultAck,
    DeliverToHomes,
    DeliverToHomesAck,
)
