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
from meetpoint.experiments.catalog import named
from meetpoint.experiments.cells import Cell, Row, run_cell
from meetpoint.experiments.store import ResultStore
from meetpoint.spark.grid import run_cells
from tests.spark.cluster_job import rows_of, some_cells

EXPERIMENT, PART, SEEDS = "dmm", "covering", 12
SECONDS_MAX = 240.0


def run_here(cells: list[Cell]) -> list[list[Any]]:
    (experiment,) = named(EXPERIMENT)
    rows: list[Row] = [row for cell in cells for row in run_cell(cell, experiment.part(cell.part).run)]
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


def command(folder: Path) -> list[str]:
    quick = ["--part", PART, "--quick", "--seeds", str(SEEDS), "--out", str(folder), "--json", "--master", "local[2]"]
    return [sys.executable, "-m", "meetpoint.cli", "experiment", "run", EXPERIMENT, *quick]


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    results = tmp_path / "results"
    process = subprocess.Popen(
        command(results), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=tmp_path
    )
    try:
        until = time.monotonic() + SECONDS_MAX
        while len(list(results.glob("*.parquet"))) < 3:
            assert process.poll() is None, "it was done before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    there = len(list(results.glob("*.parquet")))
    (experiment,) = named(EXPERIMENT)
    cells = [cell for cell in experiment.cells("quick", SEEDS) if cell.part == PART]
    assert 3 <= there < len(cells)
    again = subprocess.run(command(results), capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert told["done_before"] == there
    assert told["run"] == len(cells) - there
    assert rows_of(ResultStore(results).read()) == run_here(cells)
