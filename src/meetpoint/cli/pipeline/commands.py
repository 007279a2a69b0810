"""`meetpoint pipeline`: the stages of the data pipeline on Spark, each a command on files and folders.

Errors that show without Spark are reported before it starts, since that takes seconds. Exit codes and errors are those
of `app`. =(INDEX, HITS, DEAD, MEASURED, FEEDBACK) | Files and folders that `run` writes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, SchemaFile, Settings, read_schema, read_settings
from meetpoint.cli.output.streams import finish
from meetpoint.cli.pipeline.spark_command import (
    EVENT,
    DeadPath,
    EventPath,
    Kept,
    Missing,
    MissingColumns,
    Mode,
    OutPath,
    Result,
    ResultShape,
    SparkCommand,
    Strategy,
    StrategyName,
    SubsPath,
    WriteMode,
    dead_letter_summary,
    deliver_dead_letters,
    joined,
    named,
    plan_match,
    read_events,
    read_subscriptions,
    rejected_summary,
    run_match,
    waiting,
)
from meetpoint.cli.pipeline.stream import stream
from meetpoint.wording import counted

__all__ = ["pipeline_app"]

INDEX, HITS, DEAD, MEASURED, FEEDBACK = "index", "hits.parquet", "dead.parquet", "measured.json", "feedback.bin"
"""Files and folders that `run` writes."""

pipeline_app = typer.Typer(no_args_is_help=True)


@pipeline_app.callback()
def root() -> None:
    """The data pipeline on Spark: each stage is a command on files and folders.

    Events are .parquet, .jsonl or .csv, a file or a folder of them.
    Subscriptions are such a file with the columns id and filter, or a directory
    that compile made. What is written is a folder, in the format that its name
    ends in. All of it runs on this machine unless --master says where else.
    """


# -- the stages --------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def validate(
    events: EventPath,
    schema: Annotated[Path, typer.Option("--schema", metavar="FILE", help="The schema in YAML.")],
    out: OutPath,
    dead: DeadPath = None,
    keep: Kept = None,
    mode: WriteMode = Mode.ERROR,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Check events against a schema: those that conform are written, the others are dead letters with reasons."""
    work = SparkCommand(
        master, config, as_json, {"EVENTS": events, "--schema": schema}, {"--out": out, "--dead": dead}, mode
    )
    declared = read_schema(schema)
    with work.session() as spark:
        from meetpoint.spark import deliver

        read = read_events(spark, events, declared, keep)
        with waiting(spark, "validating"):
            tally = read.row_counts()
            written = deliver(read.good, out, mode=mode).rows
            deliver_dead_letters(read, tally, dead, mode)
    work.report(
        {"in": tally.good + tally.dead, "good": written, "dead": tally.dead, "out": out},
        f"{counted(tally.good + tally.dead, 'row')}: {counted(written, 'event')} in {out}, "
        f"{counted(tally.dead, 'dead letter')}",
    )
    finish(dead_letter_summary(tally, dead))


