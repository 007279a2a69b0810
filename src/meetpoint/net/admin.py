"""HTTP for those who run brokers: /healthz (it lives), /readyz (it serves, or 503 and why not), /metrics (Prometheus).

`aiohttp` and `prometheus_client` are imported when a broker serves HTTP, not before.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.net.config import Address
from meetpoint.net.metrics import Counts
from meetpoint.net.server import listen_at

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Admin"]

CLOSE_S = 1.0


class Admin:
    """One broker's HTTP."""

    def __init__(self, counts: Counts, why_not_ready: Callable[[], str], failure: Callable[[], str]) -> None:
        self._counts = counts
        self._why_not_ready = why_not_ready
        self._failure = failure
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def open(self, address: Address) -> None:
        """Serve."""
        from aiohttp import web
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._counts)

        async def health(request: web.Request) -> web.Response:
            problem = self._failure()
            return web.Response(text=problem + "\n" if problem else "ok\n", status=500 if problem else 200)

        async def ready(request: web.Request) -> web.Response:
            problem = self._why_not_ready()
            return web.Response(text=problem + "\n" if problem else "ready\n", status=503 if problem else 200)

        async def metrics(request: web.Request) -> web.Response:
            return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app = web.Application()
        app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", metrics)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        sock: socket.socket = listen_at(address, "admin")
        await web.SockSite(self._runner, sock).start()
        self.address = str(address._replace(port=sock.getsockname()[1]))

    async def close(self) -> None:
        """Serve no more."""
        if self._runner is not None:
            await self._runner.cleanup()
