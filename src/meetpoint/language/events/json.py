"""Events as JSON: one UTF-8 object, on one line when we write it.

JSON has fewer types than events, so a schema decides where a text or a number could mean two things:

| JSON | without a schema | with a schema that says so |
| --- | --- | --- |
| number without fraction and exponent | integer, exact to 38 digits | the float that equals it, or the decimal |
| number with fraction or exponent | float | decimal, exact, its trailing zeros kept |
| string | string | timestamp, or a float that is NaN or infinite |

Only a fraction is rounded in silence, to its nearest double: a float is nothing else. Attributes that a schema does not
mention are read as without a schema; `Schema.conform` refuses them. Refused are duplicate keys, the words NaN and
Infinity, numbers beyond the floats, lists, and all that is not JSON. On any bytes, reading raises nothing but
EventError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from json.encoder import encode_basestring
from typing import Any, NoReturn

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.names import show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree, show_value, with_article
from meetpoint.language.timestamps import format_timestamp, parse_timestamp
from meetpoint.language.values import DIGITS_MAX, NESTING_MAX, Attributes, Scalar, Type, Value, clean_attributes

__all__ = ["attributes_from_json", "attributes_to_json", "from_json", "to_json"]

_FIELDS = ("id", "publisher", "sequence", "time", "attributes")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]', re.DOTALL)


def to_json(event: Event) -> bytes:
    """Return an event as one line of JSON, without the line's end."""
    return (
        f'{{"id":{encode_basestring(event.id)},"publisher":{encode_basestring(event.publisher)},'
        f'"sequence":{event.sequence},"time":"{format_timestamp(event.time)}",'
        f'"attributes":{_write_object(event.attributes)}}}'
    ).encode()


def attributes_to_json(attributes: Mapping[str, object]) -> bytes:
    """Return attributes as one line of JSON, without the line's end."""
    return _write_object(clean_attributes(attributes)).encode()


def from_json(data: bytes | str, schema: Schema | None = None) -> Event:
    """Return an event from JSON; EventError has the place."""
    top = _decode(data)
    for key in top:
        if key not in _FIELDS:
            near = get_close_matches(key[:200], _FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "what the event says belongs within attributes"
            raise EventError(f"event: unknown key {show_value(key)}; {hint}")
    for field in _FIELDS:
        if field not in top:
            raise EventError(f"event: key {field} is missing; an event has {', '.join(_FIELDS)}")
    for field in ("id", "publisher", "time"):
        if type(top[field]) is not str:
            raise EventError(f"event: {field} is {_show_raw(top[field])}; it must be a string")
    if type(top["sequence"]) is not int:
        raise EventError(f"event: sequence is {_show_raw(top['sequence'])}; it must be an integer from 0 to 2**63 - 1")
    if type(top["attributes"]) is not dict:
        raise EventError(f"event: attributes is {_show_raw(top['attributes'])}; it must be an object")
    try:
        time = parse_timestamp(top["time"])
    except ValueError as error:
        raise EventError(f"event: time is wrong: {error}") from None
    attributes = _read_object(top["attributes"], {} if schema is None else schema.tree, ())
    return Event(top["id"], top["publisher"], top["sequence"], time, attributes)


def attributes_from_json(data: bytes | str, schema: Schema | None = None) -> dict[str, Value]:
    """Return attributes from a JSON object, such as a line of a JSON-lines file; EventError has the place."""
    return clean_attributes(_read_object(_decode(data), {} if schema is None else schema.tree, ()))


# Writing


def _write_object(attributes: Attributes) -> str:
    return "{" + ",".join([f"{encode_basestring(name)}:{_write(value)}" for name, value in attributes.items()]) + "}"


def _write(value: Value) -> str:
    match value:
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():  # str(Decimal) is a JSON number and keeps trailing zeros
            return str(value)
        case float():
            if math.isfinite(value):
                return repr(value)
            return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
        case datetime():
            return f'"{format_timestamp(value)}"'
    return _write_object(value)


# Reading: JSON's decoder leaves markers where a meaning is still open; they are resolved where the path is known.


class _Fraction(str):
    """The text of a number with a fraction or an exponent."""

    __slots__ = ()


class _LongInteger(str):
    """The text of an integer of too many digits."""

    __slots__ = ()


class _MinusZero(str):
    """The integer -0, which keeps its sign where a schema says float or decimal."""

    __slots__ = ()


class _Constant(str):
    """NaN, Infinity or -Infinity, which are words that JSON lacks."""

    __slots__ = ()


class _DuplicateKeyError(Exception):
    pass


def _read_integer(text: str) -> int | _LongInteger | _MinusZero:
    if len(text) > DIGITS_MAX + 1:  # int() raises a ValueError of its own at 4,300 digits
        return _LongInteger(text)
    return int(text) or (_MinusZero(text) if text == "-0" else 0)


def _read_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise _DuplicateKeyError
    return read


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_pairs, parse_float=_Fraction, parse_int=_read_integer, parse_constant=_Constant
)


