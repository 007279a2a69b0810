"""The commands, and what they have in common: exit codes, errors in one line, a pipe that may close.

0 is done, 1 is done with some input set aside or with a check that failed, 2 is refused, 130 is stopped by Ctrl-C.
Nothing here prints a stack trace at a user's mistake. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.certificates import ca_app
from meetpoint.cli.gateway import gateway
from meetpoint.cli.lab import WithLab
from meetpoint.cli.network.brokers import broker, leave
from meetpoint.cli.network.dead_letters import dead_app
from meetpoint.cli.network.messages import pub, sub
from meetpoint.cli.network.schemas import add, show
from meetpoint.cli.network.stores import store_app
from meetpoint.cli.network.subscriptions import subs_app
from meetpoint.cli.network.top import top, why
from meetpoint.cli.network.up import up
from meetpoint.cli.options import LOCAL, AsJson, Master, SchemaFile, Settings, need_arrow, read_schema, read_settings
from meetpoint.cli.output.streams import EXIT_REFUSED, EXIT_STOPPED, QuietConsole, complain, finish, print_json, tell
from meetpoint.cli.pipeline.commands import pipeline_app
from meetpoint.cli.pipeline.spark_runs import running, said_by_spark, waiting
from meetpoint.cli.pipeline.stages import need_spark
from meetpoint.cli.tokens import token_app
from meetpoint.errors import EventError, FilterError, MeetpointError

if TYPE_CHECKING:
    from datetime import timedelta

    from meetpoint.cli.output.files import RejectFile
    from meetpoint.language import Schema
    from meetpoint.language.values import Kind
    from meetpoint.matching.backtest import Backtest

__all__ = ["app", "main"]

# Typer brings its own copy of click and does not name this class: the parent of BadParameter, whoever defines it.
_UsageError: Any = typer.BadParameter.__mro__[1]

_REPORT = "the report"
_BROKERS = "Brokers"

app = typer.Typer(
    name="meetpoint",
    cls=WithLab,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
schema_app = typer.Typer(no_args_is_help=True, help="Schemas: what attributes events have.")
schema_app.command("show")(show)
schema_app.command("add")(add)
app.add_typer(schema_app, name="schema")
app.add_typer(pipeline_app, name="pipeline")
for command in (up, broker, leave, gateway, sub, pub, top, why):
    app.command(rich_help_panel=_BROKERS)(command)
app.add_typer(subs_app, name="subs", rich_help_panel=_BROKERS)
app.add_typer(dead_app, name="dead", rich_help_panel=_BROKERS)
app.add_typer(store_app, name="store", rich_help_panel=_BROKERS)
app.add_typer(ca_app, name="ca", rich_help_panel=_BROKERS)
app.add_typer(token_app, name="token", rich_help_panel=_BROKERS)

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


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Content-based publish/subscribe: say what you care about, get exactly the events that match."""
    if version:
        import meetpoint

        sys.stdout.write(f"meetpoint {meetpoint.__version__}\n")
        raise typer.Exit


@app.command()
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
    need_arrow()
    from meetpoint.cli.output.files import RejectFile, TableFile, refuse_overlap
    from meetpoint.cli.output.progress import progress
    from meetpoint.matching.jobs import Mismatch, load_events, load_subscriptions, matches, watched

    refuse_overlap({"--out": out, "--rejects": rejects}, {"EVENTS": events, "--subs": subs, "--schema": schema})
    declared = read_schema(schema)
    done = pairs = 0
    mismatches: Counter[Mismatch] = Counter()
    with RejectFile(rejects) as aside:
        held = load_subscriptions(subs, aside.add, declared)
        batches = watched(load_events(events, aside.add, declared), [s.filter for s in held], mismatches)
        with TableFile(out) as sink, progress(f"matching with {len(held):,} subscriptions") as step:
            for count, table in matches(batches, held, event_id, aside.add):
                sink.write(table)
                done, pairs = done + count, pairs + table.num_rows
                step(count)
    _tell_mismatches(mismatches)
    tell(f"{done:,} events, {len(held):,} subscriptions, {pairs:,} pairs")
    finish(aside.summary())


@app.command()
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
    told = explain_event(wanted, attributes_from_json(_read_event(event), declared))
    if as_json:
        print_json(told.to_dict())
    elif sys.stdout.isatty():
        QuietConsole().print(told)
    else:
        sys.stdout.write(told.text() + "\n")


@app.command()
def lint(
    subs: Annotated[str, typer.Argument(metavar="SUBS", help="Columns id, filter, and maybe subscriber.")],
    schema: SchemaFile = None,
    rejects: RejectsFile = None,
    as_json: AsJson = False,
) -> None:
    """What is odd about subscriptions: refused, duplicate, covered, never or always true, outside the schema."""
    need_arrow()
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.cli.output.reports import lint_to_dict, show_lint
    from meetpoint.matching.jobs import lint_rows

    refuse_overlap({_REPORT: "-", "--rejects": rejects}, {"SUBS": subs, "--schema": schema})
    with RejectFile(rejects) as aside:
        report = lint_rows(subs, aside.add, read_schema(schema), aside.add)
    if as_json:
        print_json(lint_to_dict(report))
    else:
        show_lint(QuietConsole(soft_wrap=not sys.stdout.isatty()), report)
    finish(aside.summary())


