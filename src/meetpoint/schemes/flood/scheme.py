"""The scheme `flood`: every event goes to every broker, and each home filters for its own subscribers.

An event travels down a tree that the overlay spans (`Overlay.split`). Each node tells the origin what its homes have,
a few events at a time. A home that has not told gets the event again, directly, until it has. An event is fully
acknowledged when every home in the origin's directory has it, and the origin has merged the directory of each of them
(`FloodAck.digest`): then no home that served when the event was published can have been left out, wherever it joined
(`node.cluster.directory`).

Nothing is placed for a subscription: its home is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.cluster.directory import Entry
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.sequence_set import SequenceSet
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import DONE, Signal
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["MESSAGES", "Flood", "FloodAck", "FloodEvent", "HomeProgress"]


RETRY_US: Final = SECOND_US
"""How long a home may take to tell, before the event is sent to it again; doubled each time, up to `RETRY_MAX_US`."""
RETRY_MAX_US: Final = 8 * SECOND_US
RETRY_EVENTS_MAX: Final = 64
"""Events that are sent to one home again at one time."""
TELL_US: Final = 20_000
"""How long a node waits after it has told an origin, collecting what its homes have, before it tells again."""
ABOVE_MAX: Final = 512
"""Numbers above the floor that are told at one time."""


class _OpenEvent:
    """An event on its way, and the homes that have not told that they have it."""

    __slots__ = ("content", "since", "waiting")

    def __init__(self, content: bytes, since: int, waiting: dict[HomeId, None]) -> None:
        self.content = content
        self.since = since
        self.waiting = waiting


class Flood:
    """The scheme `flood` at one node."""

    def __init__(self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> None:
        self._runtime = runtime
        self._overlay = overlay
        self._home_manager = home_manager
        self._open: dict[tuple[HomeId, int], dict[int, _OpenEvent]] = {}
        self._forwarded: dict[tuple[HomeId, int], SequenceSet] = {}
        self._done: dict[tuple[HomeId, HomeId, int], SequenceSet] = {}
        self._to_tell: dict[NodeId, dict[tuple[HomeId, HomeId, int], SequenceSet]] = {}
        self._told_at: dict[NodeId, int] = {}
        self._retry: dict[HomeId, tuple[int, int]] = {}  # home -> when to send again, and how long to wait then
        self._homes: dict[HomeId, None] = {}
        self._ticking = False
        home_manager.directory.listen(self._directory_changed)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        return {FloodEvent: self._flood_event, FloodAck: self._flood_ack}  # type: ignore[dict-item]

    def tune(self, feedback: Feedback) -> None:
        """Do nothing: every event goes everywhere, whatever it is like."""

    def found(self, homes: Sequence[HomeId]) -> None:
        """Do nothing: nothing is shared out among homes."""

    def start(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def home_started(self, home: Home) -> None:
        """Do nothing: the directory tells where homes are."""

    def home_stopped(self, home: HomeId) -> None:
        """Do nothing: the directory tells where homes are."""

    def is_free(self, home: Home) -> bool:
        """Return true: nothing is kept at a home for others."""
        return True

    def free(self, home: Home) -> None:
        """Do nothing: a home is always free."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Count a message that can be none of the scheme's: nothing is routed by key."""
        self._runtime.observe("message_unexpected")

    def neighbours_changed(self) -> None:
        """Do nothing: nothing depends on the keys of this node."""

    def place(self, home: bytes, name: str) -> Signal[None]:
        """Call `then`: a subscription needs no more than its home."""
        return DONE

    def when_placed(self, home: bytes, name: str) -> Signal[None]:
        """Call `then`: a subscription needs no more than its home."""
        return DONE

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether a home has not told yet that it has an event."""
        open_events = self._open.get((event.home, event.stream), {}).get(event.number)
        return open_events is None or home in open_events.waiting

    # -- sending -------------------------------------------------------------------------------------------------------

    def publish(self, event: EventKey, content: bytes) -> None:
        """Send an event to everyone, and again to those that do not tell that they have it."""
        stream = self._open.setdefault((event.home, event.stream), {})
        if event.number in stream:
            return
        homes = dict.fromkeys(self._home_manager.directory.homes())
        stream[event.number] = _OpenEvent(content, self._runtime.now, homes)
        self._pass_on(FloodEvent(event, self._runtime.me, next(iter(stream)) - 1, 0, b"", content), None)
        for home in list(self._home_manager.homes.values()):
            self._take_here(home, event, content)
        if not self._ticking:
            self._ticking = True
            self._runtime.after(RETRY_US, self._tick)

    def _pass_on(self, message: FloodEvent, scope: bytes | None) -> None:
        hops = message.hops + 1
        for peer, part in self._overlay.split(scope):
            self._runtime.send(
                peer, FloodEvent(message.event, message.origin, message.settled, hops, part, message.content)
            )

    def _take_here(self, home: Home, event: EventKey, content: bytes) -> None:
        home.take(event, content).then(lambda _: self._has(home.id, event.home, event.stream, 0, (event.number,)))

    def _has(self, home: HomeId, source: HomeId, stream: int, floor: int, above: Collection[int]) -> None:
        """Note that a home has the events of a stream up to a number, and some above."""
        open_events = self._open.get((source, stream))
        if not open_events:
            return
        has = [*takewhile(lambda number: number <= floor, open_events), *above] if floor else above
        settled = []
        for number in has:
            each = open_events.get(number)
            if each is not None and home in each.waiting:
                del each.waiting[home]
                if not each.waiting:
                    settled.append(number)
        if self._runtime.tracing:
            for number in has:
                if number in open_events:
                    self._runtime.trace(EventKey(source, stream, number), "brought", home)
        for number in settled:
            del open_events[number]
            self._home_manager.fully_acknowledged(EventKey(source, stream, number))

    def _tick(self) -> None:
        for key in [key for key, events in self._open.items() if not events or key[0] not in self._home_manager.homes]:
            del self._open[key]  # a home that moves away takes its events along
        self._ticking = bool(self._open)
        if not self._ticking:
            self._retry.clear()
            return
        self._runtime.after(RETRY_US, self._tick)
        now = self._runtime.now
        missing: dict[HomeId, list[tuple[EventKey, int, bytes]]] = {}
        for (source, stream), events in self._open.items():
            settled = next(iter(events)) - 1
            for number, each in events.items():
                if now - each.since < RETRY_US:
                    break
                event = EventKey(source, stream, number)
                for home in each.waiting:
                    missing.setdefault(home, []).append((event, settled, each.content))
        for home, wanted in missing.items():
            self._send_again(home, wanted)

    def _send_again(self, home: HomeId, wanted: list[tuple[EventKey, int, bytes]]) -> None:
        host = self._home_manager.directory.host(home)
        hosted = self._home_manager.homes.get(home)
        if hosted is not None:
            for event, _, content in wanted:
                self._take_here(hosted, event, content)
            return
        due, wait = self._retry.get(home, (0, RETRY_US))
        if host is None or host.id == self._runtime.me.id or self._runtime.now < due:
            return
        self._retry[home] = (self._runtime.now + wait, min(2 * wait, RETRY_MAX_US))
        self._runtime.observe("event_again", min(len(wanted), RETRY_EVENTS_MAX))
        for event, settled, content in wanted[:RETRY_EVENTS_MAX]:
            self._runtime.send(host, FloodEvent(event, self._runtime.me, settled, 1, None, content))

    def _directory_changed(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._retry.pop(entry.home, None)
            if entry.gone:
                self._homes.pop(entry.home, None)
                for (source, stream), events in list(self._open.items()):
                    self._has(entry.home, source, stream, max(events, default=0), ())
            elif entry.home not in self._homes:
                self._homes[entry.home] = None
                for events in self._open.values():
                    for each in events.values():
                        each.waiting[entry.home] = None

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _flood_event(self, source: Peer, message: FloodEvent) -> None:
        event = message.event
        stream = (event.home, event.stream)
        forwarded = self._forwarded.get(stream)
        if forwarded is None:
            forwarded = self._forwarded[stream] = SequenceSet()
        forwarded.raise_to(message.settled)
        if message.scope is not None and forwarded.add(event.number):
            self._runtime.observe("event_hops", message.hops)
            self._pass_on(message, message.scope)
        if message.origin.id == self._runtime.me.id:
            return  # it came round: this node has it
        for home in list(self._home_manager.homes.values()):
            self._take(home, message)

    def _take(self, home: Home, message: FloodEvent) -> None:
        event = message.event
        about = (home.id, event.home, event.stream)
        done = self._done.get(about)
        if done is None:
            done = self._done[about] = SequenceSet()
        done.raise_to(message.settled)
        home.skip_to(event, message.settled)

        def taken(_: object) -> None:
            done.add(event.number)
            self._tell(message.origin, about, done)

        home.take(event, message.content).then(taken)

    def _tell(self, origin: Peer, about: tuple[HomeId, HomeId, int], done: SequenceSet) -> None:
        waiting = self._to_tell.get(origin.id)
        if waiting is not None:
            waiting[about] = done
            return
        wait_us = self._told_at.get(origin.id, 0) + TELL_US - self._runtime.now
        if wait_us > 0:
            self._to_tell[origin.id] = {about: done}
            self._runtime.after(wait_us, lambda: self._tell_now(origin, self._to_tell.pop(origin.id)))
        else:
            self._tell_now(origin, {about: done})

    def _tell_now(self, origin: Peer, to_tell: dict[tuple[HomeId, HomeId, int], SequenceSet]) -> None:
        self._told_at[origin.id] = self._runtime.now
        told = tuple([HomeProgress(*about, done.floor, _first(done)) for about, done in to_tell.items()])
        self._runtime.send(origin, FloodAck(self._home_manager.directory.digest, told))

    def _flood_ack(self, source: Peer, message: FloodAck) -> None:
        directory = self._home_manager.directory
        if directory.has_merged(message.digest):
            self._count(message.done)
        else:
            directory.compare(source).then(lambda _: self._count_if_merged(message))

    def _count_if_merged(self, message: FloodAck) -> None:
        if self._home_manager.directory.has_merged(message.digest):  # else it will be told again
            self._count(message.done)

    def _count(self, told: tuple[HomeProgress, ...]) -> None:
        for done in told:
            self._retry.pop(done.home, None)
            self._has(done.home, done.source, done.stream, done.floor, done.above)

    def check(self) -> None:
        """Assert what must hold at all times."""
        for events in self._open.values():
            numbers = list(events)
            assert numbers == sorted(numbers), "events of a stream are carried in the order of their numbers"
            assert all(each.waiting for each in events.values()), "an event that all have is settled"


def _first(done: SequenceSet) -> tuple[int, ...]:
    return () if done.is_whole else tuple(islice(done.above(), ABOVE_MAX))


# -- messages ----------------------------------------------------------------------------------------------------------


class FloodEvent(Message, frozen=True, tag="flooding"):
    """An event; `scope` is the part of the overlay to pass it on to, None for nobody.

    `settled`: all events of its stream up to this number have reached everyone.
    """

    event: EventKey
    origin: Peer
    settled: int
    hops: int
    scope: bytes | None
    content: bytes


class HomeProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events of a stream that a home has: all up to `floor`, and some above."""

    home: HomeId
    source: HomeId
    stream: int
    floor: int
    above: tuple[int, ...]


class FloodAck(Message, frozen=True, tag="flooded"):
    """Tells what the homes of the sender have, and the digest of its directory."""

    digest: bytes
    done: tuple[HomeProgress, ...]


MESSAGES: Final = (FloodEvent, FloodAck)
