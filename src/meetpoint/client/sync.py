"""The client without asyncio: every call waits. For scripts, and for notebooks, whose event loop it does not use.

>>> with connect_sync("mp://localhost:7400") as net:  # doctest: +SKIP
...     sub = net.subscribe("price > 120")
...     net.publish({"price": 121})
...     for event in sub.events(timeout=1):
...         print(event["price"])

The asynchronous client runs in a thread of its own. Each method here is the one of `Network`, `Subscription` or
`Delivery` with the same signature, run there and waited for here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from meetpoint.api.ids import EventId, Peer
from meetpoint.client.connection_pool import Token
from meetpoint.client.delivery import DeliveredEvent, Delivery
from meetpoint.client.errors import NetworkError
from meetpoint.client.network import TIMEOUT_S, Connecting, Network, Publishable, connect
from meetpoint.client.publisher import IN_FLIGHT
from meetpoint.client.subscription import Subscription

__all__ = ["Background", "SyncDelivery", "SyncNetwork", "SyncSubscription", "connect_sync"]

STOP_S = 10.0

P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)
W = TypeVar("W")


class Background:
    """An asyncio loop in a thread of its own, until it is stopped; it does not keep the program alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)

    @property
    def is_running(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine there, and wait for it here. An interrupt here cancels it there."""
        if not self.is_running:
            coroutine.close()
            raise NetworkError("this client is closed; connect again")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise NetworkError("this would wait for itself: use the asynchronous client inside a loop's callbacks")
        future: Future[R] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NetworkError("this client was closed meanwhile; connect again") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a function there, and do not wait."""
        if self.is_running:
            self._loop.call_soon_threadsafe(functools.partial(function, *args, **kwargs))

    def stop(self) -> None:
        """Cancel all tasks, and end the thread."""
        if not self.is_running:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()


# -- the same methods, waited for --------------------------------------------------------------------------------------


class _Waiting(Generic[T_co]):
    """An asynchronous object, and the thread that it lives in."""

    _inner: T_co
    _background: Background

    def __repr__(self) -> str:
        return repr(self._inner).replace(type(self._inner).__name__, type(self).__name__, 1)


def _forwarded(method: Callable[Concatenate[T_co, P], R]) -> Callable[Concatenate[_Waiting[T_co], P], R]:
    """Forward a method that does not wait, with the same parameters, docstring and result."""

    @functools.wraps(method)
    def forward(self: _Waiting[T_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._inner, *args, **kwargs)

    forward.__doc__ = _without_asyncio(method.__doc__)
    return forward


def _without_asyncio(text: str | None) -> str:
    return re.sub(r"\b(?:await|async) ", "", text or "")  # or the examples could not be run here


@overload
def _waited(
    method: Callable[Concatenate[T_co, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Waiting[T_co], P], R]: ...
@overload
def _waited(
    method: Callable[Concatenate[T_co, P], Coroutine[Any, Any, R]], result: Callable[[R, Background], W]
) -> Callable[Concatenate[_Waiting[T_co], P], W]: ...
def _waited(
    method: Callable[Concatenate[T_co, P], Coroutine[Any, Any, R]], result: Callable[[R, Background], W] | None = None
) -> Callable[Concatenate[_Waiting[T_co], P], R | W]:
    """Make an asynchronous method one that waits, with the same parameters and docstring.

    `result` is the class here of an asynchronous object that the method returns.
    """

    @functools.wraps(method)
    def wait(self: _Waiting[T_co], /, *args: P.args, **kwargs: P.kwargs) -> R | W:
        found = self._background.run(method(self._inner, *args, **kwargs))
        return found if result is None else result(found, self._background)

    wait.__doc__ = _without_asyncio(method.__doc__)
    if isinstance(result, type):
        annotated = inspect.signature(method).replace(return_annotation=result.__name__)
        wait.__signature__ = annotated  # type: ignore[attr-defined]  # help() shows it
    return wait


class SyncDelivery(_Waiting[Delivery], DeliveredEvent):
    """An event that matched a subscription; `ack` and `nack` wait."""

    def __init__(self, delivery: Delivery, background: Background) -> None:
        super().__init__(delivery.event, delivery.key, delivery.matched_by, delivery.redelivered)
        self._inner = delivery
        self._background = background

    ack = _waited(Delivery.ack)
    nack = _waited(Delivery.nack)


class SyncSubscription(_Waiting[Subscription]):
    """A subscription. `for event in subscription.events(timeout=1)` reads it; see `Subscription`."""

    def __init__(self, subscription: Subscription, background: Background) -> None:
        self._inner = subscription
        self._background = background

    @property
    def name(self) -> str:
        """The name in the whole network."""
        return self._inner.name

    @property
    def filter(self) -> str:
        """The filter, as it is now."""
        return self._inner.filter

    @property
    def ended(self) -> str | None:
        """The reason why nothing more comes; None while the subscription lives."""
        return self._inner.ended

    @property
    def dropped(self) -> int:
        """The number of events of an ephemeral subscription that were not read in time."""
        return self._inner.dropped

    def events(self, timeout: float | None = None) -> Iterator[SyncDelivery]:
        """Iterate over the events, until the subscription ends or none has come for `timeout` seconds.

        >>> for event in sub.events(timeout=1):  # doctest: +SKIP
        ...     print(event["price"])
        122
        """
        reader = self._inner.events(timeout)
        while (delivery := self._background.run(_next(reader))) is not None:
            yield SyncDelivery(delivery, self._background)

    def __iter__(self) -> Iterator[SyncDelivery]:
        return self.events()

    update = _waited(Subscription.update)
    pause = _waited(Subscription.pause)
    resume = _waited(Subscription.resume)
    unsubscribe = _waited(Subscription.unsubscribe)
    close = _waited(Subscription.close)

    def __enter__(self) -> SyncSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncNetwork(_Waiting[Network]):
    """A network of brokers as one client sees it; see `Network`. `connect_sync` makes it."""

    def __init__(self, connecting: Connecting) -> None:
        self._background = Background("meetpoint client")
        try:
            self._inner = self._background.run(_connected(connecting))
        except BaseException:
            self._background.stop()
            raise

    @property
    def client(self) -> str:
        """The owner of this client's subscriptions."""
        return self._inner.client

    @property
    def publisher(self) -> str:
        """The publisher of this client's events."""
        return self._inner.publisher

    @property
    def broker(self) -> Peer | None:
        """The broker that is connected now."""
        return self._inner.broker

    def close(self) -> None:
        """Close all connections, and end the thread. Durable subscriptions stay; ephemeral ones end."""
        if self._background.is_running:
            try:
                self._background.run(self._inner.close())
            finally:
                self._background.stop()

    def __enter__(self) -> SyncNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish_many(self, events: Iterable[Publishable]) -> list[EventId]:
        """Publish many events, in order, with a bounded number on their way; return their ids when all are stored.

        The iterable is read in the caller's thread: it may be slow, or block. The first event that cannot be published
        ends it. See `Network.publish_many`.

        >>> len(net.publish_many({"n": n} for n in range(1000)))  # doctest: +SKIP
        1000
        """
        return _PublishMany(self._inner, self._background).publish(events)

    event = _forwarded(Network.event)
    explain = staticmethod(Network.explain)
    publish = _waited(Network.publish)
    subscribe = _waited(Network.subscribe, SyncSubscription)
    subscriptions = _waited(Network.subscriptions)
    dead_letters = _waited(Network.dead_letters)
    discard = _waited(Network.discard)
    brokers = _waited(Network.brokers)
    status = _waited(Network.status)
    hosted = _waited(Network.hosted)
    views = _waited(Network.views)
    follow = _waited(Network.follow)
    followed = _waited(Network.followed)
    locate = _waited(Network.locate)
    declare = _waited(Network.declare)
    schema = _waited(Network.schema)
    journal = _waited(Network.journal)


class _PublishMany:
    """A call of `publish_many`: the caller's thread reads events, the loop publishes them."""

    def __init__(self, net: Network, background: Background) -> None:
        self._net = net
        self._background = background
        self._room = threading.Semaphore(net.in_flight)
        self._futures: list[asyncio.Future[EventId]] = []
        self._problems: list[BaseException] = []

    def publish(self, events: Iterable[Publishable]) -> list[EventId]:
        """Publish all events; the first that cannot be published ends it."""
        try:
            for event in events:
                self._acquire()
                if self._problems:
                    self._room.release()
                    break
                self._background.call(self._publish_next, event)
        except Exception:
            self._wait_for_all()
            raise
        self._wait_for_all()
        if self._problems:
            raise self._problems[0]
        return [future.result() for future in self._futures]

    def _wait_for_all(self) -> None:
        for _ in range(self._net.in_flight):
            self._acquire()

    def _acquire(self) -> None:
        while not self._room.acquire(timeout=1.0):
            if not self._background.is_running:
                raise NetworkError("this client was closed meanwhile; connect again")

    def _publish_next(self, event: Publishable) -> None:
        try:
            future = self._net.publish_nowait(event)
        except Exception as error:
            self._problems.append(error)
            self._room.release()
        else:
            self._futures.append(future)
            future.add_done_callback(self._on_done)

    def _on_done(self, future: asyncio.Future[EventId]) -> None:
        if future.cancelled():
            self._problems.append(NetworkError("this client was closed meanwhile; connect again"))
        elif (problem := future.exception()) is not None:
            self._problems.append(problem)
        self._room.release()


async def _connected(connecting: Connecting) -> Network:
    return await connecting


async def _next(reader: AsyncIterator[Delivery]) -> Delivery | None:
    return await anext(reader, None)


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
    """Connect to a network of brokers, without asyncio; close it, or use it by `with`.

    See `connect` for the parameters and errors.

    >>> with connect_sync("mp://localhost:7400") as net:  # doctest: +SKIP
    ...     net.publish({"price": 121})
    """
    return SyncNetwork(connect(url, client, network=network, token=token, ca=ca, timeout=timeout, in_flight=in_flight))
