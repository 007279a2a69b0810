"""Commands on filters and events in files: match, explain, lint, backtest, and schema infer."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, SchemaFile, Settings, read_schema, read_settings
from meetpoint.cli.output.streams import QuietConsole, finish, print_error, print_json, print_note
from meetpoint.cli.pipeline.spark_command import need_spark, spark_session, waiting
from meetpoint.errors import EventError

if TYPE_CHECKING:
    from datetime import timedelta

    from meetpoint.cli.output.files import RejectFile
    from meetpoint.language import Schema
    from meetpoint.language.values import Kind
    from meetpoint.matching.backtest import Backtest


_REPORT = "the report"
FilterText = Annotated[
    str, typer.Argument(metavar="FILTER", help="A filter, such as \"price > 8.30 AND symbol LIKE 'OT%'\".")
]
EventFile = Annotated[
    str, typer.Argument(metavar="EVENTS", help="Events: .jsonl, .csv or .parquet; - is JSON lines on standard input.")
]
RejectsFile = Annotated[
    str | None, typer.Option("--rejects", metavar="FILE", help="Where rows that are set aside go, with reasons.")
]
OutFile = Annotated[
    str, typer.Option("--out", metavar="FILE", help=".jsonl, .csv or .parquet; - is JSON lines on standard output.")
]


def match(
    events: EventFile,
    subs: Annotated[str, typer.Option("--subs", metavar="SUBS", help="Subscriptions with the columns id and filter.")],
    out: OutFile = "-",
    event_id: Annotated[
        str | None, typer.Option("--event-id", metavar="COLUMN", help="Name events by this column, not by row number.")
    ] = None,
    schema: SchemaFile = None,
    rejects: RejectsFile = None,
) -> None:
    """Which subscription accepts which event: a row per pair, with the columns event and subscription."""
    from meetpoint.cli.output.files import RejectFile, TableFile, refuse_overlap
    from meetpoint.cli.output.streams import progress
    from meetpoint.matching.jobs import Mismatch, count_mismatches, load_events, load_subscriptions, matches

    refuse_overlap({"--out": out, "--rejects": rejects}, {"EVENTS": events, "--subs": subs, "--schema": schema})
    declared = read_schema(schema)
    done = pairs = 0
    mismatches: Counter[Mismatch] = Counter()
    with RejectFile(rejects) as reject_file:
        subscriptions = load_subscriptions(subs, reject_file.add, declared)
        batches = count_mismatches(
            load_events(events, reject_file.add, declared), [s.filter for s in subscriptions], mismatches
        )
        with TableFile(out) as sink, progress(f"matching with {len(subscriptions):,} subscriptions") as step:
            for count, table in matches(batches, subscriptions, event_id, reject_file.add):
                sink.write(table)
                done, pairs = done + count, pairs + table.num_rows
                step(count)
    _report_mismatches(mismatches)
    print_note(f"{done:,} events, {len(subscriptions):,} subscriptions, {pairs:,} pairs")
    finish(reject_file.summary())


def explain(
    filter_text: FilterText,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="A JSON object, a file that holds one, or -.")],
    schema: SchemaFile = None,
    as_json: AsJson = False,
) -> None:
    """Why a filter accepts an event, or why not."""
    from meetpoint.language.events.json import attributes_from_json
    from meetpoint.language.filters.explain import explain as explain_event
    from meetpoint.language.filters.filter import parse_filter

    declared = read_schema(schema)
    wanted = parse_filter(filter_text, declared)
    explanation = explain_event(wanted, attributes_from_json(_read_event(event), declared))
    if as_json:
        print_json(explanation.to_dict())
    elif sys.stdout.isatty():
        QuietConsole().print(explanation)
    else:
        sys.stdout.write(explanation.text() + "\n")


def lint(
    subs: Annotated[str, typer.Argument(metavar="SUBS", help="Columns id, filter, and maybe subscriber.")],
    schema: SchemaFile = None,
    rejects: RejectsFile = None,
    as_json: AsJson = False,
) -> None:
    """What is odd about subscriptions: refused, duplicate, covered, never or always true, outside the schema."""
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.cli.output.streams import lint_to_dict, show_lint
    from meetpoint.matching.jobs import lint_rows

    refuse_overlap({_REPORT: "-", "--rejects": rejects}, {"SUBS": subs, "--schema": schema})
    with RejectFile(rejects) as reject_file:
        report = lint_rows(subs, reject_file.add, read_schema(schema), reject_file.add)
    if as_json:
        print_json(lint_to_dict(report))
    else:
        show_lint(QuietConsole(soft_wrap=not sys.stdout.isatty()), report)
    finish(reject_file.summary())


def backtest(
    filter_text: FilterText,
    events: Annotated[
        str, typer.Option("--events", metavar="DATA", help="History: .jsonl, .csv, .parquet, an archive, or -.")
    ],
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="The timestamps for the timeline.")
    ] = None,
    bucket: Annotated[str, typer.Option("--bucket", metavar="WIDTH", help="30s, 15m, 1h, 1d or 1w.")] = "1h",
    schema: SchemaFile = None,
    rejects: RejectsFile = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Go through the history with Spark; DATA may be a folder.")
    ] = False,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """What a filter would have done on history: hits, when, on what, and what nearly fired."""
    from meetpoint.archive import is_archive, read_archive
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.cli.output.streams import progress, show_backtest
    from meetpoint.language.filters.filter import parse_filter
    from meetpoint.matching.backtest import backtest as run
    from meetpoint.matching.backtest import read_width
    from meetpoint.matching.jobs import Mismatch, count_mismatches, load_events

    refuse_overlap({_REPORT: "-", "--rejects": rejects}, {"--events": events, "--schema": schema})
    mismatches: Counter[Mismatch] = Counter()
    declared = read_schema(schema)
    wanted, width = parse_filter(filter_text, declared), read_width(bucket)
    with RejectFile(rejects) as reject_file:
        if spark:
            settings = read_settings(config)
            result = _backtest_on_spark(filter_text, events, time, width, declared, reject_file, master, settings)
        else:
            with progress("backtesting") as step:
                history = read_archive(events) if is_archive(events) else events
                batches = count_mismatches(load_events(history, reject_file.add, declared), [wanted], mismatches)
                result = run(wanted, (step(len(b.rows)) or b for b in batches), time=time, width=width)
    _report_mismatches(mismatches)
    if as_json:
        print_json(result.to_dict())
    else:
        show_backtest(QuietConsole(soft_wrap=not sys.stdout.isatty()), result)
    finish(reject_file.summary())


def _backtest_on_spark(
    filter_text: str,
    events: str,
    time: str | None,
    width: timedelta,
    schema: Schema | None,
    reject_file: RejectFile,
    master: str,
    settings: dict[str, str],
) -> Backtest:
    """Run a backtest on a table of any size; rows that are no events are set aside, in their order."""
    need_spark()
    with spark_session(master, settings) as session:
        from meetpoint.matching.io.rejects import Reject
        from meetpoint.spark import backtest
        from meetpoint.spark.reader import read_history

        with waiting(session, "backtesting"):
            read = read_history(session, events, schema)
            result = backtest(filter_text, read.good, time=time, width=width, schema=schema)
            rejected = [] if read.dead is None else read.dead.toArrow().to_pylist()
    for row, dead in enumerate(rejected):
        reject_file.add(Reject("events", row, dead["reason"], dead["raw"]))
    return result


def schema_infer(events: EventFile, out: OutFile = "-", rejects: RejectsFile = None) -> None:
    """A schema in YAML that all the events conform to."""
    from meetpoint.archive import is_archive, read_archive
    from meetpoint.cli.output.files import RejectFile, refuse_overlap, write_text
    from meetpoint.language import Schema
    from meetpoint.matching.io.events import clean_rows
    from meetpoint.matching.jobs import load_events

    refuse_overlap({"--out": out, "--rejects": rejects}, {"EVENTS": events})
    with RejectFile(rejects) as reject_file:
        source = read_archive(events) if is_archive(events) else events
        found = Schema.infer(clean_rows(load_events(source, reject_file.add, None)))
    write_text(out, found.to_yaml())
    finish(reject_file.summary())


def _report_mismatches(mismatches: Counter[tuple[str, Kind]]) -> None:
    for (name, kind), count in (+mismatches).most_common():
        print_error(f"{name} is compared as a {kind} and is of another kind in {count:,} events: NULL there")


def _read_event(source: str) -> bytes | str:
    if source.lstrip().startswith("{"):
        return source
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise EventError(
            f"event: {source!r} is neither a JSON object nor a file that can be read ({(error.strerror or '').lower()})"
        ) from None
