"""All connections of one client: the brokers it knows, the one that it asks, those that host its subscriptions.

A broker is dialled when a connection to it is needed, by one caller at a time. The client learns brokers' addresses
from the url and from the brokers themselves, so that it finds its way when those of the url are gone.

With TLS the client checks that a broker's certificate is signed by the given authority, and is for the host that was
dialled. A token may be a function: it is called for each connection, so that a renewed token is used.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from meetpoint.api.client_messages import BrokersReply, BrokersRequest, ResponseBody
from meetpoint.api.handshake import SPOKEN, Hello
from meetpoint.api.ids import Peer
from meetpoint.client.arguments import read_address, read_url
from meetpoint.client.connection import Connection
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import MeetpointError, one_line

__all__ = ["HANDSHAKE_S", "Backoff", "ConnectionPool", "Dialer", "Token"]

HANDSHAKE_S = 5.0
"""The time that a broker has to accept a connection and to say welcome."""
GOODBYE_S = 1.0
"""The time that a broker has to confirm the end of TLS."""
LEARN_S = 30.0
"""The interval at which a client asks for the list of brokers."""
KNOWN_MAX = 256

Token: TypeAlias = str | Callable[[], str]
"""A client's token, or a function that returns one and is called for each connection."""


class Backoff:
    """Pauses between tries: longer each time, up to a bound, and random, so that clients do not retry together."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first = self._next = first_s
        self._most = most_s

    async def wait(self) -> None:
        """Pause before the next try."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._most, self._next * 2)
        await asyncio.sleep(pause)

    def reset(self) -> None:
        """Begin again with short pauses, after a success."""
        self._next = self._first


class Dialer:
    """Opens the connections of one client, with its name, its token and its TLS settings."""

    def __init__(
        self,
        url: str,
        client: str = "",
        *,
        network: str = "",
        token: Token = "",
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url = read_url(url)
        self.client = client
        self._network = network
        self._token = token
        self._context = _context(ca) if self.url.is_tls else None
        if ca is not None and self._context is None:
            raise NetworkError(f"ca: {ca} is for TLS, and the url begins with mp://; write mps://, or leave ca out")

    async def dial(self, address: str, timeout_s: float = HANDSHAKE_S) -> Connection:
        """Open a connection to the broker at an address; NetworkError says why there is none."""
        host, port = read_address(address)
        hello = Hello(SPOKEN, self._network, None, self.client, self._fresh_token())
        loop = asyncio.get_running_loop()
        connection: Connection | None = None
        is_tls = self._context is not None
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(hello, address),
                    host,
                    port,
                    ssl=self._context,
                    server_hostname=host if is_tls else None,
                    ssl_shutdown_timeout=GOODBYE_S if is_tls else None,
                )
                await connection.wait_welcome()
                return connection
        except TimeoutError:
            raise NetworkError(
                f"broker {address}: no answer within {timeout_s:g} s; is it up, and does it hear?"
            ) from None
        except ssl.SSLError as error:
            raise NetworkError(f"broker {address}: {_tls_problem(error)}") from None
        except OSError as error:
            if _is_refused(error):
                raise NetworkError(f"nothing listens at {address}; start one with: meetpoint up") from None
            reason = one_line(str(error.strerror or error))
            raise NetworkError(f"broker {address}: cannot be reached: {reason}") from None
        finally:
            if connection is not None and not connection.is_open:
                connection.abort("it was not welcome")

    def _fresh_token(self) -> str:
        if isinstance(self._token, str):
            return self._token
        try:
            found = self._token()
        except MeetpointError:
            raise
        except Exception as error:
            raise NetworkError(f"token: the function that gives it failed: {one_line(repr(error))}") from error
        if not isinstance(found, str):
            raise NetworkError(f"token: the function gave a {type(found).__name__}; it must return the token as a str")
        return found


def _context(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Make a context that trusts one authority, or without one those that the machine trusts."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        reason = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else (error.strerror or "").lower()
        raise NetworkError(f"ca {ca}: {reason}; give the file ca.pem of the network's authority") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {one_line(error.verify_message.rstrip('.'))}; "
            "give the authority's with ca= (--ca), and connect to a host that the certificate names"
        )
    words = (error.reason or str(error)).lower().replace("_", " ")
    if "wrong version number" in words:
        return "it speaks no TLS; connect by mp://, or give the broker a certificate"
    return f"the TLS handshake failed: {one_line(words)}"


def _is_refused(error: OSError) -> bool:
    """Return whether nobody listens. For a name with several addresses asyncio puts all errors into one text."""
    told = re.findall(r"\[Errno (\d+)\]", str(error))
    return isinstance(error, ConnectionRefusedError) or (bool(told) and all(int(n) == errno.ECONNREFUSED for n in told))


