"""Events as batches: from files, Arrow tables and batches, pandas frames and rows.

Files are JSON lines, CSV or Parquet, by suffix; `-` is a standard stream of JSON lines. Good rows come as batches, bad
rows as `Reject`s with a reason, and the two together are all rows: nothing is lost silently. A file that cannot be read
at all is refused whole. Rows are numbered from 0 in the order of the file.

If there is a schema, types are checked and bounds are not: a value out of bounds is an event like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.errors import EventError
from meetpoint.language.events.arrow import attributes_from_pandas
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.names import show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree, with_article
from meetpoint.language.values import Value, clean_attributes
from meetpoint.matching.io.csv import csv_batches
from meetpoint.matching.io.rejects import STANDARD_STREAM, Rejected, SourceError, open_source, refuse_packed, reject
from meetpoint.matching.tables.arrow_columns import check_arrow_kinds
from meetpoint.matching.tables.columns import BATCH_ROWS, ColumnBatch, Columns

__all__ = [
    "Events",
    "clean_rows",
    "format_of",
    "json_rows",
    "load_events",
    "open_parquet",
    "parquet_batches",
    "read_events",
]


SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def format_of(path: str) -> str:
    """Return jsonl, csv or parquet, by the suffix of a path."""
    if path == STANDARD_STREAM:
        return "jsonl"
    found = SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise SourceError(f"{path}: the suffix says no format; name the file .jsonl, .csv or .parquet")
    return found


def read_events(path: str, rejected: Rejected, schema: Schema | None = None) -> Iterator[ColumnBatch]:
    """Return the events of a file in batches."""
    match format_of(path):
        case "jsonl":
            return _json_batches(path, rejected, schema)
        case "csv":
            return csv_batches(path, rejected, schema)
        case _:
            return _parquet_batches(path, schema)


def clean_rows(batches: Iterable[ColumnBatch]) -> Iterator[dict[str, Value]]:
    """Yield the events of batches as clean attributes."""
    for batch in batches:
        yield from map(clean_attributes, batch.columns.rows())


# -- JSON lines --------------------------------------------------------------------------------------------------------


def _lines(path: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield (row number, line number, line) for every line that holds something."""
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
    """Yield the objects of a file of JSON lines with the numbers of their rows."""
    for row, line_number, line in _lines(path):
        try:
            yield row, attributes_from_json(line, schema)
        except EventError as error:
            said = str(error).removeprefix("event, line 1, ").removeprefix("event: ")
            rejected(reject(what, row, f"line {line_number}, {said}", line.decode("utf-8", "replace")))


