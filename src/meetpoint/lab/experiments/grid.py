"""Cells of experiments on Spark: one cell a task, on as many cores as there are.

A job has one cell, or some very short ones of one part, and as many jobs run at a time as Spark has cores. So results
come as they are ready, a cell that fails takes no other with it, and a long one holds up no other. The rows of a cell
go to the driver, which writes them (`experiments.store`): workers need Meetpoint, and no folder in common. A run that
is stopped and started again continues: cells with results are not run again.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.experiment import Cell, ResultRow, run_cell
from meetpoint.lab.experiments.store import ResultStore
from meetpoint.spark.worker_files import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = pa.schema([("number", pa.int64()), ("rows", pa.binary()), ("error", pa.string())])
_COLUMNS = "number BIGINT, rows BINARY, error STRING"


JOB_S = 2.0
"""The duration that a job aims at, where cells are short."""
CELLS_MAX = 16
"""The most cells of a job; so many are run again at most where a run is killed."""


class CellDone(msgspec.Struct, frozen=True):
    """A cell that was run: its time, or why it has no results."""

    cell: Cell
    cpu_s: float = 0.0
    error: str | None = None


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at a time; 2 on Spark Connect, which does not tell."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect has several ways to say that there is none
        return 2


def run_cells(
    spark: SparkSession, cells: Iterable[Cell], store: ResultStore, jobs: int | None = None
) -> Iterator[CellDone]:
    """Run the cells without results in the store; yield each once its results are written."""
    if jobs is not None and jobs < 1:
        raise MeetpointError(f"experiments: {jobs} jobs at a time; there is at least 1")
    store.open()
    # Before Spark is asked for anything: a run that is complete must not start workers.
    left = [cell for cell in cells if not store.is_done(cell)]
    if not left:
        return
    check_workers(spark)
    queue = _CellQueue(left)
    most = jobs or cores_of(spark)
    with ThreadPoolExecutor(most, "cell") as pool:
        running: dict[Future[list[_CellOutcome]], list[Cell]] = {}
        try:
            while True:
                while len(running) < most and (some := queue.take()):
                    running[pool.submit(_on_spark, spark, some)] = some
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    for done in _written(running.pop(future), future, store):
                        queue.note(done)
                        yield done
        finally:
            for future in running:
                future.cancel()


class _CellQueue:
    """Waiting cells, in jobs of about `JOB_S`: a job of Spark takes a quarter of a second even if it does nothing."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._waiting = deque(cells)
        self._took: dict[tuple[str, str], float] = {}

    def take(self) -> list[Cell]:
        """Return the cells of the next job; an empty list at the end."""
        if not self._waiting:
            return []
        some = [self._waiting.popleft()]
        part = _part(some[0])
        most = min(CELLS_MAX, int(JOB_S / max(self._took.get(part, JOB_S), 0.01)))
        while len(some) < most and self._waiting and _part(self._waiting[0]) == part:
            some.append(self._waiting.popleft())
        return some

    def note(self, done: CellDone) -> None:
        """Remember the longest recent time of a cell of this part."""
        part = _part(done.cell)
        self._took[part] = max(done.cpu_s, 0.8 * self._took.get(part, 0.0))


def _part(cell: Cell) -> tuple[str, str]:
    return cell.experiment, cell.part


def _written(cells: Sequence[Cell], future: Future[list[_CellOutcome]], store: ResultStore) -> Iterator[CellDone]:
    try:
        told = future.result()
    except Exception as failure:  # of Spark: a worker that was killed, a cluster that is gone
        yield from (CellDone(cell, error=" ".join(str(failure).split())[:500]) for cell in cells)
        return
    for each in told:
        cell = cells[each.number]
        if each.error is None:
            store.add(cell, each.rows)
            yield CellDone(cell, each.rows[0].cpu_s if each.rows else 0.0)
        else:
            yield CellDone(cell, error=each.error)


class _CellOutcome(NamedTuple):
    """A task's result for the cell with a number."""

    number: int
    rows: list[ResultRow]
    error: str | None


def _on_spark(spark: Any, cells: Sequence[Cell]) -> list[_CellOutcome]:
    count = len(cells)
    found = spark.range(0, count, 1, count).mapInArrow(_CellTask(tuple(cells)), _COLUMNS).collect()
    return [
        _CellOutcome(row["number"], msgspec.msgpack.decode(row["rows"], type=list[ResultRow]), row["error"])
        for row in found
    ]


class _CellTask(msgspec.Struct, frozen=True):
    """The work of a Spark worker: run a cell, and return its rows or the reason why there are none."""

    cells: tuple[Cell, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self._run(number)

    def _run(self, number: int) -> pa.RecordBatch:
        cell, rows = self.cells[number], []
        error: str | None = None
        try:
            (experiment,) = named(cell.experiment)
            rows = list(run_cell(cell, experiment.part(cell.part).run))
        except Exception as failure:
            place = traceback.extract_tb(failure.__traceback__)[-1]
            told = " ".join(str(failure).split())[:400]
            error = f"{type(failure).__name__}: {told} (line {place.lineno} of {place.name})"
        return pa.record_batch([[number], [msgspec.msgpack.encode(rows)], [error]], schema=_SCHEMA)
