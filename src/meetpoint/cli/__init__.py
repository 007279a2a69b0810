"""The `meetpoint` command: one module for each group of subcommands, and what they share."""

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point. Loading the commands takes a moment, and Ctrl-C may come within it."""
    try:
        from meetpoint.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("meetpoint: stopped\n")
        sys.exit(130)
    run()
