"""The metrics of a broker, and the match rate of each subscription.

Counting is adding to a number; names and types of Prometheus are made when it asks. The same numbers go to /metrics, to
`Status` and so to `meetpoint top`.

Matches are counted in slices of some seconds, of which the last few are remembered, and added up when someone asks.
Ended subscriptions are forgotten now and then, and there is a limit to how many are counted at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from meetpoint.api.limits import SECOND_US

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["HELP", "Counts", "Histogram", "MatchRate", "MatchRates"]

HOPS_BOUNDS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)
STORE_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

HELP: Final = {
    "events_published": "Events that clients published here and that are kept",
    "feedback_loads": "Times that a file which says what events are like was loaded",
    "archived": "Events that were put into the archive",
    "archive_files": "Files that were put into the archive",
    "archive_failures": "Times that files could not be put into the archive, and will be again",
    "events_matched": "Events that came to homes here and matched at least one subscription",
    "events_taken": "Events that came to homes here",
    "events_repeated": "Events that were published again under the same id",
    "notifications": "Events written to clients, counted once per client and event",
    "deliveries": "Events brought to subscriptions, counted once per subscription and event",
    "redeliveries": "Deliveries that may repeat an earlier one",
    "acknowledged": "Deliveries that were acknowledged",
    "rejected": "Deliveries that were rejected",
    "dead_letters": "Deliveries given up",
    "unclaimed": "Notifications for names that nobody takes at present",
    "requests": "Requests of clients",
    "dropped_to_peers": "Messages to other brokers that were dropped, because too many waited or nobody was there",
    "dropped_to_clients": "Deliveries to ephemeral subscriptions that were dropped, because their client was too slow",
    "messages_in": "Messages from other brokers",
    "messages_out": "Messages to other brokers",
    "connections_refused": "Connections that ended before they had said who they are",
    "stalls": "Connections closed because they took nothing, or said half a thing",
    "held_clients": "Times that a client was not read from, because too much was under way",
    "throttled_clients": "Times that a client was not read from, because it published faster than it may",
    "step_errors": "Inputs that the node could not take: please report these",
}


class Histogram:
    """The number of values below each of some bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Add a measured value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulated buckets, as Prometheus has them."""
        found, total = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
        return found


class Counts:
    """All counts of one broker."""

    def __init__(self) -> None:
        self.totals: defaultdict[str, int] = defaultdict(int)
        self.observed: defaultdict[str, int] = defaultdict(int)
        """Observations of the node, by its names."""
        self.wire_errors: defaultdict[str, int] = defaultdict(int)
        self.refusals: defaultdict[str, int] = defaultdict(int)
        """Refusals by kind, counted by `Refusals`."""
        self.hops = Histogram(HOPS_BOUNDS)
        self.store_s = Histogram(STORE_BOUNDS_S)
        self.gauges: Callable[[], dict[str, float]] = dict
        """Returns the current gauges."""

    def numbers(self) -> dict[str, float]:
        """Return everything by name, flat."""
        found: dict[str, float] = {name: float(self.totals.get(name, 0)) for name in HELP}
        found.update(self.gauges())
        found["hops_sum"], found["hops_count"] = self.hops.sum, float(self.hops.count)
        found["store_seconds_sum"], found["store_seconds_count"] = self.store_s.sum, float(self.store_s.count)
        found.update({f"observed.{name}": float(value) for name, value in self.observed.items()})
        found.update({f"wire_errors.{kind}": float(value) for kind, value in self.wire_errors.items()})
        found["refusals"] = float(sum(self.refusals.values()))
        found.update({f"refusals.{kind}": float(value) for kind, value in self.refusals.items() if value})
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield metrics for a registry of prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, help_ in HELP.items():
            yield CounterMetricFamily(f"meetpoint_{name}", help_, value=self.totals.get(name, 0))
        for name, value in self.gauges().items():
            yield GaugeMetricFamily(f"meetpoint_{name}", name.replace("_", " "), value=value)
        yield _labelled("observed", "What the protocol observed", "name", self.observed)
        yield _labelled("wire_errors", "Bytes that were no message or no frame", "kind", self.wire_errors)
        yield _labelled("refusals", "What was refused", "kind", self.refusals)
        for name, help_, histogram in (
            ("event_hops", "Messages that an event took to a home that took it", self.hops),
            ("store_seconds", "From handing records to the store until they are on disk, once per sync", self.store_s),
        ):
            family = HistogramMetricFamily(f"meetpoint_{name}", help_)
            family.add_metric([], histogram.buckets(), histogram.sum)
            yield family


def _labelled(name: str, help_: str, label: str, values: dict[str, int]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"meetpoint_{name}", help_, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


SLICE_US: Final = 10 * SECOND_US
SLICES: Final = 6
"""Number of whole slices that, with the current one, are the last minute."""
NAMES_MAX: Final = 200_000


class MatchRate(msgspec.Struct, gc=False):
    """The matches of one subscription: all, those of the last minute, and about when the last was."""

    total: int = 0
    lately: int = 0
    last_us: int = 0


class MatchRates:
    """The matches of all subscriptions here, since `since_us`."""

    def __init__(self, now: int) -> None:
        self.since_us = now
        self._until = now + SLICE_US
        self._slice: defaultdict[str, int] = defaultdict(int)
        self._slices: deque[dict[str, int]] = deque(maxlen=SLICES)
        self._older: dict[str, MatchRate] = {}

    def matched(self, names: Iterable[str], now: int) -> None:
        """Count an event that matched some subscriptions."""
        if now >= self._until:
            self._turn(now)
        slice_ = self._slice
        for name in names:
            slice_[name] += 1

    def of(self, name: str, now: int) -> MatchRate:
        """Return the rate of one subscription."""
        if now >= self._until:
            self._turn(now)
        older = self._older.get(name, MatchRate())
        here = self._slice.get(name, 0)
        lately = here + sum(each.get(name, 0) for each in self._slices)
        return MatchRate(older.total + here, lately, self._until - SLICE_US if here else older.last_us)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but these subscriptions."""
        kept = set(names)
        for gone in [name for name in self._older if name not in kept]:
            del self._older[gone]

    def __len__(self) -> int:
        return len(self._older)

    def _turn(self, now: int) -> None:
        """Begin a new slice."""
        for name, count in self._slice.items():
            older = self._older.get(name)
            if older is None:
                if len(self._older) >= NAMES_MAX:
                    continue
                older = self._older[name] = MatchRate()
            older.total += count
            older.last_us = self._until - SLICE_US
        passed = (now - self._until) // SLICE_US
        self._slices.append(dict(self._slice))
        for _ in range(min(passed, SLICES)):
            self._slices.append({})
        self._slice = defaultdict(int)
        self._until += (passed + 1) * SLICE_US
