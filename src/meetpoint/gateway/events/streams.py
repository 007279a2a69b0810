"""GET /events: server-sent events, that go on where the reader was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Final, Protocol

from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.feeds import Feeds, Format
from meetpoint.gateway.events.positions import Position
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.errors import ApiError, ProblemIs
from meetpoint.gateway.http.routes import Answer, Call, Query, Route
from meetpoint.gateway.http.timeouts import ABORT
from meetpoint.gateway.subscriptions.durable import Durables
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.timestamps import parse_timestamp

__all__ = ["EVENT_STREAM", "EventStream", "FilterText", "Name", "Source", "Streams", "read_moment"]

EVENT_STREAM: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0
"""After so long without events something is sent, so that a reader that is gone is noticed."""
RETRY_MS: Final = 2000
"""How long browsers wait before they connect again."""
_HEADERS: Final = {"Content-Type": EVENT_STREAM, "X-Accel-Buffering": "no"}

FilterText = Annotated[str, Meta(min_length=1, max_length=65_536)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Source(Protocol):
    """Where a stream's bytes come from."""

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Some bytes, with how many events they are; none after `timeout_s`; None: it is over."""


class EventStream(Response):
    """An answer that goes on until its source or its reader ends it, or the gateway."""

    def __init__(self, gateway: Gateway, caller: Caller, source: Source, leave: Callable[[], Awaitable[None]]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._gateway = gateway
        self._caller = caller
        self._source = source
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing: asyncio.Task[None] | None = None
        gone: asyncio.Task[None] | None = None
        try:
            with self._gateway.slots.take(self._caller):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                gone = asyncio.create_task(_gone(receive))
                writing = asyncio.create_task(self._write(send, scope.get(ABORT)))
                with self._gateway.slots.ending_with(writing.cancel):
                    await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
                if writing.done() and not gone.done():
                    with contextlib.suppress(OSError):
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ApiError as error:  # the last place was taken meanwhile
            self._gateway.counts.refuse(error.kind)
            await error.answer()(scope, receive, send)
        finally:
            for task in (writing, gone):
                if task is not None:
                    task.cancel()
            await asyncio.shield(self._leave())

    async def _write(self, send: Send, abort: Callable[[], None] | None) -> None:
        limits, counts = self._gateway.settings.limits, self._gateway.counts
        loop, writing = asyncio.get_running_loop(), asyncio.current_task()
        assert writing is not None

        def give_up() -> None:
            counts.add("streams_stalled")
            writing.cancel()
            if abort is not None:
                abort()  # what waits to be written would hold the connection open

        chunk: bytes = b"retry: %d\n\n" % RETRY_MS
        events = 0
        while True:
            alarm = loop.call_later(limits.stall_s, give_up)
            try:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            finally:
                alarm.cancel()
            counts.add("events_streamed", events)
            found = await self._source.next(HEARTBEAT_S)
            if found is None:
                return
            chunk, events = found
            chunk = chunk or b": still here\n\n"


async def _gone(receive: Receive) -> None:
    """Returns when the reader is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Streams:
    """The part that streams."""

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="GET",
                path="/events",
                handler=self._stream,
                summary="Subscribe, as server-sent events",
                description=(
                    "Each message is one event as JSON, or as a CloudEvent. `dropped`, `gap` and `ended` are messages "
                    "of their own kind, with a reason or a count."
                ),
                query=(
                    Query("filter", FilterText, "Which events; may be left out where `durable` names what there is"),
                    Query("durable", Name, "The name of a durable subscription: what is not taken waits for it"),
                    Query("since", str, "First what was accepted from this moment on, from the brokers' archives"),
                    Query("format", Format, "`json` (as without), or `cloudevents`"),
                ),
                headers=(Query("Last-Event-ID", str, "Where the reader was: go on there"),),
                answers={
                    200: Answer("Events, until either side ends it", media=EVENT_STREAM),
                    404: Answer("There is no durable subscription of this name, and no filter to make one", ProblemIs),
                    422: Answer("The filter is refused", ProblemIs),
                },
                is_stream=True,
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._feeds = Feeds(gateway)
        self._durables = Durables(gateway)

    async def stop(self) -> None:
        await self._feeds.close()

    async def _stream(self, call: Call) -> Response:
        call.gateway.slots.check(call.caller)
        text = call.query.get("filter")
        if text is not None:
            parse_filter(text)
        name = call.query.get("durable")
        form: Format = call.query.get("format", "json")
        since = read_moment(call.query["since"]) if "since" in call.query else None
        said = call.request.headers.get("last-event-id", "")
        after = Position.parse(said) if said else None
        caller = call.caller
        if name is not None:
            if since is not None:
                raise ApiError(400, "query", "durable and since: what waits comes anyway; take one of them")
            reader = await self._durables.open(caller, name, text, form, after)
            return EventStream(call.gateway, caller, reader, lambda: self._durables.leave(caller, name, reader))
        if text is None:
            raise ApiError(400, "query", "the parameter filter is missing: it says which events; TRUE is all of them")
        feed, pipe = await self._feeds.open(caller, text, form, since, after)
        return EventStream(call.gateway, caller, pipe, lambda: self._feeds.leave(feed, pipe))


def read_moment(text: str) -> datetime:
    """The moment that `since` names."""
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise ApiError(400, "query", f"since: {error}") from None
