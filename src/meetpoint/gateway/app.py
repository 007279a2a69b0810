"""The application: the table of routes behind one guard, which looks at every request and at every answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

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

from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.gateway import Gateway, Part
from meetpoint.gateway.http.errors import ApiError, problem_of
from meetpoint.gateway.http.routes import Route, prepare
from meetpoint.gateway.parts import default_parts, other_routes

__all__ = ["create_app"]

_log = logging.getLogger("meetpoint.gateway")

_CHANGES: Final = ("POST", "PUT", "DELETE", "PATCH")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On every answer that does not say otherwise: it is data, to be shown by nobody."""
_PREFLIGHT_S: Final = 600


def create_app(settings: GatewaySettings, parts: Sequence[Part] | None = None) -> Starlette:
    """The gateway as an application; `app.state.gateway` is what its handlers share."""
    gateway = Gateway(settings, default_parts(settings) if parts is None else parts)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            await gateway.start()
            yield
        finally:
            await gateway.stop()

    app = Starlette(
        routes=[*_routes(gateway), *other_routes(gateway)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_problem},
        middleware=[Middleware(_Guard, gateway=gateway)],
    )
    app.state.gateway = gateway
    app.router.redirect_slashes = False
    return app


def _routes(gateway: Gateway) -> list[BaseRoute]:
    """One route of the framework for each path: so that the header Allow names all its methods."""
    paths: dict[str, dict[str, Route]] = {}
    for part in gateway.parts:
        for route in part.routes:
            methods = paths.setdefault(route.path, {})
            assert route.method not in methods, f"{route.method} {route.path} is there twice"
            methods[route.method] = route
    return [_Path(path, gateway, methods) for path, methods in paths.items()]


class _Path(StarletteRoute):
    """All methods of one path."""

    def __init__(self, path: str, gateway: Gateway, methods: dict[str, Route]) -> None:
        async def endpoint(request: Request) -> Response:
            return await _answer(gateway, methods[request.method], request)

        super().__init__(path, endpoint, methods=sorted(methods))
        self.methods = set(methods)  # the framework adds HEAD, which a stream would never end


async def _answer(gateway: Gateway, route: Route, request: Request) -> Response:
    try:
        if route.is_stream:
            return await route.handler(await prepare(gateway, route, request))
        async with asyncio.timeout(gateway.settings.limits.request_s):
            return await route.handler(await prepare(gateway, route, request))
    except TimeoutError:
        problem = ApiError(503, "slow", "the network took too long; try again later", headers={"Retry-After": "5"})
    except Exception as error:
        problem = problem_of(error) or _failure(gateway, route)
    gateway.counts.refuse(problem.kind)
    return problem.answer()


def _failure(gateway: Gateway, route: Route) -> ApiError:
    gateway.counts.add("internal_errors")
    _log.exception("%s %s failed", route.method, route.path)
    return ApiError(500, "internal", "the gateway failed; its log says why")


async def _http_problem(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    assert problem is not None
    request.app.state.gateway.counts.refuse(problem.kind)
    return problem.answer()


class _Guard:
    """Looks at the site that asks, before anything else, and puts headers on what is answered."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        is_socket = scope["type"] == "websocket"
        try:
            self._gateway.door.check_site(asked, changes=is_socket or scope["method"] in _CHANGES)
        except ApiError as error:
            self._gateway.counts.refuse(error.kind)
            if is_socket:
                await WebSocket(scope, receive, send).send_denial_response(error.answer())
            else:
                await error.answer()(scope, receive, _adding(send, {}))
            return
        if is_socket:
            await self._app(scope, receive, send)
            return
        self._gateway.counts.add("requests")
        extra = _for_other_sites(asked) if self._gateway.door.is_elsewhere(asked) else {}
        if scope["method"] == "OPTIONS" and extra and "access-control-request-method" in asked.headers:
            await Response(status_code=204)(scope, receive, _adding(send, extra))
            return
        await self._app(scope, receive, _adding(send, extra))


def _for_other_sites(asked: HTTPConnection) -> dict[str, str]:
    """What a browser wants to read before a page of another site, one of the list, may see an answer."""
    return {
        "Access-Control-Allow-Origin": asked.headers["origin"],
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": asked.headers.get("access-control-request-headers", "content-type"),
        "Access-Control-Expose-Headers": "Location, Retry-After",
        "Access-Control-Max-Age": str(_PREFLIGHT_S),
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }


def _adding(send: Send, extra: dict[str, str]) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in extra.items():
                headers[name] = value
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_more
