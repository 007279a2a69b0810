"""GET /events: server-sent events that resume where the reader was, of a filter or of a durable subscription.

A stream has no way to acknowledge. So events of a durable subscription count as received after `confirm_s` on an open
connection. When it breaks, the last events are redelivered, except those that the reader shows to have seen: the header
Last-Event-ID names the last event that it got, and the gateway remembers in which order it sent what was not
acknowledged. A client that wants to acknowledge event by event reads by WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Final, Protocol

from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from meetpoint.api.ids import EventKey
from meetpoint.client.delivery import Delivery
from meetpoint.client.subscription import Subscription
from meetpoint.gateway.connections import Caller, Lease
from meetpoint.gateway.events.feeds import FeedRegistry, Format, Position, encode_frame, notice_frame
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError, ErrorBody
from meetpoint.gateway.http.protocol import ABORT_KEY
from meetpoint.gateway.http.routes import Call, Parameter, ResponseSpec, Route
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.timestamps import parse_timestamp

__all__ = [
    "EVENT_STREAM",
    "ChunkSource",
    "DurableReader",
    "DurableReaders",
    "EventStreamResponse",
    "FilterText",
    "Name",
    "StreamRoutes",
    "read_moment",
]


EVENT_STREAM: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0
"""After so long without events a comment is sent, so that a reader that is gone is noticed."""
RETRY_MS: Final = 2000
"""The time for browsers to wait before they connect again."""
_HEADERS: Final = {"Content-Type": EVENT_STREAM, "X-Accel-Buffering": "no"}

FilterText = Annotated[str, Meta(min_length=1, max_length=65_536)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class ChunkSource(Protocol):
    """The source of a stream's bytes."""

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Return bytes and their number of events; empty after `timeout_s`; None at the end."""


class EventStreamResponse(Response):
    """A response that goes on until its source, its reader or the gateway ends it."""

    def __init__(
        self, gateway: Gateway, caller: Caller, source: ChunkSource, leave: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._gateway = gateway
        self._caller = caller
        self._source = source
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing: asyncio.Task[None] | None = None
        disconnected: asyncio.Task[None] | None = None
        try:
            with self._gateway.stream_limits.hold(self._caller):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                disconnected = asyncio.create_task(_wait_disconnected(receive))
                writing = asyncio.create_task(self._write(send, scope.get(ABORT_KEY)))
                with self._gateway.stream_limits.cancel_on_close(writing.cancel):
                    await asyncio.wait({writing, disconnected}, return_when=asyncio.FIRST_COMPLETED)
                if writing.done() and not disconnected.done():
                    with contextlib.suppress(OSError):
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ApiError as error:  # the last place was taken meanwhile
            self._gateway.counters.count_refusal(error.kind)
            await error.response()(scope, receive, send)
        finally:
            for task in (writing, disconnected):
                if task is not None:
                    task.cancel()
            await asyncio.shield(self._leave())

    async def _write(self, send: Send, abort: Callable[[], None] | None) -> None:
        limits, counts = self._gateway.settings.limits, self._gateway.counters
        loop, writing = asyncio.get_running_loop(), asyncio.current_task()
        assert writing is not None

        def time_out() -> None:
            counts.add("streams_stalled")
            writing.cancel()
            if abort is not None:
                abort()  # what waits to be written would hold the connection open

        chunk: bytes = b"retry: %d\n\n" % RETRY_MS
        events = 0
        while True:
            timer = loop.call_later(limits.stall_s, time_out)
            try:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            finally:
                timer.cancel()
            counts.add("events_streamed", events)
            found = await self._source.next(HEARTBEAT_S)
            if found is None:
                return
            chunk, events = found
            chunk = chunk or b": still here\n\n"


async def _wait_disconnected(receive: Receive) -> None:
    """Return when the reader is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamRoutes(RouteGroup):
    """The route GET /events."""

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
                    Parameter(
                        "filter", FilterText, "Which events; may be left out where `durable` names what there is"
                    ),
                    Parameter("durable", Name, "The name of a durable subscription: what is not taken waits for it"),
                    Parameter("since", str, "First what was accepted from this moment on, from the brokers' archives"),
                    Parameter("format", Format, "`json` (as without), or `cloudevents`"),
                ),
                headers=(Parameter("Last-Event-ID", str, "Where the reader was: go on there"),),
                responses={
                    200: ResponseSpec("Events, until either side ends it", media=EVENT_STREAM),
                    404: ResponseSpec(
                        "There is no durable subscription of this name, and no filter to make one", ErrorBody
                    ),
                    422: ResponseSpec("The filter is refused", ErrorBody),
                },
                is_stream=True,
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._feeds = FeedRegistry(gateway)
        self._durables = DurableReaders(gateway)

    async def stop(self) -> None:
        await self._feeds.close()

    async def _stream(self, call: Call) -> Response:
        call.gateway.stream_limits.check(call.caller)
        text = call.query.get("filter")
        if text is not None:
            parse_filter(text)
        name = call.query.get("durable")
        form: Format = call.query.get("format", "json")
        since = read_moment(call.query["since"]) if "since" in call.query else None
        last_id = call.request.headers.get("last-event-id", "")
        after = Position.parse(last_id) if last_id else None
        caller = call.caller
        if name is not None:
            if since is not None:
                raise ApiError(400, "query", "durable and since: what waits comes anyway; take one of them")
            reader = await self._durables.open(caller, name, text, form, after)
            return EventStreamResponse(call.gateway, caller, reader, lambda: self._durables.leave(caller, name, reader))
        if text is None:
            raise ApiError(400, "query", "the parameter filter is missing: it says which events; TRUE is all of them")
        feed, buffer = await self._feeds.open(caller, text, form, since, after)
        return EventStreamResponse(call.gateway, caller, buffer, lambda: self._feeds.leave(feed, buffer))


