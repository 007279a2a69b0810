"""Quotas of clients: connections, subscriptions, constraints in a filter, and the rate of publishing.

A client with a token is who the token says. Without tokens it is who it says it is, and one that says nothing is
counted by each connection of its own.

A token bucket limits how fast a client may publish for long, and how much at once. Nothing is refused or dropped: a
client that has taken more than there was is not read from until the debt is paid, and TCP holds it up. A client's
bucket outlives its connections, so that it gains nothing by connecting anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from meetpoint.api.requests import Subscribe
from meetpoint.broker.clients.authorization import DeniedError
from meetpoint.broker.config import Limits
from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.node.node import Node

__all__ = ["LABELS_CHARS_MAX", "Quotas", "TokenBucket", "TokenBuckets"]

PAUSE_S: Final = 0.02
"""Shortest time that a client is not read from, so that it is not stopped for each event."""


class TokenBucket:
    """A bucket that fills at a rate up to a burst; a rate of 0 is no limit."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount, also where there is less; return how long to wait before the next."""
        if not self._rate:
            return 0.0
        self._fill(now)
        self._level -= amount
        return max(PAUSE_S, -self._level / self._rate) if self._level < 0 else 0.0

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full."""
        self._fill(now)
        return not self._rate or self._level >= self._burst

    def _fill(self, now: float) -> None:
        self._level = min(self._burst, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class TokenBuckets:
    """The buckets of all clients: one for events and one for their bytes each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._of: dict[str, tuple[TokenBucket, TokenBucket]] = {}

    def take(self, client: str, size: int, now: float) -> float:
        """Take an event of so many bytes; return how long its client is not to be read from."""
        pair = self._of.get(client)
        if pair is None:
            said = self._limits
            pair = self._of[client] = (
                TokenBucket(said.publish_per_s, said.publish_burst, now),
                TokenBucket(said.publish_bytes_per_s, said.publish_bytes_burst, now),
            )
        return max(pair[0].take(1, now), pair[1].take(size, now))

    def tick(self, now: float) -> None:
        """Forget clients that have published nothing for a while; called now and then."""
        for client in [client for client, (one, two) in self._of.items() if one.is_full(now) and two.is_full(now)]:
            del self._of[client]

    def __len__(self) -> int:
        return len(self._of)


LABELS_CHARS_MAX: Final = 4_096
"""Largest number of characters of a subscription's owner and labels."""


class Quotas:
    """The limits of all clients of one broker."""

    def __init__(self, limits: Limits, node: Node) -> None:
        self._limits = limits
        self._node = node
        self._connections: Counter[str] = Counter()

    def check_connection(self, client: str) -> None:
        """Raise DeniedError unless a client may have one more connection."""
        most = self._limits.connections_per_client
        if self._connections[client] >= most:
            raise DeniedError(
                "connections_full",
                f"you have {most:,} connections here already (limits.connections_per_client); close some",
                retry=True,
            )

    def connected(self, client: str) -> None:
        """Count a connection of a client."""
        self._connections[client] += 1

    def disconnected(self, client: str) -> None:
        """Count the end of a connection."""
        self._connections[client] -= 1
        if not self._connections[client]:
            del self._connections[client]

    def check_subscription(self, what: Subscribe, made: dict[str, None]) -> None:
        """Raise DeniedError unless a client may have one more subscription; `made` are those of its connection."""
        most, owner = self._limits.subscriptions_per_client, what.terms.owner
        if len(made) >= most:
            for name in [name for name in made if not self._is_held(name)]:
                del made[name]  # it has ended, or was refused
        held = max(len(made), self._node.owned_subscriptions(owner) if owner else 0)
        if held >= most and not self._is_held(what.name):
            raise DeniedError(
                "subscriptions_full",
                f"you have {held:,} subscriptions here "
                f"(limits.subscriptions_per_client is {most:,}); unsubscribe some, or join filters with OR",
            )

    def check_labels(self, owner: str, labels: Iterable[tuple[str, str]]) -> None:
        """Raise DeniedError unless the owner and labels of a subscription are short enough."""
        size = len(owner) + sum(len(name) + len(value) for name, value in labels)
        if size > LABELS_CHARS_MAX:
            raise DeniedError(
                "request", f"owner and labels have {size:,} characters; give them {LABELS_CHARS_MAX:,} at most"
            )

    def _is_held(self, name: str) -> bool:
        return any(name in home.table for home in self._node.home_manager.homes.values())

    def check_filter(self, text: str) -> None:
        """Raise DeniedError unless a filter is small enough; the node refuses what is no filter."""
        try:
            conjunctions = parse_filter(text).conjunctions
        except FilterError:
            return
        count = sum(len(each.constraints) for each in conjunctions)
        most = self._limits.constraints_per_filter
        if count > most:
            raise DeniedError(
                "constraints_full",
                f"the filter has {count:,} constraints in {len(conjunctions):,} conjunctions "
                f"(limits.constraints_per_filter is {most:,}); split it into several subscriptions",
            )
