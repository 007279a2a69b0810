"""The commands, and what they have in common: exit codes, errors in one line, a pipe that may close.

0 is done, 1 is done with some input set aside, 2 is refused, 130 is stopped by Ctrl-C. Nothing here prints a stack
trace at a user's mistake.
"""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from meetpoint.cli.demo import tell
from meetpoint.errors import FilterError, MeetpointError

__all__ = ["app", "main"]

EXIT_REFUSED = 2
EXIT_STOPPED = 130

app = typer.Typer(
    name="meetpoint",
    help="Content-based publish/subscribe: say what you care about, get exactly the events that match.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Content-based publish/subscribe: say what you care about, get exactly the events that match."""


@app.command()
def demo(
    spark: bool = typer.Option(True, help="Ask Spark SQL for its answer too; it takes about 15 seconds to start."),
) -> None:
    """A short story: filters, events, who gets what, and a second opinion from Spark."""
    tell(Console(), with_spark=spark)


def main() -> None:
    """The entry point: run a command, turn a caller's mistake into one clear message and an exit code."""
    try:
        app()
    except FilterError as error:
        _complain(f"{error}\n{error.pointer()}")
        sys.exit(EXIT_REFUSED)
    except MeetpointError as error:
        _complain(str(error))
        sys.exit(EXIT_REFUSED)
    except KeyboardInterrupt:
        _complain("stopped")
        sys.exit(EXIT_STOPPED)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _complain(message: str) -> None:
    sys.stderr.write(f"meetpoint: {message}\n")