def _decode(data: bytes | str) -> dict[str, Any]:
    if isinstance(data, str):
        text = data
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise EventError(f"event, byte {error.start + 1}: is not UTF-8; encode the JSON as UTF-8") from None
    if text.startswith("\ufeff"):
        raise EventError("event, line 1, column 1: starts with a byte order mark; write UTF-8 without it")
    try:
        top = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise EventError(f"event, {place}: is not JSON: {error.msg}; write one complete JSON object") from None
    except _DuplicateKeyError:
        _refuse_duplicate(text)
    except RecursionError:
        raise EventError(f"event: nests deeper than {NESTING_MAX} objects; flatten it") from None
    if type(top) is not dict:
        raise EventError(f"event, line 1, column 1: is {_show_raw(top)}; write one JSON object in braces")
    return top


def _refuse_duplicate(text: str) -> NoReturn:
    """Refuse the first key that repeats, in a text that is JSON up to there."""
    open_objects: list[set[str] | None] = []
    key_next = False
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{":
                open_objects.append(set())
                key_next = True
            case "[":
                open_objects.append(None)
            case "}" | "]":
                open_objects.pop()
            case ",":
                key_next = open_objects[-1] is not None
            case ":":
                key_next = False
            case quoted if key_next and (keys := open_objects[-1]) is not None:
                key = json.loads(quoted)
                if key in keys:
                    line = text.count("\n", 0, token.start()) + 1
                    column = token.start() - text.rfind("\n", 0, token.start())
                    place = f"event, line {line}, column {column}"
                    raise EventError(f"{place}: key {show_value(key)} occurs twice in one object; keep one of them")
                keys.add(key)
    raise AssertionError("the decoder met a duplicate key")


def _read_object(raw: dict[str, object], tree: SchemaTree, path: tuple[str, ...]) -> dict[str, Value]:
    if len(path) >= NESTING_MAX:
        raise EventError(f"event: objects nest deeper than {NESTING_MAX} at {show_name(path)}; flatten the event")
    read: dict[str, Value] = {}
    for name, value in raw.items():
        declared = tree.get(name)
        try:
            if type(value) is dict:
                if isinstance(declared, Attribute):
                    raise ValueError(f"is an object; send {with_article(declared.type)}")
                read[name] = _read_object(value, {} if declared is None else declared, (*path, name))
            elif isinstance(declared, dict):
                if value is not None:
                    raise ValueError(f"is {_show_raw(value)}; send an object")
                read[name] = None
            else:
                read[name] = _read_plain(value) if declared is None else _read_declared(value, declared)
        except ValueError as error:
            raise EventError(f"event: attribute {show_name((*path, name))} {error}") from None
    return read


def _read_plain(value: object) -> Scalar:
    """Return a scalar by JSON's own types; ValueError says what it `is` instead."""
    match value:
        case _Fraction():
            return _read_float(value)
        case _LongInteger():
            raise ValueError(f"is an integer of more than {DIGITS_MAX} digits; send it as a string")
        case _Constant():
            raise ValueError(f'is {value:s}, which is not JSON; write null, or "{value}" where a schema says float')
        case _MinusZero():
            return 0
        case None | bool() | int() | str():
            return value
    raise ValueError(f"is {_show_raw(value)}; send an object with a name for each part, or a string")


def _read_declared(value: object, attribute: Attribute) -> Scalar:
    """Return a scalar of the type that the schema declares; ValueError says what it `is` instead."""
    match attribute.type, value:
        case Type.FLOAT, _MinusZero():
            return -0.0
        case Type.DECIMAL, _Fraction() | _MinusZero():
            try:
                return Decimal(value)
            except InvalidOperation:  # an exponent of twenty digits
                raise ValueError(f"is {_show_raw(value)}, beyond every decimal; send a smaller one") from None
        case Type.INTEGER, _Fraction():
            raise ValueError(f"is {_show_raw(value)}; the schema says integer: write it without fraction and exponent")
        case Type.FLOAT, str() if type(value) is str and value in _NON_FINITE:
            return _NON_FINITE[value]
        case Type.TIMESTAMP, str() if type(value) is str:
            try:
                return parse_timestamp(value)
            except ValueError as error:
                raise ValueError(f"is wrong: {error}") from None
    return attribute.widen(_read_plain(value))


def _read_float(text: _Fraction) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"is {_show_raw(text)}, beyond every float; send a smaller number or a string")
    return value


def _show_raw(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Fraction() | _LongInteger() | _MinusZero() | _Constant():
            return show_value(str.__str__(value)).strip("'")
    return show_value(value)
