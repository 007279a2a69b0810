"""Gateways for tests: on virtual time in the running loop, or in a thread for synchronous callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import msgspec

from meetpoint.client.sync import Background
from meetpoint.gateway import GatewayServer, GatewaySettings, run_gateway
from tests.client.running import PATIENCE_S, run, until

__all__ = ["PATIENCE_S", "Reader", "gateway", "gateway_in_thread", "reading", "run", "until", "until_shown"]


@asynccontextmanager
async def gateway(at: str, **said: Any) -> AsyncIterator[tuple[GatewayServer, httpx.AsyncClient]]:
    """Run a gateway at a free port, and a client of it."""
    settings = GatewaySettings(**{"at": at, "listen": "127.0.0.1:0", **said})
    async with run_gateway(settings) as served, httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client:
        yield served, client


@contextmanager
def gateway_in_thread(at: str, **said: Any) -> Iterator[GatewayServer]:
    """Run a gateway in a loop of another thread, on real time."""
    settings = GatewaySettings(**{"at": at, "listen": "127.0.0.1:0", **said})
    background = Background("gateway of a test")
    entered = run_gateway(settings)
    try:
        served = background.run(entered.__aenter__())
        try:
            yield served
        finally:
            background.run(entered.__aexit__(None, None, None))
    finally:
        background.stop()


async def until_shown(
    client: httpx.AsyncClient, path: str, holds: Callable[[Any], object], patience_s: float = PATIENCE_S
) -> Any:
    """Ask for `path` until the JSON of its answer fulfils a condition; return that JSON."""
    async with asyncio.timeout(patience_s):
        while not holds(shown := (await client.get(path)).json()):
            await asyncio.sleep(patience_s / 100)
    return shown


class Message(msgspec.Struct):
    """A server-sent event."""

    kind: str
    id: str
    data: Any


class Reader:
    """Reads server-sent events as a browser does."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()
        self.last_id = ""

    async def next(self) -> Message:
        """Return the next message."""
        kind, data = "message", ""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                name, _, value = line.partition(":")
                if name == "id":
                    self.last_id = value.strip()
                elif name == "event":
                    kind = value.strip()
                elif name == "data":
                    data = value.strip()
                elif not line and data:
                    return Message(kind, self.last_id, msgspec.json.decode(data))
        raise AssertionError("the stream ended")

    async def take(self, count: int) -> list[Message]:
        """Return the next messages."""
        return [await self.next() for _ in range(count)]

    async def is_over(self) -> bool:
        """Return whether the stream ends with nothing more."""
        async with asyncio.timeout(PATIENCE_S):
            return not [line async for line in self._lines if line.startswith("data")]


@asynccontextmanager
async def reading(client: httpx.AsyncClient, after: str = "", **query: str) -> AsyncIterator[Reader]:
    """Open a stream of events."""
    headers = {"Last-Event-ID": after} if after else {}
    async with client.stream("GET", "/events", params=query, headers=headers) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        yield Reader(answer)
