"""Brokers on loopback on virtual time, and a client that sends exactly the frames that a test wants sent."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from meetpoint.api.client_messages import TO_CLIENTS, Notification, Request, RequestBody, Response, ResponseBody
from meetpoint.api.codec import Codec, FrameReader, frames
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import Attach, Publish, Subscribe, SubscriptionOptions
from meetpoint.broker import Broker, BrokerConfig
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.schemes.meet import MeetSettings
from tests.virtual_time import run

__all__ = [
    "FROM_BROKER",
    "HANDSHAKE",
    "PATIENCE_S",
    "Caller",
    "broker",
    "calling",
    "config",
    "event",
    "network",
    "raw",
    "run",
    "until",
]

M = TypeVar("M")

PATIENCE_S = 120.0
HANDSHAKE = Codec((Hello, Welcome, HelloRejected, NewIncarnation))
FROM_BROKER = Codec(TO_CLIENTS)


def config(**said: Any) -> BrokerConfig:
    """A broker on any free port, without HTTP."""
    quick = MeetSettings(lease_us=500_000)  # a home that has just got arcs places nothing before a lease is over
    return BrokerConfig(**{"listen": "127.0.0.1:0", "admin": None, "meet": quick, **said})


@contextlib.asynccontextmanager
async def broker(**said: Any) -> AsyncIterator[Broker]:
    """Run a broker that is ready."""
    one = Broker(config(**said))
    await one.start()
    try:
        await one.wait_ready(PATIENCE_S)
        yield one
    finally:
        await one.stop()


@contextlib.asynccontextmanager
async def network(count: int, **said: Any) -> AsyncIterator[list[Broker]]:
    """Some brokers that have found together."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Broker] = []
        for _ in range(count):
            join = (found[0].address,) if found else ()
            found.append(await stack.enter_async_context(broker(join=join, **said)))
        yield found


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    for _ in range(int(PATIENCE_S / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"not in {PATIENCE_S} s: {what}")


def event(number: int, **attributes: Any) -> bytes:
    """An event with a number."""
    said = Event(f"e{number}", "test", number, datetime(2026, 1, 1, tzinfo=UTC), attributes)
    return to_msgpack(said)


class Caller:
    """A raw connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader()
        self.codec = HANDSHAKE
        self.version = 1
        self.number = 0
        self.inbox: list[Message] = []

    def send(self, *messages: Message) -> None:
        """Write messages as they are."""
        encode = self.codec.encode
        self.writer.write(frames([encode(message) for message in messages], self.version))

    async def read(self) -> bool:
        """Take what comes; False at the end."""
        data = await asyncio.wait_for(self.reader.read(1 << 18), PATIENCE_S)
        for piece in self.frames.feed(data):
            self.inbox += self.codec.decode_frame(piece, self.version, _unexpected)
        return bool(data)

    async def next(self, kind: type[M], matching: Callable[[M], bool] = lambda message: True) -> M:
        """The next message of a kind; others stay."""
        while True:
            for position, message in enumerate(self.inbox):
                if isinstance(message, kind) and matching(message):
                    del self.inbox[position]
                    return message
            assert await self.read(), f"closed while a {kind.__name__} was expected; there are {self.inbox}"

    async def ended(self) -> bool:
        """Return whether the broker closes, sooner or later."""
        with contextlib.suppress(ConnectionError):
            while await self.read():
                pass
        return True

    def ask(self, what: RequestBody) -> int:
        """Ask, and go on."""
        self.number += 1
        self.send(Request(self.number, what))
        return self.number

    async def told(self, number: int) -> ResponseBody:
        """The answer to a question."""
        return (await self.next(Response, lambda message: message.request == number)).word

    async def get(self, what: RequestBody) -> ResponseBody:
        """Ask, and wait for the answer."""
        return await self.told(self.ask(what))

    async def subscribe(self, name: str, filter_: str, *, durable: bool = True, window: int = 256) -> None:
        """Subscribe, and take what comes."""
        subscribed = self.ask(Subscribe(name, filter_, SubscriptionOptions(durable=durable)))
        present = self.ask(Attach(name, window))
        for number in (subscribed, present):
            word = await self.told(number)
            assert type(word).__name__ == "Stored", word

    async def publish(self, *events: bytes) -> list[ResponseBody]:
        """Publish, all at once, and wait for all answers."""
        numbers = [self.ask(Publish(each)) for each in events]
        return [await self.told(number) for number in numbers]

    async def notified(self, count: int) -> list[Notification]:
        """The next so many notifications."""
        return [await self.next(Notification) for _ in range(count)]

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


def _unexpected(error: Exception) -> None:
    raise error


@contextlib.asynccontextmanager
async def raw(address: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Caller]:
    """A connection on which nothing has been said; with a context it is TLS."""
    host, port = address.rsplit(":", 1)
    caller = Caller(*await asyncio.open_connection(host, int(port), ssl=context))
    try:
        yield caller
    finally:
        caller.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await caller.writer.wait_closed()


@contextlib.asynccontextmanager
async def calling(
    address: str,
    *,
    speaks: tuple[int, int] = (1, 2),
    peer: Peer | None = None,
    client: str = "tester",
    token: str = "",
) -> AsyncIterator[Caller]:
    """A client, or a broker, that was welcomed. A client with a token is whose it is."""
    async with raw(address) as caller:
        client = "" if peer is not None or token else client
        caller.send(Hello(speaks, "" if peer is None else "meetpoint", peer, client, token))
        welcome = await caller.next(Welcome)
        caller.version = caller.frames.version = welcome.version
        caller.codec = FROM_BROKER
        yield caller
