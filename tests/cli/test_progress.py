"""Progress lines of long work without a terminal."""

from __future__ import annotations

import itertools
import sys

import pytest

from meetpoint.cli.output.streams import progress


def test_a_log_has_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count(0.0, 20.0)  # each step takes twenty seconds
    monkeypatch.setattr("meetpoint.cli.output.streams.time.monotonic", lambda: next(clock))
    with progress("running all", 9_000) as step:
        for _ in range(7):
            step(1_000)
    assert capsys.readouterr() == ("", "running all: 3,000 of 9,000, 1 min\nrunning all: 6,000 of 9,000, 2 min\n")
    with progress("reading") as step:
        for _ in range(3):
            step(5)
    assert capsys.readouterr().err == "reading: 15, 1 min\n"


def test_what_is_done_soon_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 100) as step:
        step(100)
    assert capsys.readouterr() == ("", "")


def test_nobody_who_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stderr", Closed())
    monkeypatch.setattr("meetpoint.cli.output.streams.LINE_EVERY_S", 0.0)
    with progress("reading", 2) as step:
        step(1)
        step(1)
