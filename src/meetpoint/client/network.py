"""The face of the client: `async with connect("mp://localhost:7400") as net`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from meetpoint.api.client_messages import Broker, BrokerStatus, FollowedIs, Held, JournalEntry, Question, ViewIs
from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.outcomes import Located, Stored
from meetpoint.api.requests import SubscriptionOptions
from meetpoint.client.admin_queries import BROKER_S, AdminQueries, DeadLetter, W
from meetpoint.client.connection_pool import ConnectionPool
from meetpoint.client.delivery import Delivery
from meetpoint.client.dialer import Dialer, Token
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.publisher import IN_FLIGHT, Publisher
from meetpoint.client.replay import Replay
from meetpoint.client.subscription import EPHEMERAL_WINDOW, WINDOW, Ack, Subscription
from meetpoint.client.subscription_options import Lifetime, labels_of, lifetime_us_of, moment_us_of, window_of
from meetpoint.errors import FilterError
from meetpoint.language.events.event import Event
from meetpoint.language.filters.explain import Explanation, explain
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.schema.schema import Schema

__all__ = ["TIMEOUT_S", "Connecting", "Network", "Publishable", "connect"]

TIMEOUT_S = 30.0
"""How long brokers may take to do what is asked."""

Publishable: TypeAlias = Mapping[str, object] | Event
"""Attributes, around which the client puts the envelope; or a whole event, which keeps its own."""


class Network:
    """A network of brokers as one client sees it. Made by `connect`."""

    def __init__(self, links: ConnectionPool, client: str, timeout_s: float, in_flight: int) -> None:
        self.client = client
        """The owner of this client's subscriptions."""
        self.publisher = f"{client or 'client'}-{secrets.token_hex(6)}"
        """The publisher of this client's events, another one each time it connects: its sequence begins with 1."""
        self.links = links
        self.timeout_s = timeout_s
        self._asking = AdminQueries(links, timeout_s)
        self._publishing = Publisher(links, timeout_s, in_flight)
        self._sequence = 0
        self._names = 0
        self._subscriptions: set[Subscription] = set()
        self._durable: dict[str, Subscription] = {}

    @property
    def in_flight(self) -> int:
        """How many events are sent before the first of them is acknowledged."""
        return self._publishing.in_flight

    @property
    def broker(self) -> Peer | None:
        """The broker that is connected now."""
        entry = self.links.entry
        return None if entry is None else entry.broker

    async def close(self) -> None:
        """Close all connections. Durable subscriptions stay; ephemeral ones end."""
        await asyncio.gather(*(each.close() for each in tuple(self._subscriptions)))
        await self._publishing.close()
        await self.links.close()

    async def __aenter__(self) -> Network:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- publishing ----------------------------------------------------------------------------------------------------

    def event(self, attributes: Mapping[str, object], id: str | None = None, time: datetime | None = None) -> Event:  # noqa: A002
        """An event with this client's next number, to be published by `publish`; its `id` is known before that."""
        number = self._sequence + 1
        event = Event(
            id=f"{self.publisher}/{number}" if id is None else id,
            publisher=self.publisher,
            sequence=number,
            time=datetime.now(UTC) if time is None else time,
            attributes=attributes,  # type: ignore[arg-type]
        )
        self._sequence = number
        return event

    async def publish(self, event: Publishable, id: str | None = None, time: datetime | None = None) -> EventKey:  # noqa: A002
        """Publish an event, and return its key once it is on disk, on two of them where there are two brokers.

        Many at once (`asyncio.gather`) go in the order of the calls. Cancelled, an event may be published or not.
        """
        return await self.put(event, id, time)

    def put(self, event: Publishable, id: str | None = None, time: datetime | None = None) -> asyncio.Future[EventKey]:  # noqa: A002
        """Hand an event in without waiting: `publish` in two halves. Nothing bounds how many wait to be sent."""
        number = self._sequence
        try:
            return self._publishing.put(self._whole(event, id, time))
        except BaseException:
            self._sequence = number  # what was not taken leaves no gap
            raise

    async def publish_many(self, events: Iterable[Publishable] | AsyncIterable[Publishable]) -> int:
        """Publish many events, in order, with a bounded number on their way; returns how many when all are on disk.

        The first that cannot be published ends it, when those before it have been answered.
        """
        waiting: deque[asyncio.Future[EventKey]] = deque()
        count = 0
        try:
            if isinstance(events, AsyncIterable):
                async for event in events:
                    count += await self._put(event, waiting)
            else:
                for event in events:
                    count += await self._put(event, waiting)
            while waiting:
                await waiting[0]
                waiting.popleft()
        except asyncio.CancelledError:
            for future in waiting:
                future.cancel()
            raise
        except Exception:
            await asyncio.gather(*waiting, return_exceptions=True)
            raise
        return count

    async def _put(self, event: Publishable, waiting: deque[asyncio.Future[EventKey]]) -> int:
        waiting.append(self.put(event))
        while waiting and (waiting[0].done() or len(waiting) >= self.in_flight):
            await waiting[0]
            waiting.popleft()
        if not len(waiting) % 64:
            await asyncio.sleep(0)  # let them go
        return 1

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
        """Subscribe; from its return on, every event that is published and matches comes.

        `durable` is a name in the whole network: what matches waits until it is acknowledged, also while nobody is
        there. If there is one of this name it is taken; with another filter only if `replace` says to change that.
        Without, what matches comes at most once, as long as the client is connected. `ack`: "auto" acknowledges an
        event when the next is asked for, "manual" leaves it to `event.ack()`. `lifetime`: seconds or a timedelta.

        `since`: what was accepted from that moment on comes first, from the archives of brokers, then what is live,
        without a gap and nothing twice. History is not acknowledged: subscribed again, it comes again.
        """
        text = str(filter)
        self.parse(text)
        if ack not in ("auto", "manual"):
            raise NetworkError(f"ack: is {ack!r}; say 'auto' or 'manual'")
        if durable is not None and (not isinstance(durable, str) or not durable):
            raise NetworkError(f"durable: is {durable!r}; give the subscription a name")
        lifetime_us = lifetime_us_of(lifetime)
        since_us = moment_us_of(since, "since")
        terms = SubscriptionOptions(
            durable is not None, self.client if owner is None else owner, labels_of(labels or {}), lifetime_us, paused
        )
        until = None if lifetime_us is None else asyncio.get_running_loop().time() + lifetime_us / 1e6
        self._names += 1
        name = f"{self.publisher}/s{self._names}" if durable is None else durable
        window = window_of(window, EPHEMERAL_WINDOW if durable is None else WINDOW)
        subscription = Subscription(self, name, text, terms, window, ack, until)
        self._subscriptions.add(subscription)
        try:
            if since is None:
                await subscription.begin(replace)
            else:
                await self._begin_since(subscription, replace, since_us)
        except BaseException as error:
            if isinstance(error, RefusedError):
                await self.parse_there(text)
            raise
        return subscription

    async def _begin_since(self, subscription: Subscription, replace: bool, since_us: int) -> None:
        """What comes before the seam is known is history, and need not be held."""
        replay = subscription.replay = Replay(self._asking, subscription.filter, since_us, self.timeout_s)
        await subscription.begin(replace)
        try:
            await replay.extend()
        except BaseException:
            await subscription.close()
            raise

    async def claim(self, subscription: Subscription) -> None:
        """A durable subscription is about to be taken: the one of this client that had the name ends."""
        former = self._durable.get(subscription.name)
        if former is not subscription:
            self._durable[subscription.name] = subscription
            if former is not None:
                await former.close()

    def drop(self, subscription: Subscription) -> None:
        """A subscription is over."""
        self._subscriptions.discard(subscription)
        if self._durable.get(subscription.name) is subscription:
            del self._durable[subscription.name]

    def parse(self, filter_: str) -> Filter:
        """The filter that a text says; FilterError shows where it says none."""
        return parse_filter(filter_)

    async def parse_there(self, filter_: str) -> None:
        """Check a filter that a broker refused against the network's schema: that error shows the place."""
        try:
            schema = await self.schema()
        except NetworkError:
            return
        if schema is not None:
            parse_filter(filter_, schema)

    @staticmethod
    def is_same_filter(one: str, other: str) -> bool:
        """Whether two texts say the same filter."""
        try:
            return one == other or parse_filter(one) == parse_filter(other)
        except FilterError:
            return False

    @staticmethod
    def explain(filter_: str | Filter, event: Event | Delivery | Mapping[str, object]) -> Explanation:
        """Why a filter accepts an event, or why not. No broker is asked."""
        return explain(filter_, event.event if isinstance(event, Delivery) else event)

    # -- asking --------------------------------------------------------------------------------------------------------

    async def subscriptions(
        self, owner: str | None = None, labels: Mapping[str, str] | None = None, *, partial_ok: bool = False
    ) -> list[Held]:
        """All subscriptions of the network by name: of one owner, with all of these labels."""
        return await self._asking.subscriptions(owner, labels, partial_ok)

    async def dead_letters(self, name: str | None = None, *, partial_ok: bool = False) -> list[DeadLetter]:
        """Events that subscribers did not take, of all subscriptions or of one, the oldest first."""
        return await self._asking.dead_letters(name, partial_ok)

    async def discard(self, letter: DeadLetter) -> None:
        """Forget a dead letter."""
        await self._asking.discard(letter)

    async def brokers(self) -> list[Broker]:
        """All brokers, as far as the connected one knows."""
        return await self._asking.brokers()

    async def status(self) -> dict[str, BrokerStatus | None]:
        """By address, how each broker is; None of one that does not answer."""
        return await self._asking.status()

    async def ask_all(
        self, what: Callable[[Peer], Question], wanted: type[W], patience: float = BROKER_S
    ) -> dict[Peer, W | None]:  # fmt: skip
        """Ask each broker one of the questions of `wire.clients`; None of one that takes longer than so many seconds.

        For tools that watch: what programs need has a method of its own.
        """
        return await self._asking.every(what, wanted, patience)

    async def hosted(self) -> dict[Peer, list[Held] | None]:
        """By broker, the subscriptions that it hosts; None of one that does not answer."""
        return await self._asking.hosted(None, None, True)

    def replay(self, filter_: str, since: datetime) -> Replay:
        """What brokers' archives have from a moment on, once `extend` has said up to where."""
        return Replay(self._asking, filter_, moment_us_of(since, "since"), self.timeout_s)

    async def views(self) -> dict[Peer, ViewIs | None]:
        """By broker, what its part of the overlay and the scheme looks like; None of one that does not answer."""
        return await self._asking.views()

    async def follow(self, id: str, seconds: float = 30.0) -> dict[Peer, Stored | None]:  # noqa: A002
        """Have brokers remember, for a while, how an event goes that will be published under this id."""
        return await self._asking.follow(id, seconds)

    async def followed(self, id: str) -> dict[Peer, FollowedIs | None]:  # noqa: A002
        """What brokers have seen of an event that is followed."""
        return await self._asking.followed(id)

    async def locate(self, name: str) -> Located:
        """Which broker hosts a durable subscription, and its filter."""
        return await self._asking.locate(name)

    async def locate_once(self, name: str) -> Located:
        """The same, asked once: NetworkError where it cannot be known now."""
        return await self._asking.locate_once(name)

    async def declare(self, schema: str | Schema) -> None:
        """Add attributes to the network's schema (YAML, or a Schema); what is there already may not change."""
        await self._asking.declare(schema)

    async def schema(self) -> Schema | None:
        """The network's schema, or None."""
        return await self._asking.schema()

    async def progress(self, publisher: str) -> int:
        """The highest sequence that any broker accepted of a publisher of batches, whose name begins with `batch/`.

        All brokers are asked, and must answer: where a batch goes on may not be guessed.
        """
        return await self._asking.progress(publisher)

    async def journal(
        self, id: str | None = None, *, key: EventKey | None = None, partial_ok: bool = False  # noqa: A002
    ) -> list[JournalEntry]:  # fmt: skip
        """What brokers remember of an event by its id or its key: each step, in the order of their clocks."""
        return await self._asking.journal(id, key, partial_ok)


