"""A subscription as its client holds it: it stays attached to the broker that hosts it, wherever that is.

Durable: matching events wait at a broker until they are acknowledged. When the connection is lost, events that have
come and were not handed out yet are dropped, since all of them come again, marked; events that were handed out may
still be acknowledged, at the broker that hosts the subscription by then. Ephemeral: the subscription lives as long as
the connection and is made anew on another; events between the two are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Detach,
    NodeRequest,
    Reject,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Update,
)
from meetpoint.client.arguments import Lifetime, labels_of, lifetime_us_of
from meetpoint.client.connection import Connection, IncomingMessage
from meetpoint.client.connection_pool import Backoff
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import ConnectionLostError, NetworkError, RefusedError
from meetpoint.client.replay import Replay
from meetpoint.errors import EventError, FilterError
from meetpoint.language.filters.filter import parse_filter

if TYPE_CHECKING:
    from meetpoint.client.network import Network

__all__ = ["EPHEMERAL_WINDOW", "WINDOW", "Ack", "Subscription"]

Ack: TypeAlias = Literal["auto", "manual"]

WINDOW = 256
"""The number of events of a durable subscription that come before the first is acknowledged."""
EPHEMERAL_WINDOW = 10_000
"""The number of events of an ephemeral subscription that wait to be read; more are dropped and counted."""
RECENT_IDS_MAX = 20_000
"""The number of event ids that a subscription remembers, to mark a repeat that the broker could not know of."""
CLOSE_S = 2.0

_log = logging.getLogger("meetpoint.client")


class Subscription:
    """A subscription. `async for event in subscription` reads it, until it ends. `Network.subscribe` makes it.

    >>> async for event in subscription.events(timeout=1):  # doctest: +SKIP
    ...     print(event["price"], event.redelivered)
    """

    def __init__(
        self,
        net: Network,
        name: str,
        filter_: str,
        options: SubscriptionOptions,
        window: int,
        ack: Ack,
        until: float | None,
    ) -> None:
        self.name = name
        self.filter = filter_
        self.durable = options.durable
        self.window = window
        self.ack = ack
        self.ended: str | None = None
        """The reason why nothing more comes, such as the end of its lifetime; None while the subscription lives."""
        self.dropped = 0
        """The number of events of an ephemeral subscription that were not read in time."""
        self._net = net
        self._options = options
        self._until = until
        self._loop = asyncio.get_running_loop()
        self._wire_name = name
        self._created = 0
        self._host: Peer | None = None
        self._connection: Connection | None = None
        self._has_attached = False
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._queue: OrderedDict[EventKey, tuple[Connection, IncomingMessage]] = OrderedDict()
        self._recent_ids: OrderedDict[str, None] = OrderedDict()
        self._unsent_acks: dict[EventKey, None] = {}
        self._task: asyncio.Task[None] | None = None
        self.replay: Replay | None = None
        """The history that is read first, if `since` asked for it."""

    def __repr__(self) -> str:
        kind = "durable" if self.durable else "ephemeral"
        if self.ended is not None:
            state = f"ended: {self.ended}"
        elif self.is_attached and self._host is not None:
            state = f"{'paused' if self._options.paused else 'attached'} at {self._host.address}"
        else:
            state = "not attached"
        return (
            f"<{type(self).__name__} {self.name!r} {kind} {state} filter={self.filter!r} "
            f"waiting={self.waiting} dropped={self.dropped}>"
        )

    # -- reading -------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return _Reader(self, None)

    def events(self, timeout: float | None = None) -> AsyncIterator[Delivery]:
        """Iterate over the events, until the subscription ends or none has come for `timeout` seconds.

        >>> async for event in subscription.events(timeout=1):  # doctest: +SKIP
        ...     print(event["price"])
        122
        """
        return _Reader(self, timeout)

    @property
    def waiting(self) -> int:
        """The number of events that have come and were not read yet."""
        return len(self._queue)

    @property
    def is_attached(self) -> bool:
        """Whether a broker delivers its events now."""
        return self._has_attached and self._connection is not None and self._connection.is_open

    async def next_(self) -> Delivery | None:
        """Wait for the next event; None when the subscription has ended. A cancelled call loses no event."""
        while True:
            if self.replay is not None and (found := await self._next_of_history(self.replay)) is not None:
                return found
            if (delivery := self.poll()) is not None:
                return delivery
            if self.ended is not None:
                return None
            self._arrived.clear()
            await self._arrived.wait()

    def poll(self) -> Delivery | None:
        """Return the next event that has come already; None where there is none, or history is read first."""
        if self.replay is not None and not self.replay.is_over:
            return None
        while self._queue:
            key, (connection, message) = self._queue.popitem(last=False)
            try:
                event = message.event
            except EventError as error:
                self._send(Reject(key, (self._wire_name,), str(error)), connection)
                continue
            if self.replay is not None and self.replay.covers(key, event):
                self._skip(key, connection)
                continue
            again = message.notification.redelivered or event.id in self._recent_ids
            self._recent_ids[event.id] = None
            self._recent_ids.move_to_end(event.id)
            if len(self._recent_ids) > RECENT_IDS_MAX:
                self._recent_ids.popitem(last=False)
            return Delivery(event, key, message.names, again, self, connection)
        return None

    async def _next_of_history(self, replay: Replay) -> Delivery | None:
        while not replay.is_over:
            found = await replay.next()
            if found is not None:
                delivery = Delivery(found.event, found.key, (self.name,), False, self, None)
                delivery.is_acknowledged = True  # no broker waits for that
                return delivery
            if replay.has_gap:
                await replay.extend()
                continue
            for key in [key for key in self._queue if replay.has_read(key)]:
                self._skip(key, self._queue.pop(key)[0])
        return None

    def _skip(self, key: EventKey, connection: Connection) -> None:
        """Acknowledge an event that came as history, so that it does not come again."""
        self._send(Acknowledge(key, (self._wire_name,)), connection)

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def acknowledge_nowait(self, delivery: Delivery) -> None:
        """Acknowledge without waiting; where no broker can be told now, when one can."""
        if delivery.is_acknowledged or not self.durable:
            return
        delivery.is_acknowledged = True
        self._queue.pop(delivery.key, None)
        self._send(Acknowledge(delivery.key, (self._wire_name,)), delivery.connection)

    def _send(self, what: Acknowledge | Reject, connection: Connection | None) -> None:
        if connection is None or not connection.is_open:
            if self._connection is None or not self._connection.is_open:
                if isinstance(what, Acknowledge) and self.ended is None:
                    self._unsent_acks[what.event] = None
                return
            connection = self._connection
        connection.notify(what)

    async def acknowledge(self, delivery: Delivery, reason: str | None) -> None:
        """Acknowledge, or reject for a reason, and wait until the broker has noted it."""
        if delivery.is_acknowledged or not self.durable:
            return
        names = (self._wire_name,)
        what = Acknowledge(delivery.key, names) if reason is None else Reject(delivery.key, names, reason)
        delivery.is_acknowledged = True
        self._queue.pop(delivery.key, None)
        if self.ended is not None:
            self._send(what, delivery.connection)  # without an answer: no connection stands for the subscription now
            return
        try:
            await self._request(what, delivery.connection)
        except BaseException:
            delivery.is_acknowledged = False
            raise

    # -- changing ------------------------------------------------------------------------------------------------------

    async def update(
        self,
        filter: str | None = None,  # noqa: A002 - as everywhere in the client
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: Lifetime = None,
    ) -> None:
        """Change the filter, the labels or the lifetime (which counts from now on); None leaves each as it is.

        Raises FilterError where the filter is wrong, RefusedError where the broker refuses the change, NetworkError
        where it was not done in time.

        >>> await subscription.update("price > 130", lifetime=3600)  # doctest: +SKIP
        """
        if filter is not None:
            parse_filter(filter)
        new_labels = None if labels is None else labels_of(labels)
        lifetime_us = lifetime_us_of(lifetime)
        try:
            await self._request(Update(self._wire_name, filter, new_labels, lifetime_us))
        except RefusedError:
            if filter is not None:
                await self._net.parse_by_schema(filter)
            raise
        if filter is not None:
            self.filter = filter
        if new_labels is not None:
            self._options = msgspec.structs.replace(self._options, labels=new_labels)
        if lifetime_us is not None:
            self._until = self._loop.time() + lifetime_us / 1e6

    async def pause(self) -> None:
        """Pause: matching events wait (those of an ephemeral subscription are lost). Events that came may be read.

        >>> await subscription.pause()  # doctest: +SKIP
        """
        await self._pause(True)

    async def resume(self) -> None:
        """Go on after a pause, with the events that waited first."""
        await self._pause(False)

    async def _pause(self, paused: bool) -> None:
        await self._request(Update(self._wire_name, paused=paused))
        self._options = msgspec.structs.replace(self._options, paused=paused)

    async def unsubscribe(self) -> None:
        """End the subscription for good, with all events that wait for it.

        >>> await subscription.unsubscribe()  # doctest: +SKIP
        """
        if self.ended is None:
            await self._request(Unsubscribe(self._wire_name))
            self._queue.clear()
            self.finish("it was unsubscribed")
        await self._stop()

    async def close(self) -> None:
        """Read no more. A durable subscription stays; events without an acknowledgement go to its next client."""
        connection, was = self._connection, self.ended
        self.finish("it was closed")
        self._queue.clear()
        await self._stop()
        if was is None and connection is not None and connection.is_open:
            connection.subscribers.pop(self._wire_name, None)
            what = Detach(self._wire_name) if self.durable else Unsubscribe(self._wire_name)
            try:
                async with asyncio.timeout(CLOSE_S):
                    await connection.request(what)
            except (TimeoutError, NetworkError):
                pass  # the broker finds out by itself that no client is attached

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _request(self, what: NodeRequest, connection: Connection | None = None) -> None:
        """Send a request to the host until it is done or the time is over; the host may change meanwhile."""
        backoff = Backoff()
        problem = "no broker hosts it now"
        try:
            async with asyncio.timeout(self._net.timeout_s):
                while True:
                    if connection is None or not connection.is_open:
                        connection = await self._wait_attached()
                    try:
                        word = await connection.request(what)
                    except ConnectionLostError as error:
                        problem = str(error)
                    else:
                        if isinstance(word, Stored):
                            return
                        if isinstance(word, Refused) and not word.retry:
                            raise RefusedError(word.reason)
                        problem = word.reason if isinstance(word, Refused) else "another answer came"
                        connection = None
                    await backoff.wait()
        except TimeoutError:
            raise NetworkError(
                f"subscription {self.name}: not done within {self._net.timeout_s:g} s: {problem}; try again later"
            ) from None

    async def _wait_attached(self) -> Connection:
        while True:
            if self.ended is not None:
                raise NetworkError(f"subscription {self.name}: {self.ended}; subscribe again")
            if self._has_attached and self._connection is not None and self._connection.is_open:
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    # -- called by connections -----------------------------------------------------------------------------------------

    def on_event(self, connection: Connection, message: IncomingMessage) -> None:
        """Queue an event."""
        if self.ended is not None:
            return
        key, replay = message.key, self.replay
        if key in self._unsent_acks:
            return  # it is acknowledged already; the broker learns it as soon as it can be told
        if replay is not None and replay.is_over and replay.has_read(key):
            self._skip(key, connection)
            return
        if len(self._queue) >= self.window:
            if not self.durable and replay is not None and not replay.is_over:
                replay.has_gap = True
            elif not self.durable:
                if not self.dropped:
                    _log.warning("subscription %s: events are dropped, they come faster than they are read", self.name)
                self.dropped += 1
            return  # a durable one comes again
        self._queue.setdefault(key, (connection, message))
        self._arrived.set()

    def on_ended(self, connection: Connection, reason: str, moved: bool) -> None:
        """Note that the broker delivers no more."""
        if connection is self._connection:
            if moved:  # a durable one is located again, an ephemeral one is made anew
                self.on_lost(connection)
            else:
                self.finish(reason)

    def on_lost(self, connection: Connection) -> None:
        """Note that the connection is lost, or that the subscription has moved."""
        if connection is self._connection:
            self._connection, self._has_attached = None, False
            if self.durable:
                self._queue.clear()  # all of it comes again
            self._changed.set()

    def finish(self, reason: str) -> None:
        """End: nothing more comes; events that have come may be read."""
        if self.ended is None:
            self.ended = reason
            if self._connection is not None:
                self._connection.subscribers.pop(self._wire_name, None)
            self._unsent_acks.clear()
            self._net.drop(self)
        self._arrived.set()
        self._changed.set()

    # -- staying attached ----------------------------------------------------------------------------------------------

    async def begin(self, replace: bool) -> None:
        """Make the subscription, or take over the one that exists; after that it stays attached by itself."""
        backoff = Backoff()
        problem = "no broker could be asked"
        try:
            async with asyncio.timeout(self._net.timeout_s):
                while True:
                    try:
                        if await (self._take_over_or_create(replace) if self.durable else self._create()):
                            break
                        problem = "the broker that hosts it could not be asked"
                    except RefusedError:
                        raise
                    except NetworkError as error:
                        problem = str(error)
                    await backoff.wait()
        except TimeoutError:
            self.finish("it was never made")
            raise NetworkError(
                f"subscription {self.name}: not made within {self._net.timeout_s:g} s: {problem}; try again later"
            ) from None
        except BaseException as error:
            self.finish(str(error))
            raise
        self._task = self._loop.create_task(self._run(), name=f"meetpoint subscription {self.name}")

    async def _run(self) -> None:
        try:
            await self._stay_attached()
        except Exception as error:
            _log.exception("subscription %s is lost", self.name)
            self.finish(f"the client failed at it: {error!r}")

    async def _stay_attached(self) -> None:
        backoff = Backoff()
        while self.ended is None:
            if self._connection is not None:
                backoff.reset()
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                if await (self._reattach() if self.durable else self._create()):
                    continue
            except RefusedError as error:
                self.finish(str(error))
            except NetworkError as error:
                _log.debug("subscription %s: %s", self.name, error)
            await backoff.wait()

    async def _create(self) -> bool:
        """Create an ephemeral subscription at the broker that requests go to, each time under a new name."""
        options = self._options
        if self._until is not None:
            left = self._until - self._loop.time()
            if left <= 0:
                self.finish("its lifetime is over")
                return True
            options = msgspec.structs.replace(options, lifetime_us=max(1, int(left * 1e6)))
        connection = await self._net.connections.main()
        self._created += 1
        self._wire_name = self.name if self._created == 1 else f"{self.name}~{self._created}"
        return await self._attach(connection, Subscribe(self._wire_name, self.filter, options))

    async def _take_over_or_create(self, replace: bool) -> bool:
        """Take over the durable subscription of this name, or create it at the broker that requests go to."""
        located = await self._net.locate_once(self.name)
        if located.host is None:
            connection = await self._net.connections.main()
            return await self._attach(connection, Subscribe(self.name, self.filter, self._options))
        is_same = _is_same_filter(located.filter, self.filter)
        if not is_same and not replace:
            raise RefusedError(
                f"subscription {self.name}: there is one with the filter {located.filter}; "
                "take another name, or say replace=True to change its filter"
            )
        change = Update(
            self.name,
            None if is_same else self.filter,
            self._options.labels or None,
            self._options.lifetime_us,
        )
        self._host = located.host
        connection = await self._net.connections.to(located.host)
        return await self._attach(connection, None if change == Update(self.name) else change)

    async def _reattach(self) -> bool:
        """Attach a durable subscription again: at its last host, or else at the one that it has now."""
        former, self._host = self._host, None
        if former is not None:
            connection = self._net.connections.open_to(former)
            if connection is not None and await self._attach(connection, None):
                return True
        located = await self._net.locate_once(self.name)
        if located.host is None:
            self.finish("there is no subscription of this name any more")
            return True
        return await self._attach(await self._net.connections.to(located.host), None)

    async def _attach(self, connection: Connection, first: Subscribe | Update | None) -> bool:
        """Attach at a broker, after the request `first`. Return whether the subscription is there."""
        name = self._wire_name
        if self.durable:
            await self._net.claim(self)
        connection.subscribers[name] = self
        self._connection = connection
        try:
            requests: list[Subscribe | Update | Attach] = [] if first is None else [first]
            if self.durable:  # an ephemeral one is attached by its creation
                requests.append(Attach(name, self.window))
            for key in self._unsent_acks:
                connection.notify(Acknowledge(key, (name,)))
            for what in requests:
                word = await connection.request(what)
                if isinstance(word, Refused):
                    if not word.retry and what is first:
                        raise RefusedError(word.reason)
                    self._detach(connection)
                    return False
        except BaseException:
            self._detach(connection)
            raise
        if self._connection is not connection:
            return False  # lost meanwhile
        self._unsent_acks.clear()
        self._host = connection.broker
        self._has_attached = True
        self._changed.set()
        return True

    def _detach(self, connection: Connection) -> None:
        if connection.subscribers.get(self._wire_name) is self:
            del connection.subscribers[self._wire_name]
        self.on_lost(connection)

    async def _stop(self) -> None:
        if self.replay is not None:
            self.replay.close()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})


class _Reader:
    """A reader of a subscription. Several share its events; each acknowledges the events that it was given."""

    def __init__(self, subscription: Subscription, timeout_s: float | None) -> None:
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._last: Delivery | None = None

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Delivery:
        subscription = self._subscription
        if self._last is not None and subscription.ack == "auto":
            subscription.acknowledge_nowait(self._last)
        self._last = None
        try:
            async with asyncio.timeout(self._timeout_s):
                self._last = await subscription.next_()
        except TimeoutError:
            self._last = None
        if self._last is None:
            raise StopAsyncIteration
        return self._last


def _is_same_filter(one: str, other: str) -> bool:
    try:
        return one == other or parse_filter(one) == parse_filter(other)
    except FilterError:
        return False
