"""The commands, and what they have in common: exit codes, errors in one line, a pipe that may close.

0 is done, 1 is done with some input set aside or with a check that failed, 2 is refused, 130 is stopped by Ctrl-C.
Nothing here prints a stack trace at a user's mistake. Results go to standard output, everything else to standard error.

The lab's commands (`demo`, `sim`, …) are listed here and loaded when one of them is run: the product never imports the
lab.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from meetpoint.cli.credentials import ca_app, token_app
from meetpoint.cli.filters import backtest, explain, lint, match, schema_infer
from meetpoint.cli.network.admin import dead_app, schema_add, schema_show, store_app
from meetpoint.cli.network.events import pub, sub
from meetpoint.cli.network.servers import broker, gateway, leave
from meetpoint.cli.network.subscriptions import subs_app
from meetpoint.cli.network.top import top
from meetpoint.cli.network.up import up
from meetpoint.cli.network.why import why
from meetpoint.cli.output.streams import EXIT_REFUSED, EXIT_STOPPED, print_error
from meetpoint.cli.pipeline.commands import pipeline_app
from meetpoint.cli.pipeline.spark_command import spark_message
from meetpoint.errors import FilterError, MeetpointError, optional_imports

__all__ = ["LabGroup", "app", "main"]


_COMMANDS = ("demo", "sim", "experiment", "bench", "generate")
_MODULE = "meetpoint.lab.cli"


class LabGroup(TyperGroup):
    """The product's commands and, behind them, those of the lab."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in _COMMANDS:
            found = typer.main.get_group(import_module(_MODULE).app).get_command(ctx, cmd_name)
        return found


# Typer brings its own copy of click and does not name this class: the parent of BadParameter, whoever defines it.
_UsageError: Any = typer.BadParameter.__mro__[1]

_BROKERS = "Brokers"

app = typer.Typer(
    name="meetpoint",
    cls=LabGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
schema_app = typer.Typer(no_args_is_help=True, help="Schemas: what attributes events have.")
schema_app.command("show")(schema_show)
schema_app.command("add")(schema_add)
schema_app.command("infer")(schema_infer)
app.add_typer(schema_app, name="schema")
app.add_typer(pipeline_app, name="pipeline")
for command in (up, broker, leave, gateway, sub, pub, top, why):
    app.command(rich_help_panel=_BROKERS)(command)
app.add_typer(subs_app, name="subs", rich_help_panel=_BROKERS)
app.add_typer(dead_app, name="dead", rich_help_panel=_BROKERS)
app.add_typer(store_app, name="store", rich_help_panel=_BROKERS)
app.add_typer(ca_app, name="ca", rich_help_panel=_BROKERS)
app.add_typer(token_app, name="token", rich_help_panel=_BROKERS)
for command in (match, explain, lint, backtest):
    app.command()(command)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Content-based publish/subscribe: say what you care about, get exactly the events that match."""
    if version:
        import meetpoint

        sys.stdout.write(f"meetpoint {meetpoint.__version__}\n")
        raise typer.Exit


def main() -> None:
    """Run a command; turn a caller's mistake into one clear message and an exit code."""
    code = _run()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # it has been told; the interpreter must not find it again as it exits
        _discard_stdout()
    sys.exit(code)


def _run() -> int:
    """Invoke a command without Typer's own handling of errors, which has other exit codes for pipes and Ctrl-C."""
    try:
        with optional_imports():
            code = _invoke()
        sys.stdout.flush()  # here, so that what it raises is told like the rest
        return code
    except FilterError as error:
        print_error(f"{error}\n{error.pointer()}")
    except MeetpointError as error:
        print_error(str(error))
    except _UsageError as error:
        if message := error.format_message():  # without arguments it is the help that is shown
            print_error(f"{message} Try --help.")
    except (KeyboardInterrupt, typer.Abort):
        print_error("stopped")
        return EXIT_STOPPED
    except BrokenPipeError:  # the reader has seen enough
        _discard_stdout()
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # the same, met by the console that shows the help
            return 0
        raise
    except Exception as error:
        message = spark_message(error) or _system_error(error)
        if message is None:
            raise
        print_error(message)
    return EXIT_REFUSED


def _invoke() -> int:
    if "_MEETPOINT_COMPLETE" in os.environ:  # a shell asks what could follow
        app()
        return 0
    command = typer.main.get_command(app)
    try:
        with command.make_context("meetpoint", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as error:
        return int(error.exit_code)
    return 0


def _system_error(error: Exception) -> str | None:
    """Return the refusal of the operating system or a library in one line; None for a bug, whose trace is wanted."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return "the memory does not suffice; split the input, or use a machine with more"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{(error.strerror or text).lower()}; check the files that are read and written"
    if isinstance(error, OverflowError):
        return f"a number is too large: {text}; check the numbers and times of the input"
    if any(cls.__module__.startswith("pyarrow") for cls in type(error).__mro__):
        return f"the data cannot be handled: {text}; check the types of its columns"
    return None


def _discard_stdout() -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
