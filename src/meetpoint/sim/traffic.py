"""What the messages of a run are for, from the first event that is published on.

Every kind of message has one purpose, in one table. A message inside another is what counts: a routed one, an errand
and its answer are for whatever they bring, with all their bytes and at each hop. A part of a message may have a purpose
of its own; then its bytes are taken from the message's. Subscriptions are loaded before the first event; what is placed
later is told apart from what events cost.

A `Meter` reads along with a run as stories do (`Network.tell`), so that a run nobody measures pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from meetpoint.protocol.inputs import Asked, Publish
from meetpoint.protocol.messages import Message, Peer
from meetpoint.sim.engine import Codec, Process

__all__ = ["ENVELOPES", "PARTS", "PURPOSES", "Meter", "Purpose", "Traffic"]

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


class Traffic(msgspec.Struct):
    """Some messages, and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, other: Traffic) -> None:
        """Both together."""
        self.messages += other.messages
        self.bytes += other.bytes


class _Tagged(msgspec.Struct, array_like=True):
    """The beginning of any message: its tag; the rest is skipped."""

    tag: str


_tagged = msgspec.msgpack.Decoder(_Tagged).decode
_pack = msgspec.msgpack.Encoder().encode


class Meter:
    """A reader of a run that counts."""

    def __init__(self, codec: Codec, purposes: Mapping[str, Purpose] = PURPOSES) -> None:
        self._codec = codec
        self._purposes = purposes
        self.began: int | None = None
        """When the first event was asked to be published."""
        self.by_kind: dict[str, Traffic] = {}
        """By the tag of the innermost message."""
        self.parts: dict[str, Traffic] = {}
        """The messages that have a part of its own purpose, by their tag, and the bytes of these parts."""

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        """A message was sent."""
        if self.began is None:
            return
        tag, inner = self._innermost(message)
        traffic = self.by_kind.get(tag)
        if traffic is None:
            assert tag in self._purposes, f"say in {__name__} what {tag} ({type(message).__name__}) is for"
            traffic = self.by_kind[tag] = Traffic()
        traffic.messages += 1
        traffic.bytes += len(payload)
        if tag in PARTS and (part := getattr(inner, PARTS[tag][0])) is not None:
            self.parts.setdefault(tag, Traffic()).add(Traffic(1, len(_pack(part))))

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Counted when it was sent."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """An event is asked to be published: from the first one on, messages count."""
        if self.began is None and isinstance(thing, Asked) and isinstance(thing.what, Publish):
            self.began = now

    def by_purpose(self) -> dict[Purpose, Traffic]:
        """All purposes, also those that nothing was for. A message counts once, its bytes where they belong."""
        found: dict[Purpose, Traffic] = {purpose: Traffic() for purpose in get_args(Purpose)}
        for tag, traffic in self.by_kind.items():
            found[self._purposes[tag]].add(traffic)
        for tag, traffic in self.parts.items():
            found[self._purposes[tag]].bytes -= traffic.bytes
            found[PARTS[tag][1]].bytes += traffic.bytes
        return found

    def _innermost(self, message: Any) -> tuple[str, Any]:
        """The tag of the message that counts, and that message, where anyone looks into it."""
        tag = str(message.__struct_config__.tag)
        while tag in ENVELOPES:
            body = message.body
            tag = _tagged(body).tag
            if tag in ENVELOPES or tag in PARTS:
                message = self._codec.decode(body)
        return tag, message
