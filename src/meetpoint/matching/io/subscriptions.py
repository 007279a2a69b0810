"""Subscriptions from files, tables, frames and rows: an id, a filter, and the subscriber.

Ids name subscriptions in results, so they are strings or numbers, and no two are equal. `match` and `lint` reject the
same rows because of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from os import PathLike, fspath
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError, FilterError, MeetpointError
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.schema.schema import Schema, show_value
from meetpoint.matching.io.csv import CsvFile
from meetpoint.matching.io.events import format_of, json_rows, open_parquet, parquet_batches
from meetpoint.matching.io.rejects import Rejected, SourceError, reject
from meetpoint.matching.tables.arrow_columns import read_batch

__all__ = [
    "LoadedSubscription",
    "Subscriptions",
    "UnparsedSubscription",
    "id_problem",
    "id_repeated",
    "load_subscriptions",
    "unparsed_subscriptions",
]

_COLUMNS = ("id", "filter", "subscriber")

Subscriptions: TypeAlias = (
    "str | PathLike[str] | pa.Table | pa.RecordBatch | Mapping[Any, str | Filter] | Iterable[Mapping[str, Any]] | Any"
)
"""A path, a mapping of id to filter, an Arrow table, a pandas frame, or rows with `id`, `filter`, `subscriber`."""


class LoadedSubscription(msgspec.Struct, frozen=True):
    """A subscription whose filter has been parsed."""

    id: Any
    filter: Filter


class UnparsedSubscription(msgspec.Struct, frozen=True):
    """A subscription with a good id whose filter is still a text."""

    row: int
    id: Any
    text: str
    subscriber: Any = None


def load_subscriptions(
    subscriptions: Subscriptions, rejected: Rejected, schema: Schema | None
) -> list[LoadedSubscription]:
    """Return subscriptions, parsed; those without a good id or filter are rejected."""
    parser = FilterParser(schema)
    good: list[LoadedSubscription] = []
    for one in unparsed_subscriptions(subscriptions, rejected):
        try:
            good.append(LoadedSubscription(one.id, parser.parse(one.text)))
        except FilterError as error:
            rejected(reject("subscriptions", one.row, f"id {show_value(one.id)}: {error}", one.text))
    return good


def unparsed_subscriptions(subscriptions: Subscriptions, rejected: Rejected) -> Iterator[UnparsedSubscription]:
    """Yield subscriptions with their ids checked and their filters as texts."""
    seen: set[Any] = set()
    for number, row in _rows(subscriptions, rejected):
        try:
            if not isinstance(row, Mapping):
                raise EventError(f"the row is of class {type(row).__name__}; give a dict with id and filter")
            one = _check_row(number, row)
            if one.id in seen:
                raise EventError(id_repeated(one.id))
            seen.add(one.id)
            yield one
        except EventError as error:
            rejected(reject("subscriptions", number, str(error), _raw(row)))


def _check_row(number: int, row: Mapping[str, Any]) -> UnparsedSubscription:
    id_, text, subscriber = (_scalar(row.get(column)) for column in _COLUMNS)
    if id_ == "" and isinstance(id_, str):
        id_ = None
    if (problem := id_problem(id_)) is not None:
        raise EventError(f"the id of the subscription {problem}")
    if subscriber is not None and (problem := id_problem(subscriber)) is not None:
        raise EventError(f"id {show_value(id_)}: the subscriber {problem}")
    text = text.text if isinstance(text, Filter) else text
    if not isinstance(text, str):
        raise EventError(f"id {show_value(id_)}: the subscription has no filter; write one, or TRUE for all events")
    return UnparsedSubscription(number, id_, text, subscriber)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def id_problem(value: object) -> str | None:
    """Return why a value cannot be an id (what it `is`); None if it can."""
    if isinstance(value, Mapping | list):
        return f"is {'an object' if isinstance(value, Mapping) else 'a list'}; give it a string or an integer"
    if value is None or (isinstance(value, float) and value != value):
        return "is missing; give it one"
    if not isinstance(value, str | int | float | Decimal | date):
        return f"is of class {type(value).__name__}; give it a string or an integer"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"is {show_value(value)}, beyond 64 bits; write it as a string"
    return None


def id_repeated(value: object) -> str:
    """Return the reason to reject a second subscription of an id."""
    return f"id {show_value(value)}: occurs a second time; rename it"


def _raw(row: object) -> object:
    text = row.get("filter") if isinstance(row, Mapping) else None
    return text if isinstance(text, str) else row


def _rows(subscriptions: Subscriptions, rejected: Rejected) -> Iterable[tuple[int, Any]]:
    if isinstance(subscriptions, str | PathLike):
        return _file_rows(fspath(subscriptions), rejected)
    if isinstance(subscriptions, Mapping):
        return enumerate({"id": id_, "filter": text} for id_, text in subscriptions.items())
    if isinstance(subscriptions, pa.Table | pa.RecordBatch):
        _check_columns("subscriptions", subscriptions.schema.names)
        batches = _select(pa.table(subscriptions)).to_batches()
        return enumerate(row for batch in batches for row in read_batch(batch))
    if hasattr(subscriptions, "iloc") and hasattr(subscriptions, "columns"):
        _check_columns("subscriptions", [str(name) for name in subscriptions.columns])
        return enumerate(_frame_rows(subscriptions))
    if isinstance(subscriptions, bytes | Filter) or not isinstance(subscriptions, Iterable):
        raise MeetpointError(
            f"subscriptions: given {_shown_class(subscriptions)}; give a path, a dict of id to filter, a table, "
            "a frame, or rows with id and filter"
        )
    return enumerate(subscriptions)


def _shown_class(value: object) -> str:
    return "None" if value is None else f"an object of class {type(value).__name__}"


def _file_rows(path: str, rejected: Rejected) -> Iterator[tuple[int, Mapping[str, Any]]]:
    match format_of(path):
        case "jsonl":
            yield from json_rows(path, "subscriptions", rejected, None)
        case "csv":
            file = CsvFile(path, "subscriptions", rejected)
            _check_columns(path, file.header)
            for record in file.records():  # all as text: an id that looks like a number is still a name
                fields = dict(zip(file.header, record.fields, strict=True))
                yield record.number, {**fields, "subscriber": fields.get("subscriber") or None}
        case _:
            parquet = open_parquet(path)
            _check_columns(path, parquet.schema_arrow.names)
            batches = parquet_batches(path, parquet)
            yield from enumerate(row for batch in batches for row in read_batch(_select(batch)))


def _check_columns(where: str, names: Sequence[str]) -> None:
    for wanted in ("id", "filter"):
        if wanted not in names:
            raise SourceError(f"{where}: there is no column {wanted}; the columns are {', '.join(names)}")


def _select(table: Any) -> Any:
    return table.select([name for name in _COLUMNS if name in table.schema.names])


def _frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    names = [name for name in _COLUMNS if name in frame.columns]
    for values in zip(*(frame[name] for name in names), strict=True):
        yield {name: _plain(value) for name, value in zip(names, values, strict=True)}


def _plain(value: Any) -> Any:
    """Return a cell of a frame as a Python object: NaN, NaT and NA are None, NumPy scalars are plain."""
    import pandas as pd

    if isinstance(value, Filter | str | Mapping | list):
        return value
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return _scalar(value)