class Connecting:
    """A connection that is about to be made: `async with connect(...) as net`, or `net = await connect(...)`."""

    def __init__(self, dialler: Dialer, timeout_s: float, in_flight: int) -> None:
        self._dialler = dialler
        self._timeout_s = timeout_s
        self._in_flight = in_flight
        self._net: Network | None = None

    def __await__(self) -> Generator[None, None, Network]:
        return self._connect().__await__()

    async def _connect(self) -> Network:
        links = ConnectionPool(self._dialler)
        try:
            await links.main()
        except BaseException:
            await links.close()
            raise
        return Network(links, self._dialler.client, self._timeout_s, self._in_flight)

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

    `mps://` is TLS: `ca` is the file with the certificate of the network's authority, without one the machine's own
    authorities count. `token` is what the client shows at the door, or a function that gives it, called for each
    connection. `client` owns this client's subscriptions. `network` is the name that the network must have. `timeout`
    is how many seconds brokers may take to do what is asked, `in_flight` how many events are sent before the first is
    acknowledged.
    """
    if not isinstance(in_flight, int) or in_flight < 1:
        raise NetworkError(f"in_flight: is {in_flight!r}; give a number from 1 on")
    if not timeout > 0:
        raise NetworkError(f"timeout: is {timeout!r}; give seconds above 0")
    dialler = Dialer(url, client, network=network, token=token, ca=ca)
    return Connecting(dialler, float(timeout), in_flight)
