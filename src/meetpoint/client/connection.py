"""A connection to a broker: the handshake, requests with their responses, notifications.

Messages of one turn of the event loop are written together. A connection that hears nothing for a while sends a small
request, and gives up a broker that stays silent: a process that is stopped, or behind a partition, keeps its sockets
open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from meetpoint.api.client_messages import (
    TO_CLIENTS,
    Ended,
    GoAway,
    Notification,
    Request,
    RequestBody,
    Response,
    ResponseBody,
    SchemaRequest,
)
from meetpoint.api.codec import Codec, FrameReader, WireError, frame, frames
from meetpoint.api.handshake import HANDSHAKE_VERSION, SPOKEN, Hello, HelloRejected, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.client.errors import ConnectionLostError, NetworkError, RefusedError
from meetpoint.errors import one_line
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["Connection", "IncomingMessage", "ResponseCallback", "Subscriber"]

TICK_S = 2.5
"""The interval at which a connection checks whether it has heard anything; if not, it sends a request."""
SILENT_TICKS_MAX = 4
"""After so many of them in silence the broker is given up."""

_CODEC = Codec((Welcome, HelloRejected, *TO_CLIENTS))

ResponseCallback = Callable[[ResponseBody | None], None]
"""A function that is called with a response, or with None when the connection is lost before it came."""


class IncomingMessage:
    """A notification as it arrived. Its event is decoded once, for all subscriptions that it is for."""

    __slots__ = ("_event", "key", "names", "notification")

    def __init__(self, notification: Notification, names: tuple[str, ...]) -> None:
        self.notification = notification
        self.key = notification.event
        self.names = names
        """The subscriptions' names, as their users know them."""
        self._event: Event | None = None

    @property
    def event(self) -> Event:
        """The event; EventError where its bytes are none."""
        if self._event is None:
            self._event = from_msgpack(self.notification.content)
        return self._event


class Subscriber(Protocol):
    """A receiver of the notifications of one name."""

    @property
    def name(self) -> str:
        """The name by which the user knows it; on the wire it may have another one."""

    def on_event(self, connection: Connection, message: IncomingMessage) -> None:
        """Take an event."""

    def on_ended(self, connection: Connection, reason: str, moved: bool) -> None:
        """Note that the broker delivers no more; where the subscription has moved, another one does."""

    def on_lost(self, connection: Connection) -> None:
        """Note that the connection is lost."""


