"""`meetpoint demo`: a story about flights and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meetpoint.cli.options import need_arrow
from meetpoint.cli.output.streams import QuietConsole

__all__ = ["demo"]


def demo(
    spark: Annotated[bool, typer.Option(help="Ask Spark SQL for its answer too.")] = True,
    flights: Annotated[int, typer.Option(min=1, help="How many of the flights of 2013 to take.")] = 336_776,
    alerts: Annotated[int, typer.Option(min=10, help="How many alerts to make.")] = 3_000,
    report: Annotated[
        Path, typer.Option("--report", metavar="DIR", help="Where the page at the end goes; not without Spark.")
    ] = Path("report"),
) -> None:
    """A story: flights of 2013 against some thousand alerts; who gets what, why not, and a second opinion."""
    need_arrow()
    from meetpoint.lab.demo.demo import print_note as tell_story

    tell_story(QuietConsole(), flights=flights, alerts=alerts, with_spark=spark, report=report)
