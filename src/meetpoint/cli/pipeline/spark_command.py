"""Commands on Spark: shared options, checks before Spark starts, the session, progress, errors and the report.

Spark is started silently and stopped at the end; its progress and its errors are one line each.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.options import read_settings
from meetpoint.cli.output.streams import QuietConsole, print_json, print_note
from meetpoint.errors import MeetpointError, SetupError
from meetpoint.wording import counted

if TYPE_CHECKING:
    from meetpoint.language import Schema
    from meetpoint.spark.matching.job import MatchPlan
    from meetpoint.spark.subscriptions.store import Version
    from meetpoint.spark.subscriptions.subscriptions import Subscriptions
    from meetpoint.spark.validation import EventRows, RowCounts


__all__ = [
    "EVENT",
    "DeadPath",
    "EventPath",
    "Kept",
    "Missing",
    "MissingColumns",
    "Mode",
    "OutPath",
    "Result",
    "ResultShape",
    "SparkCommand",
    "Strategy",
    "StrategyName",
    "SubsPath",
    "WriteMode",
    "dead_letter_summary",
    "deliver_dead_letters",
    "joined",
    "named",
    "need_spark",
    "plan_match",
    "read_events",
    "read_subscriptions",
    "rejected_summary",
    "run_match",
    "spark_message",
    "spark_session",
    "waiting",
    "were",
]


# -- Spark -------------------------------------------------------------------------------------------------------------


_POLL_SECONDS = 0.5
_STDERR = 2


@contextmanager
def spark_session(master: str, config: Mapping[str, str]) -> Iterator[Any]:
    """Lend a Spark session to a command; one that runs already is used, and left running."""
    from meetpoint.spark import session
    from meetpoint.spark.session import is_running

    # What it warns of is in the command's own report; without a handler Python would print it.
    logging.getLogger("meetpoint.spark").addHandler(logging.NullHandler())
    is_ours = not is_running()
    print_note("starting Spark …")
    with _stderr_aside() as stderr_file:
        try:
            spark = session(master, config=config)
        except MeetpointError:
            raise
        except Exception as error:
            raise SetupError(
                f"Spark does not start with --master {master}: {_why(error, stderr_file)}; check --master and --config"
            ) from None
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


@contextmanager
def _stderr_aside() -> Iterator[IO[bytes]]:
    """Redirect standard error for what is started here, for all its life: Java and Spark print much there."""
    with tempfile.TemporaryFile() as stderr_file:
        saved = os.dup(_STDERR)
        os.dup2(stderr_file.fileno(), _STDERR)
        try:
            yield stderr_file
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)


def _why(error: Exception, stderr_file: IO[bytes]) -> str:
    found = re.search(r"(?:Exception|Error): (.+)", str(error))
    if found is not None:
        return found[1].strip().rstrip(".")
    stderr_file.seek(0)
    lines = [line.strip() for line in stderr_file.read().decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith(("WARNING", "Picked up"))]
    return telling[0] if telling else " ".join(str(error).split())


@contextmanager
def waiting(spark: Any, what: str) -> Iterator[None]:
    """Show on a terminal what is being done, how many tasks are done, and for how long it has been."""
    console = QuietConsole(stderr=True)
    if not console.is_terminal:
        yield
        return
    over = threading.Event()
    begin = time.monotonic()
    with console.status(f"{what} …") as status:

        def watch() -> None:
            while not over.wait(_POLL_SECONDS):
                status.update(f"{what} …{_tasks(spark)} {time.monotonic() - begin:.0f} s")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _tasks(spark: Any) -> str:
    with suppress(Exception):  # through Spark Connect there is nobody to ask; and the job may just have ended
        tracker = spark.sparkContext.statusTracker()
        stages = [stage for id_ in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(id_)) is not None]
        if stages:
            done, all_ = (sum(getattr(stage, name) for stage in stages) for name in ("numCompletedTasks", "numTasks"))
            return f" {done:,} of {all_:,} tasks,"
    return ""


def spark_message(error: Exception) -> str | None:
    """Return the reason of a failed Spark job in one line; None for other errors, and for bugs of ours."""
    if not any(cls.__module__.startswith(("pyspark", "py4j")) for cls in type(error).__mro__):
        return None
    text = str(error)
    raised = re.findall(r"^meetpoint\.[\w.]*Error: (.+)$", text, re.MULTILINE)
    if raised:  # by a worker of ours
        return str(raised[-1])
    if re.search(r"^Traceback \(most recent call last\):", text, re.MULTILINE):
        return None
    refused = re.findall(r"\[[A-Z][A-Z_.0-9]+\] .+", text)
    if refused:
        figures = refused[-1] if "Caused by" in text else refused[0]
        return f"Spark stopped: {figures.partition(' SQLSTATE:')[0].rstrip('. ')}; check the input, or --config"
    caused = re.findall(r"^(?:Caused by: )?(?:java|org)\.[\w.$]+: (.+)$", text, re.MULTILINE)
    return f"Spark stopped: {caused[-1].rstrip('. ')}; check the input, or --config" if caused else None


# -- commands ----------------------------------------------------------------------------------------------------------


EVENT = "event"
"""The column that names an event, as in `meetpoint match`."""


class Mode(StrEnum):
    """The treatment of an output that exists."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


