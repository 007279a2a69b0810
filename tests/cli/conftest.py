"""The command in this process, with its streams and arguments, as the entry point runs it."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import typer

from meetpoint.cli import app as cli

assembled = functools.cache(typer.main.get_command)
"""Typer assembles all commands again at each call, which takes longer than most of them run."""


class Ran(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def meetpoint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `meetpoint ARGUMENTS...`; `stdin` is what it reads."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(typer.main, "get_command", assembled)
        monkeypatch.setattr(sys, "argv", ["meetpoint", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli._run()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)

    return run
