"""GET /ws: a WebSocket on which a client subscribes, publishes and acknowledges, in JSON messages.

A client sends `subscribe`, `unsubscribe`, `publish`, `ack` and `nack`; each has a `type`, and the answer repeats its
`ref`. A wrong message is answered by `error` and the socket stays open; bytes that are no message end it. A client that
does not read is not read from: its events wait at the network, or are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from meetpoint.client.delivery import Delivery
from meetpoint.client.subscription import Subscription
from meetpoint.errors import one_line
from meetpoint.gateway.connections import Caller, Lease
from meetpoint.gateway.events.cloud_events import EventDraft
from meetpoint.gateway.events.feeds import Format, Position, encode
from meetpoint.gateway.events.publish import Envelope, publish, read_envelope
from meetpoint.gateway.events.streams import FilterText, Name, filter_of, read_moment
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.access import SUBPROTOCOL
from meetpoint.gateway.http.errors import ApiError, Problem, to_api_error
from meetpoint.gateway.http.routes import read_json

__all__ = ["socket_routes"]

PUBLISHING_MAX: Final = 256
"""The most events of one socket that await acknowledgement; then no further message is read."""
UNACKNOWLEDGED_MAX: Final = 10_000
"""The most events of one durable subscription that can be acknowledged; older ones are redelivered."""
WINDOW: Final = 256
GOING_AWAY: Final = 1001
POLICY: Final = 1008
FAILED: Final = 1011
TRY_AGAIN: Final = 1013
REASON_MAX: Final = 30
"""The longest reason, in characters: a close frame has room for 123 bytes."""

_log = logging.getLogger("meetpoint.gateway")

Ref: TypeAlias = str | int | None


class _ClientMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    ref: Ref = None


class SubscribeMessage(_ClientMessage, frozen=True, tag="subscribe", kw_only=True):
    """Subscribe; `name` identifies the subscription on this socket."""

    name: Name
    filter: FilterText | None = None
    durable: Name | None = None
    since: str | None = None
    format: Format = "json"


class UnsubscribeMessage(_ClientMessage, frozen=True, tag="unsubscribe", kw_only=True):
    """End a subscription; `forget` ends a durable one for good."""

    name: Name
    forget: bool = False


class PublishMessage(_ClientMessage, frozen=True, tag="publish", kw_only=True):
    """Publish an event."""

    event: Envelope


class AckMessage(_ClientMessage, frozen=True, tag="ack", kw_only=True):
    """Acknowledge an event of a durable subscription."""

    name: Name
    key: Annotated[str, Meta(max_length=300)]


class NackMessage(_ClientMessage, frozen=True, tag="nack", kw_only=True):
    """Reject an event of a durable subscription."""

    name: Name
    key: Annotated[str, Meta(max_length=300)]
    reason: Annotated[str, Meta(max_length=1000)] = ""


ClientMessage: TypeAlias = SubscribeMessage | UnsubscribeMessage | PublishMessage | AckMessage | NackMessage


class ServerMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message of the gateway, except events."""

    type: str
    ref: Ref = None
    name: str | None = None
    key: str | None = None
    id: str | None = None
    count: int | None = None
    reason: str | None = None
    error: Problem | None = None


class _SocketSubscription:
    """A subscription of a socket."""

    def __init__(self, subscription: Subscription, form: Format) -> None:
        self.subscription = subscription
        self.form = form
        self.unacknowledged: OrderedDict[str, Delivery] = OrderedDict()
        self.reading: asyncio.Task[None] | None = None


