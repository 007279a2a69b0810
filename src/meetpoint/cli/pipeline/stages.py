"""What the commands of `meetpoint pipeline` share: options, checks before Spark starts, and what is told at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.options import read_settings
from meetpoint.cli.output.streams import print_json
from meetpoint.cli.pipeline.spark_runs import running, waiting
from meetpoint.errors import MeetpointError, SetupError
from meetpoint.wording import counted

if TYPE_CHECKING:
    from meetpoint.language import Schema
    from meetpoint.spark.event_files import EventFiles, Tally
    from meetpoint.spark.matching.job import Plan
    from meetpoint.spark.subscriptions.store import Version
    from meetpoint.spark.subscriptions.subscriptions import Subscriptions

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
    "Strategy",
    "StrategyName",
    "SubsPath",
    "Work",
    "WriteMode",
    "dead_summary",
    "deliver_dead",
    "joined",
    "named",
    "need_spark",
    "plan_match",
    "read_events",
    "read_subscriptions",
    "rejected_summary",
    "run_match",
    "were",
]

EVENT = "event"
"""The column that names an event, as in `meetpoint match`."""


class Mode(StrEnum):
    """What to do where there is something already."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


class Strategy(StrEnum):
    """How events and subscriptions are brought together."""

    AUTO = "auto"
    BROADCAST = "broadcast"
    PARTITIONED = "partitioned"
    JOIN = "join"


class Result(StrEnum):
    """A row for each match, or one for each event."""

    PAIRS = "pairs"
    LISTS = "lists"


class Missing(StrEnum):
    """What a column is that a filter names and events lack."""

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
class Work:
    """One command: its paths are checked when it is made, its session is started by `running`, its time is told."""

    master: str
    config: list[str] | None
    as_json: bool
    inputs: Mapping[str, object]
    outputs: Mapping[str, str | None]
    mode: Mode | None
    again: str = "--mode append or overwrite"
    """What to say to write where there is something already."""
    begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        need_spark()
        from meetpoint.cli.output.files import refuse_overlap
        from meetpoint.matching.io.files import SUFFIXES
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

    def running(self) -> Any:
        """Spark's session for this command."""
        return running(self.master, read_settings(self.config))

    def report(self, told: Mapping[str, Any], line: str) -> None:
        """Figures for a program, or a line for people."""
        seconds = round(time.perf_counter() - self.begin, 3)
        if self.as_json:
            print_json({**told, "seconds": seconds})
        else:
            sys.stdout.write(f"{line}\n" if "\n" in line else f"{line}; {seconds:.1f} s\n")


def need_spark() -> None:
    """SetupError where Spark is not installed, before anything that would import it."""
    if find_spec("pyspark") is None:
        raise SetupError("PySpark is not installed, which this command needs; run: pip install 'meetpoint[spark]'")


def _ending(path: str) -> str:
    return os.path.splitext(path.rstrip("/"))[1].lower()


def _is_here(path: str) -> bool:
    """Whether a path is one of this machine's files, and no pattern for several."""
    return "://" not in path and not any(sign in path for sign in "*?[{")


def read_events(spark: Any, path: str, schema: Schema | None, keep: list[str] | None) -> EventFiles:
    from meetpoint.spark.reader import read_events as read

    if keep and schema is None:
        raise MeetpointError("--keep: there is no schema, so all columns are kept; leave it out, or name a --schema")
    with waiting(spark, f"looking at {path}"):
        return read(spark, path, schema, keep or ())


def read_subscriptions(spark: Any, path: str, schema: Schema | None) -> Subscriptions:
    """A directory that was compiled, known by having no ending of a file, or rows of filters."""
    from meetpoint.spark import Subscriptions

    if os.path.isdir(path) and not _ending(path):
        return Subscriptions.open(path, spark=spark)
    return Subscriptions.read(path, spark=spark, schema=schema)


def named(events: Any, event_id: str | None, path: str) -> Any:
    """The events with the column that names them under one name."""
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


def plan_match(events: Any, held: Subscriptions, strategy: Strategy, result: Result, missing: Missing) -> Plan:
    from meetpoint.spark import plan

    return plan(events, held, strategy=str(strategy), result=str(result), missing=str(missing))


def run_match(events: Any, held: Subscriptions, plan: Plan, missing: Missing) -> Any:
    from meetpoint.spark import match

    return match(events, held, strategy=plan.strategy, result=plan.result, missing=str(missing))


def deliver_dead(read: EventFiles, tally: Tally, dead: str | None, mode: Mode) -> None:
    """Dead letters, if there is a place for them and there are any; none of an earlier run stay."""
    from meetpoint.spark import deliver

    if dead is not None and read.dead is not None and (tally.dead or mode is Mode.OVERWRITE):
        deliver(read.dead, dead, mode=str(mode))


def dead_summary(tally: Tally, dead: str | None) -> str | None:
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
    """`1 row was`, `2 rows were`."""
    return f"{counted(count, thing)} {'was' if count == 1 else 'were'}"


def joined(*summaries: str | None) -> str | None:
    return "\nmeetpoint: ".join(one for one in summaries if one is not None) or None
