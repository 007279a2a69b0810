"""Conformance of Arrow columns and JSON texts to a schema: whole columns at a time, then suspect rows one by one.

A row conforms if `attributes_to_arrow` takes it: its values are of the types that the schema says, within its bounds,
on its grid, and fit their columns exactly. That function decides, and words the reason, for every suspect row; the
columns here only find the suspects. A suspect may conform, but every row that does not conform is a suspect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import EventError
from meetpoint.language.events.arrow import (
    arrow_schema,
    attributes_from_arrow,
    attributes_to_arrow,
    decimal_size,
    digits_after_point,
    is_long_integer,
)
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.language.values import DIGITS_MAX, Type, Value
from meetpoint.matching.tables.arrow_columns import INSTANTS
from meetpoint.matching.tables.prepared_columns import Array, Mask

__all__ = ["ConformanceChecker", "Problems", "rows_as_json"]

Problems = dict[int, str]
"""The reasons why rows do not conform, by their numbers within the batch."""

_WORD = 64
_WORD_MAX = 2**63 - 1
_WORD_DIGITS = 20
"""Digits of any integer of 64 bits."""
_FLOAT_DIGITS = 15
"""Digits of decimals that are never the same double."""
_FLOAT_WHOLE = 2**53
"""Integers up to this are doubles exactly."""


class ConformanceChecker:
    """A schema against which batches of events are checked."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.columns = arrow_schema(schema)
        """The columns in which conforming rows are returned."""

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Problems]:
        """Return the rows that conform, in the columns of the schema, and the problems of the others.

        The batch has a column for every attribute, of its type or of one that is read as it; others are left out.
        """
        held = batch.select(self.columns.names)
        suspects = self._suspects(held)
        problems: Problems = {}
        if suspects.any():
            problems = self._judge_columns(held, np.flatnonzero(suspects))
            held = _without(held, problems)
        typed = [_as_column(array, type_) for array, type_ in zip(held.columns, self.columns.types, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=self.columns), problems

    def split_json(self, texts: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Problems]:
        """Return rows and problems of JSON objects, read as `attributes_from_json` does; see `split`."""
        problems: Problems = {}
        rows: list[dict[str, Value]] = []
        numbers: list[int] = []
        for number, text in enumerate(texts):
            try:
                if text is None:
                    raise EventError("event: is NULL; send one JSON object")
                rows.append(attributes_from_json(text, self._schema))
                numbers.append(number)
            except EventError as error:
                problems[number] = str(error)
        batch, suspects = self._columns_of(rows)
        suspects |= self._suspects(batch)
        found = {int(at): said for at in np.flatnonzero(suspects) if (said := self._problem(rows[at])) is not None}
        problems.update((numbers[at], said) for at, said in found.items())
        return _without(batch, found), problems

    def _suspects(self, batch: pa.RecordBatch) -> Mask:
        suspects = np.zeros(batch.num_rows, dtype=np.bool_)
        _suspect_tree(zip(batch.schema.names, batch.columns, strict=True), self._schema.tree, suspects)
        return suspects

    def _judge_columns(self, batch: pa.RecordBatch, suspects: Array) -> Problems:
        some = batch.take(pa.array(suspects))
        try:
            rows: Iterable[dict[str, Value]] = attributes_from_arrow(some, self._schema)
        except EventError:  # one of them cannot even be read
            return self._judge_slices(some, suspects)
        said = map(self._problem, rows)
        return {int(number): problem for number, problem in zip(suspects, said, strict=True) if problem is not None}

    def _judge_slices(self, batch: pa.RecordBatch, numbers: Array) -> Problems:
        problems: Problems = {}
        for at, number in enumerate(numbers):
            try:
                problem = self._problem(attributes_from_arrow(batch.slice(at, 1), self._schema)[0])
            except EventError as error:
                problem = _of_one_row(error)
            if problem is not None:
                problems[int(number)] = problem
        return problems

    def _problem(self, row: Mapping[str, Value]) -> str | None:
        try:
            self._schema.conform(row)  # first, since it is quicker and knows most problems
            attributes_to_arrow([row], self._schema)
        except EventError as error:
            return _of_one_row(error)
        return None

    def _columns_of(self, rows: list[dict[str, Value]]) -> tuple[pa.RecordBatch, Mask]:
        """Return rows of the right types as columns; rows with other attributes, or that do not fit, are suspects."""
        suspects = np.fromiter((_says_more(row, self._schema.tree) for row in rows), np.bool_, count=len(rows))
        arrays = []
        for name, type_ in zip(self.columns.names, self.columns.types, strict=True):
            values = [row.get(name) for row in rows]
            try:
                arrays.append(pa.array(values, type=type_))
            except (pa.ArrowException, OverflowError):
                for at, value in enumerate(values):
                    if not _fits(value, type_):
                        suspects[at], values[at] = True, None
                arrays.append(pa.array(values, type=type_))
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns), suspects


