"""A home: a broker's subscriptions, what it published, and what waits for its subscribers. The same for all schemes.

Everything here is in records (`records.py`), so that the home can restart, be copied, move:

| name | what |
| --- | --- |
| `subscription/NAME` | its filter and terms; deleted ones stay for a day as deleted |
| `published/STREAM/NUMBER` | an event, until all homes that may want it have it (settled) |
| `last` | the stream and the last number given out in it |
| `queue/HOME/STREAM/NUMBER` | an event that matched and for which names, until the subscribers acknowledge it |
| `seen/HOME/STREAM` | which events of a stream have been taken; written when some have left the queue |
| `recent/NUMBER` | ids of events that left the queue, and for which names, for two minutes |
| `dead/HOME/STREAM/NUMBER` | an event that subscribers did not take, and why |

Nothing is notified twice without a mark. A queue entry is safe before it is notified, and leaves the queue in the same
write that says it was seen. Found in the queue after a restart, it may have been notified: it goes out marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import EVENT_BYTES_MAX, SECOND_US
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import SubscriptionOptions, Update
from meetpoint.errors import EventError, FilterError
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.schema.schema import Schema
from meetpoint.node.cluster.replication import Replicator
from meetpoint.node.home.archive_backlog import ArchiveBacklog
from meetpoint.node.home.delivery import Deliveries
from meetpoint.node.home.outbox import Outbox
from meetpoint.node.home.producer_sequences import PROGRESS, ProducerSequences, is_of_batches
from meetpoint.node.home.publisher_order import Watermarks
from meetpoint.node.home.subscription_table import Subscription, SubscriptionInfo, SubscriptionTable, event_of
from meetpoint.node.runtime.debounce import FLUSH_US, Debouncer
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["Home", "Placed"]

SUBSCRIPTION: Final = "subscription/"
PUBLISHED: Final = "published/"
LAST: Final = "last"
NAME_MAX: Final = 512
"""The longest name of a subscription, in characters: a client's own, behind whose it is (`net.tenancy`)."""
BRIEF_TOMBSTONE_US: Final = 60 * SECOND_US
"""How long the end of a subscription is remembered that would end by itself, were it to come back."""

Placed: TypeAlias = Callable[[str, Callable[[], None]], None]
"""Places what a subscription of a name needs, or takes it away, and calls back when that is done."""


