"""The ways to other brokers.

A link leads one way: each broker dials every broker that it has something to say to, and reads what others dial. A
link is dialled when the first message is to go, and again when a message is to go after it broke; in between a little
time passes, so that a broker that is down is not dialled without end. What cannot be sent is dropped: whoever sent it
says it again. Only so many bytes wait for one broker.

The node is told (`Lost`) of a broker that refuses, is another one by now, or whose link breaks. A suspicion is against
one incarnation; so whoever is dialled tells the dialler of each that it comes to (`IAm`), as the dialler does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from meetpoint.errors import MeetpointError
from meetpoint.net.config import Address, BrokerConfig, parse_address
from meetpoint.net.connection import HANDSHAKE, Connection, Turn
from meetpoint.net.logs import Log
from meetpoint.net.metrics import Counts
from meetpoint.protocol.inputs import Input, Lost, Received
from meetpoint.protocol.messages import Message, Peer
from meetpoint.protocol.ring import NodeId
from meetpoint.wire import Codec, WireError
from meetpoint.wire.codec import MESSAGE_MAX
from meetpoint.wire.handshake import Hello, IAm, Unwelcome, Welcome

__all__ = ["Inlet", "Links", "Refusal", "dial"]

BACKOFF_S_MIN: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
UNUSED_S: Final = 120.0
"""A link that is not open is forgotten after so long."""
_BIND_WITHOUT_PORT: Final = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


class Refusal(Exception):  # noqa: N818 - it is no error of anybody's here
    """The broker that was dialled will not speak with this one."""

    def __init__(self, reason: str, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


async def dial(
    config: BrokerConfig, turn: Turn, address: str, hello: Hello, welcomed: Callable[[Connection, Welcome], None]
) -> Connection:
    """Connect to a broker and say hello. OSError, TimeoutError or Refusal where that does not succeed."""
    loop = turn.loop
    answer: asyncio.Future[None] = loop.create_future()
    role = _Calling(answer, welcomed)
    sock = await asyncio.wait_for(_connect(loop, parse_address(address, "address"), config), config.limits.dial_s)
    try:
        _, connection = await loop.create_connection(lambda: Connection(turn, config.limits, role.on), sock=sock)
    except BaseException:
        sock.close()
        raise
    connection.say(HANDSHAKE.encode(hello))
    try:
        await asyncio.wait_for(answer, config.limits.handshake_s)
    except BaseException:
        connection.abort("no welcome")
        raise
    return connection


async def _connect(loop: asyncio.AbstractEventLoop, to: Address, config: BrokerConfig) -> socket.socket:
    """A socket that comes from the address that this broker listens at, where that is a certain one."""
    problem: OSError | None = None
    for family, kind, proto, _, target in await loop.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM):
        try:
            return await _connect_to(loop, socket.socket(family, kind, proto), target, config)
        except OSError as error:
            problem = problem or error
    raise problem or OSError(f"{to.host} has no address")


async def _connect_to(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, target: Any, config: BrokerConfig
) -> socket.socket:
    try:
        sock.setblocking(False)
        own = parse_address(config.listen, "listen").host
        family = sock.family
        if family == socket.AF_INET and _is_certain(own, family):
            sock.setsockopt(socket.IPPROTO_IP, _BIND_WITHOUT_PORT, 1)
            sock.bind((own, 0))
        elif family == socket.AF_INET6 and _is_certain(own, family):
            sock.bind((own, 0))
        await loop.sock_connect(sock, target)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_certain(host: str, family: socket.AddressFamily) -> bool:
    try:
        packed = socket.inet_pton(family, host)
    except OSError:
        return False
    return any(packed)


class _Calling:
    """The dialler's side of a handshake."""

    def __init__(self, answer: asyncio.Future[None], welcomed: Callable[[Connection, Welcome], None]) -> None:
        self._answer = answer
        self._welcomed = welcomed
        self._connection: Connection

    def on(self, connection: Connection) -> _Calling:
        self._connection = connection
        return self

    def take(self, message: Message) -> None:
        if self._answer.done():
            return
        if isinstance(message, Welcome):
            try:
                self._welcomed(self._connection, message)
            except Refusal as refusal:
                self._answer.set_exception(refusal)
            else:
                self._answer.set_result(None)
        elif isinstance(message, Unwelcome):
            self._answer.set_exception(Refusal(message.reason, message.retry))
        else:
            self._answer.set_exception(Refusal("what answers there is no broker", retry=False))

    def refused(self, error: WireError) -> None:
        if not self._answer.done():
            self._answer.set_exception(Refusal(f"what answers there is no broker: {error}", retry=False))

    def closed(self, reason: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionResetError(f"it was closed before the welcome: {reason}"))

    def drained(self) -> None:
        pass


