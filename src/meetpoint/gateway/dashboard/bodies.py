"""Bodies of /api, for the dashboard: one struct each."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from meetpoint.gateway.events.publish import Attributes

__all__ = [
    "BacktestBody",
    "BacktestResult",
    "BrokerRates",
    "BrokerView",
    "ExplainedEvent",
    "FilterFinding",
    "FilterProblem",
    "FollowedEvent",
    "Latency",
    "LiveSample",
    "LocalBroker",
    "MatchCount",
    "NearMiss",
    "NetworkView",
    "NodeAction",
    "NodeActionResult",
    "OverlayLink",
    "PublishBody",
    "RecentEvent",
    "SubscriptionPage",
    "SubscriptionSummary",
    "TimeSlice",
    "TreeRegion",
    "TryBody",
    "TryResult",
]  # fmt: skip

Text = Annotated[str, Meta(min_length=1, max_length=65_536)]


class OverlayLink(msgspec.Struct, frozen=True):
    """A link of the overlay: a broker has another in its tables."""

    to: str
    kind: str


class BrokerView(msgspec.Struct, frozen=True):
    """A broker as the network view draws it."""

    id: str
    address: str
    state: str
    """The state as the broker reports it; `silent` where it does not answer."""
    place: float
    """The place of its id on the circle, from 0 to 1."""
    load: float
    """Its messages per second as a share of the busiest broker's; where no broker reports any, its share of
    subscriptions.
    """
    numbers: dict[str, float]
    links: list[OverlayLink]
    regions: list[str]
    """The common last bits of the ids that it hosts, in a hypercube."""
    problem: str | None = None


class TreeRegion(msgspec.Struct, frozen=True):
    """A region of a tree of regions."""

    code: str
    broker: str
    entries: int
    children: bool


class LocalBroker(msgspec.Struct, frozen=True):
    """A broker that this gateway may start and stop."""

    name: str
    address: str
    state: Literal["running", "stopped", "leaving"]


class NetworkView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The network as it is now."""

    name: str
    scheme: str
    overlay: str
    brokers: list[BrokerView]
    can_manage: bool
    tree: list[TreeRegion] | None = None
    nodes: list[LocalBroker] | None = None


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from acceptance at a broker to notification at a subscriber's broker, over the last ten seconds."""

    p50: float
    p99: float


class BrokerRates(msgspec.Struct, frozen=True):
    """The rates of one broker between two samples; None where it did not answer."""

    id: str
    address: str
    state: str
    published_per_s: float | None
    delivered_per_s: float | None
    queued: int | None


class RecentEvent(msgspec.Struct, frozen=True):
    """An event that was published a moment ago."""

    id: str
    time: str
    attributes: Attributes
    matched: int
    """The number of subscriptions that matched so far."""


class LiveSample(msgspec.Struct, frozen=True):
    """The state of the network, once a second."""

    at: str
    published_per_s: float
    delivered_per_s: float
    latency_ms: Latency | None
    queued: int
    dead: int
    subscriptions: int
    brokers: list[BrokerRates]
    events: list[RecentEvent]
    left_out: int
    """The number of events that were published but are not in `events`."""
    problem: str | None = None
    """The reason why the sample is empty, if it is."""


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to publish and follow."""

    attributes: Attributes
    id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class FollowedEvent(msgspec.Struct, frozen=True):
    """The id by which /api/path returns the event's path."""

    id: str


class SubscriptionSummary(msgspec.Struct, frozen=True):
    """A subscription of the network."""

    name: str
    filter: str
    owner: str
    labels: dict[str, str]
    durable: bool
    broker: str
    queued: int
    is_present: bool
    delivered: int | None
    """The number of events that matched since its broker counts; None where it does not count."""
    per_minute: int | None
    silent_s: float | None
    """The time since the last match, within some seconds; None where none is known."""
    since: str


class SubscriptionPage(msgspec.Struct, frozen=True):
    """A page of subscriptions; `next` is where the following one begins."""

    subscriptions: list[SubscriptionSummary]
    more: bool
    total: int
    """The number of all that were found."""
    next: str | None


class TryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter to try."""

    filter: Annotated[str, Meta(max_length=65_536)]


class FilterProblem(msgspec.Struct, frozen=True):
    """The error in a filter's text, and its place."""

    message: str
    at: int
    length: int
    hint: str


class FilterFinding(msgspec.Struct, frozen=True):
    """A finding of lint."""

    kind: str
    message: str


class MatchCount(msgspec.Struct, frozen=True):
    """The number of recent events that the filter accepts, and the number of all."""

    matched: int
    of: int


class ExplainedEvent(msgspec.Struct, frozen=True):
    """An event with the reason why the filter accepts it, or why not."""

    event: RecentEvent
    accepts: bool
    why: list[str]


class TryResult(msgspec.Struct, frozen=True):
    """The outcome of a filter on recent events."""

    ok: bool
    error: FilterProblem | None
    lint: list[FilterFinding]
    canonical: str | None
    recent: MatchCount
    explained: list[ExplainedEvent]


class BacktestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter to try on the archive of the last hours."""

    filter: Text
    hours: Annotated[float, Meta(gt=0, le=24 * 366)] = 24.0


class TimeSlice(msgspec.Struct, frozen=True):
    """An interval of the timeline: its begin, its number of accepted events and of all."""

    at: str
    hits: int
    events: int


class NearMiss(msgspec.Struct, frozen=True):
    """A condition that alone kept so many events out."""

    why: str
    count: int


class BacktestResult(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The outcome of a filter on archived events."""

    hits: int
    of: int
    begin: str | None
    end: str | None
    timeline: list[TimeSlice]
    near_misses: list[NearMiss]
    samples: list[RecentEvent]
    is_cut: bool
    """Whether the archive holds more than was read."""
    note: str | None


class NodeAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action on a broker of this machine; `join` starts a new one."""

    action: Literal["join", "leave", "crash", "start"]
    broker: Annotated[str, Meta(max_length=200, description="Its address; not for `join`")] | None = None


class NodeActionResult(msgspec.Struct, frozen=True):
    """The outcome of an action, with all brokers of this machine."""

    message: str
    nodes: list[LocalBroker]
