"""A home: a broker's subscriptions, what it published, and what waits for its subscribers. The same for all schemes.

Everything here is in records (`records.py`), so that the home can restart, be copied, move:

| name | content |
| --- | --- |
| `subscription/NAME` | its filter and options; deleted ones stay for a day as deleted |
| `published/STREAM/NUMBER` | an event, until all homes that may want it have it (fully acknowledged) |
| `last` | the stream and the last number given out in it |
| `queue/HOME/STREAM/NUMBER` | an event that matched and for which names, until the subscribers acknowledge it |
| `seen/HOME/STREAM` | which events of a stream have been taken; written when some have left the queue |
| `recent/NUMBER` | ids of events that left the queue, and for which names, for two minutes |
| `dead/HOME/STREAM/NUMBER` | an event that subscribers did not take, and why |

Nothing is notified twice without a mark. A queue entry is safe before it is notified, and leaves the queue in the same
write that says it was seen. Found in the queue after a restart, it may have been notified: it goes out marked.

Changes of subscriptions are flows. `publish` and `take`, which every event passes, go on by callbacks.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import EVENT_BYTES_MAX, SECOND_US
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import SubscriptionOptions, Update
from meetpoint.errors import EventError, FilterError
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.cluster.replication import Replicator
from meetpoint.node.home.dedup import PROGRESS, ProducerSequences, is_of_batches
from meetpoint.node.home.delivery import Deliveries
from meetpoint.node.home.outbox import ArchiveBacklog, Outbox
from meetpoint.node.home.publisher_order import Watermarks
from meetpoint.node.home.subscription_table import Subscription, SubscriptionInfo, SubscriptionTable, event_of
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.runtime.timers import FLUSH_US, Debouncer
from meetpoint.node.settings import NodeSettings

__all__ = ["Home", "Placer"]

SUBSCRIPTION: Final = "subscription/"
PUBLISHED: Final = "published/"
LAST: Final = "last"
NAME_MAX: Final = 512
"""The longest name of a subscription, in characters: a client's own, behind its tenant's."""
BRIEF_TOMBSTONE_US: Final = 60 * SECOND_US
"""How long the end of a subscription is remembered that would end by itself, were it to come back."""


class Placer(Protocol):
    """Places the subscriptions of homes where events meet them."""

    def place(self, home: HomeId, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when every event published later meets it."""

    def when_placed(self, home: HomeId, name: str) -> Signal[None]:
        """Return a signal that is set when every event published later meets a subscription."""