class Link:
    """The way to one address."""

    def __init__(self, links: Links, address: str, to: Peer) -> None:
        self._links = links
        self.address = address
        self._to = to
        self._said = links.me
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff_s = BACKOFF_S_MIN
        self._closed_at = 0.0
        self.used_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether what is sent goes out at once."""
        return self._connection is not None

    @property
    def queued_bytes(self) -> int:
        """How much waits."""
        return self._pending_bytes if self._connection is None else self._connection.queued_bytes

    def send(self, to: Peer, data: bytes) -> None:
        """Say something."""
        if to is not self._to:
            if to.id != self._to.id:
                self._change(to)
            self._to = to
        connection = self._connection
        if connection is not None:
            if connection.is_full and connection.queued_bytes > self._links.queue_max:
                self._links.counts.totals["dropped_to_peers"] += 1
            else:
                connection.say(data)
            return
        if not self._pending:
            self._said = self._links.me
        if self._pending_bytes > self._links.queue_max:
            self._links.counts.totals["dropped_to_peers"] += 1
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._task is None and self._timer is None:
            self._dial()

    def became(self, me: Peer) -> None:
        """What is said from now on is said under another incarnation."""
        data = HANDSHAKE.encode(IAm(me))
        if self._connection is not None:
            self._connection.say(data)
        elif self._pending or self._task is not None:
            self._pending.append(data)

    def _change(self, to: Peer) -> None:
        """Another broker has this address: what was to be said to the former one is not for it."""
        self._drop()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close("the address is another broker's")

    # -- dialling ------------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._timer = None
        self._task = self._links.turn.loop.create_task(self._connect())

    async def _connect(self) -> None:
        config = self._links.config
        hello = Hello(config.wire_versions, config.network, self._said, way=config.way)
        try:
            await dial(config, self._links.turn, self.address, hello, self._welcomed)
        except (OSError, TimeoutError, Refusal, MeetpointError, UnicodeError) as error:
            self._task = None
            self._failed(error)

    def _welcomed(self, connection: Connection, message: Welcome) -> None:
        if message.broker.id != self._to.id:
            raise Refusal(f"another broker answers there: {message.broker.address}", retry=True)
        self._task = None
        self._connection = connection
        self._backoff_s = BACKOFF_S_MIN
        connection.begin(message.version, HANDSHAKE, _Outlet(self, message.broker))
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for data in pending:
            connection.say(data)

    def _failed(self, error: Exception) -> None:
        """Nobody, or nobody who wants to hear this, is there."""
        reason = str(error) or type(error).__name__
        level = logging.WARNING if isinstance(error, Refusal) else logging.DEBUG
        self._links.log.say(level, "peer_unreachable", address=self.address, reason=reason)
        self._broken(self._to)

    def lost(self, reached: Peer, reason: str) -> None:
        """The link has broken."""
        if self._connection is None:
            return
        self._connection = None
        self._links.log.say(logging.INFO, "peer_lost", address=self.address, reason=reason)
        self._broken(reached)

    def _broken(self, peer: Peer) -> None:
        self._drop()
        if self._links.is_closed:
            return
        wait_s, self._backoff_s = self._backoff_s, min(BACKOFF_S_MAX, self._backoff_s * 2)
        self._timer = self._links.turn.loop.call_later(wait_s, self._waited)
        self._links.hand(Lost(peer))

    def _waited(self) -> None:
        self._timer = None
        if self._pending:
            self._dial()

    def _drop(self) -> None:
        self._links.counts.totals["dropped_to_peers"] += len(self._pending)
        self._pending = []
        self._pending_bytes = 0

    def close(self) -> asyncio.Task[None] | None:
        """No more; what is being dialled is returned, cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("this broker stops")
        if self._task is not None:
            self._task.cancel()
        return self._task

    def look(self, now: float) -> bool:
        """Called now and then; whether the link may be forgotten."""
        if self._connection is not None:
            self._connection.look(now)
            self._closed_at = now
            return False
        if self._pending or self._task is not None:
            self._closed_at = now
        return now - self._closed_at > UNUSED_S and self._timer is None


