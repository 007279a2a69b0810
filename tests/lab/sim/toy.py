"""A tiny network for tests of the simulator: everyone knows everyone, events are sent once, nothing is repaired.

Right while nothing goes wrong, and easy to make wrong in one known way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from meetpoint.api.codec import Codec
from meetpoint.api.ids import EventKey, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Found, Published, Stored
from meetpoint.api.requests import Leave, Lookup, Publish, Subscribe, Unsubscribe, Update
from meetpoint.lab.sim.judge import Members, first_from
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.node.runtime.effects import Answer, Effect, Notify, Persist, Send, SetTimer, Stop
from meetpoint.node.runtime.inputs import ClientRequest, Input, Instant, Persisted, Received, Started, TimerFired
from meetpoint.node.runtime.records import Record
from meetpoint.node.runtime.ring import Ring

TICK_US = 500_000


class Carry(Message, frozen=True, array_like=True, gc=False, tag="carry"):
    """An event for everyone."""

    event: EventKey
    content: bytes


class Hello(Message, frozen=True, array_like=True, gc=False, tag="hello"):
    """Only so that something is said."""

    number: int


class ToyView(msgspec.Struct):
    """What may be seen of a toy node."""

    next: bytes
    outbox: int = 0
    queued: int = 0
    unsafe: int = 0
    waiting: int = 1


class Shown(msgspec.Struct):
    """A toy node's part of its overlay."""

    member: bool


class ToyNode:
    """One node; `family` is where it finds the others."""

    def __init__(self, family: ToyFamily, me: Peer) -> None:
        self.family = family
        self.me = me
        self.filters: dict[str, Filter] = {}
        self.waiting: dict[int, list[Effect]] = {}
        self.numbers = self.ticks = 0
        self.member = False
        self.shown = Shown(False)

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        match item:
            case Started(records=records):
                self.member = True
                for record in records:
                    if record.value is not None:
                        self.filters[record.name] = parse_filter(record.value.decode())
                return [SetTimer(0, Instant(now + TICK_US))]
            case TimerFired(timer=0):
                self.ticks += 1
                others = self.others()
                to = others[self.ticks % len(others)] if others else None
                again: list[Effect] = [SetTimer(0, Instant(now + TICK_US))]
                return again if to is None else [*again, Send(to, Hello(self.ticks))]
            case Received(message=Carry() as carried):
                return self.take(carried.event, carried.content)
            case Persisted(ticket=ticket):
                return self.waiting.pop(ticket, [])
            case ClientRequest(request=request, what=what):
                return self.asked(request, what)
        return []

    def asked(self, request: int, what: object) -> list[Effect]:
        match what:
            case Subscribe() | Update():
                assert what.filter is not None
                self.filters[what.name] = parse_filter(what.filter)
                return self.keep(request, Record(home_of(self.me.id), what.name, 1, what.filter.encode()))
            case Unsubscribe():
                self.filters.pop(what.name, None)
                return self.keep(request, Record(home_of(self.me.id), what.name, 1, None))
            case Publish(event=content):
                self.numbers += 1
                key = EventKey(home_of(self.me.id), 1, self.numbers)
                sends: list[Effect] = [Send(peer, Carry(key, content)) for peer in self.others()]
                return [Answer(request, Published(key)), *sends, *self.take(key, content)]
            case Lookup(key=key_):
                return [Answer(request, Found(self.find(key_), 1))]
            case Leave():
                self.member = False
                return [Answer(request, Stored()), Stop()]
        return [Answer(request, Stored())]

    def keep(self, request: int, record: Record) -> list[Effect]:
        self.waiting[request] = [Answer(request, Stored())]
        return [Persist(request, (record,))]

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        attributes = from_msgpack(content).attributes
        names = tuple(name for name, filter_ in self.filters.items() if filter_.accepts(attributes))
        return [Notify(key, names, content, redelivered=False)] if names else []

    def find(self, key: bytes) -> Peer:
        members = self.family.members()
        return members[first_from(sorted(members), key)]

    def others(self) -> list[Peer]:
        return [peer for id_, peer in sorted(self.family.members().items()) if id_ != self.me.id]

    def view(self) -> Shown:
        if self.shown.member is not self.member:
            self.shown = Shown(self.member)
        return self.shown

    def check(self) -> None:
        """Nothing can be wrong."""

    def snapshot(self) -> ToyView:
        order = sorted(self.family.members())
        return ToyView(order[(order.index(self.me.id) + 1) % len(order)])


class ToyFamily:
    """Makes toy nodes, of a class that may be a mutant."""

    def __init__(self, node: type[ToyNode] = ToyNode, bits: int = 160) -> None:
        self.codec = Codec([Carry, Hello])
        self.ring = Ring(bits)
        self.nodes: dict[bytes, ToyNode] = {}
        self._node = node

    def make(self, peer: Peer, seed: int) -> ToyNode:
        self.nodes[peer.id] = self._node(self, peer)
        return self.nodes[peer.id]

    def members(self) -> dict[bytes, Peer]:
        return {id_: node.me for id_, node in self.nodes.items() if node.member}

    def founders(self, count: int) -> None:
        """Any number will do."""

    def is_member(self, view: Any) -> bool:
        return bool(view.member)

    def is_ready(self, node: Any) -> bool:
        return bool(node.member)

    def place(self, view: Any) -> object:
        return None

    def read_view(self, node: Any) -> Callable[[], object]:
        return node.view  # type: ignore[no-any-return]

    def differ(self, old: Any, new: Any) -> bool:
        return True

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return None

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        return len(views) > 2

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return None

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        return [first_from(members.ids, key)]
