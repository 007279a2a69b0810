"""A gateway as a process, or in a loop that runs already."""

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
from meetpoint.gateway.gateway import Gateway, Part
from meetpoint.gateway.http.timeouts import impatient

__all__ = ["Served", "serve", "serving"]

CLOSE_S: Final = 2
"""How long open requests may go on when the gateway stops."""
KEEP_ALIVE_S: Final = 30
BACKLOG: Final = 512


class Served:
    """A gateway that listens."""

    def __init__(self, settings: GatewaySettings, parts: Sequence[Part] | None = None) -> None:
        self.settings = settings
        self.app = create_app(settings, parts)
        self.gateway: Gateway = self.app.state.gateway
        self._socket: socket.socket = listen_at(settings.address, "listen")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that takes nothing is given up, also while a socket closes
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * settings.limits.stall_s))
        port: int = self._socket.getsockname()[1]
        self.address = str(settings.address._replace(port=port))
        self.url = f"{settings.scheme}://{self.address}"
        limits = settings.limits
        self._server = _Server(
            uvicorn.Config(
                self.app,
                http=impatient(limits.header_s, self.gateway.counts.refuse),
                ws="websockets-sansio",
                lifespan="on",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                proxy_headers=False,
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
        """Answer what was asked, end all streams, and end."""
        self.gateway.slots.close()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(settings: GatewaySettings, parts: Sequence[Part] | None = None) -> AsyncIterator[Served]:
    """A gateway in the loop that runs; it serves when this is entered."""
    served = Served(settings, parts)
    running = asyncio.create_task(served.run())
    try:
        while not served.is_serving:
            if running.done():
                await running
                raise RuntimeError("the gateway ended before it served")
            await asyncio.sleep(0.01)
        yield served
    finally:
        served.stop()
        await running


async def serve(settings: GatewaySettings, parts: Sequence[Part] | None = None) -> None:
    """Serve until cancelled."""
    async with serving(settings, parts):
        await asyncio.Event().wait()
