"""Links to other brokers.

A link leads one way: each broker dials every broker that it sends to, and reads what others dial. A link is dialled for
its first message, and again for the first message after it broke; in between a little time passes, so that a broker
that is down is not dialled without end. What cannot be sent is dropped: its sender repeats it. Only so many bytes wait
for one broker.

The node is told (`PeerUnreachable`) of a broker that refuses, is another one by now, or whose link breaks. A suspicion
is against one incarnation; so the dialled side tells the dialler of each incarnation that it comes to (`IAm`), as the
dialler does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from meetpoint.api.codec import MESSAGE_MAX, Codec, WireError
from meetpoint.api.handshake import Hello, NewIncarnation, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.logs import Log, Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.peers.dialer import Refusal, dial
from meetpoint.broker.transport.connection import HANDSHAKE, Connection, FlushScheduler
from meetpoint.broker.transport.sockets import is_out_of_handles
from meetpoint.broker.transport.tls import TlsPolicy
from meetpoint.errors import MeetpointError
from meetpoint.node.runtime.inputs import Input, PeerUnreachable, Received

__all__ = ["InboundLink", "PeerLinks"]

BACKOFF_S_MIN: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
UNUSED_S: Final = 120.0
"""Time after which a link that is not open is forgotten."""


class PeerLink:
    """The link to one address."""

    def __init__(self, links: PeerLinks, address: str, to: Peer) -> None:
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
    def end(self) -> tuple[Connection, NodeId] | None:
        """The connection and the id of its broker, where it is open."""
        return None if self._connection is None else (self._connection, self._to.id)

    def expel(self, kind: str, reason: str) -> None:
        """Close the link to a broker that is not believed any longer."""
        if self._connection is not None:
            self._links.expel(self._connection, kind, reason)

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that wait."""
        return self._pending_bytes if self._connection is None else self._connection.queued_bytes

    def send(self, to: Peer, data: bytes) -> None:
        """Send an encoded message."""
        if to is not self._to:
            if to.id != self._to.id:
                self._change(to)
            self._to = to
        connection = self._connection
        if connection is not None:
            if connection.is_full and connection.queued_bytes > self._links.queue_max:
                self._links.counts.totals["dropped_to_peers"] += 1
            else:
                connection.send(data)
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

    def set_incarnation(self, me: Peer) -> None:
        """Send under another incarnation from now on."""
        data = HANDSHAKE.encode(NewIncarnation(me))
        if self._connection is not None:
            self._connection.send(data)
        elif self._pending or self._task is not None:
            self._pending.append(data)

    def _change(self, to: Peer) -> None:
        """Drop what waits for the former broker of this address."""
        self._drop()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close("the address is another broker's")

    # -- dialling ------------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._timer = None
        self._task = self._links.scheduler.loop.create_task(self._connect())

    async def _connect(self) -> None:
        config = self._links.config
        hello = Hello(config.wire_versions, config.network, self._said, way=config.way)
        try:
            await dial(config, self._links.tls_policy, self._links.scheduler, self.address, hello, self._welcomed)
        except (OSError, TimeoutError, Refusal, MeetpointError, UnicodeError) as error:
            self._task = None
            self._failed(error)

    def _welcomed(self, connection: Connection, message: Welcome) -> None:
        if message.broker.id != self._to.id:
            raise Refusal(f"another broker answers there: {message.broker.address}", retry=True)
        self._task = None
        self._connection = connection
        self._backoff_s = BACKOFF_S_MIN
        connection.begin(message.version, HANDSHAKE, _OutboundRole(self, message.broker))
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for data in pending:
            connection.send(data)

    def _failed(self, error: Exception) -> None:
        """Report that nobody answers, or nobody who wants to."""
        reason = str(error) or type(error).__name__
        kind = error.kind if isinstance(error, Refusal) else "file_handles" if is_out_of_handles(error) else ""
        if kind:
            self._links.refusals.refuse(kind, address=self.address, reason=reason)
        level = logging.WARNING if isinstance(error, Refusal) and not error.kind else logging.DEBUG
        self._links.log.write(level, "peer_unreachable", address=self.address, reason=reason)
        self._broken(self._to)

    def lost(self, reached: Peer, reason: str) -> None:
        """Report that the link has broken."""
        if self._connection is None:
            return
        self._links.ended(self._connection)
        self._connection = None
        self._links.log.write(logging.INFO, "peer_lost", address=self.address, reason=reason)
        self._broken(reached)

    def _broken(self, peer: Peer) -> None:
        self._drop()
        if self._links.is_closed:
            return
        wait_s, self._backoff_s = self._backoff_s, min(BACKOFF_S_MAX, self._backoff_s * 2)
        self._timer = self._links.scheduler.loop.call_later(wait_s, self._waited)
        self._links.submit(PeerUnreachable(peer))

    def _waited(self) -> None:
        self._timer = None
        if self._pending:
            self._dial()

    def _drop(self) -> None:
        self._links.counts.totals["dropped_to_peers"] += len(self._pending)
        self._pending = []
        self._pending_bytes = 0

    def close(self) -> asyncio.Task[None] | None:
        """Close; return the task that is dialling, cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("this broker stops")
        if self._task is not None:
            self._task.cancel()
        return self._task

    def tick(self, now: float) -> bool:
        """Check for a stall; return whether the link may be forgotten."""
        if self._connection is not None:
            self._connection.tick(now)
            self._closed_at = now
            return False
        if self._pending or self._task is not None:
            self._closed_at = now
        return now - self._closed_at > UNUSED_S and self._timer is None


class _OutboundRole:
    """The dialler's role on an open link, where only news of incarnations comes."""

    def __init__(self, link: PeerLink, reached: Peer) -> None:
        self._link = link
        self._reached = reached

    def take(self, message: Message) -> None:
        if not isinstance(message, NewIncarnation):
            return
        if message.peer.id == self._reached.id:
            self._reached = message.peer
        else:
            self._link.expel("identity", "it says that it is another broker now")

    def refused(self, error: WireError) -> None:
        pass

    def closed(self, reason: str) -> None:
        self._link.lost(self._reached, reason)

    def drained(self) -> None:
        pass


