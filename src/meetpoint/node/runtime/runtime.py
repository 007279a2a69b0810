"""The runtime: what the parts of a node may do, the only way from protocol code to the world.

`Node.handle` begins a step, its parts call these methods, and the list that `begin` returned has the effects in the
order of the calls. Timers, tickets and requests are numbers outside and signals or callbacks inside: a part says what
happens next and keeps no table. All of it is deterministic: numbers are counted, and the driver seeds `random`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.api.outcomes import Outcome
from meetpoint.node.runtime.effects import (
    Accepted,
    Answer,
    CancelTimer,
    Effect,
    Ended,
    Notify,
    Observe,
    Persist,
    Send,
    SetTimer,
    Step,
    Stop,
    Trace,
)
from meetpoint.node.runtime.flow import Flow, Signal
from meetpoint.node.runtime.inputs import Instant, Received
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring

__all__ = ["Packing", "Runtime"]

Then = Callable[[], None]


class Packing(Protocol):
    """Encodes messages that travel inside others, and decodes them where they arrive."""

    def encode(self, message: Message) -> bytes:
        """Return the bytes of a message."""

    def decode(self, data: bytes) -> Message:
        """Return the message; raise `WireError` for bytes that are none."""


class Runtime:
    """Lets the parts of one node send, wait, persist and measure, and runs their flows."""

    __slots__ = (
        "_effects", "_flows", "_numbers", "_replies", "_tickets", "_timers",
        "codec", "me", "now", "random", "ring", "tracing",
    )  # fmt: skip

    def __init__(self, me: Peer, ring: Ring, codec: Packing, seed: int) -> None:
        self.me = me
        self.ring = ring
        self.codec = codec
        self.random = random.Random(seed)
        self.now = Instant(0)
        self.tracing = False
        """Whether each step of every event is traced."""
        self._effects: list[Effect] = []
        self._numbers = self.random.getrandbits(32)  # in each life others: a late reply answers nobody
        self._timers: dict[int, Then] = {}
        self._tickets: dict[int, Signal[None]] = {}
        self._replies: dict[int, tuple[Peer, int, Signal[Reply | None]]] = {}
        self._flows: dict[Flow, None] = {}

    # -- what parts call -----------------------------------------------------------------------------------------------

    def send(self, to: Peer, message: Message) -> None:
        """Send a message, which may be lost. Nothing is sent to oneself: that is a call."""
        assert to.id != self.me.id, f"{message!r} to oneself"
        self._effects.append(Send(to, message))

    def ask(self, to: Peer, query: Query, timeout_us: int) -> Signal[Reply | None]:
        """Send a query under a number of its own. The signal is the reply, or None: too late, or the peer is lost."""
        number = self._number()
        timer = self.after(timeout_us, partial(self._give_up, number))
        signal: Signal[Reply | None] = Signal()
        self._replies[number] = (to, timer, signal)
        self.send(to, msgspec.structs.replace(query, request=number))
        return signal

    def after(self, delay_us: int, then: Then) -> int:
        """Call `then` once, later; return the number that cancels it."""
        timer = self._number()
        self._timers[timer] = then
        self._effects.append(SetTimer(timer, Instant(self.now + delay_us)))
        return timer

    def cancel(self, timer: int) -> None:
        """Cancel a timer; one that has fired already does no harm."""
        if self._timers.pop(timer, None) is not None:
            self._effects.append(CancelTimer(timer))

    def persist(self, records: Iterable[Record], erased: Iterable[tuple[bytes, str]] = ()) -> Signal[None]:
        """Keep records on disk and forget names; the signal is set when that is certain."""
        ticket = self._number()
        signal = self._tickets[ticket] = Signal()
        self._effects.append(Persist(ticket, tuple(records), tuple(erased)))
        return signal

    def sleep(self, delay_us: int) -> Signal[None]:
        """Return a signal that is set after a while."""
        signal: Signal[None] = Signal()
        self.after(delay_us, partial(signal.set, None))
        return signal

    def start(self, name: str, coroutine: Coroutine[Signal[Any], None, None], home: HomeId | None = None) -> Flow:
        """Run a coroutine to its first wait; `Signal`s resume it. It ends with its home, where it belongs to one."""
        flow = Flow(name, coroutine, self.now, home, self._flows)
        flow.resume()
        return flow

    def end_flows(self, home: HomeId) -> None:
        """Cancel what a home has begun: the home ends, or moves."""
        for flow in [flow for flow in self._flows if flow.home == home]:
            flow.cancel()

    @property
    def flows(self) -> tuple[Flow, ...]:
        """All flows that run, the oldest first."""
        return tuple(self._flows)

    def notify(self, event: EventKey, names: tuple[str, ...], content: bytes, redelivered: bool) -> None:
        """Notify subscribers of this node of an event."""
        self._effects.append(Notify(event, names, content, redelivered))

    def accepted(self, event: EventKey, content: bytes) -> None:
        """Have an event archived."""
        self._effects.append(Accepted(event, content))

    def ended(self, name: str, reason: str) -> None:
        """Tell the driver that a subscription has ended by itself."""
        self._effects.append(Ended(name, reason))

    def trace(
        self,
        event: EventKey,
        step: Step,
        home: HomeId = LOCAL,
        names: Iterable[str] = (),
        detail: str = "",
        content: bytes = b"",
    ) -> None:
        """Record a step of an event, where events are traced (`tracing`)."""
        if self.tracing:
            self._effects.append(Trace(event, step, home, tuple(names), detail, content))

    def answer(self, request: int, outcome: Outcome) -> None:
        """Answer a client."""
        self._effects.append(Answer(request, outcome))

    def observe(self, name: str, value: int = 1, subject: bytes = b"") -> None:
        """Count or measure under a name."""
        self._effects.append(Observe(name, value, subject))

    def stop(self) -> None:
        """Tell the driver that this node is done."""
        self._effects.append(Stop())

    # -- what `handle` calls -------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> list[Effect]:
        """Begin a step: its effects will be in the list returned."""
        self.now = now
        effects = self._effects = []
        return effects

    def received(self, item: Received, handlers: Mapping[type[Message], Callable[[Peer, Message], None]]) -> None:
        """Hand a message to its handler, a reply to the signal that waits for it."""
        message = item.message
        handler = handlers.get(type(message))
        if item.source.id == self.me.id:
            self.observe("message_from_oneself")  # a peer that lies
        elif handler is not None:
            handler(item.source, message)
        elif isinstance(message, Reply):
            self.replied(item.source, message)
        else:
            self.observe("message_unexpected")

    def fired(self, timer: int) -> None:
        """Take a timer that fired; one that was cancelled meanwhile does nothing."""
        then = self._timers.pop(timer, None)
        if then is not None:
            then()

    def persisted(self, ticket: int) -> None:
        """Take the news that the records of a ticket are on disk."""
        signal = self._tickets.pop(ticket, None)
        if signal is not None:
            signal.set(None)

    def replied(self, source: Peer, reply: Reply) -> None:
        """Take a reply. Late, repeated and unasked ones are counted and dropped."""
        waiting = self._replies.get(reply.request)
        if waiting is None or waiting[0].id != source.id:
            self.observe("reply_unexpected")
            return
        del self._replies[reply.request]
        self.cancel(waiting[1])
        waiting[2].set(reply)

    def lost(self, peer: Peer) -> None:
        """End all waiting for a peer that cannot be reached."""
        for number in [n for n, (to, _, _) in self._replies.items() if to.id == peer.id]:
            if number in self._replies:
                self._give_up(number)

    @property
    def waiting(self) -> int:
        """The number of timers, tickets and replies that are waited for; it stays bounded."""
        return len(self._timers) + len(self._tickets) + len(self._replies)

    def _give_up(self, number: int) -> None:
        _, timer, signal = self._replies.pop(number)
        self.cancel(timer)
        signal.set(None)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
