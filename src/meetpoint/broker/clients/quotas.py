"""How much one client may have: connections, subscriptions, constraints in a filter.

A client with a token is who the token says. Without tokens it is who it says it is, and one that says nothing is
counted by each connection of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from meetpoint.api.requests import Subscribe
from meetpoint.broker.clients.session_policy import DeniedError
from meetpoint.broker.config import Limits
from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.node.node import Node

__all__ = ["LABELS_CHARS_MAX", "Quotas"]

LABELS_CHARS_MAX: Final = 4_096
"""Characters of a subscription's owner and labels."""


class Quotas:
    """The limits of all clients of one broker."""

    def __init__(self, limits: Limits, node: Node) -> None:
        self._limits = limits
        self._node = node
        self._connections: Counter[str] = Counter()

    def check_connection(self, client: str) -> None:
        """Whether a client may have one more connection; DeniedError where it may not."""
        most = self._limits.connections_per_client
        if self._connections[client] >= most:
            raise DeniedError(
                "connections_full",
                f"you have {most:,} connections here already (limits.connections_per_client); close some",
                retry=True,
            )

    def connected(self, client: str) -> None:
        """A client has one more connection."""
        self._connections[client] += 1

    def disconnected(self, client: str) -> None:
        """And one less."""
        self._connections[client] -= 1
        if not self._connections[client]:
            del self._connections[client]

    def check_subscription(self, what: Subscribe, made: dict[str, None]) -> None:
        """Whether a client may have one more subscription, whose connection made these; DeniedError if not."""
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
        """Whether what is said of a subscription beside its filter is short enough; DeniedError where it is not."""
        size = len(owner) + sum(len(name) + len(value) for name, value in labels)
        if size > LABELS_CHARS_MAX:
            raise DeniedError(
                "request", f"owner and labels have {size:,} characters; give them {LABELS_CHARS_MAX:,} at most"
            )

    def _is_held(self, name: str) -> bool:
        return any(name in home.standing for home in self._node.hosting.homes.values())

    def check_filter(self, text: str) -> None:
        """Whether a filter is small enough; DeniedError where it is not. What is no filter is the node's to refuse."""
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
