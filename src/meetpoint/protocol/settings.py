"""Times, counts and limits of a node, in one place. All are per node and need not agree between nodes."""

from __future__ import annotations

import msgspec

from meetpoint.protocol.inputs import MICROSECONDS

__all__ = ["NodeSettings"]


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node waits for, and how much it holds."""

    buddies: int = 2
    """How many neighbours keep copies of a home's records; a write is safe when it is on two disks."""
    query_timeout_us: int = MICROSECONDS
    """How long a reply may take before the question is put again, or to another."""
    gossip_us: int = 4 * MICROSECONDS
    """How often a node compares its directory with another's."""
    holding_us: int = 15 * MICROSECONDS
    """How often a keeper of copies asks whether they are still wanted."""
    found_after_us: int = 6 * MICROSECONDS
    """How long a starting node looks for a member, before the lowest of those that look begins the network again."""
    join_us: int = 5 * MICROSECONDS
    """How long a member may take to let a node join, before it turns to another."""
    acknowledge_us: int = 30 * MICROSECONDS
    """How long a subscriber may take to acknowledge, before it is notified again."""
    notify_tries_max: int = 5
    """How often a subscriber is notified, before the event becomes a dead letter."""
    requests_held_max: int = 1_000
    """How many requests of clients wait in a node that is not ready; more are refused."""
    copy_bytes_max: int = 256 << 10
    """About how many bytes of records travel in one message."""
    tombstone_us: int = 24 * 3600 * MICROSECONDS
    """How long a deleted subscription is remembered as deleted."""
