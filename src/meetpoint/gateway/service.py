"""The gateway's own description and state: /openapi.json, /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from starlette.responses import Response

from meetpoint.client.errors import NetworkError
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError, ErrorBody
from meetpoint.gateway.http.routes import JSON, Call, ResponseSpec, Route, json_response

__all__ = ["ServiceRoutes", "ServiceState", "describe"]


READY_S: Final = 3.0
"""The time for the network to answer before the gateway counts as not ready."""


class ServiceState(msgspec.Struct, frozen=True):
    """The state of the gateway."""

    state: str


class ServiceRoutes(RouteGroup):
    """The routes /openapi.json, /healthz, /readyz and /metrics."""

    def __init__(self) -> None:
        self._described: bytes = b"{}"

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="GET",
                path="/openapi.json",
                handler=self._openapi,
                summary="This description",
                responses={200: ResponseSpec("OpenAPI 3.1", dict[str, Any])},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/healthz",
                handler=self._healthz,
                summary="Whether the gateway lives",
                responses={200: ResponseSpec("It does", ServiceState)},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/readyz",
                handler=self._readyz,
                summary="Whether the gateway reaches its network",
                responses={200: ResponseSpec("It does", ServiceState)},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/metrics",
                handler=self._metrics,
                summary="What the gateway counted, for Prometheus",
                responses={200: ResponseSpec("Numbers by name", media="text/plain")},
                role="observe",
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        routes = [route for group in gateway.groups for route in group.routes]
        described = describe(routes, version("meetpoint"), gateway.settings.is_guarded)
        self._described = msgspec.json.encode(described)

    async def _openapi(self, call: Call) -> Response:
        return Response(self._described, media_type="application/json")

    async def _healthz(self, call: Call) -> Response:
        return json_response(ServiceState("ok"))

    async def _readyz(self, call: Call) -> Response:
        try:
            async with asyncio.timeout(READY_S), call.gateway.connections.own() as lease:
                await lease.net.connections.main()
        except (TimeoutError, NetworkError) as error:
            reason = str(error) or f"the network did not answer within {READY_S:g} s"
            raise ApiError(503, "network", reason, headers={"Retry-After": "1"}) from None
        return json_response(ServiceState("ready"))

    async def _metrics(self, call: Call) -> Response:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(call.gateway.counters)
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


# -- OpenAPI -----------------------------------------------------------------------------------------------------------


_REF: Final = "#/components/schemas/{name}"
_REFUSALS: Final = {
    400: "The request is not well formed",
    403: "It is not allowed: by the site that asks, the token's rights, or a role",
    408: "The body came too slowly",
    413: "The body is too long",
    415: "The content type is not one of those listed, or the body is compressed",
    421: "The gateway is not known by this name",
    422: "What was sent is well formed, and refused",
    500: "The gateway failed",
    503: "The network could not be reached, or too much is going on; Retry-After says when to try again",
}
_WITH_BODY: Final = (408, 413, 415, 422)


def describe(routes: Sequence[Route], version: str, is_guarded: bool) -> dict[str, Any]:
    """Return the OpenAPI description of routes, from the types that read and write their bodies."""
    types: dict[Any, None] = {ErrorBody: None}
    for route in routes:
        types.update(dict.fromkeys(query.type for query in (*route.query, *route.headers)))
        if route.body is not None:
            types.update(dict.fromkeys(route.body.types.values()))
        types.update(dict.fromkeys(each.type for each in route.responses.values() if each.type is not None))
    ordered = list(types)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route, found, is_guarded)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Meetpoint gateway",
            "version": version,
            "description": "Publish and subscribe by content, over HTTP.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if is_guarded:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return described


def _plain(path: str) -> str:
    """Return a path without the framework's converters: `{id:path}` is `{id}`."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)


def _operation(route: Route, schemas: dict[Any, Any], is_guarded: bool) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", _plain(route.path))
    ]
    for place, given in (("query", route.query), ("header", route.headers)):
        parameters += [
            {
                "name": each.name,
                "in": place,
                "required": each.required,
                "description": each.description,
                "schema": schemas[each.type],
            }
            for each in given
        ]
    words = re.sub(r"\W+", "_", f"{route.method.lower()}{_plain(route.path)}").strip("_")
    made: dict[str, Any] = {
        "operationId": words,
        "summary": route.summary,
        "responses": _responses(route, schemas, is_guarded),
    }
    if route.description:
        made["description"] = route.description
    if parameters:
        made["parameters"] = parameters
    if route.body is not None:
        content = {media: {"schema": schemas[type_]} for media, type_ in route.body.types.items()}
        made["requestBody"] = {"required": True, "content": content}
    if is_guarded and route.role != "anyone":
        made["security"] = [{"token": []}]
    return made


def _responses(route: Route, schemas: dict[Any, Any], is_guarded: bool) -> dict[str, Any]:
    responses = dict(route.responses)
    for status, words in _REFUSALS.items():
        if status not in responses and (route.body is not None or status not in _WITH_BODY):
            responses[status] = ResponseSpec(words, ErrorBody)
    if is_guarded and route.role != "anyone":
        responses.setdefault(401, ResponseSpec("A token is missing, or does not count", ErrorBody))
    if "{" in route.path:
        responses.setdefault(404, ResponseSpec("There is none of that name", ErrorBody))
    if route.is_stream:
        responses.setdefault(429, ResponseSpec("Too many streams are open", ErrorBody))
    return {str(status): _response(status, each, schemas) for status, each in sorted(responses.items())}


def _response(status: int, each: ResponseSpec, schemas: dict[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": each.description or HTTPStatus(status).phrase}
    if each.type is not None:
        made["content"] = {each.media: {"schema": schemas[each.type]}}
    elif each.media != JSON:
        made["content"] = {each.media: {"schema": {"type": "string"}}}
    return made