class Home:
    """A home that this node hosts."""

    def __init__(
        self,
        replicator: Replicator,
        runtime: Runtime,
        settings: NodeSettings,
        watermarks: Watermarks,
        directory: Directory,
        placer: Placer,
    ) -> None:
        self.id: HomeId = replicator.home
        self.replicator = replicator
        self._runtime = runtime
        self._settings = settings
        self._schema_gossip = directory.schema_gossip
        self._placer = placer
        self.table = SubscriptionTable(settings.index_from)
        self.deliveries = Deliveries(replicator, runtime, settings, watermarks)
        self.outbox = Outbox(self.id)
        self.archive_backlog = ArchiveBacklog(runtime, settings.archives)
        self._unsafe: Counter[str] = Counter()  # how many writes of a subscription are not safe yet
        self._to_bury: dict[str, None] = {}
        self._ends: dict[str, int] = {}  # timers of subscriptions that end by themselves
        self._strays: list[str] = []  # subscriptions whose subscribers are gone with a former life of the home
        self._erasable: list[str] = []  # records that need not be kept any more
        self._flushing = Debouncer(runtime, FLUSH_US, self._flush_erasable)
        self._numbers = 0
        self._stream, self._last = max(replicator.epoch, settings.first_stream), 0
        self._recover()

    def _recover(self) -> None:
        outbox = {}
        for name, record in sorted(self.replicator.records.items()):
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
        self.sequences = ProducerSequences(
            record for name, record in self.replicator.records.items() if name.startswith(PROGRESS)
        )  # fmt: skip
        self.outbox.recover(outbox)
        self.deliveries.recover((name, each.terms) for name, each in self.table.subscriptions.items())

    def start(self) -> None:
        """Serve: the home is hosted here and safe. What was left in the queue goes out again, marked."""
        self.deliveries.start()
        self.archive_backlog.resume({event: self.outbox[event] for event in self.outbox})
        self._flush_erasable()
        for name, record in self.replicator.records.items():
            if record.value is None and name.startswith(SUBSCRIPTION):
                self._bury_later(name.removeprefix(SUBSCRIPTION), self._settings.tombstone_us)
        for name in self.table.subscriptions:
            self._end_later(name)

    def end_strays(self) -> None:
        """End subscriptions that are not durable, whose subscribers were connected to a former life of this home."""
        strays, self._strays = self._strays, []
        for name in strays:
            self._end(name)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, text: str, terms: SubscriptionOptions, request: int) -> None:
        """Hold a filter under a new name; asked again with the same filter, it is the same subscription."""
        known = self.table.subscriptions.get(name)
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
            now = self._runtime.now
            if known is None:
                self._numbers += 1
            number, made = (self._numbers, now) if known is None else (known.number, known.made_us)
            until = None if terms.lifetime_us is None else now + terms.lifetime_us
            self._store(name, Subscription(number, text, terms, made, until), filter_)
            self._end_later(name)
            self._write_subscription(name, request, place=True)

    def update(self, what: Update, request: int) -> None:
        """Replace the filter of a subscription, or its options."""
        known = self.table.subscriptions.get(what.name)
        if known is None:
            self._refuse_unknown(request, what.name)
            return
        filter_ = self.table.filters[what.name] if what.filter is None else self._parse(what.filter, request)
        if filter_ is not None:
            self._store(what.name, known.updated(what, self._runtime.now), filter_)
            self._end_later(what.name)
            self._write_subscription(what.name, request, place=what.filter is not None)

    def unsubscribe(self, name: str, request: int) -> None:
        """End a subscription; one that has ended already is no mistake."""
        if self.has(name):
            self._end(name, request)
        else:
            self._refuse_unknown(request, name)

    def _end(self, name: str, request: int | None = None) -> None:
        known = self.table.remove(name)
        if name in self._ends:
            self._runtime.cancel(self._ends.pop(name))
        self.deliveries.close(name)
        self._write_subscription(name, request, place=True)
        is_brief = known is not None and not known.terms.durable
        self._bury_later(name, BRIEF_TOMBSTONE_US if is_brief else self._settings.tombstone_us)

    def _end_later(self, name: str) -> None:
        """End a subscription when its lifetime is over."""
        if name in self._ends:
            self._runtime.cancel(self._ends.pop(name))
        until = self.table.subscriptions[name].until_us
        if until is None:
            return

        def end() -> None:
            del self._ends[name]
            self._runtime.ended(name, "its lifetime is over")
            self._end(name)

        self._ends[name] = self._runtime.after(max(0, until - self._runtime.now), end)

    def attend(self, name: str, window: int, request: int) -> None:
        """Notify a subscriber of a name from now on, and answer when its subscription is in force.

        So no event can miss it: the subscriber may have lost the connection before the answer to its subscription, and
        come back before all was done.
        """
        if name not in self.table:
            self._refuse_unknown(request, name)
            return
        self.deliveries.attend(name, window)
        self._runtime.start("attend", self._answer_in_force(name, request), self.id)

    async def _answer_in_force(self, name: str, request: int) -> None:
        if name in self._unsafe:
            await self.replicator.commit()
        await self._placer.when_placed(self.id, name)
        self._runtime.answer(request, Stored())

    def leave(self, name: str) -> None:
        """Notify nobody of a name any more: a durable subscription waits, one that is not has ended."""
        known = self.table.subscriptions.get(name)
        if known is not None and not known.terms.durable:
            self._end(name)
        else:
            self.deliveries.leave(name)

    def _bury_later(self, name: str, after_us: int) -> None:
        if name in self._to_bury:
            return
        self._to_bury[name] = None

        def bury() -> None:
            del self._to_bury[name]
            if name not in self.table and not self.replicator.closed:
                self.replicator.write((), (SUBSCRIPTION + name,))

        self._runtime.after(min(after_us, self._settings.tombstone_us), bury)

    def _parse(self, text: str, request: int) -> Filter | None:
        try:
            return parse_filter(text, self._schema_gossip.schema)
        except FilterError as error:
            self._refuse(request, str(error))
            return None

    def _refuse(self, request: int, reason: str) -> None:
        self._runtime.answer(request, Refused(reason, retry=False))

    def _refuse_unknown(self, request: int, name: str) -> None:
        reason = f"there is no subscription {name!r} here; subscribe first, or ask the broker that notifies it"
        self._runtime.answer(request, Refused(reason, retry=True))  # it may have moved here a moment later

    def _store(self, name: str, subscription: Subscription, filter_: Filter) -> None:
        self.table.put(name, subscription, filter_)
        self.deliveries.open(name, subscription.terms)
        self._numbers = max(self._numbers, subscription.number)

    def _write_subscription(self, name: str, request: int | None, *, place: bool) -> None:
        kept = self.table.subscriptions.get(name)
        value = None if kept is None else msgspec.msgpack.encode(kept)
        self._unsafe[name] += 1
        safe = self.replicator.commit([(SUBSCRIPTION + name, value)])
        self._runtime.start("change a subscription", self._answer_when_placed(name, safe, request, place), self.id)

    async def _answer_when_placed(self, name: str, safe: Signal[None], request: int | None, place: bool) -> None:
        await safe
        self._unsafe[name] -= 1
        if not self._unsafe[name]:
            del self._unsafe[name]
        if place:
            await self._placer.place(self.id, name)
        if request is not None:
            self._runtime.answer(request, Stored())

    # -- what is published here ----------------------------------------------------------------------------------------

    def publish(self, content: bytes, request: int) -> tuple[EventKey, Signal[None]] | None:
        """Keep an event; return its key, and a signal that is set when it is safe. None where it is refused.

        One of a batch that was accepted here before is answered, when that one is safe, and nothing more.
        """
        if len(content) > EVENT_BYTES_MAX:
            self._refuse(request, f"the event has {len(content)} bytes; at most {EVENT_BYTES_MAX} are carried")
            return None
        try:
            read = event_of(content)
        except EventError as error:
            self._refuse(request, str(error))
            return None
        schema = self._schema_gossip.schema
        if schema is not None and (problems := schema.problems(read.attributes)):
            self._refuse(request, f"event: {'; '.join(problems)}: change the event, or declare what it has")
            return None
        is_batch = is_of_batches(read.publisher)
        if is_batch and read.sequence <= self.sequences.get(read.publisher):
            again = self._answer_again(read.publisher, read.sequence, request)
            self._runtime.start("answer a publisher again", again, self.id)
            return None
        self._last += 1
        event = EventKey(self.id, self._stream, self._last)
        self.outbox.put(event, content)
        self.archive_backlog.begin(event)
        if self._runtime.tracing:
            self._runtime.trace(event, "published", self.id, content=content)

        last = msgspec.msgpack.encode((self._stream, self._last))
        progress, forgotten = self.sequences.put(read.publisher, read.sequence) if is_batch else ([], [])
        return event, self.replicator.commit([(_published(event), content), (LAST, last), *progress], forgotten)

    async def _answer_again(self, publisher: str, sequence: int, request: int) -> None:
        """Answer a batch publisher that sent an event twice, once the first is safe, if it was not undone."""
        await self.replicator.commit()
        if sequence <= self.sequences.get(publisher):
            self._runtime.answer(request, Published(EventKey(self.id, self._stream, 0)))
        else:
            self._runtime.answer(request, Refused("it was refused before; publish it again", retry=True))

    def fully_acknowledged(self, event: EventKey) -> None:
        """Take note that all homes that may want an event have it."""
        if self.outbox.acknowledge(event):
            self._runtime.trace(event, "settled", self.id)
            if not self.archive_backlog.holds(event):
                self._erase(event)

    def withdraw(self, event: EventKey) -> None:
        """Drop an event that its publisher took back."""
        read = event_of(self.outbox[event])
        if is_of_batches(read.publisher) and read.sequence <= self.sequences.get(read.publisher):
            self.replicator.write(*self.sequences.put(read.publisher, read.sequence - 1))
        self.archive_backlog.withdraw(event)
        self.fully_acknowledged(event)

    def archived(self, upto: EventKey) -> None:
        """Take note that what was accepted is in the archive, up to an event."""
        for event in self.archive_backlog.archive(upto):
            if event not in self.outbox:
                self._erase(event)

    def _erase(self, event: EventKey) -> None:
        self._erasable.append(_published(event))
        self._flushing.soon()

    def flush(self) -> None:
        """Write at once what nobody waits for."""
        self.deliveries.flush()
        self._flush_erasable()

    def _flush_erasable(self) -> None:
        erasable, self._erasable = self._erasable, []
        if erasable:
            self.replicator.write((), erasable)

    # -- what subscribers here get -------------------------------------------------------------------------------------

    def take(self, event: EventKey, content: bytes) -> Signal[None]:
        """Take an event once, and queue it for the subscriptions it matches; set when it need not be sent again."""
        if self.deliveries.has_taken(event):
            return self.deliveries.take_again(event)
        if not self.table.subscriptions:
            return self.deliveries.take(event, content, {}, None)
        try:
            read = event_of(content)
            names = self.table.match(read.attributes)
        except EventError:
            self._runtime.observe("event_malformed")  # of a peer that erred: its publisher would have been told
            return Signal()
        subscriptions = self.table.subscriptions
        matched = {name: subscriptions[name].terms for name in names}
        return self.deliveries.take(event, content, matched, read)

    def skip_to(self, event: EventKey, floor: int) -> None:
        """Expect no event of the stream up to a number: all homes that may want them have them."""
        self.deliveries.skip_to(event, floor)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Write nothing more: the home is about to move. `start` goes on."""
        self.deliveries.pause()
        self._flushing.stop()
        for timer in self._ends.values():
            self._runtime.cancel(timer)
        self._ends.clear()

    @property
    def filters(self) -> dict[str, Filter]:
        """The filters by the names of their subscriptions."""
        return self.table.filters

    def subscription(self, name: str) -> Subscription | None:
        """Return the subscription of a name."""
        return self.table.subscriptions.get(name)

    def held_subscriptions(self) -> list[SubscriptionInfo]:
        """Return all subscriptions, as they are shown."""
        queues = self.deliveries.queues
        held = []
        for name, each in self.table.subscriptions.items():
            queue = queues.get(name)
            queued, is_present = (0, True) if queue is None else (len(queue), queue.present)
            held.append(SubscriptionInfo(name, each.filter, each.terms, queued, is_present, each.made_us))
        return held

    def has(self, name: str) -> bool:
        """Return whether a subscription of this name is, or was, here."""
        return SUBSCRIPTION + name in self.replicator.records

    @property
    def position(self) -> tuple[int, int, int]:
        """The stream of what is published here, its highest number, and up to which one all accepted is archived."""
        first = self.archive_backlog.first_open()
        archived = self._last if first is None else first.number - 1 if first.stream == self._stream else 0
        return self._stream, self._last, archived

    @property
    def is_empty(self) -> bool:
        """Whether nobody subscribes here, nothing is on its way, and no batch publisher must find it again."""
        at_rest = (
            self.deliveries.is_at_rest and not self.replicator.unsafe and self.archive_backlog.first_open() is None
        )
        return at_rest and not (self.table.subscriptions or len(self.outbox) or len(self.sequences))

    @property
    def queued(self) -> int:
        """The number of events that wait for subscribers."""
        return self.deliveries.queued

    def check(self) -> None:
        """Assert what must hold at all times."""
        self.table.check()
        self.outbox.check()
        self.archive_backlog.check()
        self.deliveries.check()
        durable = {name for name, each in self.table.subscriptions.items() if each.terms.durable}
        assert durable == self.deliveries.queues.keys()


def _published(event: EventKey) -> str:
    return f"{PUBLISHED}{event.stream}/{event.number}"