class Strategy(StrEnum):
    """The way events and subscriptions are brought together."""

    AUTO = "auto"
    BROADCAST = "broadcast"
    PARTITIONED = "partitioned"
    JOIN = "join"


class Result(StrEnum):
    """The shape of results: a row for each match, or for each event."""

    PAIRS = "pairs"
    LISTS = "lists"


class Missing(StrEnum):
    """The treatment of a column that a filter names and events lack."""

    ERROR = "error"
    NULL = "null"


EventPath = Annotated[
    str, typer.Argument(metavar="EVENTS", help="Events: .parquet, .jsonl or .csv, a file or a folder of them.")
]
SubsPath = Annotated[
    str, typer.Option("--subs", metavar="SUBS", help="Subscriptions: a file, or a directory that compile made.")
]
OutPath = Annotated[
    str, typer.Option("--out", metavar="FOLDER", help="What to write; ends in .parquet, .jsonl or .csv.")
]
DeadPath = Annotated[
    str | None, typer.Option("--dead", metavar="FOLDER", help="Where rows that are no events go, with reasons.")
]
Kept = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COLUMN", help="Pass on a column that the schema does not have; repeatable."),
]
StrategyName = Annotated[Strategy, typer.Option("--strategy", help="How they meet; auto picks what fits.")]
ResultShape = Annotated[Result, typer.Option("--result", help="A row for each match, or each event once with a list.")]
MissingColumns = Annotated[
    Missing, typer.Option("--missing", help="What a column is that a filter names and events lack.")
]
WriteMode = Annotated[Mode, typer.Option("--mode", help="What to do where there is something already.")]


@dataclass(frozen=True)
class SparkCommand:
    """A command: checks its paths when it is made, starts Spark by `session`, and reports."""

    master: str
    config: list[str] | None
    as_json: bool
    inputs: Mapping[str, object]
    outputs: Mapping[str, str | None]
    mode: Mode | None
    again: str = "--mode append or overwrite"
    """The option to name in the refusal to overwrite."""
    begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        need_spark()
        from meetpoint.cli.output.files import refuse_overlap
        from meetpoint.matching.io.events import SUFFIXES
        from meetpoint.matching.io.rejects import STANDARD_STREAM, SourceError

        read_settings(self.config)
        refuse_overlap(self.outputs, self.inputs)
        for path in self.inputs.values():
            if path == STANDARD_STREAM:
                raise SourceError("-: Spark reads files and folders, not standard input; name one")
            if isinstance(path, str) and _is_here(path) and not os.path.exists(path):
                raise SourceError(f"{path}: no such file or directory; check the path")
        for option, path in self.outputs.items():
            if path is None:
                continue
            if self.mode is Mode.ERROR and _is_here(path) and os.path.exists(path):
                raise SourceError(f"{path}: there is something already; choose another path, or say {self.again}")
            if self.mode is not None and option in ("--out", "--dead") and _ending(path) not in SUFFIXES:
                raise SourceError(f"{path}: the ending says no format; end it in .parquet, .jsonl or .csv")

    def session(self) -> Any:
        """Return Spark's session for this command, to be entered."""
        return spark_session(self.master, read_settings(self.config))

    def report(self, figures: Mapping[str, Any], line: str) -> None:
        """Print figures for a program, or a line for people."""
        seconds = round(time.perf_counter() - self.begin, 3)
        if self.as_json:
            print_json({**figures, "seconds": seconds})
        else:
            sys.stdout.write(f"{line}\n" if "\n" in line else f"{line}; {seconds:.1f} s\n")


