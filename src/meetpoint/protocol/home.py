"""A home: a broker's subscriptions, what it published, and what waits for its subscribers. The same for all schemes.

Everything here is in records (`records.py`), so that the home can restart, be copied, move:

| name | what |
| --- | --- |
| `subscription/NAME` | its filter; deleted ones stay for a day as deleted |
| `published/STREAM/NUMBER` | an event, until all homes that may want it have it (settled) |
| `last` | the stream and the last number given out in it |
| `queue/HOME/STREAM/NUMBER` | an event that matched and for which names, until the subscribers acknowledge it |
| `seen/HOME/STREAM` | which events of a stream have been taken; written with each acknowledgement |
| `dead/HOME/STREAM/NUMBER` | an event that its subscribers did not acknowledge in many tries |

Nothing is notified twice without a mark. A queue entry is safe before it is notified, and leaves the queue in the same
write that says it was seen. Found in the queue after a restart, it may have been notified: it goes out marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from meetpoint.errors import EventError, FilterError
from meetpoint.language.event_msgpack import from_msgpack
from meetpoint.language.filters import Filter, parse_filter
from meetpoint.protocol.effects import Published, Refused, Stored
from meetpoint.protocol.records import EventKey, HomeId
from meetpoint.protocol.safekeeping import Keeper
from meetpoint.protocol.seen import Seen, SeenRecord
from meetpoint.protocol.services import Services
from meetpoint.protocol.settings import NodeSettings

__all__ = ["Home", "Subscription", "attributes_of"]

SUBSCRIPTION: Final = "subscription/"
PUBLISHED: Final = "published/"
LAST: Final = "last"
QUEUE: Final = "queue/"
SEEN: Final = "seen/"
DEAD: Final = "dead/"
NAME_MAX: Final = 200
"""The longest name of a subscription, in characters."""
EVENT_BYTES_MAX: Final = 256 << 10
"""The largest event, in bytes: a message carries it, and what else is said with it."""


class Subscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One subscription as it is kept: its number at this home, which never changes, and its filter."""

    number: int
    filter: str


