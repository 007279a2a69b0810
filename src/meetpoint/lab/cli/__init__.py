"""The lab's commands. `meetpoint.cli.app` lists their names and loads them from here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meetpoint.cli.output.streams import QuietConsole
from meetpoint.lab.cli.bench import bench_app, generate
from meetpoint.lab.cli.experiments import experiment_app
from meetpoint.lab.cli.simulate import sim

__all__ = ["app"]


def demo(
    spark: Annotated[bool, typer.Option(help="Ask Spark SQL for its answer too.")] = True,
    flights: Annotated[int, typer.Option(min=1, help="How many of the flights of 2013 to take.")] = 336_776,
    alerts: Annotated[int, typer.Option(min=10, help="How many alerts to make.")] = 3_000,
    report: Annotated[
        Path, typer.Option("--report", metavar="DIR", help="Where the page at the end goes; not without Spark.")
    ] = Path("report"),
) -> None:
    """A story: flights of 2013 against some thousand alerts; who gets what, why not, and a second opinion."""
    from meetpoint.lab.demo.demo import run_demo

    run_demo(QuietConsole(), flights=flights, alerts=alerts, with_spark=spark, report=report)


_PANEL = "Lab"

app = typer.Typer()
for _command in (demo, sim, generate):
    app.command(rich_help_panel=_PANEL)(_command)
app.add_typer(experiment_app, name="experiment", rich_help_panel=_PANEL)
app.add_typer(bench_app, name="bench", rich_help_panel=_PANEL)
