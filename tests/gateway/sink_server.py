"""A sink of webhooks with answers of the test's choice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

__all__ = ["Sink", "SinkRequest", "agreeing", "sink_server", "wanted"]


class SinkRequest(msgspec.Struct):
    """A request to the sink."""

    headers: dict[str, str]
    body: bytes
    path: str

    @property
    def event(self) -> Any:
        return from_http_event(HTTPMessage(self.headers, self.body))


def agreeing(origin: str, **beside: str) -> Callable[[], web.Response]:
    """Return the answer of a sink that wants the events of an origin."""
    named = {f"WebHook-Allowed-{name.capitalize()}": value for name, value in beside.items()}
    return lambda: web.Response(headers={"WebHook-Allowed-Origin": origin, **named})


class Sink:
    """Records webhooks and answers them as the test says; OPTIONS are recorded apart."""

    def __init__(self) -> None:
        self.got: list[SinkRequest] = []
        self.answer: Callable[[SinkRequest], web.Response] = lambda _: web.Response(status=204)
        self.asked: list[dict[str, str]] = []
        self.agree: Callable[[], web.Response] = agreeing("*")
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.method == "OPTIONS":
            self.asked.append(headers)
            return self.agree()
        got = SinkRequest(headers, await request.read(), request.path)
        self.got.append(got)
        return self.answer(got)


@asynccontextmanager
async def sink_server() -> AsyncIterator[Sink]:
    """Run a sink on this machine."""
    sink = Sink()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", sink.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sink.url = f"http://{host}:{port}"
    try:
        yield sink
    finally:
        await runner.cleanup()


def wanted(sink: Sink, test: str, **beside: Any) -> dict[str, Any]:
    """Return a subscription to the events of one test, sent to a sink."""
    return {"protocol": "HTTP", "sink": f"{sink.url}/hook", "filters": [{"exact": {"test": test}}], **beside}
