"""The client without asyncio: the same face, every call waits. For scripts, and for notebooks, whose loop it lets be.

with connect_sync("mp://localhost:7400") as net:
    sub = net.subscribe("price > 120")
    net.publish({"price": 121})
    for event in sub.events(timeout=1):
        print(event["price"])
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime

from meetpoint.api.client_messages import Broker, BrokerStatus, Held, JournalEntry
from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.outcomes import Located
from meetpoint.client.admin_queries import DeadLetter
from meetpoint.client.background import Background
from meetpoint.client.delivery import Delivery
from meetpoint.client.dialer import Token
from meetpoint.client.errors import NetworkError
from meetpoint.client.network import TIMEOUT_S, Connecting, Network, Publishable, connect
from meetpoint.client.publisher import IN_FLIGHT
from meetpoint.client.subscription import Ack, Subscription
from meetpoint.client.subscription_options import Lifetime
from meetpoint.language.events.event import Event
from meetpoint.language.filters.explain import Explanation
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value

__all__ = ["SyncDelivery", "SyncNetwork", "SyncSubscription", "connect_sync"]


class SyncDelivery:
    """An event that matched; see `Delivery`."""

    __slots__ = ("_background", "delivered")

    def __init__(self, delivered: Delivery, background: Background) -> None:
        self.delivered = delivered
        self._background = background

    @property
    def event(self) -> Event:
        """The event itself."""
        return self.delivered.event

    @property
    def id(self) -> str:
        """The event's id, which its publisher gave it."""
        return self.event.id

    @property
    def publisher(self) -> str:
        """Who published it."""
        return self.event.publisher

    @property
    def sequence(self) -> int:
        """Its number among the publisher's events."""
        return self.event.sequence

    @property
    def time(self) -> datetime:
        """When it was published, by its publisher."""
        return self.event.time

    @property
    def attributes(self) -> dict[str, Value]:
        """What filters see of it."""
        return self.event.attributes

    @property
    def key(self) -> EventKey:
        """Where it was published, and as which number there."""
        return self.delivered.key

    @property
    def matched_by(self) -> tuple[str, ...]:
        """The names of this client's subscriptions for which the broker brought it."""
        return self.delivered.matched_by

    @property
    def redelivered(self) -> bool:
        """Whether it may have come before. An event that is not marked has not."""
        return self.delivered.redelivered

    def get(self, name: str) -> Value:
        """The value of an attribute by its dotted name; None where it is missing."""
        return self.delivered.get(name)

    def __getitem__(self, name: str) -> Value:
        return self.delivered[name]

    def ack(self) -> None:
        """It is done: once this returns it does not come again."""
        self._background.run(self.delivered.ack())

    def nack(self, reason: str = "") -> None:
        """It could not be used: it comes again later, and after some tries becomes a dead letter with this reason."""
        self._background.run(self.delivered.nack(reason))

    def __repr__(self) -> str:
        return repr(self.delivered)


