"""One attribute of a schema: its name, its type, its bounds, and which values it may take.

- Integers are bounded by ints, decimals and floats by exact Decimals, timestamps by datetimes; strings and booleans
  have no bounds. Only numbers have a precision: the step between two values.
- The grid of values is `minimum + k * precision`, and `k * precision` where there is no minimum.
- A float is measured by its shortest decimal spelling: 0.1 lies on a grid of 0.1 and is not above a maximum of 0.1,
  although the double nearest to 0.1 is a little more.
- NaN lies within no bounds and on no grid; it is fine where neither is declared. An integer may stand for a float or a
  decimal that it equals exactly.
- NULL, and so a missing attribute, is always fine.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import msgspec

from meetpoint.errors import SchemaError
from meetpoint.language.names import join_name, show_name, split_name
from meetpoint.language.timestamps import format_timestamp, parse_timestamp
from meetpoint.language.values import DIGITS_MAX, Scalar, Type, fits_decimal, text_problem, to_utc, type_of

__all__ = ["Attribute", "Bound", "read_bound", "show_value", "with_article", "write_bound"]

Bound: TypeAlias = int | Decimal | datetime

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER_TYPES = (Type.INTEGER, Type.FLOAT, Type.DECIMAL)
_FLOAT_EXPONENT_MAX = 400
_TEXT_MAX = 400
_SHOWN_MAX = 60


class Attribute(msgspec.Struct, frozen=True):
    """A name (brought to its canonical spelling), a type and what is known of the values; SchemaError if they clash."""

    name: str
    type: Type
    minimum: Bound | None = None
    maximum: Bound | None = None
    precision: int | Decimal | None = None

    def __post_init__(self) -> None:
        try:
            name = join_name(split_name(self.name))
        except ValueError as error:
            raise SchemaError(f"schema: {error}; quote odd parts of a name with backticks") from None
        if (problem := text_problem(name)) is not None:
            raise SchemaError(f"schema: the name of attribute {show_name(split_name(name))} {problem}")
        msgspec.structs.force_setattr(self, "name", name)
        msgspec.structs.force_setattr(self, "type", Type(self.type))
        for field in ("minimum", "maximum", "precision"):
            given = getattr(self, field)
            if given is not None:
                try:
                    msgspec.structs.force_setattr(self, field, _check_bound(self.type, field, given))
                except ValueError as error:
                    raise SchemaError(f"schema: attribute {self.shown}: {field} {error}") from None
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:  # type: ignore[operator]
            raise SchemaError(
                f"schema: attribute {self.shown}: minimum {write_bound(self.minimum)} is above "
                f"maximum {write_bound(self.maximum)}; swap them"
            )

    @property
    def path(self) -> tuple[str, ...]:
        """The segments of the name."""
        return split_name(self.name)

    @property
    def shown(self) -> str:
        """The name as an error's text shows it."""
        return show_name(self.path)

    def widen(self, value: Scalar) -> Scalar:
        """The value as one of this attribute's type: an integer becomes the float or decimal that equals it.

        ValueError says what the value `is` where that cannot be done.
        """
        if value is None or (found := type_of(value)) is self.type:
            return value
        if found is Type.INTEGER and self.type is Type.DECIMAL:
            return Decimal(value)  # type: ignore[arg-type]
        if found is Type.INTEGER and self.type is Type.FLOAT:
            widened = float(value)  # type: ignore[arg-type]
            if widened != value:
                raise ValueError(f"is {show_value(value)}, which no float equals; declare a decimal, or round it")
            return widened
        raise ValueError(f"is {show_value(value)}, {with_article(found)}; send {with_article(self.type)}")

    def problem(self, value: Scalar) -> str | None:
        """What is wrong with a value of this attribute's type: that it lies outside the bounds or off the grid."""
        if value is None or (self.minimum is None and self.maximum is None and self.precision is None):
            return None
        if isinstance(value, float) and math.isnan(value):
            return "is NaN, which lies within no bounds; send null"
        measured = Decimal(repr(value)) if isinstance(value, float) else value
        if self.minimum is not None and measured < self.minimum:  # type: ignore[operator]
            return f"is {show_value(value)}, below the minimum {write_bound(self.minimum)}"
        if self.maximum is not None and measured > self.maximum:  # type: ignore[operator]
            return f"is {show_value(value)}, above the maximum {write_bound(self.maximum)}"
        if self.precision is not None and not self._on_grid(measured):
            origin = "" if self.minimum is None else f" from {write_bound(self.minimum)}"
            return f"is {show_value(value)}, not a whole number of steps of {self.precision}{origin}"
        return None

    def _on_grid(self, measured: object) -> bool:
        origin = 0 if self.minimum is None else self.minimum
        assert isinstance(measured, int | Decimal)
        assert isinstance(origin, int | Decimal)
        assert self.precision is not None
        if isinstance(measured, Decimal) and not measured.is_finite():
            return False
        steps = (Fraction(measured) - Fraction(origin)) / Fraction(
            self.precision
        )  # Decimal's own % rounds to 28 digits
        return bool(steps.denominator == 1)


