"""Reading what clients send: strict JSON into structs. Whatever the bytes are, it gives a value or an ApiError."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeVar

import msgspec

from meetpoint.gateway.http.errors import ApiError

__all__ = ["Number", "check_json", "read_json", "read_raw", "read_text"]

T = TypeVar("T")


class Number(str):
    """The text of a number, as it was written."""

    __slots__ = ()


class _DuplicateKeyError(ValueError):
    pass


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) != len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return read


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_int=Number, parse_float=Number)
"""Leaves numbers as they are written: what they mean is decided where more is known of them."""
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)
"""The escapes of a text that is JSON, one after another."""


def read_text(data: bytes) -> str:
    """Bytes as UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "json", f"byte {error.start} is not UTF-8; encode the body as UTF-8", error.start) from None


def check_json(data: bytes) -> Any:
    """See that bytes are one JSON value without duplicate keys. It is returned, with numbers as texts."""
    text = read_text(data)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message = f"the body is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise ApiError(400, "json", message, error.pos) from None
    except _DuplicateKeyError as error:
        raise ApiError(400, "json", f"the key {str(error)[:100]!r} occurs twice in one object; keep one") from None
    except RecursionError:
        raise ApiError(400, "json", "the body nests too deep; flatten it") from None
    except ValueError as error:
        raise ApiError(400, "json", f"the body is not JSON: {error}") from None
    if (half := _half_of_a_pair(text)) is not None:
        message = f"{text[half : half + 6]} is half of a character; write both halves, or the character itself"
        raise ApiError(400, "json", message, half)
    return value


def _half_of_a_pair(text: str) -> int | None:
    """Where JSON escapes one of two surrogates without the other: that is no text, and no event can hold it."""
    if "\\u" not in text:
        return None
    return next((match.start("half") for match in _ESCAPES.finditer(text) if match["half"] is not None), None)


def read_json(data: bytes, wanted: type[T]) -> T:
    """A body as a struct."""
    check_json(data)
    return read_raw(data, wanted)


def read_raw(data: bytes, wanted: type[T], what: str = "the body") -> T:
    """JSON that was checked before, as a type."""
    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ApiError(422, "body", f"{what[:60]} does not fit: {error}; see /openapi.json") from None
