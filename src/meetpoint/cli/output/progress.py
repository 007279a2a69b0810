"""How far a command has come, for whoever looks on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from meetpoint.cli.output.streams import QuietConsole

__all__ = ["progress"]

LINE_EVERY_S: Final = 60.0
"""How often a line is written where there is no terminal."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, elsewhere a line now and then; call what is given with the number of steps done since."""
    console = QuietConsole(stderr=True)
    if not console.is_terminal:
        yield _lines(what, total)
        return
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
    """For a log: how far it is, once a minute. What is done within one says nothing."""
    began = told = time.monotonic()
    done = 0

    def step(steps: int) -> None:
        nonlocal told, done
        done += steps
        now = time.monotonic()
        if now - told >= LINE_EVERY_S:
            told = now
            upto = "" if total is None else f" of {total:,}"
            with suppress(OSError):  # whoever closed standard error does not want to know
                sys.stderr.write(f"{what}: {done:,}{upto}, {(now - began) / 60:.0f} min\n")
                sys.stderr.flush()

    return step
