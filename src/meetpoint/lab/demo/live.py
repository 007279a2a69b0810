"""The demo's act on real brokers: flights published live, a stream of Spark that matches the same events against the
same alerts, a replay, and a backtest of what was archived. All must come to the same.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from meetpoint.archive import read_archive
from meetpoint.broker.config import Archiving
from meetpoint.language.schema.schema import Schema
from meetpoint.local_network import local
from meetpoint.matching.jobs import backtest

__all__ = ["tell_live"]

BROKERS, FLIGHTS, ALERTS = 3, 400, 25
BUSY = 5
"""Alerts that are known to fire; the others are the first ones."""
END = "demo_over"
"""The attribute of the last event. A publisher's events arrive in order, so that all flights have come before it."""
WAIT_S_MAX = 60.0
"""Without an event for so long, the last one is taken for lost."""

Pairs = Counter[tuple[int, str]]


def tell_live(
    console: Console, spark: Any, table: pa.Table, filters: Mapping[str, str], pairs: pa.Table, busiest: list[str]
) -> None:
    """Publish, match, replay, backtest; and say whether all agree."""
    console.rule("[bold]Live, and on Spark")
    alerts = {id_: filters[id_] for id_ in dict.fromkeys([*busiest[:BUSY], *filters])}
    alerts = dict(list(alerts.items())[:ALERTS])
    rows = table.take(_chosen(table.num_rows, pairs, busiest[:BUSY])).to_pylist()
    flights = [{name: value for name, value in row.items() if value is not None} for row in rows]
    schema = Schema.infer([*flights, {END: True}]).to_yaml()
    with tempfile.TemporaryDirectory(prefix="meetpoint-live-") as folder:
        archive = Path(folder, "archive")
        with local(BROKERS, archive=Archiving(folder=str(archive), flush_s=0.2)) as here, here.connect_sync() as net:
            net.declare(schema)
            began = datetime.now(UTC)
            live, spent = _publish(net, flights, alerts)
            console.print(
                f"{BROKERS} brokers, {len(alerts)} alerts: {len(flights)} flights published in {spent:.1f} s, "
                f"{live.total():,} notifications came.",
                highlight=False,
            )
            with console.status("matching the same events on Spark …"):
                begin = time.perf_counter()
                streamed = _stream(spark, here.url, alerts, Path(folder))
                spent = time.perf_counter() - begin
            console.print(
                f"A Spark stream read them from the brokers and matched them with the same alerts in {spent:.1f} s: "
                f"{_verdict(streamed == live)} ({streamed.total():,}).",
                highlight=False,
            )
            busy = max(alerts, key=lambda id_: sum(count for (_, each), count in live.items() if each == id_))
            wanted = Counter({pair: count for pair, count in live.items() if pair[1] == busy})
            with net.subscribe(_or_end(alerts[busy]), since=began) as again:
                replayed = Counter((number, busy) for number in _until_end(again))
            console.print(
                f"Subscribed since the beginning, {busy} gets what came before: {_verdict(replayed == wanted)} "
                f"({replayed.total():,}).",
                highlight=False,
            )
        found = backtest(alerts[busy], read_archive(archive))
        same = found.hits == wanted.total() and found.events == len(flights) + 1  # and the last event
        console.print(
            f"The backtest of {busy} on the archive of the brokers: {found.hits:,} of {len(flights):,} flights, "
            f"{_verdict(same)}. Subscribe to what you have backtested: it is the same filter.\n",
            highlight=False,
        )


def _chosen(flights: int, pairs: pa.Table, busiest: list[str]) -> list[int]:
    """Flights from all over the year; every second one is of those that a busy alert is to get."""
    of_busiest = pairs.filter(pc.is_in(pairs["subscription"], pa.array(busiest, pa.string())))
    hits = sorted(set(of_busiest["event"].to_pylist()))
    half = FLIGHTS // 2
    spread = {each for numbers in (hits, range(flights)) for each in numbers[:: max(1, len(numbers) // half)][:half]}
    return sorted(spread)


def _publish(net: Any, flights: list[dict[str, Any]], alerts: Mapping[str, str]) -> tuple[Pairs, float]:
    came: Pairs = Counter()
    subscriptions = [(id_, net.subscribe(_or_end(text))) for id_, text in alerts.items()]
    begin = time.perf_counter()
    net.publish_many(net.event(flight, id=f"f/{number}") for number, flight in enumerate(flights))
    spent = time.perf_counter() - begin
    net.publish({END: True})
    for id_, subscription in subscriptions:
        came.update((number, id_) for number in _until_end(subscription))
        subscription.close()
    return came, spent


def _or_end(filter_: str) -> str:
    return f"({filter_}) OR {END}"


def _until_end(subscription: Any) -> Iterator[int]:
    """Yield the numbers of the flights that arrive before the last event."""
    for event in subscription.events(timeout=WAIT_S_MAX):
        if END in event.attributes:
            return
        yield _number(event.id)


def _stream(spark: Any, url: str, alerts: Mapping[str, str], folder: Path) -> Pairs:
    from meetpoint.spark import Subscriptions, stream

    subscriptions = pa.table({"id": [*alerts], "filter": [*alerts.values()]})
    compiled = Subscriptions.from_dataframe(spark.createDataFrame(subscriptions)).compile(folder / "live-alerts")
    events = spark.readStream.format("meetpoint").option("url", url).option("since", "earliest").load()
    events = events.select("id", "attributes.*")
    running = stream(
        events, compiled, folder / "live-hits", checkpoint=folder / "live-checkpoint", trigger="availableNow"
    )  # fmt: skip
    running.await_done()
    found = running.hits().select("id", "subscription").toArrow()
    return Counter(
        (_number(id_), each)
        for id_, each in zip(*(found[name].to_pylist() for name in found.column_names), strict=True)
    )


def _number(id_: str) -> int:
    return int(id_.rpartition("/")[2])


def _verdict(same: bool) -> str:
    return "[green]the same[/]" if same else "[red]NOT the same: please report this[/]"
