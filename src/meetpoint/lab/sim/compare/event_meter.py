"""Who hears what while schemes are compared: a meter that follows single events.

What a scheme does with a single event cannot be told from messages alone, since not all of them name it. So some events
are published *alone*, with rests before and after them, and what is said meanwhile by nodes that such an event has come
to is about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from meetpoint.api.ids import Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.requests import Publish, Subscribe
from meetpoint.lab.sim.compare.traffic import PURPOSES, Meter
from meetpoint.lab.sim.engine import Codec, Process
from meetpoint.node.runtime.effects import Notify
from meetpoint.node.runtime.inputs import ClientRequest

__all__ = ["ALONE", "IDLE_S", "IN_A_ROW", "Followed", "Watcher", "alone_of"]

ALONE = 40
IN_A_ROW = 4
"""About how many events are published alone, at most, and how many of them one after another."""
STILL_S = 0.05
"""How long before such an event nobody may have spoken of others: else it is not alone, and not looked at."""
IDLE_S = 25.0
"""After how long without any question of a client the network is idle."""


def alone_of(events: int) -> frozenset[int]:
    """Which of so many events are published alone, by their numbers."""
    apart = max(IN_A_ROW, -(-events * IN_A_ROW // ALONE))
    return frozenset(number for number in range(events) if (number + apart // 2) % apart < IN_A_ROW)


class Watcher(Meter):
    """A meter that also counts what comes before the first event, who is spoken to, and how far single events go."""

    def __init__(self, codec: Codec, alone: frozenset[int], step: Callable[[int], None] = lambda steps: None) -> None:
        super().__init__(codec)
        self.loading = Meter(codec)
        self.idle = Meter(codec)
        """What was said while clients did nothing, at the end."""
        self.received_by: Counter[str] = Counter()
        """By node, the messages with events that were sent to it."""
        self.followed: list[Followed] = []
        """The events that were alone."""
        self._alone = alone
        self._step = step
        self._asked: int | None = None
        self._published = 0
        self._spoke = 0
        self._following: Followed | None = None

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        """A message was sent."""
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
        """A message arrived."""
        if self._following is not None:
            self._following.received(target, payload)

    def happened(self, now: int, process: Process, thing: object) -> None:
        """What clients ask, and what they are notified of."""
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
        """The run is over."""
        if self._following is not None:
            self.followed.append(self._following)
            self._following = None

    def _publish(self, now: int, process: Process, content: bytes) -> None:
        self.end()
        if self._published in self._alone and now - self._spoke >= STILL_S * SECOND_US:
            self._following = Followed(process, content)
        self._published += 1


class Followed:
    """One event, as long as nobody speaks of others: which nodes it comes to, and after how many messages."""

    def __init__(self, origin: Process, content: bytes) -> None:
        self._origin = origin
        self._content = content
        self._flying: dict[int, tuple[bytes, int]] = {}
        self._reached: dict[str, int] = {origin.address: 0}
        """By node, how many messages, one after another, came before what it says now."""
        self._brought: dict[str, int] = {}
        """By node, how many before the event itself was there last."""
        self.hops: list[int] = []
        """By notification at another node than the event's own, so many messages."""

    @property
    def nodes(self) -> int:
        """How many it came to, that where it was published among them."""
        return len(self._reached)

    def sent(self, source: Process, payload: bytes) -> None:
        """Someone speaks of an event: of this one, if it has come there."""
        reached = self._reached.get(source.address)
        if reached is not None:
            self._flying[id(payload)] = payload, reached + 1  # kept, so that no other has this id

    def received(self, target: Process, payload: bytes) -> None:
        """A message arrived."""
        _, hops = self._flying.pop(id(payload), (b"", 0))
        if hops:
            self._reached[target.address] = hops
            if self._content in payload:
                self._brought[target.address] = hops

    def notified(self, process: Process, thing: Notify) -> None:
        """Subscribers are notified."""
        if thing.content == self._content and process is not self._origin:
            self.hops += [self._brought.get(process.address, 0)] * len(thing.names)
