"""GET /ws: a WebSocket on which a client subscribes, publishes and acknowledges, in JSON messages.

A client says `subscribe`, `unsubscribe`, `publish`, `ack` and `nack`; each has a `type`, and `ref` is whatever the
client wants to see again in the answer. What it says wrong is answered by `error` and the socket stays open; what is no
message ends it. Who does not read is not read from: what is for it stays at the network, or is dropped and counted.
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
from meetpoint.gateway.events.cloud_events import Draft
from meetpoint.gateway.events.feeds import Format, encode
from meetpoint.gateway.events.positions import Position
from meetpoint.gateway.events.publish import Envelope, publish, read_envelope
from meetpoint.gateway.events.streams import FilterText, Name, read_moment
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.access import SUBPROTOCOL
from meetpoint.gateway.http.bodies import read_json
from meetpoint.gateway.http.errors import ApiError, Problem, problem_of

__all__ = ["socket_routes"]

PUBLISHING_MAX: Final = 256
"""Events of one socket on their way; what comes then is read when one is there."""
UNACKNOWLEDGED_MAX: Final = 10_000
"""Events of one durable subscription that may be acknowledged; older ones come again."""
WINDOW: Final = 256
GOING_AWAY: Final = 1001
POLICY: Final = 1008
FAILED: Final = 1011
TRY_AGAIN: Final = 1013
REASON_MAX: Final = 30
"""Characters of a reason: a close frame has room for 123 bytes."""

_log = logging.getLogger("meetpoint.gateway")

Ref: TypeAlias = str | int | None


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    ref: Ref = None


class Subscribe(_Said, frozen=True, tag="subscribe", kw_only=True):
    """Begin; `name` is the client's own word for it, on this socket."""

    name: Name
    filter: FilterText | None = None
    durable: Name | None = None
    since: str | None = None
    format: Format = "json"


class Unsubscribe(_Said, frozen=True, tag="unsubscribe", kw_only=True):
    """End; `forget`: a durable one for good."""

    name: Name
    forget: bool = False


class Publish(_Said, frozen=True, tag="publish", kw_only=True):
    """Publish."""

    event: Envelope


class Ack(_Said, frozen=True, tag="ack", kw_only=True):
    """An event of a durable subscription is done."""

    name: Name
    key: Annotated[str, Meta(max_length=300)]


class Nack(_Said, frozen=True, tag="nack", kw_only=True):
    """It could not be used."""

    name: Name
    key: Annotated[str, Meta(max_length=300)]
    reason: Annotated[str, Meta(max_length=1000)] = ""


Said: TypeAlias = Subscribe | Unsubscribe | Publish | Ack | Nack


