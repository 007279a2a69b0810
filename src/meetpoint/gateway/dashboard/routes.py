"""Routes under /api: they show the network and manage it, for the dashboard and other programs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.dashboard.bodies import (
    BacktestBody,
    BacktestResult,
    FollowedEvent,
    LocalBroker,
    NetworkView,
    NodeAction,
    NodeActionResult,
    PublishBody,
    SubscriptionPage,
    TryBody,
    TryResult,
)
from meetpoint.gateway.dashboard.event_path import EventPath, path_of
from meetpoint.gateway.dashboard.observer import NetworkObserver
from meetpoint.gateway.dashboard.views import Hosted, Order, list_subscriptions, network_view, run_backtest, try_filter
from meetpoint.gateway.events.feeds import notice_frame
from meetpoint.gateway.events.streams import EVENT_STREAM, EventStreamResponse
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError, ErrorBody
from meetpoint.gateway.http.routes import JSON, Body, Call, Parameter, ResponseSpec, Route, json_response
from meetpoint.language.events.json import attributes_from_json, attributes_to_json

__all__ = ["BrokerControl", "CachedValue", "DashboardRoutes"]


class BrokerControl(Protocol):
    """Starts and stops brokers of this machine; raises ApiError with the reason where that is not possible."""

    def nodes(self) -> list[LocalBroker]:
        """Return all of them, stopped ones included."""

    async def join(self) -> str:
        """Start a new broker; return what was done, in words."""

    async def leave(self, address: str) -> str:
        """Make a broker hand everything over and stop."""

    async def crash(self, address: str) -> str:
        """Kill a broker; it stays down until `start`."""

    async def start(self, address: str) -> str:
        """Start a broker that is down."""


T = TypeVar("T")


class CachedValue(Generic[T]):
    """A value with a lifetime: concurrent callers wait while one of them computes it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._found: T | None = None
        self._until = 0.0
        self._finding = asyncio.Lock()

    async def get(self, find: Callable[[], Awaitable[T]]) -> T:
        """Return the value, computed now if it is too old."""
        async with self._finding:
            if self._found is None or time.monotonic() >= self._until:
                self._found = await find()
                self._until = time.monotonic() + self._seconds
            return self._found


Search = Annotated[str, Meta(max_length=500)]

FRESH_S: Final = 0.5
"""The lifetime of cached answers of the network."""
_SORT: Final = "`hot`: most matches first; `silent`: longest without; `name` (as without)"
FOLLOW_S: Final = 60.0
"""The time for which brokers remember the path of an event."""
PATHS_MAX: Final = 100
"""The most paths that are remembered here, after brokers have forgotten them."""
BACKTESTS_MAX: Final = 2
"""The most backtests at a time: each reads much."""


