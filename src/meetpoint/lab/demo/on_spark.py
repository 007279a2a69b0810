"""The acts of `meetpoint demo` on Spark: the same flights and alerts as a table, as a stream and as history.

Each act is compared with the results of the acts without Spark, pair by pair. One act runs on real brokers: flights are
published live, a stream of Spark matches the same events against the same alerts, then a replay, and a backtest of the
archive. All must come to the same.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

from meetpoint.archive import read_archive
from meetpoint.broker.config import Archiving
from meetpoint.cli.output.streams import progress
from meetpoint.cli.pipeline.spark_command import spark_session
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.grid import run_cells
from meetpoint.lab.experiments.report import write_report
from meetpoint.lab.experiments.store import ResultStore
from meetpoint.language.schema.schema import Schema
from meetpoint.local_network import local
from meetpoint.matching.backtest import Backtest
from meetpoint.matching.jobs import backtest

# -- live --------------------------------------------------------------------------------------------------------------


BROKERS, FLIGHTS, ALERTS = 3, 400, 25
BUSY = 5
"""Alerts that are known to fire; the others are the first ones."""
END = "demo_over"
"""The attribute of the last event. A publisher's events arrive in order, so that all flights have come before it."""
WAIT_S_MAX = 60.0
"""The longest pause between events; after it the last one is taken for lost."""

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
    """Choose flights from all over the year; every second one is due to a busy alert."""
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


# -- the papers --------------------------------------------------------------------------------------------------------


CHOSEN = {"opchord": ("balance",), "dmm": ("balance", "totals")}
"""Parts that take some seconds."""


def tell_papers(console: Console, spark: Any, report: Path) -> None:
    """Run some experiments as tasks of Spark, and write the report."""
    console.rule("[bold]What the papers claim")
    cells = [
        cell
        for name, parts in CHOSEN.items()
        for experiment in named(name)
        for cell in experiment.cells("quick", seeds=1)
        if cell.part in parts
    ]
    with TemporaryDirectory(prefix="meetpoint-papers-") as folder:
        with progress("running experiments", len(cells)) as step:
            for done in run_cells(spark, cells, ResultStore(folder)):
                step(1)
                if done.error is not None:
                    console.print(f"[red]{done.cell}: {done.error}; please report this.", highlight=False)
        with console.status("drawing …"):
            written = write_report(Path(folder), report, report / "claims.md")
    told = ", ".join(f"{count} {verdict}" for verdict, count in written.verdicts.items() if verdict != "not run")
    console.print(
        f"{len(cells)} cells of two experiments, each a task of Spark, one seed; of the claims that these decide: "
        f"{told}. `meetpoint experiment run all --quick` runs all.",
        highlight=False,
    )
    console.print(f"Open [bold]{written.page}[/] to see the figures.\n", highlight=False)


# -- the acts ----------------------------------------------------------------------------------------------------------


MASTER = "local[2]"
ASKED = 25
"""Alerts whose WHERE Spark SQL is asked for: for all of them it would take many minutes."""
BUSIEST = 5
FILES = 4
"""The number of files in which flights come to the stream, one in each batch."""
_PAIR = ["event", "subscription"]


@dataclass(frozen=True)
class StoryResults:
    """The inputs and results of the acts without Spark: Spark must come to the same."""

    flights: pa.Table
    filters: Mapping[str, str]
    pairs: pa.Table
    counts: Counter[str]
    backtest: Backtest
    time: str
    width: str


def tell_spark(console: Console, told: StoryResults, report: Path) -> None:
    """Play all acts in one session. Their files are gone afterwards, but for the report."""
    with tempfile.TemporaryDirectory(prefix="meetpoint-demo-") as folder, spark_session(MASTER, {}) as spark:
        flights = _write(told.flights, Path(folder, "flights"))
        events = spark.read.parquet(flights)
        _second_opinion(console, events, told)
        compiled = _as_table(console, spark, events, told, Path(folder, "alerts"))
        _as_stream(console, spark, flights, compiled, told, Path(folder))
        _as_history(console, events.drop("event"), told)
        busiest = [id_ for id_, _ in told.counts.most_common()]
        tell_live(console, spark, told.flights, told.filters, told.pairs, busiest)
        tell_papers(console, spark, report)