def _json_batches(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[ColumnBatch]:
    rows = json_rows(path, "events", rejected, schema)
    while chunk := list(islice(rows, BATCH_ROWS)):
        columns = Columns.of_rows([attributes for _, attributes in chunk])
        yield ColumnBatch([number for number, _ in chunk], columns)


# -- Parquet -----------------------------------------------------------------------------------------------------------


def open_parquet(path: str) -> pq.ParquetFile:
    """Return a Parquet file; SourceError if it is none."""
    with open_source(path):  # whose error says what is wrong with the path
        pass
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: not a Parquet file: {_first_line(error)}; write it anew") from None


def parquet_batches(path: str, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file; SourceError if it is damaged further in."""
    try:
        yield from file.iter_batches(batch_size=BATCH_ROWS)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: cannot be read: {_first_line(error)}; write it anew") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _parquet_batches(path: str, schema: Schema | None) -> Iterator[ColumnBatch]:
    file = open_parquet(path)
    check_arrow_kinds(file.schema_arrow, schema)
    first = 0
    for batch in parquet_batches(path, file):
        yield ColumnBatch(range(first, first + batch.num_rows), Columns.of_batch(batch))
        first += batch.num_rows


Events: TypeAlias = (
    "str | PathLike[str] | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[Event | Mapping[str, object]]"
    " | Any"
)
"""A path, an Arrow table, batch, list of batches or reader, a pandas frame, or rows."""


def load_events(events: Events, rejected: Rejected, schema: Schema | None) -> Iterator[ColumnBatch]:
    """Return events as batches; with a schema, values are of the types that it says."""
    if isinstance(events, str | PathLike):
        return read_events(fspath(events), rejected, schema)
    if isinstance(events, pa.Table):
        return _arrow_batches(events.to_batches(max_chunksize=BATCH_ROWS), schema)
    if isinstance(events, pa.RecordBatch):
        return _arrow_batches([events], schema)
    if isinstance(events, pa.RecordBatchReader):
        return _arrow_batches(events, schema)
    if hasattr(events, "iloc") and hasattr(events, "columns"):
        return _frame_batches(events, schema)
    if isinstance(events, Mapping | Event):
        raise EventError(f"events: given a single {type(events).__name__}; put it in a list: [event]")
    if isinstance(events, bytes) or not isinstance(events, Iterable):
        given = "None" if events is None else f"an object of class {type(events).__name__}"
        raise EventError(f"events: given {given}; give a path, a table, a frame, or rows")
    rows = iter(events)
    first = list(_first(rows))  # it tells whether they are batches, and `chain` puts it back
    if first and isinstance(first[0], pa.RecordBatch):
        return _arrow_batches(chain(first, rows), schema)
    return _row_batches(chain(first, rows), rejected, schema)


def _first(rows: Iterator[Any]) -> Iterator[Any]:
    for row in rows:
        yield row
        return


def _arrow_batches(batches: Iterable[Any], schema: Schema | None) -> Iterator[ColumnBatch]:
    first = 0
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise EventError(f"events: a {type(batch).__name__} among record batches; give batches only")
        check_arrow_kinds(batch.schema, schema)
        yield ColumnBatch(range(first, first + batch.num_rows), Columns.of_batch(batch))
        first += batch.num_rows


def _frame_batches(frame: Any, schema: Schema | None) -> Iterator[ColumnBatch]:
    rows = attributes_from_pandas(frame)
    if schema is not None:
        try:
            rows = [_typed(row, schema.tree, ()) for row in rows]
        except EventError as error:
            said = str(error).removeprefix("event: ")
            raise EventError(f"events: {said}; convert the column, or change the schema") from None
    for at in range(0, len(rows), BATCH_ROWS):
        some = rows[at : at + BATCH_ROWS]
        yield ColumnBatch(range(at, at + len(some)), Columns.of_rows(some))


def _row_batches(events: Iterable[Any], rejected: Rejected, schema: Schema | None) -> Iterator[ColumnBatch]:
    rows: list[Any] = []
    numbers: list[int] = []
    for number, event in enumerate(events):
        try:
            attributes = _attributes(event)
            rows.append(attributes if schema is None else _typed(attributes, schema.tree, ()))
            numbers.append(number)
        except EventError as error:
            rejected(reject("events", number, str(error), event))
        if len(rows) == BATCH_ROWS:
            yield ColumnBatch(numbers, Columns.of_rows(rows))
            rows, numbers = [], []
    if rows:
        yield ColumnBatch(numbers, Columns.of_rows(rows))


def _attributes(event: object) -> Mapping[str, Value]:
    if isinstance(event, Event):
        return event.attributes
    if not isinstance(event, Mapping):
        raise EventError(f"event: the row is of class {type(event).__name__}; give a dict of attributes or an Event")
    return clean_attributes(event)


def _typed(attributes: Mapping[str, Value], tree: SchemaTree, path: tuple[str, ...]) -> dict[str, Value]:
    """Return the attributes in the schema's types; bounds are not checked, undeclared attributes stay as they are."""
    out: dict[str, Value] = {}
    for name, value in attributes.items():
        declared = tree.get(name)
        here = (*path, name)
        if declared is None or value is None:
            out[name] = value
        elif isinstance(declared, Attribute):
            if isinstance(value, Mapping):
                raise EventError(f"event: attribute {show_name(here)} is an object; send {with_article(declared.type)}")
            try:
                out[name] = declared.widen(value)
            except ValueError as error:
                raise EventError(f"event: attribute {show_name(here)} {error}") from None
        elif isinstance(value, Mapping):
            out[name] = _typed(value, declared, here)
        else:
            raise EventError(f"event: attribute {show_name(here)} is not an object; send an object")
    return out
