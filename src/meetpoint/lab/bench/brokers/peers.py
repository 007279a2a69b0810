"""The peers of our brokers: NATS as a firehose, and RabbitMQ's headers exchange.

NATS: every event on one subject, and a client that reads all of them and matches with our index. NATS keeps nothing:
an event that nobody reads at this moment is lost, and no subscriber has a queue. A publisher only waits until the
server has read what it sent (a PING and its PONG for each few events).

RabbitMQ: a subscription is a binding with `x-match: all`, its consumer a durable queue. Bindings are spread evenly over
the consumers' queues; a queue gets an event once, however many of its bindings match. The exchange itself is not kept
over a restart: so it is more than twice as quick to bind, and routing is the same. Events are persistent, publishing is
confirmed, and consumers acknowledge each event.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench.brokers.servers import HOST, run_nats, run_rabbitmq
from meetpoint.lab.bench.brokers.sides import Address, OfferedLoad, OnDelivery, Publisher, filter_text
from meetpoint.language.filters.filter import FilterParser
from meetpoint.matching.index import Index

# -- NATS --------------------------------------------------------------------------------------------------------------


_SUBJECT = "events"
_PENDING_BYTES = 512 * 1024 * 1024
_BATCH_MAX = 256


class NATS:
    """The side of NATS."""

    name = "nats + matcher"
    kept = "nowhere"

    @contextmanager
    def servers(self, folder: Path) -> Iterator[Address]:
        with run_nats(folder) as port:
            yield (f"{HOST}:{port}",)

    @asynccontextmanager
    async def receiving(self, address: Address, offered: OfferedLoad, seen: OnDelivery) -> AsyncIterator[None]:
        parser = FilterParser()
        texts = enumerate(map(filter_text, offered.subscriptions))
        index: Index[int] = Index.from_filters((number, parser.parse(text)) for number, text in texts)
        index.match_batch([next(offered.events("warm"))] * 2)
        async with _connected_to_nats(address) as client:
            subscription = await client.subscribe(_SUBJECT, pending_msgs_limit=-1, pending_bytes_limit=_PENDING_BYTES)
            await client.flush()
            reading = asyncio.create_task(_read(subscription, index, seen))
            try:
                yield
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    @asynccontextmanager
    async def publishing(self, address: Address) -> AsyncIterator[Publisher]:
        async with _connected_to_nats(address) as client:
            publisher = _NATSPublisher(client)
            try:
                yield publisher
            finally:
                await publisher.close()

    def targets(self, offered: OfferedLoad, matched: list[int]) -> int:
        return len(matched)


async def _read(subscription: Any, index: Index[int], seen: OnDelivery) -> None:
    """Match all messages that have come in the meantime together."""
    decode = msgspec.msgpack.Decoder(tuple[int, int, dict[str, str]]).decode
    pending = subscription._pending_queue  # what has come and was not asked for yet: there is no other way to see it
    while True:
        messages = [await subscription.next_msg(timeout=None)]
        while len(messages) < _BATCH_MAX and not pending.empty():
            messages.append(await subscription.next_msg(timeout=None))
        events = [decode(message.data) for message in messages]
        matches = index.match_batch([attributes for _, _, attributes in events])
        for (number, sent, _), matched in zip(events, matches, strict=True):
            for name in matched:
                seen(number, sent, name)


class _NATSPublisher:
    """A publisher that asks the server from time to time whether it has read everything."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._encode = msgspec.msgpack.Encoder().encode
        self._unread: list[asyncio.Future[None]] = []
        self._outgoing: list[bytes] = []
        self._woken = asyncio.Event()
        self._task = asyncio.create_task(self._send())

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outgoing.append(self._encode((number, monotonic_ns(), event)))
        self._unread.append(future)
        self._woken.set()
        return future

    async def _send(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            outgoing, unread = self._outgoing, self._unread
            self._outgoing, self._unread = [], []
            for data in outgoing:
                await self._client.publish(_SUBJECT, data)
            await self._client.flush(timeout=60)
            for future in unread:
                if not future.done():
                    future.set_result(None)

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def _connected_to_nats(address: Address) -> AsyncIterator[Any]:
    import nats

    client = await nats.connect(f"nats://{address[0]}")
    try:
        yield client
    finally:
        await client.close()


# -- RabbitMQ ----------------------------------------------------------------------------------------------------------


_EXCHANGE = "meetpoint-bench"
_PREFETCH = 256
_BATCH = 500
_BODY = struct.Struct("<qq96x")
"""The event's number and its time of sending, padded to the length of our events."""


class RabbitMQ:
    """The side of RabbitMQ."""

    name = "rabbitmq"
    kept = "disk"

    @contextmanager
    def servers(self, folder: Path) -> Iterator[Address]:
        with run_rabbitmq(folder) as port:
            yield (f"{HOST}:{port}",)

    @asynccontextmanager
    async def receiving(self, address: Address, offered: OfferedLoad, seen: OnDelivery) -> AsyncIterator[None]:
        async with _connected_to_rabbitmq(address) as connection:
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
    async def publishing(self, address: Address) -> AsyncIterator[Publisher]:
        async with _connected_to_rabbitmq(address) as connection:
            publisher = _RabbitMQPublisher(await _channel(connection))
            await publisher.prepare()
            yield publisher

    def targets(self, offered: OfferedLoad, matched: list[int]) -> int:
        return len({number % offered.consumers for number in matched})


class _RabbitMQPublisher:
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
                _resolve(future)
            return
        if future_ := self._waiting.pop(method.delivery_tag, None):
            _resolve(future_)
        while self._unconfirmed and self._unconfirmed[0][1].done():
            self._unconfirmed.popleft()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _consume(connection: Any, consumer: int, seen: OnDelivery) -> None:
    channel = await _channel(connection)
    await _done(channel.basic_qos, prefetch_count=_PREFETCH)

    def received(on: Any, method: Any, _properties: Any, body: bytes) -> None:
        number, sent = _BODY.unpack(body)
        seen(number, sent, consumer)
        on.basic_ack(method.delivery_tag)

    channel.basic_consume(f"queue-{consumer}", received)


@asynccontextmanager
async def _connected_to_rabbitmq(address: Address) -> AsyncIterator[Any]:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Any] = loop.create_future()
    closed: asyncio.Future[None] = loop.create_future()
    host, port = address[0].rsplit(":", 1)

    def lost(_connection: Any, reason: object) -> None:
        if not opened.done():
            opened.set_exception(MeetpointError(f"RabbitMQ at {address[0]} is not reached: {reason}"))
        _resolve(closed)

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
    """Call a function that reports its end by a callback, and wait for that."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(*arguments, callback=answered.set_result, **named)
    await answered
