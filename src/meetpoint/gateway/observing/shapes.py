"""What the dashboard is told: the bodies of /api, one struct each."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from meetpoint.gateway.events.publish import Attributes

__all__ = [
    "Backtest", "BacktestIs", "BrokerIs", "BrokerRates", "EventIs", "Explained", "FilterProblem", "Finding", "Followed",
    "Latency", "LinkIs", "LiveIs", "NearMiss", "NetworkIs", "NodeAction", "NodeDone", "NodeIs", "Publish",
    "RecentCount", "Slice", "SubscriptionIs", "SubscriptionsIs", "TreeIs", "Try", "TryIs",
]  # fmt: skip

Text = Annotated[str, Meta(min_length=1, max_length=65_536)]


class LinkIs(msgspec.Struct, frozen=True):
    """One broker has another in its tables."""

    to: str
    kind: str


class BrokerIs(msgspec.Struct, frozen=True):
    """One broker as the network view draws it."""

    id: str
    address: str
    state: str
    """As the broker says; `silent` where it says nothing."""
    place: float
    """Where its id lies on the circle, from 0 to 1."""
    load: float
    """Its messages per second as a share of the busiest broker's; where nobody says anything, its subscriptions."""
    numbers: dict[str, float]
    links: list[LinkIs]
    regions: list[str]
    """Of a hypercube: the common last bits of the ids that it hosts."""
    problem: str | None = None


class TreeIs(msgspec.Struct, frozen=True):
    """One region of a tree of regions."""

    code: str
    broker: str
    entries: int
    children: bool


class NodeIs(msgspec.Struct, frozen=True):
    """A broker that this gateway may start and stop."""

    name: str
    address: str
    state: Literal["running", "stopped", "leaving"]


class NetworkIs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The network as it is now."""

    name: str
    scheme: str
    overlay: str
    brokers: list[BrokerIs]
    can_manage: bool
    tree: list[TreeIs] | None = None
    nodes: list[NodeIs] | None = None


class Latency(msgspec.Struct, frozen=True):
    """From acceptance at a broker until subscribers' brokers tell them, in milliseconds, of the last ten seconds."""

    p50: float
    p99: float


class BrokerRates(msgspec.Struct, frozen=True):
    """One broker between two looks. None: it did not answer."""

    id: str
    address: str
    state: str
    published_per_s: float | None
    delivered_per_s: float | None
    queued: int | None


class EventIs(msgspec.Struct, frozen=True):
    """An event that somebody published."""

    id: str
    time: str
    attributes: Attributes
    matched: int
    """How many subscriptions, as far as is known by now."""


class LiveIs(msgspec.Struct, frozen=True):
    """How the network is, once a second."""

    at: str
    published_per_s: float
    delivered_per_s: float
    latency_ms: Latency | None
    queued: int
    dead: int
    subscriptions: int
    brokers: list[BrokerRates]
    events: list[EventIs]
    left_out: int
    """How many events were published beside those in `events`, as far as is known."""
    problem: str | None = None
    """Why nothing is known, if nothing is."""


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to be published and followed."""

    attributes: Attributes
    id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class Followed(msgspec.Struct, frozen=True):
    """Its id, by which /api/path tells how it goes."""

    id: str


class SubscriptionIs(msgspec.Struct, frozen=True):
    """One subscription of the network."""

    name: str
    filter: str
    owner: str
    labels: dict[str, str]
    durable: bool
    broker: str
    queued: int
    is_present: bool
    delivered: int | None
    """How many events matched it since its broker counts; None: it does not count."""
    per_minute: int | None
    silent_s: float | None
    """How long ago one did, within some seconds; None: never, as far as is known."""
    since: str


class SubscriptionsIs(msgspec.Struct, frozen=True):
    """A page of them; `next` goes on after it."""

    subscriptions: list[SubscriptionIs]
    more: bool
    total: int
    """How many were found."""
    next: str | None


class Try(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter to be tried."""

    filter: Annotated[str, Meta(max_length=65_536)]


class FilterProblem(msgspec.Struct, frozen=True):
    """What is wrong with a filter's text, and where."""

    message: str
    at: int
    length: int
    hint: str


class Finding(msgspec.Struct, frozen=True):
    """What is odd about a filter."""

    kind: str
    message: str


class RecentCount(msgspec.Struct, frozen=True):
    """Of the last events, how many it accepts."""

    matched: int
    of: int


class Explained(msgspec.Struct, frozen=True):
    """Why it accepts one of them, or why not."""

    event: EventIs
    accepts: bool
    why: list[str]


class TryIs(msgspec.Struct, frozen=True):
    """What a filter would do with the last events."""

    ok: bool
    error: FilterProblem | None
    lint: list[Finding]
    canonical: str | None
    recent: RecentCount
    explained: list[Explained]


class Backtest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter to be tried on what was archived in the last so many hours."""

    filter: Text
    hours: Annotated[float, Meta(gt=0, le=24 * 366)] = 24.0


class Slice(msgspec.Struct, frozen=True):
    """A stretch of time: when it began, how many events there were, and how many were accepted."""

    at: str
    hits: int
    events: int


class NearMiss(msgspec.Struct, frozen=True):
    """A condition that alone kept so many events out."""

    why: str
    count: int


class BacktestIs(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """What a filter would have done."""

    hits: int
    of: int
    begin: str | None
    end: str | None
    timeline: list[Slice]
    near_misses: list[NearMiss]
    samples: list[EventIs]
    is_cut: bool
    """Whether there is more than was read."""
    note: str | None


class NodeAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shall become of a broker of this machine; `join` starts a new one."""

    action: Literal["join", "leave", "crash", "start"]
    broker: Annotated[str, Meta(max_length=200, description="Its address; not for `join`")] | None = None


class NodeDone(msgspec.Struct, frozen=True):
    """What was done."""

    message: str
    nodes: list[NodeIs]