def read_moment(text: str) -> datetime:
    """Read the parameter `since`."""
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise ApiError(400, "query", f"since: {error}") from None


# -- durable subscriptions ---------------------------------------------------------------------------------------------


WINDOW: Final = 5000
"""The most events before the first is acknowledged: with `confirm_s`, the highest rate of a durable stream."""
CHUNK_BYTES: Final = 64 << 10
REMEMBERED_MAX: Final = 1000
"""The most names whose last sent events are remembered."""


class DurableReader:
    """A stream of a durable subscription."""

    def __init__(
        self,
        subscription: Subscription,
        resources: AsyncExitStack,
        form: Format,
        confirm_s: float,
        seen: frozenset[EventKey],
    ) -> None:
        self._subscription = subscription
        self._resources = resources
        self._form = form
        self._confirm_s = confirm_s
        self._seen = seen
        self._sent: OrderedDict[EventKey, tuple[Delivery, float]] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    @property
    def unconfirmed(self) -> list[EventKey]:
        """Events that were sent and not acknowledged, in the order of sending."""
        return list(self._sent)

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Return some events; empty after `timeout_s`; None at the end."""
        if self._is_over:
            return None
        until = self._loop.time() + timeout_s
        while True:
            self._confirm()
            wait = until - self._loop.time()
            if self._sent:
                first = next(iter(self._sent.values()))[1]
                wait = min(wait, max(0.01, first + self._confirm_s - self._loop.time()))
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    delivered = await self._subscription.next_()
            except TimeoutError:
                if self._loop.time() >= until:
                    return b"", 0
                continue
            chunk, events = await self._gather(delivered)
            if events or self._is_over:
                return chunk, events

    async def _gather(self, delivered: Delivery | None) -> tuple[bytes, int]:
        """Encode an event and those that wait behind it."""
        parts: list[bytes] = []
        size = 0
        while True:
            if delivered is None:
                self._is_over = True
                parts.append(notice_frame("ended", {"reason": self._subscription.ended or "it ended"}))
                return b"".join(parts), len(parts) - 1
            if delivered.key in self._seen:
                self._subscription.acknowledge_nowait(delivered)
            else:
                text = encode_frame(delivered, self._form).text
                self._sent[delivered.key] = delivered, self._loop.time()
                self._sent.move_to_end(delivered.key)
                parts.append(text)
                size += len(text)
            if size > CHUNK_BYTES or not self._subscription.waiting:
                return b"".join(parts), len(parts)
            delivered = await self._subscription.next_()

    def _confirm(self) -> None:
        before = self._loop.time() - self._confirm_s
        while self._sent:
            key, (delivered, at) = next(iter(self._sent.items()))
            if at > before:
                return
            del self._sent[key]
            self._subscription.acknowledge_nowait(delivered)

    async def close(self) -> None:
        """Stop reading; events that are not acknowledged are redelivered."""
        await self._subscription.close()
        await self._resources.aclose()


async def filter_of(lease: Lease, name: str) -> str:
    """Return the filter of a durable subscription; raise ApiError where there is none of this name."""
    located = await lease.net.locate(name)
    if located.host is None:
        raise ApiError(404, "not_found", f"there is no subscription {name!r}; give a filter to make one")
    return located.filter


class DurableReaders:
    """Opens readers of durable subscriptions, and remembers what was sent last to each."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._unconfirmed: OrderedDict[tuple[str, str], list[EventKey]] = OrderedDict()

    async def open(
        self, caller: Caller, name: str, filter_: str | None, form: Format, after: Position | None
    ) -> DurableReader:
        """Open a reader of a durable subscription; one with a filter is made where there is none."""
        resources = AsyncExitStack()
        try:
            lease = await resources.enter_async_context(self._gateway.connections.use(caller))
            if filter_ is None:
                filter_ = await filter_of(lease, name)
            subscription = await lease.net.subscribe(filter_, durable=name, ack="manual", window=WINDOW)
            seen = self._seen((caller.owner, name), after)
            return DurableReader(subscription, resources, form, self._gateway.settings.limits.confirm_s, seen)
        except BaseException:
            await resources.aclose()
            raise

    def _seen(self, key: tuple[str, str], after: Position | None) -> frozenset[EventKey]:
        sent = self._unconfirmed.pop(key, [])
        if after is None:
            return frozenset()
        self._gateway.counters.add("streams_resumed")
        if after.key not in sent:
            return frozenset((after.key,))
        return frozenset(sent[: sent.index(after.key) + 1])

    async def leave(self, caller: Caller, name: str, reader: DurableReader) -> None:
        """Close a reader."""
        if reader.unconfirmed:
            self._unconfirmed[caller.owner, name] = reader.unconfirmed
            while len(self._unconfirmed) > REMEMBERED_MAX:
                self._unconfirmed.popitem(last=False)
        await reader.close()
