"""HTTP for operators: /healthz (it lives), /readyz (it serves, or 503 and why not), /metrics (Prometheus).

On loopback it is plain. Elsewhere it is HTTPS with the broker's certificate, and /metrics wants a token with the role
`observe`; the other two say nothing that a load balancer may not know.

The port is open to strangers where Prometheus is on another machine, and every connection takes a file handle that
brokers and clients need. `aiohttp` alone waits an hour for a request, accepts any number, and logs a stack trace for
each that is malformed. So connections are limited in number and time, and each serves one request.

A broker imports this module when it serves HTTP, since `aiohttp` and `prometheus_client` are slow to load.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from meetpoint.broker.clients.authorization import Authorizer
from meetpoint.broker.config import BrokerConfig, Limits, is_loopback, parse_address
from meetpoint.broker.observe.logs import Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.transport.sockets import handles, listen_at
from meetpoint.broker.transport.tls import load_own, serving_context
from meetpoint.security.grants import TokenError

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

__all__ = ["Admin", "HttpLimits", "once"]


@web.middleware
async def once(request: web.Request, handler: Any) -> web.StreamResponse:
    """Close the connection after each answer."""
    try:
        answer: web.StreamResponse = await handler(request)
    except web.HTTPException as error:
        error.force_close()
        raise
    answer.force_close()
    return answer


class HttpLimits:
    """The connections of one HTTP server, limited in number and time."""

    def __init__(self, server: web.Server, limits: Limits, refusals: Refusals) -> None:
        self.server = server
        self.limits = limits
        self.refusals = refusals
        self.open: set[_HttpConnection] = set()
        self._listening: asyncio.Server | None = None

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections on a socket, with TLS where there is a context."""
        loop = asyncio.get_running_loop()
        wait_s = None if context is None else self.limits.handshake_s
        self._listening = await loop.create_server(
            lambda: _HttpConnection(self, loop), sock=sock, ssl=context, ssl_handshake_timeout=wait_s
        )

    def close(self) -> None:
        """Accept no new connections."""
        if self._listening is not None:
            self._listening.close()

    def refuse(self, kind: str, address: str, reason: str) -> None:
        """Count and log a refusal."""
        self.refusals.refuse(kind, address=address, reason=reason)


class _HttpConnection(RequestHandler):
    """A connection for one request."""

    def __init__(self, http: HttpLimits, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(http.server, loop=loop, access_log=None)  # type: ignore[arg-type]
        self._http = http
        self._address = ""
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        http = self._http
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        http.open.add(self)
        if len(http.open) > http.limits.handshakes or not handles().for_clients:
            self._give_up("handshakes_full", "too many ask by HTTP; come again")
        else:
            late = f"a request by HTTP was not made and answered within {http.limits.frame_s:g} s"
            self._end = asyncio.get_running_loop().call_later(
                http.limits.frame_s, self._give_up, "handshake_late", late
            )  # fmt: skip

    def connection_lost(self, exc: BaseException | None) -> None:
        self._http.open.discard(self)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """Refuse a malformed request in one line; aiohttp logs errors of the server itself in full."""
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


CLOSE_S = 1.0


class Admin:
    """The HTTP side of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        counts: Counts,
        authorizer: Authorizer,
        refusals: Refusals,
        why_not_ready: Callable[[], str],
        failure: Callable[[], str],
    ) -> None:
        assert config.admin_address is not None, "a broker without one has no admin"
        self._config = config
        self._at = parse_address(config.admin_address, "admin")
        self._is_open = not is_loopback(self._at.host)
        self._counts = counts
        self._authorizer = authorizer
        self._refusals = refusals
        self._why_not_ready = why_not_ready
        self._failure = failure
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._http: HttpLimits | None = None
        self.address = ""

    async def open(self) -> None:
        """Listen and serve."""
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
        self._http = HttpLimits(self._runner.server, self._config.limits, self._refusals)
        if self._is_open and self._config.has_tls:
            self._context = serving_context(self._config)
        sock: socket.socket = listen_at(self._at, "admin")
        await self._http.listen(sock, self._context)
        self.address = str(self._at._replace(port=sock.getsockname()[1]))

    def _why_not(self, authorization: str) -> str:
        """Return why a caller is not told the metrics; empty where it is."""
        if not self._is_open or self._config.access.keys is None:
            return ""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            return "metrics need a token: send the header Authorization: Bearer TOKEN"
        try:
            grant = self._authorizer.read(token.strip())
        except TokenError as error:
            return str(error)
        return "" if grant.may_observe else f"the token of {grant.client} has not the role observe; issue one that has"

    def reload(self) -> None:
        """Show the new certificate to connections from now on."""
        if self._context is not None:
            load_own(self._context, self._config)

    async def close(self) -> None:
        """Stop serving HTTP."""
        if self._http is not None:
            self._http.close()
        if self._runner is not None:
            await self._runner.cleanup()
