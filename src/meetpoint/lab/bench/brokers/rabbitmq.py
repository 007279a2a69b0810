"""RabbitMQ's headers exchange: a subscription is a binding with `x-match: all`, its consumer a durable queue.

Bindings are spread evenly over the consumers' queues; a queue gets an event once, however many of its bindings match.
The exchange itself is not kept over a restart: so it is more than twice as quick to bind, and routing is the same.
Events are persistent, publishing is confirmed, and consumers acknowledge each event.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench.brokers.offered import Offered
from meetpoint.lab.bench.brokers.servers import HOST, run_rabbitmq
from meetpoint.lab.bench.brokers.sides import Address, Publishing, Seen

__all__ = ["RabbitMQ"]

_EXCHANGE = "meetpoint-bench"
_PREFETCH = 256
_BATCH = 500
_BODY = struct.Struct("<qq96x")
"""The event's number and when it was sent, and as many bytes more as make it as long as our events are."""


class RabbitMQ:
    """The side of RabbitMQ."""

    name = "rabbitmq"
    kept = "disk"

    @contextmanager
    def servers(self, folder: Path) -> Iterator[Address]:
        with run_rabbitmq(folder) as port:
            yield (f"{HOST}:{port}",)

    @asynccontextmanager
    async def receiving(self, address: Address, offered: Offered, seen: Seen) -> AsyncIterator[None]:
        async with _connected(address) as connection:
            channel = await _channel(connection)
            await _done(channel.exchange_declare, exchange=_EXCHANGE, exchange_type="headers", durable=False)
            for consumer in range(offered.consumers):
                queue = f"queue-{consumer}"
                await _done(channel.queue_declare, queue=queue, durable=True)
                for at, (_, subscription) in enumerate(offered.of(consumer), 1):
                    arguments = {"x-match": "all", **dict(subscription)}
                    channel.queue_bind(queue, _EXCHANGE, arguments=arguments)  # nobody waits for the answer
                    if at % _BATCH == 0:
                        await _done(channel.queue_declare, queue=queue, passive=True)
                await _done(channel.queue_declare, queue=queue, passive=True)
            for consumer in range(offered.consumers):
                await _consume(connection, consumer, seen)
            yield

    @asynccontextmanager
    async def publishing(self, address: Address) -> AsyncIterator[Publishing]:
        async with _connected(address) as connection:
            publisher = _Publisher(await _channel(connection))
            await publisher.prepare()
            yield publisher

    def targets(self, offered: Offered, matched: list[int]) -> int:
        return len({number % offered.consumers for number in matched})


class _Publisher:
    """Confirmed publishing: RabbitMQ confirms by number, one or all up to one."""

    def __init__(self, channel: Any) -> None:
        import pika

        self._channel = channel
        self._properties = partial(pika.BasicProperties, delivery_mode=2)
        self._unconfirmed: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._sent = 0

    async def prepare(self) -> None:
        await _done(self._channel.confirm_delivery, self._confirmed)

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        self._sent += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self._sent] = future
        self._unconfirmed.append((self._sent, future))
        self._channel.basic_publish(
            _EXCHANGE, "", _BODY.pack(number, monotonic_ns()), self._properties(headers=dict(event))
        )
        return future

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if method.multiple:
            while self._unconfirmed and self._unconfirmed[0][0] <= method.delivery_tag:
                tag, future = self._unconfirmed.popleft()
                self._waiting.pop(tag, None)
                _settle(future)
            return
        if future_ := self._waiting.pop(method.delivery_tag, None):
            _settle(future_)
        while self._unconfirmed and self._unconfirmed[0][1].done():
            self._unconfirmed.popleft()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _consume(connection: Any, consumer: int, seen: Seen) -> None:
    channel = await _channel(connection)
    await _done(channel.basic_qos, prefetch_count=_PREFETCH)

    def received(on: Any, method: Any, _properties: Any, body: bytes) -> None:
        number, sent = _BODY.unpack(body)
        seen(number, sent, consumer)
        on.basic_ack(method.delivery_tag)

    channel.basic_consume(f"queue-{consumer}", received)


@asynccontextmanager
async def _connected(address: Address) -> AsyncIterator[Any]:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Any] = loop.create_future()
    closed: asyncio.Future[None] = loop.create_future()
    host, port = address[0].rsplit(":", 1)

    def lost(_connection: Any, reason: object) -> None:
        if not opened.done():
            opened.set_exception(MeetpointError(f"RabbitMQ at {address[0]} is not reached: {reason}"))
        _settle(closed)

    connection = AsyncioConnection(
        pika.ConnectionParameters(host, int(port), heartbeat=0),
        on_open_callback=opened.set_result, on_open_error_callback=lost, on_close_callback=lost, custom_ioloop=loop,
    )  # fmt: skip
    await opened
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()
            await closed


async def _channel(connection: Any) -> Any:
    opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    connection.channel(on_open_callback=opened.set_result)
    return await opened


async def _done(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """Call something that tells by a callback when it is done."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(*arguments, callback=answered.set_result, **named)
    await answered
