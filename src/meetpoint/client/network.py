"""A network of brokers as one asynchronous client sees it: `async with connect("mp://localhost:7400") as net`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import AsyncIterable, Generator, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from meetpoint.api.ids import EventId, Peer
from meetpoint.api.requests import SubscriptionOptions
from meetpoint.client.admin_queries import AdminQueries, plain_id
from meetpoint.client.arguments import Lifetime, labels_of, lifetime_us_of, moment_us_of, window_of
from meetpoint.client.connection_pool import ConnectionPool, Dialer, Token
from meetpoint.client.delivery import DeliveredEvent
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.publisher import IN_FLIGHT, Publisher
from meetpoint.client.replay import Replay
from meetpoint.client.subscription import EPHEMERAL_WINDOW, WINDOW, Ack, Subscription
from meetpoint.language.events.event import Event
from meetpoint.language.filters.explain import Explanation, explain
from meetpoint.language.filters.filter import Filter, parse_filter

__all__ = ["TIMEOUT_S", "Connecting", "Network", "Publishable", "connect"]

TIMEOUT_S = 30.0
"""The time that brokers have to do what is asked."""

Publishable: TypeAlias = Mapping[str, object] | Event
"""Attributes, around which the client puts the envelope; or a whole event, which keeps its own."""


class Network(AdminQueries):
    """A network of brokers as one client sees it. `connect` makes it.

    >>> async with connect("mp://localhost:7400", client="ann") as net:  # doctest: +SKIP
    ...     sub = await net.subscribe("price > 120", durable="alerts")
    ...     event_id = await net.publish({"symbol": "OTE", "price": 121})
    ...     async for event in sub.events(timeout=1):
    ...         print(event["symbol"], event["price"])
    """

    def __init__(self, connections: ConnectionPool, client: str, timeout_s: float, in_flight: int) -> None:
        self.client = client
        """The owner of this client's subscriptions."""
        self.publisher = f"{client or 'client'}-{secrets.token_hex(6)}"
        """The publisher of this client's events, another one each time it connects: its sequence begins with 1."""
        super().__init__(connections, timeout_s)
        self._publisher = Publisher(connections, timeout_s, in_flight)
        self._sequence = 0
        self._names = 0
        self._subscriptions: set[Subscription] = set()
        self._durable: dict[str, Subscription] = {}

    @property
    def in_flight(self) -> int:
        """The number of events that are sent before the first of them is acknowledged."""
        return self._publisher.in_flight

    @property
    def broker(self) -> Peer | None:
        """The broker that is connected now."""
        entry = self.connections.entry
        return None if entry is None else entry.broker

    def __repr__(self) -> str:
        broker = self.broker
        if self.connections.is_closed:
            state = "closed"
        else:
            state = "not connected" if broker is None else f"connected to {broker.address}"
        return (
            f"<{type(self).__name__} {self.connections.url} {state} client={self.client!r} "
            f"publisher={self.publisher!r} events={self._sequence} subscriptions={len(self._subscriptions)}>"
        )

    async def close(self) -> None:
        """Close all connections. Durable subscriptions stay; ephemeral ones end."""
        await asyncio.gather(*(each.close() for each in tuple(self._subscriptions)))
        await self._publisher.close()
        await self.connections.close()

    async def __aenter__(self) -> Network:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- publishing ----------------------------------------------------------------------------------------------------

    def event(self, attributes: Mapping[str, object], id: str | None = None, time: datetime | None = None) -> Event:  # noqa: A002
        """Make an event with this client's next number, to be published by `publish`; its `id` is known before that.

        `id` is `publisher/number` unless you give one; `time` is now. Raises EventError for attributes or an id that
        no event may have.

        >>> event = net.event({"price": 121})  # doctest: +SKIP
        >>> await net.publish(event) == event.id  # doctest: +SKIP
        True
        """
        number = self._sequence + 1
        event = Event(
            id=f"{self.publisher}/{number}" if id is None else plain_id(id),
            publisher=self.publisher,
            sequence=number,
            time=datetime.now(UTC) if time is None else time,
            attributes=attributes,  # type: ignore[arg-type]
        )
        self._sequence = number
        return event

    async def publish(self, event: Publishable, id: str | None = None, time: datetime | None = None) -> EventId:  # noqa: A002
        """Publish an event, and return its id once it is stored on two brokers, or on a single one.

        `event` is a mapping of attributes, or an `Event`, which has an id and a time of its own. Concurrent calls
        (`asyncio.gather`) publish in the order of the calls. If the call is cancelled, the event may have been
        published or not.

        Raises EventError if the event is refused, and NetworkError if no broker has acknowledged it in time; then it
        may have been published or not.

        >>> event_id = await net.publish({"symbol": "OTE", "price": 121})  # doctest: +SKIP
        >>> (await net.journal(event_id))[0].step  # doctest: +SKIP
        'published'
        """
        return await self.publish_nowait(event, id, time)

    def publish_nowait(
        self, event: Publishable, id: str | None = None, time: datetime | None = None  # noqa: A002
    ) -> asyncio.Future[EventId]:  # fmt: skip
        """Enqueue an event without waiting, and return the future of its id.

        Nothing bounds how many events wait to be sent. Raises EventError at once if the event itself is wrong.

        >>> futures = [net.publish_nowait({"n": n}) for n in range(3)]  # doctest: +SKIP
        >>> ids = await asyncio.gather(*futures)  # doctest: +SKIP
        """
        number = self._sequence
        try:
            return self._publisher.enqueue(self._whole(event, id, time))
        except BaseException:
            self._sequence = number  # an event that was not taken leaves no gap, which subscribers would wait for
            raise

    async def publish_many(self, events: Iterable[Publishable] | AsyncIterable[Publishable]) -> list[EventId]:
        """Publish many events, in order, with a bounded number on their way; return their ids when all are stored.

        The first event that cannot be published ends it, when those before it have been answered. The ids take about
        300 bytes each: from a source without an end, call `publish` or `publish_nowait` in a loop.

        >>> len(await net.publish_many({"n": n} for n in range(1000)))  # doctest: +SKIP
        1000
        """
        waiting: deque[asyncio.Future[EventId]] = deque()
        ids: list[EventId] = []
        try:
            if isinstance(events, AsyncIterable):
                async for event in events:
                    await self._publish_next(event, waiting, ids)
            else:
                for event in events:
                    await self._publish_next(event, waiting, ids)
            while waiting:
                ids.append(await waiting[0])
                waiting.popleft()
        except asyncio.CancelledError:
            for future in waiting:
                future.cancel()
            raise
        except Exception:
            await asyncio.gather(*waiting, return_exceptions=True)
            raise
        return ids

    async def _publish_next(
        self, event: Publishable, waiting: deque[asyncio.Future[EventId]], ids: list[EventId]
    ) -> None:
        waiting.append(self.publish_nowait(event))
        while waiting and (waiting[0].done() or len(waiting) >= self.in_flight):
            ids.append(await waiting[0])
            waiting.popleft()
        if not len(waiting) % 64:
            await asyncio.sleep(0)  # a source that never waits would keep the loop from sending

    def _whole(self, event: Publishable, id_: str | None, time: datetime | None) -> Event:
        if isinstance(event, Event):
            if id_ is not None or time is not None:
                raise NetworkError(
                    "publish: an Event has an id and a time of its own; give attributes, or no id and time"
                )
            return event
        return self.event(event, id_, time)

    # -- subscribing ---------------------------------------------------------------------------------------------------

    async def subscribe(
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
    ) -> Subscription:
        """Subscribe: every event that matches and is published after this returns will come.

        - `durable`: a name in the whole network. Events that match wait until they are acknowledged, also while no
          client is there. A subscription that has the name is taken over; its filter changes only with `replace`.
          Without a name, events come at most once, while the client is connected.
        - `ack`: "auto" acknowledges an event when the next one is asked for, "manual" leaves it to `event.ack()`.
        - `owner`, `labels`: what `subscriptions` finds it by. The owner is by default the `client` of `connect`.
        - `lifetime`: seconds or a timedelta, after which the subscription ends.
        - `window`: how many events come before the first is acknowledged.
        - `paused`: begin paused; see `Subscription.resume`.
        - `since`: events that were accepted from that moment on come first, from the archives of brokers, then live
          ones, without a gap and each once. History is not acknowledged: subscribed again, it comes again.

        Raises FilterError where the filter is wrong, also by the network's schema; RefusedError where a broker refuses
        the subscription; NetworkError where it was not made in time.

        >>> sub = await net.subscribe("price > 120", durable="alerts")  # doctest: +SKIP
        """
        text = str(filter)
        parse_filter(text)
        if ack not in ("auto", "manual"):
            raise NetworkError(f"ack: is {ack!r}; say 'auto' or 'manual'")
        if durable is not None and (not isinstance(durable, str) or not durable):
            raise NetworkError(f"durable: is {durable!r}; give the subscription a name")
        lifetime_us = lifetime_us_of(lifetime)
        since_us = moment_us_of(since, "since")
        options = SubscriptionOptions(
            durable is not None, self.client if owner is None else owner, labels_of(labels or {}), lifetime_us, paused
        )
        until = None if lifetime_us is None else asyncio.get_running_loop().time() + lifetime_us / 1e6
        self._names += 1
        name = f"{self.publisher}/s{self._names}" if durable is None else durable
        window = window_of(window, EPHEMERAL_WINDOW if durable is None else WINDOW)
        subscription = Subscription(self, name, text, options, window, ack, until)
        self._subscriptions.add(subscription)
        try:
            if since is None:
                await subscription.begin(replace)
            else:
                await self._begin_since(subscription, replace, since_us)
        except BaseException as error:
            if isinstance(error, RefusedError):
                await self.parse_by_schema(text)
            raise
        return subscription

    async def _begin_since(self, subscription: Subscription, replace: bool, since_us: int) -> None:
        """Subscribe, then find where history ends: an event that comes before that is known is history too."""
        replay = subscription.replay = Replay(self, subscription.filter, since_us, self.timeout_s)
        await subscription.begin(replace)
        try:
            await replay.extend()
        except BaseException:
            await subscription.close()
            raise

    async def claim(self, subscription: Subscription) -> None:
        """Close the subscription of this client that had the same durable name."""
        former = self._durable.get(subscription.name)
        if former is not subscription:
            self._durable[subscription.name] = subscription
            if former is not None:
                await former.close()

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription that is over."""
        self._subscriptions.discard(subscription)
        if self._durable.get(subscription.name) is subscription:
            del self._durable[subscription.name]

    async def parse_by_schema(self, filter_: str) -> None:
        """Check a filter that a broker refused against the network's schema: that error shows the place."""
        try:
            schema = await self.schema()
        except NetworkError:
            return
        if schema is not None:
            parse_filter(filter_, schema)

    @staticmethod
    def explain(filter_: str | Filter, event: Event | DeliveredEvent | Mapping[str, object]) -> Explanation:
        """Explain why a filter accepts an event, or why not. No broker is asked.

        >>> Network.explain("price > 120", {"price": 119}).reason
        'price 119 is below 120'
        """
        return explain(filter_, event.event if isinstance(event, DeliveredEvent) else event)

    def replay(self, filter_: str, since: datetime) -> Replay:
        """Read what brokers' archives have from a moment on, once `extend` has found where they end."""
        return Replay(self, filter_, moment_us_of(since, "since"), self.timeout_s)


