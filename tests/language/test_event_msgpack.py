"""MessagePack: every type exactly, without a schema; nothing read that was not meant."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import DECIMAL_EXTENSION, INTEGER_EXTENSION, from_msgpack, to_msgpack
from meetpoint.language.values import NESTING_MAX, Type, Value
from tests.language.strategies import INTEGER_MAX, VALUES, events, exactly, refusal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEAD = b"\x95\xa1e\xa1p\x00\xd6\xff\x00\x00\x00\x00"
"""An event up to its attributes: ["e", "p", 0, the epoch, ..."""


def read(attributes: bytes) -> dict[str, Value]:
    return from_msgpack(HEAD + attributes).attributes


def extension(code: int, data: bytes) -> bytes:
    return b"\x81\xa1x\xc7" + struct.pack(">Bb", len(data), code) + data


@pytest.mark.parametrize("type_", Type)
@given(data=st.data())
def test_every_type_comes_back(type_: Type, data: st.DataObject) -> None:
    value = data.draw(VALUES[type_])
    event = Event("e", "p", 0, EPOCH, {"x": value, "o": {"x": value}})
    assert exactly(from_msgpack(to_msgpack(event)).attributes) == exactly(event.attributes)


def test_null_and_nested_objects_come_back() -> None:
    event = Event("e", "p", 0, EPOCH, {"x": None, "o": {"x": None, "p": {}}})
    assert from_msgpack(to_msgpack(event)).attributes == {"x": None, "o": {"x": None, "p": {}}}


@given(events())
def test_whole_events_come_back(event: Event) -> None:
    written = to_msgpack(event)
    back = from_msgpack(written)
    assert exactly(msgspec.structs.asdict(back)) == exactly(msgspec.structs.asdict(event))
    assert to_msgpack(back) == written


def test_the_bytes_of_an_event_are_fixed() -> None:
    event = Event("e", "p", 0, EPOCH, {"d": Decimal("8.30"), "i": 2**64, "j": 2**64 - 1, "t": EPOCH})
    assert to_msgpack(event) == (
        HEAD
        + b"\x84\xa1d\xd6\x018.30\xa1i\xc7\x14\x0218446744073709551616\xa1j\xcf"
        + b"\xff" * 8
        + b"\xa1t\xd6\xff\x00\x00\x00\x00"
    )


@pytest.mark.parametrize(
    ("value", "is_extension"),
    [
        (2**64 - 1, False),
        (2**64, True),
        (-(2**63), False),
        (-(2**63) - 1, True),
        (INTEGER_MAX, True),
        (-INTEGER_MAX, True),
    ],
)
def test_only_integers_beyond_64_bits_are_extensions(value: int, is_extension: bool) -> None:
    written = to_msgpack(Event("e", "p", 0, EPOCH, {"x": value}))
    assert (str(value).encode() in written) is is_extension
    assert from_msgpack(written).attributes == {"x": value}


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        (b"\xde\x00\x01\xd9\x01x\xd1\x00\x05", 5),
        (b"\xdf\x00\x00\x00\x01\xda\x00\x01x\xd3" + b"\x00" * 7 + b"\x05", 5),
        (b"\x81\xdb\x00\x00\x00\x01x\xca\x3f\x80\x00\x00", 1.0),
        (b"\x81\xa1x\xd9\x01y", "y"),
        (b"\x81\xa1x\xc7\x0c\xff" + b"\x00" * 12, EPOCH),
        (b"\x81\xa1x\xd7\xff" + (1000 << 34).to_bytes(8), EPOCH.replace(microsecond=1)),
        (b"\x81\xa1x\xc8\x00\x0c\xff" + b"\x00" * 12, EPOCH),
        (b"\x81\xa1x\xd4\x015", Decimal(5)),
        (b"\x81\xa1x\xd4\x025", 5),
        (b"\x81\xa1x\xd8\x01" + b"0000000000000.50", Decimal("0.50")),
        (b"\x81\xa1x\xdf\x00\x00\x00\x00", {}),
        (b"\x81\xa1x\xe0", -32),
        (b"\x82\xa1y\xc2\xa1x\xcc\x05", 5),
    ],
)
def test_long_forms_of_other_programs_are_read(attributes: bytes, value: Value) -> None:
    assert exactly(read(attributes)["x"]) == exactly(value)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (b"\x82\xa1x\x01\xa1x\x01", "event, byte 17: key 'x' occurs twice; keep one of them"),
        (b"\x82\xa1x\x01\xd9\x01x\x02", "event, byte 17: key 'x' occurs twice"),
        (b"\x82\xa1x\x81\x90\x01\xa1x\x02", "event, byte 17: a key is no string; give attributes names"),
        (b"\x82\xa1x\x81\xd4\x05\x00\x01\xa1x\x02", "event: extension type 5 is unknown"),
        (b"\x82\xa1x\x81\xd6\xff\x00\x00\x00\x00\x01\xa1x\x02", "event, byte 17: a key is no string"),
        (b"\x82\xa1x\x81\xc4\x01a\x01\xa1x\x02", "event, byte 17: a key is no string"),
        (b"\x81\xa1o\x82\xa1x\xc3\xa1x\xc2", "event, byte 20: key 'x' occurs twice"),
        (
            b"\x83\xa1a\xca\x3f\x80\x00\x00\xa1b\xd6\xff\x00\x00\x00\x00\xa1a\x01",
            "event, byte 29: key 'a' occurs twice",
        ),
        (b"\x81\x01\x01", "event: attribute name 1 is not a non-empty string; rename it"),
        (b"\x81\xc0\x01", "event: attribute name None is not a non-empty string"),
        (b"\x81\xc4\x01x\x01", "event: attribute name b'x' is not a non-empty string"),
        (b"\x81\xa0\x01", "event: attribute name '' is not a non-empty string"),
        (b"\x81\x80\x01", "event: is not MessagePack: "),
        (b"\x81\xa1x\xc4\x01x", "event: attribute x is of class bytes"),
        (b"\x81\xa1x\x91\x01", "event: attribute x is of class list"),
        (
            b"\x81\xa1x\xd4\x03x",
            "event: extension type 3 is unknown; send 1 for a decimal, 2 for an integer beyond 64 bits",
        ),
        (b"\x81\xa1x\xd4\xfex", "event: extension type -2 is unknown"),
        (b"\x81\xa1\xff\x01", "event: is not MessagePack: a string is not UTF-8"),
        (b"\x81\xa1x\xa3\xed\xa0\x80", "event: is not MessagePack: a string is not UTF-8"),
        (b"\x81\xa1x\xc1", "event: is not MessagePack: "),
        (b"\x81\xa1x", "event: is not MessagePack: "),
        (b"\xdf\xff\xff\xff\xff", "event: is not MessagePack: "),
        (b"\x80\xc0", "event: is not MessagePack: "),
        pytest.param(b"\x81\xa1x" * 100_000 + b"\x01", "event: nests deeper than 32 objects; flatten it", id="deep"),
        (b"\x81\xa1x" * (NESTING_MAX + 1) + b"\x01", "event: objects nest deeper than 32 at x.x"),
        (b"\x81\xa1x\xc7\x0c\xff\x00\x00\x00\x01" + b"\x00" * 8, "event, byte 18: a timestamp has nanoseconds"),
        (b"\x81\xa1x\xd7\xff" + (1001 << 34).to_bytes(8), "event, byte 17: a timestamp has nanoseconds"),
        (b"\x81\xa1x\xc7\x0c\xff\x00\x00\x00\x00" + b"\x7f" * 8, "event: is not MessagePack: "),
        (b"\x81\xa1x\xc7\x0c\xff\x3b\x9a\xca\x00" + b"\x00" * 8, "event: is not MessagePack: "),
        (b"\x81\xa1x\xc7\x03\xffabc", "event: is not MessagePack: "),
        (b"\xc0", "event: attributes is of class NoneType; it must be a dict"),
    ],
)
def test_what_no_event_says_is_refused(attributes: bytes, words: str) -> None:
    with pytest.raises(EventError) as caught:
        read(attributes)
    assert str(caught.value).startswith(words)


def test_objects_nest_to_the_limit() -> None:
    read(b"\x81\xa1x" * NESTING_MAX + b"\x01")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x",
        b"NaN",
        b"Infinity",
        b"+5",
        b" 5",
        b"5_0",
        b"1e5",
        b".5",
        b"5.",
        b"1E+100",
        b"9" * 39,
        b"\xd9\xa5",
        b"5\n",
    ],
)
def test_a_decimal_that_is_not_one_is_refused(text: bytes) -> None:
    with pytest.raises(EventError, match=r"extension type 1 holds .*; write decimal digits in ASCII, at most 38"):
        read(extension(DECIMAL_EXTENSION, text))


@pytest.mark.parametrize("text", [b"1E+38", b"1E-39", b"9" * 38 + b".5"])
def test_a_decimal_of_too_many_digits_is_refused(text: bytes) -> None:
    with pytest.raises(EventError, match=r"event: attribute x is .*, which a decimal of 38 digits does not hold"):
        read(extension(DECIMAL_EXTENSION, text))


@pytest.mark.parametrize("text", [b"", b"x", b"5.0", b"+5", b"05", b"-", b"9" * 39, b"\xd9\xa5"])
def test_an_integer_that_is_not_one_is_refused(text: bytes) -> None:
    with pytest.raises(EventError, match=r"extension type 2 holds .*; write integer digits in ASCII, at most 38"):
        read(extension(INTEGER_EXTENSION, text))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "event: is not MessagePack: "),
        (b"\x90", "event: is not an array of 5; send [id, publisher, sequence, time, attributes]"),
        (b"\x80", "event: is not an array of 5"),
        (b"\x94\xa1e\xa1p\x00\xd6\xff\x00\x00\x00\x00", "event: is not an array of 5"),
        (b"\x96" + HEAD[1:] + b"\x80\xc0", "event: is not an array of 5"),
        (HEAD.replace(b"\xa1e", b"\x05") + b"\x80", "event: id is of class int; it must be a str"),
        (HEAD.replace(b"\xa1p", b"\xa0") + b"\x80", "event: publisher is empty"),
        (HEAD.replace(b"p\x00", b"p\xff") + b"\x80", "event: sequence is -1; it must be"),
        (HEAD.replace(b"p\x00", b"p\xcf\x80" + b"\x00" * 7) + b"\x80", "event: sequence is 9223372036854775808"),
        (b"\x95\xa1e\xa1p\x00\x00\x80", "event: time is of class int; it must be a datetime"),
        (b"\x95\xa1e\xa1p\x00\xd7\xff" + (1 << 34).to_bytes(8) + b"\x80", "event, byte 8: a timestamp has nanoseconds"),
    ],
)
def test_a_bad_envelope_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(EventError) as caught:
        from_msgpack(data)
    assert str(caught.value).startswith(words)


@given(
    st.binary() | st.binary().map(lambda data: HEAD + data) | st.binary().map(lambda data: HEAD + b"\x82\xa1a" + data)
)
@example(b"\x91" * 100_000)
def test_reading_anything_raises_nothing_but_event_error(data: bytes) -> None:
    assert "\n" not in refusal(lambda: from_msgpack(data))


@given(events(), st.data())
def test_a_flipped_byte_raises_nothing_but_event_error(event: Event, data: st.DataObject) -> None:
    written = bytearray(to_msgpack(event))
    written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    assert "\n" not in refusal(lambda: from_msgpack(bytes(written)))
