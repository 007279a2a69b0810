"""Dialling another broker: from this one's own address, within a time, and with a check of who answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from meetpoint.api.codec import WireError
from meetpoint.api.handshake import Hello, HelloRejected, Welcome
from meetpoint.api.messages import Message
from meetpoint.broker.config import Address, BrokerConfig, parse_address
from meetpoint.broker.transport.connection import HANDSHAKE, Connection, FlushScheduler
from meetpoint.broker.transport.tls import TlsError, TlsPolicy

__all__ = ["Refusal", "dial"]

_BIND_WITHOUT_PORT: Final = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


class Refusal(Exception):  # noqa: N818 - it is no error of anybody's here
    """A side of a dialled connection will not talk with the other; `kind` is set where it is this side."""

    def __init__(self, reason: str, retry: bool, kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.kind = kind


async def dial(
    config: BrokerConfig,
    tls_policy: TlsPolicy,
    scheduler: FlushScheduler,
    address: str,
    hello: Hello,
    welcomed: Callable[[Connection, Welcome], None],
) -> Connection:
    """Connect to a broker, check who it is, and shake hands; raise OSError, TimeoutError or Refusal."""
    loop = scheduler.loop
    answer: asyncio.Future[None] = loop.create_future()
    role = _DialHandshake(tls_policy, answer, welcomed)
    sock = await asyncio.wait_for(_connect(loop, parse_address(address, "address"), config), config.limits.dial_s)
    try:
        _, connection = await loop.create_connection(
            lambda: Connection(scheduler, config.limits, role.on, tls_policy.dial()), sock=sock
        )
    except BaseException:
        sock.close()
        raise
    connection.send(HANDSHAKE.encode(hello))
    try:
        await asyncio.wait_for(answer, config.limits.handshake_s)
    except BaseException:
        connection.abort("no welcome")
        raise
    return connection


async def _connect(loop: asyncio.AbstractEventLoop, to: Address, config: BrokerConfig) -> socket.socket:
    """Return a connected socket, bound to the address that this broker listens at where that is a definite one."""
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


class _DialHandshake:
    """The dialler's side of a handshake."""

    def __init__(
        self, tls_policy: TlsPolicy, answer: asyncio.Future[None], welcomed: Callable[[Connection, Welcome], None]
    ) -> None:
        self._tls_policy = tls_policy
        self._answer = answer
        self._welcomed = welcomed
        self._connection: Connection

    def on(self, connection: Connection) -> _DialHandshake:
        self._connection = connection
        return self

    def take(self, message: Message) -> None:
        if self._answer.done():
            return
        if isinstance(message, Welcome):
            try:
                if (why := self._tls_policy.why_not(self._connection.certificate, message.broker.id)) is not None:
                    raise Refusal(why.reason, retry=False, kind=why.kind)
                self._welcomed(self._connection, message)
            except Refusal as refusal:
                self._answer.set_exception(refusal)
            else:
                self._answer.set_result(None)
        elif isinstance(message, HelloRejected):
            self._answer.set_exception(Refusal(message.reason, message.retry))
        else:
            self._answer.set_exception(Refusal("what answers there is no broker", retry=False))

    def refused(self, error: WireError) -> None:
        if not self._answer.done() and isinstance(error, TlsError):
            self._answer.set_exception(Refusal(str(error), retry=False, kind=error.refusal))
        elif not self._answer.done():
            self._answer.set_exception(Refusal(f"what answers there is no broker: {error}", retry=False))

    def closed(self, reason: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionResetError(f"it was closed before the welcome: {reason}"))

    def drained(self) -> None:
        pass
