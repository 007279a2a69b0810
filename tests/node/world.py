"""A small world for nodes: virtual time, messages that take a while, disks; and an overlay that is a table.

The overlay knows all members at once, which no real one does. So these tests are about homes, copies and the directory
alone; with real overlays, real faults and the codec it is the simulator's turn.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from meetpoint.api.codec import Codec
from meetpoint.api.ids import EventKey, Key, NodeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Outcome
from meetpoint.api.requests import Acknowledge, Detach, NodeRequest, Publish
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.node.message_kinds import MESSAGES
from meetpoint.node.node import Node
from meetpoint.node.overlay import Handler, Places, Upcalls
from meetpoint.node.runtime.effects import (
    Accepted,
    Answer,
    Ended,
    Notify,
    Observe,
    Persist,
    Send,
    SetTimer,
    Stop,
    Trace,
)
from meetpoint.node.runtime.inputs import (
    ClientRequest,
    Instant,
    PeerUnreachable,
    Persisted,
    Received,
    Started,
    TimerFired,
    Withdrawn,
)
from meetpoint.node.runtime.records import Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.schemes.flood import MESSAGES as FLOOD_MESSAGES
from meetpoint.schemes.flood import Flood

RING = Ring(16)
CODEC = Codec((*MESSAGES, *FLOOD_MESSAGES))


class TableView(msgspec.Struct, frozen=True):
    joined: bool


class Table:
    """An overlay that looks its neighbours up in the world's table of members."""

    def __init__(self, world: World, runtime: Runtime, upcalls: Upcalls) -> None:
        self._world = world
        self._runtime = runtime
        self._upcalls = upcalls
        self.places: Places | None = None
        self.is_member = False
        self.remembered: list[Sequence[Peer]] = []

    def _others(self) -> list[Peer]:
        me = self._runtime.me.id
        members = sorted(self._world.members.values(), key=lambda peer: RING.distance(me, peer.id))
        return [peer for peer in members if peer.id != me and not self._world.is_cut(me, peer.id)]

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {}

    def found(self, peers: Sequence[Peer]) -> None:
        self.join(self._runtime.me)

    def join(self, contact: Peer) -> None:
        if self._world.joins_fail:
            return
        self.is_member = True
        self._world.members[self._runtime.me.id] = self._runtime.me
        self._world.members_changed()
        self._upcalls.joined()

    def leave(self) -> None:
        self.is_member = False
        self._world.members.pop(self._runtime.me.id, None)
        self._world.members_changed()

    def remember(self, peers: Sequence[Peer]) -> None:
        self.remembered.append(peers)

    def suspect(self, peer: Peer) -> None:
        pass

    def route(self, key: Key, body: Message) -> None:
        raise NotImplementedError

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        raise NotImplementedError

    def next_hop(self, key: Key) -> Peer | None:
        others = sorted(self._others(), key=lambda peer: RING.distance(key, peer.id))
        nearer = [peer for peer in others[:1] if RING.distance(key, peer.id) < RING.distance(key, self._runtime.me.id)]
        return nearer[0] if nearer else None

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        return tuple(self._others()[:count])

    def split(self, scope: bytes | None) -> list[tuple[Peer, bytes]]:
        return [] if scope is not None else [(peer, b"end") for peer in self._others()]

    def peers(self) -> tuple[Peer, ...]:
        return tuple(self._others())

    def check(self) -> None:
        pass

    def view(self) -> TableView:
        return TableView(self.is_member)