def _write(flights: pa.Table, folder: Path) -> str:
    """Write the flights, numbered as the pairs number them, in several files."""
    folder.mkdir()
    numbered = flights.append_column("event", pa.array(range(flights.num_rows), pa.int64()))
    size = -(-flights.num_rows // FILES)
    for part in range(FILES):
        pq.write_table(numbered.slice(part * size, size), folder / f"{part}.parquet")
    return str(folder)


def _second_opinion(console: Console, events: Any, told: StoryResults) -> None:
    console.rule("[bold]The same filters as Spark SQL's WHERE")
    busiest = [id_ for id_, _ in told.counts.most_common(BUSIEST)]
    asked = list(dict.fromkeys([*busiest, *told.filters]))[:ASKED]
    with console.status("asking Spark …"):
        sums = [f"count_if({told.filters[id_]}) AS `{number}`" for number, id_ in enumerate(asked)]
        row = events.selectExpr(*sums).toArrow().to_pylist()[0]
    differing = [id_ for number, id_ in enumerate(asked) if row[str(number)] != told.counts[id_]]
    if differing:
        console.print(f"[red]Spark counts differently for {', '.join(differing)}: please report this.\n")
    else:
        console.print(
            f"[green]Spark agrees[/] on all {len(asked)} alerts asked, {sum(row.values()):,} matches among them.\n",
            highlight=False,
        )


def _as_table(console: Console, spark: Any, events: Any, told: StoryResults, directory: Path) -> Any:
    console.rule("[bold]All alerts on Spark, the flights as a table")
    from meetpoint.spark import Subscriptions, match

    alerts = pa.table({"id": [*told.filters], "filter": [*told.filters.values()]})
    with console.status("compiling the alerts …"):
        begin = time.perf_counter()
        compiled = Subscriptions.from_dataframe(spark.createDataFrame(alerts)).compile(directory, sample=events)
        built = time.perf_counter() - begin
    with console.status("matching the table …"):
        begin = time.perf_counter()
        found = match(events, compiled).select(*_PAIR).toArrow()
        spent = time.perf_counter() - begin
    megabytes = compiled.compiled.index_bytes / 1e6
    console.print(
        f"{compiled.count:,} alerts compiled in {built:.1f} s to an index of {megabytes:.1f} MB; "
        f"{told.flights.num_rows:,} flights matched in {spent:.1f} s, "
        f"{told.flights.num_rows / spent:,.0f} flights/s with the start of the workers.",
        highlight=False,
    )
    _show_verdict(console, found, told.pairs)
    return compiled


def _as_stream(console: Console, spark: Any, flights: str, compiled: Any, told: StoryResults, folder: Path) -> None:
    console.rule("[bold]All alerts on Spark, the flights as a stream")
    from meetpoint.spark import stream

    arriving = spark.readStream.schema(spark.read.parquet(flights).schema).option("maxFilesPerTrigger", 1)
    with console.status("matching the stream …"):
        begin = time.perf_counter()
        running = stream(
            arriving.parquet(flights),
            compiled,
            folder / "hits",
            checkpoint=folder / "checkpoint",
            trigger="availableNow",
        )
        running.await_done()
        spent = time.perf_counter() - begin
        found = running.hits().select(*_PAIR).toArrow()
    batches = running.progress()
    flown, hits = sum(batch.events for batch in batches), sum(batch.hits for batch in batches)
    console.print(
        f"{len(batches)} batches of a file each in {spent:.1f} s: {flown:,} flights, {hits:,} notifications; "
        f"the slowest took {max(batch.seconds for batch in batches):.1f} s.",
        highlight=False,
    )
    _show_verdict(console, found, told.pairs)


def _as_history(console: Console, events: Any, told: StoryResults) -> None:
    console.rule("[bold]The backtest on Spark")
    from meetpoint.spark import backtest

    with console.status("backtesting …"):
        begin = time.perf_counter()
        found = backtest(told.backtest.filter, events, time=told.time, width=told.width)
        spent = time.perf_counter() - begin
    verdict = "[green]as without Spark" if _figures(found) == _figures(told.backtest) else "[red]not as without Spark"
    console.print(
        f"{found.hits:,} of {found.events:,} flights, {found.near_misses.total():,} near misses, "
        f"{len(found.timeline()):,} days in {spent:.1f} s: {verdict}[/].\n",
        highlight=False,
    )


def _figures(result: Backtest) -> tuple[object, ...]:
    """Return all figures but the samples, which are of any first rows."""
    return result.events, result.hits, result.near_misses, result.timeline(), result.untimed


def _show_verdict(console: Console, found: pa.Table, wanted: pa.Table) -> None:
    same = _sorted(found).equals(_sorted(wanted))
    verdict = "[green]the same pairs" if same else "[red]other pairs: please report this"
    console.print(f"Held against [bold]meetpoint match[/], pair by pair: {verdict}[/] ({found.num_rows:,}).\n")


def _sorted(pairs: pa.Table) -> pa.Table:
    plain = pa.table(
        {"event": pc.cast(pairs["event"], pa.int64()), "subscription": pc.cast(pairs["subscription"], pa.string())}
    )
    return plain.sort_by([(name, "ascending") for name in _PAIR]).combine_chunks()
