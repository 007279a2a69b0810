"""The engine: virtual time, and the only driver of simulated nodes.

Time is an integer of microseconds. A heap holds the future; its entries are plain tuples that begin with the time and a
serial number, so that entries of one instant happen in the order in which they were scheduled and nothing further is
ever compared. One seed gives one run, byte for byte: `digest` is over every delivery (when, from whom, to whom, which
bytes) and everything that clients see.

A message passes the real codec: it is encoded when it is sent, decoded when it is delivered, and its bytes are counted.
Effects are applied in their order. A process that dies takes its timers with it; messages on their way to it are lost,
and their senders may be told (`detector`): always, after a round trip, and never wrongly (*perfect*), or sometimes, as
a refused or broken TCP connection would (*imperfect*).

The loop is the hot path of every simulation: no objects but the entry and the input, no look-ups that a local name can
save, and no question asked of faults while there are none. The heap is kept small: later entries wait in slots of
`_SLOT_US` each, outside the heap, until their slot begins; and nearly every timer is cancelled until then, as replies
come in time. The end of a run is an entry of the heap too, so that no step need look at the time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from struct import Struct
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.lab.sim.devices import BEGINNING, Disk, LinkDelays, LinkFaults
from meetpoint.node.runtime.effects import (
    Answer,
    CancelTimer,
    Effect,
    Ended,
    Notify,
    Observe,
    Persist,
    Send,
    SetTimer,
    Stop,
    Trace,
)
from meetpoint.node.runtime.inputs import Input, Instant, PeerUnreachable, Persisted, Received, TimerFired

SYNC_US_MIN, SYNC_US_MAX = 500, 5_000
"""The duration of a disk sync."""

REFUSED_SHARE = 0.5
"""The share of lost messages whose sender hears of it, under the imperfect detector."""

Detector: TypeAlias = Literal["perfect", "imperfect"]

_MESSAGE, _TIMER, _SLOT, _CALL, _LOST, _END = range(6)
_SLOT_BITS = 15
_SLOT_US = 1 << _SLOT_BITS
EVENT_HOPS = "event_hops"
"""The measurement by which a scheme reports that an event first came to a node, and after how many messages."""
_NOBODY = -1
_NO_TICKET = 0
"""A ticket that no node gives: theirs begin above."""
_FIRST, _LAST = 0, 1 << 62
"""Serial numbers before and after all others. A slot opens before anything else at its time, and a run ends after
everything."""
_HEAD = Struct("<qii")
_TRACE_MAX = 8192
_PACK = msgspec.msgpack.Encoder().encode


class SimulatedNode(Protocol):
    """The interface of a node to its driver."""

    @property
    def me(self) -> Peer:
        """The node, under its current incarnation."""

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        """Handle an input: the only way to change the node's state."""

    def check(self) -> None:
        """Assert the node's invariants."""

    def snapshot(self) -> Any:
        """Return the state that may be seen from outside."""


class Codec(Protocol):
    """The codec of messages."""

    def encode(self, message: Message) -> bytes: ...

    def decode(self, data: bytes) -> Message: ...