class SyncSubscription:
    """One subscription; see `Subscription`. `for event in subscription.events(timeout=1)` reads it."""

    def __init__(self, subscription: Subscription, background: Background) -> None:
        self.subscription = subscription
        self._background = background

    @property
    def name(self) -> str:
        """Its name in the whole network."""
        return self.subscription.name

    @property
    def filter(self) -> str:
        """Its filter, as it is now."""
        return self.subscription.filter

    @property
    def ended(self) -> str | None:
        """Why nothing more comes; None while it lives."""
        return self.subscription.ended

    @property
    def dropped(self) -> int:
        """Events of an ephemeral subscription that were not read in time."""
        return self.subscription.dropped

    def events(self, timeout: float | None = None) -> Iterator[SyncDelivery]:
        """Its events, until it ends, or until none has come for `timeout` seconds."""
        reading = self.subscription.events(timeout)
        while (delivered := self._background.run(_next(reading))) is not None:
            yield SyncDelivery(delivered, self._background)

    def __iter__(self) -> Iterator[SyncDelivery]:
        return self.events()

    def update(
        self,
        filter: str | None = None,  # noqa: A002 - it is the word for it
        *,
        labels: dict[str, str] | None = None,
        lifetime: Lifetime = None,
    ) -> None:
        """Another filter, other labels or another lifetime (from now on); what is None stays as it is."""
        self._background.run(self.subscription.update(filter, labels=labels, lifetime=lifetime))

    def pause(self) -> None:
        """Let what matches wait (an ephemeral subscription: let it pass)."""
        self._background.run(self.subscription.pause())

    def resume(self) -> None:
        """Go on after a pause, with what waited first."""
        self._background.run(self.subscription.resume())

    def unsubscribe(self) -> None:
        """End it for good, with all that waits for it."""
        self._background.run(self.subscription.unsubscribe())

    def close(self) -> None:
        """Read no more; a durable subscription stays."""
        self._background.run(self.subscription.close())

    def __enter__(self) -> SyncSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncNetwork:
    """A network of brokers as one client sees it; see `Network`. Made by `connect_sync`."""

    def __init__(self, connecting: Connecting) -> None:
        self._background = Background("meetpoint client")
        try:
            self._net: Network = self._background.run(_connected(connecting))
        except BaseException:
            self._background.stop()
            raise

    @property
    def client(self) -> str:
        """The owner of this client's subscriptions."""
        return self._net.client

    @property
    def publisher(self) -> str:
        """The publisher of this client's events."""
        return self._net.publisher

    @property
    def broker(self) -> Peer | None:
        """The broker that is connected now."""
        return self._net.broker

    def close(self) -> None:
        """Close all connections, and end the thread. Durable subscriptions stay; ephemeral ones end."""
        if self._background.is_running:
            try:
                self._background.run(self._net.close())
            finally:
                self._background.stop()

    def __enter__(self) -> SyncNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def event(self, attributes: Mapping[str, object], id: str | None = None, time: datetime | None = None) -> Event:  # noqa: A002
        """An event with this client's next number, to be published by `publish`; its `id` is known before that."""
        return self._net.event(attributes, id, time)

    def publish(self, event: Publishable, id: str | None = None, time: datetime | None = None) -> EventKey:  # noqa: A002
        """Publish an event, and return its key once it is on disk."""
        return self._background.run(self._net.publish(event, id, time))

    def publish_many(self, events: Iterable[Publishable]) -> int:
        """Publish many events, in order, with a bounded number on their way; returns how many when all are on disk."""
        return _Many(self._net, self._background).publish(events)

    def subscribe(
        self,
        filter: str | Filter,  # noqa: A002 - it is the word for it
        *,
        durable: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        lifetime: Lifetime = None,
        window: int | None = None,
        ack: Ack = "auto",
        paused: bool = False,
        replace: bool = False,
        since: datetime | None = None,
    ) -> SyncSubscription:
        """Subscribe; from its return on, every event that is published and matches comes. See `Network.subscribe`."""
        coroutine = self._net.subscribe(
            filter, durable=durable, owner=owner, labels=labels, lifetime=lifetime, window=window, ack=ack,
            paused=paused, replace=replace, since=since,
        )  # fmt: skip
        return SyncSubscription(self._background.run(coroutine), self._background)

    def explain(self, filter_: str | Filter, event: Event | SyncDelivery | Mapping[str, object]) -> Explanation:
        """Why a filter accepts an event, or why not. No broker is asked."""
        return self._net.explain(filter_, event.event if isinstance(event, SyncDelivery) else event)

    def subscriptions(
        self, owner: str | None = None, labels: Mapping[str, str] | None = None, *, partial_ok: bool = False
    ) -> list[Held]:
        """All subscriptions of the network by name: of one owner, with all of these labels."""
        return self._background.run(self._net.subscriptions(owner, labels, partial_ok=partial_ok))

    def dead_letters(self, name: str | None = None, *, partial_ok: bool = False) -> list[DeadLetter]:
        """Events that subscribers did not take, of all subscriptions or of one, the oldest first."""
        return self._background.run(self._net.dead_letters(name, partial_ok=partial_ok))

    def discard(self, letter: DeadLetter) -> None:
        """Forget a dead letter."""
        self._background.run(self._net.discard(letter))

    def brokers(self) -> list[Broker]:
        """All brokers, as far as the connected one knows."""
        return self._background.run(self._net.brokers())

    def status(self) -> dict[str, BrokerStatus | None]:
        """By address, how each broker is; None of one that does not answer."""
        return self._background.run(self._net.status())

    def locate(self, name: str) -> Located:
        """Which broker hosts a durable subscription, and its filter."""
        return self._background.run(self._net.locate(name))

    def declare(self, schema: str | Schema) -> None:
        """Add attributes to the network's schema; what is there already may not change."""
        self._background.run(self._net.declare(schema))

    def schema(self) -> Schema | None:
        """The network's schema, or None."""
        return self._background.run(self._net.schema())

    def journal(
        self, id: str | None = None, *, key: EventKey | None = None, partial_ok: bool = False  # noqa: A002
    ) -> list[JournalEntry]:  # fmt: skip
        """What brokers remember of an event by its id or its key."""
        return self._background.run(self._net.journal(id, key=key, partial_ok=partial_ok))


class _Many:
    """Many events from an iterable that is read in the caller's thread: it may be slow, or block."""

    def __init__(self, net: Network, background: Background) -> None:
        self._net = net
        self._background = background
        self._room = threading.Semaphore(net.in_flight)
        self._problems: list[BaseException] = []

    def publish(self, events: Iterable[Publishable]) -> int:
        """All of them; the first that cannot be published ends it."""
        count = 0
        try:
            for event in events:
                self._wait()
                if self._problems:
                    self._room.release()
                    break
                self._background.call(self._put, event)
                count += 1
        except Exception:
            self._wait_for_all()
            raise
        self._wait_for_all()
        if self._problems:
            raise self._problems[0]
        return count

    def _wait_for_all(self) -> None:
        for _ in range(self._net.in_flight):
            self._wait()

    def _wait(self) -> None:
        while not self._room.acquire(timeout=1.0):
            if not self._background.is_running:
                raise NetworkError("this client was closed meanwhile; connect again")

    def _put(self, event: Publishable) -> None:
        try:
            self._net.put(event).add_done_callback(self._done)
        except Exception as error:
            self._problems.append(error)
            self._room.release()

    def _done(self, future: asyncio.Future[EventKey]) -> None:
        if future.cancelled():
            self._problems.append(NetworkError("this client was closed meanwhile; connect again"))
        elif (problem := future.exception()) is not None:
            self._problems.append(problem)
        self._room.release()


async def _connected(connecting: Connecting) -> Network:
    return await connecting


async def _next(reading: AsyncIterator[Delivery]) -> Delivery | None:
    return await anext(reading, None)


def connect_sync(
    url: str = "mp://localhost:7400",
    client: str = "",
    *,
    network: str = "",
    token: Token = "",
    ca: str | os.PathLike[str] | None = None,
    timeout: float = TIMEOUT_S,
    in_flight: int = IN_FLIGHT,
) -> SyncNetwork:
    """Connect to a network of brokers, without asyncio; see `connect`. Close it, or use it by `with`."""
    return SyncNetwork(connect(url, client, network=network, token=token, ca=ca, timeout=timeout, in_flight=in_flight))