def _of_one_row(error: EventError) -> str:
    return str(error).removeprefix("row 1: ")


def _without(batch: pa.RecordBatch, problems: Problems) -> pa.RecordBatch:
    if not problems:
        return batch
    kept = np.ones(batch.num_rows, dtype=np.bool_)
    kept[list(problems)] = False
    return batch.filter(pa.array(kept))


def _fits(value: Value, type_: Any) -> bool:
    try:
        pa.array([value], type=type_)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _says_more(row: Mapping[str, Value], tree: SchemaTree) -> bool:
    if not row.keys() <= tree.keys():
        return True
    return any(isinstance(value, dict) and _says_more(value, tree[name]) for name, value in row.items())  # type: ignore[arg-type]


# -- suspects ----------------------------------------------------------------------------------------------------------


def _suspect_tree(columns: Iterable[tuple[str, Any]], tree: SchemaTree, suspects: Mask) -> None:
    for name, array in columns:
        declared = tree.get(name)
        if pa.types.is_null(array.type) or declared is None:
            continue
        if isinstance(declared, dict):
            names = [field.name for field in array.type]
            _suspect_tree(zip(names, array.flatten(), strict=True), declared, suspects)
            continue
        suspect = _suspect_of(array, declared)
        if suspect is not None:
            suspects |= suspect & np.asarray(array.is_valid())


def _suspect_of(array: Any, attribute: Attribute) -> Mask | None:
    """Return which values may be wrong, anything for nulls; None if none are."""
    types = pa.types
    match attribute.type:
        case Type.BOOLEAN:
            return None
        case Type.STRING:
            return _suspect_texts(array)
        case Type.TIMESTAMP:
            return _suspect_instants(array, attribute)
        case Type.FLOAT if types.is_integer(array.type):
            values = np.asarray(array.fill_null(0))
            beyond = (values > _FLOAT_WHOLE) | (values < -_FLOAT_WHOLE)
            suspect = _suspect_floats(values.astype(np.float64), attribute)
            return beyond if suspect is None else beyond | suspect
        case Type.FLOAT:
            return _suspect_floats(np.asarray(pc.cast(array, pa.float64()).fill_null(0.0)), attribute)
    return _suspect_exact(array, attribute)


def _suspect_texts(array: Any) -> Mask | None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        texts = pc.cast(array, pa.binary()).to_pylist()
        return np.fromiter((text is not None and not _is_utf8(text) for text in texts), np.bool_, count=len(texts))
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _suspect_instants(array: Any, attribute: Attribute) -> Mask:
    if array.type.unit != "us":
        return np.ones(len(array), dtype=np.bool_)
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
    least, greatest = INSTANTS
    if isinstance(attribute.minimum, datetime):
        least = (attribute.minimum - EPOCH) // MICROSECOND
    if isinstance(attribute.maximum, datetime):
        greatest = (attribute.maximum - EPOCH) // MICROSECOND
    return (ticks < least) | (ticks > greatest)