class Told(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the gateway says, but for events."""

    type: str
    ref: Ref = None
    name: str | None = None
    key: str | None = None
    id: str | None = None
    count: int | None = None
    reason: str | None = None
    error: Problem | None = None


class _Held:
    """One subscription of a socket."""

    def __init__(self, subscription: Subscription, form: Format) -> None:
        self.subscription = subscription
        self.form = form
        self.unacknowledged: OrderedDict[str, Delivery] = OrderedDict()
        self.reading: asyncio.Task[None] | None = None


class _Talk:
    """One socket."""

    def __init__(self, gateway: Gateway, socket: WebSocket, lease: Lease) -> None:
        self._gateway = gateway
        self._socket = socket
        self._lease = lease
        self._held: dict[str, _Held] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(PUBLISHING_MAX)

    async def run(self) -> None:
        """Listen until the client goes."""
        try:
            while True:
                data = await self._receive()
                ref: Ref = None
                try:
                    said: Said = read_json(data, Said)  # type: ignore[arg-type]
                    ref = said.ref
                    await self._do(said)
                except WebSocketDisconnect:
                    raise
                except Exception as error:
                    await self._refuse(ref, error)
        finally:
            for task in self._publishing:
                task.cancel()
            for held in tuple(self._held.values()):
                await self._end(held)

    async def _receive(self) -> bytes:
        """The next message; whether its frame says text or binary does not matter."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"], message.get("reason"))
        text = message.get("text")
        return bytes(message["bytes"]) if text is None else str(text).encode()

    async def _refuse(self, ref: Ref, error: Exception, name: str | None = None) -> None:
        problem = problem_of(error)
        if problem is None:
            raise error
        self._gateway.counts.refuse(problem.kind)
        told = Problem(problem.kind, problem.message, problem.at)
        await self._tell(Told(type="error", ref=ref, name=name, error=told))

    async def _do(self, said: Said) -> None:
        match said:
            case Subscribe():
                await self._subscribe(said)
            case Unsubscribe():
                held = self._find(said.name)
                if said.forget and held.subscription.durable:
                    await held.subscription.unsubscribe()
                await self._end(held)
                self._held.pop(said.name, None)
                await self._tell(Told(type="unsubscribed", ref=said.ref, name=said.name))
            case Publish():
                draft = read_envelope(said.event, await self._lease.schema())
                await self._room.acquire()
                task = asyncio.create_task(self._publish(said.ref, draft))
                self._publishing.add(task)
                task.add_done_callback(self._published)
            case Ack():
                delivered = self._take(said.name, said.key)
                await delivered.ack()
                await self._tell(Told(type="acked", ref=said.ref, name=said.name, key=said.key))
            case Nack():
                delivered = self._take(said.name, said.key)
                await delivered.nack(said.reason)
                await self._tell(Told(type="nacked", ref=said.ref, name=said.name, key=said.key))

    def _find(self, name: str) -> _Held:
        held = self._held.get(name)
        if held is None:
            raise ApiError(404, "not_found", f"there is no subscription {name!r} on this socket")
        return held

    def _take(self, name: str, key: str) -> Delivery:
        delivered = self._find(name).unacknowledged.pop(key, None)
        if delivered is None:
            raise ApiError(404, "not_found", "no event with this key waits to be acknowledged here")
        return delivered

    # -- publishing ----------------------------------------------------------------------------------------------------

    async def _publish(self, ref: Ref, draft: Draft) -> None:
        try:
            (id_,) = await publish(self._gateway, self._lease, [draft])
            await self._tell(Told(type="published", ref=ref, id=id_))
        except Exception as error:
            await self._refuse(ref, error)

    def _published(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        self._room.release()
        if not task.cancelled():
            task.exception()  # the socket is gone: whoever reads it sees that

    # -- subscribing ---------------------------------------------------------------------------------------------------

    async def _subscribe(self, said: Subscribe) -> None:
        if said.name in self._held:
            raise ApiError(409, "exists", f"there is a subscription {said.name!r} on this socket; take another name")
        if len(self._held) >= self._gateway.settings.limits.socket_subscriptions:
            raise ApiError(429, "subscriptions", "too many subscriptions on this socket; end some, or open another")
        if said.since is not None and said.durable is not None:
            raise ApiError(400, "body", "durable and since: what waits comes anyway; take one of them")
        text = said.filter
        if text is None:
            if said.durable is None:
                raise ApiError(400, "body", "filter is missing: it says which events; TRUE is all of them")
            located = await self._lease.net.locate(said.durable)
            if located.host is None:
                raise ApiError(
                    404, "not_found", f"there is no subscription {said.durable!r}; give a filter to make one"
                )
            text = located.filter
        subscription = await self._lease.net.subscribe(
            text,
            durable=said.durable,
            ack="manual",
            window=None if said.durable is None else WINDOW,
            since=None if said.since is None else read_moment(said.since),
        )
        held = self._held[said.name] = _Held(subscription, said.format)
        await self._tell(Told(type="subscribed", ref=said.ref, name=said.name))
        held.reading = asyncio.create_task(self._read(said.name, held))

    async def _read(self, name: str, held: _Held) -> None:
        subscription = held.subscription
        dropped = 0
        head = b'{"type":"event","name":' + msgspec.json.encode(name)
        with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):  # the socket is gone: see `run`
            while (delivered := await subscription.next_()) is not None:
                key = str(Position(delivered.key, 0))
                if subscription.durable and not delivered.is_settled:
                    held.unacknowledged[key] = delivered
                    held.unacknowledged.move_to_end(key)
                    if len(held.unacknowledged) > UNACKNOWLEDGED_MAX:
                        held.unacknowledged.popitem(last=False)
                event = encode(delivered, held.form)
                await self._send(b'%b,"key":"%b","event":%b}' % (head, key.encode(), event))
                self._gateway.counts.add("events_streamed")
                if subscription.dropped > dropped:
                    self._gateway.counts.add("events_dropped", subscription.dropped - dropped)
                    await self._tell(Told(type="dropped", name=name, count=subscription.dropped - dropped))
                    dropped = subscription.dropped
            if self._held.get(name) is held:
                del self._held[name]
                await self._tell(Told(type="unsubscribed", name=name, reason=subscription.ended))

    async def _end(self, held: _Held) -> None:
        if held.reading is not None and held.reading is not asyncio.current_task():
            held.reading.cancel()
        await held.subscription.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _tell(self, told: Told) -> None:
        await self._send(msgspec.json.encode(told))

    async def _send(self, text: bytes) -> None:
        try:
            async with asyncio.timeout(self._gateway.settings.limits.stall_s):
                await self._socket.send_text(text.decode())
        except TimeoutError:
            self._gateway.counts.add("streams_stalled")
            raise WebSocketDisconnect(POLICY, "nothing was read") from None