def read_bound(type_: Type, field: str, text: str) -> Bound:
    """A minimum, maximum or precision from its text, exactly; ValueError says what it `is` instead."""
    if type_ is Type.TIMESTAMP and field != "precision":
        try:
            return parse_timestamp(text)
        except ValueError as error:
            raise ValueError(f"is wrong: {error}") from None
    if type_ not in _NUMBER_TYPES:
        raise ValueError(f"does not apply to {with_article(type_)}; remove it")
    if len(text) > _TEXT_MAX:
        raise ValueError(f"is a number of {len(text)} characters; at most {DIGITS_MAX} digits are exact: shorten it")
    if type_ is Type.INTEGER:
        if _INTEGER.fullmatch(text) is None:
            raise ValueError(f"is {show_value(text)}; write an integer, digits only")
        return _check_bound(type_, field, int(text))
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"is {show_value(text)}; write a number like 0.01")
    return _check_bound(type_, field, Decimal(text))


def write_bound(bound: Bound) -> str:
    """A bound as text; the inverse of `read_bound`."""
    return format_timestamp(bound) if isinstance(bound, datetime) else str(bound)


def show_value(value: object) -> str:
    """A value as an error's text shows it: on one line and short."""
    if isinstance(value, datetime):
        return format_timestamp(value)
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


def _check_bound(type_: Type, field: str, bound: object) -> Bound:
    """The bound in the class that the type wants; ValueError says what it `is` instead."""
    if type_ is Type.TIMESTAMP and field != "precision":
        if not isinstance(bound, datetime):
            raise ValueError(f"is of class {type(bound).__name__}; give a datetime")
        return to_utc(bound)
    if type_ not in _NUMBER_TYPES:
        raise ValueError(f"does not apply to {with_article(type_)}; remove it")
    if type(bound) is float and type_ is Type.FLOAT:
        bound = Decimal(repr(bound))
    if type_ is Type.INTEGER and type(bound) is not int:
        raise ValueError(f"is {show_value(bound)} of class {type(bound).__name__}; give an int")
    if type(bound) is int and type_ is not Type.INTEGER:
        bound = Decimal(bound)
    if not isinstance(bound, int | Decimal):
        raise ValueError(f"is of class {type(bound).__name__}; give a Decimal")
    if isinstance(bound, Decimal):
        _check_decimal(type_, bound)
    elif abs(bound) >= 10**DIGITS_MAX:
        raise ValueError(f"has more than {DIGITS_MAX} digits; shorten it")
    if field == "precision" and bound <= 0:
        raise ValueError(f"is {bound}; it must be above 0")
    return bound


def _check_decimal(type_: Type, bound: Decimal) -> None:
    if not bound.is_finite():
        raise ValueError(f"is {bound}; give a finite number or leave it out")
    if type_ is Type.DECIMAL and not fits_decimal(bound):
        raise ValueError(f"is {show_value(bound)}, which a decimal of {DIGITS_MAX} digits does not hold; shorten it")
    if len(bound.as_tuple().digits) > DIGITS_MAX or abs(bound.adjusted()) > _FLOAT_EXPONENT_MAX:
        raise ValueError(f"is {show_value(bound)}, outside the floats or of more than {DIGITS_MAX} digits; shorten it")


def with_article(type_: Type | None) -> str:
    """A type within a sentence: `an integer`; None is a nested object."""
    if type_ is None:
        return "an object"
    return f"an {type_}" if type_ is Type.INTEGER else f"a {type_}"
