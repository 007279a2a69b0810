"""The door: one port for brokers and clients, and the first words of both."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from meetpoint.catalog import difference, make_link_codec
from meetpoint.net.config import Address, BrokerConfig
from meetpoint.net.connection import HANDSHAKE, Connection, Role, Turn
from meetpoint.net.errors import BrokerError
from meetpoint.net.links import Inlet, Links
from meetpoint.net.metrics import Counts
from meetpoint.net.sessions import CLIENT_CODEC, Clients, Session
from meetpoint.protocol.messages import Message, Peer
from meetpoint.wire import WireError
from meetpoint.wire.handshake import Hello, Unwelcome, Welcome

__all__ = ["Door", "listen_at"]

_LINK_CODEC = make_link_codec()
BACKLOG = 1024


def listen_at(address: Address, what: str) -> socket.socket:
    """A socket that listens; says which address, where it cannot."""
    try:
        family, kind, proto, _, target = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except (OSError, UnicodeError) as error:
        raise BrokerError(f"{what} {address}: {error}; give an address of this machine") from None
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(target)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise BrokerError(f"{what} {address}: {reason}; choose another one, or port 0 for any that is free") from None
    return sock


class Door:
    """Lets brokers and clients in."""

    def __init__(
        self, config: BrokerConfig, turn: Turn, counts: Counts, links: Links, clients: Clients, me: Callable[[], Peer]
    ) -> None:
        self.config = config
        self.turn = turn
        self.counts = counts
        self.links = links
        self.clients = clients
        self.me = me
        self._server: asyncio.Server | None = None
        self._waiting: dict[Connection, None] = {}
        self.is_closing = False

    async def open(self, sock: socket.socket) -> None:
        """Let them come."""
        self._server = await self.turn.loop.create_server(self._connection, sock=sock, backlog=BACKLOG)

    def _connection(self) -> Connection:
        return Connection(self.turn, self.config.limits, self._greeting)

    def _greeting(self, connection: Connection) -> Role:
        self._waiting[connection] = None
        return _Greeting(self, connection)

    def greeted(self, connection: Connection) -> None:
        """The handshake is over, well or not."""
        self._waiting.pop(connection, None)

    def shut(self) -> None:
        """Nobody new comes in."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._waiting):
            connection.abort("this broker stops")


class _Greeting:
    """The handshake of whoever is dialled."""

    def __init__(self, door: Door, connection: Connection) -> None:
        self._door = door
        self._connection = connection
        wait_s = door.config.limits.handshake_s
        self._timer = door.turn.loop.call_later(wait_s, self._too_late)

    def _too_late(self) -> None:
        self._door.counts.totals["connections_refused"] += 1
        self._connection.abort("it did not say who it is")

    def take(self, message: Message) -> None:
        """The first message."""
        self._end()
        if isinstance(message, Hello):
            problem = self._problem(message)
            if problem is None:
                self._welcome(message)
            else:
                self._refuse(*problem)
        else:
            self._refuse("say hello first", False)

    def _problem(self, hello: Hello) -> tuple[str, bool] | None:
        config, me = self._door.config, self._door.me()
        low, high = config.wire_versions
        if hello.speaks[0] > hello.speaks[1] or hello.speaks[0] > high or hello.speaks[1] < low:
            theirs = f"{hello.speaks[0]} to {hello.speaks[1]}"
            return f"you speak versions {theirs}, this broker {low} to {high}; update the older side", False
        if hello.network != config.network and (hello.network or hello.peer is not None):
            return f"this broker is of the network {config.network!r}, not of {hello.network!r}", False
        if self._door.is_closing:
            return "this broker stops; ask another", True
        if hello.peer is None:
            if len(self._door.clients.sessions) >= config.limits.clients:
                return f"this broker has {config.limits.clients} clients already; ask another", True
        elif not hello.peer.address or not hello.peer.id:
            return "a broker says its id and its address", False
        elif len(hello.peer.id) != len(me.id):
            return f"you have {8 * len(hello.peer.id)}-bit ids, this network {8 * len(me.id)}; run its overlay", False
        elif hello.peer.id == me.id:
            return f"a broker of your name is here, at {me.address}; give one of them another name", False
        elif (differs := difference(config.way, hello.way)) is not None:
            return differs, False
        return None

    def _welcome(self, hello: Hello) -> None:
        door, connection = self._door, self._connection
        version = min(hello.speaks[1], door.config.wire_versions[1])
        connection.say(HANDSHAKE.encode(Welcome(version, door.config.network, door.me(), door.config.way)))
        if hello.peer is not None:
            connection.begin(version, _LINK_CODEC, Inlet(door.links, connection, hello.peer))
        else:
            session = Session(door.clients, connection, hello.client)
            connection.begin(version, CLIENT_CODEC, session)
            door.clients.came(session)

    def _refuse(self, reason: str, retry: bool) -> None:
        self._door.counts.totals["connections_refused"] += 1
        self._door.links.log.say(logging.INFO, "connection_refused", reason=reason)
        self._connection.say(HANDSHAKE.encode(Unwelcome(reason, retry)))
        self._connection.close(reason)

    def refused(self, error: WireError) -> None:
        """What came is no hello: one word why, and the end."""
        self._door.counts.wire_errors[error.kind] += 1
        self._end()
        self._refuse(str(error), False)

    def _end(self) -> None:
        self._timer.cancel()
        self._door.greeted(self._connection)

    def closed(self, reason: str) -> None:
        """It is over before it began."""
        self._end()

    def drained(self) -> None:
        """Nothing waits."""