class PeerLinks:
    """The links to all other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        tls_policy: TlsPolicy,
        scheduler: FlushScheduler,
        codec: Codec,
        counts: Counts,
        log: Log,
        refusals: Refusals,
        me: Peer,
        submit: Callable[[Input], None],
    ) -> None:
        self.config = config
        self.tls_policy = tls_policy
        self.scheduler = scheduler
        self.counts = counts
        self.log = log
        self.refusals = refusals
        self.me = me
        self.submit = submit
        self.queue_max = config.limits.peer_queue_bytes
        self.is_closed = False
        self._encode = codec.encode
        self._links: dict[str, PeerLink] = {}
        self.inbound: dict[Connection, InboundLink] = {}

    def send(self, to: Peer, message: Message) -> None:
        """Send a message to a peer."""
        link = self._links.get(to.address)
        if link is None:
            if self.is_closed or not to.address:
                return
            link = self._links[to.address] = PeerLink(self, to.address, to)
        try:
            data = self._encode(message)
        except OverflowError:  # a number that a liar sent, and one more
            self.counts.wire_errors["unwritable"] += 1
            return
        if len(data) > MESSAGE_MAX:
            self.counts.wire_errors["oversized"] += 1
            self.log.write(logging.ERROR, "message_too_long", kind=type(message).__name__, bytes=len(data))
            return
        self.counts.totals["messages_out"] += 1
        link.send(to, data)

    def set_incarnation(self, me: Peer) -> None:
        """Send under another incarnation from now on."""
        self.me = me
        for link in self._links.values():
            link.set_incarnation(me)
        data = HANDSHAKE.encode(NewIncarnation(me))
        for connection in self.inbound:
            connection.send(data)

    def check_certificates(self) -> None:
        """Close the links whose certificate does not count any longer."""
        ends = [end for link in self._links.values() if (end := link.end) is not None]
        ends += [(connection, inlet.source) for connection, inlet in self.inbound.items()]
        for connection, id_ in ends:
            if (why := self.tls_policy.why_not(connection.certificate, id_)) is not None:
                self.expel(connection, why.kind, why.reason)

    def expel(self, connection: Connection, kind: str, reason: str) -> None:
        """Close a connection to a broker that is not believed."""
        self.refusals.refuse(kind, address=connection.host, reason=reason)
        connection.abort(reason)

    def refused(self, node: bytes) -> None:
        """Count a message that a broker had no right to send: an old deletion, an old record, another's home."""
        address = next((connection.host for connection, inlet in self.inbound.items() if inlet.source == node), "")
        self.refusals.refuse("peer", address=address, peer=node.hex())

    def tick(self, now: float) -> None:
        """Close stalled connections, and forget unused links; called now and then."""
        for address in [address for address, link in self._links.items() if link.tick(now)]:
            del self._links[address]
        for connection in list(self.inbound):
            connection.tick(now)

    def ended(self, connection: Connection) -> None:
        """Count and log the end of a connection that was closed for making no progress."""
        if connection.closed_for is not None:
            kind, reason = connection.closed_for
            self.counts.totals["stalls"] += 1
            self.refusals.refuse(kind, address=connection.host, reason=reason)

    async def close(self) -> None:
        """Close all links."""
        self.is_closed = True
        tasks = [task for link in self._links.values() if (task := link.close()) is not None]
        for connection in list(self.inbound):
            connection.close("this broker stops")
        if tasks:
            await asyncio.wait(tasks)

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that wait for all brokers."""
        return sum(link.queued_bytes for link in self._links.values())

    @property
    def open(self) -> int:
        """Number of open links."""
        return sum(link.is_open for link in self._links.values())


class InboundLink:
    """A connection that another broker dialled; its messages go to the node."""

    def __init__(self, links: PeerLinks, connection: Connection, source: Peer) -> None:
        self._links = links
        self._connection = connection
        self._source = source
        self._totals = links.counts.totals
        links.inbound[connection] = self

    @property
    def source(self) -> NodeId:
        """The id of the sender."""
        return self._source.id

    def take(self, message: Message) -> None:
        """Take a message of a peer."""
        if type(message) is NewIncarnation:
            if message.peer.id == self._source.id:
                self._source = message.peer
            else:
                self._links.expel(self._connection, "identity", "it says that it is another broker now")
            return
        self._totals["messages_in"] += 1
        self._links.submit(Received(self._source, message))

    def refused(self, error: WireError) -> None:
        """Count bytes that are no message; other messages of the same connection may be good."""
        self._links.counts.wire_errors[error.kind] += 1

    def closed(self, reason: str) -> None:
        """Forget a connection that the peer has closed; whoever sends to the peer will notice."""
        self._links.inbound.pop(self._connection, None)
        self._links.ended(self._connection)

    def drained(self) -> None:
        """Ignore that there is room: nothing waits."""
