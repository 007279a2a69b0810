"""Standard streams of commands: JSON for programs, lines and progress for people, and exit codes.

Consoles leave a closed pipe to `app`, which documents the exit codes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

import typer
from rich.console import Console

__all__ = [
    "EXIT_REFUSED",
    "EXIT_SET_ASIDE",
    "EXIT_STOPPED",
    "QuietConsole",
    "finish",
    "json_text",
    "print_error",
    "print_json",
    "print_note",
    "progress",
]


EXIT_SET_ASIDE = 1
EXIT_REFUSED = 2
EXIT_STOPPED = 130


class QuietConsole(Console):
    """A console that raises BrokenPipeError when its reader goes away, instead of exiting with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def print_error(message: str) -> None:
    """Print an error or a warning on standard error."""
    with suppress(OSError):  # whoever closed standard error does not want to know
        sys.stderr.write(f"meetpoint: {message}\n")
        sys.stderr.flush()


def print_note(message: str) -> None:
    """Print a note on standard error, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{message}\n")


def finish(set_aside_summary: str | None) -> None:
    """End a command; with its own exit code where something was set aside."""
    if set_aside_summary is not None:
        print_error(set_aside_summary)
        raise typer.Exit(EXIT_SET_ASIDE)


def print_json(value: Any) -> None:
    """Print one object for a program."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """Return one line of JSON; NaN and the infinities, which JSON does not have, become strings."""
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


# -- progress ----------------------------------------------------------------------------------------------------------


LINE_EVERY_S: Final = 60.0
"""The interval of progress lines where there is no terminal."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, else a line now and then; call the result with steps done since."""
    console = QuietConsole(stderr=True)
    if not console.is_terminal:
        yield _lines(what, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)


def _lines(what: str, total: int | None) -> Callable[[int], None]:
    """Return a step function that prints a line a minute, for a log; shorter work prints nothing."""
    began = reported_at = time.monotonic()
    done = 0

    def step(steps: int) -> None:
        nonlocal reported_at, done
        done += steps
        now = time.monotonic()
        if now - reported_at >= LINE_EVERY_S:
            reported_at = now
            upto = "" if total is None else f" of {total:,}"
            with suppress(OSError):  # whoever closed standard error does not want to know
                sys.stderr.write(f"{what}: {done:,}{upto}, {(now - began) / 60:.0f} min\n")
                sys.stderr.flush()

    return step
