"""Values of attributes: their types, their kinds, and the values that an event may hold.

A schema declares one of six *types*. A constraint compares one of four *kinds*: integers, floats and decimals are all
numbers. Values are Python objects of exactly these classes: int, float, Decimal, str, bool, datetime (aware, UTC),
None, and dict for a nested object.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from meetpoint.errors import EventError
from meetpoint.language.names import show_name

__all__ = [
    "DIGITS_MAX",
    "NESTING_MAX",
    "Attributes",
    "Kind",
    "Scalar",
    "Type",
    "Value",
    "clean_attributes",
    "fits_decimal",
    "kind_of",
    "text_problem",
    "to_utc",
    "type_of",
]

Scalar: TypeAlias = int | float | Decimal | str | bool | datetime | None
Value: TypeAlias = "Scalar | Mapping[str, Value]"
Attributes: TypeAlias = Mapping[str, Value]

DIGITS_MAX = 38
"""Digits of an exact number: a 128-bit decimal of Arrow and Spark holds so many."""

NESTING_MAX = 32
"""Levels of nested objects in an event."""


class Kind(StrEnum):
    """A kind of values that constraints compare. Values of different kinds never compare: the answer is NULL."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


class Type(StrEnum):
    """A type that a schema declares for an attribute."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"

    @property
    def kind(self) -> Kind:
        return _TYPE_KINDS[self]


_TYPE_KINDS = {
    Type.INTEGER: Kind.NUMBER,
    Type.FLOAT: Kind.NUMBER,
    Type.DECIMAL: Kind.NUMBER,
    Type.STRING: Kind.STRING,
    Type.BOOLEAN: Kind.BOOLEAN,
    Type.TIMESTAMP: Kind.TIMESTAMP,
}
_CLASS_TYPES: dict[type, Type] = {
    int: Type.INTEGER,
    float: Type.FLOAT,
    Decimal: Type.DECIMAL,
    str: Type.STRING,
    bool: Type.BOOLEAN,
    datetime: Type.TIMESTAMP,
}
_CLASS_KINDS: dict[type, Kind] = {cls: type_.kind for cls, type_ in _CLASS_TYPES.items()}
_INTEGER_BOUND = 10**DIGITS_MAX


def kind_of(value: object) -> Kind | None:
    """Return the kind of a clean value; None for NULL and for a nested object."""
    return _CLASS_KINDS.get(type(value))


def type_of(value: object) -> Type | None:
    """Return the type of a clean value; None for NULL and for a nested object."""
    return _CLASS_TYPES.get(type(value))


def clean_attributes(attributes: Mapping[str, object]) -> dict[str, Value]:
    """Return a copy in which every value is checked and of one of the exact classes above.

    Naive timestamps are taken as UTC, aware ones are converted to UTC. Subclasses (an IntEnum, a numpy float) become
    their plain class. A value that cannot be held exactly is refused with the attribute's name.
    """
    return _clean_object(attributes, ())


def _clean_object(attributes: Mapping[str, object], path: tuple[str, ...]) -> dict[str, Value]:
    if len(path) >= NESTING_MAX:
        raise EventError(f"event: objects nest deeper than {NESTING_MAX} at {show_name(path)}; flatten the event")
    clean: dict[str, Value] = {}
    for name, value in attributes.items():
        if not isinstance(name, str) or not name:
            raise EventError(f"event: attribute name {name!r} is not a non-empty string; rename it")
        if (problem := text_problem(name)) is not None:
            raise EventError(f"event: the name of attribute {show_name((*path, name))} {problem}")
        if isinstance(value, dict) or (type(value) not in _CLASS_TYPES and isinstance(value, Mapping)):
            clean[str.__str__(name)] = _clean_object(value, (*path, name))
            continue
        try:
            clean[str.__str__(name)] = _clean_scalar(value)
        except ValueError as error:
            raise EventError(f"event: attribute {show_name((*path, name))} {error}") from None
    return clean


def _clean_scalar(value: object) -> Scalar:
    """Return a value in its plain class; the text of a ValueError begins with `is`, `has` or `holds`."""
    match value:
        case None | bool():
            return value
        case int():
            if not -_INTEGER_BOUND < value < _INTEGER_BOUND:
                raise ValueError(f"is an integer of more than {DIGITS_MAX} digits; send it as a string")
            return int(value)
        case float():
            return float(value)
        case str():
            if (problem := text_problem(value)) is not None:
                raise ValueError(problem)
            return str.__str__(value)  # not str(): a `class Colour(str, Enum)` would give "Colour.RED"
        case datetime():
            return to_utc(value)
        case Decimal():
            if not fits_decimal(value):
                raise ValueError(
                    f"is {_show(value)}, which a decimal of {DIGITS_MAX} digits does not hold; "
                    "round it, or send it as a float or a string"
                )
            return value if type(value) is Decimal else Decimal(value)
    raise ValueError(
        f"is of class {type(value).__name__}; "
        "an attribute holds an int, float, Decimal, str, bool, datetime, None or a nested dict of them"
    )


def to_utc(value: datetime) -> datetime:
    """Return an instant as a plain datetime in UTC; a naive one is taken as UTC. ValueError says what is wrong."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if value != value:  # pandas.NaT, which passes for a datetime
        raise ValueError("is NaT, not a time; use None")
    if getattr(value, "nanosecond", 0):  # pandas.Timestamp, a subclass of datetime
        raise ValueError("has nanoseconds, and timestamps hold microseconds; round it")
    try:
        aware = value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC; use a time within them") from None
    return datetime(
        aware.year, aware.month, aware.day, aware.hour, aware.minute, aware.second, aware.microsecond, tzinfo=UTC
    )


def fits_decimal(value: Decimal) -> bool:
    """Return whether some DECIMAL(38, s) with 0 <= s <= 38 holds the value exactly, as written."""
    sign_digits_exponent = value.as_tuple()
    exponent = sign_digits_exponent.exponent
    if not isinstance(exponent, int):  # NaN, Infinity
        return False
    digits = len(sign_digits_exponent.digits) + max(exponent, 0)
    return max(digits, -exponent) <= DIGITS_MAX


def _show(value: Decimal) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:60] + "…"


def text_problem(text: str) -> str | None:
    """Return why a text is not Unicode (it has a lone surrogate); None for a good text."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"holds a lone surrogate at offset {error.start}, which is not Unicode text; repair its encoding"
    return None
