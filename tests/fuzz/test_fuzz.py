"""A short, fixed run of each fuzzing target, in a process of its own; and that a target which fails is found out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.tiers import SOAK

RUNS = 100_000 if SOAK else 5_000
TIMEOUT_S = 120
"""For one input: long, since the machine may be busy with other tests. `make fuzz` looks for slow ones."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_fixed_number_of_runs_finds_nothing(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="it is made for CPython on Linux only")
    options = ["--runs", str(RUNS), "--timeout", str(TIMEOUT_S), "--keep", str(tmp_path)]
    command = [sys.executable, "-m", "tests.fuzz", target, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S + RUNS / 100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Done {RUNS} in" in done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_run_begins_with_holds(target: str) -> None:
    for seed in TARGETS[target].seeds:
        TARGETS[target].check(seed)


BROKEN = """
import atheris, sys
def check(data):
    assert len(data) < 8
atheris.Setup([sys.argv[0], "-atheris_runs=100000", "-seed=1", f"-artifact_prefix={sys.argv[1]}/"], check)
atheris.Fuzz()
"""


def test_a_target_that_fails_is_found_out(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="it is made for CPython on Linux only")
    command = [sys.executable, "-c", BROKEN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert [len(path.read_bytes()) >= 8 for path in tmp_path.iterdir()] == [True]