@app.command()
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
    need_arrow()
    from meetpoint.archive import is_archive, read_archive
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.cli.output.progress import progress
    from meetpoint.cli.output.reports import show_backtest
    from meetpoint.language.filters.filter import parse_filter
    from meetpoint.matching.backtest import backtest as run
    from meetpoint.matching.backtest import read_width
    from meetpoint.matching.jobs import Mismatch, load_events, watched

    refuse_overlap({_REPORT: "-", "--rejects": rejects}, {"--events": events, "--schema": schema})
    mismatches: Counter[Mismatch] = Counter()
    declared = read_schema(schema)
    wanted, width = parse_filter(filter_text, declared), read_width(bucket)
    with RejectFile(rejects) as aside:
        if spark:
            settings = read_settings(config)
            result = _backtest_on_spark(filter_text, events, time, width, declared, aside, master, settings)
        else:
            with progress("backtesting") as step:
                history = read_archive(events) if is_archive(events) else events
                batches = watched(load_events(history, aside.add, declared), [wanted], mismatches)
                result = run(wanted, (step(len(b.rows)) or b for b in batches), time=time, width=width)
    _tell_mismatches(mismatches)
    if as_json:
        print_json(result.to_dict())
    else:
        show_backtest(QuietConsole(soft_wrap=not sys.stdout.isatty()), result)
    finish(aside.summary())


def _backtest_on_spark(
    filter_text: str,
    events: str,
    time: str | None,
    width: timedelta,
    schema: Schema | None,
    aside: RejectFile,
    master: str,
    settings: dict[str, str],
) -> Backtest:
    """The same from a table of any size; rows that are no events are set aside, numbered as they come."""
    need_spark()
    with running(master, settings) as session:
        from meetpoint.matching.io.rejects import Reject
        from meetpoint.spark import backtest
        from meetpoint.spark.reader import read_history

        with waiting(session, "backtesting"):
            read = read_history(session, events, schema)
            result = backtest(filter_text, read.good, time=time, width=width, schema=schema)
            dead = [] if read.dead is None else read.dead.toArrow().to_pylist()
    for row, letter in enumerate(dead):
        aside.add(Reject("events", row, letter["reason"], letter["raw"]))
    return result


@schema_app.command("infer")
def infer(events: EventFile, out: OutFile = "-", rejects: RejectsFile = None) -> None:
    """A schema in YAML that all the events conform to."""
    need_arrow()
    from meetpoint.archive import is_archive, read_archive
    from meetpoint.cli.output.files import RejectFile, refuse_overlap, write_text
    from meetpoint.language import Schema
    from meetpoint.matching.io.files import clean_rows
    from meetpoint.matching.jobs import load_events

    refuse_overlap({"--out": out, "--rejects": rejects}, {"EVENTS": events})
    with RejectFile(rejects) as aside:
        held = read_archive(events) if is_archive(events) else events
        found = Schema.infer(clean_rows(load_events(held, aside.add, None)))
    write_text(out, found.to_yaml())
    finish(aside.summary())


def main() -> None:
    """The entry point: run a command, turn a caller's mistake into one clear message and an exit code."""
    code = _run()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # it has been told; the interpreter must not find it again as it exits
        _let_go_of_stdout()
    sys.exit(code)


def _run() -> int:
    """Invoke a command without Typer's own handling of errors, which has other exit codes for pipes and Ctrl-C."""
    try:
        code = _invoke()
        sys.stdout.flush()  # here, so that what it raises is told like the rest
        return code
    except FilterError as error:
        complain(f"{error}\n{error.pointer()}")
    except MeetpointError as error:
        complain(str(error))
    except _UsageError as error:
        if message := error.format_message():  # without arguments it is the help that is shown
            complain(f"{message} Try --help.")
    except (KeyboardInterrupt, typer.Abort):
        complain("stopped")
        return EXIT_STOPPED
    except BrokenPipeError:  # the reader has seen enough
        _let_go_of_stdout()
        return 0
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the same, met by the console that shows the help
            return 0
        raise
    except Exception as error:
        message = said_by_spark(error) or _last_resort(error)
        if message is None:
            raise
        complain(message)
    return EXIT_REFUSED


def _invoke() -> int:
    if "_MEETPOINT_COMPLETE" in os.environ:  # a shell asks what could follow
        app()
        return 0
    command = typer.main.get_command(app)
    try:
        with command.make_context("meetpoint", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return int(ended.exit_code)
    return 0


def _last_resort(error: Exception) -> str | None:
    """What the machine or a library refuses, in one line; None for a mistake of ours, whose trace is wanted."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return "the memory does not suffice; split the input, or use a machine with more"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{(error.strerror or said).lower()}; check the files that are read and written"
    if isinstance(error, OverflowError):
        return f"a number is too large: {said}; check the numbers and times of the input"
    if any(cls.__module__.startswith("pyarrow") for cls in type(error).__mro__):
        return f"the data cannot be handled: {said}; check the types of its columns"
    return None


def _let_go_of_stdout() -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_mismatches(mismatches: Counter[tuple[str, Kind]]) -> None:
    for (name, kind), count in (+mismatches).most_common():
        complain(f"{name} is compared as a {kind} and is of another kind in {count:,} events: NULL there")


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
