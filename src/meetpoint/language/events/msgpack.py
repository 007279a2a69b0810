"""Events as MessagePack, which encodes every type exactly and so needs no schema.

An event is the array [id, publisher, sequence, time, attributes]. Timestamps are MessagePack's own; a decimal is
extension type 1 and an integer beyond 64 bits extension type 2, both as ASCII text. Any well-formed encoding is read,
also a long form where a short one would do. Refused are duplicate keys, keys that are no strings, byte strings, lists,
other extension types, timestamps finer than a microsecond, and bytes after the event. On any bytes, reading raises
nothing but EventError.

msgspec keeps the last of duplicate keys and drops nanoseconds, without an error. Either makes the encoding of the
result differ from the input. So we encode the result again, which is fast, and walk through the bytes in Python only if
they differ (another program wrote them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

import msgspec

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.schema.schema import show_value
from meetpoint.language.values import NESTING_MAX, Attributes, Value, clean_attributes

__all__ = [
    "DECIMAL_EXTENSION",
    "INTEGER_EXTENSION",
    "attributes_from_msgpack",
    "attributes_to_msgpack",
    "from_msgpack",
    "to_msgpack",
]

DECIMAL_EXTENSION = 1
INTEGER_EXTENSION = 2

_FIELDS = ("id", "publisher", "sequence", "time", "attributes")
_DECIMAL = re.compile(rb"-?[0-9]{1,38}(?:\.[0-9]{1,38})?(?:E[+-]?[0-9]{1,2})?")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,37})")
_ENCODER = msgspec.msgpack.Encoder()


def to_msgpack(event: Event) -> bytes:
    """Return an event as MessagePack."""
    return _ENCODER.encode([event.id, event.publisher, event.sequence, event.time, _pack(event.attributes)])


def from_msgpack(data: bytes) -> Event:
    """Return an event from MessagePack; EventError says what is wrong."""
    try:
        array = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise EventError(f"event: is not MessagePack: {error}; send one complete event") from None
    except UnicodeDecodeError:
        raise EventError("event: is not MessagePack: a string is not UTF-8; encode texts as UTF-8") from None
    except RecursionError:
        raise EventError(f"event: nests deeper than {NESTING_MAX} objects; flatten it") from None
    if type(array) is not list or len(array) != len(_FIELDS):
        raise EventError(f"event: is not an array of {len(_FIELDS)}; send [{', '.join(_FIELDS)}]")
    event = Event(*array)
    if to_msgpack(event) != data:
        _Walk(data).value(0)
    return event


def attributes_to_msgpack(attributes: Attributes) -> bytes:
    """Return clean attributes, such as some of an event's, as MessagePack."""
    return _ENCODER.encode(_pack(attributes))


def attributes_from_msgpack(data: bytes) -> dict[str, Value]:
    """Return clean attributes from MessagePack; EventError says what is wrong."""
    try:
        attributes = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"attributes: are not MessagePack: {error}; send one complete map") from None
    if type(attributes) is not dict:
        raise EventError("attributes: are no map; send names and values")
    return clean_attributes(attributes)


def _pack(attributes: Attributes) -> dict[str, object]:
    """Return the attributes with decimals and long integers as extensions."""
    packed: dict[str, object] = {}
    for name, value in attributes.items():
        if type(value) is Decimal:
            packed[name] = msgspec.msgpack.Ext(DECIMAL_EXTENSION, str(value).encode())
        elif type(value) is int and not -(2**63) <= value < 2**64:
            packed[name] = msgspec.msgpack.Ext(INTEGER_EXTENSION, str(value).encode())
        elif isinstance(value, Mapping):
            packed[name] = _pack(value)
        else:
            packed[name] = value
    return packed


def _read_extension(code: int, data: memoryview) -> object:
    if code == DECIMAL_EXTENSION and _DECIMAL.fullmatch(data) is not None:
        return Decimal(str(data, "ascii"))
    if code == INTEGER_EXTENSION and _INTEGER.fullmatch(data) is not None:
        return int(str(data, "ascii"))
    if code in (DECIMAL_EXTENSION, INTEGER_EXTENSION):
        what = "decimal" if code == DECIMAL_EXTENSION else "integer"
        shown = show_value(bytes(data[:64]).decode("ascii", "backslashreplace"))
        raise EventError(f"event: extension type {code} holds {shown}; write {what} digits in ASCII, at most 38")
    raise EventError(
        f"event: extension type {code} is unknown; send {DECIMAL_EXTENSION} for a decimal, "
        f"{INTEGER_EXTENSION} for an integer beyond 64 bits"
    )


_DECODER = msgspec.msgpack.Decoder(ext_hook=_read_extension)

# How many bytes follow a first byte, for those that are all of it: a plain value or a fixed extension.
_FOLLOWING = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
# How many bytes hold the length.
_STRINGS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_TEXTS = (0xD9, 0xDA, 0xDB)
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_TIMESTAMP = 0xFF


class _Walk:
    """A walk through bytes that the decoder accepted, which finds what the decoder does not refuse."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def value(self, at: int) -> int:
        """Check the value at an offset and return where it ends."""
        first = self.data[at]
        at += 1
        if first <= 0x7F or first >= 0xE0:
            return at
        if first <= 0x8F:
            return self.map(at, first & 0x0F)
        if first <= 0x9F:
            return self.array(at, first & 0x0F)
        if first <= 0xBF:
            return at + (first & 0x1F)
        if first in _FOLLOWING:
            return at + _FOLLOWING[first]
        if first in _FIXED_EXTENSIONS:
            return self.extension(at, _FIXED_EXTENSIONS[first])
        for widths, read in (
            (_STRINGS, int.__add__), (_EXTENSIONS, self.extension), (_ARRAYS, self.array), (_MAPS, self.map)
        ):  # fmt: skip
            if first in widths:
                width = widths[first]
                return read(at + width, int.from_bytes(self.data[at : at + width]))
        raise AssertionError(f"{first:#x} begins no value")

    def array(self, at: int, length: int) -> int:
        for _ in range(length):
            at = self.value(at)
        return at

    def map(self, at: int, length: int) -> int:
        """Check a map; also the values that a repeated key displaced, which nothing else has seen."""
        keys: set[str] = set()
        for _ in range(length):
            first, end = self.data[at], self.value(at)
            if not 0xA0 <= first <= 0xBF and first not in _TEXTS:
                raise EventError(f"event, byte {at + 1}: a key is no string; give attributes names")
            key = msgspec.msgpack.decode(self.data[at:end], type=str)
            if key in keys:
                raise EventError(f"event, byte {at + 1}: key {show_value(key)} occurs twice; keep one of them")
            keys.add(key)
            at = self.value(end)
        return at

    def extension(self, at: int, length: int) -> int:
        """Check an extension: its type, then its data."""
        end = at + 1 + length
        if self.data[at] == _TIMESTAMP and length > 4:  # nanoseconds are the first 30 of 64 bits, or the first 32 of 96
            nanoseconds = int.from_bytes(self.data[at + 1 : at + 5]) >> (2 if length == 8 else 0)
            if nanoseconds % 1000:
                raise EventError(
                    f"event, byte {at + 1}: a timestamp has nanoseconds, and timestamps hold microseconds; round it"
                )
        return end