@pipeline_app.command("compile")
def compile_(
    subs: Annotated[str, typer.Argument(metavar="SUBS", help="Columns id, filter, and maybe subscriber.")],
    to: Annotated[str, typer.Option("--to", metavar="DIRECTORY", help="Where the versions of the index are kept.")],
    sample: Annotated[
        str | None, typer.Option("--sample", metavar="EVENTS", help="Events like those to come: matching gets faster.")
    ] = None,
    versions: Annotated[int, typer.Option("--versions", min=1, help="How many versions are kept.")] = 10,
    schema: SchemaFile = None,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Parse subscriptions in parallel, and publish an index of them as a new version in a directory."""
    work = SparkCommand(
        master, config, as_json, {"SUBS": subs, "--sample": sample, "--schema": schema}, {"--to": to}, None
    )
    declared = read_schema(schema)
    with work.session() as spark:
        subscriptions = read_subscriptions(spark, subs, declared)
        like = None if sample is None else read_events(spark, sample, None, None).good
        with waiting(spark, "compiling"):
            version = subscriptions.compile(to, like, keep=versions).compiled
    manifest = version.manifest
    work.report(
        {
            "directory": to,
            "version": version.number,
            "subscriptions": manifest.subscriptions,
            "rejected": manifest.rejected,
            "index_bytes": version.index_bytes,
        },
        f"{counted(manifest.subscriptions, 'subscription')} in {to}, version {version.number}, "
        f"{counted(version.index_bytes, 'byte')}",
    )
    finish(rejected_summary(version))


@pipeline_app.command()
def match(
    events: EventPath,
    subs: SubsPath,
    out: OutPath,
    strategy: StrategyName = Strategy.AUTO,
    result: ResultShape = Result.PAIRS,
    event_id: Annotated[
        str | None, typer.Option("--event-id", metavar="COLUMN", help="Write this column of the events only, as event.")
    ] = None,
    missing: MissingColumns = Missing.ERROR,
    explain: Annotated[bool, typer.Option("--explain", help="Say which strategy is used, and why.")] = False,
    schema: SchemaFile = None,
    dead: DeadPath = None,
    keep: Kept = None,
    mode: WriteMode = Mode.ERROR,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Which subscription accepts which event: the columns of the event, and subscription."""
    inputs = {"EVENTS": events, "--subs": subs, "--schema": schema}
    work = SparkCommand(master, config, as_json, inputs, {"--out": out, "--dead": dead}, mode)
    declared = read_schema(schema)
    with work.session() as spark:
        from meetpoint.spark import deliver

        read = read_events(spark, events, declared, keep)
        subscriptions = read_subscriptions(spark, subs, declared)
        good = named(read.good, event_id, events)
        is_compiled = subscriptions.version is not None
        with waiting(spark, "compiling"):
            plan = plan_match(good, subscriptions, strategy, result, missing)
        if explain and not as_json:
            sys.stdout.write(f"{plan}\n")
        with waiting(spark, f"matching with {plan.version.manifest.subscriptions:,} subscriptions"):
            hits = run_match(good, subscriptions, plan, missing)
            if event_id is not None:
                hits = hits.select(EVENT, hits.columns[-1])
            written = deliver(hits, out, mode=mode).rows
            tally = read.row_counts()
            deliver_dead_letters(read, tally, dead, mode)
    manifest = plan.version.manifest
    work.report(
        {
            "events": tally.good,
            "dead": tally.dead,
            "subscriptions": manifest.subscriptions,
            "rejected": manifest.rejected,
            str(result): written,
            "strategy": plan.strategy,
            "reason": plan.reason,
            "out": out,
        },
        f"{counted(tally.good, 'event')}, {counted(manifest.subscriptions, 'subscription')}, "
        f"{counted(written, str(result)[:-1])} in {out}",
    )
    finish(joined(rejected_summary(plan.version, is_kept=is_compiled), dead_letter_summary(tally, dead)))


@pipeline_app.command()
def deliver(
    hits: Annotated[str, typer.Argument(metavar="HITS", help="What match wrote, or any rows.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Where; not needed for a sink that has no path.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="Any that Spark writes; else the ending of PATH.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMN", help="A column that becomes folders; repeatable."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the format; repeatable.")
    ] = None,
    mode: WriteMode = Mode.ERROR,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write rows to another format, to folders by a column, or to any sink that Spark has."""
    options = read_settings(option, "--option")
    work = SparkCommand(master, config, as_json, {"HITS": hits}, {"--to": to}, mode)
    with work.session() as spark:
        from meetpoint.spark import deliver
        from meetpoint.spark.reader import read_rows

        with waiting(spark, "delivering"):
            rows = read_rows(spark, hits)
            done = deliver(rows, to, format=format_, mode=mode, partition_by=partition_by, options=options)
    where = done.format if done.path is None else f"{done.path}, {done.format}"
    work.report({"rows": done.rows, "to": done.path, "format": done.format}, f"{counted(done.rows, 'row')} in {where}")


@pipeline_app.command()
def measure(
    events: EventPath,
    subs: Annotated[
        str | None, typer.Option("--subs", metavar="SUBS", help="Subscriptions: what they ask of the events.")
    ] = None,
    hits: Annotated[
        str | None, typer.Option("--hits", metavar="HITS", help="What match wrote: matches by subscription.")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help="Where all figures go, as JSON.")] = None,
    feedback: Annotated[
        str | None, typer.Option("--feedback", metavar="FILE", help="Where what matchers and brokers load goes.")
    ] = None,
    schema: SchemaFile = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many values and subscriptions are named.")] = 20,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """What events hold, how selective constraints are, where many meet, and which subscriptions are silent."""
    inputs = {"EVENTS": events, "--subs": subs, "--hits": hits, "--schema": schema}
    work = SparkCommand(master, config, as_json, inputs, {"--out": out, "--feedback": feedback}, None)
    declared = read_schema(schema)
    with work.session() as spark:
        from meetpoint.spark import measure
        from meetpoint.spark.reader import read_rows

        read = read_events(spark, events, declared, None)
        subscriptions = None if subs is None else read_subscriptions(spark, subs, None)
        pairs = None if hits is None else read_rows(spark, hits)
        with waiting(spark, "measuring"):
            found = measure(read.good, subscriptions, pairs, top=top)
            tally = read.row_counts()
    if out is not None:
        found.save(out)
    if feedback is not None:
        found.feedback.save(feedback)
    work.report(found.to_dict(), found.text())
    rejected = None if subscriptions is None else rejected_summary(subscriptions.compiled)
    finish(joined(rejected, dead_letter_summary(tally, None)))


@pipeline_app.command()
def compact(
    archive: Annotated[str, typer.Argument(metavar="ARCHIVE", help="The folder that brokers archive to.")],
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="AGE", help="Forget what is older: 12h, 30d or 8w.", show_default="all"),
    ] = None,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Merge the small files of an archive, hour by hour, and forget what is too old. Brokers and readers go on."""
    from meetpoint.matching.backtest import read_width

    keep_s = None if keep is None else read_width(keep).total_seconds()
    work = SparkCommand(master, config, as_json, {"ARCHIVE": archive}, {}, None)
    with work.session() as spark:
        from meetpoint.spark import compact_archive

        with waiting(spark, "compacting"):
            done = compact_archive(spark, archive, keep_s=keep_s)
    before, after = sum(each.files_before for each in done), sum(each.files_after for each in done)
    told = {
        "hours": len(done),
        "files_before": before,
        "files_after": after,
        "removed": sum(each.removed for each in done),
    }
    work.report(told, f"{len(done):,} hours: {before:,} files are {after:,} now, {told['removed']:,} were removed")


@pipeline_app.command()
def run(
    events: EventPath,
    subs: Annotated[str, typer.Option("--subs", metavar="SUBS", help="Subscriptions: columns id and filter.")],
    out: Annotated[
        str,
        typer.Option("--out", metavar="FOLDER", help=f"Gets {HITS}, {DEAD}, {INDEX}, {MEASURED} and {FEEDBACK}."),
    ],
    strategy: StrategyName = Strategy.AUTO,
    schema: SchemaFile = None,
    keep: Kept = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write anew what is in FOLDER already.")] = False,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """All stages in one go: validate events, compile subscriptions, match, deliver, and measure what came of it."""
    mode = Mode.OVERWRITE if overwrite else Mode.ERROR
    place = {name: os.path.join(out, name) for name in (HITS, DEAD, INDEX, MEASURED, FEEDBACK)}
    inputs = {"EVENTS": events, "--subs": subs, "--schema": schema}
    work = SparkCommand(master, config, as_json, inputs, {HITS: place[HITS], DEAD: place[DEAD]}, mode, "--overwrite")
    declared = read_schema(schema)
    with work.session() as spark:
        from meetpoint.spark import deliver, measure
        from meetpoint.spark.reader import read_rows

        read = read_events(spark, events, declared, keep)
        subscriptions = read_subscriptions(spark, subs, declared)
        with waiting(spark, "validating"):
            tally = read.row_counts()
            deliver_dead_letters(read, tally, place[DEAD], mode)
        with waiting(spark, "compiling"):
            subscriptions = subscriptions.compile(place[INDEX], read.good)
            plan = plan_match(read.good, subscriptions, strategy, Result.PAIRS, Missing.ERROR)
        with waiting(spark, f"matching with {subscriptions.count:,} subscriptions"):
            pairs = deliver(run_match(read.good, subscriptions, plan, Missing.ERROR), place[HITS], mode=mode).rows
        with waiting(spark, "measuring"):
            found = measure(read.good, subscriptions, read_rows(spark, place[HITS]) if pairs else None)
    found.save(place[MEASURED])
    found.feedback.save(place[FEEDBACK])
    manifest = plan.version.manifest
    work.report(
        {
            "in": tally.good + tally.dead,
            "events": tally.good,
            "dead": tally.dead,
            "subscriptions": manifest.subscriptions,
            "rejected": manifest.rejected,
            "version": plan.version.number,
            "pairs": pairs,
            "silent": found.matches.silent if found.matches is not None else manifest.subscriptions,
            "strategy": plan.strategy,
            "reason": plan.reason,
            "out": out,
        },
        f"{counted(tally.good, 'event')}, {counted(manifest.subscriptions, 'subscription')}, "
        f"{counted(pairs, 'pair')} in {out}",
    )
    finish(joined(rejected_summary(plan.version), dead_letter_summary(tally, place[DEAD])))


pipeline_app.command()(stream)
