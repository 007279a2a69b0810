"""JSON: what is written, how it is read with and without a schema, and what is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_from_json, attributes_to_json, from_json, to_json
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import NESTING_MAX, Type, Value
from tests.language.strategies import ATTRIBUTES, VALUES, events, exactly, refusal, rows_of, schemas

ALL = Schema(
    (*(Attribute(name, type_) for name, type_ in zip("ifdsbt", Type, strict=True)), Attribute("o.x", Type.DECIMAL))
)
ENVELOPE = '{"id":"e","publisher":"p","sequence":1,"time":"2026-01-02","attributes":%s}'


def read(text: str, schema: Schema | None = None) -> Value:
    return attributes_from_json('{"x":' + text + "}", schema)["x"]


def typed(type_: Type) -> Schema:
    return Schema((Attribute("x", type_),))


# Round trips: every row of the table in docs/events.md


@pytest.mark.parametrize("type_", Type)
@given(data=st.data())
def test_every_type_comes_back_with_a_schema(type_: Type, data: st.DataObject) -> None:
    value = data.draw(VALUES[type_])
    written = attributes_to_json({"x": value, "o": {"x": value}})
    schema = Schema((Attribute("x", type_), Attribute("o.x", type_)))
    assert exactly(attributes_from_json(written, schema)) == exactly({"x": value, "o": {"x": value}})


@pytest.mark.parametrize("type_", [Type.INTEGER, Type.STRING, Type.BOOLEAN])
@given(data=st.data())
def test_integers_strings_and_booleans_need_no_schema(type_: Type, data: st.DataObject) -> None:
    value = data.draw(VALUES[type_])
    assert exactly(attributes_from_json(attributes_to_json({"x": value}))) == exactly({"x": value})


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_floats_need_no_schema(value: float) -> None:
    assert exactly(attributes_from_json(attributes_to_json({"x": value}))) == exactly({"x": value})


@pytest.mark.parametrize("schema", [None, ALL], ids=["without a schema", "with one"])
def test_null_comes_back(schema: Schema | None) -> None:
    nothing = dict.fromkeys("ifdsbtoz")
    assert attributes_from_json(attributes_to_json(nothing), schema) == nothing
    assert attributes_from_json('{"o":{"x":null}}', schema) == {"o": {"x": None}}


@pytest.mark.slow
@given(st.data())
def test_whole_events_come_back(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    event = data.draw(events(rows_of(schema)))
    written = to_json(event)
    assert b"\n" not in written
    back = from_json(written, schema)
    assert exactly(msgspec.structs.asdict(back)) == exactly(msgspec.structs.asdict(event))
    assert to_json(back) == written
    assert from_json(written.decode(), schema).id == event.id


@given(ATTRIBUTES)
def test_what_is_written_is_json_to_anyone(attributes: dict[str, Value]) -> None:
    def refuse(word: str) -> object:
        raise AssertionError(word)

    assert set(json.loads(attributes_to_json(attributes), parse_constant=refuse)) == set(attributes)


def test_the_spelling_of_an_event_is_fixed() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    attributes: dict[str, Value] = {
        "i": 2**70, "f": 1e22, "n": math.nan, "p": math.inf, "m": -math.inf, "d": Decimal("8.30"), "e": Decimal("1E+3"),
        "s": 'a"\n🙂', "b": True, "t": when, "z": None, "o": {"x": -0.0},
    }  # fmt: skip
    assert to_json(Event("e1", "nyse", 7, when, attributes)).decode() == (
        '{"id":"e1","publisher":"nyse","sequence":7,"time":"2026-01-02T03:04:05.000000Z","attributes":'
        '{"i":1180591620717411303424,"f":1e+22,"n":"NaN","p":"Infinity","m":"-Infinity","d":8.30,"e":1E+3,'
        '"s":"a\\"\\n🙂","b":true,"t":"2026-01-02T03:04:05.000000Z","z":null,"o":{"x":-0.0}}}'
    )


# Reading


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("8.30", None, 8.3),
        ("8.30", Type.FLOAT, 8.3),
        ("8.30", Type.DECIMAL, Decimal("8.30")),
        ("5", None, 5),
        ("5", Type.INTEGER, 5),
        ("5", Type.FLOAT, 5.0),
        ("5", Type.DECIMAL, Decimal("5")),
        ("5e0", None, 5.0),
        ("1E+3", Type.DECIMAL, Decimal("1E+3")),
        ("-0.0", None, -0.0),
        ("-0.00", Type.DECIMAL, Decimal("-0.00")),
        ("-0", None, 0),
        ("9007199254740992", Type.FLOAT, 9007199254740992.0),
        ("0.10000000000000000555", Type.DECIMAL, Decimal("0.10000000000000000555")),
        ("9" * 38, None, int("9" * 38)),
        ("-" + "9" * 38, None, -int("9" * 38)),
        ("9" * 38, Type.DECIMAL, Decimal("9" * 38)),
        ("1e308", None, 1e308),
        ("1e-400", None, 0.0),
        ('"NaN"', None, "NaN"),
        ('"NaN"', Type.STRING, "NaN"),
        ('"Infinity"', Type.FLOAT, math.inf),
        ('"-Infinity"', Type.FLOAT, -math.inf),
        ('"2026-01-02"', None, "2026-01-02"),
        ('"2026-01-02"', Type.TIMESTAMP, datetime(2026, 1, 2, tzinfo=UTC)),
        ('"2026-01-02 03:04:05.5+01:00"', Type.TIMESTAMP, datetime(2026, 1, 2, 2, 4, 5, 500000, tzinfo=UTC)),
        ('"\\u0000\\ud83d\\ude42"', None, "\x00🙂"),
        ('""', Type.STRING, ""),
    ],
)
def test_a_value_is_read_as_the_schema_says(text: str, type_: Type | None, value: Value) -> None:
    assert exactly(read(text, None if type_ is None else typed(type_))) == exactly(value)


@pytest.mark.parametrize(
    ("text", "type_", "words"),
    [
        ("9" * 39, None, "is an integer of more than 38 digits; send it as a string"),
        pytest.param("9" * 5000, None, "is an integer of more than 38 digits; send it as a string", id="5000 digits"),
        pytest.param("9" * 5000, Type.DECIMAL, "is an integer of more than 38 digits", id="5000 digits"),
        ("1e400", None, "is 1e400, beyond every float; send a smaller number or a string"),
        ("-1e400", Type.FLOAT, "is -1e400, beyond every float"),
        ("1e38", Type.DECIMAL, "is 1E+38, which a decimal of 38 digits does not hold"),
        ("1e99999999999999999999", Type.DECIMAL, "beyond every decimal"),
        ("0." + "1" * 39, Type.DECIMAL, "which a decimal of 38 digits does not hold"),
        ("9007199254740993", Type.FLOAT, "is 9007199254740993, which no float equals; declare a decimal, or round it"),
        ("5.0", Type.INTEGER, "is 5.0; the schema says integer: write it without fraction and exponent"),
        ("5e0", Type.INTEGER, "is 5e0; the schema says integer"),
        ("NaN", None, 'is NaN, which is not JSON; write null, or "NaN" where a schema says float'),
        ("NaN", Type.FLOAT, "is NaN, which is not JSON"),
        ("-Infinity", Type.DECIMAL, "is -Infinity, which is not JSON"),
        ('"nan"', Type.FLOAT, "is 'nan', a string; send a float"),
        ('"NaN"', Type.DECIMAL, "is 'NaN', a string; send a decimal"),
        ('"8.30"', Type.DECIMAL, "is '8.30', a string; send a decimal"),
        ('"5"', Type.INTEGER, "is '5', a string; send an integer"),
        ("true", Type.INTEGER, "is True, a boolean; send an integer"),
        ("1", Type.BOOLEAN, "is 1, an integer; send a boolean"),
        ("1", Type.STRING, "is 1, an integer; send a string"),
        ("1767322800", Type.TIMESTAMP, "is 1767322800, an integer; send a timestamp"),
        ('"2026-02-30"', Type.TIMESTAMP, "is wrong: '2026-02-30' has day 30; days of 2026-02 are 01 to 28"),
        ('"2026-01-02T03:04:05.1234567"', Type.TIMESTAMP, "has more than 6 digits of a second; round it"),
        ("{}", Type.INTEGER, "is an object; send an integer"),
        ("[]", None, "is a list; send an object with a name for each part, or a string"),
        ("[1]", Type.INTEGER, "is a list; send an object"),
        ('"\\ud800"', None, "holds a lone surrogate at offset 0"),
        ('"\\ude42\\ud83d"', Type.STRING, "holds a lone surrogate at offset 0"),
    ],
)
def test_a_value_is_refused_with_its_attribute_and_the_next_step(text: str, type_: Type | None, words: str) -> None:
    with pytest.raises(EventError) as caught:
        read(text, None if type_ is None else typed(type_))
    assert str(caught.value).startswith("event: attribute x ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "event, line 1, column 1: is not JSON: "),
        (b'{"a":', "event, line 1, column 6: is not JSON: "),
        (b'{"a":1', "event, line 1, column 7: is not JSON: "),
        (b'{"a":1}\n{"b":2}', "event, line 2, column 1: is not JSON: Extra data; write one complete JSON object"),
        (b'{"a":01}', "event, line 1, column 7: is not JSON: "),
        (b'{"a":.5}', "event, line 1, column 6: is not JSON: "),
        (b'{"a":+5}', "event, line 1, column 6: is not JSON: "),
        (b"{'a':1}", "event, line 1, column 2: is not JSON: "),
        (b'{"a":"\n"}', "event, line 1, column 7: is not JSON: "),
        (b'{"a":"\xff"}', "event, byte 7: is not UTF-8; encode the JSON as UTF-8"),
        ('{"a":1}'.encode("utf-16"), "event, byte 1: is not UTF-8"),
        (b"\xef\xbb\xbf{}", "event, line 1, column 1: starts with a byte order mark; write UTF-8 without it"),
        (b"[]", "event, line 1, column 1: is a list; write one JSON object in braces"),
        (b"null", "event, line 1, column 1: is null; write one JSON object in braces"),
        (b"5.0", "event, line 1, column 1: is 5.0; write one JSON object in braces"),
        (b"NaN", "event, line 1, column 1: is NaN; write one JSON object in braces"),
        (b'"text"', "event, line 1, column 1: is 'text'; write one JSON object in braces"),
        pytest.param(b'{"a":' * 100_000, "event: nests deeper than 32 objects; flatten it", id="deep"),
        pytest.param(b"[" * 100_000, "event: nests deeper than 32 objects; flatten it", id="deep"),
        (b'{"":1}', "event: attribute name '' is not a non-empty string; rename it"),
        (b'{"o":5}', "event: attribute o is 5; send an object"),
        (b'{"o":{"x":[]}}', "event: attribute o.x is a list"),
    ],
)
def test_what_is_no_object_of_attributes_is_refused_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(EventError) as caught:
        attributes_from_json(data, ALL)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a":1,"a":1}', "event, line 1, column 8: key 'a' occurs twice in one object; keep one of them"),
        ('{"a":1,\n  "a":2}', "event, line 2, column 3: key 'a'"),
        ('{"a":1,"\\u0061":2}', "event, line 1, column 8: key 'a'"),
        ('{"a":{"b":1},"c":{"b":1,"d":"{\\"b\\"","b":2}}', "event, line 1, column 38: key 'b'"),
        ('{"a":[{"b":"b"},{"b":1,"b":1}]}', "event, line 1, column 24: key 'b'"),
        ('{"a":[1,"a","a"],"a":1}', "event, line 1, column 18: key 'a'"),
        ('{"":1,"":1}', "event, line 1, column 7: key ''"),
    ],
)
def test_a_duplicate_key_is_refused_with_its_position(text: str, words: str) -> None:
    with pytest.raises(EventError) as caught:
        attributes_from_json(text)
    assert str(caught.value).startswith(words)


def test_objects_nest_to_the_limit_and_no_deeper() -> None:
    def nest(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    assert attributes_to_json(attributes_from_json(nest(NESTING_MAX))).decode() == nest(NESTING_MAX)
    with pytest.raises(EventError, match=r"objects nest deeper than 32 at a\.a"):
        attributes_from_json(nest(NESTING_MAX + 1))


def test_attributes_that_the_schema_lacks_are_read_as_without_one() -> None:
    assert exactly(attributes_from_json('{"z":8.30,"o":{"y":8.30,"x":8.30}}', ALL)) == exactly(
        {"z": 8.3, "o": {"y": 8.3, "x": Decimal("8.30")}}
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"id":"e",', "", "event: key id is missing; an event has id, publisher, sequence, time, attributes"),
        ('"id"', '"idd"', "event: unknown key 'idd'; did you mean id?"),
        ('"id":"e"', '"id":"e","price":1', "event: unknown key 'price'; what the event says belongs within attributes"),
        ('"e"', "5", "event: id is 5; it must be a string"),
        ('"e"', "5.0", "event: id is 5.0; it must be a string"),
        ('"e"', '""', "event: id is empty"),
        ('"p"', "null", "event: publisher is null; it must be a string"),
        (":1,", ":1.0,", "event: sequence is 1.0; it must be an integer from 0 to 2**63 - 1"),
        (":1,", ":true,", "event: sequence is true; it must be an integer"),
        (":1,", ":-1,", "event: sequence is -1; it must be"),
        (":1,", ":9223372036854775808,", "event: sequence is 9223372036854775808; it must be"),
        pytest.param(":1,", f":{'9' * 5000},", "event: sequence is 999", id="5000 digits"),
        ("2026-01-02", "2026-01-32", "event: time is wrong: '2026-01-32' has day 32"),
        ('"2026-01-02"', "0", "event: time is 0; it must be a string"),
        ("{}", "[]", "event: attributes is a list; it must be an object"),
        ("{}", '{"o":{"x":true}}', "event: attribute o.x is True, a boolean; send a decimal"),
    ],
)
def test_a_bad_envelope_is_refused_with_its_field(old: str, new: str, words: str) -> None:
    good = ENVELOPE % "{}"
    assert from_json(good, ALL).sequence == 1
    with pytest.raises(EventError) as caught:
        from_json(good.replace(old, new, 1), ALL)
    assert str(caught.value).startswith(words)


JSON_LIKE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from("ifdsbto") | st.text(max_size=3), below, max_size=4)
    ),
    max_leaves=8,
)


@given(
    st.binary() | st.text() | JSON_LIKE.map(json.dumps) | JSON_LIKE.map(json.dumps).map(lambda text: ENVELOPE % text)
)
@example('{"a":' * 100_000)
@example("9" * 5000)
@example("\ud800")
@example('{"\ud800":[1]}')
def test_reading_anything_raises_nothing_but_event_error(data: bytes | str) -> None:
    for schema in (None, ALL):
        for reader in (from_json, attributes_from_json):
            text = refusal(partial(reader, data, schema))
            assert "\n" not in text
            assert text.encode().decode() == text