class World:
    """Nodes by their numbers, and what became of them."""

    def __init__(self, count: int, *, loss: float = 0.0, seed: int = 1, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.settings = NodeSettings(**settings)
        self.loss = loss
        self.now = 0
        self.members: dict[NodeId, Peer] = {}
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, dict[tuple[bytes, str], Record]] = {}
        self.answers: dict[int, Outcome] = {}
        self.notified: list[tuple[str, str, bool]] = []
        self.observed: dict[str, int] = {}
        self.ended: list[tuple[str, str]] = []
        self.traces: list[tuple[int, Trace]] = []
        self.keys: dict[str, EventKey] = {}
        self.accepted: list[tuple[int, Accepted]] = []
        self.acknowledges = True
        self.away: set[str] = set()  # names that nobody takes; the driver says so when it is to notify one
        self.full: set[int] = set()  # whose disk is: what it is to write waits
        self.writes: dict[int, int] = {}
        self.joins_fail = False
        self.parts: list[frozenset[NodeId]] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        founders = tuple(Peer(RING.node(1000 * number), f"n{number}", 1) for number in range(1, count + 1))
        for number in range(1, count + 1):
            self.start(number, founders=founders)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, number: int, *, founders: tuple[Peer, ...] = (), contacts: Iterable[int] = ()) -> None:
        me = Peer(RING.node(1000 * number), f"n{number}", 1)
        node = Node(
            me,
            RING,
            self.random.getrandbits(30),
            CODEC,
            lambda runtime, upcalls: Table(self, runtime, upcalls),
            lambda runtime, overlay, home_manager: Flood(runtime, overlay, home_manager),
            self.settings,
        )
        self.nodes[number] = node
        records = tuple(self.disks.setdefault(number, {}).values())
        peers = tuple(Peer(RING.node(1000 * each), f"n{each}", 0) for each in contacts)
        self._handle(number, node, Started(records, founders, peers))

    def crash(self, number: int, *, lose_disk: bool = False) -> None:
        node = self.nodes.pop(number)
        self.members.pop(node.me.id, None)
        if lose_disk:
            self.disks[number] = {}
        self.members_changed()

    def members_changed(self) -> None:
        for number, node in list(self.nodes.items()):
            self._later(0, lambda number=number, node=node: self._changed(number, node))  # type: ignore[misc]

    def _changed(self, number: int, node: Node) -> None:
        if self.nodes.get(number) is node and node.state != "new":
            self.run_in(number, node.neighbours_changed)

    def is_cut(self, a: NodeId, b: NodeId) -> bool:
        return any((a in part) != (b in part) for part in self.parts)

    def cut_off(self, *numbers: int) -> None:
        self.parts = [frozenset(RING.node(1000 * number) for number in numbers)]
        self.members_changed()

    def heal(self) -> None:
        self.parts = []
        self.members_changed()

    # -- clients -------------------------------------------------------------------------------------------------------

    def withdraw(self, number: int, request: int) -> None:
        self._handle(number, self.nodes[number], Withdrawn(request))

    def ask(self, number: int, what: NodeRequest) -> int:
        self._serial += 1
        request = self._serial
        self._handle(number, self.nodes[number], ClientRequest(request, what))
        return request

    def publish(self, number: int, id_: str, **attributes: Any) -> int:
        return self.publish_as("p", 1, number, id_, **attributes)

    def publish_as(
        self, publisher: str, sequence: int, number: int, id_: str, last: EventKey | None = None, **attributes: Any
    ) -> int:
        event = Event(id_, publisher, sequence, parse_timestamp("2026-01-01T00:00:00Z"), attributes)
        return self.ask(number, Publish(to_msgpack(event), last))

    # -- time ----------------------------------------------------------------------------------------------------------

    def run_in(self, number: int, call: Callable[[], None]) -> None:
        """Have a part of a node do something, as its node would."""
        node = self.nodes[number]
        effects = node._runtime.begin(Instant(self.now))
        call()
        self._apply(number, node, effects)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND_US)
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call = heapq.heappop(self._queue)
            call()
        self.now = until

    def _later(self, delay_us: int, call: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay_us, self._serial, call))

    def _handle(self, number: int, node: Node, item: Any) -> None:
        if self.nodes.get(number) is node:
            self._apply(number, node, node.handle(item, Instant(self.now)))
            node.check()

    def _apply(self, number: int, node: Node, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node, effect)
            elif isinstance(effect, SetTimer):
                fired = TimerFired(effect.timer)
                self._later(effect.at - self.now, lambda fired=fired: self._handle(number, node, fired))  # type: ignore[misc]
            elif isinstance(effect, Persist):
                self.writes[number] = self.writes.get(number, 0) + 1
                self._later(2_000, lambda effect=effect: self._persist(number, node, effect))  # type: ignore[misc]
            elif isinstance(effect, Answer):
                self.answers[effect.request] = effect.outcome
            elif isinstance(effect, Notify):
                self._notify(number, effect)
            elif isinstance(effect, Ended):
                self.ended.append((effect.name, effect.reason))
            elif isinstance(effect, Trace):
                self.traces.append((number, effect))
            elif isinstance(effect, Observe):
                self.observed[effect.name] = self.observed.get(effect.name, 0) + effect.value
            elif isinstance(effect, Accepted):
                self.accepted.append((number, effect))
            elif isinstance(effect, Stop):
                del self.nodes[number]

    def _send(self, node: Node, effect: Send) -> None:
        source, data = node.me, CODEC.encode(effect.message)
        number = RING.number(effect.to.id) // 1000

        def arrive() -> None:
            target = self.nodes.get(number)
            if target is not None:
                self._handle(number, target, Received(source, CODEC.decode(data)))
            else:
                sender = RING.number(source.id) // 1000
                self._handle(sender, node, PeerUnreachable(effect.to))

        if not self.is_cut(source.id, effect.to.id) and self.random.random() >= self.loss:
            self._later(self.random.randrange(5_000, 50_000), arrive)

    def _persist(self, number: int, node: Node, effect: Persist) -> None:
        if number in self.full:
            self._later(SECOND_US, lambda: self._persist(number, node, effect))
        elif self.nodes.get(number) is node:
            disk = self.disks[number]
            for record in effect.records:
                disk[record.home, record.name] = record
            for name in effect.erased:
                disk.pop(name, None)
            self._handle(number, node, Persisted(effect.ticket))

    def _notify(self, number: int, effect: Notify) -> None:
        names = tuple(name for name in effect.names if name not in self.away)
        id_ = from_msgpack(effect.content).id
        self.keys[id_] = effect.event
        self.notified += [(name, id_, effect.redelivered) for name in names]
        for name in self.away.intersection(effect.names):
            self._later(1_000, lambda name=name: self._ask_if_up(number, Detach(name)))  # type: ignore[misc]
        if self.acknowledges and names:
            self._later(1_000, lambda: self._ask_if_up(number, Acknowledge(effect.event, names)))

    def _ask_if_up(self, number: int, what: NodeRequest) -> None:
        if number in self.nodes:
            self.ask(number, what)
