"""A schema from the events themselves: the narrowest one that every row conforms to.

- The type is the one that all values have; integers among floats are floats where each equals one exactly, integers
  among decimals are decimals; any other mixture is refused with the attribute, both types and the row.
- The bounds are the least and the greatest value seen. A float that was once NaN or infinite has no bounds, since those
  would refuse it.
- The precision is 1 for integers, the finest step seen for decimals (0.01 for 8.30), none for floats.
- NULL says nothing: an attribute that is only NULL is left out. Attributes come in the order of their first value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import join_name, show_name
from meetpoint.language.schema.attribute import Attribute, Bound
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Scalar, Type, Value, clean_attributes, type_of

__all__ = ["infer_schema"]

_Path = tuple[str, ...]
_WIDER = {
    frozenset({Type.INTEGER, Type.FLOAT}): Type.FLOAT,
    frozenset({Type.INTEGER, Type.DECIMAL}): Type.DECIMAL,
}


def infer_schema(rows: Iterable[Mapping[str, object]]) -> Schema:
    """The narrowest schema that the rows conform to. Rows are counted from 1 in errors."""
    columns: dict[_Path, _Column] = {}
    objects: dict[_Path, int] = {}
    for row, attributes in enumerate(rows, 1):
        try:
            clean = clean_attributes(attributes)
        except EventError as error:
            raise EventError(f"row {row}: {error}") from None
        _observe(clean, (), row, columns, objects)
    return Schema(tuple(column.attribute(path) for path, column in columns.items()))


def _observe(
    attributes: Mapping[str, Value], path: _Path, row: int, columns: dict[_Path, _Column], objects: dict[_Path, int]
) -> None:
    for name, value in attributes.items():
        here = (*path, name)
        if value is None:
            continue
        if isinstance(value, Mapping):
            if here in columns:
                raise _mixture(here, columns[here].type, columns[here].row, "object", row)
            objects.setdefault(here, row)
            _observe(value, here, row, columns, objects)
            continue
        type_ = type_of(value)
        assert type_ is not None
        if here in objects:
            raise _mixture(here, "object", objects[here], type_, row)
        column = columns.get(here)
        if column is None:
            column = columns[here] = _Column(type_, row)
        column.observe(value, type_, here, row)


class _Column:
    """What was seen of one attribute so far."""

    def __init__(self, type_: Type, row: int) -> None:
        self.type = type_
        self.row = row
        self.least: Scalar = None
        self.greatest: Scalar = None
        self.unbounded = False
        self.scale = 0
        self.no_float: int | None = None
        """The row of an integer that no float equals."""

    def observe(self, value: Scalar, type_: Type, path: _Path, row: int) -> None:
        if type_ is not self.type:
            wider = _WIDER.get(frozenset({type_, self.type}))
            if wider is None:
                raise _mixture(path, self.type, self.row, type_, row)
            self.type = wider
        if isinstance(value, str | bool):
            return
        if isinstance(value, int) and self.no_float is None and float(value) != value:
            self.no_float = row
        if self.type is Type.FLOAT and self.no_float is not None:
            raise SchemaError(
                f"schema: attribute {show_name(path)} has floats, and in row {self.no_float} an integer that no float "
                "equals; make them all decimals"
            )
        if isinstance(value, float) and not math.isfinite(value):
            self.unbounded = True
            return
        if isinstance(value, Decimal):
            exponent = value.as_tuple().exponent
            assert isinstance(exponent, int)
            self.scale = max(self.scale, -exponent)
        if self.least is None or value < self.least:  # type: ignore[operator]
            self.least = value
        if self.greatest is None or value > self.greatest:  # type: ignore[operator]
            self.greatest = value

    def attribute(self, path: _Path) -> Attribute:
        precision: int | Decimal | None = None
        if self.type is Type.INTEGER:
            precision = 1
        elif self.type is Type.DECIMAL:
            precision = Decimal((0, (1,), -self.scale))
        least = None if self.unbounded else self._bound(self.least)
        greatest = None if self.unbounded else self._bound(self.greatest)
        return Attribute(join_name(path), self.type, least, greatest, precision)

    def _bound(self, value: Scalar) -> Bound | None:
        if self.type is Type.FLOAT and value is not None:
            return Decimal(repr(float(value) + 0.0))  # type: ignore[arg-type]  # + 0.0 makes -0.0 a plain zero
        assert value is None or isinstance(value, int | Decimal | datetime)
        return value


def _mixture(path: _Path, before: str, before_row: int, now: str, row: int) -> SchemaError:
    return SchemaError(
        f"schema: attribute {show_name(path)} is of type {before} in row {before_row} and {now} in row {row}; "
        "convert one of them, or give the schema"
    )
