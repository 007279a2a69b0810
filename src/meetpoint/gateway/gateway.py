"""The gateway while it runs: its route groups and what all handlers share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from meetpoint.gateway.config import GatewayLimits, GatewaySettings
from meetpoint.gateway.connections import Caller, Connections
from meetpoint.gateway.http.access import AccessControl
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import Route

if TYPE_CHECKING:
    from prometheus_client.core import Metric


__all__ = ["COUNTER_HELP", "Counters", "Gateway", "RouteGroup", "StreamLimits"]


COUNTER_HELP: Final = {
    "requests": "Requests that were answered",
    "events_published": "Events that were published by HTTP and WebSocket",
    "events_streamed": "Events written to readers of server-sent events and WebSockets",
    "events_dropped": "Events that a reader was too slow for",
    "streams_stalled": "Streams closed because their reader took nothing",
    "streams_resumed": "Streams that went on where they had been",
    "webhook_asked": "Sinks of webhooks that were asked whether they want events",
    "webhook_posts": "Requests to sinks of webhooks",
    "webhook_delivered": "Events that sinks took",
    "webhook_failed": "Events that sinks did not take, handed back to the network",
    "internal_errors": "Requests that failed for reasons of our own: please report these",
}


class Counters:
    """The counters and gauges of one gateway, for /metrics."""

    def __init__(self) -> None:
        self.totals: defaultdict[str, int] = defaultdict(int)
        self.refusals: defaultdict[str, int] = defaultdict(int)
        """The number of refusals of each kind."""
        self.gauges: list[Callable[[], dict[str, float]]] = []
        """Functions that return current numbers by name."""

    def add(self, name: str, times: int = 1) -> None:
        """Add to a counter of `COUNTER_HELP`."""
        assert name in COUNTER_HELP, name
        self.totals[name] += times

    def count_refusal(self, kind: str) -> None:
        """Count a refusal by its kind."""
        self.refusals[kind] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; a registry of prometheus_client calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, help_ in COUNTER_HELP.items():
            yield CounterMetricFamily(f"meetpoint_gateway_{name}", help_, value=self.totals.get(name, 0))
        for gauge in self.gauges:
            for name, value in gauge().items():
                yield GaugeMetricFamily(f"meetpoint_gateway_{name}", name.replace("_", " "), value=value)
        family = CounterMetricFamily("meetpoint_gateway_refusals", "What was refused", labels=["kind"])
        for kind, count in sorted(self.refusals.items()):
            family.add_metric([kind], count)
        yield family


class StreamLimits:
    """Counts the open streams and WebSockets of a gateway, and ends them when it stops."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._cancels: set[Callable[[], object]] = set()
        self.is_closing = False

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def hold(self, caller: Caller) -> Iterator[None]:
        """Count a stream while this is entered; raise ApiError where there are too many."""
        self.check(caller)
        self._held[caller.owner] += 1
        try:
            yield
        finally:
            self._held[caller.owner] -= 1
            if not self._held[caller.owner]:
                del self._held[caller.owner]

    def check(self, caller: Caller) -> None:
        """Raise ApiError where no further stream may open."""
        if self.is_closing:
            raise ApiError(503, "closing", "the gateway stops; try again soon", headers={"Retry-After": "1"})
        limits = self._limits
        if len(self) >= limits.streams or self._held[caller.owner] >= limits.streams_per_client:
            raise ApiError(429, "streams", "too many streams are open; close some", headers={"Retry-After": "5"})

    @contextmanager
    def cancel_on_close(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` if the gateway stops while this is entered."""
        if self.is_closing:
            end()
        self._cancels.add(end)
        try:
            yield
        finally:
            self._cancels.discard(end)

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self.is_closing = True
        for end in tuple(self._cancels):
            end()


class RouteGroup:
    """A group of routes with a life cycle."""

    @property
    def routes(self) -> Sequence[Route]:
        """The routes of the group."""
        raise NotImplementedError

    async def start(self, gateway: Gateway) -> None:
        """Prepare to serve."""

    async def stop(self) -> None:
        """Release everything; called after every `start` that returned."""


class Gateway:
    """A gateway while it runs."""

    def __init__(self, settings: GatewaySettings, groups: Sequence[RouteGroup]) -> None:
        self.settings = settings
        self.groups = tuple(groups)
        self.counters = Counters()
        self.access = AccessControl(settings)
        self.connections = Connections(settings)
        self.stream_limits = StreamLimits(settings.limits)
        self.counters.gauges.append(
            lambda: {"connections": float(len(self.connections)), "streams": float(len(self.stream_limits))}
        )
        self._started: list[RouteGroup] = []

    async def start(self) -> None:
        """Start all groups in their order."""
        await self.connections.start()
        for group in self.groups:
            await group.start(self)
            self._started.append(group)

    async def stop(self) -> None:
        """Stop all groups that were started, in the opposite order."""
        self.stream_limits.close()
        while self._started:
            await self._started.pop().stop()
        await self.connections.close()
