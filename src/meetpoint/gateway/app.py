"""The application and its server.

All routes stand behind one guard, which checks every request and adds headers to every response. The server runs in a
process of its own or in a running event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from meetpoint.broker.transport.sockets import listen_at
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.dashboard import BrokerControl, DashboardRoutes
from meetpoint.gateway.dry_runs import DryRunRoutes
from meetpoint.gateway.events.publish import PublishRoutes
from meetpoint.gateway.events.streams import StreamRoutes
from meetpoint.gateway.events.websockets import socket_routes
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError, to_api_error
from meetpoint.gateway.http.pages import page_routes, report_routes
from meetpoint.gateway.http.protocol import http_protocol
from meetpoint.gateway.http.routes import Route, prepare
from meetpoint.gateway.service import ServiceRoutes
from meetpoint.gateway.subscriptions.subscriptions import SubscriptionRoutes

__all__ = ["GatewayServer", "create_app", "default_route_groups", "plain_routes", "run_gateway", "serve"]


_log = logging.getLogger("meetpoint.gateway")

_CHANGES: Final = ("POST", "PUT", "DELETE", "PATCH")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Default headers of every response: JSON is data, which no page may render, frame or cache."""
_PREFLIGHT_S: Final = 600


def create_app(settings: GatewaySettings, groups: Sequence[RouteGroup] | None = None) -> Starlette:
    """Return the gateway as an ASGI application; `app.state.gateway` is shared by its handlers."""
    gateway = Gateway(settings, default_route_groups(settings) if groups is None else groups)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            await gateway.start()
            yield
        finally:
            await gateway.stop()

    app = Starlette(
        routes=[*_routes(gateway), *plain_routes(gateway)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_problem},
        middleware=[Middleware(_RequestGuard, gateway=gateway)],
    )
    app.state.gateway = gateway
    app.router.redirect_slashes = False
    return app


def _routes(gateway: Gateway) -> list[BaseRoute]:
    """Return one framework route for each path, so that the header Allow names all its methods."""
    paths: dict[str, dict[str, Route]] = {}
    for group in gateway.groups:
        for route in group.routes:
            methods = paths.setdefault(route.path, {})
            assert route.method not in methods, f"{route.method} {route.path} is there twice"
            methods[route.method] = route
    return [_PathRoute(path, gateway, methods) for path, methods in paths.items()]


class _PathRoute(StarletteRoute):
    """A framework route for all methods of one path."""

    def __init__(self, path: str, gateway: Gateway, methods: dict[str, Route]) -> None:
        async def endpoint(request: Request) -> Response:
            return await _respond(gateway, methods[request.method], request)

        super().__init__(path, endpoint, methods=sorted(methods))
        self.methods = set(methods)  # the framework adds HEAD, which a stream would never end


async def _respond(gateway: Gateway, route: Route, request: Request) -> Response:
    try:
        if route.is_stream:
            return await route.handler(await prepare(gateway, route, request))
        async with asyncio.timeout(gateway.settings.limits.request_s):
            return await route.handler(await prepare(gateway, route, request))
    except TimeoutError:
        problem = ApiError(503, "slow", "the network took too long; try again later", headers={"Retry-After": "5"})
    except Exception as error:
        problem = to_api_error(error) or _failure(gateway, route)
    gateway.counters.count_refusal(problem.kind)
    return problem.response()


def _failure(gateway: Gateway, route: Route) -> ApiError:
    gateway.counters.add("internal_errors")
    _log.exception("%s %s failed", route.method, route.path)
    return ApiError(500, "internal", "the gateway failed; its log says why")


async def _http_problem(request: Request, error: Exception) -> Response:
    problem = to_api_error(error)
    assert problem is not None
    request.app.state.gateway.counters.count_refusal(problem.kind)
    return problem.response()


class _RequestGuard:
    """Middleware that refuses requests of foreign sites before anything else, and adds headers to responses."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # the server's own messages; they have no headers
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        is_socket = scope["type"] == "websocket"
        try:
            self._gateway.access.check_site(request, changes=is_socket or scope["method"] in _CHANGES)
        except ApiError as error:
            self._gateway.counters.count_refusal(error.kind)
            if is_socket:
                await WebSocket(scope, receive, send).send_denial_response(error.response())
            else:
                await error.response()(scope, receive, _with_headers(send, {}))
            return
        if is_socket:
            await self._app(scope, receive, send)
            return
        self._gateway.counters.add("requests")
        extra = _cors_headers(request) if self._gateway.access.is_cross_origin(request) else {}
        if scope["method"] == "OPTIONS" and extra and "access-control-request-method" in request.headers:
            await Response(status_code=204)(scope, receive, _with_headers(send, extra))
            return
        await self._app(scope, receive, _with_headers(send, extra))


def _cors_headers(request: HTTPConnection) -> dict[str, str]:
    """Return the headers without which a browser hides responses from a page of another, allowed site."""
    return {
        "Access-Control-Allow-Origin": request.headers["origin"],
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": request.headers.get("access-control-request-headers", "content-type"),
        "Access-Control-Expose-Headers": "Location, Retry-After",
        "Access-Control-Max-Age": str(_PREFLIGHT_S),
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }


def _with_headers(send: Send, extra: dict[str, str]) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in extra.items():
                headers[name] = value
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_more


def default_route_groups(settings: GatewaySettings, control: BrokerControl | None = None) -> Sequence[RouteGroup]:
    """Return all route groups in the order of their start.

    `control` starts and stops brokers, where one program runs both them and the gateway.
    """
    return (
        ServiceRoutes(),
        PublishRoutes(),
        StreamRoutes(),
        SubscriptionRoutes(),
        DryRunRoutes(),
        DashboardRoutes(control),
    )


def plain_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes that are not in /openapi.json: pages, reports and the WebSocket."""
    return (*socket_routes(gateway), *report_routes(gateway.settings.report), *page_routes())


# -- the server --------------------------------------------------------------------------------------------------------


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
