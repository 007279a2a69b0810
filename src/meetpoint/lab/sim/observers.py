"""Observers of a run (`engine.Observer`): a trace printer, and meters of messages.

`Tracer` prints a line for every step that concerns one event or one subscription. It sees that from the bytes of a
message: an event's id and its key, or a subscription's name, stand somewhere in them, however deep. So it needs no
knowledge of any scheme.

`Meter` counts messages by purpose (`catalog.purposes`), from the first published event on. Of a message inside another
the inner one counts, with all its bytes and at each hop. A part of a message may have a purpose of its own; then its
bytes are taken from the message's. Subscriptions are loaded before the first event, so that later placements are told
apart from the cost of events. A run that nobody observes pays nothing.

`EventMeter` also follows single events. Not all messages name their event. So some events are published *alone*, with
rests before and after them, and all that nodes send meanwhile once such an event has reached them is about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Publish, Subscribe
from meetpoint.catalog.purposes import PARTS, PURPOSES, IdMatcher, Purpose, innermost
from meetpoint.lab.sim.devices import BEGINNING
from meetpoint.lab.sim.engine import Codec, Process
from meetpoint.node.runtime.effects import Answer, Ended, Notify, Persist, Stop, Trace
from meetpoint.node.runtime.inputs import ClientRequest, Started

# -- a trace of one event or subscription ------------------------------------------------------------------------------


LINE_MAX = 200
"""The longest line, in characters."""

ITEMS_SHOWN = 4
ID_DIGITS = 8
ID_BYTES = 20
"""The shown length of a list and of an id; longer bytes appear only by their number."""

_PACK = msgspec.msgpack.Encoder().encode


class Tracer:
    """An observer that writes a line for every step that concerns one event id or one subscription name."""

    def __init__(self, subject: str, write: Callable[[str], None]) -> None:
        self._subject = subject
        self._write = write
        self._matcher = IdMatcher(subject.encode())
        self._requests: dict[int, str] = {}
        self.found = 0

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        if self._concerns(payload):
            self._tell(now, source.address, f"→ {to.address}  {shown(message)}")

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        if self._concerns(payload):
            self._tell(now, target.address, f"← {source.address}  {type(message).__name__}")

    def happened(self, now: int, process: Process, thing: object) -> None:
        if isinstance(thing, str):
            self._tell(now, process.address, thing)
        elif isinstance(thing, Stop):
            self._tell(now, process.address, "has left")
        elif isinstance(thing, Started):
            self._tell(now, process.address, f"starts with {len(thing.records)} records")
        elif isinstance(thing, Persist):
            for record in thing.records:
                if self._concerns(record.name.encode()) or self._concerns(record.value or b""):
                    value = "deleted" if record.value is None else f"{len(record.value)} bytes"
                    self._tell(now, process.address, f"writes {record.name} of {shown(record.home)}, {value}")
            for home, name in thing.erased:
                if self._concerns(name.encode()):
                    self._tell(now, process.address, f"erases {name} of {shown(home)}")
        elif isinstance(thing, ClientRequest):
            if self._concerns(_PACK(thing.what)):
                self._requests[thing.request] = process.address
                self._tell(now, process.address, f"is asked ({thing.request}) {shown(thing.what)}")
        elif isinstance(thing, Ended):
            if thing.name == self._subject:
                self._tell(now, process.address, f"ends {thing.name}: {thing.reason}")
        elif isinstance(thing, Trace):
            if self._subject in thing.names or self._concerns(_PACK(thing.event)):
                names = ", ".join(thing.names) or "nobody"
                detail = f" ({thing.detail})" if thing.detail else ""
                self._tell(now, process.address, f"{thing.step} {shown(thing.event)}, {names}{detail}")
        elif isinstance(thing, Answer):
            self._answered(now, process, thing)
        elif isinstance(thing, Notify) and (self._concerns(thing.content) or self._subject in thing.names):
            self._matcher.add_key(thing.event)
            mark = ", marked as redelivered" if thing.redelivered else ""
            self._tell(now, process.address, f"notifies {', '.join(thing.names)} of {shown(thing.event)}{mark}")

    def _answered(self, now: int, process: Process, answer: Answer) -> None:
        if self._requests.get(answer.request) == process.address:
            if isinstance(answer.outcome, Published):
                self._matcher.add_key(answer.outcome.event)
            self._tell(now, process.address, f"answers ({answer.request}) {shown(answer.outcome)}")

    def _concerns(self, data: bytes) -> bool:
        found = self._matcher.is_in(data)
        self.found += found
        return found

    def _tell(self, now: int, who: str, what: str) -> None:
        """Write a line. Processes that come and go belong to every trace."""
        line = f"{(now - BEGINNING) / SECOND_US:12.6f}  {who:>6}  {what}"
        self._write(line if len(line) <= LINE_MAX else line[: LINE_MAX - 1] + "…")


def shown(value: object) -> str:
    """Return a message or an effect as a person reads it: peers by address, events by key, ids by their first
    digits.
    """
    if isinstance(value, Peer):
        return value.address
    if isinstance(value, EventKey):
        return f"{shown(value.home)}/{value.stream}/{value.number}"
    if isinstance(value, bytes):
        return value.hex()[:ID_DIGITS] if len(value) <= ID_BYTES else f"{len(value)} bytes"
    if isinstance(value, tuple):
        more = ["…"] if len(value) > ITEMS_SHOWN else []
        return f"[{', '.join([*map(shown, value[:ITEMS_SHOWN]), *more])}]"
    if isinstance(value, msgspec.Struct):
        fields = (f"{name}={shown(getattr(value, name))}" for name in value.__struct_fields__)
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


# -- messages by purpose -----------------------------------------------------------------------------------------------


class Traffic(msgspec.Struct):
    """A number of messages, and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, other: Traffic) -> None:
        self.messages += other.messages
        self.bytes += other.bytes


