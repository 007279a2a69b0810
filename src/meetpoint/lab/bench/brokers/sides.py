"""What a broker is to the benchmark: someone who publishes, someone who receives, and what counts as a delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from meetpoint.lab.bench.brokers.offered import Offered

__all__ = ["Address", "Publishing", "Seen", "Side"]

Address: TypeAlias = tuple[str, ...]
"""Where the servers of a side are, host:port each."""

Seen: TypeAlias = Callable[[int, int, int], None]
"""Told of each delivery: the event's number, when it was sent (monotonic nanoseconds), and to what it was delivered."""


class Publishing(Protocol):
    """Publishes events; several may be on their way."""

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        """Send an event; the result is there when its acknowledgement is."""


class Side(Protocol):
    """A way to get events to who wants them. It travels to another process, so it holds nothing that lives."""

    name: str
    kept: str
    """Where an acknowledged event is kept."""

    def servers(self, folder: Path) -> AbstractContextManager[Address]:
        """Start what serves; SetupError where it is not installed."""

    def receiving(self, address: Address, offered: Offered, seen: Seen) -> AbstractAsyncContextManager[None]:
        """Hold all subscriptions and receive; ready once they are in force."""

    def publishing(self, address: Address) -> AbstractAsyncContextManager[Publishing]:
        """One publisher."""

    def targets(self, offered: Offered, matched: list[int]) -> int:
        """How many deliveries an event makes that matches these subscriptions."""
