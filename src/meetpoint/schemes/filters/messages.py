"""What brokers that run `filters` say to each other.

Members of the graph are arcs of homes (`members`): one is named by its home and its place, the last key of the arc.
Each has a *life*, a number that is another whenever it begins anew, so that nothing told by or to a former one counts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.protocol.messages import Message, Query, Reply
from meetpoint.protocol.records import EventKey, HomeId
from meetpoint.protocol.ring import Ring
from meetpoint.rendezvous.arcs import Arc
from meetpoint.schemes.filters.ranges import Range

__all__ = [
    "MESSAGES",
    "Absent",
    "Carried",
    "Carry",
    "Filter",
    "Hand",
    "Handed",
    "Known",
    "Serve",
    "Served",
    "Stretch",
    "Want",
    "Where",
    "WhereIs",
]


class Stretch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range as it travels: numbers in a message have no more than 64 bits."""

    begin: bytes
    length: bytes

    @classmethod
    def of(cls, ring: Ring, range_: Range) -> Stretch:
        """A range, packed."""
        length = range_.length
        return cls(bytes(ring.key(range_.begin)), length.to_bytes((length.bit_length() + 7) // 8, "big"))

    def range(self, ring: Ring) -> Range | None:
        """The range; None where there is none such on the circle."""
        if not ring.holds(self.begin) or len(self.length) > ring.width + 1:
            return None
        length = int.from_bytes(self.length, "big")
        return Range(ring.number(self.begin), length) if length <= ring.size else None


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member: its home, its place, and its life; 0 where that is not known."""

    home: HomeId
    place: bytes
    life: int = 0


# -- filters -----------------------------------------------------------------------------------------------------------


class Want(Message, frozen=True, array_like=True, gc=False, tag="f.want"):
    """Down an edge (`edges.Ask`): what is wanted in this range, for which I hold you responsible?"""

    to: Member
    """Its life is that of the member whose state is known."""
    source: Member
    range: Stretch
    at: int
    known: int


class Filter(Message, frozen=True, array_like=True, gc=False, tag="f.filter"):
    """Up an edge (`edges.State`): all that is wanted in a range, as texts; None where those are known."""

    to: Member
    source: Member
    number: int
    range: Stretch
    rows: tuple[str, ...] | None
    at: int
    good_us: int
    is_pending: bool


class Known(Message, frozen=True, array_like=True, gc=False, tag="f.known"):
    """Down an edge (`edges.Ack`): a filter is known here, and further up."""

    to: Member
    source: Member
    number: int


class Absent(Message, frozen=True, array_like=True, gc=False, tag="f.absent"):
    """There is no such member; the home holds these arcs."""

    to: Member
    source: Member
    arcs: tuple[Arc, ...]


class Where(Message, frozen=True, array_like=True, gc=False, tag="f.where"):
    """Errand: who holds a key? Whoever answers is named by the answer's envelope."""


class WhereIs(Message, frozen=True, array_like=True, gc=False, tag="f.where_is"):
    """Here."""


# -- events ------------------------------------------------------------------------------------------------------------


class Hand(Query, frozen=True, array_like=True, gc=False, tag="f.hand"):
    """Bring an event to all in a range who want it."""

    to: Member
    range: Stretch
    event: EventKey
    settled: int
    hops: int
    within_us: int
    """How long whoever asks waits."""
    content: bytes


class Handed(Reply, frozen=True, array_like=True, gc=False, tag="f.handed"):
    """All in the range have it but what is left: ranges of which nobody knows, and homes that did not say so."""

    left: tuple[Stretch, ...]
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    served: int
    """At how many members it was served."""


class Carry(Message, frozen=True, array_like=True, gc=False, tag="f.carry"):
    """Errand, of a node that holds no keys: hand an event to the whole circle."""

    event: EventKey
    settled: int
    within_us: int
    content: bytes


class Carried(Message, frozen=True, array_like=True, gc=False, tag="f.carried"):
    """As `Handed`."""

    left: tuple[Stretch, ...]
    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]
    served: int


class Serve(Message, frozen=True, array_like=True, gc=False, tag="f.serve"):
    """Errand: bring an event to all who want it at the keys held here, of a range."""

    range: Stretch
    event: EventKey
    settled: int
    hops: int
    content: bytes


class Served(Message, frozen=True, array_like=True, gc=False, tag="f.served"):
    """They have it, but for the homes named, which did not say so in time."""

    homes: tuple[tuple[HomeId, tuple[int, ...]], ...]


MESSAGES: Final[tuple[type[Message], ...]] = (
    Want,
    Filter,
    Known,
    Absent,
    Where,
    WhereIs,
    Hand,
    Handed,
    Carry,
    Carried,
    Serve,
    Served,
)
