"""Messages between brokers that run `rebeca`.

Members of the graph are ranges of homes (`member`): one is named by its home and its place, the last key of the range.
Each has a *life*, a number that is another whenever it begins anew, so that nothing told by or to a former one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.rebeca.contacts import Contact
from meetpoint.schemes.rebeca.graph import Range

__all__ = [
    "MESSAGES",
    "UNASKED",
    "FilterAck",
    "FilterQuery",
    "FilterUpdate",
    "ForwardAround",
    "ForwardAroundReply",
    "ForwardEvent",
    "ForwardReply",
    "LocateNode",
    "MatchRange",
    "MatchRangeReply",
    "MemberRef",
    "NeighbourList",
    "NeighbourQuery",
    "NoSuchMember",
    "NodeJoined",
    "NodeJoinedReply",
    "NodeLocated",
    "PackedContact",
    "PackedRange",
    "contacts_of",
    "ranges_of",
]

UNASKED: Final = -1
"""In a `FilterQuery`: no neighbours are asked for."""


class PackedRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range in a message: numbers in a message have no more than 64 bits."""

    begin: bytes
    length: bytes

    @classmethod
    def of(cls, ring: Ring, range_: Range) -> PackedRange:
        """Pack a range."""
        length = range_.length
        return cls(bytes(ring.key(range_.begin)), length.to_bytes((length.bit_length() + 7) // 8, "big"))

    def range(self, ring: Ring) -> Range | None:
        """Unpack the range; None where there is none such on the ring."""
        if not ring.holds(self.begin) or len(self.length) > ring.width + 1:
            return None
        length = int.from_bytes(self.length, "big")
        return Range(ring.number(self.begin), length) if length <= ring.size else None


def ranges_of(ring: Ring, stretches: Iterable[PackedRange]) -> list[Range] | None:
    """Unpack ranges; None where one of them is malformed."""
    found = [each.range(ring) for each in stretches]
    ranges = [each for each in found if each is not None]
    return ranges if len(ranges) == len(found) else None


class PackedContact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contact in a message: its home, its place, where its keys begin, and which node hosts it."""

    home: HomeId
    place: bytes
    begin: bytes
    host: Peer

    @classmethod
    def of(cls, ring: Ring, contact: Contact) -> PackedContact:
        """Pack a contact."""
        return cls(contact.home, bytes(ring.key(contact.place)), bytes(ring.key(contact.begin)), contact.host)

    def contact(self, ring: Ring) -> Contact | None:
        """Unpack the contact; None where there can be none such on the ring."""
        if not all(map(ring.holds, (self.home, self.place, self.begin, self.host.id))):
            return None
        return Contact(self.home, ring.number(self.place), ring.number(self.begin), self.host)


def contacts_of(ring: Ring, cards: Iterable[PackedContact]) -> list[Contact] | None:
    """Unpack contacts; None where one of them is malformed."""
    found = [each.contact(ring) for each in cards]
    contacts = [each for each in found if each is not None]
    return contacts if len(contacts) == len(found) else None


class MemberRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member by its home, its place, and its life; 0 where that is not known."""

    home: HomeId
    place: bytes
    life: int = 0


# -- filters -----------------------------------------------------------------------------------------------------------


class FilterQuery(Message, frozen=True, tag="f.want"):
    """Down an edge (`edges.EdgeQuery`): asks for what is wanted in a range that the edge answers for."""

    to: MemberRef
    """The life is that of the member whose state is known."""
    source: MemberRef
    range: PackedRange
    at: int
    known: int
    begin: bytes
    """The beginning of the asker's own keys."""
    listed: int = UNASKED
    """A digest of the neighbours that the first edge named last, and is asked for again; 0 where it has named none."""


class FilterUpdate(Message, frozen=True, tag="f.filter"):
    """Up an edge (`edges.EdgeState`): all that is wanted in a range, as texts; None where those are known."""

    to: MemberRef
    source: MemberRef
    number: int
    range: PackedRange
    rows: tuple[str, ...] | None
    at: int
    good_us: int
    is_pending: bool


class FilterAck(Message, frozen=True, tag="f.known"):
    """Down an edge (`edges.EdgeAck`): a filter is known here, and further up."""

    to: MemberRef
    source: MemberRef
    number: int


class NoSuchMember(Message, frozen=True, tag="f.absent"):
    """Says that there is no such member; the home owns these ranges."""

    to: MemberRef
    source: MemberRef
    arcs: tuple[KeyRange, ...]


class NeighbourList(Message, frozen=True, tag="f.beside"):
    """The neighbours of a member, for one whose first edge leads here: who lies between, and who is in reserve here."""

    to: MemberRef
    source: MemberRef
    cards: tuple[PackedContact, ...]


# -- the graph ---------------------------------------------------------------------------------------------------------


class LocateNode(Message, frozen=True, tag="f.locate"):
    """Node-location, down the graph: who has this key? The member that it ends at tells its origin."""

    to: MemberRef
    range: PackedRange
    key: bytes
    origin: Peer
    hops: int


class NeighbourQuery(Message, frozen=True, tag="f.where"):
    """Asks neighbours of the overlay, for a member that knows nobody, whom they know from this key on."""

    key: bytes


class NodeLocated(Message, frozen=True, tag="f.located"):
    """Answers both: who has the key, or the next that is known from there on; then those that follow."""

    key: bytes
    cards: tuple[PackedContact, ...]


class NodeJoined(Query, frozen=True, tag="f.join"):
    """Node-join, down the graph, to all in a range whose places lie in targets: an edge of theirs leads here."""

    to: MemberRef
    range: PackedRange
    targets: tuple[PackedRange, ...]
    card: PackedContact
    hops: int
    within_us: int
    """How long the asker waits."""


class NodeJoinedReply(Reply, frozen=True, tag="f.joined"):
    """Says that all know of it but those in targets that were left."""

    left: tuple[PackedRange, ...]


# -- events ------------------------------------------------------------------------------------------------------------


class ForwardEvent(Query, frozen=True, tag="f.hand"):
    """Bring an event to all in a range who want it."""

    to: MemberRef
    range: PackedRange
    event: EventKey
    settled: int
    hops: int
    within_us: int
    """How long the asker waits."""
    content: bytes


class ForwardReply(Reply, frozen=True, tag="f.handed"):
    """Says that all in the range have it, but for ranges that are left and homes that are slow."""

    left: tuple[PackedRange, ...]
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    served: int
    """The number of members at which it was served."""


class ForwardAround(Message, frozen=True, tag="f.carry"):
    """Keyed request of a node that owns no keys: hand an event to the whole ring."""

    event: EventKey
    settled: int
    within_us: int
    content: bytes


class ForwardAroundReply(Message, frozen=True, tag="f.carried"):
    """Answers a `ForwardAround`, as `ForwardReply` does."""

    left: tuple[PackedRange, ...]
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    served: int


class MatchRange(Message, frozen=True, tag="f.serve"):
    """Keyed request: bring an event to all who want it at the keys owned here, of a range."""

    range: PackedRange
    event: EventKey
    settled: int
    hops: int
    content: bytes


class MatchRangeReply(Message, frozen=True, tag="f.served"):
    """Says that all have it but the homes named, which did not say so in time."""

    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]


MESSAGES: Final[tuple[type[Message], ...]] = (
    FilterQuery,
    FilterUpdate,
    FilterAck,
    NoSuchMember,
    NeighbourList,
    LocateNode,
    NeighbourQuery,
    NodeLocated,
    NodeJoined,
    NodeJoinedReply,
    ForwardEvent,
    ForwardReply,
    ForwardAround,
    ForwardAroundReply,
    MatchRange,
    MatchRangeReply,
)
