"""Attributes as columns of a table, whatever the table: what Arrow and Spark have in common.

- An integer is a 64-bit column; where the schema's bounds lie outside 64 bits it is DECIMAL(38, 0).
- A decimal is DECIMAL(p, s): s from the precision (and the minimum, where the grid starts), p from the larger bound.
  Without bounds p is 38; without a precision the column is DECIMAL(38, 18).
- What a column's type cannot say (that a DECIMAL(38, 0) is an integer; minimum, maximum, precision) stands in notes
  beside the column, its metadata, so that a schema comes back as it went in. A note about another type than the column
  has now is ignored: somebody cast the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal

from meetpoint.errors import SchemaError
from meetpoint.language.names import join_name
from meetpoint.language.schema.attribute import Attribute, read_bound, write_bound
from meetpoint.language.values import DIGITS_MAX, Type

__all__ = ["attribute_from_column", "decimal_size", "is_long_integer", "notes_of", "step_of_scale"]

DEFAULT_SCALE = 18
"""Digits after the point of a decimal column whose schema does not say the precision."""

_EXACT = Context(prec=DIGITS_MAX)
_TYPE_NOTE = "meetpoint.type"
_BOUND_NOTES = {"minimum": "meetpoint.min", "maximum": "meetpoint.max", "precision": "meetpoint.precision"}


def is_long_integer(attribute: Attribute) -> bool:
    """Whether an integer attribute needs more than 64 bits, by its bounds."""
    return any(
        isinstance(bound, int) and not -(2**63) <= bound < 2**63 for bound in (attribute.minimum, attribute.maximum)
    )


def decimal_size(attribute: Attribute) -> tuple[int, int]:
    """Precision and scale, p and s, of the column for a decimal; SchemaError where no column of 38 digits holds it."""
    if attribute.precision is None:
        return DIGITS_MAX, DEFAULT_SCALE
    scale = max(_scale(attribute.precision), 0 if attribute.minimum is None else _scale(attribute.minimum))
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
    """The step between two values of a decimal column: 0.01 for a scale of 2; None beyond our decimals."""
    return None if scale is None or abs(scale) >= DIGITS_MAX else Decimal((0, (1,), -scale))


def notes_of(attribute: Attribute) -> dict[str, str]:
    """The notes to put beside a column."""
    notes = {_TYPE_NOTE: str(attribute.type)}
    for field, note in _BOUND_NOTES.items():
        bound = getattr(attribute, field)
        if bound is not None:
            notes[note] = write_bound(bound)
    return notes


def attribute_from_column(path: tuple[str, ...], type_: Type, scale: int | None, notes: Mapping[str, str]) -> Attribute:
    """The attribute of a column of a type, with the scale that a decimal has, and with the notes beside it."""
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


def _scale(bound: object) -> int:
    """How many digits after the point a bound has, without trailing zeros."""
    assert isinstance(bound, Decimal)
    exponent = bound.normalize(_EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)