class _Outlet:
    """The dialler's side of an open link: nothing comes but word of who is there."""

    def __init__(self, link: Link, reached: Peer) -> None:
        self._link = link
        self._reached = reached

    def take(self, message: Message) -> None:
        if isinstance(message, IAm) and message.peer.id == self._reached.id:
            self._reached = message.peer

    def refused(self, error: WireError) -> None:
        pass

    def closed(self, reason: str) -> None:
        self._link.lost(self._reached, reason)

    def drained(self) -> None:
        pass


class Links:
    """All ways to other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        turn: Turn,
        codec: Codec,
        counts: Counts,
        log: Log,
        me: Peer,
        hand: Callable[[Input], None],
    ) -> None:
        self.config = config
        self.turn = turn
        self.counts = counts
        self.log = log
        self.me = me
        self.hand = hand
        self.queue_max = config.limits.peer_queue_bytes
        self.is_closed = False
        self._encode = codec.encode
        self._links: dict[str, Link] = {}
        self.inlets: dict[Connection, Inlet] = {}

    def send(self, to: Peer, message: Message) -> None:
        """Send a message to a peer."""
        link = self._links.get(to.address)
        if link is None:
            if self.is_closed or not to.address:
                return
            link = self._links[to.address] = Link(self, to.address, to)
        try:
            data = self._encode(message)
        except OverflowError:  # a number that a liar sent, and one more
            self.counts.wire_errors["unwritable"] += 1
            return
        if len(data) > MESSAGE_MAX:
            self.counts.wire_errors["oversized"] += 1
            self.log.say(logging.ERROR, "message_too_long", kind=type(message).__name__, bytes=len(data))
            return
        self.counts.totals["messages_out"] += 1
        link.send(to, data)

    def became(self, me: Peer) -> None:
        """This broker has come to a new incarnation."""
        self.me = me
        for link in self._links.values():
            link.became(me)
        data = HANDSHAKE.encode(IAm(me))
        for connection in self.inlets:
            connection.say(data)

    def look(self, now: float) -> None:
        """Called now and then: close what stalls, forget what is not used."""
        for address in [address for address, link in self._links.items() if link.look(now)]:
            del self._links[address]
        for connection in list(self.inlets):
            connection.look(now)

    async def close(self) -> None:
        """No more."""
        self.is_closed = True
        tasks = [task for link in self._links.values() if (task := link.close()) is not None]
        for connection in list(self.inlets):
            connection.close("this broker stops")
        if tasks:
            await asyncio.wait(tasks)

    @property
    def queued_bytes(self) -> int:
        """How much waits for all of them."""
        return sum(link.queued_bytes for link in self._links.values())

    @property
    def open(self) -> int:
        """How many lead somewhere."""
        return sum(link.is_open for link in self._links.values())


class Inlet:
    """What another broker dialled: what it says goes to the node."""

    def __init__(self, links: Links, connection: Connection, source: Peer) -> None:
        self._links = links
        self._connection = connection
        self._source = source
        self._totals = links.counts.totals
        links.inlets[connection] = self

    @property
    def source(self) -> NodeId:
        """Who speaks."""
        return self._source.id

    def take(self, message: Message) -> None:
        """A message of a peer."""
        if type(message) is IAm:
            if message.peer.id == self._source.id:
                self._source = message.peer
            else:
                self._connection.close("it says that it is another broker")
            return
        self._totals["messages_in"] += 1
        self._links.hand(Received(self._source, message))

    def refused(self, error: WireError) -> None:
        """What is no message is counted; other messages of the same connection may be good."""
        self._links.counts.wire_errors[error.kind] += 1

    def closed(self, reason: str) -> None:
        """The peer has closed it, or is gone: whoever has something to say to it will notice."""
        self._links.inlets.pop(self._connection, None)

    def drained(self) -> None:
        """Nothing waits."""