_pack = msgspec.msgpack.Encoder().encode


class Meter:
    """An observer that counts messages by kind and purpose."""

    def __init__(self, codec: Codec, purposes: Mapping[str, Purpose] = PURPOSES) -> None:
        self._codec = codec
        self._purposes = purposes
        self.began: int | None = None
        """The time at which the first event was asked to be published."""
        self.by_kind: dict[str, Traffic] = {}
        """Traffic by the tag of the innermost message."""
        self.parts: dict[str, Traffic] = {}
        """By tag, the messages that have a part of its own purpose, and the bytes of these parts."""

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
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

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None: ...

    def happened(self, now: int, process: Process, thing: object) -> None:
        """Begin to count with the first event that is asked to be published."""
        if self.began is None and isinstance(thing, ClientRequest) and isinstance(thing.what, Publish):
            self.began = now

    def by_purpose(self) -> dict[Purpose, Traffic]:
        """Return the traffic of all purposes. A message counts once, its bytes where they belong."""
        found: dict[Purpose, Traffic] = {purpose: Traffic() for purpose in get_args(Purpose)}
        for tag, traffic in self.by_kind.items():
            found[self._purposes[tag]].add(traffic)
        for tag, traffic in self.parts.items():
            found[self._purposes[tag]].bytes -= traffic.bytes
            found[PARTS[tag][1]].bytes += traffic.bytes
        return found

    def _innermost(self, message: Any) -> tuple[str, Any]:
        """Return the message that counts and its tag."""
        return innermost(self._codec, message)


# -- single events -----------------------------------------------------------------------------------------------------


ALONE = 40
IN_A_ROW = 4
"""The most events published alone, about, and how many of them one after another."""
STILL_S = 0.05
"""The silence about other events before such an event: without it the event is not alone, and not followed."""
IDLE_S = 25.0
"""The time without requests of clients after which the network is idle."""


def alone_of(events: int) -> frozenset[int]:
    """Return which of so many events are published alone, by their numbers."""
    apart = max(IN_A_ROW, -(-events * IN_A_ROW // ALONE))
    return frozenset(number for number in range(events) if (number + apart // 2) % apart < IN_A_ROW)


class EventMeter(Meter):
    """A meter that also counts the loading, the receivers of events, and the ways of single events."""

    def __init__(self, codec: Codec, alone: frozenset[int], step: Callable[[int], None] = lambda steps: None) -> None:
        super().__init__(codec)
        self.loading = Meter(codec)
        self.idle = Meter(codec)
        """Traffic while clients did nothing, at the end."""
        self.received_by: Counter[str] = Counter()
        """By node, the messages with events that were sent to it."""
        self.followed: list[FollowedEvent] = []
        """The events that were alone."""
        self._alone = alone
        self._step = step
        self._asked: int | None = None
        self._published = 0
        self._spoke = 0
        self._following: FollowedEvent | None = None

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        if self._asked is not None and now - self._asked >= IDLE_S * SECOND_US:
            if self.idle.began is None:
                self.idle.began = now
            self.idle.sent(now, source, to, message, payload)
        if self.began is None:
            self.loading.sent(now, source, to, message, payload)
            return
        super().sent(now, source, to, message, payload)
        tag, _ = self._innermost(message)
        if PURPOSES[tag] == "events":
            self._spoke = now
            self.received_by[to.address] += 1
            if self._following is not None:
                self._following.sent(source, payload)

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        if self._following is not None:
            self._following.received(target, payload)

    def happened(self, now: int, process: Process, thing: object) -> None:
        super().happened(now, process, thing)
        if isinstance(thing, ClientRequest) and isinstance(thing.what, Subscribe | Publish):
            self._asked = now
            self._step(1)
            if isinstance(thing.what, Publish):
                self._publish(now, process, thing.what.event)
            elif self.loading.began is None:
                self.loading.began = now
        elif isinstance(thing, Notify) and self._following is not None:
            self._following.notified(process, thing)

    def end(self) -> None:
        """End the run."""
        if self._following is not None:
            self.followed.append(self._following)
            self._following = None

    def _publish(self, now: int, process: Process, content: bytes) -> None:
        self.end()
        if self._published in self._alone and now - self._spoke >= STILL_S * SECOND_US:
            self._following = FollowedEvent(process, content)
        self._published += 1


class FollowedEvent:
    """An event published alone: the nodes that it comes to, and after how many messages."""

    def __init__(self, origin: Process, content: bytes) -> None:
        self._origin = origin
        self._content = content
        self._flying: dict[int, tuple[bytes, int]] = {}
        self._reached: dict[str, int] = {origin.address: 0}
        """By node, the messages, one after another, that came before its current ones."""
        self._brought: dict[str, int] = {}
        """By node, the messages before the event itself was last there."""
        self.hops: list[int] = []
        """So many messages for each notification at another node than the event's own."""

    @property
    def nodes(self) -> int:
        """The number of nodes that it came to, the publishing one among them."""
        return len(self._reached)

    def sent(self, source: Process, payload: bytes) -> None:
        """Count a message about an event: about this one, if it has come to the sender."""
        reached = self._reached.get(source.address)
        if reached is not None:
            self._flying[id(payload)] = payload, reached + 1  # kept, so that no other has this id

    def received(self, target: Process, payload: bytes) -> None:
        _, hops = self._flying.pop(id(payload), (b"", 0))
        if hops:
            self._reached[target.address] = hops
            if self._content in payload:
                self._brought[target.address] = hops

    def notified(self, process: Process, thing: Notify) -> None:
        if thing.content == self._content and process is not self._origin:
            self.hops += [self._brought.get(process.address, 0)] * len(thing.names)
