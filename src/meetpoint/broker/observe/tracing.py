"""Tracing of events: step hooks, the most recent events, and the path of single events.

`StepHooks` are called at each step of the node while anyone wants to know; the driver calls nobody otherwise.

`RecentEvents` are the events that were published here, and which subscribers here were told of which. The first
question begins the recording, and some seconds after the last question it ends. Entries are numbered, so that each
question gets what is new; under load, only the newest.

`EventTracer` remembers what is sent and done here about single events. Whether a message is about an event is seen
from its bytes (`catalog.purposes`). Some name none: a question that an event gives rise to, and its answer. Such a
message is about the event of its step, or of its question. Other brokers cannot know that; so each broker remembers
the *threads* of messages that name no event, and the asker joins them: a keyed request and its answer, or a query and
its reply, have one thread at every broker.

All of it is bounded, ends by itself, and costs nothing while nobody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.client_messages import FollowedReply, RecentEvent, RecentMatch, RecentReply, TraceStep
from meetpoint.api.codec import Codec, WireError
from meetpoint.api.ids import EventKey
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Publish
from meetpoint.catalog.purposes import PURPOSES, IdMatcher, innermost, tag_of
from meetpoint.errors import MeetpointError
from meetpoint.node.node import Node
from meetpoint.node.runtime.effects import Answer, Effect, Send, Trace
from meetpoint.node.runtime.inputs import ClientRequest, Input, Received
from meetpoint.placement.messages import KeyedReply, KeyedRequest, NotOwner

__all__ = [
    "FOLLOWED_MAX", "SECONDS_MAX", "SEEN_MAX", "EventTracer", "RecentEvents", "StepHook", "StepHooks", "TracingError",
]  # fmt: skip

StepHook: TypeAlias = Callable[[Input, Sequence[Effect], int], None]
"""Takes an input, the effects that the node wants, and the time."""


class StepHooks:
    """The hooks that see each step, by name; while there are any, the node traces events."""

    def __init__(self, node: Node, set_hook: Callable[[StepHook | None], None]) -> None:
        self._node = node
        self._set_hook = set_hook
        self._all: dict[str, StepHook] = {}
        self._was_traced = False

    def set(self, name: str, hook: StepHook | None) -> None:
        """Set a hook, or remove it."""
        had = bool(self._all)
        if hook is None:
            self._all.pop(name, None)
        else:
            self._all[name] = hook
        if self._all and not had:
            self._was_traced, self._node.is_traced = self._node.is_traced, True
        elif had and not self._all:
            self._node.is_traced = self._was_traced
        self._set_hook(self._each if self._all else None)

    @property
    def has_tracing(self) -> bool:
        """Whether the node traces events also while there is no hook."""
        return self._was_traced if self._all else self._node.is_traced

    def _each(self, item: Input, effects: Sequence[Effect], now: int) -> None:
        for hook in tuple(self._all.values()):
            hook(item, effects, now)


LOOK_US: Final = 20 * SECOND_US
"""Time that the recording goes on after a question."""
EVENTS_MAX: Final = 200
MATCHES_MAX: Final = 1_000
RECENT_BYTES: Final = 256 << 10
"""About how many bytes of events an answer has; the newest go into it first."""


class RecentEvents:
    """The most recent events of one broker, while anyone asks for them."""

    def __init__(self) -> None:
        self.on_change: Callable[[bool], None] = lambda is_looking: None
        self._until = 0
        self._number = 0
        self._events: deque[RecentEvent] = deque(maxlen=EVENTS_MAX)
        self._matches: deque[RecentMatch] = deque(maxlen=MATCHES_MAX)

    def on_step(self, item: Input, effects: Sequence[Effect], now: int) -> None:
        """Record a step of the node."""
        if now >= self._until:
            self._events.clear()
            self._matches.clear()
            self.on_change(False)
            return
        for effect in effects:
            if type(effect) is not Trace:
                continue
            if effect.step == "published":
                self._number += 1
                self._events.append(RecentEvent(self._number, now, effect.event, effect.content))
            elif effect.step in ("taken", "notified") and effect.names:
                self._number += 1
                is_told = effect.step == "notified" and not effect.detail
                self._matches.append(RecentMatch(self._number, now, effect.event, len(effect.names), is_told))

    def since(self, number: int, now: int) -> RecentReply:
        """Return what came after a number, and go on recording for a while."""
        is_new = now >= self._until
        self._until = now + LOOK_US
        if is_new:
            self.on_change(True)
        events: list[RecentEvent] = []
        size = 0
        for event in reversed(self._events):
            size += len(event.content)
            if event.number <= number or (events and size > RECENT_BYTES):
                break
            events.append(event)
        matches = tuple(match for match in self._matches if match.number > number)
        return RecentReply(self._number, tuple(reversed(events)), matches)


FOLLOWED_MAX: Final = 16
"""Number of events that are followed at a time."""
SEEN_MAX: Final = 2_000
"""Number of sightings that are remembered of one event."""
UNNAMED_MAX: Final = 4_000
"""Number of messages that name no event and are remembered while any event is followed."""
SECONDS_MAX: Final = 120.0
NAMES_MAX: Final = 200
"""Number of subscriptions that are named for one step."""
ANSWER_BYTES: Final = 512 << 10
SEEN_BYTES: Final = 80
"""About how many bytes one sighting has in an answer, without its fields of any length."""
THREADS_MAX: Final = 2_000
_WATERMARKS: Final = frozenset({"watermark", "watermarked", "flooded"})
"""Messages about streams rather than events."""
_ODD: Final = (ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError, WireError, MeetpointError)
"""Errors that a liar's message may cause here."""

