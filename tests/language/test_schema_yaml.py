"""Schemas as YAML: what is read, what is written, and every refusal with its line and column."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meetpoint.errors import SchemaError
from meetpoint.language.schema.schema import Attribute, Bound, Schema
from meetpoint.language.values import Type
from tests.language.strategies import INTEGERS, TEXT, TIMESTAMPS, TRADES, decimals, exactly, schemas

SCHEMA = Schema.from_yaml(TRADES)


def test_a_schema_is_read_from_yaml() -> None:
    assert SCHEMA.name == "trades"
    assert exactly(SCHEMA["price"].maximum) == exactly(Decimal("1000.00"))
    assert exactly(SCHEMA["volume"].minimum) == exactly(1)
    assert SCHEMA["volume"].maximum is None
    assert SCHEMA["at"].minimum == datetime(2026, 1, 1, tzinfo=UTC)
    assert SCHEMA["at"].maximum == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert SCHEMA["order.depth.level"] == Attribute("order.depth.level", Type.INTEGER)


def test_yaml_reads_every_scalar_as_its_text() -> None:
    schema = Schema.from_yaml("attributes: {no: string, on: integer, 1.10: {type: decimal, min: 1.10, max: '10'}}")
    assert schema.names == ("no", "on", "`1`.`10`")
    assert exactly(schema["`1`.`10`"].minimum) == exactly(Decimal("1.10"))


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trades.yaml"
    path.write_text("\ufeff" + TRADES, encoding="utf-8")
    assert Schema.from_yaml(path) == SCHEMA


def test_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "trades.yaml"
    with pytest.raises(SchemaError, match=r"trades\.yaml: cannot be read: No such file or directory; check the path"):
        Schema.from_yaml(path)
    path.write_bytes(b"name: \xff")
    with pytest.raises(SchemaError, match=r"trades\.yaml: is not UTF-8 at byte 6; save it as UTF-8"):
        Schema.from_yaml(path)
    path.write_text("attributes:\n  a: int\n")
    with pytest.raises(SchemaError, match=r"^schema .*trades\.yaml, line 2, column 6: unknown type 'int'"):
        Schema.from_yaml(path)


A = "attributes:\n  a: "
REFUSED = {
    "": "line 1, column 1: there is nothing in it; write `attributes:` and below it a name and type a line",
    "trades.yaml": "line 1, column 1: the schema is not a mapping; write `attributes:` and lines below it, or pass",
    "name: x": "line 1, column 1: there is no key `attributes`; write `attributes:`",
    "attribute: {}": "line 1, column 1: unknown key 'attribute' in the schema; did you mean attributes?",
    "attributes: {}\nowner: me": "line 2, column 1: unknown key 'owner' in the schema; known here: name, attributes",
    "attributes: []": "line 1, column 13: `attributes` is not a mapping",
    "attributes:": "line 1, column 12: `attributes` is not a mapping",
    "name: [a]\nattributes: {}": "line 1, column 7: name is not a plain value",
    "attributes: {}\nattributes: {}": "line 2, column 1: key 'attributes' occurs twice; keep one of them",
    A + "string\n  a: integer": "line 3, column 3: key 'a' occurs twice; keep one of them",
    A + 'string\n  "`a`": integer': "line 3, column 3: attribute a is declared twice; keep one of them",
    A + "string\n  a.b: integer": "line 3, column 3: a.b lies within a, which is of type string; rename one of them",
    A + "&x string\n  b: *x": "line 2, column 6: anchors and aliases are not read; write the value out",
    "attributes: *x": "line 1, column 13: anchors and aliases are not read",
    A + "!!str string": "line 2, column 6: the tag 'tag:yaml.org,2002:str' is not read; remove it",
    A + "! string": "line 2, column 6: the tag '!' is not read; remove it",
    A + "int": "line 2, column 6: unknown type 'int' of attribute 'a'; did you mean integer?",
    A + "decimals": "line 2, column 6: unknown type 'decimals' of attribute 'a'; did you mean decimal?",
    A + "blob": "line 2, column 6: unknown type 'blob' of attribute 'a'; write one of integer, float, decimal,",
    A: "line 2, column 5: no type for attribute 'a'; write one of integer",
    A + "[string]": "line 2, column 6: the type of 'a' is not a plain value",
    A + "{min: 0}": "line 2, column 3: attribute 'a' has no type; add `type:`, one of integer",
    A + "{type: integer, minimum: 0}": "line 2, column 22: unknown key 'minimum' in attribute 'a'; did you mean min?",
    A + "{type: integer, type: integer}": "line 2, column 22: key 'type' occurs twice",
    A + "{type: integer, min: 0.5}": "line 2, column 27: min of attribute 'a' is '0.5'; write an integer, digits only",
    A + "{type: integer, min: 1e3}": "line 2, column 27: min of attribute 'a' is '1e3'; write an integer",
    A + "{type: integer, min: 0x10}": "line 2, column 27: min of attribute 'a' is '0x10'; write an integer",
    A + "{type: integer, min: ٣}": "line 2, column 27: min of attribute 'a' is '٣'; write an integer",
    A + "{type: decimal, max: .inf}": "line 2, column 27: max of attribute 'a' is '.inf'; write a number like 0.01",
    A + "{type: decimal, max: 1e38}": "line 2, column 27: max of attribute 'a' is 1E+38, which a decimal",
    A + "{type: float, max: 1e999}": "line 2, column 25: max of attribute 'a' is 1E+999, outside the floats",
    A + "{type: float, max: 1e99999}": "line 2, column 25: max of attribute 'a' is '1e99999'; write a number",
    A + "{type: float, precision: 0}": "line 2, column 31: precision of attribute 'a' is 0; it must be above 0",
    A + "{type: float, precision: -0.1}": "line 2, column 31: precision of attribute 'a' is -0.1; it must be above 0",
    A + "{type: string, max: z}": "line 2, column 26: max of attribute 'a' does not apply to a string; remove it",
    A + "{type: timestamp, min: 5}": "line 2, column 29: min of attribute 'a' is wrong: '5' is not a timestamp",
    A + "{type: timestamp, precision: 1}": "line 2, column 35: precision of attribute 'a' does not apply to a",
    A + "{type: integer, min: 3, max: 2}": "line 2, column 3: attribute a: minimum 3 is above maximum 2; swap them",
    A + f"{{type: integer, min: 1{'0' * 38}}}": "line 2, column 27: min of attribute 'a' has more than 38 digits",
    A + f"{{type: integer, min: 1{'0' * 5000}}}": "line 2, column 27: min of attribute 'a' is a number of 5001",
    "attributes:\n  a..b: string": "line 2, column 3: 'a..b' is not an attribute name: expected a name",
    "attributes:\n  '': string": "line 2, column 3: '' is not an attribute name",
    'attributes:\n  "\\ud800": string': "line 2, column 3: the name of attribute `\\ud800` holds a lone surrogate",
    "[" * 100: "line 1, column 10: this nests deeper than any schema; see docs/events.md",
    "attributes:\n  ? [a]\n  : string": "line 2, column 5: a key is not a plain value",
    "attributes: {": "line 1, column 14: is not YAML: ",
    "attributes:\n\ta: string": "line 2, column 1: is not YAML: ",
    "attributes: {}\n---\nattributes: {}": "line 2, column 1: is not YAML: expected a single document",
    "attributes: {}\n# \x00": "line 2, column 3: holds a character that YAML does not allow; remove it",
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_wrong_schema_is_refused_with_line_and_column(text: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(text)
    assert str(caught.value).startswith(f"schema, {words}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


YAML_PIECES = st.sampled_from(
    ["attributes:", "\n", " ", "  ", "a", "b.c", ": ", "string", "decimal", "{", "}", "[", "]", ", ", "type: ", "min: ",
     "max: ", "precision: ", "0.01", "-5", "1e9", "'", '"', "\\", "&x", "*x", "!!", "|", ">", "-", "? ", "#",
     "%YAML 1.1", "---", "...", "\t", "name: ", "`", "2026-01-01", "\u2028", "\x85", "é"]
)  # fmt: skip


@given(st.lists(YAML_PIECES, max_size=20).map("".join) | st.text(max_size=30))
@example("[" * 100_000)
@example("%YAML 1." + "9" * 5000 + "\n---\na")
@example('"\\UFFFFFFFF"')
def test_reading_anything_raises_nothing_but_schema_error(text: str) -> None:
    try:
        schema = Schema.from_yaml(text)
    except SchemaError:
        return
    assert Schema.from_yaml(schema.to_yaml()) == schema


def bounds_of(type_: Type) -> st.SearchStrategy[list[Bound]]:
    values: dict[Type, st.SearchStrategy[Any]] = {
        Type.INTEGER: INTEGERS,
        Type.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Decimal(repr(value))),
        Type.DECIMAL: decimals(),
        Type.TIMESTAMP: TIMESTAMPS,
    }
    return st.lists(values[type_], min_size=2, max_size=2).map(sorted) if type_ in values else st.just([])


@st.composite
def bounded_schemas(draw: st.DrawFn) -> Schema:
    attributes = []
    for attribute in draw(schemas()):
        low, high = draw(bounds_of(attribute.type)) or (None, None)
        step: Any = None
        if attribute.type in (Type.DECIMAL, Type.FLOAT):
            step = draw(st.none() | decimals().map(abs).filter(bool))
        elif attribute.type is Type.INTEGER:
            step = draw(st.none() | st.integers(1, 10**38 - 1))
        if draw(st.booleans()):
            low = None
        if draw(st.booleans()):
            high = None
        attributes.append(Attribute(attribute.name, attribute.type, low, high, step))
    return Schema(tuple(attributes), draw(st.none() | TEXT))


@pytest.mark.slow
@given(bounded_schemas())
def test_a_schema_comes_back_from_its_yaml(schema: Schema) -> None:
    back = Schema.from_yaml(schema.to_yaml())
    assert back == schema
    assert exactly([attribute.minimum for attribute in back]) == exactly([attribute.minimum for attribute in schema])


def test_the_yaml_of_a_schema_is_for_people() -> None:
    assert SCHEMA.to_yaml() == TRADES.replace("2026-01-01", '"2026-01-01T00:00:00.000000Z"').replace(
        "2026-12-31 23:59:59Z", "2026-12-31T23:59:59.000000Z"
    )
    assert Schema().to_yaml() == "attributes: {}\n"


def test_the_longest_name_is_written_so_that_it_can_be_read() -> None:
    """In escapes it is longer than what YAML takes for a key unless it is marked as one."""
    for name in ("a" * 1_000, "\n" * 1_000, "🙂" * 1_000):
        schema = Schema((Attribute(name, Type.STRING), Attribute("b", Type.FLOAT, minimum=1)))
        assert Schema.from_yaml(schema.to_yaml()) == schema
