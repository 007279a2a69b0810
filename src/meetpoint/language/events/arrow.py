"""Events as Arrow tables and as pandas DataFrames; attributes as columns, in Arrow and in Spark.

A table of bare attributes has a column for each attribute, and a struct for a nested object. A table of events has id,
publisher, sequence, time and one struct `attributes`. A missing attribute is written as null, and null is read as None.

- An integer is a 64-bit column; if the schema's bounds lie outside 64 bits it is DECIMAL(38, 0).
- A decimal is DECIMAL(p, s): s from the precision (and the minimum, where the grid starts), p from the larger bound.
  Without bounds p is 38; without a precision the column is DECIMAL(38, 18).
- Notes beside a column, its metadata, hold what the column's type cannot say (that a DECIMAL(38, 0) is an integer;
  minimum, maximum, precision), so that a schema comes back as it went in. A note about another type than the column has
  now is ignored: the column was cast.
- Writing takes a schema, or infers one; every row must conform to it and fit its column exactly.
- Reading takes any column that holds one of our types in any width, and nothing else: a date or a list is refused with
  the column's name. Read with a schema, integers become the floats or decimals that it declares.
- In an Arrow column NaN is NaN. In a DataFrame NaN, NaT and NA mean NULL.

pyarrow is imported only when a function here is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.events.event import Event
from meetpoint.language.names import join_name, show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree, read_bound, show_value, write_bound
from meetpoint.language.timestamps import EPOCH
from meetpoint.language.values import DIGITS_MAX, NESTING_MAX, Type, Value, clean_attributes, fits_decimal

__all__ = [
    "arrow_schema",
    "attribute_from_column",
    "attributes_from_arrow",
    "attributes_from_pandas",
    "attributes_to_arrow",
    "decimal_size",
    "digits_after_point",
    "events_from_arrow",
    "events_to_arrow",
    "is_long_integer",
    "notes_of",
    "schema_from_arrow",
]


DEFAULT_SCALE = 18
"""Digits after the point of a decimal column whose schema declares no precision."""

_NORMALIZED = Context(prec=DIGITS_MAX)
_TYPE_NOTE = "meetpoint.type"
_BOUND_NOTES = {"minimum": "meetpoint.min", "maximum": "meetpoint.max", "precision": "meetpoint.precision"}


def is_long_integer(attribute: Attribute) -> bool:
    """Return whether an integer attribute needs more than 64 bits, by its bounds."""
    return any(
        isinstance(bound, int) and not -(2**63) <= bound < 2**63 for bound in (attribute.minimum, attribute.maximum)
    )


def decimal_size(attribute: Attribute) -> tuple[int, int]:
    """Return precision and scale of the column for a decimal; SchemaError if no column of 38 digits holds it."""
    if attribute.precision is None:
        return DIGITS_MAX, DEFAULT_SCALE
    scale = max(map(digits_after_point, (attribute.precision, attribute.minimum or 0)))
    if attribute.minimum is None or attribute.maximum is None:
        return DIGITS_MAX, scale
    assert isinstance(attribute.minimum, Decimal)
    assert isinstance(attribute.maximum, Decimal)
    whole = int(max(abs(attribute.minimum), abs(attribute.maximum)))
    digits = len(str(whole)) if whole else 0
    if digits + scale > DIGITS_MAX:
        raise SchemaError(
            f"schema: attribute {attribute.shown} needs {digits} digits before and {scale} after the point, and a "
            f"decimal column holds {DIGITS_MAX}; narrow its bounds or its precision"
        )
    return max(digits + scale, 1), scale


def step_of_scale(scale: int | None) -> Decimal | None:
    """Return the step between two values of a decimal column: 0.01 for a scale of 2; None beyond our decimals."""
    return None if scale is None or abs(scale) >= DIGITS_MAX else Decimal((0, (1,), -scale))


def notes_of(attribute: Attribute) -> dict[str, str]:
    """Return the notes to put beside a column."""
    notes = {_TYPE_NOTE: str(attribute.type)}
    for field, note in _BOUND_NOTES.items():
        bound = getattr(attribute, field)
        if bound is not None:
            notes[note] = write_bound(bound)
    return notes


def attribute_from_column(path: tuple[str, ...], type_: Type, scale: int | None, notes: Mapping[str, str]) -> Attribute:
    """Return the attribute of a column by its type, the scale that a decimal has, and the notes beside it."""
    name = join_name(path)
    noted = notes.get(_TYPE_NOTE)
    if noted == Type.INTEGER and type_ is Type.DECIMAL and scale == 0:
        type_ = Type.INTEGER
    if noted != type_:
        return Attribute(name, type_, precision=step_of_scale(scale))
    try:
        bounds = {field: read_bound(type_, field, notes[note]) for field, note in _BOUND_NOTES.items() if note in notes}
    except ValueError as error:
        raise SchemaError(f"schema: the notes beside column {name} are damaged: one {error}") from None
    return Attribute(name, type_, **bounds)  # type: ignore[arg-type]


def digits_after_point(bound: Any) -> int:
    """Return how many digits after the point a bound has, without trailing zeros."""
    exponent = Decimal(bound).normalize(_NORMALIZED).as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


_Path = tuple[str, ...]
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])


def _arrow() -> Any:
    import pyarrow as pa
    import pyarrow.compute

    return pa


# Schemas


def arrow_schema(schema: Schema) -> Any:
    """Return the `pyarrow.Schema` of a table of attributes; attributes of one object are together in its struct."""
    return _arrow().schema(_fields(schema.tree))


def schema_from_arrow(columns: Any) -> Schema:
    """Return the schema of a table by its `pyarrow.Schema`; SchemaError names a column that no attribute can be."""
    return Schema(tuple(_attributes(columns, ())))


def _fields(tree: SchemaTree) -> list[Any]:
    pa = _arrow()
    fields = []
    for segment, below in tree.items():
        if isinstance(below, dict):
            fields.append(pa.field(segment, pa.struct(_fields(below))))
        else:
            fields.append(pa.field(segment, _column_type(below), metadata=notes_of(below)))
    return fields


def _column_type(attribute: Attribute) -> Any:
    pa = _arrow()
    match attribute.type:
        case Type.INTEGER:
            return pa.decimal128(38, 0) if is_long_integer(attribute) else pa.int64()
        case Type.FLOAT:
            return pa.float64()
        case Type.DECIMAL:
            return pa.decimal128(*decimal_size(attribute))
        case Type.STRING:
            return pa.string()
        case Type.BOOLEAN:
            return pa.bool_()
        case Type.TIMESTAMP:
            return pa.timestamp("us", tz="UTC")


def _attributes(fields: Iterable[Any], path: _Path) -> Iterator[Attribute]:
    types = _arrow().types
    for field in fields:
        here = (*path, field.name)
        type_ = _plain_type(field.type)
        if types.is_struct(type_):
            yield from _attributes(type_, here)
        elif not types.is_null(type_):  # a column of nulls alone says nothing
            found = _type_of_column(type_)
            if found is None:
                raise SchemaError(f"schema: column {show_name(here)} is of Arrow type {type_}; {_next_step(type_)}")
            attribute = attribute_from_column(
                here, found, type_.scale if types.is_decimal(type_) else None, _notes(field)
            )
            if types.is_uint64(type_) and attribute.maximum is None:
                attribute = Attribute(attribute.name, attribute.type, 0, 2**64 - 1, attribute.precision)
            yield attribute


def _notes(field: Any) -> dict[str, str]:
    return {
        key.decode("utf-8", "replace"): text.decode("utf-8", "replace") for key, text in (field.metadata or {}).items()
    }


def _plain_type(type_: Any) -> Any:
    """Return the type of the values behind an encoding."""
    types = _arrow().types
    while types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        type_ = type_.value_type
    return type_


def _type_of_column(type_: Any) -> Type | None:
    types = _arrow().types
    if types.is_boolean(type_):
        return Type.BOOLEAN
    if types.is_integer(type_):
        return Type.INTEGER
    if types.is_floating(type_):
        return Type.FLOAT
    if types.is_decimal(type_):
        return Type.DECIMAL
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return Type.STRING
    if types.is_timestamp(type_):
        return Type.TIMESTAMP
    return None


def _next_step(type_: Any) -> str:
    types = _arrow().types
    if types.is_date(type_):
        return "cast it to timestamp"
    if types.is_time(type_) or types.is_duration(type_):
        return "cast it to int64 or string"
    if "binary" in str(type_):
        return "cast it to string, or drop it"
    if types.is_nested(type_):
        return "turn it into a struct or into one row an element, or drop it"
    return "cast it to a type that docs/events.md lists, or drop it"


# Writing


def attributes_to_arrow(rows: Iterable[Mapping[str, object]], schema: Schema | None = None) -> Any:
    """Return a `pyarrow.Table` of attributes; without a schema one is inferred. EventError names row and attribute."""
    rows = list(rows)
    schema = Schema.infer(rows) if schema is None else schema
    columns = arrow_schema(schema)
    fitted = list(_fit_rows(rows, schema))
    return _table([[row.get(name) for row in fitted] for name in columns.names], columns, len(fitted))


def events_to_arrow(events: Iterable[Event], schema: Schema | None = None) -> Any:
    """Return a `pyarrow.Table` of id, publisher, sequence, time and the struct `attributes`."""
    pa = _arrow()
    events = list(events)
    rows = [event.attributes for event in events]
    schema = Schema.infer(rows) if schema is None else schema
    columns = pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("publisher", pa.string()),
            pa.field("sequence", pa.int64()),
            pa.field("time", pa.timestamp("us", tz="UTC")),
            pa.field("attributes", pa.struct(_fields(schema.tree))),
        ]
    )
    envelopes = [[getattr(event, name) for event in events] for name in columns.names[:4]]
    return _table([*envelopes, list(_fit_rows(rows, schema))], columns, len(events))


def _table(values: list[list[Any]], columns: Any, height: int) -> Any:
    pa = _arrow()
    if not columns.names:  # a table without columns forgets its height; a struct array does not
        batch = pa.RecordBatch.from_struct_array(pa.array([{}] * height, pa.struct([])))
        return pa.Table.from_batches([batch])
    arrays = [pa.array(column, type=field.type) for column, field in zip(values, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=columns)


def _fit_rows(rows: Iterable[Mapping[str, object]], schema: Schema) -> Iterator[dict[str, Value]]:
    for number, row in enumerate(rows, 1):
        try:
            yield _fit_object(schema.conform(row), schema.tree, ())
        except EventError as error:
            raise EventError(f"row {number}: {error}") from None


def _fit_object(attributes: Mapping[str, Value], tree: SchemaTree, path: _Path) -> dict[str, Value]:
    fitted: dict[str, Value] = {}
    for name, value in attributes.items():
        below = tree[name]
        if isinstance(value, Mapping):
            assert isinstance(below, dict)
            fitted[name] = _fit_object(value, below, (*path, name))
        elif type(value) is Decimal:
            assert isinstance(below, Attribute)
            fitted[name] = _fit_decimal(value, below)
        elif type(value) is int and isinstance(below, Attribute) and not -(2**63) <= value < 2**63:
            if not is_long_integer(below):
                raise EventError(
                    f"event: attribute {below.shown} is {value}, beyond 64 bits; declare a min or max beyond them in "
                    "the schema, and the column is a DECIMAL(38, 0)"
                )
            fitted[name] = value
        else:
            fitted[name] = value
    return fitted


def _fit_decimal(value: Decimal, attribute: Attribute) -> Decimal:
    digits, scale = decimal_size(attribute)
    try:
        fitted = value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    except Inexact:
        fitted = None
    if fitted is None or len(fitted.as_tuple().digits) > digits:
        raise EventError(
            f"event: attribute {attribute.shown} is {show_value(value)}, which its column DECIMAL({digits}, {scale}) "
            "does not hold; declare min, max and precision that do in the schema"
        )
    return fitted


# Reading


def attributes_from_arrow(table: Any, schema: Schema | None = None) -> list[dict[str, Value]]:
    """Return the rows of a table or `RecordBatch` as attributes, None for null. EventError names the column."""
    pa = _arrow()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    rows: list[dict[str, Value]] = []
    for batch in table.to_batches():
        fields = list(zip(batch.schema, batch.columns, strict=True))
        rows += _read_struct(fields, batch.num_rows, {} if schema is None else schema.tree, (), len(rows))
    return rows


def events_from_arrow(table: Any, schema: Schema | None = None) -> list[Event]:
    """Return the events of a table that `events_to_arrow` wrote, or of one with the same columns."""
    wanted = list(Event.__struct_fields__)
    if sorted(table.schema.names) != sorted(wanted):
        raise EventError(f"event: the table has columns {', '.join(table.schema.names)}; select {', '.join(wanted)}")
    if not _arrow().types.is_struct(table.schema.field("attributes").type):
        raise EventError("event: column attributes is not a struct; make it one with a field an attribute")
    envelopes = attributes_from_arrow(table.select(wanted[:4]))
    attributes = _nested(table, {} if schema is None else schema.tree)
    events = []
    for number, (envelope, content) in enumerate(zip(envelopes, attributes, strict=True), 1):
        try:
            events.append(Event(**envelope, attributes=content))  # type: ignore[arg-type]
        except EventError as error:
            raise EventError(f"row {number}: {error}") from None
    return events


def _nested(table: Any, tree: SchemaTree) -> list[Value]:
    """Return the column `attributes`, read so that errors name `price` rather than `attributes.price`."""
    pa = _arrow()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    values: list[Value] = []
    for chunk in table.column("attributes").chunks:
        fields = list(zip(chunk.type, chunk.flatten(), strict=True))
        rows = _read_struct(fields, len(chunk), tree, (), len(values))
        values += [row if valid else None for row, valid in zip(rows, chunk.is_valid().to_pylist(), strict=True)]
    return values


def _read_struct(
    fields: list[tuple[Any, Any]], height: int, tree: SchemaTree, path: _Path, start: int
) -> list[dict[str, Value]]:
    """Return the rows of a struct's columns; `start` rows came before them."""
    names = [field.name for field, _ in fields]
    if len(path) >= NESTING_MAX:
        raise EventError(f"event: columns nest deeper than {NESTING_MAX} at {show_name(path)}; flatten them")
    clean_attributes(dict.fromkeys(names))  # refuses names that no attribute has
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EventError(f"event: column {show_name((*path, twice))} occurs twice; rename one of them")
    columns = []
    for field, array in fields:
        here = (*path, field.name)
        try:
            columns.append(_read_column(array, field, tree.get(field.name), here, start))
        except _CellError as error:
            raise EventError(f"row {start + error.row + 1}: event: attribute {show_name(here)} {error}") from None
    if not columns:
        return [{} for _ in range(height)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class _CellError(ValueError):
    """A value that cannot be read; the text begins with `is` or `has`. `row` counts from 0 within the array."""

    def __init__(self, row: int, problem: str) -> None:
        self.row = row
        super().__init__(problem)


def _read_column(
    array: Any, field: Any, declared: Attribute | SchemaTree | None, path: _Path, start: int
) -> list[Value]:
    types = _arrow().types
    array = _plain_array(array)
    type_ = array.type
    if types.is_null(type_):
        return [None] * len(array)
    if types.is_struct(type_):
        if isinstance(declared, Attribute):
            raise EventError(f"event: column {show_name(path)} is a struct; the schema says {declared.type}")
        rows = _read_struct(list(zip(type_, array.flatten(), strict=True)), len(array), declared or {}, path, start)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    found = _type_of_column(type_)
    if found is None:
        raise EventError(f"event: column {show_name(path)} is of Arrow type {type_}; {_next_step(type_)}")
    if isinstance(declared, dict):
        raise EventError(f"event: column {show_name(path)} is of Arrow type {type_}; the schema says a struct")
    try:
        values = _read_scalars(array, found)
    except UnicodeDecodeError:
        raise EventError(f"event: column {show_name(path)} is not UTF-8; encode its texts as UTF-8") from None
    scale = type_.scale if found is Type.DECIMAL else None
    attribute = declared or attribute_from_column(path, found, scale, _notes(field))
    if found is Type.DECIMAL and attribute.type is Type.INTEGER and scale is not None and scale <= 0:
        values = [None if value is None else int(value) for value in values]  # type: ignore[arg-type]
        found = Type.INTEGER
    return values if attribute.type is found else _widen(values, attribute)


def _widen(values: list[Any], attribute: Attribute) -> list[Value]:
    widened: list[Value] = []
    for row, value in enumerate(values):
        try:
            widened.append(attribute.widen(value))
        except ValueError as error:
            raise _CellError(row, str(error)) from None
    return widened


def _plain_array(array: Any) -> Any:
    pa = _arrow()
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pa.compute.run_end_decode(array)
        else:
            return array


def _read_scalars(array: Any, type_: Type) -> list[Value]:
    if type_ is Type.TIMESTAMP:
        return _read_timestamps(array)
    if type_ is Type.FLOAT:
        array = array.cast(_arrow().float64())
    values: list[Value] = array.to_pylist()
    if type_ is Type.DECIMAL:
        for row, value in enumerate(values):
            if value is not None and not fits_decimal(value):  # type: ignore[arg-type]
                raise _CellError(row, f"is {show_value(value)}, of more than 38 digits; round it")
    return values


def _read_timestamps(array: Any) -> list[Value]:
    """Return timestamps by their integers.

    That is exact and needs no table of time zones: a zone only says how to show an instant.
    """
    ticks_per_second = _TICKS_PER_SECOND[array.type.unit]
    values: list[Value] = []
    for row, ticks in enumerate(array.cast(_arrow().int64()).to_pylist()):
        if ticks is None:
            values.append(None)
            continue
        microseconds, rest = divmod(ticks * 10**6, ticks_per_second)
        if rest:
            raise _CellError(row, "has nanoseconds, and timestamps hold microseconds; cast the column to microseconds")
        try:
            values.append(EPOCH + timedelta(microseconds=microseconds))
        except OverflowError:
            raise _CellError(row, "is outside the years 1 to 9999; use a time within them") from None
    return values


# pandas


def attributes_from_pandas(frame: Any) -> list[dict[str, Value]]:
    """Return the rows of a DataFrame as attributes, without its index; NaN, NaT and NA are None."""
    pa = _arrow()
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str) or names.count(name) > 1:
            raise EventError(f"event: column {show_value(name)} has no name of its own, a str; rename it")
    columns: list[list[object]] = []
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        if series.dtype == object:  # Python's own values, which clean_attributes below looks at
            columns.append([_null_for_nan(value) for value in series])
            continue
        try:
            array = pa.Array.from_pandas(series)
        except (pa.ArrowException, TypeError, ValueError):
            raise EventError(
                f"event: column {show_name((name,))} is of dtype {series.dtype}; convert it to numbers, strings, "
                "booleans or timestamps"
            ) from None
        table = pa.table([array], names=[name])
        columns.append([_null_for_nan(row[name]) for row in attributes_from_arrow(table)])
    if not columns:
        return [{} for _ in range(len(frame))]
    rows = []
    for number, row in enumerate(zip(*columns, strict=True), 1):
        try:
            rows.append(clean_attributes(dict(zip(names, row, strict=True))))
        except EventError as error:
            raise EventError(f"row {number}: {error}") from None
    return rows


def _null_for_nan(value: object) -> object:
    import numpy as np
    import pandas as pd

    if isinstance(value, Mapping):
        return {name: _null_for_nan(below) for name, below in value.items()}
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return value.item() if isinstance(value, np.bool_ | np.integer | np.floating) else value