def need_spark() -> None:
    """Raise SetupError where PySpark is missing, before anything imports it."""
    if find_spec("pyspark") is None:
        raise SetupError("PySpark is not installed, which this command needs; run: pip install 'meetpoint[spark]'")


def _ending(path: str) -> str:
    return os.path.splitext(path.rstrip("/"))[1].lower()


def _is_here(path: str) -> bool:
    """Return whether a path is a file of this machine, and no pattern for several."""
    return "://" not in path and not any(sign in path for sign in "*?[{")


def read_events(spark: Any, path: str, schema: Schema | None, keep: list[str] | None) -> EventRows:
    from meetpoint.spark.reader import read_events as read

    if keep and schema is None:
        raise MeetpointError("--keep: there is no schema, so all columns are kept; leave it out, or name a --schema")
    with waiting(spark, f"looking at {path}"):
        return read(spark, path, schema, keep or ())


def read_subscriptions(spark: Any, path: str, schema: Schema | None) -> Subscriptions:
    """Read a compiled directory, known by having no ending of a file, or rows of filters."""
    from meetpoint.spark import Subscriptions

    if os.path.isdir(path) and not _ending(path):
        return Subscriptions.open(path, spark=spark)
    return Subscriptions.read(path, spark=spark, schema=schema)


def named(events: Any, event_id: str | None, path: str) -> Any:
    """Return the events with the column that names them called `event`."""
    if event_id is None:
        return events
    from meetpoint.matching.io.rejects import SourceError

    if event_id not in events.columns:
        raise SourceError(f"{path}: there is no column {event_id}, which --event-id names; {_columns(events)}")
    if event_id != EVENT and EVENT in events.columns:
        raise SourceError(f"{path}: there is a column {EVENT} already; name that with --event-id, or rename it")
    return events.withColumn(EVENT, events[f"`{event_id}`"])


def _columns(events: Any) -> str:
    return f"the columns are {', '.join(events.columns)}"


def plan_match(
    events: Any, subscriptions: Subscriptions, strategy: Strategy, result: Result, missing: Missing
) -> MatchPlan:
    from meetpoint.spark import plan

    return plan(events, subscriptions, strategy=str(strategy), result=str(result), missing=str(missing))


def run_match(events: Any, subscriptions: Subscriptions, plan: MatchPlan, missing: Missing) -> Any:
    from meetpoint.spark import match

    return match(events, subscriptions, strategy=plan.strategy, result=plan.result, missing=str(missing))


def deliver_dead_letters(read: EventRows, tally: RowCounts, dead: str | None, mode: Mode) -> None:
    """Write dead letters, if there is a place for them; none of an earlier run stay there."""
    from meetpoint.spark import deliver

    if dead is not None and read.dead is not None and (tally.dead or mode is Mode.OVERWRITE):
        deliver(read.dead, dead, mode=str(mode))


def dead_letter_summary(tally: RowCounts, dead: str | None) -> str | None:
    if not tally.dead:
        return None
    where = f"see {dead}" if dead is not None else "name --dead FOLDER to keep them"
    return f"{were(tally.dead, 'row')} set aside; {where}. The first: {tally.first_reason}"


def rejected_summary(version: Version, *, is_kept: bool = True) -> str | None:
    manifest = version.manifest
    if not manifest.rejected:
        return None
    where = f"see {version.rejected_path}" if is_kept else "meetpoint pipeline compile keeps a list"
    return f"{were(manifest.rejected, 'subscription')} set aside; {where}. The first: {manifest.first_reason}"


def were(count: int, thing: str) -> str:
    """Return `1 row was`, `2 rows were`."""
    return f"{counted(count, thing)} {'was' if count == 1 else 'were'}"


def joined(*summaries: str | None) -> str | None:
    return "\nmeetpoint: ".join(one for one in summaries if one is not None) or None
