"""The gateway's connections to the network: one for each token, shared by all requests and streams of its client.

A client's token is passed on, so that brokers decide what it may do. A connection is made when it is first needed and
closed when it has been idle for a while; `GatewayLimits.connections` bounds their number.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from meetpoint.client.connection_pool import Token
from meetpoint.client.network import Network, connect
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.http.errors import ApiError, unauthorized
from meetpoint.language.schema.schema import Schema
from meetpoint.security.grants import Grant

__all__ = ["Caller", "Connections", "Lease"]

SCHEMA_S: Final = 5.0
"""The time for which the network's schema is cached."""
SWEEP_S: Final = 5.0


class Caller(msgspec.Struct, frozen=True):
    """The client of a request: its token and the grant; without tokens all callers are equal."""

    token: str = ""
    grant: Grant | None = None

    @property
    def owner(self) -> str:
        """The owner of the caller's subscriptions, the same for all tokens of a client."""
        return "" if self.grant is None else f"{self.grant.tenant}/{self.grant.client}"

    @property
    def client(self) -> str:
        """The client's name, for people."""
        return "" if self.grant is None else self.grant.client


class Lease:
    """A connection to the network and the number of its users."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.users = 0
        self.used_at = 0.0
        self._schema: Schema | None = None
        self._schema_at = float("-inf")

    async def schema(self) -> Schema | None:
        """Return the network's schema, at most `SCHEMA_S` old."""
        now = asyncio.get_running_loop().time()
        if now - self._schema_at > SCHEMA_S:
            self._schema = await self.net.schema()
            self._schema_at = now
        return self._schema


class Connections:
    """All connections of one gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._leases: dict[str, Lease] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._leases)

    async def start(self) -> None:
        """Start to close idle connections."""
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        leases, self._leases = list(self._leases.values()), {}
        await asyncio.gather(*(lease.net.close() for lease in leases), return_exceptions=True)

    @asynccontextmanager
    async def use(self, caller: Caller) -> AsyncIterator[Lease]:
        """Lend the caller's connection while this is entered."""
        if self._settings.is_guarded and not caller.token:
            raise unauthorized("a token is needed: send the header Authorization: Bearer TOKEN")
        async with self._use(caller.token, caller.token) as lease:
            yield lease

    @asynccontextmanager
    async def own(self) -> AsyncIterator[Lease]:
        """Lend the gateway's own connection, with its own token where there are tokens."""
        path = self._settings.token_file
        async with self._use("", "" if path is None else lambda: _read_token(path)) as lease:
            yield lease

    @asynccontextmanager
    async def _use(self, name: str, token: Token) -> AsyncIterator[Lease]:
        key = hashlib.sha256(name.encode()).hexdigest() if name else ""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:  # two requests of one token at once would otherwise make two connections
            lease = self._leases.get(key)
            if lease is None:
                await self._evict_idle()
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

    async def _evict_idle(self) -> None:
        if len(self._leases) < self._settings.limits.connections:
            return
        idle = [(lease.used_at, key) for key, lease in self._leases.items() if not lease.users]
        if not idle:
            raise ApiError(503, "busy", "too many clients are connected; try again later", headers={"Retry-After": "5"})
        await self._close_lease(min(idle)[1])

    async def _close_lease(self, key: str) -> None:
        lease = self._leases.pop(key)
        lock = self._locks.get(key)
        if lock is not None and not lock.locked():
            del self._locks[key]
        await lease.net.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for key, lease in list(self._leases.items()):
                if not lease.users and now - lease.used_at > self._settings.limits.idle_s:
                    await self._close_lease(key)
            for key in [key for key, lock in self._locks.items() if key not in self._leases and not lock.locked()]:
                del self._locks[key]


def _read_token(path: str) -> str:
    return Path(path).read_text().strip()