def _suspect_floats(values: Array, attribute: Attribute) -> Mask | None:
    """Return which floats may be out of bounds or off the grid; None if none are.

    A float is measured by its shortest spelling. As rounding is monotonic, that is on the same side of a bound as the
    float is of the bound's double. The double of the bound itself may be on either side.
    """
    minimum, maximum, precision = attribute.minimum, attribute.maximum, attribute.precision
    if minimum is None and maximum is None and precision is None:
        return None
    suspect = np.isnan(values)
    if minimum is not None:
        least = float(minimum)  # type: ignore[arg-type]
        suspect |= (values < least) if Decimal(repr(least)) >= minimum else (values <= least)  # type: ignore[operator]
    if maximum is not None:
        greatest = float(maximum)  # type: ignore[arg-type]
        suspect |= (values > greatest) if Decimal(repr(greatest)) <= maximum else (values >= greatest)  # type: ignore[operator]
    return suspect if precision is None else suspect | ~_on_float_grid(values, minimum, precision)


def _on_float_grid(values: Array, origin: Any, step: Any) -> Mask:
    """Return which floats surely are a whole number of steps from the origin: those spelled with few digits.

    A multiple of 10**-scale of at most 15 digits is the shortest spelling of its double, and dividing gives that.
    """
    scale = max(map(digits_after_point, (step, origin or 0)))
    unit = 10**scale
    size = int(Fraction(step) * unit)
    if scale > _FLOAT_DIGITS or size >= 10**_FLOAT_DIGITS:
        return np.zeros(len(values), dtype=np.bool_)
    with np.errstate(all="ignore"):
        counted = np.rint(values * float(unit))
        few = np.abs(counted) < 10.0**_FLOAT_DIGITS
        exact = few & (counted / float(unit) == values)
    first = 0 if origin is None else int(Fraction(origin) * unit) % size
    whole: Mask = exact & (np.where(exact, counted, 0.0).astype(np.int64) % size == first)
    return whole


# -- exact numbers, as 128 bits in two words ---------------------------------------------------------------------------


def _suspect_exact(array: Any, attribute: Attribute) -> Mask | None:
    """Return which integers and decimals may be wrong, for an integer or a decimal attribute."""
    scale = array.type.scale if pa.types.is_decimal(array.type) else 0
    fraction = _size(attribute)[1]
    least, greatest = _range(attribute, scale)
    suspects: list[Mask] = []
    if not _type_is_within(array.type, least, greatest):
        low, high = _words(array)
        suspects += [_below(low, high, least), ~_below(low, high, greatest + 1)]
    if scale > fraction:
        shorter = pc.cast(array, pa.decimal128(DIGITS_MAX, fraction), safe=False)
        suspects.append(np.asarray(pc.not_equal(pc.cast(shorter, array.type, safe=False), array).fill_null(False)))
        array, scale = shorter, fraction
    if attribute.precision is not None and (off := _off_grid(array, scale, fraction, attribute)) is not None:
        suspects.append(off)
    return np.logical_or.reduce(suspects) if suspects else None


def _size(attribute: Attribute) -> tuple[int, int]:
    return (DIGITS_MAX, 0) if attribute.type is Type.INTEGER else decimal_size(attribute)


def _range(attribute: Attribute, scale: int) -> tuple[int, int]:
    """Return the least and the greatest value that bounds and column allow, in steps of 10**-scale."""
    unit = 10**scale
    if attribute.type is Type.INTEGER and not is_long_integer(attribute):
        least, greatest = -(_WORD_MAX + 1) * unit, _WORD_MAX * unit
    else:
        digits, fraction = _size(attribute)
        greatest = 10 ** (digits - fraction) * unit - 1
        least = -greatest
    if attribute.minimum is not None:
        least = max(least, ceil(Fraction(attribute.minimum) * unit))  # type: ignore[arg-type]
    if attribute.maximum is not None:
        greatest = min(greatest, floor(Fraction(attribute.maximum) * unit))  # type: ignore[arg-type]
    return least, greatest


def _type_is_within(type_: Any, least: int, greatest: int) -> bool:
    """Return whether no value of a column's type lies outside a range."""
    if pa.types.is_decimal(type_):
        held = 10**type_.precision - 1
        return bool(least <= -held and held <= greatest)
    bounds = np.iinfo(type_.to_pandas_dtype())
    return bool(least <= bounds.min and bounds.max <= greatest)


