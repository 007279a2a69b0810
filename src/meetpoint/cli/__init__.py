"""The `meetpoint` command: a module for each group of subcommands, and their shared options and output."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command. Loading it takes a moment, and Ctrl-C may come within it."""
    try:
        from meetpoint.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("meetpoint: stopped\n")
        sys.exit(130)
    run()
