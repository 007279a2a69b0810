"""`meetpoint generate`: a workload of any size, drawn on Spark and written to files."""

from __future__ import annotations

from typing import Annotated

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, Settings
from meetpoint.cli.pipeline.spark_command import Mode, SparkCommand, WriteMode, waiting

__all__ = ["generate"]


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
