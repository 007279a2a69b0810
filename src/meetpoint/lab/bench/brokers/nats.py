"""NATS as a firehose: every event on one subject, and a client that reads all of them and matches with our index.

NATS keeps nothing: an event that nobody reads at this moment is lost, and no subscriber has a queue. What a publisher
waits for here is only that the server has read what it sent (a PING and its PONG for each few events).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec

from meetpoint.lab.bench.brokers.offered import Offered, filter_text
from meetpoint.lab.bench.brokers.servers import HOST, run_nats
from meetpoint.lab.bench.brokers.sides import Address, Publishing, Seen
from meetpoint.language.filters.filter import FilterParser
from meetpoint.matching.index import Index

__all__ = ["NATS"]

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
    async def receiving(self, address: Address, offered: Offered, seen: Seen) -> AsyncIterator[None]:
        parser = FilterParser()
        texts = enumerate(map(filter_text, offered.subscriptions))
        index: Index[int] = Index.from_filters((number, parser.parse(text)) for number, text in texts)
        index.match_batch([next(offered.events("warm"))] * 2)
        async with _connected(address) as client:
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
    async def publishing(self, address: Address) -> AsyncIterator[Publishing]:
        async with _connected(address) as client:
            publisher = _Publisher(client)
            try:
                yield publisher
            finally:
                await publisher.close()

    def targets(self, offered: Offered, matched: list[int]) -> int:
        return len(matched)


async def _read(subscription: Any, index: Index[int], seen: Seen) -> None:
    """Whatever has come in the meantime is matched together."""
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


class _Publisher:
    """Publishes, and from time to time asks the server whether it has read all of it."""

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
async def _connected(address: Address) -> AsyncIterator[Any]:
    import nats

    client = await nats.connect(f"nats://{address[0]}")
    try:
        yield client
    finally:
        await client.close()
