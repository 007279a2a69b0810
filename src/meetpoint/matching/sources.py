"""Events and subscriptions from files: JSON lines, CSV and Parquet, by suffix; `-` is a standard stream of JSON lines.

Good rows come as batches, bad rows as `Reject`s with a reason, and the two together are all rows: nothing is lost
silently. A file that cannot be read at all is refused whole. Rows are numbered from 0 in the order of the file.

CSV has no types. With a schema each field is read as its attribute's type; without one a column is integer, float,
boolean or timestamp if all its fields are, else string. An empty field is NULL, and so is NA or NaN in a column that is
not of strings.
"""

from __future__ import annotations

import csv as plain_csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from meetpoint.errors import EventError, FilterError, MeetpointError
from meetpoint.language.event_json import attributes_from_json
from meetpoint.language.filters import Filter, FilterParser
from meetpoint.language.schema import Schema
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.language.values import Type, Value, clean_attributes
from meetpoint.matching.columns import Columns

__all__ = ["Batch", "Reject", "SourceError", "Subscriber", "read_events", "read_subscriptions"]

BATCH_ROWS = 65_536
RAW_MAX = 1000
"""Characters of a rejected row that are kept."""
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
STANDARD_STREAM = "-"

_NULLS = frozenset({"", "NA", "NaN", "nan", "NULL", "null", "None", "N/A"})


class SourceError(MeetpointError):
    """A file that cannot be read at all."""


class Reject(msgspec.Struct, frozen=True):
    """A row set aside: of which input, its number, why, and what it looked like."""

    input: str
    row: int
    reason: str
    raw: str


Rejected: TypeAlias = Callable[[Reject], None]


class Batch(msgspec.Struct, frozen=True):
    """Some events: the numbers of their rows, and their columns."""

    rows: Sequence[int]
    columns: Columns


class Subscriber(msgspec.Struct, frozen=True):
    """A subscription that was read: its id, its filter, and whose it is if the file says so."""

    id: Any
    filter: Filter
    subscriber: Any = None


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
            return _csv_batches(path, rejected, schema)
        case _:
            return _parquet_batches(path)


def clean_rows(batches: Iterable[Batch]) -> Iterator[dict[str, Value]]:
    """The events of batches as clean attributes."""
    for batch in batches:
        yield from map(clean_attributes, batch.columns.rows())


# -- JSON lines --------------------------------------------------------------------------------------------------------


def _open(path: str) -> IO[bytes]:
    if path == STANDARD_STREAM:
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except OSError as error:
        raise SourceError(f"{path}: {_said(error)}; check the path") from None


def _said(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _lines(path: str) -> Iterator[tuple[int, int, bytes]]:
    """(row number, line number, line) for every line that holds something."""
    with _open(path) as stream:
        row = 0
        for line_number, line in enumerate(stream, 1):
            if line.strip():
                yield row, line_number, line.rstrip(b"\r\n")
                row += 1


def _json_rows(
    path: str, what: str, rejected: Rejected, schema: Schema | None
) -> Iterator[tuple[int, dict[str, Value]]]:
    for row, line_number, line in _lines(path):
        try:
            yield row, attributes_from_json(line, schema)
        except EventError as error:
            raw = line.decode("utf-8", "replace")
            said = str(error).removeprefix("event, line 1, ").removeprefix("event: ")
            rejected(Reject(what, row, f"line {line_number}, {said}", raw[:RAW_MAX]))


def _json_batches(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[Batch]:
    rows = _json_rows(path, "events", rejected, schema)
    while chunk := list(islice(rows, BATCH_ROWS)):
        columns = Columns.of_rows([attributes for _, attributes in chunk])
        yield Batch([number for number, _ in chunk], columns)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def _read_csv(path: str, what: str, rejected: Rejected) -> tuple[pa.Table, list[int]]:
    """The whole file as strings, and the row number of each row; rows of the wrong length are set aside."""
    wrong: list[int] = []

    def on_invalid(row: Any) -> str:
        number = row.number - 2 if row.number is not None else -1  # counted from 1, the header included
        wrong.append(number)
        reason = f"line {number + 2}: {row.actual_columns} fields where the header has {row.expected_columns}"
        rejected(Reject(what, number, reason, str(row.text)[:RAW_MAX]))
        return "skip"

    with _open(path) as stream:
        data = stream.read()
    if not data.strip():
        raise SourceError(f"{path}: the file is empty; a CSV file begins with a line of column names")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{path}: line {line} is not UTF-8; convert the file") from None
    header = next(plain_csv.reader(io.StringIO(text, newline="")))
    for name in header:
        if header.count(name) > 1:
            raise SourceError(f"{path}: column {name} occurs twice in the header; rename one of them")
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=on_invalid),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False),
    )
    skipped = set(wrong)
    numbers = [n for n in range(table.num_rows + len(wrong)) if n not in skipped]
    return table, numbers