class _Session:
    """The state of one socket, and the handling of its messages."""

    def __init__(self, gateway: Gateway, socket: WebSocket, lease: Lease) -> None:
        self._gateway = gateway
        self._socket = socket
        self._lease = lease
        self._subscriptions: dict[str, _SocketSubscription] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._publish_slots = asyncio.Semaphore(PUBLISHING_MAX)

    async def run(self) -> None:
        """Handle messages until the client goes."""
        try:
            while True:
                data = await self._receive()
                ref: Ref = None
                try:
                    message: ClientMessage = read_json(data, ClientMessage)  # type: ignore[arg-type]
                    ref = message.ref
                    await self._handle(message)
                except WebSocketDisconnect:
                    raise
                except Exception as error:
                    await self._send_error(ref, error)
        finally:
            for task in self._publishing:
                task.cancel()
            for entry in tuple(self._subscriptions.values()):
                await self._close_entry(entry)

    async def _receive(self) -> bytes:
        """Return the next message, from a text or a binary frame."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"], message.get("reason"))
        text = message.get("text")
        return bytes(message["bytes"]) if text is None else str(text).encode()

    async def _send_error(self, ref: Ref, error: Exception, name: str | None = None) -> None:
        problem = to_api_error(error)
        if problem is None:
            raise error
        self._gateway.counters.count_refusal(problem.kind)
        message = Problem(problem.kind, problem.message, problem.at)
        await self._send_message(ServerMessage(type="error", ref=ref, name=name, error=message))

    async def _handle(self, message: ClientMessage) -> None:
        match message:
            case SubscribeMessage():
                await self._subscribe(message)
            case UnsubscribeMessage():
                entry = self._find(message.name)
                if message.forget and entry.subscription.durable:
                    await entry.subscription.unsubscribe()
                await self._close_entry(entry)
                self._subscriptions.pop(message.name, None)
                await self._send_message(ServerMessage(type="unsubscribed", ref=message.ref, name=message.name))
            case PublishMessage():
                draft = read_envelope(message.event, await self._lease.schema())
                await self._publish_slots.acquire()  # while this waits nothing is read: TCP slows the client
                task = asyncio.create_task(self._publish(message.ref, draft))
                self._publishing.add(task)
                task.add_done_callback(self._published)
            case AckMessage():
                delivered = self._take(message.name, message.key)
                await delivered.ack()
                await self._send_message(
                    ServerMessage(type="acked", ref=message.ref, name=message.name, key=message.key)
                )
            case NackMessage():
                delivered = self._take(message.name, message.key)
                await delivered.nack(message.reason)
                await self._send_message(
                    ServerMessage(type="nacked", ref=message.ref, name=message.name, key=message.key)
                )

    def _find(self, name: str) -> _SocketSubscription:
        entry = self._subscriptions.get(name)
        if entry is None:
            raise ApiError(404, "not_found", f"there is no subscription {name!r} on this socket")
        return entry

    def _take(self, name: str, key: str) -> Delivery:
        delivered = self._find(name).unacknowledged.pop(key, None)
        if delivered is None:
            raise ApiError(404, "not_found", "no event with this key waits to be acknowledged here")
        return delivered

    # -- publishing ----------------------------------------------------------------------------------------------------

    async def _publish(self, ref: Ref, draft: EventDraft) -> None:
        try:
            (id_,) = await publish(self._gateway, self._lease, [draft])
            await self._send_message(ServerMessage(type="published", ref=ref, id=id_))
        except Exception as error:
            await self._send_error(ref, error)

    def _published(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        self._publish_slots.release()
        if not task.cancelled():
            task.exception()  # the socket is gone: whoever reads it sees that

    # -- subscribing ---------------------------------------------------------------------------------------------------

    async def _subscribe(self, message: SubscribeMessage) -> None:
        if message.name in self._subscriptions:
            raise ApiError(409, "exists", f"there is a subscription {message.name!r} on this socket; take another name")
        if len(self._subscriptions) >= self._gateway.settings.limits.socket_subscriptions:
            raise ApiError(429, "subscriptions", "too many subscriptions on this socket; end some, or open another")
        if message.since is not None and message.durable is not None:
            raise ApiError(400, "body", "durable and since: what waits comes anyway; take one of them")
        text = message.filter
        if text is None:
            if message.durable is None:
                raise ApiError(400, "body", "filter is missing: it says which events; TRUE is all of them")
            text = await filter_of(self._lease, message.durable)
        subscription = await self._lease.net.subscribe(
            text,
            durable=message.durable,
            ack="manual",
            window=None if message.durable is None else WINDOW,
            since=None if message.since is None else read_moment(message.since),
        )
        entry = self._subscriptions[message.name] = _SocketSubscription(subscription, message.format)
        await self._send_message(ServerMessage(type="subscribed", ref=message.ref, name=message.name))
        entry.reading = asyncio.create_task(self._read(message.name, entry))

    async def _read(self, name: str, entry: _SocketSubscription) -> None:
        subscription = entry.subscription
        dropped = 0
        head = b'{"type":"event","name":' + msgspec.json.encode(name)
        with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):  # the socket is gone: see `run`
            while (delivered := await subscription.next_()) is not None:
                key = str(Position(delivered.key, 0))
                if subscription.durable and not delivered.is_acknowledged:
                    entry.unacknowledged[key] = delivered
                    entry.unacknowledged.move_to_end(key)
                    if len(entry.unacknowledged) > UNACKNOWLEDGED_MAX:
                        entry.unacknowledged.popitem(last=False)
                event = encode(delivered, entry.form)
                await self._send(b'%b,"key":"%b","event":%b}' % (head, key.encode(), event))
                self._gateway.counters.add("events_streamed")
                if subscription.dropped > dropped:
                    self._gateway.counters.add("events_dropped", subscription.dropped - dropped)
                    await self._send_message(
                        ServerMessage(type="dropped", name=name, count=subscription.dropped - dropped)
                    )
                    dropped = subscription.dropped
            if self._subscriptions.get(name) is entry:
                del self._subscriptions[name]
                await self._send_message(ServerMessage(type="unsubscribed", name=name, reason=subscription.ended))

    async def _close_entry(self, entry: _SocketSubscription) -> None:
        if entry.reading is not None and entry.reading is not asyncio.current_task():
            entry.reading.cancel()
        await entry.subscription.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send_message(self, message: ServerMessage) -> None:
        await self._send(msgspec.json.encode(message))

    async def _send(self, text: bytes) -> None:
        try:
            async with asyncio.timeout(self._gateway.settings.limits.stall_s):
                await self._socket.send_text(text.decode())
        except TimeoutError:
            self._gateway.counters.add("streams_stalled")
            raise WebSocketDisconnect(POLICY, "nothing was read") from None


def socket_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the route `/ws`."""

    async def talk(socket: WebSocket) -> None:
        try:
            caller: Caller = gateway.access.admit(socket, "client")
            gateway.stream_limits.check(caller)
            async with gateway.connections.use(caller) as lease:
                asked = socket.scope.get("subprotocols", ())
                await socket.accept(SUBPROTOCOL if SUBPROTOCOL in asked else None)
                await _run_session(gateway, caller, socket, lease)
        except WebSocketDisconnect:
            pass
        except Exception as error:
            problem = to_api_error(error)
            if problem is None:
                gateway.counters.add("internal_errors")
                _log.exception("/ws failed")
                problem = ApiError(500, "internal", "the gateway failed; its log says why")
            gateway.counters.count_refusal(problem.kind)
            await _close_with(socket, problem)

    async def other(request: Request) -> Response:
        words = "this is for WebSockets: connect to it as ws://…/ws; by HTTP, GET /events?filter=… streams"
        return ApiError(426, "method", words, headers={"Upgrade": "websocket", "Connection": "Upgrade"}).response()

    return [WebSocketRoute("/ws", talk), Route("/ws", other, methods=["GET"], include_in_schema=False)]


async def _close_with(socket: WebSocket, problem: ApiError) -> None:
    """Tell a client why its socket is refused or closed."""
    if socket.application_state is WebSocketState.CONNECTING:
        await socket.send_denial_response(problem.response())
        return
    code = FAILED if problem.status == 500 else TRY_AGAIN if problem.status in (429, 503) else POLICY
    with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
        await socket.close(code, one_line(problem.message)[:REASON_MAX])


async def _run_session(gateway: Gateway, caller: Caller, socket: WebSocket, lease: Lease) -> None:
    with gateway.stream_limits.hold(caller):
        listening = asyncio.create_task(_Session(gateway, socket, lease).run())
        with gateway.stream_limits.cancel_on_close(listening.cancel):
            await asyncio.wait({listening})
        if listening.cancelled():
            with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
                await socket.close(GOING_AWAY, "the gateway stops")
        elif (error := listening.exception()) is not None:
            raise error
