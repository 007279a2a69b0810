"""The purpose of each message between brokers, and the search for events in their bytes.

Every kind of message has one purpose, in one table. Of a message inside another, the inner one counts: a routed
message, a keyed request and its answer have the purpose of their body. A part of a message may have a purpose of its
own. Messages that take an event a step on have a name for people; other messages about events are answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey
from meetpoint.api.messages import Message

__all__ = ["ENVELOPES", "EVENT_STEPS", "PARTS", "PURPOSES", "IdMatcher", "Purpose", "innermost", "tag_of"]


Purpose: TypeAlias = Literal["events", "placing", "summaries", "safekeeping", "upkeep"]

_KINDS: Final[Mapping[Purpose, str]] = {
    "events": (
        "flooding flooded c.ro p.ro h.ro errand errand_done elsewhere bring brought spread spread_done visit visited "
        "matched collect collected chain accepted told heard carry carried watermark watermarked "
        "d.match d.matched d.reaching r.handle r.handled f.hand f.handed f.carry f.carried f.serve f.served"
    ),
    # Where subscriptions lie, and regions that split and merge.
    "placing": (
        "put stored crowded withdraw removed d.plant d.uproot d.planted "
        "d.sow d.open d.close d.dissolve d.obeyed d.closed d.low d.heeded d.weigh d.weighed "
        "r.weigh r.weighed"
    ),
    "summaries": (
        "used noted r.idle r.idle_for r.awake r.awoken r.borrow r.lent r.amend r.amended "
        "f.want f.filter f.known f.absent"
    ),
    # What was published, and what waits for subscribers, on two disks.
    "safekeeping": "copy copied",
    # The ring, the directory, homes and arcs that move: all that goes on when nobody publishes. Also lookups: rings
    # look for each other by them all the time, while schemes route.
    "upkeep": (
        "c.as c.ts c.pe c.sr c.pi c.po c.cl c.hi c.lv c.sk c.pl c.fi c.lo p.gr p.gd p.st p.jo p.we p.lv p.fi p.lo "
        "h.be h.lv h.ke h.jo h.of h.sb h.no h.wa h.fi h.lo "
        "sync synced fetch fetched holding released keep kept adopt adopted confirm confirmed "
        "seek_arc sought_arc pull pulled took forgot take taken where where_is "
        "f.beside f.locate f.where f.located f.join f.joined"
    ),
}
PURPOSES: Final[Mapping[str, Purpose]] = {tag: purpose for purpose, tags in _KINDS.items() for tag in tags.split()}
"""The purpose of each kind of message, by its tag."""

ENVELOPES: Final = frozenset({"c.ro", "p.ro", "h.ro", "errand", "errand_done"})
"""The kinds whose `body` is another message."""

PARTS: Final[Mapping[str, tuple[str, Purpose]]] = {"visited": ("summary", "summaries")}
"""The kinds with a field that has a purpose of its own, where it is not None."""

EVENT_STEPS: Final[Mapping[str, str]] = {
    "flooding": "flood",
    "visit": "visit",
    "bring": "bring",
    "spread": "spread",
    "collect": "collect",
    "chain": "chain",
    "told": "tell",
    "carry": "walk",
    "d.match": "match",
    "r.handle": "handle",
    "f.hand": "hand",
    "f.carry": "hand",
    "f.serve": "serve",
}
"""The kinds that take an event a step on, and a name for each."""


class _Tagged(msgspec.Struct, array_like=True):
    """The first field of any message, its tag; the rest is skipped."""

    tag: str


_tagged = msgspec.msgpack.Decoder(_Tagged).decode


class Decoding(Protocol):
    """A codec, as far as it decodes."""

    def decode(self, data: bytes) -> Message:
        """Decode a message; raise what the codec raises for bytes that are none."""


def tag_of(message: Message) -> str:
    """Return the tag of a message."""
    return str(message.__struct_config__.tag)


def innermost(codec: Decoding, message: Any, *, whole: bool = False) -> tuple[str, Any]:
    """Return the tag of the innermost message, and the message where it was decoded.

    The body of an envelope is decoded only if it is needed, or if `whole` is true: its tag can be read without that.
    """
    tag = tag_of(message)
    while tag in ENVELOPES:
        body = message.body
        tag = _tagged(body).tag  # the tag alone: every message is measured, and a whole decode costs many times more
        if whole or tag in ENVELOPES or tag in PARTS:
            message = codec.decode(body)
    return tag, message


# -- events and subscriptions in messages ------------------------------------------------------------------------------


_PACK = msgspec.msgpack.Encoder().encode


class IdMatcher:
    """Finds an event or a subscription in the bytes of any message.

    An event's id and key, or a subscription's name, occur in the bytes of every message about it, however deep. So the
    search knows nothing of any scheme.
    """

    __slots__ = ("_all", "event")

    def __init__(self, *first: bytes) -> None:
        self._all = list(first)
        self.event: EventKey | None = None

    def add_key(self, event: EventKey) -> None:
        """Search for the event's key as well; the first key counts."""
        if self.event is None:
            self.event = event
            self._all += (_PACK(event), f"{event.home.hex()}/{event.stream}/{event.number}".encode())

    def is_in(self, data: bytes) -> bool:
        """Return whether the bytes name the event or subscription."""
        return any(pattern in data for pattern in self._all)
