"""The `meetpoint` command."""

from meetpoint.cli.app import main

__all__ = ["main"]
