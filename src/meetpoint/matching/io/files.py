"""Events from files: JSON lines, CSV and Parquet, by suffix; `-` is a standard stream of JSON lines.

Good rows come as batches, bad rows as `Reject`s with a reason, and the two together are all rows: nothing is lost
silently. A file that cannot be read at all is refused whole. Rows are numbered from 0 in the order of the file.

Where there is a schema, types are checked and bounds are not: a value out of bounds is an event like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.errors import EventError
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value, clean_attributes
from meetpoint.matching.io.csv import csv_batches
from meetpoint.matching.io.rejects import STANDARD_STREAM, Rejected, SourceError, open_source, refuse_packed, reject
from meetpoint.matching.tables.arrow_columns import check_arrow_kinds
from meetpoint.matching.tables.column_match import BATCH_ROWS, Batch, Columns

__all__ = ["clean_rows", "format_of", "json_rows", "open_parquet", "parquet_batches", "read_events"]

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def format_of(path: str) -> str:
    """jsonl, csv or parquet, by the suffix of a path."""
    if path == STANDARD_STREAM:
        return "jsonl"
    found = SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise SourceError(f"{path}: the suffix says no format; name the file .jsonl, .csv or .parquet")
    return found


def read_events(path: str, rejected: Rejected, schema: Schema | None = None) -> Iterator[Batch]:
    """The events of a file in batches."""
    match format_of(path):
        case "jsonl":
            return _json_batches(path, rejected, schema)
        case "csv":
            return csv_batches(path, rejected, schema)
        case _:
            return _parquet_batches(path, schema)


def clean_rows(batches: Iterable[Batch]) -> Iterator[dict[str, Value]]:
    """The events of batches as clean attributes."""
    for batch in batches:
        yield from map(clean_attributes, batch.columns.rows())


# -- JSON lines --------------------------------------------------------------------------------------------------------


def _lines(path: str) -> Iterator[tuple[int, int, bytes]]:
    """(row number, line number, line) for every line that holds something."""
    with open_source(path) as stream:
        row = 0
        for line_number, line in enumerate(stream, 1):
            if line_number == 1:
                refuse_packed(path, line)
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip():
                yield row, line_number, line.rstrip(b"\r\n")
                row += 1


def json_rows(
    path: str, what: str, rejected: Rejected, schema: Schema | None
) -> Iterator[tuple[int, dict[str, Value]]]:
    """The objects of a file of JSON lines with the numbers of their rows."""
    for row, line_number, line in _lines(path):
        try:
            yield row, attributes_from_json(line, schema)
        except EventError as error:
            said = str(error).removeprefix("event, line 1, ").removeprefix("event: ")
            rejected(reject(what, row, f"line {line_number}, {said}", line.decode("utf-8", "replace")))


def _json_batches(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[Batch]:
    rows = json_rows(path, "events", rejected, schema)
    while chunk := list(islice(rows, BATCH_ROWS)):
        columns = Columns.of_rows([attributes for _, attributes in chunk])
        yield Batch([number for number, _ in chunk], columns)


# -- Parquet -----------------------------------------------------------------------------------------------------------


def open_parquet(path: str) -> pq.ParquetFile:
    """A Parquet file; SourceError where it is none."""
    with open_source(path):  # whose error says what is wrong with the path
        pass
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: not a Parquet file: {_first_line(error)}; write it anew") from None


def parquet_batches(path: str, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The batches of a file; SourceError where it is damaged further in."""
    try:
        yield from file.iter_batches(batch_size=BATCH_ROWS)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: cannot be read: {_first_line(error)}; write it anew") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _parquet_batches(path: str, schema: Schema | None) -> Iterator[Batch]:
    file = open_parquet(path)
    check_arrow_kinds(file.schema_arrow, schema)
    first = 0
    for batch in parquet_batches(path, file):
        yield Batch(range(first, first + batch.num_rows), Columns.of_batch(batch))
        first += batch.num_rows