class Observer(Protocol):
    """An observer of a run."""

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        """Observe that a message was sent."""

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Observe that a message arrived."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """Observe an effect, an input that is no message, or an event in the life of a process, as text."""


class Process:
    """An address: a node that may die and come back, its disk, its clock."""

    __slots__ = (
        "address", "alive", "bytes_sent", "delivery_epoch", "disk", "drift", "epoch", "gone", "index", "kinds", "links",
        "node", "peer", "read_view", "skew_us", "skewed", "started_at", "steps", "timers", "view",
    )  # fmt: skip

    def __init__(self, index: int, peer: Peer) -> None:
        self.index = index
        self.address = peer.address
        self.peer = peer
        self.node: SimulatedNode | None = None
        self.disk = Disk()
        self.alive = False
        self.gone = False
        self.epoch = 0
        self.delivery_epoch = _NOBODY
        """The epoch that messages are sent to: none while it is down, so that they do not arrive even if it returns."""
        self.timers: dict[int, int] = {}
        self.links: dict[str, tuple[Process, int]] = {}
        self.skew_us = 0
        self.drift = 0.0
        """The offset and the drift of its clock: to be set before it starts."""
        self.skewed = False
        self.started_at = 0
        self.steps = self.bytes_sent = 0
        self.kinds: defaultdict[type[Message], int] = defaultdict(int)
        self.view: object = None
        self.read_view: Callable[[], object] = lambda: None

    @property
    def sent(self) -> int:
        """The number of messages it has sent."""
        return sum(self.kinds.values())

    def local(self, now: int) -> Instant:
        """Return the time that its clock shows."""
        if self.drift == 0.0:
            return Instant(now + self.skew_us)
        return Instant(now + self.skew_us + int((now - self.started_at) * self.drift))

    def true_time(self, at: Instant, now: int) -> int:
        """Return the true time at which its clock will show `at`."""
        return now + max(0, round((at - self.local(now)) / (1.0 + self.drift)))

    def __repr__(self) -> str:
        return self.address


class Engine:
    """The event loop of a simulation."""

    def __init__(self, codec: Codec, seed: int, detector: Detector = "imperfect") -> None:
        self.now = BEGINNING
        self.codec = codec
        self.detector: Detector = detector
        self.processes: dict[str, Process] = {}
        self.observed: dict[str, int] = {}
        self.subjects: dict[str, dict[bytes, int]] = {}
        self.event_hops: Counter[int] = Counter()
        """The number of nodes that an event first reached after so many messages."""
        self.undelivered = 0
        self.observer: Observer | None = None
        self.link_faults: LinkFaults | None = None
        self.after_step: Callable[[Process], None] = lambda process: None
        self.on_notify: Callable[[Process, Notify], None] = lambda process, effect: None
        self.on_answer: Callable[[Process, Answer], None] = lambda process, effect: None
        self.on_ended: Callable[[Process, Ended], None] = lambda process, effect: None
        self.on_stop: Callable[[Process], None] = lambda process: None
        self.on_sync: Callable[[Process], bool] = lambda process: True
        self._links = LinkDelays(seed)
        self._random = Random(f"engine/{seed}")
        self._digest = blake2b(digest_size=16)
        self._trace: list[bytes] = []
        self._heap: list[tuple[Any, ...]] = []
        self._slots: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._encode = codec.encode
        self._serial = 0
        self._expect_slot((self.now >> _SLOT_BITS) + 1)
        self._others: dict[type, Callable[[Process, Any], None]] = {
            Notify: self._notify,
            Ended: self._ended,
            Trace: self._traced,
            Answer: self._answer,
            Persist: self._persist,
            Observe: self._observe,
            Stop: self._stop,
        }

    # -- processes -----------------------------------------------------------------------------------------------------

    def add(self, peer: Peer) -> Process:
        """Add an address."""
        assert peer.address not in self.processes, f"{peer.address} exists"
        process = self.processes[peer.address] = Process(len(self.processes), peer)
        return process

    def start(self, process: Process, node: SimulatedNode) -> None:
        """Start a process; the caller feeds `Started` to it next."""
        assert not process.alive, f"{process} is up"
        assert not process.gone, f"{process} has left"
        process.node = node
        process.alive = True
        process.epoch += 1
        process.delivery_epoch = process.epoch
        process.skewed = bool(process.skew_us or process.drift)
        process.started_at = self.now
        process.view = None

    def kill(self, process: Process) -> int:
        """Kill a process; return how many tickets its disk lost."""
        assert process.alive
        process.alive = False
        process.epoch += 1
        process.delivery_epoch = _NOBODY
        process.timers.clear()
        return process.disk.crash(self._random)

    def feed(self, process: Process, item: Input) -> None:
        """Give an input to a node now, and apply its effects."""
        assert process.alive, f"{process} is down"
        if self.observer is not None:
            self.observer.happened(self.now, process, item)
        self._step(process, item)

    # -- time ----------------------------------------------------------------------------------------------------------

    def call(self, at: int, function: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call."""
        assert at >= self.now, "what is past is past"
        self._serial += 1
        self._put(at, (at, self._serial, _CALL, function, arguments))

    def run(self, until: int) -> None:
        """Process everything until that time."""
        assert until >= self.now, "what is past is past"
        heap, trace = self._heap, self._trace
        head, decode, step = _HEAD.pack, self.codec.decode, self._step
        # The end is an entry of the heap, or every step would have to compare the time.
        heappush(heap, (until, _LAST, _END))
        while True:
            entry = heappop(heap)
            self.now = now = entry[0]
            kind = entry[2]
            if kind == _MESSAGE:
                _, _, _, target, epoch, payload, sender, sender_epoch, source, to = entry
                # The target died meanwhile: a message to its old life must not reach the new one.
                if target.epoch != epoch:
                    self._bounce(sender, sender_epoch, target, to)
                    continue
                trace += (head(now, sender.index, target.index), payload)
                message = decode(payload)
                if self.observer is not None:
                    self.observer.received(now, sender, target, message, payload)
                step(target, Received(source, message))
            elif kind == _TIMER:
                _, serial, _, target, epoch, timer = entry
                # A timer that was set again has a new serial: its old entry would fire too early.
                if target.epoch == epoch and target.timers.get(timer) == serial:
                    del target.timers[timer]
                    step(target, TimerFired(timer))
            elif kind == _SLOT:
                self._open(entry[3])
            elif kind == _CALL:
                entry[3](*entry[4])
            elif kind == _LOST:
                _, _, _, target, epoch, peer = entry
                if target.epoch == epoch:
                    self.feed(target, PeerUnreachable(peer))
            else:
                break

    def _put(self, at: int, entry: tuple[Any, ...]) -> None:
        """Keep a timer or a call until its time: in its slot, or in the heap where its slot has begun."""
        slot = at >> _SLOT_BITS
        if slot > self.now >> _SLOT_BITS:
            self._slots[slot].append(entry)
        else:
            heappush(self._heap, entry)

    def _expect_slot(self, slot: int) -> None:
        heappush(self._heap, (slot << _SLOT_BITS, _FIRST, _SLOT, slot))

    def _open(self, slot: int) -> None:
        """Move the entries of a slot to the heap when its time has come, without cancelled timers."""
        self._expect_slot(slot + 1)
        heap = self._heap
        for entry in self._slots.pop(slot, ()):
            if entry[2] == _TIMER:
                _, serial, _, target, epoch, timer = entry
                if target.epoch != epoch or target.timers.get(timer) != serial:
                    continue
            heappush(heap, entry)
        if len(self._trace) > _TRACE_MAX:
            self._seal()

    @property
    def digest(self) -> str:
        """A digest of the run so far."""
        self._seal()
        return self._digest.hexdigest()

    def _seal(self) -> None:
        self._digest.update(b"".join(self._trace))
        self._trace.clear()

    @property
    def kinds(self) -> Counter[type[Message]]:
        """The number of messages of each kind that were sent."""
        kinds: Counter[type[Message]] = Counter()
        for process in self.processes.values():
            kinds.update(process.kinds)
        return kinds

    @property
    def messages(self) -> int:
        """The number of messages that were sent."""
        return sum(process.sent for process in self.processes.values())

    # -- effects -------------------------------------------------------------------------------------------------------

    def _step(self, process: Process, item: Input) -> None:
        now = self.now
        node: Any = process.node
        skewed = process.skewed
        effect: Any  # of which kind says its class, which a type checker does not follow
        for effect in node.handle(item, process.local(now) if skewed else now):
            kind = type(effect)
            if kind is Send:
                to, message = effect.to, effect.message
                payload = self._encode(message)
                process.bytes_sent += len(payload)
                process.kinds[type(message)] += 1
                target, delay = process.links.get(to.address) or self._link(process, to.address)
                at = now + delay
                self._serial = serial = self._serial + 1
                entry: tuple[Any, ...]
                entry = (
                    at,
                    serial,
                    _MESSAGE,
                    target,
                    target.delivery_epoch,
                    payload,
                    process,
                    process.epoch,
                    node.me,
                    to,
                )
                if self.link_faults is None:
                    heappush(self._heap, entry)
                else:
                    self._send_with_faults(entry)
                if self.observer is not None:
                    self.observer.sent(now, process, to, message, payload)
            elif kind is SetTimer:
                at = process.true_time(effect.at, now) if skewed else effect.at
                self._serial = serial = self._serial + 1
                process.timers[effect.timer] = serial
                at = at if at > now else now
                self._put(at, (at, serial, _TIMER, process, process.epoch, effect.timer))
            elif kind is CancelTimer:
                process.timers.pop(effect.timer, None)
            else:
                self._others[kind](process, effect)
        self.after_step(process)

    def _send_with_faults(self, entry: tuple[Any, ...]) -> None:
        """Send a message through the faults of links."""
        assert self.link_faults is not None
        _, _, _, target, _, _, process, *_ = entry
        for at in self.link_faults.arrivals(process.index, target.index, entry[0]):
            self._serial += 1
            heappush(self._heap, (at, self._serial, *entry[2:]))

    def _link(self, process: Process, address: str) -> tuple[Process, int]:
        target = self.processes[address]  # an address that nobody has would be a bug: nodes learn them from each other
        link = process.links[address] = target, self._links.delay_us(process.index, target.index)
        return link

    def _bounce(self, sender: Process, sender_epoch: int, target: Process, to: Peer) -> None:
        """Drop a message to a process that is down, or is another one by now."""
        self.undelivered += 1
        if sender.epoch == sender_epoch and (self.detector == "perfect" or self._random.random() < REFUSED_SHARE):
            self._serial += 1
            back = self.now + sender.links[target.address][1]
            heappush(self._heap, (back, self._serial, _LOST, sender, sender_epoch, to))

    def _notify(self, process: Process, effect: Notify) -> None:
        self._visible(process, effect)
        self.on_notify(process, effect)

    def _answer(self, process: Process, effect: Answer) -> None:
        self._visible(process, effect)
        self.on_answer(process, effect)

    def _ended(self, process: Process, effect: Ended) -> None:
        self._visible(process, effect)
        self.on_ended(process, effect)

    def _traced(self, process: Process, effect: Trace) -> None:
        if self.observer is not None:
            self.observer.happened(self.now, process, effect)

    def _visible(self, process: Process, effect: Notify | Answer | Ended) -> None:
        self._trace += (_HEAD.pack(self.now, process.index, -1), _PACK(effect))
        if self.observer is not None:
            self.observer.happened(self.now, process, effect)

    def _observe(self, process: Process, effect: Observe) -> None:
        observed, name = self.observed, effect.name
        observed[name] = observed.get(name, 0) + effect.value
        if name == EVENT_HOPS:
            self.event_hops[effect.value] += 1
        if effect.subject:
            subjects = self.subjects.setdefault(name, {})
            subjects[effect.subject] = subjects.get(effect.subject, 0) + effect.value

    def _stop(self, process: Process, effect: Stop) -> None:
        self.kill(process)
        process.gone = True
        if self.observer is not None:
            self.observer.happened(self.now, process, effect)
        self.on_stop(process)

    # -- the disk ------------------------------------------------------------------------------------------------------

    def write_nothing(self, process: Process) -> None:
        """Let a disk sync without need, as a store does at maintenance; the node is told of a ticket it never gave."""
        self._persist(process, Persist(_NO_TICKET, ()))

    def _persist(self, process: Process, effect: Persist) -> None:
        if self.observer is not None:
            self.observer.happened(self.now, process, effect)
        if process.disk.write(effect):
            self._sync(process)

    def _sync(self, process: Process) -> None:
        if process.disk.begin():
            took = self._random.randint(SYNC_US_MIN, SYNC_US_MAX)
            self.call(self.now + took, self._synced, process, process.epoch)

    def _synced(self, process: Process, epoch: int) -> None:
        """End a sync, if the process still lives; `on_sync` may let it fail, and then nothing is done."""
        if process.epoch != epoch or not self.on_sync(process):
            return
        # Handling a ticket may stop the process: the tickets left must not reach its next life.
        for ticket in process.disk.end():
            if process.epoch == epoch:
                self._step(process, Persisted(ticket))
        if process.epoch == epoch and not process.disk.busy:
            self._sync(process)
