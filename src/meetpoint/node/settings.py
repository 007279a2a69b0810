"""Times, counts and limits of a node, in one place. All are per node and need not agree between nodes."""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.api.limits import SAME_ID_US, SECOND_US

__all__ = ["DAY_US", "NodeSettings", "QueueLimits"]

DAY_US: Final = 24 * 3600 * SECOND_US


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of a consumer queue, and how often it tries."""

    events_max: int
    bytes_max: int
    age_us_max: int
    acknowledge_us: int
    retries_us: tuple[int, ...]

    @property
    def tries_max(self) -> int:
        """The number of times that an event is notified."""
        return len(self.retries_us) + 1


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The times, counts and limits of a node."""

    buddies: int = 2
    """How many neighbours keep copies of a home's records; a write is safe when it is on two disks."""
    query_timeout_us: int = SECOND_US
    """How long a reply may take before the question is put again, or to another."""
    gossip_us: int = 4 * SECOND_US
    """How often a node compares its directory with another's."""
    holding_us: int = 15 * SECOND_US
    """How often a keeper of copies asks whether they are still wanted."""
    found_after_us: int = 6 * SECOND_US
    """How long a starting node looks for a member, before the lowest of those that look begins the network again."""
    join_us: int = 5 * SECOND_US
    """How long a member may take to let a node join, before it turns to another."""
    acknowledge_us: int = 30 * SECOND_US
    """How long a subscriber may take to acknowledge, before it is notified again."""
    retries_us: tuple[int, ...] = (SECOND_US, 5 * SECOND_US, 30 * SECOND_US, 120 * SECOND_US)
    """How long after a try that failed comes the next; after the last one the event becomes a dead letter."""
    window: int = 256
    """How many notifications of a subscription are out unacknowledged, where its subscriber did not say."""
    line_events_max: int = 100_000
    line_bytes_max: int = 256 << 20
    line_us_max: int = 7 * DAY_US
    """How many events wait for a subscriber, of how many bytes, and how long; beyond, the oldest is a dead letter."""
    dead_letters_max: int = 100_000
    dead_bytes_max: int = 256 << 20
    """How many dead letters a home keeps, and of how many bytes; beyond, the oldest is forgotten."""
    hold_us: int = 30 * SECOND_US
    """How long a notification waits for those that may come before it."""
    after_us: int = 30 * SECOND_US
    """How long the first event of a publisher that comes from another broker waits for its last one there."""
    watermark_us: int = SECOND_US // 2
    """How long a publishing home waits with the answer which of its events are on their way."""
    recent_us: int = SAME_ID_US
    recent_max: int = 100_000
    """How long, and how many at most, ids of events are remembered, so that they are not queued again."""
    index_from: int = 500
    """From how many subscriptions on a home looks for matches by an index."""
    locate_us: int = 2 * SECOND_US
    """How long a subscription is looked for where not all answer, before the client is told so."""
    trace: bool = False
    """Whether it is told of each event what becomes of it (`effects.Trace`)."""
    archives: bool = False
    """Whether what is accepted is told to the driver, and kept until that has archived it."""
    first_stream: int = 1
    """The least number of a stream that a home begins: an archive outlives a broker's data, and must not have the
    numbers of one stream for the events of two."""
    requests_held_max: int = 1_000
    """How many requests of clients wait in a node that is not ready; more are refused."""
    copy_bytes_max: int = 256 << 10
    """About how many bytes of records travel in one message."""
    tombstone_us: int = 24 * 3600 * SECOND_US
    """How long a deleted subscription is remembered as deleted."""

    @property
    def line(self) -> QueueLimits:
        """The limits of a consumer queue, and how often it tries."""
        return QueueLimits(
            self.line_events_max, self.line_bytes_max, self.line_us_max, self.acknowledge_us, self.retries_us
        )