class _Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event in the queue, and the names it is for."""

    names: tuple[str, ...]
    content: bytes


class _Entry:
    """The same in memory: what is still to be acknowledged."""

    __slots__ = ("content", "names", "safe", "timer", "tries")

    def __init__(self, names: Iterable[str], content: bytes, *, safe: bool) -> None:
        self.names = dict.fromkeys(names)
        self.content = content
        self.safe = safe
        self.tries = 0
        self.timer: int | None = None


class Home:
    """One home that this node hosts."""

    def __init__(self, keeper: Keeper, services: Services, settings: NodeSettings) -> None:
        self.id: HomeId = keeper.home
        self.keeper = keeper
        self._services = services
        self._settings = settings
        self.filters: dict[str, Filter] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._to_bury: dict[str, None] = {}
        self._numbers = 0
        self.outbox: dict[EventKey, bytes] = {}
        self._stream, self._last = keeper.epoch, 0
        self._queue: dict[EventKey, _Entry] = {}
        self._seen: dict[tuple[HomeId, int], Seen] = {}
        self._recover()

    def _recover(self) -> None:
        for name, record in sorted(self.keeper.records.items()):
            table, _, rest = name.partition("/")
            value = record.value
            if table == "subscription":
                if value is not None:
                    self._set(rest, msgspec.msgpack.decode(value, type=Subscription))
            elif value is None:
                continue
            elif table == "published":
                stream, number = rest.split("/")
                self.outbox[EventKey(self.id, int(stream), int(number))] = value
            elif table == "last":
                self._stream, self._last = msgspec.msgpack.decode(value, type=tuple[int, int])
            elif table == "queue":
                waiting = msgspec.msgpack.decode(value, type=_Waiting)
                self._queue[_event_key(rest)] = _Entry(waiting.names, waiting.content, safe=True)
            elif table == "seen":
                home, stream = rest.split("/")
                kept = msgspec.msgpack.decode(value, type=SeenRecord)
                self._seen[HomeId(bytes.fromhex(home)), int(stream)] = Seen(kept.floor, kept.above)
        for event in self._queue:
            self._seen_of(event).add(event.number)

    def start(self) -> None:
        """The home is hosted here and safe: what was left in the queue goes out again, marked."""
        for event in sorted(self._queue):
            # A copy may be older than the end of a subscription, and bring back what waited for it.
            ended = tuple(name for name in self._queue[event].names if name not in self._subscriptions)
            if ended:
                self._acknowledged(event, ended)
            self._notify(event, redelivered=True)
        for name, record in self.keeper.records.items():
            if record.value is None and name.startswith(SUBSCRIPTION):
                self._bury_later(name.removeprefix(SUBSCRIPTION))

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, text: str, placed: Callable[[Callable[[], None]], None], request: int) -> None:
        """Hold a filter under a new name. Asked again with the same filter, it is the same subscription."""
        if not 0 < len(name) <= NAME_MAX:
            self._refuse(request, f"the name has {len(name)} characters; give it 1 to {NAME_MAX}")
        elif (known := self._subscriptions.get(name)) is not None and known.filter != text:
            self._refuse(
                request, f"there is a subscription {name!r} with another filter; update it, or take a new name"
            )
        elif (filter_ := self._parse(text, request)) is not None:
            if known is None:
                self._numbers += 1
            self._store(name, Subscription(self._numbers if known is None else known.number, text), filter_)
            self._write_subscription(name, placed, request)

    def update(self, name: str, text: str, placed: Callable[[Callable[[], None]], None], request: int) -> None:
        """Replace the filter of a name."""
        known = self._subscriptions.get(name)
        if known is None:
            self._refuse_unknown(request, name)
        elif (filter_ := self._parse(text, request)) is not None:
            self._store(name, Subscription(known.number, text), filter_)
            self._write_subscription(name, placed, request)

    def unsubscribe(self, name: str, placed: Callable[[Callable[[], None]], None], request: int) -> None:
        """End a subscription; one that has ended already is no mistake."""
        if not self.has(name):
            self._refuse_unknown(request, name)
            return
        if self._subscriptions.pop(name, None) is not None:
            del self.filters[name]
        for event in [event for event, entry in self._queue.items() if name in entry.names]:
            self._acknowledged(event, (name,))
        self._write_subscription(name, placed, request)
        self._bury_later(name)

    def _bury_later(self, name: str) -> None:
        if name in self._to_bury:
            return
        self._to_bury[name] = None

        def bury() -> None:
            del self._to_bury[name]
            if name not in self._subscriptions and not self.keeper.closed:
                self.keeper.write((), (SUBSCRIPTION + name,))

        self._services.after(self._settings.tombstone_us, bury)

    def _parse(self, text: str, request: int) -> Filter | None:
        try:
            return parse_filter(text)
        except FilterError as error:
            self._refuse(request, str(error))
            return None

    def _refuse(self, request: int, reason: str) -> None:
        self._services.answer(request, Refused(reason, retry=False))

    def _refuse_unknown(self, request: int, name: str) -> None:
        reason = f"there is no subscription {name!r} here; subscribe first, or ask the broker that notifies it"
        self._services.answer(request, Refused(reason, retry=True))  # it may have moved here a moment later

    def _set(self, name: str, subscription: Subscription) -> None:
        self._store(name, subscription, parse_filter(subscription.filter))

    def _store(self, name: str, subscription: Subscription, filter_: Filter) -> None:
        self._subscriptions[name] = subscription
        self.filters[name] = filter_
        self._numbers = max(self._numbers, subscription.number)

    def _write_subscription(self, name: str, placed: Callable[[Callable[[], None]], None], request: int) -> None:
        def answer() -> None:
            self._services.answer(request, Stored())

        kept = self._subscriptions.get(name)
        value = None if kept is None else msgspec.msgpack.encode(kept)
        self.keeper.write([(SUBSCRIPTION + name, value)], (), lambda: placed(answer))

    # -- what is published here ----------------------------------------------------------------------------------------

    def publish(self, content: bytes, carry: Callable[[EventKey, bytes], None], request: int) -> None:
        """Keep an event; once that is safe, answer, and have it carried to all homes that may want it."""
        if len(content) > EVENT_BYTES_MAX:
            self._refuse(request, f"the event has {len(content)} bytes; at most {EVENT_BYTES_MAX} are carried")
            return
        try:
            from_msgpack(content)
        except EventError as error:
            self._refuse(request, str(error))
            return
        self._last += 1
        event = EventKey(self.id, self._stream, self._last)
        self.outbox[event] = content

        def safe() -> None:
            self._services.answer(request, Published(event))
            carry(event, content)

        last = msgspec.msgpack.encode((self._stream, self._last))
        self.keeper.write([(_published(event), content), (LAST, last)], (), safe)

    def settled(self, event: EventKey) -> None:
        """All homes that may want an event have it."""
        if self.outbox.pop(event, None) is not None:
            self.keeper.write((), (_published(event),))

    # -- what subscribers here get -------------------------------------------------------------------------------------

    def take(self, event: EventKey, content: bytes, then: Callable[[], None]) -> None:
        """Take an event once: queue it for the subscriptions it matches; `then` when it need not be sent again."""
        if self.has_taken(event):
            entry = self._queue.get(event)
            if entry is None or entry.safe:
                then()
            return
        try:
            names = self._matches(content)
        except EventError:
            self._services.observe("event_malformed")  # of a peer that erred: its publisher would have been told
            return
        self._seen_of(event).add(event.number)
        if not names:
            then()
            return
        entry = self._queue[event] = _Entry(names, content, safe=False)

        def safe() -> None:
            entry.safe = True
            self._notify(event, redelivered=False)
            then()

        waiting = msgspec.msgpack.encode(_Waiting(tuple(names), content))
        self.keeper.write([(_queue(event), waiting)], (), safe)

    def has_taken(self, event: EventKey) -> bool:
        """Whether the event has come here before."""
        seen = self._seen.get((event.home, event.stream))
        return seen is not None and event.number in seen

    def skip_to(self, event: EventKey, floor: int) -> None:
        """All events of the stream up to a number are settled: none of them will come."""
        self._seen_of(event).raise_to(floor)

    def _matches(self, content: bytes) -> list[str]:
        if not self.filters:
            return []
        attributes = attributes_of(content)
        return [name for name, filter_ in self.filters.items() if filter_.accepts(attributes)]

    def _notify(self, event: EventKey, *, redelivered: bool) -> None:
        entry = self._queue.get(event)
        if entry is None or self.keeper.closed:
            return
        if entry.tries >= self._settings.notify_tries_max:
            self._give_up(event, entry)
            return
        entry.tries += 1
        self._services.notify(event, tuple(entry.names), entry.content, redelivered)
        wait = self._settings.acknowledge_us
        entry.timer = self._services.after(wait, lambda: self._notify(event, redelivered=True))

    def acknowledge(self, event: EventKey, names: tuple[str, ...], request: int) -> None:
        """The subscribers of these names have the event. Should that be forgotten, they get it again, marked."""
        self._acknowledged(event, names)
        self._services.answer(request, Stored())

    def _acknowledged(self, event: EventKey, names: tuple[str, ...]) -> None:
        entry = self._queue.get(event)
        if entry is None:
            return
        for name in names:
            entry.names.pop(name, None)
        if entry.names:
            waiting = _Waiting(tuple(entry.names), entry.content)
            self.keeper.write([(_queue(event), msgspec.msgpack.encode(waiting))])
            return
        self._drop(event, entry)
        self.keeper.write([self._seen_record(event)], (_queue(event),))

    def _give_up(self, event: EventKey, entry: _Entry) -> None:
        self._services.observe("dead_letter")
        self._drop(event, entry)
        waiting = msgspec.msgpack.encode(_Waiting(tuple(entry.names), entry.content))
        self.keeper.write([self._seen_record(event), (DEAD + _path(event), waiting)], (_queue(event),))

    def _drop(self, event: EventKey, entry: _Entry) -> None:
        del self._queue[event]
        if entry.timer is not None:
            self._services.cancel(entry.timer)

    def _seen_record(self, event: EventKey) -> tuple[str, bytes]:
        record = self._seen_of(event).record()
        return f"{SEEN}{event.home.hex()}/{event.stream}", msgspec.msgpack.encode(record)

    def _seen_of(self, event: EventKey) -> Seen:
        seen = self._seen.get((event.home, event.stream))
        if seen is None:
            seen = self._seen[event.home, event.stream] = Seen()
        return seen

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Write nothing more, for now: the home is about to move. `start` goes on."""
        for entry in self._queue.values():
            if entry.timer is not None:
                self._services.cancel(entry.timer)
                entry.timer = None

    def subscription(self, name: str) -> Subscription | None:
        """The subscription of a name."""
        return self._subscriptions.get(name)

    def has(self, name: str) -> bool:
        """Whether a subscription of this name is, or was, here."""
        return SUBSCRIPTION + name in self.keeper.records

    def waits_for(self, event: EventKey, names: tuple[str, ...]) -> bool:
        """Whether the event waits to be acknowledged for one of these names."""
        entry = self._queue.get(event)
        return entry is not None and any(name in entry.names for name in names)

    @property
    def is_empty(self) -> bool:
        """Whether nobody subscribes here and nothing is on its way."""
        return not (self._subscriptions or self.outbox or self._queue or self.keeper.unsafe)

    @property
    def queued(self) -> int:
        """How many events wait for subscribers."""
        return len(self._queue)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self.filters.keys() == self._subscriptions.keys()
        assert all(event.home == self.id for event in self.outbox)
        assert all(self.has_taken(event) for event in self._queue)


@lru_cache(maxsize=64)
def attributes_of(content: bytes) -> Mapping[str, object]:
    """An event is read once for all homes at a node, and for all times it comes."""
    return from_msgpack(content).attributes


def _path(event: EventKey) -> str:
    return f"{event.home.hex()}/{event.stream}/{event.number}"


def _event_key(path: str) -> EventKey:
    home, stream, number = path.split("/")
    return EventKey(HomeId(bytes.fromhex(home)), int(stream), int(number))


def _queue(event: EventKey) -> str:
    return QUEUE + _path(event)


def _published(event: EventKey) -> str:
    return f"{PUBLISHED}{event.stream}/{event.number}"
