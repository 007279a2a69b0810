"""The server: a gateway that listens, in a process of its own or in a running event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn

from meetpoint.broker.transport.sockets import listen_at
from meetpoint.gateway.app import create_app
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.protocol import http_protocol

__all__ = ["GatewayServer", "run_gateway", "serve"]

CLOSE_S: Final = 2
"""The time for open requests to finish when the gateway stops."""
KEEP_ALIVE_S: Final = 30
BACKLOG: Final = 512


class GatewayServer:
    """A gateway that listens."""

    def __init__(self, settings: GatewaySettings, groups: Sequence[RouteGroup] | None = None) -> None:
        self.settings = settings
        self.app = create_app(settings, groups)
        self.gateway: Gateway = self.app.state.gateway
        self._socket: socket.socket = listen_at(settings.address, "listen")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that takes nothing is given up, also while a socket closes
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * settings.limits.stall_s))
        port: int = self._socket.getsockname()[1]
        self.address = str(settings.address._replace(port=port))
        self.url = f"{settings.scheme}://{self.address}"
        limits = settings.limits
        self._server = _UvicornServer(
            uvicorn.Config(
                self.app,
                http=http_protocol(limits.header_s, self.gateway.counters.count_refusal),
                ws="websockets-sansio",
                lifespan="on",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # else any client could set its address and scheme by a header
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=CLOSE_S,
                h11_max_incomplete_event_size=limits.header_bytes,
                ws_max_size=limits.message_bytes,
                ws_per_message_deflate=False,
                backlog=BACKLOG,
            )
        )

    @property
    def is_serving(self) -> bool:
        """Whether requests are answered."""
        return bool(self._server.started) and not self._server.should_exit

    async def run(self) -> None:
        """Serve until `stop`."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Finish open requests, end all streams, and end."""
        self.gateway.stream_limits.close()
        self._server.should_exit = True


class _UvicornServer(uvicorn.Server):
    """A server that leaves signals to the program that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def run_gateway(
    settings: GatewaySettings, groups: Sequence[RouteGroup] | None = None
) -> AsyncIterator[GatewayServer]:
    """Run a gateway in the current event loop; it serves once this is entered."""
    server = GatewayServer(settings, groups)
    running = asyncio.create_task(server.run())
    try:
        while not server.is_serving:
            if running.done():
                await running
                raise RuntimeError("the gateway ended before it served")
            await asyncio.sleep(0.01)
        yield server
    finally:
        server.stop()
        await running


async def serve(settings: GatewaySettings, groups: Sequence[RouteGroup] | None = None) -> None:
    """Serve until cancelled."""
    async with run_gateway(settings, groups):
        await asyncio.Event().wait()
