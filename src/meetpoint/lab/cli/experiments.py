"""`meetpoint experiment`: the papers' experiments and ours, on Spark, and the report of their results."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meetpoint.cli.options import LOCAL, AsJson, Master, Settings, read_settings
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, print_error, print_json, print_note, progress
from meetpoint.cli.pipeline.spark_command import need_spark, spark_session

if TYPE_CHECKING:
    from meetpoint.lab.experiments.experiment import Scale

FOLDER = "results"
"""The default folder of results; each scale has a folder of its own in it."""
FAILURES_TOLD = 5

experiment_app = typer.Typer(no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: all of it in less than ten minutes on two cores.")]


@experiment_app.callback()
def root() -> None:
    """The five papers' experiments, and all schemes on one workload.

    run measures, and keeps what it has measured: stopped and started again, it
    goes on where it was. report makes a page with figures, and a table of what
    the papers claim and what came of it.
    """


@experiment_app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Which experiments there are, what they measure, and how many cells they have."""
    from meetpoint.lab.experiments import named

    experiments = named("all")
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "title": each.title,
                    "parts": {part.name: part.says for part in each.parts},
                    "cells": {scale: sum(1 for _ in each.cells(scale)) for scale in _SCALES},
                    "figures": [figure.name for figure in each.figures],
                    "claims": {claim.id: claim.says for claim in each.claims},
                }
                for each in experiments
            ]
        )
        return
    from rich.table import Table

    console = QuietConsole()
    for each in experiments:
        cells = " and ".join(f"{sum(1 for _ in each.cells(scale)):,} {scale}" for scale in _SCALES)
        told = f"{cells} cells, {len(each.figures)} figures, {len(each.claims)} claims"
        console.print(f"[bold]{each.name}[/]  {each.title}", highlight=False)
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column()
        for part in each.parts:
            table.add_row(f"  {part.name}", part.says)
        console.print(table)
        console.print(f"  {told}\n", highlight=False)
    console.print("meetpoint experiment run NAME, or all; then meetpoint experiment report", highlight=False)


_SCALES: tuple[Scale, Scale] = ("quick", "full")


@experiment_app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of an experiment (see list), or all.")],
    part: Annotated[
        list[str] | None, typer.Option("--part", metavar="PART", help="Only this part (see list); repeatable.")
    ] = None,
    quick: Quick = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, max=1_000, help="So many of each; else as each part has it.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help=f"Where results are kept; else {FOLDER}/quick or {FOLDER}/full."),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Cells at a time; else as Spark has cores.")] = None,
    master: Master = LOCAL,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run the cells of which there are no results yet, each as a task of Spark."""
    need_spark()
    from meetpoint.lab.experiments import named
    from meetpoint.lab.experiments.store import ResultStore

    scale: Scale = "quick" if quick else "full"
    experiments = named(name)
    known = dict.fromkeys(each.name for experiment in experiments for each in experiment.parts)
    if unknown := set(part or ()) - known.keys():
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose of {', '.join(known)}.", param_hint="--part")
    cells = [cell for each in experiments for cell in each.cells(scale, seeds) if not part or cell.part in part]
    store = ResultStore(out or Path(FOLDER, scale))
    store.open()
    left = [cell for cell in cells if not store.is_done(cell)]
    begin = time.monotonic()
    failed: list[str] = []
    slowest: tuple[float, str] | None = None
    cpu_s = 0.0
    if left:
        print_note(f"{len(cells):,} cells, of which {len(cells) - len(left):,} are done")
        with spark_session(master, read_settings(config)) as spark, progress(f"running {name}", len(left)) as step:
            from meetpoint.lab.experiments.grid import run_cells

            for done in run_cells(spark, left, store, jobs):
                step(1)
                cpu_s += done.cpu_s
                if done.error is not None:
                    failed.append(f"{done.cell}: {done.error}")
                    if len(failed) <= FAILURES_TOLD:
                        print_error(failed[-1])
                elif slowest is None or done.cpu_s > slowest[0]:
                    slowest = done.cpu_s, str(done.cell)
    seconds = time.monotonic() - begin
    if as_json:
        print_json(
            {
                "cells": len(cells),
                "done_before": len(cells) - len(left),
                "run": len(left) - len(failed),
                "failed": failed,
                "results": str(store.folder),
                "cpu_s": round(cpu_s, 1),
                "slowest": None if slowest is None else {"cpu_s": slowest[0], "cell": slowest[1]},
                "seconds": round(seconds, 1),
            }
        )
    else:
        line = f"{len(left) - len(failed):,} of {len(cells):,} cells run, {len(cells) - len(left):,} were done before"
        sys.stdout.write(f"{line}; {seconds:.0f} s, {cpu_s:,.0f} s of CPU; results in {store.folder}\n")
        if slowest is not None:
            sys.stdout.write(f"the longest took {slowest[0]:.0f} s of CPU: {slowest[1]}\n")
        sys.stdout.write(f"meetpoint experiment report --results {store.folder}\n")
    if failed:
        print_error(f"{len(failed):,} cells failed; run the same command again to try only these")
        raise typer.Exit(EXIT_SET_ASIDE)


@experiment_app.command()
def report(
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help=f"Where results are; else {FOLDER}/full, if there is one, or {FOLDER}/quick.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the page, figures and tables go.")] = Path(
        "report"
    ),
    claims: Annotated[
        Path | None, typer.Option("--claims", metavar="FILE", help="Where the table of claims goes; else into --out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw and judge what was measured: a page, figures as PNG, tables as CSV, and what became of each claim."""
    from meetpoint.lab.experiments.report import write_report

    folder = results or next((path for path in map(_folder, ("full", "quick")) if path.is_dir()), _folder("quick"))
    with progress("drawing", None) as step:
        written = write_report(folder, out, claims or out / "claims.md", lambda: step(1))
    if as_json:
        print_json(
            {
                "page": str(written.page),
                "claims": str(written.claims),
                "figures": written.figures,
                "not_run": written.not_run,
                "verdicts": written.verdicts,
            }
        )
        return
    told = ", ".join(f"{count} {verdict}" for verdict, count in written.verdicts.items())
    sys.stdout.write(f"{written.page}: {len(written.figures)} figures; claims: {told} ({written.claims})\n")
    if written.not_run:
        counted = Counter(figure.partition(":")[0] for figure in written.not_run)
        told = ", ".join(f"{count} of {name}" for name, count in counted.items())
        sys.stdout.write(f"not run, so not drawn: {told}; meetpoint experiment run NAME\n")


def _folder(scale: str) -> Path:
    return Path(FOLDER, scale)