class Connecting:
    """A connection that is about to be made: `async with connect(...) as net`, or `net = await connect(...)`."""

    def __init__(self, dialer: Dialer, timeout_s: float, in_flight: int) -> None:
        self._dialer = dialer
        self._timeout_s = timeout_s
        self._in_flight = in_flight
        self._net: Network | None = None

    def __repr__(self) -> str:
        url = self._dialer.url
        return f"<Connecting {url.scheme}://{','.join(url.addresses)}: await it, or use it by `async with`>"

    def __await__(self) -> Generator[None, None, Network]:
        return self._connect().__await__()

    async def _connect(self) -> Network:
        connections = ConnectionPool(self._dialer)
        try:
            await connections.main()
        except BaseException:
            await connections.close()
            raise
        return Network(connections, self._dialer.client, self._timeout_s, self._in_flight)

    async def __aenter__(self) -> Network:
        self._net = await self._connect()
        return self._net

    async def __aexit__(self, *_: object) -> None:
        if self._net is not None:
            await self._net.close()


def connect(
    url: str = "mp://localhost:7400",
    client: str = "",
    *,
    network: str = "",
    token: Token = "",
    ca: str | os.PathLike[str] | None = None,
    timeout: float = TIMEOUT_S,
    in_flight: int = IN_FLIGHT,
) -> Connecting:
    """Connect to a network of brokers by one or several of them: `mp://localhost:7400`, `mp://one:7400,two:7400`.

    - `url`: with `mps://` the connection uses TLS.
    - `client`: the owner of this client's subscriptions.
    - `network`: the name that the network must have.
    - `token`: the client's token, or a function that returns it and is called for each connection.
    - `ca`: the file with the certificate of the network's authority; without one the machine's own authorities count.
    - `timeout`: how many seconds brokers may take to do what is asked.
    - `in_flight`: how many events are sent before the first is acknowledged.

    Raises NetworkError at once for arguments that make no sense, and when awaited if no broker can be reached;
    RefusedError if the broker does not accept the client.

    >>> async with connect("mp://localhost:7400") as net:  # doctest: +SKIP
    ...     await net.publish({"price": 121})
    """
    if not isinstance(in_flight, int) or in_flight < 1:
        raise NetworkError(f"in_flight: is {in_flight!r}; give a number from 1 on")
    if not timeout > 0:
        raise NetworkError(f"timeout: is {timeout!r}; give seconds above 0")
    dialer = Dialer(url, client, network=network, token=token, ca=ca)
    return Connecting(dialer, float(timeout), in_flight)