_PACK: Final = msgspec.msgpack.Encoder().encode


class TracingError(Exception):
    """An event cannot be followed now."""


class _MessageSeen(NamedTuple):
    """A message that was sent or came, as far as tracing needs it."""

    is_sent: bool
    peer: bytes
    tag: str
    event: EventKey | None
    thread: bytes
    is_routed: bool
    data: bytes


class _FollowedEvent:
    """An event that is followed."""

    def __init__(self, id_: str, until: int) -> None:
        self.signs = IdMatcher(_PACK(id_))
        self.until = until
        self.seen: list[TraceStep] = []
        self.is_cut = False
        self.threads: set[bytes] = set()

    def record(self, seen: TraceStep) -> None:
        if len(self.seen) < SEEN_MAX:
            self.seen.append(seen)
        else:
            self.is_cut = True

    def names(self, said: _MessageSeen) -> bool:
        """Return whether a message is about this event by itself."""
        if not self.signs.is_in(said.data):
            return said.thread in self.threads
        if said.event is not None:
            self.signs.add_key(said.event)
        return True


class EventTracer:
    """The events that are followed at one broker."""

    def __init__(self, node: Node, codec: Codec) -> None:
        self._node = node
        self._codec = codec
        self._followed: dict[str, _FollowedEvent] = {}
        self._unnamed: deque[TraceStep] = deque(maxlen=UNNAMED_MAX)
        self._number = 0
        self.errors = 0
        """Number of messages that could not be read."""
        self.on_change: Callable[[bool], None] = lambda is_following: None
        """Called when following begins or ends."""

    def follow(self, id_: str, seconds: float, now: int) -> None:
        """Follow an event from now on, or for longer."""
        self._forget_old(now)
        until = now + int(min(max(seconds, 0.0), SECONDS_MAX) * SECOND_US)
        known = self._followed.get(id_)
        if known is not None:
            known.until = max(known.until, until)
            return
        if len(self._followed) >= FOLLOWED_MAX:
            raise TracingError(f"{FOLLOWED_MAX} events are followed here already; ask again in a while")
        if not self._followed:
            self.on_change(True)
        self._followed[id_] = _FollowedEvent(id_, until)

    def followed(self, id_: str, threads: Sequence[bytes], now: int) -> FollowedReply | None:
        """Return the sightings of an event and of threads; None where it is not followed any longer."""
        self._forget_old(now)
        known = self._followed.get(id_)
        if known is None:
            return None
        wanted = {*threads, *known.threads}
        found = {each.number: each for each in self._unnamed if each.thread in wanted}
        found.update((each.number, each) for each in known.seen)
        page: list[TraceStep] = []
        size = 0
        for number in sorted(found):
            each = found[number]
            size += SEEN_BYTES + len(each.thread) + len(each.detail) + sum(map(len, each.names))
            if size > ANSWER_BYTES:
                break
            page.append(each)
        return FollowedReply(known.signs.event, tuple(page), known.is_cut or len(page) < len(found))

    def _forget_old(self, now: int) -> None:
        for id_ in [id_ for id_, each in self._followed.items() if each.until <= now]:
            del self._followed[id_]
            if not self._followed:
                self._unnamed.clear()
                self.on_change(False)

    # -- a step of the node --------------------------------------------------------------------------------------------

    def on_step(self, item: Input, effects: Sequence[Effect], now: int) -> None:
        """Record a step of the node."""
        self._forget_old(now)
        came = self._received(item)
        sent = [self._sent(effect) for effect in effects if type(effect) is Send]
        named: set[int] = set()
        for followed in self._followed.values():
            self._record_step(followed, item, came, sent, effects, now, named)
        for said in (came, *sent):
            if said is not None and id(said) not in named and said.event is None and said.thread:
                self._unnamed.append(self._sighting(said, now))

    def _record_step(
        self,
        followed: _FollowedEvent,
        item: Input,
        came: _MessageSeen | None,
        sent: list[_MessageSeen | None],
        effects: Sequence[Effect],
        now: int,
        named: set[int],
    ) -> None:
        signs = followed.signs
        is_about = type(item) is ClientRequest and type(item.what) is Publish and signs.is_in(item.what.event)
        if came is not None and followed.names(came):
            is_about = True
            named.add(id(came))
            followed.record(self._sighting(came, now))
        following = iter(sent)
        for effect in effects:  # one step may be about several events, one after another
            if type(effect) is Trace:
                if effect.step == "published" and signs.is_in(effect.content):
                    signs.add_key(effect.event)
                is_about = effect.event == signs.event
                if is_about:
                    followed.record(self._sighting_of(effect, now))
            elif type(effect) is Answer and type(effect.outcome) is Published:
                is_about = effect.outcome.event == signs.event
            elif type(effect) is Send and (said := next(following)) is not None:
                is_other = said.event is not None and said.event != signs.event
                if followed.names(said) or (is_about and not is_other):
                    named.add(id(said))
                    if said.thread and len(followed.threads) < THREADS_MAX:
                        followed.threads.add(said.thread)
                    followed.record(self._sighting(said, now))

    def _sighting_of(self, effect: Trace, now: int) -> TraceStep:
        looked_at = -1
        if effect.step == "taken":
            home = self._node.home_manager.homes.get(effect.home)
            looked_at = -1 if home is None else len(home.filters)
        return TraceStep(
            self._next(), now, effect.step, names=effect.names[:NAMES_MAX], detail=effect.detail, looked_at=looked_at
        )  # fmt: skip

    def _sighting(self, said: _MessageSeen, now: int) -> TraceStep:
        detail = "routed" if said.is_routed else ""
        step = "sent" if said.is_sent else "received"
        return TraceStep(self._next(), now, step, said.peer, said.tag, said.thread, detail=detail)

    def _next(self) -> int:
        self._number += 1
        return self._number

    # -- messages ------------------------------------------------------------------------------------------------------

    def _received(self, item: Input) -> _MessageSeen | None:
        if type(item) is not Received:
            return None
        return self._read(item.message, item.source.id, self._node.me.id, is_sent=False)

    def _sent(self, effect: Send) -> _MessageSeen | None:
        return self._read(effect.message, self._node.me.id, effect.to.id, is_sent=True)

    def _read(self, message: Message, source: bytes, to: bytes, *, is_sent: bool) -> _MessageSeen | None:
        try:
            if PURPOSES.get(innermost(self._codec, message)[0]) != "events":
                return None
            tag, inner = innermost(self._codec, message, whole=True)
            if tag in _WATERMARKS:
                return None
            thread, is_routed = self._thread(message, source, to)
            event = getattr(inner, "event", None)
            data = self._codec.encode(message)
        except _ODD:
            self.errors += 1
            return None
        peer = to if is_sent else source
        return _MessageSeen(is_sent, peer, tag, event if type(event) is EventKey else None, thread, is_routed, data)

    def _thread(self, message: Any, source: bytes, to: bytes) -> tuple[bytes, bool]:
        """Return the thread that a question and its answer have in common, and whether the message is routed."""
        is_routed = False
        while tag_of(message).endswith(".ro"):
            message, is_routed = self._codec.decode(message.body), True
        if isinstance(message, KeyedRequest):
            return b"e%b/%d" % (message.origin.id, message.number), is_routed
        if isinstance(message, KeyedReply | NotOwner):
            return b"e%b/%d" % (to, message.number), is_routed
        if isinstance(message, Query):
            return b"q%b/%d" % (source, message.request), is_routed
        if isinstance(message, Reply):
            return b"q%b/%d" % (to, message.request), is_routed
        return b"", is_routed
