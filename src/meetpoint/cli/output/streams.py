"""Standard streams of commands: JSON for programs; lines, progress and reports for people; and exit codes.

Consoles leave a closed pipe to `app`, which documents the exit codes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from meetpoint.language.filters.lint import LintReport
    from meetpoint.matching.backtest import Backtest, Bucket

__all__ = [
    "EXIT_REFUSED",
    "EXIT_SET_ASIDE",
    "EXIT_STOPPED",
    "QuietConsole",
    "finish",
    "json_text",
    "lint_to_dict",
    "print_error",
    "print_json",
    "print_note",
    "progress",
    "show_backtest",
    "show_lint",
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


# -- reports -----------------------------------------------------------------------------------------------------------


FINDINGS_SHOWN = 20
TIMELINE_ROWS = 24
_BAR_WIDTH = 30


def lint_to_dict(report: LintReport) -> dict[str, Any]:
    """Return all of a report for JSON."""
    return {
        "filters": report.filters,
        "counts": {str(oddity): count for oddity, count in report.counts().items()},
        "cut_short": report.cut_short,
        "findings": [
            {"id": f.id, "oddity": str(f.oddity), "message": f.message, "other": f.other} for f in report.findings
        ],
    }


def show_lint(console: Console, report: LintReport) -> None:
    """Print the findings, the first of them in full."""
    from rich.markup import escape
    from rich.table import Table

    if report.findings:
        table = Table(box=None, pad_edge=False)
        for column in ("id", "oddity", "why"):
            table.add_column(column, overflow="fold")
        for finding in report.findings[:FINDINGS_SHOWN]:
            table.add_row(escape(str(finding.id)), str(finding.oddity), escape(finding.message))
        console.print(table)
        if len(report.findings) > FINDINGS_SHOWN:
            console.print(f"… and {len(report.findings) - FINDINGS_SHOWN:,} more; --json lists all", highlight=False)
    console.print(str(report), highlight=False)


def show_backtest(console: Console, result: Backtest) -> None:
    """Print hits, near misses, the timeline and samples."""
    from rich.markup import escape
    from rich.table import Table

    from meetpoint.language.schema.schema import show_value

    share = f"{result.rate:.3%}" if result.events else "no events"
    console.print(f"{result.hits:,} of {result.events:,} events accepted ({share})", highlight=False)
    if result.near_misses:
        console.print("near misses, accepted if only this constraint were dropped:")
        table = Table(box=None)
        table.add_column("events", justify="right")
        table.add_column("constraint")
        for text, count in result.near_misses.most_common():
            table.add_row(f"{count:,}", escape(text))
        console.print(table)
    if result.buckets:
        _show_timeline(console, result.timeline())
    if result.untimed:
        console.print(f"{result.untimed:,} events have no time", highlight=False)
    if result.samples:
        console.print("samples:")
        for sample in result.samples:
            shown = ", ".join(f"{k}={show_value(v)}" for k, v in sample.attributes.items() if v is not None)
            console.print(f"  row {sample.row}: {escape(shown)}", highlight=False)


def _show_timeline(console: Console, timeline: Sequence[Bucket]) -> None:
    """Print at most `TIMELINE_ROWS` rows, with several buckets in each where there are more."""
    from rich.table import Table

    step = -(-len(timeline) // TIMELINE_ROWS)
    groups = [timeline[at : at + step] for at in range(0, len(timeline), step)]
    most = max(sum(b.hits for b in group) for group in groups)
    console.print("over time:")
    table = Table(box=None)
    table.add_column("from")
    for column in ("events", "hits"):
        table.add_column(column, justify="right")
    table.add_column("")
    for group in groups:
        hits = sum(b.hits for b in group)
        bar = "█" * round(_BAR_WIDTH * hits / most) if most else ""
        start = group[0].start.strftime("%Y-%m-%d %H:%M")
        table.add_row(start, f"{sum(b.events for b in group):,}", f"{hits:,}", bar or ("▏" if hits else ""))
    console.print(table)
