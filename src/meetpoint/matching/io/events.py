"""Whatever holds events (a path, a table, batches, a frame, rows) as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from os import PathLike, fspath
from typing import Any, TypeAlias

import pyarrow as pa

from meetpoint.errors import EventError
from meetpoint.language.events.arrow import attributes_from_pandas
from meetpoint.language.events.event import Event
from meetpoint.language.names import show_name
from meetpoint.language.schema.attribute import Attribute, with_article
from meetpoint.language.schema.schema import Schema, Tree
from meetpoint.language.values import Value, clean_attributes
from meetpoint.matching.io.files import read_events
from meetpoint.matching.io.rejects import Rejected, reject
from meetpoint.matching.tables.arrow_columns import check_arrow_kinds
from meetpoint.matching.tables.column_match import BATCH_ROWS, Batch, Columns

__all__ = ["Events", "load_events"]

Events: TypeAlias = (
    "str | PathLike[str] | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[Event | Mapping[str, object]]"
    " | Any"
)
"""A path, an Arrow table, batch, list of batches or reader, a pandas frame, or rows."""


def load_events(events: Events, rejected: Rejected, schema: Schema | None) -> Iterator[Batch]:
    """Whatever holds events, as batches; where a schema is given, values are of the types it says."""
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
    first = list(_first(rows))
    if first and isinstance(first[0], pa.RecordBatch):
        return _arrow_batches(chain(first, rows), schema)
    return _row_batches(chain(first, rows), rejected, schema)


def _first(rows: Iterator[Any]) -> Iterator[Any]:
    for row in rows:
        yield row
        return


def _arrow_batches(batches: Iterable[Any], schema: Schema | None) -> Iterator[Batch]:
    first = 0
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise EventError(f"events: a {type(batch).__name__} among record batches; give batches only")
        check_arrow_kinds(batch.schema, schema)
        yield Batch(range(first, first + batch.num_rows), Columns.of_batch(batch))
        first += batch.num_rows


def _frame_batches(frame: Any, schema: Schema | None) -> Iterator[Batch]:
    rows = attributes_from_pandas(frame)
    if schema is not None:
        try:
            rows = [_typed(row, schema.tree, ()) for row in rows]
        except EventError as error:
            said = str(error).removeprefix("event: ")
            raise EventError(f"events: {said}; convert the column, or change the schema") from None
    for at in range(0, len(rows), BATCH_ROWS):
        some = rows[at : at + BATCH_ROWS]
        yield Batch(range(at, at + len(some)), Columns.of_rows(some))


def _row_batches(events: Iterable[Any], rejected: Rejected, schema: Schema | None) -> Iterator[Batch]:
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
            yield Batch(numbers, Columns.of_rows(rows))
            rows, numbers = [], []
    if rows:
        yield Batch(numbers, Columns.of_rows(rows))


def _attributes(event: object) -> Mapping[str, Value]:
    if isinstance(event, Event):
        return event.attributes
    if not isinstance(event, Mapping):
        raise EventError(f"event: the row is of class {type(event).__name__}; give a dict of attributes or an Event")
    return clean_attributes(event)


def _typed(attributes: Mapping[str, Value], tree: Tree, path: tuple[str, ...]) -> dict[str, Value]:
    """The attributes as the schema's types, whatever its bounds; what it does not mention stays as it is."""
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
