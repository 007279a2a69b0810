"""Cells on Spark: each gives what it gives without, a run that is killed is taken up again, a bad cell is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.experiment import Cell, ResultRow, run_cell
from meetpoint.lab.experiments.grid import run_cells
from meetpoint.lab.experiments.store import ResultStore
from tests.cli.conftest import Command
from tests.cli.conftest import meetpoint as meetpoint
from tests.spark.cluster_job import rows_of, some_cells
from tests.spark.quick_java import quick_java
from tests.tiers import SOAK

EXPERIMENT, PART, SEEDS = "dmm", "covering", 12 if SOAK else 2
BEFORE = 3
SECONDS_MAX = 600.0


def run_here(cells: list[Cell]) -> list[list[Any]]:
    (experiment,) = named(EXPERIMENT)
    rows: list[ResultRow] = [row for cell in cells for row in run_cell(cell, experiment.part(cell.part).run)]
    return rows_of(rows)


def test_cells_give_what_they_give_without_spark(spark: Any, tmp_path: Path) -> None:
    cells, store = some_cells(), ResultStore(tmp_path / "new" / "results")
    done = list(run_cells(spark, cells, store))
    assert sorted(each.cell for each in done) == sorted(cells)
    assert [each.error for each in done] == [None] * len(cells)
    assert rows_of(store.read()) == run_here(cells)


def test_cells_that_are_done_are_not_run_again(spark: Any, tmp_path: Path) -> None:
    cells, store = some_cells(), ResultStore(tmp_path)
    first = list(run_cells(spark, cells[:2], store))
    marks = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    second = list(run_cells(spark, cells, store))
    assert sorted(each.cell for each in first + second) == sorted(cells)
    assert {path: path.stat().st_mtime_ns for path in marks} == marks
    assert list(run_cells(spark, cells, store)) == []


def test_a_cell_that_fails_takes_no_other_with_it_and_is_tried_again(spark: Any, tmp_path: Path) -> None:
    good, store = some_cells()[0], ResultStore(tmp_path)
    bad = [Cell.of("never", "x", {}, 1), Cell.of(EXPERIMENT, "never", {}, 1)]
    for _ in range(2):
        done = {each.cell: each.error for each in run_cells(spark, [*bad, good], store)}
        assert "there is none of this name" in str(done[bad[0]])
        assert "KeyError" in str(done[bad[1]])
        assert done.get(good) is None
    assert rows_of(store.read()) == run_here([good])


def test_no_jobs_are_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(MeetpointError, match="there is at least 1"):
        list(run_cells(spark, some_cells(), ResultStore(tmp_path), jobs=0))


STOPPING = """
import sys, threading
from meetpoint.cli import main
from meetpoint.lab.experiments.store import ResultStore

add, left = ResultStore.add, iter(range(int(sys.argv.pop(1))))

def stopping(store, cell, rows):
    if next(left, None) is None:
        threading.Event().wait()
    add(store, cell, rows)

ResultStore.add = stopping
main()
"""
"""The command, but it stands still once it has so many results: what it is killed at depends on no clock."""


def arguments(folder: Path) -> list[str]:
    return ["experiment", "run", EXPERIMENT, "--part", PART, "--quick", "--seeds", str(SEEDS), "--out", str(folder)]


def test_a_run_that_is_killed_goes_on_where_it_was(spark: Any, meetpoint: Command, tmp_path: Path) -> None:
    results = tmp_path / "results"
    java = ["--master", "local[2]", "--config", f"spark.driver.extraJavaOptions={quick_java()}"]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING, str(BEFORE), *arguments(results), *java],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=tmp_path,
    )
    try:
        until = time.monotonic() + SECONDS_MAX
        while len(list(results.glob("*.parquet"))) < BEFORE:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (experiment,) = named(EXPERIMENT)
    cells = [cell for cell in experiment.cells("quick", SEEDS) if cell.part == PART]
    again = meetpoint(*arguments(results), "--json")
    assert again.code == 0, again.err
    told = json.loads(again.out)
    assert told["done_before"] == BEFORE
    assert told["run"] == len(cells) - BEFORE
    assert rows_of(ResultStore(results).read()) == run_here(cells)
