"""What the parts of a node may do: the only way from protocol code to the world.

`Node.handle` begins a step, its parts call these methods, and the list that `begin` returned has the effects in the
order of the calls. Timers, tickets and requests are numbers here and callbacks inside: a part says what shall happen
next and need not keep a table. All of it is deterministic: numbers are counted, and `random` is seeded by the driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Reply
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
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring

__all__ = ["Packing", "Runtime"]

Then = Callable[[], None]


class Packing(Protocol):
    """Bytes from a message, and back: for messages that travel inside others, closed until they arrive."""

    def encode(self, message: Message) -> bytes:
        """The bytes of a message."""

    def decode(self, data: bytes) -> Message:
        """The message; raises what `wire` says of bytes that are none."""


class Runtime:
    """One node's way to send, wait, keep and measure."""

    __slots__ = (
        "_effects", "_numbers", "_replies", "_tickets", "_timers", "codec", "me", "now", "random", "ring", "tracing",
    )  # fmt: skip

    def __init__(self, me: Peer, ring: Ring, codec: Packing, seed: int) -> None:
        self.me = me
        self.ring = ring
        self.codec = codec
        self.random = random.Random(seed)
        self.now = Instant(0)
        self.tracing = False
        """Whether anyone wants to know what becomes of each event."""
        self._effects: list[Effect] = []
        self._numbers = self.random.getrandbits(32)  # in each life others: a late reply answers nobody
        self._timers: dict[int, Then] = {}
        self._tickets: dict[int, Then] = {}
        self._replies: dict[int, tuple[Peer, int, Callable[[Reply | None], None]]] = {}

    # -- what parts call -----------------------------------------------------------------------------------------------

    def send(self, to: Peer, message: Message) -> None:
        """Send a message, which may be lost. Nothing is sent to oneself: that is a call."""
        assert to.id != self.me.id, f"{message!r} to oneself"
        self._effects.append(Send(to, message))

    def ask(
        self, to: Peer, query: Callable[[int], Message], then: Callable[[Reply | None], None], timeout_us: int
    ) -> None:
        """Send a query and call `then` with its reply, or with None when the time is over or the peer is lost."""
        number = self._number()
        timer = self.after(timeout_us, lambda: self._give_up(number))
        self._replies[number] = (to, timer, then)
        self.send(to, query(number))

    def after(self, delay_us: int, then: Then) -> int:
        """Call `then` once, later; the number returned cancels it."""
        timer = self._number()
        self._timers[timer] = then
        self._effects.append(SetTimer(timer, Instant(self.now + delay_us)))
        return timer

    def cancel(self, timer: int) -> None:
        """The timer shall not fire; one that has fired is no matter."""
        if self._timers.pop(timer, None) is not None:
            self._effects.append(CancelTimer(timer))

    def persist(self, records: Iterable[Record], erased: Iterable[tuple[bytes, str]], then: Then | None) -> None:
        """Keep records on disk and forget names; call `then` when that is certain."""
        ticket = self._number()
        if then is not None:
            self._tickets[ticket] = then
        self._effects.append(Persist(ticket, tuple(records), tuple(erased)))

    def notify(self, event: EventKey, names: tuple[str, ...], content: bytes, redelivered: bool) -> None:
        """Bring an event to subscribers of this node."""
        self._effects.append(Notify(event, names, content, redelivered))

    def accepted(self, event: EventKey, content: bytes) -> None:
        """An event is to be archived."""
        self._effects.append(Accepted(event, content))

    def ended(self, name: str, reason: str) -> None:
        """A subscription has ended by itself."""
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
        """Tell what became of an event, where anyone wants to know (`tracing`)."""
        if self.tracing:
            self._effects.append(Trace(event, step, home, tuple(names), detail, content))

    def answer(self, request: int, outcome: Outcome) -> None:
        """Answer a client."""
        self._effects.append(Answer(request, outcome))

    def observe(self, name: str, value: int = 1, subject: bytes = b"") -> None:
        """Tell a measurement."""
        self._effects.append(Observe(name, value, subject))

    def stop(self) -> None:
        """This node is done."""
        self._effects.append(Stop())

    # -- what the node calls -------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> list[Effect]:
        """A step begins: its effects will be in the list returned."""
        self.now = now
        effects = self._effects = []
        return effects

    def fired(self, timer: int) -> None:
        """A timer fired; one that was cancelled meanwhile does nothing."""
        then = self._timers.pop(timer, None)
        if then is not None:
            then()

    def persisted(self, ticket: int) -> None:
        """A ticket is on disk."""
        then = self._tickets.pop(ticket, None)
        if then is not None:
            then()

    def replied(self, source: Peer, reply: Reply) -> None:
        """A reply came. Late, repeated and unasked ones are counted and dropped."""
        waiting = self._replies.get(reply.request)
        if waiting is None or waiting[0].id != source.id:
            self.observe("reply_unexpected")
            return
        del self._replies[reply.request]
        self.cancel(waiting[1])
        waiting[2](reply)

    def lost(self, peer: Peer) -> None:
        """A peer cannot be reached: whoever waits for it need not wait longer."""
        for number in [n for n, (to, _, _) in self._replies.items() if to.id == peer.id]:
            if number in self._replies:
                self._give_up(number)

    @property
    def waiting(self) -> int:
        """How many timers, tickets and replies are waited for: it stays bounded."""
        return len(self._timers) + len(self._tickets) + len(self._replies)

    def _give_up(self, number: int) -> None:
        _, timer, then = self._replies.pop(number)
        self.cancel(timer)
        then(None)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
