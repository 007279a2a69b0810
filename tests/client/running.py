"""What the client's tests share: networks that are quick to start, and waits that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from itertools import islice

from meetpoint.api.limits import SECOND_US
from meetpoint.client import Delivery, Subscription, SyncDelivery, SyncSubscription
from meetpoint.node.settings import NodeSettings
from tests.virtual_time import run

__all__ = ["HASTY", "PATIENCE_S", "SILENT_S", "all_of", "all_of_sync", "run", "silent", "take", "until"]

PATIENCE_S = 120.0
"""How long a test waits for what must come."""

SILENT_S = 3.0
"""How long nothing must come to say that nothing will."""

HASTY = NodeSettings(acknowledge_us=SECOND_US, retries_us=(100_000, 100_000, 100_000, 100_000))
"""Of a network in which what is not acknowledged comes again soon."""


async def take(events: AsyncIterable[Delivery], count: int) -> list[Delivery]:
    """The next so many events; it is an error if they do not come."""
    found: list[Delivery] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError(f"it ended after {len(found)} events")


async def all_of(subscription: Subscription, count: int) -> list[Delivery]:
    """All that comes: so many, for which it waits, and then whatever else there is."""
    found = await take(subscription, count) if count else []
    return [*found, *[event async for event in subscription.events(timeout=SILENT_S)]]


def all_of_sync(subscription: SyncSubscription, count: int) -> list[SyncDelivery]:
    """The same without asyncio."""
    found = list(islice(subscription.events(timeout=2 * PATIENCE_S), count))
    return [*found, *subscription.events(timeout=SILENT_S)]


async def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.005)


async def silent(subscription: Subscription, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while."""
    return [event async for event in subscription.events(timeout=seconds)] == []