def _csv_batches(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[Batch]:
    table, numbers = _read_csv(path, "events", rejected)
    if schema is None:
        typed = pa.table({name: _infer(table.column(name)) for name in table.column_names})
        first = 0
        for batch in typed.to_batches(max_chunksize=BATCH_ROWS):
            yield Batch(numbers[first : first + batch.num_rows], Columns.of_batch(batch))
            first += batch.num_rows
        return
    header = table.column_names
    good: list[dict[str, Value]] = []
    good_numbers: list[int] = []
    for number, fields in zip(numbers, zip(*(table.column(n).to_pylist() for n in header), strict=True), strict=True):
        try:
            good.append(_read_fields(dict(zip(header, fields, strict=True)), schema))
            good_numbers.append(number)
        except EventError as error:
            rejected(Reject("events", number, f"line {number + 2}: {error}", ",".join(fields)[:RAW_MAX]))
        if len(good) == BATCH_ROWS:
            yield Batch(good_numbers, Columns.of_rows(good))
            good, good_numbers = [], []
    if good:
        yield Batch(good_numbers, Columns.of_rows(good))


_INTEGER = r"^-?[0-9]{1,18}$"
_FLOAT = r"^-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?$"


def _infer(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of strings as the narrowest type that holds all its fields."""
    filled = pc.if_else(pc.is_in(column, pa.array(sorted(_NULLS))), pa.scalar(None, pa.string()), column)
    present = filled.drop_null()
    if len(present):
        for pattern, type_ in ((_INTEGER, pa.int64()), (_FLOAT, pa.float64()), ("^(?:true|false)$", pa.bool_())):
            if pc.all(pc.match_substring_regex(present, pattern)).as_py():
                return pc.cast(filled, type_)
        instants = _infer_timestamps(present, filled)
        if instants is not None:
            return instants
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _infer_timestamps(present: pa.ChunkedArray, filled: pa.ChunkedArray) -> pa.ChunkedArray | None:
    known: dict[str, object] = {}
    for text in pc.unique(present).to_pylist():
        if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return None
        try:
            known[text] = parse_timestamp(text)
        except ValueError:
            return None
    values = [None if text is None else known[text] for text in filled.to_pylist()]
    return pa.chunked_array([pa.array(values, pa.timestamp("us", tz="UTC"))])


def _read_fields(fields: Mapping[str, str], schema: Schema) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for name, text in fields.items():
        attribute = schema.get(name)
        if attribute is None:
            out[name] = text or None
        elif text == "" or (text in _NULLS and attribute.type is not Type.STRING):
            out[name] = None
        else:
            out[name] = _read_field(name, text, attribute.type)
    return out


def _read_field(name: str, text: str, type_: Type) -> Value:
    try:
        match type_:
            case Type.STRING:
                return text
            case Type.INTEGER:
                return int(text)
            case Type.FLOAT:
                return float(text)
            case Type.DECIMAL:
                return Decimal(text)
            case Type.BOOLEAN:
                return {"true": True, "false": False}[text.lower()]
            case Type.TIMESTAMP:
                return parse_timestamp(text)
    except (ValueError, KeyError, InvalidOperation):
        raise EventError(f"{name}: {text!r} is not {_ARTICLES.get(type_, 'a')} {type_}") from None


_ARTICLES = {Type.INTEGER: "an"}


# -- Parquet -----------------------------------------------------------------------------------------------------------


def _parquet(path: str) -> pq.ParquetFile:
    with _open(path):  # whose error says what is wrong with the path
        pass
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None


def _parquet_batches(path: str) -> Iterator[Batch]:
    first = 0
    for batch in _parquet(path).iter_batches(batch_size=BATCH_ROWS):
        yield Batch(range(first, first + batch.num_rows), Columns.of_batch(batch))
        first += batch.num_rows


# -- subscriptions -----------------------------------------------------------------------------------------------------


def read_subscriptions(path: str, rejected: Rejected, schema: Schema | None = None) -> list[Subscriber]:
    """The subscriptions of a file with the columns `id`, `filter` and maybe `subscriber`; bad ones are set aside."""
    return check_subscriptions(subscription_rows(path, rejected), rejected, schema)


def subscription_rows(path: str, rejected: Rejected) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a file of subscriptions with their numbers, unread."""
    match format_of(path):
        case "jsonl":
            yield from _json_rows(path, "subscriptions", rejected, None)
        case "csv":
            table, numbers = _read_csv(path, "subscriptions", rejected)
            _check_columns(path, table.column_names)
            typed = {n: table.column(n) if n == "filter" else _infer(table.column(n)) for n in table.column_names}
            yield from zip(numbers, pa.table(typed).to_pylist(), strict=True)
        case _:
            file = _parquet(path)
            _check_columns(path, file.schema_arrow.names)
            yield from enumerate(row for batch in file.iter_batches() for row in batch.to_pylist())


def _check_columns(path: str, names: Sequence[str]) -> None:
    for wanted in ("id", "filter"):
        if wanted not in names:
            raise SourceError(f"{path}: there is no column {wanted}; the columns are {', '.join(names)}")


def check_subscriptions(
    rows: Iterable[tuple[int, Mapping[str, Any]]], rejected: Rejected, schema: Schema | None = None
) -> list[Subscriber]:
    """Rows with `id` and `filter` as subscriptions; those without, refused or repeated are set aside."""
    parser = FilterParser(schema)
    good: list[Subscriber] = []
    seen: set[Any] = set()
    for number, row in rows:
        id_, text = row.get("id"), row.get("filter")
        try:
            if id_ is None or id_ == "":
                raise EventError("the subscription has no id; give it one")
            if id_ in seen:
                raise EventError(f"id {id_!r} occurs a second time; rename it")
            if not isinstance(text, str):
                raise EventError("the subscription has no filter; write one, or TRUE for all events")
            good.append(Subscriber(id_, parser.parse(text), row.get("subscriber")))
            seen.add(id_)
        except (EventError, FilterError) as error:
            rejected(Reject("subscriptions", number, f"id {id_!r}: {error}", str(text)[:RAW_MAX]))
    return good
