"""The demo's last act: some of the papers' experiments at small sizes, and a page to open."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from meetpoint.cli.output.streams import progress
from meetpoint.lab.experiments.catalog import named
from meetpoint.lab.experiments.grid import run_cells
from meetpoint.lab.experiments.report import write_report
from meetpoint.lab.experiments.store import ResultStore

__all__ = ["tell_papers"]

CHOSEN = {"opchord": ("balance",), "dmm": ("balance", "totals")}
"""Parts that take some seconds."""


def tell_papers(console: Console, spark: Any, report: Path) -> None:
    """Run them as tasks of Spark, and write what came."""
    console.rule("[bold]What the papers claim")
    cells = [
        cell
        for name, parts in CHOSEN.items()
        for experiment in named(name)
        for cell in experiment.cells("quick", seeds=1)
        if cell.part in parts
    ]
    with TemporaryDirectory(prefix="meetpoint-papers-") as folder:
        with progress("running experiments", len(cells)) as step:
            for done in run_cells(spark, cells, ResultStore(folder)):
                step(1)
                if done.error is not None:
                    console.print(f"[red]{done.cell}: {done.error}; please report this.", highlight=False)
        with console.status("drawing …"):
            written = write_report(Path(folder), report, report / "claims.md")
    told = ", ".join(f"{count} {verdict}" for verdict, count in written.verdicts.items() if verdict != "not run")
    console.print(
        f"{len(cells)} cells of two experiments, each a task of Spark, one seed; of the claims that these decide: "
        f"{told}. `meetpoint experiment run all --quick` runs all.",
        highlight=False,
    )
    console.print(f"Open [bold]{written.page}[/] to see the figures.\n", highlight=False)
