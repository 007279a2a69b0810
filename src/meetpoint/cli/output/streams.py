"""What goes to standard streams: JSON that every reader takes, lines for people, and how a command ends.

Consoles leave a closed pipe to `app`, which documents the exit codes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import typer
from rich.console import Console

__all__ = [
    "EXIT_REFUSED",
    "EXIT_SET_ASIDE",
    "EXIT_STOPPED",
    "QuietConsole",
    "complain",
    "finish",
    "json_text",
    "print_json",
    "tell",
]

EXIT_SET_ASIDE = 1
EXIT_REFUSED = 2
EXIT_STOPPED = 130


class QuietConsole(Console):
    """A console for which a reader that goes away is a BrokenPipeError, as elsewhere, not an exit with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def complain(message: str) -> None:
    """What went wrong, on standard error."""
    with suppress(OSError):  # whoever closed standard error does not want to know
        sys.stderr.write(f"meetpoint: {message}\n")
        sys.stderr.flush()


def tell(message: str) -> None:
    """Something good to know for a person who looks on."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{message}\n")


def finish(set_aside_summary: str | None) -> None:
    """End a command; with its own exit code where something was set aside."""
    if set_aside_summary is not None:
        complain(set_aside_summary)
        raise typer.Exit(EXIT_SET_ASIDE)


def print_json(value: Any) -> None:
    """One object for a program to read."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """One line of JSON; NaN and the infinities, which JSON does not have, are strings."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(below) for below in value]
    return value