class ConnectionPool:
    """The connections of one client."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._given = dialer.url.addresses
        self._known: dict[str, None] = dict.fromkeys(self._given)
        self._failed: dict[str, int] = {}
        self._failures = 0
        self._open: dict[bytes, Connection] = {}
        self._all: set[Connection] = set()
        self._main: Connection | None = None
        self._locks: dict[str, asyncio.Lock] = {}
        self._choosing = asyncio.Lock()
        self._learning: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def url(self) -> str:
        """The url that the client was given, in full."""
        return f"{self._dialer.url.scheme}://{','.join(self._given)}"

    @property
    def known(self) -> tuple[str, ...]:
        """All addresses that the client knows, those of the url first."""
        return tuple(self._known)

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._is_closed

    @property
    def entry(self) -> Connection | None:
        """The connection that requests go to, if there is one now."""
        return self._main if self._main is not None and _is_usable(self._main) else None

    async def main(self) -> Connection:
        """Return a connection to some broker, the same as long as it lasts."""
        async with self._choosing:
            if (now := self.entry) is not None:
                return now
            former = self._main
            if former is not None and (connection := self._any_open()) is not None:
                self._main = connection
                return connection
            self._main = self._keep(await self._dial_first())
            self._learn()
            return self._main

    def open_to(self, peer: Peer) -> Connection | None:
        """Return the connection to one broker, if there is one now."""
        connection = self._open.get(peer.id)
        return connection if connection is not None and _is_usable(connection) else None

    async def to(self, peer: Peer) -> Connection:
        """Return a connection to one broker."""
        self._check_open()
        async with self._locks.setdefault(peer.address, asyncio.Lock()):
            if (now := self.open_to(peer)) is not None:
                return now
            connection = await self._dial(peer.address)
            if connection.broker.id != peer.id:
                await connection.close()
                raise NetworkError(f"broker {peer.address}: another one is there now; it is looked for again")
            return self._keep(connection)

    async def dedicated(self) -> Connection:
        """Open a connection for one purpose alone, if possible to the broker that requests go to."""
        self._check_open()
        entry = self.entry
        if entry is not None:
            with suppress(NetworkError):
                return await self._dial(entry.address)
        return await self._dial_first()

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._learning is not None:
            self._learning.cancel()
        await asyncio.gather(*(connection.close() for connection in tuple(self._all)))

    # -- dialling ------------------------------------------------------------------------------------------------------

    async def _dial_first(self) -> Connection:
        """Open a connection to the first known broker that answers; those that failed last are tried last."""
        self._check_open()
        problems: list[NetworkError] = []
        for address in sorted(self._known, key=lambda address: self._failed.get(address, 0)):
            try:
                return await self._dial(address)
            except RefusedError:
                raise
            except NetworkError as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        shown = "; ".join(str(problem) for problem in problems[:3]) + ("; …" if len(problems) > 3 else "")
        raise NetworkError(f"none of {len(problems)} brokers can be reached: {shown}")

    async def _dial(self, address: str) -> Connection:
        self._check_open()
        try:
            connection = await self._dialer.dial(address)
        except NetworkError:
            self._note_failure(address)
            raise
        if self._is_closed:  # while it was dialled
            await connection.close()
            self._check_open()
        self._all.add(connection)
        connection.on_lost.append(lambda: self._remove(connection))
        connection.on_closing.append(lambda: self._add_known(connection.others))
        return connection

    def _note_failure(self, *addresses: str) -> None:
        self._failures += 1
        for address in addresses:
            self._failed[address] = self._failures

    def _remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        if not connection.is_closed_here:
            self._note_failure(connection.address, connection.broker.address)

    def _keep(self, connection: Connection) -> Connection:
        former = self._open.get(connection.broker.id)
        if former is not None and _is_usable(former):
            connection.abort("there is another one")
            return former
        self._open[connection.broker.id] = connection
        connection.on_lost.append(lambda: self._forget(connection))
        return connection

    def _forget(self, connection: Connection) -> None:
        if self._open.get(connection.broker.id) is connection:
            del self._open[connection.broker.id]

    def _any_open(self) -> Connection | None:
        return next((connection for connection in self._open.values() if _is_usable(connection)), None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise NetworkError("this client is closed; connect again")

    # -- known brokers -------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        entry = self.entry
        if entry is not None:
            entry.request_nowait(BrokersRequest(), self._replace_known)
        if not self._is_closed:
            self._learning = asyncio.get_running_loop().call_later(LEARN_S, self._learn)

    def _replace_known(self, word: ResponseBody | None) -> None:
        if isinstance(word, BrokersReply):
            told = [broker.peer.address for broker in word.brokers]
            self._known = dict.fromkeys((*self._given, *told[:KNOWN_MAX]))
            self._failed = {address: when for address, when in self._failed.items() if address in self._known}

    def _add_known(self, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            if len(self._known) < KNOWN_MAX:
                self._known[address] = None


def _is_usable(connection: Connection) -> bool:
    return connection.is_open and not connection.is_closing
