"""What the commands write: pairs, rows set aside, and lines for people.

A file appears under its name only when it is complete: it is written beside it and moved into place at the end. On a
standard stream everything is JSON lines.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from meetpoint.matching.sources import STANDARD_STREAM, Reject, SourceError, format_of

__all__ = ["RejectFile", "TableFile", "progress", "refuse_same_file", "write_text"]

_FLUSH_ROWS = 1000


class TableFile:
    """Tables of one shape, appended to a file or to standard output."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._format = format_of(path)
        self._part = Path(f"{path}.part")
        self._stream: IO[str] | None = None
        self._parquet: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        if self._path == STANDARD_STREAM:
            self._stream = sys.stdout
        elif self._format != "parquet":
            self._stream = _open_to_write(self._part)
        else:
            _open_to_write(self._part).close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._parquet is not None:
            self._parquet.close()
        if self._path == STANDARD_STREAM:
            sys.stdout.flush()
            return
        if self._stream is not None:
            self._stream.close()
        if error is None:
            os.replace(self._part, self._path)
        else:
            self._part.unlink(missing_ok=True)

    def write(self, table: pa.Table) -> None:
        """Append a table; the first one sets the columns."""
        if self._format == "parquet":
            self._write_parquet(table)
            return
        assert self._stream is not None
        if self._format == "csv":
            if self._stream.tell() == 0:
                self._stream.write(_csv_line(table.column_names))
            self._stream.writelines(map(_csv_line, zip(*(column.to_pylist() for column in table.columns), strict=True)))
            return
        names = [json.dumps(name) for name in table.column_names]
        cells = [_json_cells(column) for column in table.columns]
        for row in zip(*cells, strict=True):
            self._stream.write("{" + ", ".join(f"{n}: {c}" for n, c in zip(names, row, strict=True)) + "}\n")

    def _write_parquet(self, table: pa.Table) -> None:
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._part, table.schema)
        elif table.schema != self._parquet.schema:
            try:
                table = table.cast(self._parquet.schema)
            except (pa.ArrowInvalid, ValueError):
                raise SourceError(
                    f"{self._path}: the values to be written are of different types; write .jsonl instead"
                ) from None
        self._parquet.write_table(table)


def _open_to_write(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        said = (error.strerror or type(error).__name__).lower()
        raise SourceError(f"{path.with_suffix('')}: {said}; name a file that can be written") from None


def _json_cells(column: pa.ChunkedArray) -> Iterator[str]:
    known: dict[object, str] = {}
    for value in column.to_pylist():
        text = known.get(value)
        if text is None:
            text = known[value] = json.dumps(value, default=str, ensure_ascii=False)
        yield text


class _Line:
    """A file to which the csv module writes, and from which a line is taken."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text = text
        return len(text)


def _csv_line(cells: Sequence[object]) -> str:
    line = _Line()
    csv.writer(line, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return line.text


class RejectFile:
    """Rows that are set aside: counted, the first kept for a message, all of them written if a file is named."""

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else TableFile(path)
        self._pending: list[Reject] = []
        self._path = path
        self.count = 0
        self.first: Reject | None = None

    def __enter__(self) -> Self:
        if self._file is not None:
            self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            if error is None:
                self._flush()
            self._file.__exit__(kind, error, trace)

    def add(self, reject: Reject) -> None:
        """Set one row aside."""
        self.count += 1
        if self.first is None:
            self.first = reject
        if self._file is not None:
            self._pending.append(reject)
            if len(self._pending) >= _FLUSH_ROWS:
                self._flush()

    def _flush(self) -> None:
        assert self._file is not None
        columns: dict[str, Any] = {
            "input": pa.array([r.input for r in self._pending], pa.string()),
            "row": pa.array([r.row for r in self._pending], pa.int64()),
            "reason": pa.array([r.reason for r in self._pending], pa.string()),
            "raw": pa.array([r.raw for r in self._pending], pa.string()),
        }
        self._file.write(pa.table(columns))
        self._pending = []

    def summary(self) -> str | None:
        """What to say at the end, if anything was set aside."""
        if self.first is None:
            return None
        where = f"they are in {self._path}" if self._path else "name --rejects FILE to keep them"
        rows = "1 row was" if self.count == 1 else f"{self.count:,} rows were"
        return f"{rows} set aside; {where}. The first: {self.first.input}, row {self.first.row}: {self.first.reason}"


def refuse_same_file(out: str | None, *inputs: str) -> None:
    """An output that is also an input would destroy it."""
    if out is None or out == STANDARD_STREAM:
        return
    for path in inputs:
        if path != STANDARD_STREAM and os.path.exists(path) and os.path.exists(out) and os.path.samefile(path, out):
            raise SourceError(f"{out}: the file is read and written at once; name another output")


def write_text(path: str, text: str) -> None:
    """A small text to a file or to standard output."""
    if path == STANDARD_STREAM:
        sys.stdout.write(text)
        return
    part = Path(f"{path}.part")
    with _open_to_write(part) as stream:
        stream.write(text)
    os.replace(part, path)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing in a pipe; call what is given with the number of steps done since."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda steps: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
