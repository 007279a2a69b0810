"""The lab's commands. `meetpoint.cli.app` lists their names and loads them from here."""

from __future__ import annotations

import typer

from meetpoint.lab.cli.bench import bench_app
from meetpoint.lab.cli.demo import demo
from meetpoint.lab.cli.experiments import experiment_app
from meetpoint.lab.cli.generate import generate
from meetpoint.lab.cli.simulate import sim

__all__ = ["app"]

_PANEL = "Lab"

app = typer.Typer()
for _command in (demo, sim, generate):
    app.command(rich_help_panel=_PANEL)(_command)
app.add_typer(experiment_app, name="experiment", rich_help_panel=_PANEL)
app.add_typer(bench_app, name="bench", rich_help_panel=_PANEL)
