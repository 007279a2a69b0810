"""The part that sees and manages the network, for the dashboard and whoever else wants to know."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.feeds import notice
from meetpoint.gateway.events.streams import EVENT_STREAM, EventStream
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.errors import ApiError, ProblemIs
from meetpoint.gateway.http.routes import JSON, Answer, Body, Call, Query, Route, answer
from meetpoint.gateway.observing.filter_trials import run_backtest, try_filter
from meetpoint.gateway.observing.manager import Manager
from meetpoint.gateway.observing.network_map import draw
from meetpoint.gateway.observing.observer import Observer
from meetpoint.gateway.observing.paths import Path, put_together
from meetpoint.gateway.observing.shapes import (
    Backtest,
    BacktestIs,
    Followed,
    NetworkIs,
    NodeAction,
    NodeDone,
    Publish,
    SubscriptionsIs,
    Try,
    TryIs,
)
from meetpoint.gateway.observing.sharing import Shared
from meetpoint.gateway.observing.subscription_list import Hosted, Order, list_subscriptions
from meetpoint.language.events.json import attributes_from_json, attributes_to_json

__all__ = ["Observing"]

FRESH_S: Final = 0.5
"""How long what one was told of the network is good enough for others."""
FOLLOW_S: Final = 60.0
"""How long brokers remember how an event goes."""
PATHS_MAX: Final = 100
"""How many events' paths are remembered here, after brokers have forgotten them."""
BACKTESTS_MAX: Final = 2
"""How many backtests run at a time: each reads much."""


