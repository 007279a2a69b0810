"""The door: one port for brokers and clients, and the first words of both."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from meetpoint.api.codec import WireError
from meetpoint.api.handshake import Hello, HelloRejected, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.broker.clients.refusals import host_of
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clients.session import CLIENT_CODEC, Session
from meetpoint.broker.clients.session_policy import DeniedError, SessionPolicy
from meetpoint.broker.config import Address, BrokerConfig
from meetpoint.broker.errors import BrokerError
from meetpoint.broker.file_handles import handles
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.peers.links import Inlet, Links
from meetpoint.broker.transport.connection import HANDSHAKE, Connection, FlushScheduler, Role
from meetpoint.broker.transport.cpu_budget import NEWCOMER
from meetpoint.broker.transport.tls import Guard, TlsError
from meetpoint.catalog import difference, make_link_codec

__all__ = ["Listener", "listen_at"]

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


class Listener:
    """Lets brokers and clients in."""

    def __init__(
        self,
        config: BrokerConfig,
        guard: Guard,
        turn: FlushScheduler,
        counts: Counts,
        links: Links,
        clients: ClientRegistry,
        me: Callable[[], Peer],
    ) -> None:
        self.config = config
        self.guard = guard
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
        connection = Connection(self.turn, self.config.limits, self._greeting, self.guard.accept())
        connection.doubt = NEWCOMER
        return connection

    def _greeting(self, connection: Connection) -> Role:
        self._waiting[connection] = None
        return _Greeting(self, connection)

    def why_crowded(self) -> No | None:
        """Why nobody new is listened to at present."""
        most = self.config.limits.handshakes
        if len(self._waiting) > most:
            return No("handshakes_full", f"{most} connections have not said who they are; come again", retry=True)
        if not handles().for_anyone:
            return No("file_handles", "no file handles are left; come again", retry=True)
        return None

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


class No(NamedTuple):
    """Why somebody is not welcome: the kind of the refusal, the words, and whether the same may be welcome later."""

    kind: str
    reason: str
    retry: bool = False


class _Greeting:
    """The handshake of whoever is dialled."""

    def __init__(self, door: Listener, connection: Connection) -> None:
        self._door = door
        self._connection = connection
        self._admitted: tuple[str, SessionPolicy | None] = ("", None)
        """Who a client is, and what it may do."""
        wait_s = door.config.limits.handshake_s
        late = No("handshake_late", f"it did not say who it is within {wait_s:g} s")
        crowded = door.why_crowded()
        self._timer = door.turn.loop.call_later(0 if crowded else wait_s, self._turn_away, crowded or late)

    def _turn_away(self, no: No) -> None:
        self._note(no)
        self._connection.abort(no.reason)

    def take(self, message: Message) -> None:
        """The first message."""
        self._end()
        if isinstance(message, Hello):
            no = self._why_not(message)
            if no is None:
                self._welcome(message)
            else:
                self._refuse(no)
        else:
            self._refuse(No("handshake", "say hello first"))

    def _why_not(self, hello: Hello) -> No | None:
        config = self._door.config
        low, high = config.wire_versions
        if hello.speaks[0] > hello.speaks[1] or hello.speaks[0] > high or hello.speaks[1] < low:
            theirs = f"{hello.speaks[0]} to {hello.speaks[1]}"
            return No("version", f"you speak versions {theirs}, this broker {low} to {high}; update the older side")
        if hello.network != config.network and (hello.network or hello.peer is not None):
            return No("network", f"this broker is of the network {config.network!r}, not of {hello.network!r}")
        if self._door.is_closing:
            return No("stopping", "this broker stops; ask another", retry=True)
        shown, id_ = self._connection.certificate, None if hello.peer is None else hello.peer.id
        if (shown or id_) and (untrue := self._door.guard.why_not(shown, id_)) is not None:
            return No(*untrue)
        return self._why_no_client(hello) if hello.peer is None else self._why_no_broker(hello.peer, hello.way)

    def _why_no_client(self, hello: Hello) -> No | None:
        most = self._door.config.limits.clients
        if len(self._door.clients.sessions) >= most:
            return No("clients_full", f"this broker has {most} clients already; ask another", retry=True)
        if not handles().for_clients:
            return No("file_handles", "this broker has no file handles for more clients; ask another", retry=True)
        try:
            self._admitted = self._door.clients.admit(hello.client, hello.token)
        except DeniedError as denied:
            return No(denied.kind, denied.reason, denied.retry)
        return None

    def _why_no_broker(self, peer: Peer, way: str) -> No | None:
        me = self._door.me()
        if not peer.address or not peer.id:
            return No("handshake", "a broker says its id and its address")
        if (differs := difference(self._door.config.way, way)) is not None:
            return No("way", differs)
        if len(peer.id) != len(me.id):
            theirs, ours = 8 * len(peer.id), 8 * len(me.id)
            return No("way", f"you have {theirs}-bit ids, this network {ours}; run its overlay")
        if peer.id == me.id:
            return No("way", f"a broker of your name is here, at {me.address}; give one of them another name")
        return None

    def _welcome(self, hello: Hello) -> None:
        door, connection = self._door, self._connection
        version = min(hello.speaks[1], door.config.wire_versions[1])
        connection.say(HANDSHAKE.encode(Welcome(version, door.config.network, door.me(), door.config.way)))
        if hello.peer is not None:
            connection.begin(version, _LINK_CODEC, Inlet(door.links, connection, hello.peer))
        else:
            session = Session(door.clients, connection, hello.client, *self._admitted)
            connection.begin(version, CLIENT_CODEC, session)
            door.clients.came(session)

    def _refuse(self, no: No) -> None:
        self._note(no)
        self._connection.say(HANDSHAKE.encode(HelloRejected(no.reason, no.retry)))
        self._connection.close(no.reason)

    def _note(self, no: No) -> None:
        self._door.counts.totals["connections_refused"] += 1
        self._door.clients.refusals.refuse(no.kind, address=host_of(self._connection), reason=no.reason)

    def refused(self, error: WireError) -> None:
        """What came is no hello: one word why, and the end."""
        self._door.counts.wire_errors[error.kind] += 1
        self._end()
        self._refuse(No(error.refusal if isinstance(error, TlsError) else "handshake", str(error)))

    def _end(self) -> None:
        self._timer.cancel()
        self._door.greeted(self._connection)

    def closed(self, reason: str) -> None:
        """It is over before it began."""
        self._end()

    def drained(self) -> None:
        """Nothing waits."""
