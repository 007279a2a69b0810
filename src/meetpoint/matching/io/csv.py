"""CSV files: records with their true lines, and types for their fields.

A record may span lines (a newline within quotes), and a blank line is no record. Records are numbered from 0 after the
header. A record of the wrong length is rejected. A quote that never closes would swallow the rest of the file, so it
refuses the file.

CSV has no types. With a schema each field is read as its attribute's type. Without one a column is integer, float,
boolean or timestamp if all its fields are and nothing is lost by it, else string: 007 is a code and not a number, an
integer beside fractions must be a double exactly, and no number becomes infinite. An empty field is NULL, and so is a
word of `NULL_WORDS` in a column that is not of strings.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import EventError
from meetpoint.language.names import quote_segment, show_name
from meetpoint.language.schema.schema import Attribute, Schema, show_value, with_article
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.language.values import DIGITS_MAX, Type, Value, fits_decimal
from meetpoint.matching.io.rejects import Rejected, SourceError, open_source, refuse_packed, reject
from meetpoint.matching.tables.columns import BATCH_ROWS, ColumnBatch, Columns

__all__ = ["NULL_WORDS", "CsvFile", "Record", "csv_batches"]

NULL_WORDS = frozenset({"", "NA", "NaN", "nan", "NULL", "null", "None", "N/A"})

_FIELD_MAX = 2**31 - 1
_CHUNK_RECORDS = 4096
"""Records that are held as Python strings at a time."""
_WORD_DIGITS = 18
_EXACT_DIGITS = 15
"""Digits of an integer that surely is a double exactly."""
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
_FLOAT = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,20})?"
_INTEGER_FIELD = re.compile(rf"-?[0-9]{{1,{DIGITS_MAX}}}", re.ASCII)
_NUMBER_FIELD = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


class Record(NamedTuple):
    """A record: its number from 0, the line on which it begins, and its fields."""

    number: int
    line: int
    fields: list[str]


class CsvFile:
    """A file's header and records; records of the wrong length are rejected."""

    def __init__(self, path: str, what: str, rejected: Rejected) -> None:
        self._path, self._what, self._rejected = path, what, rejected
        self._rows = self._read(_text_of(path))
        first = next(self._rows, None)
        if first is None:
            raise SourceError(f"{path}: the file is empty; a CSV file begins with a line of column names")
        self.header: Sequence[str] = first[1]
        for name in self.header:
            if self.header.count(name) > 1:
                raise SourceError(f"{path}: column {show_name((name,))} occurs twice in the header; rename one of them")

    def records(self) -> Iterator[Record]:
        """Yield the records that are as long as the header."""
        for number, (line, fields) in enumerate(self._rows):
            if len(fields) == len(self.header):
                yield Record(number, line, fields)
            else:
                reason = f"line {line}: {len(fields)} fields where the header has {len(self.header)}"
                self._rejected(reject(self._what, number, reason, csv_line(fields)))

    def _read(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line and the fields of every record, the header included."""
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        while True:
            line = reader.line_num + 1
            before = csv.field_size_limit(_FIELD_MAX)  # a setting of the whole process, so only for this moment
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise SourceError(f"{self._path}: line {line}: {_quotes_said(str(error))}") from None
            finally:
                csv.field_size_limit(before)
            if fields:
                yield line, fields


def _text_of(path: str) -> str:
    with open_source(path) as stream:
        data = stream.read()
    refuse_packed(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = len((data[: error.start] + b"x").splitlines())
        raise SourceError(f"{path}: line {line} is not UTF-8; convert the file") from None


def _quotes_said(error: str) -> str:
    if "field limit" in error:
        return f"a field is longer than {_FIELD_MAX} characters; shorten it"
    if "unexpected end" in error:
        return "a quote opens in this record and never closes; close it, or double the quotes within a text"
    return "text follows a closing quote; double the quotes within a text"


def csv_line(fields: Sequence[str]) -> str:
    """Return the fields as CSV again, to show a rejected record."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(fields)  # whose characters it quotes, and no others
    return line.getvalue().removesuffix("\r\n")


def csv_batches(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[ColumnBatch]:
    """Return the events of a file in batches."""
    file = CsvFile(path, "events", rejected)
    return _inferred(file) if schema is None else _declared(path, file, schema, rejected)


# -- without a schema --------------------------------------------------------------------------------------------------


def _inferred(file: CsvFile) -> Iterator[ColumnBatch]:
    numbers: list[int] = []
    chunks: list[list[pa.Array]] = [[] for _ in file.header]
    records = file.records()
    while some := list(islice(records, _CHUNK_RECORDS)):
        numbers += [record.number for record in some]
        for chunk, fields in zip(chunks, zip(*(record.fields for record in some), strict=True), strict=True):
            chunk.append(pa.array(fields, pa.string()))
    typed = [_infer(pa.chunked_array(chunk, pa.string())) for chunk in chunks]
    first = 0
    table = pa.table(typed, names=list(file.header)).combine_chunks()
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield ColumnBatch(numbers[first : first + batch.num_rows], Columns.of_batch(batch))
        first += batch.num_rows


def _infer(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of strings as the narrowest type that holds all its fields."""
    filled = pc.if_else(pc.is_in(column, pa.array(sorted(NULL_WORDS))), pa.scalar(None, pa.string()), column)
    present = filled.drop_null()
    if len(present):
        if _all_match(present, _FLOAT):
            numbers = _infer_numbers(present, filled)
            if numbers is not None:
                return numbers
        elif _all_match(present, "true|false"):
            return pc.cast(filled, pa.bool_())
        elif (instants := _infer_timestamps(present, filled)) is not None:
            return instants
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py())


def _infer_numbers(present: pa.ChunkedArray, filled: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the column as integers or floats; None if that would change a number."""
    if _all_match(present, _WHOLE):
        digits = pc.max(pc.utf8_length(pc.utf8_ltrim(present, "-"))).as_py()
        if digits > DIGITS_MAX:
            return None
        return pc.cast(filled, pa.int64() if digits <= _WORD_DIGITS else pa.decimal128(DIGITS_MAX, 0))
    long = present.filter(pc.match_substring_regex(present, rf"^-?[0-9]{{{_EXACT_DIGITS + 1},}}$"))
    if not all(_is_double(text) for text in pc.unique(long).to_pylist()):
        return None
    try:
        floats = pc.cast(filled, pa.float64())
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.is_inf(floats)).as_py() else floats


def _is_double(text: str) -> bool:
    """Return whether an integer is a double exactly."""
    return len(text.lstrip("-")) <= DIGITS_MAX and int(float(text)) == int(text)


_Instants: TypeAlias = "pa.ChunkedArray | None"


def _infer_timestamps(present: pa.ChunkedArray, filled: pa.ChunkedArray) -> _Instants:
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


# -- with a schema -----------------------------------------------------------------------------------------------------

_FieldPath: TypeAlias = tuple[tuple[str, ...], Attribute | None]
"""The path of a column's fields in an event, and their attribute."""


def _declared(path: str, file: CsvFile, schema: Schema, rejected: Rejected) -> Iterator[ColumnBatch]:
    places = _places(path, file.header, schema)
    records = file.records()
    while some := list(islice(records, BATCH_ROWS)):
        rows: list[dict[str, Value]] = []
        numbers: list[int] = []
        for record in some:
            try:
                rows.append(_read_fields(record.fields, places))
                numbers.append(record.number)
            except EventError as error:
                rejected(reject("events", record.number, f"line {record.line}: {error}", csv_line(record.fields)))
        if rows:
            yield ColumnBatch(numbers, Columns.of_rows(rows))


def _places(path: str, header: Sequence[str], schema: Schema) -> list[_FieldPath]:
    """Return the path and attribute of each column.

    A column is named after an attribute's own name first (`a.b` in backticks), else after the dotted name of a nested
    one.
    """
    places: list[_FieldPath] = []
    for name in header:
        attribute = schema.get(quote_segment(name)) or schema.get(name)
        place = (name,) if attribute is None else attribute.path
        if attribute is None and isinstance(schema.tree.get(name), dict):
            raise SourceError(
                f"{path}: column {show_name((name,))} is an object in the schema; name columns after what it holds"
            )
        if any(place == taken for taken, _ in places):
            raise SourceError(f"{path}: column {show_name(place)} occurs twice in the header; rename one of them")
        places.append((place, attribute))
    return places


def _read_fields(fields: Sequence[str], places: Sequence[_FieldPath]) -> dict[str, Value]:
    out: dict[str, Any] = {}
    for (place, attribute), text in zip(places, fields, strict=True):
        if attribute is None:
            value: Value = text or None
        elif text == "" or (text in NULL_WORDS and attribute.type is not Type.STRING):
            value = None
        else:
            value = _read_field(text, attribute)
        if len(place) == 1:
            out[place[0]] = value
        elif value is not None:  # an object none of whose fields is there is not there either
            into = out
            for segment in place[:-1]:
                into = into.setdefault(segment, {})
            into[place[-1]] = value
    return out


def _read_field(text: str, attribute: Attribute) -> Value:
    try:
        match attribute.type:
            case Type.STRING:
                return text
            case Type.INTEGER if _INTEGER_FIELD.fullmatch(text):
                return int(text)
            case Type.FLOAT:
                return _read_float(text, attribute)
            case Type.DECIMAL if _NUMBER_FIELD.fullmatch(text) and fits_decimal(number := Decimal(text)):
                return number
            case Type.BOOLEAN if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case Type.TIMESTAMP:
                return parse_timestamp(text)
    except ValueError as error:
        raise EventError(f"{attribute.shown}: {error}") from None
    raise EventError(f"{attribute.shown}: {show_value(text)} is not {with_article(attribute.type)}")


def _read_float(text: str, attribute: Attribute) -> float:
    if text in _INFINITE:
        return _INFINITE[text]
    if _INTEGER_FIELD.fullmatch(text):
        return float(attribute.widen(int(text)))  # type: ignore[arg-type]
    if _NUMBER_FIELD.fullmatch(text) is None or math.isinf(number := float(text)):
        raise ValueError(f"{show_value(text)} is not a float; write a finite number")
    return number
