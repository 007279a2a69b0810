"""Schemas: their attributes, their inference from rows, their evolution, and which events conform to them."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import find
from meetpoint.language.schema.schema import ATTRIBUTES_MAX, Attribute, Schema
from meetpoint.language.values import Type, Value
from tests.language.strategies import NAMES, TRADES, exactly, rows_of, schemas

SCHEMA = Schema.from_yaml(TRADES)


def one(type_: Type, **bounds: Any) -> Schema:
    return Schema((Attribute("x", type_, **bounds),))


# The schema as a collection


def test_attributes_keep_their_order_and_their_bits() -> None:
    assert SCHEMA.names == (
        "symbol", "price", "volume", "ratio", "live", "at", "order.side", "order.depth.level",
    )  # fmt: skip
    assert [attribute.name for attribute in SCHEMA] == list(SCHEMA.names)
    assert [SCHEMA.bit(name) for name in SCHEMA.names] == list(range(8))
    assert len(SCHEMA) == 8


def test_attributes_are_found_by_name() -> None:
    assert SCHEMA["price"] == Attribute("price", Type.DECIMAL, Decimal(0), Decimal(1000), Decimal("0.01"))
    assert SCHEMA.get("nothing") is None
    assert "order.side" in SCHEMA
    assert "order" not in SCHEMA
    assert 5 not in SCHEMA


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("pric", "price"),
        ("PRICE", "price"),
        ("side", "order.side"),
        ("trade.Price", "price"),
        ("order.sied", "order.side"),
        ("zzz", None),
    ],
)
def test_a_near_name_is_suggested(name: str, suggestion: str | None) -> None:
    assert SCHEMA.suggest(name) == suggestion


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SchemaError, match=r"^schema: no attribute 'pric'; did you mean price\?$"):
        SCHEMA["pric"]
    with pytest.raises(SchemaError, match=r"^schema: no attribute 'zzz'; it has symbol, price, volume, "):
        SCHEMA.bit("zzz")
    with pytest.raises(SchemaError, match=r"^schema: no attribute 'x'; it has no attributes$"):
        Schema()["x"]


def test_a_schema_is_a_value() -> None:
    again = Schema.from_yaml(TRADES)
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    assert pickle.loads(pickle.dumps(SCHEMA)).bit("at") == 5
    with pytest.raises(AttributeError):
        SCHEMA.name = "other"  # type: ignore[misc]


def test_names_are_brought_to_their_canonical_spelling() -> None:
    schema = Schema((Attribute("größe.x", Type.INTEGER), Attribute("`plain`", Type.INTEGER)))
    assert schema.names == ("`größe`.x", "plain")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "a.b"], "schema: a.b lies within a, which is of type integer; rename one of them"),
        (["a.b", "a"], "schema: a is of type integer, and another attribute lies within it; rename one of them"),
        (["a.b.c", "a.b"], "schema: a.b is of type integer, and another attribute lies within it"),
        (["a.b", "a.b.c.d"], "schema: a.b.c.d lies within a.b, which is of type integer"),
        (["a", "`a`"], "schema: attribute a is declared twice; keep one of them"),
    ],
)
def test_two_attributes_cannot_have_one_place(names: list[str], words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema(tuple(Attribute(name, Type.INTEGER) for name in names))
    assert str(caught.value).startswith(words)


def test_a_quoted_dot_is_no_path() -> None:
    assert Schema((Attribute("`a.b`", Type.INTEGER), Attribute("a", Type.INTEGER))).names == ("`a.b`", "a")


def test_a_schema_has_a_largest_size() -> None:
    attributes = tuple(Attribute(f"a{number}", Type.INTEGER) for number in range(ATTRIBUTES_MAX + 1))
    assert len(Schema(attributes[:-1])) == ATTRIBUTES_MAX
    with pytest.raises(SchemaError, match="4097 attributes; at most 4096 fit"):
        Schema(attributes)


# Attributes


@pytest.mark.parametrize(
    ("type_", "bounds", "words"),
    [
        (Type.INTEGER, {"minimum": 1.0}, "minimum is 1.0 of class float; give an int"),
        (Type.INTEGER, {"minimum": Decimal(1)}, "minimum is 1 of class Decimal; give an int"),
        (Type.INTEGER, {"minimum": True}, "minimum is True of class bool; give an int"),
        (Type.INTEGER, {"maximum": 10**38}, "maximum has more than 38 digits; shorten it"),
        (Type.INTEGER, {"precision": 0}, "precision is 0; it must be above 0"),
        (Type.INTEGER, {"minimum": 2, "maximum": 1}, "minimum 2 is above maximum 1; swap them"),
        (Type.DECIMAL, {"minimum": 0.1}, "minimum is of class float; give a Decimal"),
        (Type.DECIMAL, {"minimum": Decimal("NaN")}, "minimum is NaN; give a finite number or leave it out"),
        (Type.DECIMAL, {"minimum": Decimal("1E-39")}, "minimum is 1E-39, which a decimal of 38 digits does not hold"),
        (Type.DECIMAL, {"precision": Decimal("-0.01")}, "precision is -0.01; it must be above 0"),
        (Type.FLOAT, {"maximum": math.inf}, "maximum is Infinity; give a finite number or leave it out"),
        (Type.FLOAT, {"maximum": Decimal("1E+401")}, "maximum is 1E+401, outside the floats"),
        (Type.FLOAT, {"maximum": "5"}, "maximum is of class str; give a Decimal"),
        (Type.STRING, {"minimum": "a"}, "minimum does not apply to a string; remove it"),
        (Type.BOOLEAN, {"precision": 1}, "precision does not apply to a boolean; remove it"),
        (Type.TIMESTAMP, {"minimum": 5}, "minimum is of class int; give a datetime"),
        (Type.TIMESTAMP, {"precision": 1}, "precision does not apply to a timestamp; remove it"),
    ],
)
def test_bounds_of_the_wrong_kind_are_refused(type_: Type, bounds: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Attribute("x", type_, **bounds)
    assert str(caught.value).startswith(f"schema: attribute x: {words}")


def test_bounds_are_exact() -> None:
    ratio = Attribute("x", Type.FLOAT, 0, 0.1, Decimal("0.1"))  # type: ignore[arg-type]
    assert exactly([ratio.minimum, ratio.maximum]) == exactly([Decimal(0), Decimal("0.1")])
    at = Attribute("x", Type.TIMESTAMP, datetime(2026, 1, 1))
    assert at.minimum == datetime(2026, 1, 1, tzinfo=UTC)


# Conformance


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"pric": 1}, "pric is not in the schema (did you mean price?)"),
        ({"order": {"sied": "x"}}, "order.sied is not in the schema (did you mean order.side?)"),
        ({"order": {"depth": {"x": {"y": 1}}}}, "order.depth.x is not in the schema (did you mean order.depth.level?)"),
        (
            {"🙂": 1},
            "`🙂` is not in the schema (it has symbol, price, volume, ratio, live, at, order.side, order.depth.level)",
        ),
        ({"symbol": 5}, "symbol is 5, an integer; send a string"),
        ({"price": 8.3}, "price is 8.3, a float; send a decimal"),
        ({"volume": True}, "volume is True, a boolean; send an integer"),
        ({"volume": Decimal(1)}, "volume is 1, a decimal; send an integer"),
        ({"at": "2026-01-01"}, "at is '2026-01-01', a string; send a timestamp"),
        ({"order": 5}, "order is 5; send an object"),
        ({"price": {"x": 1}}, "price is an object; send a decimal"),
        ({"price": Decimal("-0.01")}, "price is -0.01, below the minimum 0"),
        ({"price": Decimal("1000.01")}, "price is 1000.01, above the maximum 1000.00"),
        ({"price": Decimal("8.305")}, "price is 8.305, not a whole number of steps of 0.01 from 0"),
        ({"volume": 0}, "volume is 0, below the minimum 1"),
        ({"ratio": 1.1}, "ratio is 1.1, above the maximum 1"),
        ({"ratio": 0.25}, "ratio is 0.25, not a whole number of steps of 0.1 from -1"),
        ({"ratio": math.nan}, "ratio is NaN, which lies within no bounds; send null"),
        ({"ratio": math.inf}, "ratio is inf, above the maximum 1"),
        (
            {"at": datetime(2025, 12, 31, tzinfo=UTC)},
            "at is 2025-12-31T00:00:00.000000Z, below the minimum 2026-01-01T00:00:00.000000Z",
        ),
        (
            {"symbol": [1]},
            "attribute symbol is of class list; an attribute holds an int, float, Decimal, str, bool, datetime, None "
            "or a nested dict of them",
        ),
    ],
)
def test_a_problem_is_one_sentence(attributes: dict[str, Any], problem: str) -> None:
    assert SCHEMA.problems(attributes) == [problem]
    with pytest.raises(EventError) as caught:
        SCHEMA.conform(attributes)
    assert str(caught.value) == f"event: {problem}: change the event, or the schema"


def test_the_tenant_of_an_event_need_not_be_declared() -> None:
    attributes = {"symbol": "OTE", "$tenant": "acme"}
    assert SCHEMA.problems(attributes) == []
    assert SCHEMA.conform(attributes) == attributes
    assert SCHEMA.problems({"order": {"$tenant": "acme"}}) != []
    assert SCHEMA.problems({"$other": "acme"}) != []


def test_all_problems_are_listed() -> None:
    assert (
        SCHEMA.problems({"symbol": 5, "price": Decimal(-1), "order": {"side": 1, "x": 1}})
        == [
            "symbol is 5, an integer; send a string",
            "price is -1, below the minimum 0",
            "order.side is 1, an integer; send a string",
            "order.x is not in the schema (did you mean order.side?)",
        ]
        or len(SCHEMA.problems({"symbol": 5, "price": Decimal(-1), "order": {"side": 1, "x": 1}})) == 4
    )


@pytest.mark.parametrize(
    ("attributes", "conforming"),
    [
        ({}, {}),
        ({"price": None, "order": None, "other": None}, {"price": None, "order": None}),
        ({"order": {"side": None, "other": {"x": None}}}, {"order": {"side": None}}),
        ({"price": 5}, {"price": Decimal(5)}),
        ({"ratio": 1}, {"ratio": 1.0}),
        ({"ratio": -0.0}, {"ratio": -0.0}),
        ({"ratio": 0.1 * 3}, None),
        ({"ratio": 0.3}, {"ratio": 0.3}),
        ({"price": Decimal("8.300")}, {"price": Decimal("8.300")}),
        ({"price": Decimal("1E+3")}, {"price": Decimal("1E+3")}),
    ],
)
def test_attributes_conform_after_exact_widening(attributes: dict[str, Any], conforming: dict[str, Any] | None) -> None:
    if conforming is None:
        assert SCHEMA.problems(attributes)
    else:
        assert exactly(SCHEMA.conform(attributes)) == exactly(conforming)


def test_an_integer_that_no_float_equals_does_not_conform() -> None:
    assert one(Type.FLOAT).conform({"x": 2**53}) == {"x": 2.0**53}
    assert one(Type.FLOAT).problems({"x": 2**53 + 1}) == [
        "x is 9007199254740993, which no float equals; declare a decimal, or round it"
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5e-324])
def test_a_float_without_bounds_may_be_anything(value: float) -> None:
    assert one(Type.FLOAT).problems({"x": value}) == []


def test_an_infinite_float_lies_on_no_grid() -> None:
    assert one(Type.FLOAT, precision=Decimal(1)).problems({"x": math.inf}) == [
        "x is inf, not a whole number of steps of 1"
    ]


@pytest.mark.parametrize(
    ("bounds", "value", "on_grid"),
    [
        ({"precision": 5}, 10, True),
        ({"precision": 5}, 12, False),
        ({"precision": 5, "minimum": 2}, 12, True),
        ({"precision": 5, "minimum": 2}, 10, False),
        ({"precision": 5}, -5, True),
        ({"precision": 3, "minimum": -(10**37)}, 10**38 - 1, (10**38 - 1 + 10**37) % 3 == 0),
    ],
)
def test_the_grid_starts_at_the_minimum_or_at_zero(bounds: dict[str, Any], value: int, on_grid: bool) -> None:
    assert (one(Type.INTEGER, **bounds).problems({"x": value}) == []) is on_grid


@given(st.integers(-(10**18), 10**18))
def test_a_float_is_measured_by_its_shortest_spelling(steps: int) -> None:
    value = float(Decimal(steps) / 1000)
    on_grid = one(Type.FLOAT, precision=Decimal("0.001")).problems({"x": value}) == []
    assert on_grid == (Decimal(repr(value)) * 1000 == (Decimal(repr(value)) * 1000).to_integral_value())
    assert one(Type.FLOAT, minimum=value, maximum=value).problems({"x": value}) == []


@given(st.integers(-(10**20), 10**20), st.integers(0, 18))
def test_a_decimal_grid_is_exact_at_any_size(number: int, scale: int) -> None:
    step = Decimal((0, (1,), -scale))
    value = Decimal(number).scaleb(-scale)
    assert one(Type.DECIMAL, precision=step).problems({"x": value}) == []
    nudged = Decimal((0, tuple(map(int, str(abs(number) * 10 + 5))), -scale - 1))
    assert one(Type.DECIMAL, precision=step).problems({"x": nudged}) != []


# Inference


def test_a_schema_is_inferred_from_rows() -> None:
    rows: list[dict[str, Any]] = [
        {"symbol": "A", "price": Decimal("8.3"), "volume": 5, "ratio": 1, "mixed": 1, "nothing": None},
        {"symbol": "B", "price": Decimal("7.25"), "volume": -(2**70), "ratio": 0.5, "mixed": Decimal("0.10")},
        {"order": {"side": "buy", "at": datetime(2026, 1, 2)}, "live": True, "volume": None, "empty": {}},
        {"order": {"side": None, "at": datetime(2026, 1, 1)}, "ratio": -2.5},
    ]
    assert Schema.infer(rows) == Schema(
        (
            Attribute("symbol", Type.STRING),
            Attribute("price", Type.DECIMAL, Decimal("7.25"), Decimal("8.3"), Decimal("0.01")),
            Attribute("volume", Type.INTEGER, -(2**70), 5, 1),
            Attribute("ratio", Type.FLOAT, Decimal("-2.5"), Decimal(1)),
            Attribute("mixed", Type.DECIMAL, Decimal("0.10"), Decimal(1), Decimal("0.01")),
            Attribute("order.side", Type.STRING),
            Attribute("order.at", Type.TIMESTAMP, datetime(2026, 1, 1), datetime(2026, 1, 2)),
            Attribute("live", Type.BOOLEAN),
        )
    )


def test_no_rows_make_an_empty_schema() -> None:
    assert Schema.infer([]) == Schema()
    assert Schema.infer(iter([{}, {"a": None}])) == Schema()


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_float_that_was_not_finite_has_no_bounds(odd: float) -> None:
    assert Schema.infer([{"x": 1.0}, {"x": odd}]) == one(Type.FLOAT)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            1,
            "a",
            "attribute x is of type integer in row 1 and string in row 3; convert one of them, or give the schema",
        ),
        (1, True, "attribute x is of type integer in row 1 and boolean in row 3"),
        (1.5, Decimal("1.5"), "attribute x is of type float in row 1 and decimal in row 3"),
        (Decimal("1.5"), 1.5, "attribute x is of type decimal in row 1 and float in row 3"),
        (datetime(2026, 1, 1), "2026-01-01", "attribute x is of type timestamp in row 1 and string in row 3"),
        ({"y": 1}, 5, "attribute x is of type object in row 1 and integer in row 3"),
        (5, {"y": 1}, "attribute x is of type integer in row 1 and object in row 3"),
        (
            2**53 + 1,
            0.5,
            "attribute x has floats, and in row 1 an integer that no float equals; make them all decimals",
        ),
        (0.5, 2**53 + 1, "attribute x has floats, and in row 3 an integer that no float equals"),
    ],
)
def test_a_mixture_of_types_is_refused_with_both_and_the_row(first: object, second: object, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.infer([{"x": first}, {"x": None}, {"x": second}])
    assert str(caught.value).startswith(f"schema: {words}")


def test_a_row_that_is_no_event_is_named() -> None:
    with pytest.raises(EventError, match=r"^row 2: event: attribute x is of class list"):
        Schema.infer([{"x": 1}, {"x": [1]}])


@given(st.data())
def test_every_row_conforms_to_the_schema_inferred_from_it(data: st.DataObject) -> None:
    rows = data.draw(st.lists(rows_of(data.draw(schemas())), max_size=6))
    schema = Schema.infer(rows)
    for row in rows:
        assert schema.problems(row) == []
        for attribute in schema:
            assert exactly(find(schema.conform(row), attribute.path)) == exactly(find(row, attribute.path))


@given(st.lists(st.integers(-(2**53), 2**53) | st.floats(), min_size=1))
def test_integers_among_floats_conform_as_floats(values: list[Value]) -> None:
    schema = Schema.infer({"x": value} for value in values)
    for value in values:
        assert isinstance(schema.conform({"x": value})["x"], float if schema["x"].type is Type.FLOAT else int)


# Evolution


def test_a_schema_evolves_by_adding_attributes_at_its_end() -> None:
    older = Schema((Attribute("a", Type.INTEGER), Attribute("o.b", Type.STRING)), "v1")
    newer = Schema(
        (
            Attribute("c", Type.FLOAT),
            Attribute("o.b", Type.STRING),
            Attribute("o.d", Type.STRING),
            Attribute("a", Type.INTEGER),
        )
    )
    evolved = older.evolve(newer)
    assert evolved.names == ("a", "o.b", "c", "o.d")
    assert [evolved.bit(name) for name in older.names] == [older.bit(name) for name in older.names]
    assert evolved.name == "v1"
    assert older.evolve(older) == older
    assert Schema().evolve(older) == older


def test_whatever_changes_or_goes_is_refused_in_one_list() -> None:
    newer = Schema.from_yaml(
        TRADES.replace("volume:", "size:").replace("max: 1000.00", "max: 2000").replace("live: boolean", "live: string")
        .replace("max: 1, precision: 0.1", "precision: 0.5")
    )  # fmt: skip
    with pytest.raises(SchemaError) as caught:
        SCHEMA.evolve(newer)
    assert str(caught.value) == (
        "schema: a schema evolves only by adding attributes, and here the maximum of price changes from 1000.00 to "
        "2000; volume is removed; the maximum of ratio changes from 1 to none; the precision of ratio changes from 0.1 "
        "to 0.5; the type of live changes from boolean to string: keep these as they were, and add an attribute under "
        "a new name"
    )


def test_an_attribute_that_becomes_an_object_is_refused() -> None:
    with pytest.raises(SchemaError, match="here x is removed"):
        one(Type.INTEGER).evolve(Schema((Attribute("x.y", Type.INTEGER),)))


@given(schemas(), st.lists(NAMES, unique=True, max_size=3))
def test_what_conforms_still_conforms_after_evolution(schema: Schema, added: list[str]) -> None:
    fresh = [Attribute("`new " + name.replace("`", "``") + "`", Type.STRING) for name in added]
    evolved = schema.evolve(Schema((*reversed(fresh), *schema.attributes)))
    assert evolved.names[: len(schema)] == schema.names
    assert set(evolved.names) >= set(schema.names)
