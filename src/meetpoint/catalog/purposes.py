"""What messages between brokers are for, and what is inside them.

Every kind of message has one purpose, in one table. A message inside another is what counts: a routed one, an errand
and its answer are for whatever they bring. A part of a message may have a purpose of its own. Of the messages that are
about events, those that bring an event on, or ask for what it needs, have a word for people; the others are answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from meetpoint.api.messages import Message

__all__ = ["ENVELOPES", "PARTS", "PURPOSES", "WORDS", "Purpose", "innermost", "tag_of"]

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
"""What each kind of message is for, by its tag."""

ENVELOPES: Final = frozenset({"c.ro", "p.ro", "h.ro", "errand", "errand_done"})
"""The kinds whose `body` is another message."""

PARTS: Final[Mapping[str, tuple[str, Purpose]]] = {"visited": ("summary", "summaries")}
"""The kinds with a field that has a purpose of its own, where it is not None."""

WORDS: Final[Mapping[str, str]] = {
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
"""The kinds that take an event a step on, in a word each."""


class _Tagged(msgspec.Struct, array_like=True):
    """The beginning of any message: its tag; the rest is skipped."""

    tag: str


_tagged = msgspec.msgpack.Decoder(_Tagged).decode


class Decoding(Protocol):
    """Messages from bytes."""

    def decode(self, data: bytes) -> Message:
        """The message; raises what `wire` says of bytes that are none."""


def tag_of(message: Message) -> str:
    """The tag of a message's kind."""
    return str(message.__struct_config__.tag)


def innermost(codec: Decoding, message: Any, *, whole: bool = False) -> tuple[str, Any]:
    """The tag of the message that counts, and that message: where anyone looks into it, or where `whole` is said."""
    tag = tag_of(message)
    while tag in ENVELOPES:
        body = message.body
        tag = _tagged(body).tag
        if whole or tag in ENVELOPES or tag in PARTS:
            message = codec.decode(body)
    return tag, message
