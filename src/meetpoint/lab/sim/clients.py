"""Clients of simulated brokers: each asks one node at a time, waits, and gives up on silence.

A change of a subscription is asked again, under the same name and at the same address, until it is acknowledged: that
does no harm. A subscription's home may move when its node leaves; then its client asks at the address that notified
last. An event is asked to be published once: without an answer it stays open whether it was. A refusal that invites to
try again is no answer. A subscriber acknowledges a notification a little later at the node that sent it, if that is up.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from meetpoint.api.limits import SECOND_US
from meetpoint.api.outcomes import Found, Outcome, Published, Refused, Stored
from meetpoint.api.requests import Acknowledge, Lookup, NodeRequest, Publish, Subscribe, Unsubscribe, Update
from meetpoint.errors import EventError
from meetpoint.lab.sim.cluster import LEAVE_REQUEST, Cluster
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.judge import Change, DeliveryRecord, History, LookupRecord, PublicationRecord, SubscriptionRecord
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.values import Value
from meetpoint.node.runtime.effects import Answer, Notify
from meetpoint.node.runtime.inputs import ClientRequest

ANSWER_TIMEOUT_US = 20 * SECOND_US
"""The longest time that a client waits for an answer."""
RETRY_US = SECOND_US
"""The pause before a client asks again."""
ACKNOWLEDGE_US_MAX = 50_000
"""The longest time that a subscriber takes to acknowledge."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

_Then = Callable[[Outcome | None], None]


