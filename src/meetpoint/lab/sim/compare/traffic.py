"""What the messages of a run are for, from the first event that is published on.

Every kind of message has one purpose (`catalog.purposes`). A message inside another is what counts, with all its bytes
and at each hop. A part of a message may have a purpose of its own; then its bytes are taken from the message's.
Subscriptions are loaded before the first event; what is placed later is told apart from what events cost.

A `Meter` reads along with a run as stories do (`Network.tell`), so that a run nobody measures pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import Publish
from meetpoint.catalog.purposes import ENVELOPES, PARTS, PURPOSES, Purpose, innermost
from meetpoint.lab.sim.engine import Codec, Process
from meetpoint.node.runtime.inputs import ClientRequest

__all__ = ["ENVELOPES", "PARTS", "PURPOSES", "Meter", "Purpose", "Traffic"]


class Traffic(msgspec.Struct):
    """Some messages, and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, other: Traffic) -> None:
        """Both together."""
        self.messages += other.messages
        self.bytes += other.bytes


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
            assert tag in self._purposes, f"say in catalog.purposes what {tag} ({type(message).__name__}) is for"
            traffic = self.by_kind[tag] = Traffic()
        traffic.messages += 1
        traffic.bytes += len(payload)
        if tag in PARTS and (part := getattr(inner, PARTS[tag][0])) is not None:
            self.parts.setdefault(tag, Traffic()).add(Traffic(1, len(_pack(part))))

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Counted when it was sent."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """An event is asked to be published: from the first one on, messages count."""
        if self.began is None and isinstance(thing, ClientRequest) and isinstance(thing.what, Publish):
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
        return innermost(self._codec, message)