class Home:
    """One home that this node hosts."""

    def __init__(
        self,
        keeper: Replicator,
        services: Runtime,
        settings: NodeSettings,
        watermarks: Watermarks,
        schema: Callable[[], Schema | None],
    ) -> None:
        self.id: HomeId = keeper.home
        self.keeper = keeper
        self._services = services
        self._settings = settings
        self._schema = schema
        self.standing = SubscriptionTable(settings.index_from)
        self.delivering = Deliveries(keeper, services, settings, watermarks)
        self.outbox = Outbox(self.id)
        self.ledger = ArchiveBacklog(services, settings.archives)
        self.place: Placed = lambda name, then: then()
        """How a subscription that is new, changed or gone comes to where events meet it."""
        self.when_placed: Placed = lambda name, then: then()
        """Calls back when events meet it there."""
        self._unsafe: Counter[str] = Counter()  # how many writes of a subscription are not safe yet
        self._to_bury: dict[str, None] = {}
        self._ends: dict[str, int] = {}  # timers of subscriptions that end by themselves
        self._strays: list[str] = []  # subscriptions whose subscribers are gone with a former life of the home
        self._settled: list[str] = []  # records that need not be kept any more
        self._flushing = Debouncer(services, FLUSH_US, self._flush_settled)
        self._numbers = 0
        self._stream, self._last = max(keeper.epoch, settings.first_stream), 0
        self._recover()

    def _recover(self) -> None:
        outbox = {}
        for name, record in sorted(self.keeper.records.items()):
            table, _, rest = name.partition("/")
            value = record.value
            if value is None:
                continue
            if table == "subscription":
                subscription = msgspec.msgpack.decode(value, type=Subscription)
                self._store(rest, subscription, parse_filter(subscription.filter))
                if not subscription.terms.durable:
                    self._strays.append(rest)
            elif table == "published":
                stream, number = rest.split("/")
                outbox[EventKey(self.id, int(stream), int(number))] = value
            elif table == "last":
                self._stream, self._last = msgspec.msgpack.decode(value, type=tuple[int, int])
        self.progress = ProducerSequences(
            record for name, record in self.keeper.records.items() if name.startswith(PROGRESS)
        )  # fmt: skip
        self.outbox.recover(outbox)
        self.delivering.recover((name, each.terms) for name, each in self.standing.subscriptions.items())

    def start(self) -> None:
        """The home is hosted here and safe: what was left in the queue goes out again, marked."""
        self.delivering.start()
        self.ledger.resume({event: self.outbox[event] for event in self.outbox})
        self._flush_settled()
        for name, record in self.keeper.records.items():
            if record.value is None and name.startswith(SUBSCRIPTION):
                self._bury_later(name.removeprefix(SUBSCRIPTION), self._settings.tombstone_us)
        for name in self.standing.subscriptions:
            self._end_later(name)

    def end_strays(self) -> None:
        """What came at most once to someone who was connected to a former life of this home has ended with it."""
        strays, self._strays = self._strays, []
        for name in strays:
            self._end(name)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, text: str, terms: SubscriptionOptions, request: int) -> None:
        """Hold a filter under a new name. Asked again with the same filter, it is the same subscription."""
        known = self.standing.subscriptions.get(name)
        if not 0 < len(name) <= NAME_MAX:
            self._refuse(request, f"the name has {len(name)} characters; give it 1 to {NAME_MAX}")
        elif known is not None and known.filter != text:
            self._refuse(
                request, f"there is a subscription {name!r} with another filter; update it, or take a new name"
            )
        elif known is not None and known.terms.durable is not terms.durable:
            kind = "durable" if known.terms.durable else "not durable"
            self._refuse(request, f"there is a subscription {name!r} that is {kind}; take a new name")
        elif (filter_ := self._parse(text, request)) is not None:
            now = self._services.now
            if known is None:
                self._numbers += 1
            number, made = (self._numbers, now) if known is None else (known.number, known.made_us)
            until = None if terms.lifetime_us is None else now + terms.lifetime_us
            self._store(name, Subscription(number, text, terms, made, until), filter_)
            self._end_later(name)
            self._write_subscription(name, request, place=True)

    def update(self, what: Update, request: int) -> None:
        """Replace the filter of a name, or what else is said."""
        known = self.standing.subscriptions.get(what.name)
        if known is None:
            self._refuse_unknown(request, what.name)
            return
        filter_ = self.standing.filters[what.name] if what.filter is None else self._parse(what.filter, request)
        if filter_ is not None:
            self._store(what.name, known.updated(what, self._services.now), filter_)
            self._end_later(what.name)
            self._write_subscription(what.name, request, place=what.filter is not None)

    def unsubscribe(self, name: str, request: int) -> None:
        """End a subscription; one that has ended already is no mistake."""
        if self.has(name):
            self._end(name, request)
        else:
            self._refuse_unknown(request, name)

    def _end(self, name: str, request: int | None = None) -> None:
        known = self.standing.remove(name)
        if name in self._ends:
            self._services.cancel(self._ends.pop(name))
        self.delivering.close(name)
        self._write_subscription(name, request, place=True)
        is_brief = known is not None and not known.terms.durable
        self._bury_later(name, BRIEF_TOMBSTONE_US if is_brief else self._settings.tombstone_us)

    def _end_later(self, name: str) -> None:
        """See that a subscription ends when its lifetime is over."""
        if name in self._ends:
            self._services.cancel(self._ends.pop(name))
        until = self.standing.subscriptions[name].until_us
        if until is None:
            return

        def end() -> None:
            del self._ends[name]
            self._services.ended(name, "its lifetime is over")
            self._end(name)

        self._ends[name] = self._services.after(max(0, until - self._services.now), end)

    def attend(self, name: str, window: int, request: int) -> None:
        """Someone takes notifications of a name. They are told so when it is in force, so that no event can miss it:
        who asked for it may have lost the connection before the answer, and come back before all was done.
        """
        if name not in self.standing:
            self._refuse_unknown(request, name)
            return
        self.delivering.attend(name, window)

        def in_force() -> None:
            self.when_placed(name, lambda: self._services.answer(request, Stored()))

        if name in self._unsafe:
            self.keeper.write((), (), in_force)
        else:
            in_force()

    def leave(self, name: str) -> None:
        """Nobody does any more: what wants everything waits, what wants it at most once has ended."""
        known = self.standing.subscriptions.get(name)
        if known is not None and not known.terms.durable:
            self._end(name)
        else:
            self.delivering.leave(name)

    def _bury_later(self, name: str, after_us: int) -> None:
        if name in self._to_bury:
            return
        self._to_bury[name] = None

        def bury() -> None:
            del self._to_bury[name]
            if name not in self.standing and not self.keeper.closed:
                self.keeper.write((), (SUBSCRIPTION + name,))

        self._services.after(min(after_us, self._settings.tombstone_us), bury)

    def _parse(self, text: str, request: int) -> Filter | None:
        try:
            return parse_filter(text, self._schema())
        except FilterError as error:
            self._refuse(request, str(error))
            return None

    def _refuse(self, request: int, reason: str) -> None:
        self._services.answer(request, Refused(reason, retry=False))

    def _refuse_unknown(self, request: int, name: str) -> None:
        reason = f"there is no subscription {name!r} here; subscribe first, or ask the broker that notifies it"
        self._services.answer(request, Refused(reason, retry=True))  # it may have moved here a moment later

    def _store(self, name: str, subscription: Subscription, filter_: Filter) -> None:
        self.standing.put(name, subscription, filter_)
        self.delivering.open(name, subscription.terms)
        self._numbers = max(self._numbers, subscription.number)

    def _write_subscription(self, name: str, request: int | None, *, place: bool) -> None:
        def answer() -> None:
            if request is not None:
                self._services.answer(request, Stored())

        def safe() -> None:
            self._unsafe[name] -= 1
            if not self._unsafe[name]:
                del self._unsafe[name]
            if place:
                self.place(name, answer)
            else:
                answer()

        kept = self.standing.subscriptions.get(name)
        value = None if kept is None else msgspec.msgpack.encode(kept)
        self._unsafe[name] += 1
        self.keeper.write([(SUBSCRIPTION + name, value)], (), safe)

    # -- what is published here ----------------------------------------------------------------------------------------

    def publish(self, content: bytes, carry: Callable[[EventKey, bytes], None], request: int) -> None:
        """Keep an event; once that is safe, answer, and have it carried to all homes that may want it.

        One of a batch that was accepted here before is answered, when that one is safe, and nothing more.
        """
        if len(content) > EVENT_BYTES_MAX:
            self._refuse(request, f"the event has {len(content)} bytes; at most {EVENT_BYTES_MAX} are carried")
            return
        try:
            read = event_of(content)
        except EventError as error:
            self._refuse(request, str(error))
            return
        schema = self._schema()
        if schema is not None and (problems := schema.problems(read.attributes)):
            self._refuse(request, f"event: {'; '.join(problems)}: change the event, or declare what it has")
            return
        is_batch = is_of_batches(read.publisher)
        if is_batch and read.sequence <= self.progress.get(read.publisher):
            self.keeper.write((), (), partial(self._answer_again, read.publisher, read.sequence, request))
            return
        self._last += 1
        event = EventKey(self.id, self._stream, self._last)
        self.outbox.put(event, content)
        self.ledger.begin(event)
        if self._services.tracing:
            self._services.trace(event, "published", self.id, content=content)

        def safe() -> None:
            self._services.answer(request, Published(event))
            carry(event, content)

        last = msgspec.msgpack.encode((self._stream, self._last))
        progress, forgotten = self.progress.put(read.publisher, read.sequence) if is_batch else ([], [])
        self.keeper.write([(_published(event), content), (LAST, last), *progress], forgotten, safe)

    def _answer_again(self, publisher: str, sequence: int, request: int) -> None:
        """What was accepted before is safe now: so is what a publisher of batches sent twice, if it was not undone."""
        if sequence <= self.progress.get(publisher):
            self._services.answer(request, Published(EventKey(self.id, self._stream, 0)))
        else:
            self._services.answer(request, Refused("it was refused before; publish it again", retry=True))

    def settled(self, event: EventKey) -> None:
        """All homes that may want an event have it."""
        if self.outbox.settle(event):
            self._services.trace(event, "settled", self.id)
            if not self.ledger.holds(event):
                self._erase(event)

    def withdraw(self, event: EventKey) -> None:
        """An event that its publisher took back: nobody shall have it."""
        read = event_of(self.outbox[event])
        if is_of_batches(read.publisher) and read.sequence <= self.progress.get(read.publisher):
            self.keeper.write(*self.progress.put(read.publisher, read.sequence - 1))
        self.ledger.withdraw(event)
        self.settled(event)

    def archived(self, upto: EventKey) -> None:
        """What was accepted is in the archive, up to an event."""
        for event in self.ledger.archive(upto):
            if event not in self.outbox:
                self._erase(event)

    def _erase(self, event: EventKey) -> None:
        self._settled.append(_published(event))
        self._flushing.soon()

    def flush(self) -> None:
        """Write what nobody waits for."""
        self.delivering.flush()
        self._flush_settled()

    def _flush_settled(self) -> None:
        settled, self._settled = self._settled, []
        if settled:
            self.keeper.write((), settled)

    # -- what subscribers here get -------------------------------------------------------------------------------------

    def take(self, event: EventKey, content: bytes, then: Callable[[], None]) -> None:
        """Take an event once: queue it for the subscriptions it matches; `then` when it need not be sent again."""
        if self.delivering.has_taken(event):
            self.delivering.take_again(event, then)
            return
        if not self.standing.subscriptions:
            self.delivering.take(event, content, {}, None, then)
            return
        try:
            read = event_of(content)
            names = self.standing.match(read.attributes)
        except EventError:
            self._services.observe("event_malformed")  # of a peer that erred: its publisher would have been told
            return
        subscriptions = self.standing.subscriptions
        matched = {name: subscriptions[name].terms for name in names}
        self.delivering.take(event, content, matched, read, then)

    def skip_to(self, event: EventKey, floor: int) -> None:
        """All events of the stream up to a number are settled: none of them will come."""
        self.delivering.skip_to(event, floor)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Write nothing more, for now: the home is about to move. `start` goes on."""
        self.delivering.pause()
        self._flushing.stop()
        for timer in self._ends.values():
            self._services.cancel(timer)
        self._ends.clear()

    @property
    def filters(self) -> dict[str, Filter]:
        """The filters by the names of their subscriptions."""
        return self.standing.filters

    def subscription(self, name: str) -> Subscription | None:
        """The subscription of a name."""
        return self.standing.subscriptions.get(name)

    def held_subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, for whoever asks."""
        lines = self.delivering.lines
        held = []
        for name, each in self.standing.subscriptions.items():
            line = lines.get(name)
            queued, is_present = (0, True) if line is None else (len(line), line.present)
            held.append(SubscriptionInfo(name, each.filter, each.terms, queued, is_present, each.made_us))
        return held

    def has(self, name: str) -> bool:
        """Whether a subscription of this name is, or was, here."""
        return SUBSCRIPTION + name in self.keeper.records

    @property
    def position(self) -> tuple[int, int, int]:
        """The stream of what is published here, its highest number, and up to which one all accepted is archived."""
        first = self.ledger.first_open()
        archived = self._last if first is None else first.number - 1 if first.stream == self._stream else 0
        return self._stream, self._last, archived

    @property
    def is_empty(self) -> bool:
        """Whether nobody subscribes here, nothing is on its way, and no publisher of batches must find it again."""
        at_rest = self.delivering.is_at_rest and not self.keeper.unsafe and self.ledger.first_open() is None
        return at_rest and not (self.standing.subscriptions or len(self.outbox) or len(self.progress))

    @property
    def queued(self) -> int:
        """How many events wait for subscribers."""
        return self.delivering.queued

    def check(self) -> None:
        """Assert what must hold at all times."""
        self.standing.check()
        self.outbox.check()
        self.ledger.check()
        self.delivering.check()
        durable = {name for name, each in self.standing.subscriptions.items() if each.terms.durable}
        assert durable == self.delivering.lines.keys()


def _published(event: EventKey) -> str:
    return f"{PUBLISHED}{event.stream}/{event.number}"