def _words(array: Any) -> tuple[Array, Array]:
    """Return numbers as their low words, unsigned, and their high ones, signed; nulls are anything."""
    if pa.types.is_integer(array.type):
        values = np.asarray(array.fill_null(0))
        if pa.types.is_unsigned_integer(array.type):
            return values.astype(np.uint64), np.zeros(len(values), dtype=np.int64)
        values = values.astype(np.int64)
        return values.view(np.uint64), values >> 63
    if array.type.bit_width != 128:
        array = pc.cast(array, pa.decimal128(min(array.type.precision, DIGITS_MAX), array.type.scale))
    if not len(array):
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    words = np.frombuffer(array.buffers()[1], dtype="<i8").reshape(-1, 2)[array.offset : array.offset + len(array)]
    return np.ascontiguousarray(words[:, 0]).view(np.uint64), words[:, 1]


def _below(low: Array, high: Array, bound: int) -> Mask:
    """Return which numbers are below a bound."""
    if not -(2 ** (2 * _WORD - 1)) <= bound < 2 ** (2 * _WORD - 1):
        return np.full(len(low), bound > 0)
    top, bottom = bound >> _WORD, np.uint64(bound & (2**_WORD - 1))
    below: Mask = (high < top) | ((high == top) & (low < bottom))
    return below


def _off_grid(array: Any, scale: int, fraction: int, attribute: Attribute) -> Mask | None:
    """Return which numbers, in steps of 10**-scale, may lie off the grid, whose steps are of 10**-fraction."""
    assert attribute.precision is not None
    unit = 10**fraction
    step = int(Fraction(attribute.precision) * unit)
    first = 0 if attribute.minimum is None else int(Fraction(attribute.minimum) * unit) % step  # type: ignore[arg-type]
    if step == 1:
        return None
    finer = 10 ** (fraction - scale) % step
    if step * max(finer, 1) > _WORD_MAX:
        return np.ones(len(array), dtype=np.bool_)
    low, high = _words(array)
    values = low.view(np.int64)
    off: Mask = (high != values >> 63) | (values % step * finer % step != first)
    return off


# -- columns -----------------------------------------------------------------------------------------------------------


def _as_column(array: Any, type_: Any) -> Any:
    """Return values that conform as a column of the schema."""
    if array.type == type_:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if pa.types.is_struct(type_):
        held = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        parts = [_as_column(held[field.name], field.type) for field in type_]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=array.is_null())
    if pa.types.is_timestamp(type_):  # by its integers: a zone only says how to show an instant
        ticks = pc.cast(array, pa.timestamp(type_.unit, array.type.tz))
        return pc.cast(pc.cast(ticks, pa.int64()), type_)
    if pa.types.is_decimal(type_) and pa.types.is_integer(array.type):
        array = pc.cast(array, pa.decimal128(_WORD_DIGITS, 0))
    # Arrow takes no integer beyond 2**53 for a float, but some of them are one.
    return pc.cast(array, type_, safe=not pa.types.is_floating(type_))


# -- what did not conform ----------------------------------------------------------------------------------------------


def rows_as_json(batch: pa.RecordBatch) -> list[str]:
    """Return the rows as JSON objects, to show rejected ones; not all of them can be read back.

    A value that no attribute has becomes a text: a list, a date, a time beyond the years, bytes that are not UTF-8.
    """
    names = batch.schema.names
    columns = [_shown(array) for array in batch.columns]
    return [_as_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _as_json(row: dict[str, Value]) -> str:
    try:
        return attributes_to_json(row).decode()
    except EventError:  # a name that no attribute has
        return str(row)


def _shown(array: Any) -> list[Value]:
    type_ = array.type
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        rows = zip(*map(_shown, array.flatten()), strict=True) if names else ((),) * len(array)
        valid = array.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return [None if ticks is None else _shown_instant(ticks) for ticks in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        texts = pc.cast(array, pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in texts]
    values = array.to_pylist()
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return values  # type: ignore[no-any-return]
    if pa.types.is_decimal128(type_):
        return values  # type: ignore[no-any-return]
    return [None if value is None else str(value) for value in values]


def _shown_instant(micros: int) -> Value:
    try:
        return EPOCH + micros * MICROSECOND
    except OverflowError:
        return f"{micros} microseconds since 1970"
