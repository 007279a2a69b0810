"""One connection to one broker: the handshake, questions and answers, notifications.

What is said in one turn of the loop goes out together. A link that hears nothing for a while asks something small, and
takes a broker that stays silent for lost: a process that is stopped, or behind a partition, keeps its sockets open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from meetpoint.api.client_messages import TO_CLIENTS, Ask, Ended, GoAway, Notification, Question, SchemaOf, Told, Word
from meetpoint.api.codec import Codec, WireError
from meetpoint.api.frames import FrameReader, frame, frames
from meetpoint.api.handshake import HANDSHAKE_VERSION, SPOKEN, Hello, HelloRejected, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.client.errors import ConnectionLostError, NetworkError, RefusedError
from meetpoint.client.incoming_message import IncomingMessage
from meetpoint.errors import one_line

__all__ = ["Connection", "Listener", "Then"]

TICK_S = 2.5
"""How often a link looks whether it has heard anything; if not, it asks."""
SILENT_TICKS_MAX = 4
"""After so many of them in silence the broker is lost."""

_CODEC = Codec((Welcome, HelloRejected, *TO_CLIENTS))

Then = Callable[[Word | None], None]
"""What is called with an answer, or with None when the link is lost and none will come."""


class Listener(Protocol):
    """Who takes the notifications of one name."""

    @property
    def name(self) -> str:
        """The name by which its user knows it; on the wire it may have another one."""

    def take(self, link: Connection, arrival: IncomingMessage) -> None:
        """An event came."""

    def end(self, link: Connection, reason: str, moved: bool) -> None:
        """Nothing more comes from here."""

    def lose(self, link: Connection) -> None:
        """The link is lost."""


class Connection(asyncio.Protocol):
    """A connection that is open, or was."""

    def __init__(self, hello: Hello, address: str) -> None:
        self.address = address
        """As it was dialled."""
        self.broker: Peer
        """Who it leads to, once the handshake is over."""
        self.listeners: dict[str, Listener] = {}
        self.is_open = False
        self.is_closing = False
        """Whether the broker has said that it stops: it answers what it was asked, and is to be asked nothing new."""
        self.is_closed_here = False
        self.others: tuple[str, ...] = ()
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
        self._waiting: dict[int, Then] = {}
        self._out: list[bytes] = []
        self._silent = 0
        self._tick: asyncio.TimerHandle | None = None
        self._why = "the broker closed the connection"

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, what: Question, then: Then) -> None:
        """Ask, and be told later: never before this returns."""
        if not self.is_open:
            self._loop.call_soon(then, None)
            return
        self._requests += 1
        self._waiting[self._requests] = then
        self._say(Ask(self._requests, what))

    def tell(self, what: Question) -> None:
        """Ask for something whose answer nobody waits for."""
        if self.is_open:
            self._say(Ask(0, what))

    async def asked(self, what: Question) -> Word:
        """Ask, and wait for the answer; LinkLostError where none will come."""
        future: asyncio.Future[Word] = self._loop.create_future()

        def then(word: Word | None) -> None:
            if future.done():
                return
            if word is None:
                future.set_exception(ConnectionLostError(f"broker {self.address}: {self._why}"))
            else:
                future.set_result(word)

        self.ask(what, then)
        return await future

    def _say(self, message: Message) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(_CODEC.encode(message))

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(frames(out, self._version))

    async def close(self) -> None:
        """Say what is still to be said, and close."""
        if self._transport is not None:
            self.is_closed_here = self.is_open
            self._flush()
            self._transport.close()
            if not self._closed.done():
                done, _ = await asyncio.wait({self._closed}, timeout=1.0)
                if not done:
                    self._transport.abort()
                    await asyncio.wait({self._closed}, timeout=1.0)

    def abort(self, why: str) -> None:
        """Close at once."""
        self._why = why
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(frame(_CODEC.encode(self._hello), HANDSHAKE_VERSION))

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._silent = 0
        try:
            if not self._version:
                for piece in self._reader.feed(data, 1):
                    self._begin(_CODEC.decode(piece))
                data = b""
            if self._version:
                for piece in self._reader.feed(data):
                    for message in _CODEC.decode_frame(piece, self._version, _pass_over):
                        self._hear(message)
        except WireError as error:
            self.abort(f"the broker sent {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over: whoever waits is told."""
        if exc is not None:
            self._why = f"the connection broke ({exc})"
        self.is_open = False
        if self._tick is not None:
            self._tick.cancel()
        if not self._welcomed.done():
            self._welcomed.set_exception(NetworkError(f"broker {self.address}: {self._why}, before it said welcome"))
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(None)
        listeners, self.listeners = self.listeners, {}
        for listener in listeners.values():
            listener.lose(self)
        for hear in self.on_lost:
            hear()
        if not self._closed.done():
            self._closed.set_result(None)

    # -- what is heard -------------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        match message:
            case Welcome(version, _, broker) if SPOKEN[0] <= version <= SPOKEN[1]:
                self.broker = broker
                self._version = self._reader.version = version
                self.is_open = True
                self._tick = self._loop.call_later(TICK_S, self._look)
                if not self._welcomed.done():
                    self._welcomed.set_result(None)
            case Welcome(version, _, _):
                self.abort(f"it speaks version {version}, and this client {SPOKEN[0]} to {SPOKEN[1]}; install another")
            case HelloRejected(reason, retry):
                self._why = reason
                kind = NetworkError if retry else RefusedError
                if not self._welcomed.done():
                    self._welcomed.set_exception(kind(f"broker {self.address}: {one_line(reason)}"))
            case _:
                self.abort("it does not begin with a welcome; is it a Meetpoint broker of this version?")

    def _hear(self, message: Message) -> None:
        match message:
            case Notification():
                found = [self.listeners.get(name) for name in message.names]
                known = zip(message.names, found, strict=True)
                arrival = IncomingMessage(
                    message, tuple(name if taker is None else taker.name for name, taker in known)
                )
                for taker in found:
                    if taker is not None:
                        taker.take(self, arrival)
            case Told(request, word):
                if (then := self._waiting.pop(request, None)) is not None:
                    then(word)
            case Ended(name, reason, moved):
                if (listener := self.listeners.pop(name, None)) is not None:
                    listener.end(self, reason, moved)
            case GoAway(_, others):
                self.is_closing, self.others = True, others
                for hear in self.on_closing:
                    hear()

    def _look(self) -> None:
        self._silent += 1
        if self._silent > SILENT_TICKS_MAX:
            self.abort(f"the broker said nothing for {SILENT_TICKS_MAX * TICK_S:g} s")
            return
        if self._silent > 1:
            self.ask(SchemaOf(), _nothing)
        self._tick = self._loop.call_later(TICK_S, self._look)

    async def wait_welcome(self) -> None:
        """Until the handshake is over; NetworkError where the client is not welcome."""
        await self._welcomed


def _nothing(_: Word | None) -> None:
    """Nobody waits."""


def _pass_over(_: WireError) -> None:
    """A message of a kind that is unknown here, from a newer broker: it is not for this client."""
