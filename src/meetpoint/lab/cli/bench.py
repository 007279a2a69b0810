"""`meetpoint bench`: how fast this machine matches, beside peers in the same run; and `meetpoint generate`.

`generate` draws a workload of any size on Spark and writes it to files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, Settings
from meetpoint.cli.output.streams import QuietConsole, json_text
from meetpoint.cli.pipeline.spark_command import Mode, SparkCommand, WriteMode, waiting
from meetpoint.errors import MeetpointError, SetupError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from meetpoint.cli.output.files import RejectFile
    from meetpoint.lab.bench.matcher import MatcherReport, Side
    from meetpoint.language.filters.filter import Filter

EXIT_WRONG = 1
EVENTS = 20_000

bench_app = typer.Typer(no_args_is_help=True, help="Benchmarks: how fast this machine is, beside peers.")


@bench_app.callback()
def root() -> None:
    """Benchmarks: how fast this machine is, beside peers in the same run."""


class KernelPath(StrEnum):
    """The compiled loops that match."""

    AUTO = "auto"
    AVX512 = "avx512"
    PORTABLE = "portable"


@bench_app.command()
def matcher(
    subs: Annotated[
        str | None, typer.Option("--subs", metavar="FILE", help="Your subscriptions, with the columns id and filter.")
    ] = None,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="Your events: .jsonl, .csv or .parquet.")
    ] = None,
    peers: Annotated[
        str, typer.Option("--peers", metavar="NAMES", help="Of duckdb, duckdb-tuned and numpy, with commas, or none.")
    ] = "duckdb",
    mix: Annotated[
        str,
        typer.Option(
            "--mix",
            help="ticks, wide, narrow, selective, strings, ranges, skewed, sparse or zipf (:NAME=VALUE,…).",
        ),
    ] = "ticks",
    subscriptions: Annotated[
        int | None, typer.Option("--subscriptions", min=1, help="How many to generate; else 100,000, wide 10,000.")
    ] = None,
    generate_events: Annotated[int, typer.Option("--generate-events", min=1, help="How many to generate.")] = EVENTS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed is another workload of the same mix.")] = 7,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often all sides take their turns.")] = 5,
    path: Annotated[KernelPath, typer.Option("--path", help="Which compiled loops to use.")] = KernelPath.AUTO,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Above 1: measure so many threads too.")] = 1,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="FILE", help="Where rows of your files that are set aside go.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for a program to read.")] = False,
) -> None:
    """Loading, memory, events a second and latency of the index; its answers are compared with those of the peers."""
    names = [name.strip() for name in peers.split(",") if name.strip() not in ("", "none")]
    _need("pyarrow", "numpy", "numba", *(["duckdb"] if any(name.startswith("duckdb") for name in names) else []))
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.lab.bench.matcher import measure, measure_filters
    from meetpoint.lab.bench.rounds import MismatchError
    from meetpoint.lab.workloads.generator import default_subscriptions, generate

    if (subs is None) != (events is None):
        raise MeetpointError("bench: --subs and --events go together; name both files, or neither to generate them")
    refuse_overlap({"the report": "-", "--rejects": rejects}, {"--subs": subs, "--events": events})
    with RejectFile(rejects) as aside:
        try:
            if subs is not None and events is not None:
                filters, table = _read(subs, events, aside)
                report = measure_filters(filters, table, names, rounds, path, threads=threads)
            else:
                workload = generate(mix, subscriptions or default_subscriptions(mix), generate_events, seed)
                report = measure(workload, names, rounds, path, threads=threads)
        except MismatchError as error:
            sys.stderr.write(f"meetpoint: {error}\n")
            raise typer.Exit(EXIT_WRONG) from None
    if as_json:
        told = {"seed": seed if subs is None else None, "set_aside": aside.count, **report.to_dict()}
        sys.stdout.write(json_text(told) + "\n")
    else:
        _show(QuietConsole(soft_wrap=not sys.stdout.isatty()), report)
    if (summary := aside.summary()) is not None:
        sys.stderr.write(f"meetpoint: {summary}\n")
        raise typer.Exit(EXIT_WRONG)


def _need(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise SetupError(
                f"{package} is not installed, which this benchmark needs; run: pip install 'meetpoint[bench]'"
            )


def _read(subs: str, events: str, aside: RejectFile) -> tuple[list[Filter], pa.Table]:
    """Read the filters and the events of files; bad rows are set aside."""
    import pyarrow as pa

    from meetpoint.language.events.arrow import attributes_to_arrow
    from meetpoint.matching.io.events import clean_rows, format_of, load_events, open_parquet, parquet_batches
    from meetpoint.matching.io.subscriptions import load_subscriptions
    from meetpoint.matching.tables.arrow_columns import check_arrow_kinds

    held = load_subscriptions(subs, aside.add, None)
    if format_of(events) == "parquet":  # columns already
        file = open_parquet(events)
        check_arrow_kinds(file.schema_arrow, None)
        table = pa.Table.from_batches(parquet_batches(events, file), file.schema_arrow)
    else:
        table = attributes_to_arrow(clean_rows(load_events(events, aside.add, None)))
    return [one.filter for one in held], table


def _show(console: Console, report: MatcherReport) -> None:
    from rich.table import Table

    engine = report.engine
    console.print(
        f"{report.name}: {report.subscriptions:,} subscriptions, {engine.events:,} events, {engine.matches:,} matches "
        f"({engine.matches / engine.events:,.1f} an event)",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in ("events/s", "best", "worst", "load s", "index is"):
        table.add_column(column, justify="right")
    for side in _sides(report):
        ratio = f"{report.ratio(side):,.1f}x" if side in report.peers else ""
        name = "the same, compared" if side is report.compared else side.name
        rates = [f"{rate:,.0f}" for rate in (side.rates.median, side.rates.best, side.rates.worst)]
        table.add_row(name, *rates, f"{side.load_s:.3f}", ratio)
    console.print(table)
    for line in _notes(report):
        console.print(line, highlight=False)


def _sides(report: MatcherReport) -> Sequence[Side]:
    compared = () if report.compared is None else (report.compared,)
    return (report.engine, *compared, *report.peers)


def _notes(report: MatcherReport) -> list[str]:
    lines = [
        f"{report.bytes_per_subscription:,.1f} bytes a subscription; "
        f"a single event takes {report.p50_us:,.0f} µs (median), {report.p99_us:,.0f} µs (99th percentile)"
    ]
    if report.build_ratio is not None:
        lines.append(
            f"building the index takes {report.build_ratio:,.1f} times as long as DuckDB loads the raw columns"
        )
    if report.threads is not None:
        threads = report.threads
        lines.append(
            f"{threads.count} threads: {threads.all:,.0f} events/s by the clock, "
            f"{threads.speedup:.2f} times one thread's {threads.one:,.0f}"
        )
    if report.left_out:
        lines.append(
            f"{report.left_out:,} subscriptions ask what peers cannot be asked (OR, IN, times, booleans, NULL, other "
            f"patterns) and are left out of the comparison: peers held {report.subscriptions - report.left_out:,}"
        )
    lines += [
        f"{peer.name} was given the first {peer.events:,} events only; with more at once its rate would be higher"
        for peer in report.peers
        if peer.events < report.engine.events
    ]
    if report.peers:
        lines.append(
            f"same pairs on all sides; median of {report.rounds} rounds in turns, CPU time, path {report.path}"
        )
    return lines


# -- `meetpoint generate` ----------------------------------------------------------------------------------------------


def generate(
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Gets events.parquet and subscriptions.parquet.")],
    mix: Annotated[
        str,
        typer.Option(
            "--mix", help="ticks, wide, narrow, selective, strings, ranges, skewed, sparse or zipf (:NAME=VALUE,…)."
        ),
    ] = "ticks",
    subscriptions: Annotated[
        int | None, typer.Option("--subscriptions", min=1, help="How many; else 100,000, wide 10,000.")
    ] = None,
    events: Annotated[int, typer.Option("--events", min=1, help="How many.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed is another workload of the same mix.")] = 7,
    mode: WriteMode = Mode.ERROR,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Make up a workload of any size: the same from one seed, however many machines draw it."""
    places = {"events": f"{out}/events.parquet", "subscriptions": f"{out}/subscriptions.parquet"}
    work = SparkCommand(master, config, as_json, {}, dict(places), mode)
    with work.session() as spark:
        from meetpoint.lab.workloads.on_spark import generate as draw
        from meetpoint.spark import deliver

        made = draw(spark, mix, subscriptions=subscriptions, events=events, seed=seed)
        with waiting(spark, "generating"):
            counts = {name: deliver(getattr(made, name), path, mode=mode).rows for name, path in places.items()}
    work.report(
        {"mix": mix, "seed": seed, **counts, "out": out},
        f"{counts['events']:,} events and {counts['subscriptions']:,} subscriptions of {mix} in {out}",
    )
