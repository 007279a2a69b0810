"""What a gateway says of itself: /openapi.json, /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec
from starlette.responses import Response

from meetpoint.client.errors import NetworkError
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.openapi import describe
from meetpoint.gateway.http.routes import Answer, Call, Route, answer

__all__ = ["About", "State"]

READY_S: Final = 3.0
"""How long the network may take to answer before the gateway counts as not ready."""


class State(msgspec.Struct, frozen=True):
    """How the gateway is."""

    state: str


class About:
    """The part that describes the others."""

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
                answers={200: Answer("OpenAPI 3.1", dict[str, Any])},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/healthz",
                handler=self._healthz,
                summary="Whether the gateway lives",
                answers={200: Answer("It does", State)},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/readyz",
                handler=self._readyz,
                summary="Whether the gateway reaches its network",
                answers={200: Answer("It does", State)},
                role="anyone",
            ),
            Route(
                method="GET",
                path="/metrics",
                handler=self._metrics,
                summary="What the gateway counted, for Prometheus",
                answers={200: Answer("Numbers by name", media="text/plain")},
                role="observe",
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        routes = [route for part in gateway.parts for route in part.routes]
        described = describe(routes, version("meetpoint"), gateway.settings.is_guarded)
        self._described = msgspec.json.encode(described)

    async def stop(self) -> None:
        pass

    async def _openapi(self, call: Call) -> Response:
        return Response(self._described, media_type="application/json")

    async def _healthz(self, call: Call) -> Response:
        return answer(State("ok"))

    async def _readyz(self, call: Call) -> Response:
        try:
            async with asyncio.timeout(READY_S), call.gateway.connections.own() as lease:
                await lease.net.links.main()
        except (TimeoutError, NetworkError) as error:
            reason = str(error) or f"the network did not answer within {READY_S:g} s"
            raise ApiError(503, "network", reason, headers={"Retry-After": "1"}) from None
        return answer(State("ready"))

    async def _metrics(self, call: Call) -> Response:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(call.gateway.counts)
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
