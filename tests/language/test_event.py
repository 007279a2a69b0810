"""The event itself: its envelope, its attributes, and the table of types in docs/events.md."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given

from meetpoint.errors import EventError
from meetpoint.language.events.arrow import arrow_schema
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import NESTING_MAX, Type, clean_attributes, type_of
from tests.language.strategies import ATTRIBUTES, events, exactly

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
DOCUMENT = Path(__file__).parents[2] / "docs" / "events.md"


def event(**changes: Any) -> Event:
    fields: dict[str, Any] = {"id": "e1", "publisher": "nyse", "sequence": 7, "time": NOW, "attributes": {}}
    return Event(**fields | changes)


def test_attributes_are_read_by_their_dotted_names() -> None:
    one = event(attributes={"order": {"price": Decimal("8.30"), "a.b": 1}, "a.b": {"c": 2}, "x": None})
    assert one.get("order.price") == Decimal("8.30")
    assert one.get("order.`a.b`") == 1
    assert one.get("`a.b`.c") == 2
    assert one.get("order") == {"price": Decimal("8.30"), "a.b": 1}
    assert one.get("x") is None
    assert one.get("y") is None
    assert one.get("x.y") is None


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        event().id = "other"  # type: ignore[misc]


def test_an_event_keeps_its_own_copy_of_the_attributes() -> None:
    attributes = {"order": {"price": 1}}
    one = event(attributes=attributes)
    attributes["order"]["price"] = 2
    assert one.get("order.price") == 1


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("id", "", "event: id is empty; give it at least one character"),
        ("id", 5, "event: id is of class int; it must be a str"),
        ("id", "\ud800", "event: id holds a lone surrogate at offset 0"),
        ("publisher", "", "event: publisher is empty"),
        ("publisher", None, "event: publisher is of class NoneType; it must be a str"),
        ("sequence", -1, "event: sequence is -1; it must be an int from 0 to 2**63 - 1"),
        ("sequence", 2**63, "event: sequence is 9223372036854775808; it must be"),
        pytest.param("sequence", 10**5000, "event: sequence is a huge integer; it must be", id="sequence-huge"),
        ("sequence", True, "event: sequence is of class bool; it must be"),
        ("sequence", 1.0, "event: sequence is of class float; it must be"),
        ("time", "2026-01-02", "event: time is of class str; it must be a datetime"),
        (
            "time",
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
            "event: time is outside the years 1 to 9999",
        ),
        ("attributes", [], "event: attributes is of class list; it must be a dict"),
        ("attributes", {"a": [1]}, "event: attribute a is of class list; an attribute holds"),
    ],
)
def test_a_bad_envelope_is_refused_with_its_field(field: str, value: object, words: str) -> None:
    with pytest.raises(EventError) as caught:
        event(**{field: value})
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("sequence", [0, 2**63 - 1])
def test_sequence_numbers_reach_from_0_to_the_end_of_64_bits(sequence: int) -> None:
    assert event(sequence=sequence).sequence == sequence


def test_a_naive_time_is_utc_and_an_aware_one_is_turned_to_it() -> None:
    assert event(time=NOW.replace(tzinfo=None)).time == NOW
    turned = event(time=NOW.astimezone(timezone(timedelta(hours=5)))).time
    assert exactly(turned) == exactly(NOW)


@given(events())
def test_an_event_survives_pickling_and_replacing(one: Event) -> None:
    assert exactly(msgspec.structs.asdict(pickle.loads(pickle.dumps(one)))) == exactly(msgspec.structs.asdict(one))
    assert msgspec.structs.replace(one, id="other").id == "other"
    with pytest.raises(EventError):
        msgspec.structs.replace(one, id="")


@given(ATTRIBUTES)
def test_clean_attributes_stay_as_they_are(attributes: dict[str, Any]) -> None:
    assert exactly(clean_attributes(attributes)) == exactly(attributes)


class Colour(str, Enum):  # noqa: UP042 (whose str() is "Colour.RED")
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Money(Decimal):
    pass


@pytest.mark.parametrize(
    ("given_value", "plain"),
    [
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        (Money("8.30"), Decimal("8.30")),
        (datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
        (OrderedDict(a=1), {"a": 1}),
    ],
)
def test_subclasses_become_their_plain_class(given_value: object, plain: object) -> None:
    assert exactly(clean_attributes({"x": given_value})["x"]) == exactly(plain)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10**38, "is an integer of more than 38 digits; send it as a string"),
        (-(10**38), "is an integer of more than 38 digits"),
        (Decimal(10**38), "which a decimal of 38 digits does not hold; round it"),
        (Decimal("1E+38"), "which a decimal of 38 digits does not hold"),
        (Decimal("1E-39"), "which a decimal of 38 digits does not hold"),
        (Decimal("NaN"), "which a decimal of 38 digits does not hold"),
        (Decimal("-Infinity"), "which a decimal of 38 digits does not hold"),
        ("a\udfff", "holds a lone surrogate at offset 1, which is not Unicode text; repair its encoding"),
        (b"bytes", "is of class bytes"),
        (NOW.date(), "is of class date"),
        (1j, "is of class complex"),
        ((1, 2), "is of class tuple"),
    ],
)
def test_a_value_that_no_event_holds_is_refused_with_its_name(value: object, words: str) -> None:
    with pytest.raises(EventError) as caught:
        clean_attributes({"order": {"odd name": value}})
    assert str(caught.value).startswith("event: attribute order.`odd name` ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "value", [10**38 - 1, -(10**38) + 1, Decimal("9" * 38), Decimal("1E+37"), Decimal("1E-38"), "", "\x00🙂\U0010ffff"]
)
def test_the_largest_and_oddest_values_are_held(value: object) -> None:
    assert exactly(clean_attributes({"x": value})) == exactly({"x": value})


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "is not a non-empty string"), (5, "is not a non-empty string"), ("\ud800", "lone surrogate")],
)
def test_a_bad_name_is_refused(name: Any, words: str) -> None:
    with pytest.raises(EventError, match=words):
        clean_attributes({name: 1})


def test_objects_nest_to_the_limit_and_no_deeper() -> None:
    def nest(depth: int) -> dict[str, Any]:
        return {"a": nest(depth - 1)} if depth > 1 else {"a": 1}

    assert clean_attributes(nest(NESTING_MAX)) == nest(NESTING_MAX)
    with pytest.raises(EventError, match=f"nest deeper than {NESTING_MAX} at a.a.a.*; flatten"):
        clean_attributes(nest(NESTING_MAX + 1))


@pytest.mark.parametrize(
    "name", ["new\nline", "\x1b[31m", "x" * 100_000, "\ud800"], ids=["line", "escape", "long", "half"]
)
def test_an_error_is_one_short_line_whatever_the_name(name: str) -> None:
    with pytest.raises(EventError) as caught:
        clean_attributes({name: [1]})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def documented_rows() -> dict[str, list[str]]:
    """The rows of the one table of types in docs/events.md, by the name in their first cell."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| type | Python |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1:]
    return rows