class Connection(asyncio.Protocol):
    """A connection to a broker, open or closed."""

    def __init__(self, hello: Hello, address: str) -> None:
        self.address = address
        """The address that was dialled."""
        self.broker: Peer
        """The broker at the other end, once the handshake is over."""
        self.subscribers: dict[str, Subscriber] = {}
        self.is_open = False
        self.is_closing = False
        """Whether the broker has announced that it stops: it answers earlier requests, and takes no new ones."""
        self.is_closed_here = False
        self.others: tuple[str, ...] = ()
        """The addresses of other brokers, which a broker that stops has named."""
        self.on_closing: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._welcomed: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._version = 0
        self._requests = 0
        self._callbacks: dict[int, ResponseCallback] = {}
        self._out: list[bytes] = []
        self._silent = 0
        self._tick: asyncio.TimerHandle | None = None
        self._problem = "the broker closed the connection"

    def __repr__(self) -> str:
        state = "closing" if self.is_closing and self.is_open else "open" if self.is_open else "closed"
        return f"<Connection {self.address} {state}>"

    # -- requests ------------------------------------------------------------------------------------------------------

    def request_nowait(self, what: RequestBody, callback: ResponseCallback) -> None:
        """Send a request. The callback is never called before this returns."""
        if not self.is_open:
            self._loop.call_soon(callback, None)
            return
        self._requests += 1
        self._callbacks[self._requests] = callback
        self._send(Request(self._requests, what))

    def notify(self, what: RequestBody) -> None:
        """Send a request that wants no response."""
        if self.is_open:
            self._send(Request(0, what))

    async def request(self, what: RequestBody) -> ResponseBody:
        """Send a request and wait for the response; ConnectionLostError where none will come."""
        future: asyncio.Future[ResponseBody] = self._loop.create_future()

        def respond(word: ResponseBody | None) -> None:
            if future.done():
                return
            if word is None:
                future.set_exception(ConnectionLostError(f"broker {self.address}: {self._problem}"))
            else:
                future.set_result(word)

        self.request_nowait(what, respond)
        return await future

    def _send(self, message: Message) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(_CODEC.encode(message))

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(frames(out, self._version))

    async def close(self) -> None:
        """Write what is still buffered, and close."""
        if self._transport is not None:
            self.is_closed_here = self.is_open
            self._flush()
            self._transport.close()
            if not self._closed.done():
                done, _ = await asyncio.wait({self._closed}, timeout=1.0)
                if not done:
                    self._transport.abort()
                    await asyncio.wait({self._closed}, timeout=1.0)

    def abort(self, problem: str) -> None:
        """Close at once."""
        self._problem = problem
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(frame(_CODEC.encode(self._hello), HANDSHAKE_VERSION))

    def data_received(self, data: bytes) -> None:
        """Decode what came, and handle each message."""
        self._silent = 0
        try:
            if not self._version:
                # one frame only: what follows the welcome has the version that it names
                for piece in self._reader.feed(data, 1):
                    self._begin(_CODEC.decode(piece))
                data = b""
            if self._version:
                for piece in self._reader.feed(data):
                    for message in _CODEC.decode_frame(piece, self._version, _skip):
                        self._handle(message)
        except WireError as error:
            self.abort(f"the broker sent {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone who waits."""
        if exc is not None:
            self._problem = f"the connection broke ({exc})"
        self.is_open = False
        if self._tick is not None:
            self._tick.cancel()
        if not self._welcomed.done():
            self._welcomed.set_exception(
                NetworkError(f"broker {self.address}: {self._problem}, before it said welcome")
            )
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback(None)
        subscribers, self.subscribers = self.subscribers, {}
        for subscriber in subscribers.values():
            subscriber.on_lost(self)
        for hook in self.on_lost:
            hook()
        if not self._closed.done():
            self._closed.set_result(None)

    # -- incoming messages ---------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        match message:
            case Welcome(version, _, broker) if SPOKEN[0] <= version <= SPOKEN[1]:
                self.broker = broker
                self._version = self._reader.version = version
                self.is_open = True
                self._tick = self._loop.call_later(TICK_S, self._check_silence)
                if not self._welcomed.done():
                    self._welcomed.set_result(None)
            case Welcome(version, _, _):
                self.abort(f"it speaks version {version}, and this client {SPOKEN[0]} to {SPOKEN[1]}; install another")
            case HelloRejected(reason, retry):
                self._problem = reason
                kind = NetworkError if retry else RefusedError
                if not self._welcomed.done():
                    self._welcomed.set_exception(kind(f"broker {self.address}: {one_line(reason)}"))
            case _:
                self.abort("it does not begin with a welcome; is it a Meetpoint broker of this version?")

    def _handle(self, message: Message) -> None:
        match message:
            case Notification():
                found = [self.subscribers.get(name) for name in message.names]
                known = zip(message.names, found, strict=True)
                incoming = IncomingMessage(message, tuple(name if each is None else each.name for name, each in known))
                for subscriber in found:
                    if subscriber is not None:
                        subscriber.on_event(self, incoming)
            case Response(request, word):
                if (callback := self._callbacks.pop(request, None)) is not None:
                    callback(word)
            case Ended(name, reason, moved):
                if (subscriber := self.subscribers.pop(name, None)) is not None:
                    subscriber.on_ended(self, reason, moved)
            case GoAway(_, others):
                self.is_closing, self.others = True, others
                for hook in self.on_closing:
                    hook()

    def _check_silence(self) -> None:
        self._silent += 1
        if self._silent > SILENT_TICKS_MAX:
            self.abort(f"the broker said nothing for {SILENT_TICKS_MAX * TICK_S:g} s")
            return
        if self._silent > 1:
            self.request_nowait(SchemaRequest(), _ignore)  # any request will do: its response ends the silence
        self._tick = self._loop.call_later(TICK_S, self._check_silence)

    async def wait_welcome(self) -> None:
        """Wait until the handshake is over; NetworkError where the broker rejects it."""
        await self._welcomed


def _ignore(_: ResponseBody | None) -> None:
    """Drop a response that nobody waits for."""


def _skip(_: WireError) -> None:
    """Skip a message of an unknown kind: a newer broker sends it to newer clients."""