def socket_routes(gateway: Gateway) -> list[BaseRoute]:
    """`/ws`, for the application's routes."""

    async def talk(socket: WebSocket) -> None:
        try:
            caller: Caller = gateway.door.admit(socket, "client")
            gateway.slots.check(caller)
            async with gateway.connections.use(caller) as lease:
                asked = socket.scope.get("subprotocols", ())
                await socket.accept(SUBPROTOCOL if SUBPROTOCOL in asked else None)
                await _listen(gateway, caller, socket, lease)
        except WebSocketDisconnect:
            pass
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                gateway.counts.add("internal_errors")
                _log.exception("/ws failed")
                problem = ApiError(500, "internal", "the gateway failed; its log says why")
            gateway.counts.refuse(problem.kind)
            await _end_with(socket, problem)

    async def other(request: Request) -> Response:
        words = "this is for WebSockets: connect to it as ws://…/ws; by HTTP, GET /events?filter=… streams"
        return ApiError(426, "method", words, headers={"Upgrade": "websocket", "Connection": "Upgrade"}).answer()

    return [WebSocketRoute("/ws", talk), Route("/ws", other, methods=["GET"], include_in_schema=False)]


async def _end_with(socket: WebSocket, problem: ApiError) -> None:
    """Tell a client that it has no socket, or has none any more."""
    if socket.application_state is WebSocketState.CONNECTING:
        await socket.send_denial_response(problem.answer())
        return
    code = FAILED if problem.status == 500 else TRY_AGAIN if problem.status in (429, 503) else POLICY
    with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
        await socket.close(code, one_line(problem.message)[:REASON_MAX])


async def _listen(gateway: Gateway, caller: Caller, socket: WebSocket, lease: Lease) -> None:
    with gateway.slots.take(caller):
        listening = asyncio.create_task(_Talk(gateway, socket, lease).run())
        with gateway.slots.ending_with(listening.cancel):
            await asyncio.wait({listening})
        if listening.cancelled():
            with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
                await socket.close(GOING_AWAY, "the gateway stops")
        elif (error := listening.exception()) is not None:
            raise error
