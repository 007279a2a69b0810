"""The acts of `meetpoint demo` that Spark plays: the same flights and alerts as a table, as a stream and as history.

Each is held against what the acts before came to without Spark, pair by pair.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

from meetpoint.cli.pipeline.spark_command import spark_session
from meetpoint.lab.demo.live import tell_live
from meetpoint.lab.demo.papers import tell_papers
from meetpoint.matching.backtest import Backtest

__all__ = ["Told", "tell_spark"]

MASTER = "local[2]"
ASKED = 25
"""Alerts whose WHERE Spark SQL is asked for: for all of them it would take many minutes."""
BUSIEST = 5
FILES = 4
"""The flights come to the stream in so many files, one in each batch."""
_PAIR = ["event", "subscription"]


@dataclass(frozen=True)
class Told:
    """What the acts before were about, and what they came to: Spark must come to the same."""

    flights: pa.Table
    filters: Mapping[str, str]
    pairs: pa.Table
    counts: Counter[str]
    backtest: Backtest
    time: str
    width: str


def tell_spark(console: Console, told: Told, report: Path) -> None:
    """All acts in one session; what they write is gone afterwards, but for the report."""
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
    """The flights, numbered as the pairs number them, in several files."""
    folder.mkdir()
    numbered = flights.append_column("event", pa.array(range(flights.num_rows), pa.int64()))
    size = -(-flights.num_rows // FILES)
    for part in range(FILES):
        pq.write_table(numbered.slice(part * size, size), folder / f"{part}.parquet")
    return str(folder)


def _second_opinion(console: Console, events: Any, told: Told) -> None:
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


def _as_table(console: Console, spark: Any, events: Any, told: Told, directory: Path) -> Any:
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
    _tell_verdict(console, found, told.pairs)
    return compiled


def _as_stream(console: Console, spark: Any, flights: str, compiled: Any, told: Told, folder: Path) -> None:
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
    _tell_verdict(console, found, told.pairs)


def _as_history(console: Console, events: Any, told: Told) -> None:
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
    """All but the samples, which are those of whichever rows come first."""
    return result.events, result.hits, result.near_misses, result.timeline(), result.untimed


def _tell_verdict(console: Console, found: pa.Table, wanted: pa.Table) -> None:
    same = _sorted(found).equals(_sorted(wanted))
    verdict = "[green]the same pairs" if same else "[red]other pairs: please report this"
    console.print(f"Held against [bold]meetpoint match[/], pair by pair: {verdict}[/] ({found.num_rows:,}).\n")


def _sorted(pairs: pa.Table) -> pa.Table:
    plain = pa.table(
        {"event": pc.cast(pairs["event"], pa.int64()), "subscription": pc.cast(pairs["subscription"], pa.string())}
    )
    return plain.sort_by([(name, "ascending") for name in _PAIR]).combine_chunks()
