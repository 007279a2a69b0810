"""`meetpoint up --flights`: real flights are published at some rate, and alerts for them are subscribed to.

The flights of a year go round and round. Some alerts are broad, so that most flights meet one; others are those of many
that would be told most, and a few that are never told anything. Each broker hosts some. They are durable, taken by this
process, and ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from meetpoint.cli.network.connect import Reach
from meetpoint.cli.output.streams import complain
from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.client import Network, Subscription

__all__ = ["SETTINGS", "Drawn", "draw_flights", "feeding"]

FLIGHTS: Final = 3_000
"""As many of the year's, spread over it, go round."""
LOOKED_AT: Final = 500
"""From so many of them it is seen which alerts are told most."""
ALERTS_DRAWN, ALERTS_BUSY, ALERTS_IDLE = 300, 24, 6
BROAD: Final = {
    "late": "dep_delay > 30",
    "very late": "dep_delay > 120 OR arr_delay > 120",
    "cancelled": "dep_time IS NULL",
    "early arrivals": "arr_delay < -20",
    "to Florida": "dest IN ('MIA', 'FLL', 'MCO', 'TPA', 'PBI')",
    "coast to coast": "origin = 'JFK' AND distance > 2000",
    "United to Chicago": "carrier = 'UA' AND dest = 'ORD'",
    "JetBlue in the evening": "carrier = 'B6' AND hour >= 19",
    "small hops": "distance < 250",
    "Delta from LaGuardia": "carrier = 'DL' AND origin = 'LGA'",
}
"""Alerts of which most flights meet one or more."""
SETTINGS: Final = """\
# What schemes that go by attributes are told of flights; the same for all brokers of this network, for good.
# Few alerts make a tree of regions here, of a depth that can be drawn: a network at work leaves out these three.
[dmm]
threshold = 12
delegation = "always"
depth = 4
schema = '''
attributes:
  arr_delay: {type: integer, min: -64, max: 400}
  carrier: string
  distance: {type: integer, min: 80, max: 4983}
'''

[reach]
schema = '''
attributes:
  arr_delay: integer
  carrier: string
  dep_delay: integer
  dest: string
  distance: integer
  hour: integer
  origin: string
'''
"""
"""A broker's configuration, as far as flights have a say in it."""
END_S: Final = 5.0
"""How long alerts may take to be ended."""
PAUSE_S: Final = 1.0
"""How long is waited after a failure, before it goes on."""


class Drawn:
    """Flights to publish, and alerts by name."""

    def __init__(self, flights: list[dict[str, Any]], alerts: Mapping[str, str]) -> None:
        self.flights = flights
        self.alerts = alerts


def draw_flights() -> Drawn:
    """Read the flights, and choose alerts; takes about two seconds."""
    from meetpoint.cli.flights import make_alerts, read_flights
    from meetpoint.language.filters.filter import parse_filter

    table = read_flights()
    rows = table.take(list(range(0, table.num_rows, table.num_rows // FLIGHTS))[:FLIGHTS]).to_pylist()
    flights = [{name: value for name, value in row.items() if value is not None} for row in rows]
    drawn = make_alerts(ALERTS_DRAWN)
    seen = flights[:: len(flights) // LOOKED_AT]
    told: Counter[str] = Counter()
    for name, text in drawn.items():
        accepts = parse_filter(text).accepts
        told[name] = sum(map(accepts, seen))
    busy = [name for name, _ in told.most_common(ALERTS_BUSY)]
    idle = [name for name in drawn if not told[name]][:ALERTS_IDLE]
    alerts = {**BROAD, **{name: drawn[name] for name in sorted((*busy, *idle))}}
    return Drawn(flights, {f"flights/{name}": text for name, text in alerts.items()})


@asynccontextmanager
async def feeding(drawn: Drawn, reaches: list[Reach], rate: float) -> AsyncIterator[None]:
    """Alerts are subscribed to at all these brokers, and flights published, while this is entered."""
    async with AsyncExitStack() as stack:
        nets = [await stack.enter_async_context(reach.connect("flights")) for reach in reaches]
        count = len(nets)
        alerts = list(drawn.alerts.items())
        tasks = [
            asyncio.create_task(_serve(net, alerts[place::count], drawn.flights, place, count, rate / count))
            for place, net in enumerate(nets)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(
    net: Network, alerts: list[tuple[str, str]], flights: list[dict[str, Any]], first: int, step: int, rate: float
) -> None:
    """Subscribe at one broker, then take what comes and publish there, until it is cancelled."""
    subscriptions: list[Subscription] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        for name, text in alerts:
            try:
                made = await net.subscribe(text, durable=name, labels={"made by": "meetpoint up"}, replace=True)
            except MeetpointError as error:
                complain(f"{name} could not be subscribed to: {error}; it goes on without")
                continue
            subscriptions.append(made)
            tasks.append(asyncio.create_task(_take(made)))
        await _publish(net, flights, first, step, rate)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(MeetpointError, TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(each.unsubscribe() for each in subscriptions), return_exceptions=True)


async def _take(subscription: Subscription) -> None:
    """Read alerts as they come: that acknowledges them."""
    async for _ in subscription:
        pass


async def _publish(net: Network, flights: list[dict[str, Any]], first: int, step: int, rate: float) -> None:
    """Publish every so many-th flight, one after another; what fails is said once, and it goes on."""
    run, number, has_failed = secrets.token_hex(3), first, False
    loop = asyncio.get_running_loop()
    due = loop.time() + first / (rate * step)
    while True:
        await asyncio.sleep(max(0.0, due - loop.time()))
        try:
            await net.publish(flights[number % len(flights)], id=f"flight-{run}/{number}")
            has_failed = False
        except MeetpointError as error:
            if not has_failed:
                complain(f"a flight could not be published: {error}; it goes on")
            has_failed = True
            await asyncio.sleep(PAUSE_S)
        number += step
        due = max(due + 1 / rate, loop.time() - 1)