class Observing:
    """Routes under /api. `manager` is whoever runs the brokers, where that is who runs the gateway."""

    def __init__(self, manager: Manager | None = None) -> None:
        self._manager = manager
        self._paths: OrderedDict[str, Path] = OrderedDict()
        self._backtests = 0
        self._drawn: Shared[NetworkIs] = Shared(FRESH_S)
        self._hosted: Shared[Hosted] = Shared(FRESH_S)

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="GET", path="/api/network", handler=self._network, role="observe",
                summary="All brokers, whom they know, how busy they are, and what they hold of a tree of regions",
                answers={200: Answer("The network as it is now", NetworkIs)},
            ),
            Route(
                method="GET", path="/api/live", handler=self._live, role="observe", is_stream=True,
                summary="How the network is, once a second, as server-sent events",
                answers={200: Answer("A JSON object each", media=EVENT_STREAM)},
            ),
            Route(
                method="POST", path="/api/publish", handler=self._publish, role="observe",
                summary="Publish an event, and follow it",
                body=Body({JSON: Publish}), answers={200: Answer("It is published", Followed)},
            ),
            Route(
                method="GET", path="/api/path/{id:path}", handler=self._path, role="observe",
                summary="How an event that is followed went: messages, matches, deliveries, and where it was dropped",
                answers={
                    200: Answer("As far as is known by now", Path),
                    404: Answer("It is not followed, or not any longer", ProblemIs),
                },
            ),
            Route(
                method="GET", path="/api/subscriptions", handler=self._subscriptions, role="observe",
                summary="Subscriptions of the whole network, and how often they match",
                query=(
                    Query("search", Annotated[str, Meta(max_length=500)], "Words in the name, filter, owner or labels"),
                    Query("sort", Order, "`hot`: most matches first; `silent`: longest without; `name` (as without)"),
                    Query("after", Annotated[str, Meta(max_length=1000)], "Go on after this name, as `next` said"),
                ),
                answers={200: Answer("A page of them", SubscriptionsIs)},
            ),
            Route(
                method="POST", path="/api/try", handler=self._try, role="observe",
                summary="What is wrong with a filter, or what it would do with the last events",
                body=Body({JSON: Try}), answers={200: Answer("What was found", TryIs)},
            ),
            Route(
                method="POST", path="/api/backtest", handler=self._backtest, role="observe",
                summary="What a filter would have done with the archived events of some hours",
                body=Body({JSON: Backtest}),
                answers={
                    200: Answer("How often, when, and what nearly was", BacktestIs),
                    409: Answer("Brokers keep no archive", ProblemIs),
                    429: Answer("Others are running", ProblemIs),
                },
            ),
            Route(
                method="POST", path="/api/nodes", handler=self._nodes, role="operate",
                summary="Have a broker of this machine join, leave, crash or start",
                description="Only where the gateway runs beside brokers that `meetpoint up` looks after; else 409.",
                body=Body({JSON: NodeAction}),
                answers={
                    200: Answer("It is done, or under way", NodeDone),
                    404: Answer("There is no such broker here", ProblemIs),
                    409: Answer("It cannot be done here, or not now", ProblemIs),
                },
            ),
        )  # fmt: skip

    async def start(self, gateway: Gateway) -> None:
        self._observer = Observer(gateway.connections)
        gateway.counts.gauges.append(lambda: {"watchers": float(self._observer.watchers)})

    async def stop(self) -> None:
        await self._observer.stop()

    # -- seeing --------------------------------------------------------------------------------------------------------

    async def _network(self, call: Call) -> Response:
        self._observer.use()
        async with call.net() as net:
            drawn = await self._drawn.get(lambda: draw(net, self._observer.rates))
        if self._manager is not None:
            drawn = msgspec.structs.replace(drawn, can_manage=True, nodes=self._manager.nodes())
        return answer(drawn)

    async def _live(self, call: Call) -> Response:
        call.gateway.slots.check(call.caller)
        observer = self._observer
        observer.watchers += 1

        async def leave() -> None:
            observer.watchers -= 1
            observer.use()  # it goes on for a while: pages are reloaded

        return EventStream(call.gateway, call.caller, _Looks(observer, call.gateway, call.caller), leave)

    async def _subscriptions(self, call: Call) -> Response:
        said = call.query
        async with call.net() as net:
            hosted = await self._hosted.get(net.hosted)
        found = list_subscriptions(hosted, said.get("search", ""), said.get("sort", "name"), said.get("after", ""))
        return answer(found)

    # -- an event's way ------------------------------------------------------------------------------------------------

    async def _publish(self, call: Call) -> Response:
        self._observer.use()
        said: Publish = call.body
        async with call.lease() as lease:
            attributes = attributes_from_json(bytes(said.attributes), await lease.schema())
            event = lease.net.event(attributes, said.id or f"followed-{secrets.token_hex(8)}")
            told = await lease.net.follow(event.id, FOLLOW_S)
            if not any(told.values()):
                raise ApiError(503, "busy", "no broker can follow one more event; try again in a minute")
            await lease.net.publish(event)
        call.gateway.counts.add("events_published")
        self._paths[event.id] = put_together(event.id, attributes_to_json(attributes), {}, time.time_ns() // 1000)
        while len(self._paths) > PATHS_MAX:
            self._paths.popitem(last=False)
        return answer(Followed(event.id))

    async def _path(self, call: Call) -> Response:
        id_ = call.path["id"]
        known = self._paths.get(id_)
        async with call.net() as net:
            try:
                told = await net.followed(id_)
            except RefusedError as error:
                if known is None:
                    raise ApiError(404, "not_followed", str(error)) from None
                return answer(known)
            except NetworkError:
                if known is None or not known.done:
                    raise
                return answer(known)
        attributes = b"{}" if known is None else bytes(known.attributes)
        path = put_together(id_, attributes, told, time.time_ns() // 1000)
        if known is not None:
            self._paths[id_] = path
        return answer(path)

    # -- trying --------------------------------------------------------------------------------------------------------

    async def _try(self, call: Call) -> Response:
        self._observer.use()
        said: Try = call.body
        async with call.lease() as lease:
            schema = await lease.schema()
        return answer(await asyncio.to_thread(try_filter, said.filter, schema, self._observer.events()))

    async def _backtest(self, call: Call) -> Response:
        said: Backtest = call.body
        if self._backtests >= BACKTESTS_MAX:
            raise ApiError(429, "busy", "other backtests are running; try again soon", headers={"Retry-After": "5"})
        self._backtests += 1
        try:
            async with call.lease() as lease:
                return answer(await run_backtest(lease.net, said.filter, await lease.schema(), said.hours))
        finally:
            self._backtests -= 1

    # -- managing ------------------------------------------------------------------------------------------------------

    async def _nodes(self, call: Call) -> Response:
        said: NodeAction = call.body
        manager = self._manager
        if manager is None:
            raise ApiError(
                409, "not_managed",
                "this gateway does not run the brokers: start and stop them where they run; `meetpoint up` runs both",
            )  # fmt: skip
        if said.action == "join":
            return answer(NodeDone(await manager.join(), manager.nodes()))
        if not said.broker:
            raise ApiError(422, "body", f"{said.action}: say which broker, by its address")
        do = {"leave": manager.leave, "crash": manager.crash, "start": manager.start}[said.action]
        return answer(NodeDone(await do(said.broker), manager.nodes()))


class _Looks:
    """The looks of the observer, for one who watches: always the newest, for as long as its token counts.

    What is shown comes by the gateway's own connection, so that no broker ends it for whoever watches.
    """

    def __init__(self, observer: Observer, gateway: Gateway, caller: Caller) -> None:
        self._observer = observer
        self._gateway = gateway
        self._caller = caller
        self._seen = 0
        self._is_over = False

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """The next look, if there is one in time."""
        if self._is_over:
            return None
        self._seen, chunk = await self._observer.next(self._seen, timeout_s)
        reason = self._gateway.door.why_not(self._caller)
        if reason is not None:
            self._is_over = True
            return notice("ended", {"reason": reason}), 0
        return chunk, 0
