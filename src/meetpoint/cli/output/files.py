"""Files that commands write: pairs, rejected rows and texts.

A file appears under its name only when it is complete: it is written beside it and moved into place at the end. On a
standard stream everything is JSON lines.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.cli.output.streams import json_text
from meetpoint.matching.io.events import format_of
from meetpoint.matching.io.rejects import STANDARD_STREAM, Reject, SourceError

__all__ = ["RejectFile", "TableFile", "refuse_overlap", "write_text"]

_FLUSH_ROWS = 1000


class TableFile:
    """Tables of one shape, appended to a file or to standard output."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._format = format_of(path)
        self._part = Path(f"{path}.part")
        self._stream: IO[str] | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._empty: pa.Table | None = None

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
        if self._path == STANDARD_STREAM:
            if error is None:
                sys.stdout.flush()
            return
        try:
            self._close(complete=error is None)
            if error is None:
                os.replace(self._part, self._path)
        finally:  # nothing half done stays, whatever went wrong
            self._part.unlink(missing_ok=True)

    def _close(self, *, complete: bool) -> None:
        try:
            if complete and self._parquet is None and self._empty is not None:
                self._write_parquet(self._empty)
            if self._parquet is not None:
                self._parquet.close()
            if self._stream is not None:
                self._stream.close()
        except (OSError, pa.ArrowException):
            if complete:  # else what went wrong before is what to tell
                raise

    def write(self, table: pa.Table) -> None:
        """Append a table; the first one sets the columns."""
        if self._format == "parquet":
            if table.num_rows:
                self._write_parquet(table)
            else:  # which does not always know its types
                self._empty = table
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
            raise SourceError(f"{self._path}: the values to be written are of different types; write .jsonl instead")
        self._parquet.write_table(table)


def _open_to_write(path: Path) -> IO[str]:
    target = path.with_suffix("")
    if target.is_dir():
        raise SourceError(f"{target}: is a directory; name a file that can be written")
    try:
        return path.open("w", encoding="utf-8", newline="")
    except KeyboardInterrupt:  # it may be there by then, and nobody has it yet who would take it away
        path.unlink(missing_ok=True)
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        said = (getattr(error, "strerror", None) or str(error)).lower()
        raise SourceError(f"{target}: {said}; name a file that can be written") from None


def _json_cells(column: pa.ChunkedArray) -> Iterator[str]:
    known: dict[object, str] = {}
    for value in column.to_pylist():
        text = known.get(value)
        if text is None:
            text = known[value] = json_text(value)
        yield text


class _LineBuffer:
    """A file object that keeps the last line that the csv module wrote."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text = text
        return len(text)


def _csv_line(cells: Sequence[object]) -> str:
    line = _LineBuffer()
    # It quotes the characters of its own line's end and no others: a lone carriage return must be quoted too.
    csv.writer(line, lineterminator="\r\n").writerow(["" if cell is None else cell for cell in cells])
    return line.text.removesuffix("\r\n") + "\n"


class RejectFile:
    """Rows that are set aside: all are counted and, if a file is named, written; the first is kept for a message."""

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
            try:
                if error is None:
                    self._flush()
            except BaseException as failed:
                self._file.__exit__(type(failed), failed, failed.__traceback__)
                raise
            self._file.__exit__(kind, error, trace)

    def add(self, reject: Reject) -> None:
        """Set a row aside."""
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
        """Return a message for the end, or None where no row was set aside."""
        if self.first is None:
            return None
        where = f"they are in {self._path}" if self._path else "name --rejects FILE to keep them"
        rows = "1 row was" if self.count == 1 else f"{self.count:,} rows were"
        return f"{rows} set aside; {where}. The first: {self.first.input}, row {self.first.row}: {self.first.reason}"


def refuse_overlap(outputs: Mapping[str, str | None], inputs: Mapping[str, object]) -> None:
    """Raise SourceError where an output is also an input, or two outputs are one file.

    Either would destroy data. Files are given by the options that name them; two uses of one standard stream are
    refused too.
    """
    given = {option: str(path) for option, path in inputs.items() if path is not None}
    read_twice = [option for option, path in given.items() if path == STANDARD_STREAM]
    if len(read_twice) > 1:
        raise SourceError(f"-: {' and '.join(read_twice)} are both standard input; name a file for one of them")
    written: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        for other, there in written.items():
            if _same(path, there):
                raise SourceError(f"{path}: {other} and {option} are the same; name another file for one of them")
        for other, there in given.items():
            if path != STANDARD_STREAM and (_same(path, there) or _same(f"{path}.part", there)):
                raise SourceError(f"{path}: {other} is read and written at once; name another output for {option}")
        written[option] = path


def _same(path: str, other: str) -> bool:
    if STANDARD_STREAM in (path, other):
        return path == other
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def write_text(path: str, text: str) -> None:
    """Write a small text to a file or to standard output."""
    if path == STANDARD_STREAM:
        sys.stdout.write(text)
        return
    part = Path(f"{path}.part")
    stream = _open_to_write(part)
    try:
        with stream:
            stream.write(text)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
