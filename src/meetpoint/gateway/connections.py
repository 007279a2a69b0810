"""The gateway's connections to the network: one for each token, shared by all that its client asks and reads.

A client's token is passed on, so that brokers decide what it may do. A connection is made when it is first wanted and
closed when nobody has used it for a while; there are at most so many.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from meetpoint.client.dialer import Token
from meetpoint.client.network import Network, connect
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.http.errors import ApiError, unauthorised
from meetpoint.language.schema.schema import Schema
from meetpoint.security.grants import Grant

__all__ = ["Caller", "Connections", "Lease"]

SCHEMA_S: Final = 5.0
"""How long the network's schema counts as known."""
SWEEP_S: Final = 5.0


class Caller(msgspec.Struct, frozen=True):
    """Who asks: a token and what it grants; without tokens everybody is the same."""

    token: str = ""
    grant: Grant | None = None

    @property
    def owner(self) -> str:
        """Whose subscriptions it sees, whatever token it shows."""
        return "" if self.grant is None else f"{self.grant.tenant}/{self.grant.client}"

    @property
    def client(self) -> str:
        """The name for people."""
        return "" if self.grant is None else self.grant.client


class Lease:
    """A connection, and how many use it."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.users = 0
        self.used_at = 0.0
        self._schema: Schema | None = None
        self._schema_at = float("-inf")

    async def schema(self) -> Schema | None:
        """The network's schema, as it was a few seconds ago at the most."""
        now = asyncio.get_running_loop().time()
        if now - self._schema_at > SCHEMA_S:
            self._schema = await self.net.schema()
            self._schema_at = now
        return self._schema


class Connections:
    """All of one gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._leases: dict[str, Lease] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._leases)

    async def start(self) -> None:
        """Begin to look for connections that nobody uses."""
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """Close all."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        leases, self._leases = list(self._leases.values()), {}
        await asyncio.gather(*(lease.net.close() for lease in leases), return_exceptions=True)

    @asynccontextmanager
    async def use(self, caller: Caller) -> AsyncIterator[Lease]:
        """The connection of a caller, for as long as it is needed."""
        if self._settings.is_guarded and not caller.token:
            raise unauthorised("a token is needed: send the header Authorization: Bearer TOKEN")
        async with self._use(caller.token, caller.token) as lease:
            yield lease

    @asynccontextmanager
    async def own(self) -> AsyncIterator[Lease]:
        """The gateway's own connection, with its own token where there are tokens."""
        path = self._settings.token_file
        async with self._use("", "" if path is None else lambda: _read_token(path)) as lease:
            yield lease

    @asynccontextmanager
    async def _use(self, name: str, token: Token) -> AsyncIterator[Lease]:
        key = hashlib.sha256(name.encode()).hexdigest() if name else ""
        lock = self._connecting.setdefault(key, asyncio.Lock())
        async with lock:
            lease = self._leases.get(key)
            if lease is None:
                await self._make_room()
                settings = self._settings
                client = "" if settings.is_guarded else settings.name
                net = await connect(settings.at, client, network=settings.network, token=token, ca=settings.ca)
                lease = self._leases[key] = Lease(net)
            lease.users += 1
        try:
            yield lease
        finally:
            lease.users -= 1
            lease.used_at = asyncio.get_running_loop().time()

    async def _make_room(self) -> None:
        if len(self._leases) < self._settings.limits.connections:
            return
        idle = [(lease.used_at, key) for key, lease in self._leases.items() if not lease.users]
        if not idle:
            raise ApiError(503, "busy", "too many clients are connected; try again later", headers={"Retry-After": "5"})
        await self._end(min(idle)[1])

    async def _end(self, key: str) -> None:
        lease = self._leases.pop(key)
        lock = self._connecting.get(key)
        if lock is not None and not lock.locked():
            del self._connecting[key]
        await lease.net.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for key, lease in list(self._leases.items()):
                if not lease.users and now - lease.used_at > self._settings.limits.idle_s:
                    await self._end(key)
            for key in [key for key, lock in self._connecting.items() if key not in self._leases and not lock.locked()]:
                del self._connecting[key]


def _read_token(path: str) -> str:
    return Path(path).read_text().strip()
