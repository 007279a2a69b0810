"""Connections of HTTP: not too many, each for one request, and each for a while.

The port is open to strangers where Prometheus is on another machine, and every connection takes a file handle that
brokers and clients need. `aiohttp` alone waits an hour for a request, for as many as come, and writes the whole story
of each that is none into the log.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from meetpoint.broker.clients.refusals import Refusals
from meetpoint.broker.config import Limits
from meetpoint.broker.file_handles import handles

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

__all__ = ["HttpLimits", "once"]


@web.middleware
async def once(request: web.Request, handler: Any) -> web.StreamResponse:
    """Every answer is the last of its connection."""
    try:
        answer: web.StreamResponse = await handler(request)
    except web.HTTPException as error:
        error.force_close()
        raise
    answer.force_close()
    return answer


class HttpLimits:
    """Lets in whoever asks by HTTP."""

    def __init__(self, server: web.Server, limits: Limits, refusals: Refusals) -> None:
        self.server = server
        self.limits = limits
        self.refusals = refusals
        self.open: set[_HttpConnection] = set()
        self._listening: asyncio.Server | None = None

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Let them come."""
        loop = asyncio.get_running_loop()
        wait_s = None if context is None else self.limits.handshake_s
        self._listening = await loop.create_server(
            lambda: _HttpConnection(self, loop), sock=sock, ssl=context, ssl_handshake_timeout=wait_s
        )

    def close(self) -> None:
        """Nobody new comes in."""
        if self._listening is not None:
            self._listening.close()

    def refuse(self, kind: str, address: str, reason: str) -> None:
        """Count it, and say it once."""
        self.refusals.refuse(kind, address=address, reason=reason)


class _HttpConnection(RequestHandler):
    """One connection."""

    def __init__(self, limits_: HttpLimits, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits_.server, loop=loop, access_log=None)  # type: ignore[arg-type]
        self._http = limits_
        self._address = ""
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limits_ = self._http
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        limits_.open.add(self)
        if len(limits_.open) > limits_.limits.handshakes or not handles().for_clients:
            self._give_up("handshakes_full", "too many ask by HTTP; come again")
        else:
            late = f"a request by HTTP was not made and answered within {door.limits.frame_s:g} s"
            self._end = asyncio.get_running_loop().call_later(
                limits_.limits.frame_s, self._give_up, "handshake_late", late
            )  # fmt: skip

    def connection_lost(self, exc: BaseException | None) -> None:
        self._http.open.discard(self)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """What is no request is refused in one line; what went wrong here is told by aiohttp, with all there is."""
        if status >= web.HTTPInternalServerError.status_code:
            return super().handle_error(request, status, exc, message)
        self._http.refuse("http", self._address, "what came is no request of HTTP")
        answer = web.Response(status=status, text="this is no request of HTTP, or it is too long\n")
        answer.force_close()
        return answer

    def _give_up(self, kind: str, reason: str) -> None:
        self._http.refuse(kind, self._address, reason)
        if self.transport is not None:
            self.transport.abort()