class DashboardRoutes(RouteGroup):
    """Routes under /api; `control` starts and stops brokers, where one program runs them and the gateway."""

    def __init__(self, control: BrokerControl | None = None) -> None:
        self._control = control
        self._paths: OrderedDict[str, EventPath] = OrderedDict()
        self._backtests = 0
        self._network_views: CachedValue[NetworkView] = CachedValue(FRESH_S)
        self._hosted: CachedValue[Hosted] = CachedValue(FRESH_S)

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="GET", path="/api/network", handler=self._network, role="observe",
                summary="All brokers, whom they know, how busy they are, and what they hold of a tree of regions",
                responses={200: ResponseSpec("The network as it is now", NetworkView)},
            ),
            Route(
                method="GET", path="/api/live", handler=self._live, role="observe", is_stream=True,
                summary="How the network is, once a second, as server-sent events",
                responses={200: ResponseSpec("A JSON object each", media=EVENT_STREAM)},
            ),
            Route(
                method="POST", path="/api/publish", handler=self._publish, role="observe",
                summary="Publish an event, and follow it",
                body=Body({JSON: PublishBody}), responses={200: ResponseSpec("It is published", FollowedEvent)},
            ),
            Route(
                method="GET", path="/api/path/{id:path}", handler=self._path, role="observe",
                summary="How an event that is followed went: messages, matches, deliveries, and where it was dropped",
                responses={
                    200: ResponseSpec("As far as is known by now", EventPath),
                    404: ResponseSpec("It is not followed, or not any longer", ErrorBody),
                },
            ),
            Route(
                method="GET", path="/api/subscriptions", handler=self._subscriptions, role="observe",
                summary="Subscriptions of the whole network, and how often they match",
                query=(
                    Parameter("search", Search, "Words in the name, filter, owner or labels"),
                    Parameter("sort", Order, _SORT),
                    Parameter("after", Annotated[str, Meta(max_length=1000)], "Go on after this name, as `next` said"),
                ),
                responses={200: ResponseSpec("A page of them", SubscriptionPage)},
            ),
            Route(
                method="POST", path="/api/try", handler=self._try, role="observe",
                summary="What is wrong with a filter, or what it would do with the last events",
                body=Body({JSON: TryBody}), responses={200: ResponseSpec("What was found", TryResult)},
            ),
            Route(
                method="POST", path="/api/backtest", handler=self._backtest, role="observe",
                summary="What a filter would have done with the archived events of some hours",
                body=Body({JSON: BacktestBody}),
                responses={
                    200: ResponseSpec("How often, when, and what nearly was", BacktestResult),
                    409: ResponseSpec("Brokers keep no archive", ErrorBody),
                    429: ResponseSpec("Others are running", ErrorBody),
                },
            ),
            Route(
                method="POST", path="/api/nodes", handler=self._nodes, role="operate",
                summary="Have a broker of this machine join, leave, crash or start",
                description="Only where the gateway runs beside brokers that `meetpoint up` looks after; else 409.",
                body=Body({JSON: NodeAction}),
                responses={
                    200: ResponseSpec("It is done, or under way", NodeActionResult),
                    404: ResponseSpec("There is no such broker here", ErrorBody),
                    409: ResponseSpec("It cannot be done here, or not now", ErrorBody),
                },
            ),
        )  # fmt: skip

    async def start(self, gateway: Gateway) -> None:
        self._observer = NetworkObserver(gateway.connections)
        gateway.counters.gauges.append(lambda: {"watchers": float(self._observer.watchers)})

    async def stop(self) -> None:
        await self._observer.stop()

    # -- seeing --------------------------------------------------------------------------------------------------------

    async def _network(self, call: Call) -> Response:
        self._observer.use()
        async with call.net() as net:
            view = await self._network_views.get(lambda: network_view(net, self._observer.rates))
        if self._control is not None:
            view = msgspec.structs.replace(view, can_manage=True, nodes=self._control.nodes())
        return json_response(view)

    async def _live(self, call: Call) -> Response:
        call.gateway.stream_limits.check(call.caller)
        observer = self._observer
        observer.watchers += 1

        async def leave() -> None:
            observer.watchers -= 1
            observer.use()  # it goes on for a while: pages are reloaded

        return EventStreamResponse(call.gateway, call.caller, _SampleSource(observer, call.gateway, call.caller), leave)

    async def _subscriptions(self, call: Call) -> Response:
        query = call.query
        async with call.net() as net:
            hosted = await self._hosted.get(net.hosted)
        found = list_subscriptions(hosted, query.get("search", ""), query.get("sort", "name"), query.get("after", ""))
        return json_response(found)

    # -- an event's way ------------------------------------------------------------------------------------------------

    async def _publish(self, call: Call) -> Response:
        self._observer.use()
        body: PublishBody = call.body
        async with call.lease() as lease:
            attributes = attributes_from_json(bytes(body.attributes), await lease.schema())
            event = lease.net.event(attributes, body.id or f"followed-{secrets.token_hex(8)}")
            told = await lease.net.follow(event.id, FOLLOW_S)
            if not any(told.values()):
                raise ApiError(503, "busy", "no broker can follow one more event; try again in a minute")
            await lease.net.publish(event)
        call.gateway.counters.add("events_published")
        self._paths[event.id] = path_of(event.id, attributes_to_json(attributes), {}, time.time_ns() // 1000)
        while len(self._paths) > PATHS_MAX:
            self._paths.popitem(last=False)
        return json_response(FollowedEvent(event.id))

    async def _path(self, call: Call) -> Response:
        id_ = call.path["id"]
        known = self._paths.get(id_)
        async with call.net() as net:
            try:
                told = await net.followed(id_)
            except RefusedError as error:
                if known is None:
                    raise ApiError(404, "not_followed", str(error)) from None
                return json_response(known)
            except NetworkError:
                if known is None or not known.done:
                    raise
                return json_response(known)
        attributes = b"{}" if known is None else bytes(known.attributes)
        path = path_of(id_, attributes, told, time.time_ns() // 1000)
        if known is not None:
            self._paths[id_] = path
        return json_response(path)

    # -- trying --------------------------------------------------------------------------------------------------------

    async def _try(self, call: Call) -> Response:
        self._observer.use()
        body: TryBody = call.body
        async with call.lease() as lease:
            schema = await lease.schema()
        return json_response(await asyncio.to_thread(try_filter, body.filter, schema, self._observer.events()))

    async def _backtest(self, call: Call) -> Response:
        body: BacktestBody = call.body
        if self._backtests >= BACKTESTS_MAX:
            raise ApiError(429, "busy", "other backtests are running; try again soon", headers={"Retry-After": "5"})
        self._backtests += 1
        try:
            async with call.lease() as lease:
                return json_response(await run_backtest(lease.net, body.filter, await lease.schema(), body.hours))
        finally:
            self._backtests -= 1

    # -- managing ------------------------------------------------------------------------------------------------------

    async def _nodes(self, call: Call) -> Response:
        body: NodeAction = call.body
        control = self._control
        if control is None:
            raise ApiError(
                409, "not_managed",
                "this gateway does not run the brokers: start and stop them where they run; `meetpoint up` runs both",
            )  # fmt: skip
        if body.action == "join":
            return json_response(NodeActionResult(await control.join(), control.nodes()))
        if not body.broker:
            raise ApiError(422, "body", f"{body.action}: say which broker, by its address")
        do = {"leave": control.leave, "crash": control.crash, "start": control.start}[body.action]
        return json_response(NodeActionResult(await do(body.broker), control.nodes()))


class _SampleSource:
    """The observer's samples for one stream: always the newest, while its token is valid.

    Samples come by the gateway's own connection, so no broker ends them when the reader's token is revoked: this does.
    """

    def __init__(self, observer: NetworkObserver, gateway: Gateway, caller: Caller) -> None:
        self._observer = observer
        self._gateway = gateway
        self._caller = caller
        self._seen = 0
        self._is_over = False

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Return the next sample, or an empty chunk after `timeout_s`."""
        if self._is_over:
            return None
        self._seen, chunk = await self._observer.next(self._seen, timeout_s)
        reason = self._gateway.access.why_not_valid(self._caller)
        if reason is not None:
            self._is_over = True
            return notice_frame("ended", {"reason": reason}), 0
        return chunk, 0
