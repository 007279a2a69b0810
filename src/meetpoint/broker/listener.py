"""The listener: one port for brokers and clients, and the handshake of each new connection."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

from meetpoint.api.codec import WireError
from meetpoint.api.handshake import Hello, HelloRejected, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.broker.clients.authorization import DeniedError, SessionPolicy
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clients.session import CLIENT_CODEC, Session
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.peers.links import InboundLink, PeerLinks
from meetpoint.broker.transport.connection import HANDSHAKE, Connection, FlushScheduler, Role
from meetpoint.broker.transport.cpu_budget import NEWCOMER_PENALTY
from meetpoint.broker.transport.sockets import BACKLOG, handles
from meetpoint.broker.transport.tls import TlsError, TlsPolicy
from meetpoint.catalog import make_link_codec, signature_difference
from meetpoint.node.node import Node

__all__ = ["Listener"]

_LINK_CODEC = make_link_codec()


class Listener:
    """The listening port of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        tls_policy: TlsPolicy,
        scheduler: FlushScheduler,
        counts: Counts,
        links: PeerLinks,
        clients: ClientRegistry,
        node: Node,
    ) -> None:
        self.config = config
        self.tls_policy = tls_policy
        self.scheduler = scheduler
        self.counts = counts
        self.links = links
        self.clients = clients
        self.node = node
        self._server: asyncio.Server | None = None
        self._waiting: dict[Connection, None] = {}
        self.is_closing = False

    async def open(self, sock: socket.socket) -> None:
        """Accept connections on a socket."""
        self._server = await self.scheduler.loop.create_server(self._connection, sock=sock, backlog=BACKLOG)

    def _connection(self) -> Connection:
        connection = Connection(self.scheduler, self.config.limits, self._handshake, self.tls_policy.accept())
        connection.penalty = NEWCOMER_PENALTY
        return connection

    def _handshake(self, connection: Connection) -> Role:
        self._waiting[connection] = None
        return _Handshake(self, connection)

    def why_full(self) -> Rejection | None:
        """Return why no new connection is accepted at present, or None."""
        most = self.config.limits.handshakes
        if len(self._waiting) > most:
            return Rejection(
                "handshakes_full", f"{most} connections have not said who they are; come again", retry=True
            )
        if not handles().for_anyone:
            return Rejection("file_handles", "no file handles are left; come again", retry=True)
        return None

    def handshake_ended(self, connection: Connection) -> None:
        """Forget a connection whose handshake is over, well or not."""
        self._waiting.pop(connection, None)

    def close(self) -> None:
        """Accept no new connections."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._waiting):
            connection.abort("this broker stops")


class Rejection(NamedTuple):
    """A refused connection: the kind of the refusal, the reason, and whether to try again."""

    kind: str
    reason: str
    retry: bool = False


class _Handshake:
    """The accepting side of a handshake."""

    def __init__(self, listener: Listener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._admitted: tuple[str, SessionPolicy | None] = ("", None)
        """The key and the policy of an admitted client."""
        wait_s = listener.config.limits.handshake_s
        late = Rejection("handshake_late", f"it did not say who it is within {wait_s:g} s")
        full = listener.why_full()
        self._timer = listener.scheduler.loop.call_later(0 if full else wait_s, self._turn_away, full or late)

    def _turn_away(self, rejection: Rejection) -> None:
        self._note(rejection)
        self._connection.abort(rejection.reason)

    def take(self, message: Message) -> None:
        """Answer the first message."""
        self._end()
        if isinstance(message, Hello):
            rejection = self._why_not(message)
            if rejection is None:
                self._welcome(message)
            else:
                self._refuse(rejection)
        else:
            self._refuse(Rejection("handshake", "say hello first"))

    def _why_not(self, hello: Hello) -> Rejection | None:
        config = self._listener.config
        low, high = config.wire_versions
        if hello.speaks[0] > hello.speaks[1] or hello.speaks[0] > high or hello.speaks[1] < low:
            theirs = f"{hello.speaks[0]} to {hello.speaks[1]}"
            return Rejection(
                "version", f"you speak versions {theirs}, this broker {low} to {high}; update the older side"
            )
        if hello.network != config.network and (hello.network or hello.peer is not None):
            return Rejection("network", f"this broker is of the network {config.network!r}, not of {hello.network!r}")
        if self._listener.is_closing:
            return Rejection("stopping", "this broker stops; ask another", retry=True)
        shown, id_ = self._connection.certificate, None if hello.peer is None else hello.peer.id
        if (shown or id_) and (untrue := self._listener.tls_policy.why_not(shown, id_)) is not None:
            return Rejection(*untrue)
        return self._why_no_client(hello) if hello.peer is None else self._why_no_broker(hello.peer, hello.way)

    def _why_no_client(self, hello: Hello) -> Rejection | None:
        most = self._listener.config.limits.clients
        if len(self._listener.clients.sessions) >= most:
            return Rejection("clients_full", f"this broker has {most} clients already; ask another", retry=True)
        if not handles().for_clients:
            return Rejection(
                "file_handles", "this broker has no file handles for more clients; ask another", retry=True
            )
        try:
            self._admitted = self._listener.clients.admit(hello.client, hello.token)
        except DeniedError as denied:
            return Rejection(denied.kind, denied.reason, denied.retry)
        return None

    def _why_no_broker(self, peer: Peer, way: str) -> Rejection | None:
        me = self._listener.node.me
        if not peer.address or not peer.id:
            return Rejection("handshake", "a broker says its id and its address")
        if (differs := signature_difference(self._listener.config.way, way)) is not None:
            return Rejection("way", differs)
        if len(peer.id) != len(me.id):
            theirs, ours = 8 * len(peer.id), 8 * len(me.id)
            return Rejection("way", f"you have {theirs}-bit ids, this network {ours}; run its overlay")
        if peer.id == me.id:
            return Rejection("way", f"a broker of your name is here, at {me.address}; give one of them another name")
        return None

    def _welcome(self, hello: Hello) -> None:
        listener, connection = self._listener, self._connection
        version = min(hello.speaks[1], listener.config.wire_versions[1])
        connection.send(
            HANDSHAKE.encode(Welcome(version, listener.config.network, listener.node.me, listener.config.way))
        )
        if hello.peer is not None:
            connection.begin(version, _LINK_CODEC, InboundLink(listener.links, connection, hello.peer))
        else:
            session = Session(listener.clients, connection, hello.client, *self._admitted)
            connection.begin(version, CLIENT_CODEC, session)
            listener.clients.connected(session)

    def _refuse(self, rejection: Rejection) -> None:
        self._note(rejection)
        self._connection.send(HANDSHAKE.encode(HelloRejected(rejection.reason, rejection.retry)))
        self._connection.close(rejection.reason)

    def _note(self, rejection: Rejection) -> None:
        self._listener.counts.totals["connections_refused"] += 1
        self._listener.clients.refusals.refuse(rejection.kind, address=self._connection.host, reason=rejection.reason)

    def refused(self, error: WireError) -> None:
        """Refuse bytes that are no hello, with a reason, and close."""
        self._listener.counts.wire_errors[error.kind] += 1
        self._end()
        self._refuse(Rejection(error.refusal if isinstance(error, TlsError) else "handshake", str(error)))

    def _end(self) -> None:
        self._timer.cancel()
        self._listener.handshake_ended(self._connection)

    def closed(self, reason: str) -> None:
        """Forget a connection that ended before its handshake."""
        self._end()

    def drained(self) -> None:
        """Ignore that there is room: nothing waits."""
