"""`meetpoint pipeline stream`: match what is added to a folder, until it is stopped.

Ctrl-C and SIGTERM let the batch that runs come to its end; a second Ctrl-C does not wait. Either way the same command
takes the stream up where it was, and no event is lost or matched twice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, SchemaFile, Settings, read_schema
from meetpoint.cli.output.streams import finish, print_note
from meetpoint.cli.pipeline.spark_command import (
    DeadPath,
    Kept,
    Missing,
    MissingColumns,
    Result,
    ResultShape,
    SparkCommand,
    Strategy,
    StrategyName,
    SubsPath,
    read_subscriptions,
    waiting,
    were,
)
from meetpoint.wording import counted

if TYPE_CHECKING:
    from meetpoint.spark.streaming.batches import BatchReport
    from meetpoint.spark.streaming.job import Stream

__all__ = ["stream"]

_POLL_SECONDS = 1
_SHOWN = 10
_SOURCE = "_metadata.file_path"


def stream(
    events: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder to follow: .parquet files, or .jsonl with a schema.")
    ],
    subs: SubsPath,
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where hits go, a folder for each batch.")],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="FOLDER", help="What is done: a stream is taken up from there.")
    ],
    schema: SchemaFile = None,
    dead: DeadPath = None,
    keep: Kept = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="INTERVAL", help="How often, such as '10 seconds'.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop after all that is there now.")] = False,
    files: Annotated[
        int | None, typer.Option("--files-per-batch", min=1, help="At most so many files in one batch.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="NAME", help="parquet, orc or jsonl.")] = "parquet",
    strategy: StrategyName = Strategy.AUTO,
    result: ResultShape = Result.PAIRS,
    missing: MissingColumns = Missing.ERROR,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Match what is added to a folder, exactly once, until Ctrl-C; compile to the directory changes subscriptions."""
    if once and trigger is not None:
        raise typer.BadParameter("--once stops at the end; leave one of the two out.", param_hint="--trigger")
    inputs = {"FOLDER": events, "--subs": subs, "--schema": schema}
    outputs = {"--out": out, "--dead": dead, "--checkpoint": checkpoint}
    work = SparkCommand(master, config, as_json, inputs, outputs, None)
    declared = read_schema(schema)
    before = -1
    with work.session() as spark:
        from meetpoint.matching.io.rejects import SourceError
        from meetpoint.spark import stream as start
        from meetpoint.spark.reader import follow_events
        from meetpoint.spark.streaming.batches import batches

        rows, column = follow_events(spark, events, declared, files)
        with suppress(SourceError, ValueError):  # nothing is there yet; what else may be there is told by the start
            before = max(batch.batch for batch in batches(out, spark))
        with waiting(spark, "compiling"):
            running = start(
                rows,
                read_subscriptions(spark, subs, declared),
                out,
                checkpoint=checkpoint,
                dead=dead,
                schema=declared,
                column=column,
                keep=keep or (),
                source=_SOURCE if declared is not None else None,
                trigger="availableNow" if once else trigger,
                format=format_,
                strategy=str(strategy),
                result=str(result),
                missing=str(missing),
            )
        with waiting(spark, f"following {events}"), _stop_signals() as stop_asked:
            _follow(running, stop_asked, before)
        totals = _sums(batches(out, spark), before)
    work.report(
        {**totals, "out": out, "stopped": stop_asked.is_set()},
        f"{counted(totals['batches'], 'batch')}: {counted(totals['events'], 'event')}, "
        f"{counted(totals['dead'], 'dead letter')}, {counted(totals['hits'], str(result)[:-1])} in {out}",
    )
    if stop_asked.is_set():
        raise KeyboardInterrupt
    finish(f"{were(totals['dead'], 'row')} set aside; see {dead}" if totals["dead"] else None)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Lend an event that the first Ctrl-C or SIGTERM sets; Spark itself would give up the current batch."""
    stop_asked = threading.Event()

    def note(number: int, frame: Any) -> None:
        if stop_asked.is_set():
            raise KeyboardInterrupt
        stop_asked.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop_asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(running: Stream, stop_asked: threading.Event, last: int) -> None:
    """Wait for the end; report each batch after the last of an earlier run to a person who looks on."""
    while not running.await_done(_POLL_SECONDS):
        for batch in running.progress(_SHOWN):
            if batch.batch > last:
                last = batch.batch
                print_note(
                    f"batch {last}: {batch.events:,} events, {batch.hits:,} hits, {batch.dead:,} dead letters, "
                    f"{batch.events_per_second:,.0f} events/s"
                )
        if stop_asked.is_set():
            running.stop()


def _sums(out: list[BatchReport], last: int) -> dict[str, int]:
    """Return the totals of batches after the last of an earlier run."""
    new = [batch for batch in out if batch.batch > last]
    sums = {name: sum(getattr(batch, name) for batch in new) for name in ("events", "dead", "hits")}
    return {"batches": len(new), **sums}