class Clients:
    """All clients of a network, and their history."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.history = History()
        self._cluster = cluster
        self._engine = cluster.engine
        self._random = Random(f"clients/{seed}")
        self._requests = LEAVE_REQUEST
        self._waiting: dict[int, tuple[Process, _Then, int]] = {}  # until when, the earliest first
        self._watching = False
        self._ids: dict[bytes, str] = {}
        self._busy: set[str] = set()
        self._engine.on_answer = self._answered
        self._engine.on_notify = self._notified
        cluster.on_end.append(self._disconnected)

    @property
    def busy(self) -> int:
        """The number of subscriptions that wait for an acknowledgement."""
        return len(self._busy)

    # -- what a client does --------------------------------------------------------------------------------------------

    def subscribe(self, name: str, text: str, address: str) -> SubscriptionRecord:
        """Ask for a new subscription."""
        assert name not in self.history.subscriptions, f"{name} is taken"
        subscription = self.history.subscriptions[name] = SubscriptionRecord(name, address)
        self._change(subscription, Change(parse_filter(text), text, self._engine.now), Subscribe(name, text))
        return subscription

    def update(self, subscription: SubscriptionRecord, text: str) -> bool:
        """Ask for another filter; false where the last change is open, or the home is unknown."""
        if not self._may_change(subscription):
            return False
        change = Change(parse_filter(text), text, self._engine.now)
        self._change(subscription, change, Update(subscription.name, text))
        return True

    def unsubscribe(self, subscription: SubscriptionRecord) -> bool:
        """Ask for the end of a subscription; false where that is not possible now."""
        if not self._may_change(subscription):
            return False
        self._change(subscription, Change(None, None, self._engine.now), Unsubscribe(subscription.name))
        return True

    def publish(self, id_: str, attributes: dict[str, Value], process: Process) -> PublicationRecord:
        """Publish an event at a node, once."""
        number = len(self.history.publications)
        time = EPOCH + timedelta(microseconds=self._engine.now)
        event = Event(id_, process.address, number, time, attributes)
        publication = PublicationRecord(event, to_msgpack(event), self._engine.now, address=process.address)
        self.history.publications[id_] = publication
        self._ids[publication.content] = id_

        def then(outcome: Outcome | None) -> None:
            if isinstance(outcome, Published):
                publication.acknowledged = self._engine.now
            else:
                self.history.unanswered.append((publication.asked, f"publish {id_} at {process.address}: {outcome}"))

        self._ask(process, Publish(publication.content), then)
        return publication

    def lookup(self, key: bytes, process: Process) -> None:
        """Ask who is responsible for a key."""
        asked = LookupRecord(key, self._engine.now, process.address)
        self.history.lookups.append(asked)

        def then(outcome: Outcome | None) -> None:
            if isinstance(outcome, Found):
                asked.answered, asked.found, asked.hops = self._engine.now, outcome.peer.id, outcome.hops

        self._ask(process, Lookup(key), then)

    def give_up_all(self) -> None:
        """Give up all open requests: the run is over."""
        for number in sorted(self._waiting):
            self._give_up(number)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def _may_change(self, subscription: SubscriptionRecord) -> bool:
        last = subscription.changes[-1]
        if last.acknowledged is None or last.filter is None:
            return False
        return not self._engine.processes[self._home(subscription)].gone

    def _home(self, subscription: SubscriptionRecord) -> str:
        """Return the address to ask: where the subscription was made, or, after that node left, where it last notified
        from.
        """
        if self._engine.processes[subscription.address].gone and subscription.deliveries:
            return subscription.deliveries[-1].address
        return subscription.address

    def _change(self, subscription: SubscriptionRecord, change: Change, what: NodeRequest) -> None:
        subscription.changes.append(change)
        self._busy.add(subscription.name)

        def then(outcome: Outcome | None) -> None:
            if isinstance(outcome, Stored):
                change.acknowledged = self._engine.now
                self._busy.discard(subscription.name)
            elif isinstance(outcome, Refused) and not outcome.retry:
                self._busy.discard(subscription.name)
                self.history.unanswered.append((change.asked, f"{what} was refused: {outcome.reason}"))
            else:
                self._engine.call(self._engine.now + RETRY_US, attempt)

        def attempt() -> None:
            process = self._engine.processes[self._home(subscription)]
            if process.alive:
                self._ask(process, what, then)
            elif process.gone:  # and nobody knows where to: it stays open
                self._busy.discard(subscription.name)
            else:
                self._engine.call(self._engine.now + RETRY_US, attempt)

        attempt()

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, process: Process, what: NodeRequest, then: _Then) -> None:
        self._requests += 1
        number = self._requests
        self._waiting[number] = process, then, self._engine.now + ANSWER_TIMEOUT_US
        if not self._watching:
            self._watching = True
            self._engine.call(self._engine.now + ANSWER_TIMEOUT_US, self._expire_requests)
        self._engine.feed(process, ClientRequest(number, what))

    def _expire_requests(self) -> None:
        """Give up requests that have waited too long. One timer serves all, as nearly all are answered in time."""
        self._watching = False
        for number, (_, _, until) in list(self._waiting.items()):
            if until > self._engine.now:
                self._watching = True
                self._engine.call(until, self._expire_requests)
                return
            self._give_up(number)

    def _give_up(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[1](None)

    def _disconnected(self, process: Process) -> None:
        """Give up the requests to a node that is gone: no answer will come over its connections."""
        for number in [number for number, (asked, _, _) in self._waiting.items() if asked is process]:
            self._give_up(number)

    def _answered(self, process: Process, answer: Answer) -> None:
        waiting = self._waiting.pop(answer.request, None)
        if waiting is not None:
            waiting[1](answer.outcome)

    # -- being notified ------------------------------------------------------------------------------------------------

    def _notified(self, process: Process, effect: Notify) -> None:
        now = self._engine.now
        id_ = self._id(effect.content)
        for name in effect.names:
            subscription = self.history.subscriptions.get(name)
            if subscription is None:
                self.history.strange.append(f"{process.address} notified {name!r}, which nobody subscribed")
            else:
                subscription.deliveries.append(DeliveryRecord(now, id_, process.address, effect.redelivered))
        wait = self._random.randint(1, ACKNOWLEDGE_US_MAX)
        self._engine.call(now + wait, self._acknowledge, process, Acknowledge(effect.event, effect.names))

    def _acknowledge(self, process: Process, what: Acknowledge) -> None:
        if process.alive:
            self._requests += 1
            self._engine.feed(process, ClientRequest(self._requests, what))

    def _id(self, content: bytes) -> str:
        """Return the id of an event by its bytes; also of bytes that were never published, if they are an event at
        all.
        """
        id_ = self._ids.get(content)
        if id_ is None:
            try:
                id_ = from_msgpack(content).id
            except EventError as error:
                id_ = f"no event ({error})"
        return id_
