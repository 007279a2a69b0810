"""HTTP for those who run brokers: /healthz (it lives), /readyz (it serves, or 503 and why not), /metrics (Prometheus).

On loopback it is plain. Elsewhere it is HTTPS with the broker's certificate, and /metrics wants a token with the role
`observe`; the other two say nothing that a load balancer may not know. `aiohttp` and `prometheus_client` are imported
when a broker serves HTTP, not before.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.broker.clients.access import Access
from meetpoint.broker.clients.refusals import Refusals
from meetpoint.broker.config import BrokerConfig, is_loopback, parse_address
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.transport.listener import listen_at
from meetpoint.broker.transport.tls import load_own, serving_context
from meetpoint.security.grants import TokenError

if TYPE_CHECKING:
    from aiohttp import web

    from meetpoint.broker.observe.http_limits import HttpLimits

__all__ = ["Admin"]

CLOSE_S = 1.0


class Admin:
    """One broker's HTTP."""

    def __init__(
        self,
        config: BrokerConfig,
        counts: Counts,
        access: Access,
        refusals: Refusals,
        why_not_ready: Callable[[], str],
        failure: Callable[[], str],
    ) -> None:
        assert config.admin_address is not None, "a broker without one has no admin"
        self._config = config
        self._at = parse_address(config.admin_address, "admin")
        self._is_open = not is_loopback(self._at.host)
        self._counts = counts
        self._access = access
        self._refusals = refusals
        self._why_not_ready = why_not_ready
        self._failure = failure
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._door: HttpLimits | None = None
        self.address = ""

    async def open(self) -> None:
        """Serve."""
        from aiohttp import web
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        from meetpoint.broker.observe.http_limits import HttpLimits, once

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._counts)

        async def health(request: web.Request) -> web.Response:
            problem = self._failure()
            return web.Response(text=problem + "\n" if problem else "ok\n", status=500 if problem else 200)

        async def ready(request: web.Request) -> web.Response:
            problem = self._why_not_ready()
            return web.Response(text=problem + "\n" if problem else "ready\n", status=503 if problem else 200)

        async def metrics(request: web.Request) -> web.Response:
            if problem := self._why_not(request.headers.get("Authorization", "")):
                self._refusals.refuse("http", address=request.remote or "", reason=problem)
                return web.Response(text=problem + "\n", status=401, headers={"WWW-Authenticate": "Bearer"})
            return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app = web.Application(middlewares=[once])
        app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", metrics)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        assert self._runner.server is not None, "it is set up"
        self._door = HttpLimits(self._runner.server, self._config.limits, self._refusals)
        if self._is_open and self._config.has_tls:
            self._context = serving_context(self._config)
        sock: socket.socket = listen_at(self._at, "admin")
        await self._door.listen(sock, self._context)
        self.address = str(self._at._replace(port=sock.getsockname()[1]))

    def _why_not(self, authorization: str) -> str:
        """Why whoever asks is not told the metrics; empty where it is."""
        if not self._is_open or self._config.access.keys is None:
            return ""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            return "metrics need a token: send the header Authorization: Bearer TOKEN"
        try:
            grant = self._access.read(token.strip())
        except TokenError as error:
            return str(error)
        return "" if grant.may_observe else f"the token of {grant.client} has not the role observe; issue one that has"

    def reload(self) -> None:
        """Show another certificate to whoever connects from now on."""
        if self._context is not None:
            load_own(self._context, self._config)

    async def close(self) -> None:
        """Serve no more."""
        if self._door is not None:
            self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
