"""The commands of `meetpoint.lab`, which the product does not import: they are loaded when someone asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["WithLab"]

_COMMANDS = ("demo", "sim", "experiment", "bench", "generate")
_MODULE = "meetpoint.lab.cli"


class WithLab(TyperGroup):
    """The product's commands and, behind them, those of the lab."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in _COMMANDS:
            found = typer.main.get_group(import_module(_MODULE).app).get_command(ctx, cmd_name)
        return found
