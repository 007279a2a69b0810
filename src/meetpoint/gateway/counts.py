"""What a gateway has counted, for /metrics. Counting is adding to a number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["HELP", "Counts"]

HELP: Final = {
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


class Counts:
    """All numbers of one gateway."""

    def __init__(self) -> None:
        self.totals: defaultdict[str, int] = defaultdict(int)
        self.refusals: defaultdict[str, int] = defaultdict(int)
        """What was refused, by kind."""
        self.gauges: list[Callable[[], dict[str, float]]] = []
        """How much there is of what, right now."""

    def add(self, name: str, times: int = 1) -> None:
        """Something happened."""
        assert name in HELP, name
        self.totals[name] += times

    def refuse(self, kind: str) -> None:
        """Something was refused."""
        self.refusals[kind] += 1

    def collect(self) -> Iterator[Metric]:
        """For a registry of prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, help_ in HELP.items():
            yield CounterMetricFamily(f"meetpoint_gateway_{name}", help_, value=self.totals.get(name, 0))
        for gauge in self.gauges:
            for name, value in gauge().items():
                yield GaugeMetricFamily(f"meetpoint_gateway_{name}", name.replace("_", " "), value=value)
        family = CounterMetricFamily("meetpoint_gateway_refusals", "What was refused", labels=["kind"])
        for kind, count in sorted(self.refusals.items()):
            family.add_metric([kind], count)
        yield family
