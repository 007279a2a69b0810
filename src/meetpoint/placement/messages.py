"""Messages between brokers about keys: who owns them, what is stored there, and which events go to their owners.

Bodies that travel inside of messages are parsed by `read_body` and `read_attributes`: None where they are malformed.
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
    """An entry at the keys from `low` clockwise to `high`, both included; only the scheme reads its body."""

    low: bytes
    high: bytes
    body: bytes


# -- who owns a key ----------------------------------------------------------------------------------------------------


class ClaimRange(Query, frozen=True, array_like=True, gc=False, tag="seek_arc"):
    """Asks an owner for the part of its ranges that ends at the place of a home that owns nothing."""

    holder: HomeId
    home: HomeId


class ClaimReply(Reply, frozen=True, array_like=True, gc=False, tag="sought_arc"):
    """The range that is given, under a number; or what the owner has, and since which change."""

    arc: KeyRange | None
    number: int
    version: int
    arcs: tuple[KeyRange, ...]
    stable: bool
    """Whether the owner knows its ranges, and gives none of them away just now."""
    digest: bytes
    """The digest of the sender's directory."""


class PullRange(Query, frozen=True, array_like=True, gc=False, tag="pull"):
    """Asks for the entries of a range that was given under a number, from one name on."""

    holder: HomeId
    home: HomeId
    number: int
    after: str


class PullReply(Reply, frozen=True, array_like=True, gc=False, tag="pulled"):
    """Some entries, and whether there are more; None where no such range was given."""

    records: tuple[tuple[str, bytes], ...] | None
    more: bool
    owed_us: int | None = None
    """How long others may still rely on what the giver told them; None: as long as anyone ever may."""


class RangeTaken(Query, frozen=True, array_like=True, gc=False, tag="took"):
    """Tells the giver to forget a range: it is safe at its taker, with all entries."""

    holder: HomeId
    home: HomeId
    number: int


class RangeForgotten(Reply, frozen=True, array_like=True, gc=False, tag="forgot"):
    """Says that the range is forgotten."""


class OfferRange(Query, frozen=True, array_like=True, gc=False, tag="take"):
    """Gives a home a range that it did not claim: its owner ends, or it belongs there."""

    home: HomeId
    holder: HomeId
    number: int
    arc: KeyRange


class OfferAccepted(Reply, frozen=True, array_like=True, gc=False, tag="taken"):
    """Says that the range is being pulled, or was."""


# -- keyed requests ----------------------------------------------------------------------------------------------------


class KeyedRequest(Message, frozen=True, array_like=True, gc=False, tag="errand"):
    """A request to every owner of the keys from `key` clockwise to `end`; `number` is its origin's."""

    key: bytes
    end: bytes
    origin: Peer
    number: int
    passed: int
    """How many nodes that were not the owner passed it on."""
    body: bytes
    told: tuple[tuple[HomeId, tuple[KeyRange, ...]], ...] = ()
    """Ranges of the homes that passed it on: it goes back to the origin with the answer of the last."""


class KeyedReply(Message, frozen=True, array_like=True, gc=False, tag="errand_done"):
    """The answer for the keys from `key` to `end`, by a home that owns this range."""

    number: int
    key: bytes
    end: bytes
    hops: int
    home: HomeId
    arc: KeyRange
    body: bytes


class NotOwner(Message, frozen=True, array_like=True, gc=False, tag="elsewhere"):
    """Says that the key is not owned here, and what the homes here own."""

    number: int
    key: bytes
    homes: tuple[tuple[HomeId, tuple[KeyRange, ...]], ...]


class Put(Message, frozen=True, array_like=True, gc=False, tag="put"):
    """Keyed request: keep an entry of a home, under the number that the home gave it."""

    home: HomeId
    number: int
    entry: Entry


class Stored(Message, frozen=True, array_like=True, gc=False, tag="stored"):
    """Says that an entry is safe, and every event that comes from now on meets it."""


class BucketFull(Message, frozen=True, array_like=True, gc=False, tag="crowded"):
    """Names another place for an entry: there are many under its key."""

    at: Entry


class Withdraw(Message, frozen=True, array_like=True, gc=False, tag="withdraw"):
    """Keyed request: forget an entry."""

    home: HomeId
    number: int
    entry: Entry


class Removed(Message, frozen=True, array_like=True, gc=False, tag="removed"):
    """Says that an entry is forgotten."""


# -- events ------------------------------------------------------------------------------------------------------------


class DeliverToHome(Query, frozen=True, array_like=True, gc=False, tag="bring"):
    """An event that a home may want; all events of its stream up to `floor` are fully acknowledged."""

    home: HomeId
    event: EventKey
    floor: int
    subids: tuple[int, ...]
    content: bytes


class DeliverToHomeAck(Reply, frozen=True, array_like=True, gc=False, tag="brought"):
    """Says whether the home has the event safe; false where the home is not here."""

    taken: bool


class RelayEvent(Query, frozen=True, array_like=True, gc=False, tag="spread"):
    """An event for homes at a node and behind it, each with its SubIDs; `floor` as in `DeliverToHome`."""

    event: EventKey
    floor: int
    via: tuple[NodeId, ...]
    """The nodes it has passed, its origin first: it goes to none of them again."""
    wait_us: int
    """How long the sender waits."""
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    content: bytes


class RelayEventAck(Reply, frozen=True, array_like=True, gc=False, tag="spread_done"):
    """The homes that have the event safe, as far as is known by now."""

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
    """Return the parsed body of an entry or message; None where it is malformed."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_attributes(runtime: Runtime, content: bytes) -> Mapping[str, object] | None:
    """Return the attributes of an event; None where it is malformed."""
    try:
        return attributes_of(content)
    except EventError:
        runtime.observe("event_malformed")
        return None
