"""Messages between brokers that run `lists`."""

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


class ListQuery(Message, frozen=True, tag="collect"):
    """Keyed request: the SubIDs in lists of an attribute that an event with this value and these attributes may
    satisfy.
    """

    attribute: str
    sorts: tuple[ListSort, ...]
    value: bytes
    attributes: Declared


class ListReply(Message, frozen=True, tag="collected"):
    """The SubIDs that were found."""

    sub_ids: tuple[SubId, ...]


class ChainStep(Message, frozen=True, tag="chain"):
    """Keyed request: collect for a group of an event, filter what came, and pass the rest to the next group."""

    origin: Peer
    attempt: int
    group: int
    told: int
    """The number of groups before this one that have told the origin something."""
    event: EventKey
    content: bytes
    sub_ids: tuple[SubId, ...]
    order: bytes = b""
    """The order of the event's attributes, as its origin has it (`collection.pack_order`)."""
    scales: tuple[bytes, ...] = ()
    """The scales of its numbers (`value_hash.HashingVersions.names`); none: those that the network began with."""


class ChainAck(Message, frozen=True, tag="accepted"):
    """Says that a step will be done."""


class ChainResult(Query, frozen=True, tag="told"):
    """SubIDs that match, from one group of an event's lookups; the last group ends the chain."""

    attempt: int
    group: int
    of: int
    """The number of groups that tell something, this one among them: known by the last, 0 for the others."""
    sub_ids: tuple[SubId, ...]


class ChainResultAck(Reply, frozen=True, tag="heard"):
    """Says that a result has come."""


class DeliverToHomes(Message, frozen=True, tag="carry"):
    """Keyed request: bring an event to those of some homes that are here, each with the numbers that matched."""

    event: EventKey
    settled: int
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    content: bytes


class DeliverToHomesAck(Message, frozen=True, tag="carried"):
    """The homes here that have the event."""

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