EXAMPLES: dict[str, object] = {
    "integer": 12,
    "float": 8.3,
    "decimal": Decimal("8.30"),
    "string": "NYSE",
    "boolean": True,
    "timestamp": NOW,
    "null": None,
    "object": {"price": 8},
}


@pytest.mark.parametrize("name", [*Type, "null", "object"])
def test_the_document_has_a_row_for_every_type(name: str) -> None:
    assert name in documented_rows()


def test_the_document_has_no_row_for_anything_else() -> None:
    assert set(documented_rows()) == {*Type, "null", "object"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_document_says_of_python_and_json_is_true(name: str) -> None:
    python, json_cell, *_ = documented_rows()[name]
    value = EXAMPLES[name]
    assert python.startswith(f"`{'None' if value is None else type(value).__name__}`")
    written = attributes_to_json({"x": value}).decode()
    written = written.removeprefix('{"x":').removesuffix("}")
    assert f"`{written}`" in json_cell


@pytest.mark.parametrize("type_", Type)
def test_what_the_document_says_of_arrow_is_true(type_: Type) -> None:
    assert type_of(EXAMPLES[type_]) is type_
    arrow = documented_rows()[type_][3]
    assert arrow.startswith(f"`{arrow_schema(Schema((Attribute('x', type_),))).field('x').type}`")


def test_what_the_document_says_of_an_object_in_arrow_is_true() -> None:
    field = arrow_schema(Schema((Attribute("o.x", Type.INTEGER),))).field("o")
    assert pa.types.is_struct(field.type)
    assert documented_rows()["object"][3].startswith("`struct`")


def test_importing_the_language_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from meetpoint.language.events import arrow, json, msgpack\n"
        "import meetpoint.language\n"
        "heavy = {'yaml', 'pyarrow', 'pyspark', 'pandas', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
