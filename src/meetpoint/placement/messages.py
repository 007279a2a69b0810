"""What brokers say to each other about keys: who holds them, what is placed there, and which events come by.

What peers sent inside of messages, read: None where it is malformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.errors import EventError
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange

__all__ = [
    "MESSAGES",
    "BucketFull",
    "ClaimRange",
    "ClaimReply",
    "DeliverToHome",
    "DeliverToHomeAck",
    "Entry",
    "KeyedReply",
    "KeyedRequest",
    "NotOwner",
    "OfferAccepted",
    "OfferRange",
    "PullRange",
    "PullReply",
    "Put",
    "RangeForgotten",
    "RangeTaken",
    "RelayEvent",
    "RelayEventAck",
    "Removed",
    "Stored",
    "Withdraw",
    "read_attributes",
    "read_body",
]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something placed at the keys from `low` clockwise to `high`, both included; what it is, only the scheme knows."""

    low: bytes
    high: bytes
    body: bytes


# -- who holds a key ---------------------------------------------------------------------------------------------------


class ClaimRange(Query, frozen=True, array_like=True, gc=False, tag="seek_arc"):
    """Give a home that has none the part of your arcs that ends at its place."""

    holder: HomeId
    home: HomeId


class ClaimReply(Reply, frozen=True, array_like=True, gc=False, tag="sought_arc"):
    """What was given, under which number; or what the holder has, and since which change of it."""

    arc: KeyRange | None
    number: int
    version: int
    arcs: tuple[KeyRange, ...]
    stable: bool
    """Whether the owner knows its ranges and gives none of them away just now."""
    digest: bytes
    """Of the directory there."""


class PullRange(Query, frozen=True, array_like=True, gc=False, tag="pull"):
    """What was placed on the arc that was given to this home under a number, from one name on?"""

    holder: HomeId
    home: HomeId
    number: int
    after: str


class PullReply(Reply, frozen=True, array_like=True, gc=False, tag="pulled"):
    """Some of it, and whether there is more; None where no such arc was given."""

    records: tuple[tuple[str, bytes], ...] | None
    more: bool
    owed_us: int | None = None
    """How long others may still rely on what the giver told them; None: as long as anyone ever may."""


class RangeTaken(Query, frozen=True, array_like=True, gc=False, tag="took"):
    """The arc and all that was placed there are safe here: forget them."""

    holder: HomeId
    home: HomeId
    number: int


class RangeForgotten(Reply, frozen=True, array_like=True, gc=False, tag="forgot"):
    """They are forgotten."""


class OfferRange(Query, frozen=True, array_like=True, gc=False, tag="take"):
    """An arc is yours: the home that held it ends."""

    home: HomeId
    holder: HomeId
    number: int
    arc: KeyRange


class OfferAccepted(Reply, frozen=True, array_like=True, gc=False, tag="taken"):
    """It is being pulled, or was."""


# -- errands -----------------------------------------------------------------------------------------------------------


class KeyedRequest(Message, frozen=True, array_like=True, gc=False, tag="errand"):
    """Something to do at every holder of the keys from `key` clockwise to `end`; `number` is its origin's."""

    key: bytes
    end: bytes
    origin: Peer
    number: int
    passed: int
    """By how many nodes that were not the holder it was passed on."""
    body: bytes
    told: tuple[tuple[HomeId, tuple[KeyRange, ...]], ...] = ()
    """What those hold who passed it on: it goes back to the origin with the answer of the last."""


class KeyedReply(Message, frozen=True, array_like=True, gc=False, tag="errand_done"):
    """It was done for the keys from `key` to `end`, by a home with this arc."""

    number: int
    key: bytes
    end: bytes
    hops: int
    home: HomeId
    arc: KeyRange
    body: bytes


class NotOwner(Message, frozen=True, array_like=True, gc=False, tag="elsewhere"):
    """The key is not held here; what the homes here hold."""

    number: int
    key: bytes
    homes: tuple[tuple[HomeId, tuple[KeyRange, ...]], ...]


class Put(Message, frozen=True, array_like=True, gc=False, tag="put"):
    """Errand: keep an entry of a home, under the number that the home gave it."""

    home: HomeId
    number: int
    entry: Entry


class Stored(Message, frozen=True, array_like=True, gc=False, tag="stored"):
    """It is safe, and every event that comes from now on meets it."""


class BucketFull(Message, frozen=True, array_like=True, gc=False, tag="crowded"):
    """There are many entries under its key: place it here instead."""

    at: Entry


class Withdraw(Message, frozen=True, array_like=True, gc=False, tag="withdraw"):
    """Errand: forget an entry."""

    home: HomeId
    number: int
    entry: Entry


class Removed(Message, frozen=True, array_like=True, gc=False, tag="removed"):
    """It is forgotten."""


# -- events ------------------------------------------------------------------------------------------------------------


class DeliverToHome(Query, frozen=True, array_like=True, gc=False, tag="bring"):
    """An event that a home may want; `settled`: all events of its stream up to this number have been brought."""

    home: HomeId
    event: EventKey
    settled: int
    subids: tuple[int, ...]
    content: bytes


class DeliverToHomeAck(Reply, frozen=True, array_like=True, gc=False, tag="brought"):
    """Whether the home has it safe; false where the home is not here."""

    taken: bool


class RelayEvent(Query, frozen=True, array_like=True, gc=False, tag="spread"):
    """An event for homes at a node and behind it, each with its SubIDs; `settled` as in `DeliverToHome`."""

    event: EventKey
    settled: int
    via: tuple[NodeId, ...]
    """The nodes it has passed, its origin first: it goes to none of them again."""
    wait_us: int
    """How long the sender waits."""
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    content: bytes


class RelayEventAck(Reply, frozen=True, array_like=True, gc=False, tag="spread_done"):
    """Which of the homes have it safe, as far as is known by now."""

    taken: tuple[HomeId, ...]


MESSAGES: Final[tuple[type[Message], ...]] = (
    ClaimRange,
    ClaimReply,
    PullRange,
    PullReply,
    RangeTaken,
    RangeForgotten,
    OfferRange,
    OfferAccepted,
    KeyedRequest,
    KeyedReply,
    NotOwner,
    Put,
    Stored,
    BucketFull,
    Withdraw,
    Removed,
    DeliverToHome,
    DeliverToHomeAck,
    RelayEvent,
    RelayEventAck,
)


BodyT = TypeVar("BodyT", bound=msgspec.Struct)


def read_body(body: bytes, kind: type[BodyT]) -> BodyT | None:
    """What an entry says, or another body that travels and is kept."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_attributes(runtime: Runtime, content: bytes) -> Mapping[str, object] | None:
    """What an event holds."""
    try:
        return attributes_of(content)
    except EventError:
        runtime.observe("event_malformed")
        return None
