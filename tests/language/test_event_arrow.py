"""Arrow tables: every type there and back, every width read, everything else refused by its column."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.events.arrow import (
    arrow_schema,
    attributes_from_arrow,
    attributes_to_arrow,
    decimal_size,
    events_from_arrow,
    events_to_arrow,
    schema_from_arrow,
)
from meetpoint.language.events.event import Event
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import NESTING_MAX, Type, Value
from tests.language.strategies import (
    COLUMN_VALUES,
    INTEGER_MAX,
    INTEGERS,
    TRADES,
    VALUES,
    events,
    exactly,
    rows_of,
    schemas,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def one(type_: Type, **bounds: Any) -> Schema:
    return Schema((Attribute("x", type_, **bounds),))


def read(array: Any, schema: Schema | None = None) -> list[Value]:
    return [row["x"] for row in attributes_from_arrow(pa.table([array], names=["x"]), schema)]


# Round trips: every row of the table in docs/events.md


@pytest.mark.parametrize("type_", Type)
@given(data=st.data())
def test_every_type_comes_back(type_: Type, data: st.DataObject) -> None:
    value = data.draw(COLUMN_VALUES[type_])
    schema = Schema((Attribute("x", type_), Attribute("o.x", type_)))
    row: dict[str, Value] = {"x": value, "o": {"x": value}}
    assert exactly(attributes_from_arrow(attributes_to_arrow([row], schema))) == exactly([row])


@pytest.mark.parametrize("type_", [Type.INTEGER, Type.FLOAT, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP])
@given(data=st.data())
def test_every_type_but_decimals_comes_back_without_a_schema(type_: Type, data: st.DataObject) -> None:
    value = data.draw(VALUES[type_])
    assert exactly(attributes_from_arrow(attributes_to_arrow([{"x": value}]))) == exactly([{"x": value}])


@given(VALUES[Type.DECIMAL])
def test_a_decimal_comes_back_equal_in_the_column_that_is_inferred_for_it(value: Value) -> None:
    (back,) = attributes_from_arrow(attributes_to_arrow([{"x": value}]))
    assert back == {"x": value}
    assert isinstance(back["x"], Decimal)


@given(INTEGERS)
def test_integers_of_any_length_come_back_where_the_bounds_say_so(value: int) -> None:
    schema = one(Type.INTEGER, maximum=INTEGER_MAX)
    table = attributes_to_arrow([{"x": value}], schema)
    assert table.schema.field("x").type == pa.decimal128(38, 0)
    assert exactly(attributes_from_arrow(table)) == exactly([{"x": value}])
    bare = pa.table([table.column("x").cast(pa.decimal128(38, 0))], names=["x"])
    assert exactly(attributes_from_arrow(bare)) == exactly([{"x": Decimal(value)}])
    assert exactly(attributes_from_arrow(bare, schema)) == exactly([{"x": value}])


@pytest.mark.parametrize("type_", Type)
def test_null_comes_back_in_a_column_of_any_type(type_: Type) -> None:
    schema = Schema((Attribute("x", type_), Attribute("o.x", type_)))
    rows: list[dict[str, Value]] = [{}, {"x": None}, {"o": None}, {"o": {"x": None}}, {"o": {}}]
    missing = {"x": None, "o": None}
    inner = {"x": None, "o": {"x": None}}
    assert attributes_from_arrow(attributes_to_arrow(rows, schema)) == [missing, missing, missing, inner, inner]


@given(st.data())
def test_rows_of_a_schema_come_back(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(rows_of(schema, COLUMN_VALUES), max_size=4))
    table = attributes_to_arrow(rows, schema)
    assert exactly(attributes_from_arrow(table)) == exactly(rows)
    assert exactly(attributes_from_arrow(table, schema)) == exactly(rows)
    assert [row for batch in table.to_batches(max_chunksize=1) for row in exactly_all(batch)] == exactly(rows)
    assert schema_from_arrow(table.schema) == Schema(schema.attributes)


def exactly_all(batch: Any) -> list[Any]:
    return [exactly(row) for row in attributes_from_arrow(batch)]


@given(st.data())
def test_whole_events_come_back(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    some = data.draw(st.lists(events(rows_of(schema, COLUMN_VALUES)), max_size=3))
    table = events_to_arrow(some, schema)
    assert table.schema.names == ["id", "publisher", "sequence", "time", "attributes"]
    back = events_from_arrow(table)
    assert exactly([msgspec.structs.asdict(event) for event in back]) == exactly(
        [msgspec.structs.asdict(event) for event in some]
    )


def test_events_come_back_from_a_batch_and_without_a_schema() -> None:
    some = [Event("e", "p", number, NOW, {"x": number, "o": {"y": None}}) for number in range(3)]
    (batch,) = events_to_arrow(some).to_batches()
    assert [event.attributes for event in events_from_arrow(batch)] == [{"x": number} for number in range(3)]


@pytest.mark.parametrize("height", [0, 3])
def test_rows_without_attributes_keep_their_number(height: int) -> None:
    table = attributes_to_arrow([{}] * height)
    assert attributes_from_arrow(table) == [{}] * height


# Schemas


def test_a_schema_becomes_columns() -> None:
    columns = arrow_schema(Schema.from_yaml(TRADES))
    assert {field.name: str(field.type) for field in columns} == {
        "symbol": "string",
        "price": "decimal128(6, 2)",
        "volume": "int64",
        "ratio": "double",
        "live": "bool",
        "at": "timestamp[us, tz=UTC]",
        "order": "struct<side: string, depth: struct<level: int64>>",
    }


def test_a_schema_comes_back_from_its_columns_with_all_its_bounds() -> None:
    schema = Schema.from_yaml(TRADES)
    assert schema_from_arrow(arrow_schema(schema)).attributes == schema.attributes


@pytest.mark.parametrize(
    ("bounds", "size"),
    [
        ({}, (38, 18)),
        ({"minimum": Decimal(0), "maximum": Decimal(10)}, (38, 18)),
        ({"precision": Decimal("0.01")}, (38, 2)),
        ({"precision": Decimal("0.010")}, (38, 2)),
        ({"precision": Decimal("0.01"), "minimum": Decimal(0)}, (38, 2)),
        ({"precision": Decimal("0.01"), "minimum": Decimal(0), "maximum": Decimal("999.99")}, (5, 2)),
        ({"precision": Decimal("0.01"), "minimum": Decimal(0), "maximum": Decimal(1000)}, (6, 2)),
        ({"precision": Decimal("0.01"), "minimum": Decimal(-1000), "maximum": Decimal(1)}, (6, 2)),
        ({"precision": Decimal("0.5"), "minimum": Decimal("0.25"), "maximum": Decimal(9)}, (3, 2)),
        ({"precision": Decimal("0.1"), "minimum": Decimal(0), "maximum": Decimal("0.9")}, (1, 1)),
        ({"precision": Decimal(1), "minimum": Decimal(0), "maximum": Decimal(0)}, (1, 0)),
        ({"precision": Decimal("1E+3"), "minimum": Decimal(0), "maximum": Decimal("1E+37")}, (38, 0)),
        ({"precision": Decimal("1E-38"), "minimum": Decimal(0), "maximum": Decimal("0.5")}, (38, 38)),
    ],
)
def test_the_size_of_a_decimal_column_follows_bounds_and_precision(
    bounds: dict[str, Any], size: tuple[int, int]
) -> None:
    assert decimal_size(Attribute("x", Type.DECIMAL, **bounds)) == size
    assert arrow_schema(one(Type.DECIMAL, **bounds)).field("x").type == pa.decimal128(*size)


def test_a_decimal_that_no_column_holds_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"^schema: attribute x needs 37 digits before and 2 after the point, and a "):
        arrow_schema(one(Type.DECIMAL, minimum=0, maximum=Decimal("1E+36"), precision=Decimal("0.01")))


@pytest.mark.parametrize(
    ("bounds", "type_"),
    [
        ({"maximum": 2**63 - 1}, "int64"),
        ({"maximum": 2**63}, "decimal128(38, 0)"),
        ({"minimum": -(2**63)}, "int64"),
        ({"minimum": -(2**63) - 1}, "decimal128(38, 0)"),
    ],
)
def test_an_integer_column_is_64_bits_wide_unless_a_bound_is_beyond(bounds: dict[str, int], type_: str) -> None:
    assert str(arrow_schema(one(Type.INTEGER, **bounds)).field("x").type) == type_


def test_notes_beside_a_column_of_another_type_are_ignored() -> None:
    field = arrow_schema(one(Type.INTEGER, minimum=5)).field("x")
    assert schema_from_arrow(pa.schema([field.with_type(pa.string())])) == one(Type.STRING)
    assert schema_from_arrow(pa.schema([field.with_type(pa.int8())])) == one(Type.INTEGER, minimum=5)


def test_damaged_notes_beside_a_column_are_refused() -> None:
    field = pa.field("x", pa.int64(), metadata={"meetpoint.type": "integer", "meetpoint.min": b"\xff"})
    with pytest.raises(SchemaError, match=r"^schema: the notes beside column x are damaged: one is "):
        schema_from_arrow(pa.schema([field]))


# Writing


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (
            one(Type.INTEGER),
            2**63,
            "attribute x is 9223372036854775808, beyond 64 bits; declare a min or max beyond them",
        ),
        (one(Type.INTEGER), -(2**63) - 1, "attribute x is -9223372036854775809, beyond 64 bits"),
        (
            one(Type.DECIMAL),
            Decimal("1E-19"),
            "attribute x is 1E-19, which its column DECIMAL(38, 18) does not hold; declare",
        ),
        (one(Type.DECIMAL), Decimal("1E+20"), "attribute x is 1E+20, which its column DECIMAL(38, 18) does not hold"),
        (one(Type.INTEGER, minimum=0), -1, "x is -1, below the minimum 0: change the event, or the schema"),
        (one(Type.STRING), 5, "x is 5, an integer; send a string"),
        (Schema(), 5, "x is not in the schema (it has no attributes)"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_row(schema: Schema, value: Value, words: str) -> None:
    with pytest.raises(EventError) as caught:
        attributes_to_arrow([{}, {"x": value}], schema)
    assert str(caught.value).startswith(f"row 2: event: {words}")


@pytest.mark.parametrize(
    "value", [Decimal("99999999999999999999.999999999999999999"), Decimal("-1E-18"), Decimal("1E+19")]
)
def test_a_decimal_column_is_used_to_its_ends(value: Decimal) -> None:
    assert attributes_from_arrow(attributes_to_arrow([{"x": value}], one(Type.DECIMAL))) == [{"x": value}]


def test_integers_are_widened_as_the_schema_says() -> None:
    schema = Schema((Attribute("f", Type.FLOAT), Attribute("d", Type.DECIMAL, precision=Decimal("0.01"))))
    (row,) = attributes_from_arrow(attributes_to_arrow([{"f": 5, "d": 5}], schema))
    assert exactly(row) == exactly({"f": 5.0, "d": Decimal("5.00")})


# Reading


@pytest.mark.parametrize(
    ("type_", "values"),
    [(getattr(pa, f"int{bits}")(), [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, None]) for bits in (8, 16, 32, 64)]
    + [(getattr(pa, f"uint{bits}")(), [0, 2**bits - 1, None]) for bits in (8, 16, 32, 64)],
    ids=str,
)
def test_integers_of_every_width_are_read(type_: Any, values: list[Value]) -> None:
    assert exactly(read(pa.array(values, type_))) == exactly(values)
    assert schema_from_arrow(pa.schema([("x", type_)]))["x"].type is Type.INTEGER


def test_a_uint64_column_is_an_integer_that_can_be_written_again() -> None:
    schema = schema_from_arrow(pa.schema([("x", pa.uint64())]))
    assert schema == one(Type.INTEGER, minimum=0, maximum=2**64 - 1)
    assert exactly(attributes_from_arrow(attributes_to_arrow([{"x": 2**64 - 1}], schema))) == exactly(
        [{"x": 2**64 - 1}]
    )


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_every_width_are_widened(type_: Any) -> None:
    narrow = np.array([1.1, -0.0, math.nan, math.inf], dtype=type_.to_pandas_dtype())
    assert exactly(read(pa.array(narrow, type_))) == exactly([float(value) for value in narrow])
    assert read(pa.array([None], type_)) == [None]
    assert schema_from_arrow(pa.schema([("x", type_)])) == one(Type.FLOAT)


@pytest.mark.parametrize(
    "type_", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)], ids=str
)
def test_decimals_of_every_width_are_read(type_: Any) -> None:
    assert exactly(read(pa.array([Decimal("8.3"), None], type_))) == exactly([Decimal("8.30"), None])
    assert schema_from_arrow(pa.schema([("x", type_)])) == one(Type.DECIMAL, precision=Decimal("0.01"))


def test_a_decimal_of_more_than_38_digits_is_refused() -> None:
    assert read(pa.array([Decimal("9" * 38)], pa.decimal256(76, 0))) == [Decimal("9" * 38)]
    with pytest.raises(EventError, match=r"^row 2: event: attribute x is 1000.*, of more than 38 digits; round it"):
        read(pa.array([Decimal(1), Decimal(10**38)], pa.decimal256(76, 0)))


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "", None, "\x00🙂"], pa.string()),
        pa.array(["a", "", None, "\x00🙂"], pa.large_string()),
        pa.array(["a", "", None, "\x00🙂"], pa.string_view()),
        pa.array(["a", "", None, "\x00🙂"]).dictionary_encode(),
        pc.run_end_encode(pa.array(["a", "", None, "\x00🙂"])),
    ],
    ids=lambda array: str(array.type),
)
def test_strings_of_every_encoding_are_read(array: Any) -> None:
    assert read(array) == ["a", "", None, "\x00🙂"]
    assert schema_from_arrow(pa.schema([("x", array.type)])) == one(Type.STRING)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_every_unit_and_zone_are_read(unit: str, ticks: int, zone: str | None) -> None:
    array = pa.array([ticks, -ticks, None], pa.int64()).cast(pa.timestamp(unit, tz=zone))
    assert exactly(read(array)) == exactly(
        [EPOCH.replace(second=1), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None]
    )


def test_a_timestamp_with_nanoseconds_is_refused() -> None:
    assert read(pa.array([1000, -1000], pa.timestamp("ns"))) == [
        EPOCH.replace(microsecond=1),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    with pytest.raises(
        EventError, match=r"^row 2: event: attribute x has nanoseconds, and timestamps hold microseconds; cast"
    ):
        read(pa.array([1000, 1001], pa.timestamp("ns")))


def test_a_timestamp_outside_the_years_is_refused() -> None:
    with pytest.raises(EventError, match=r"^row 1: event: attribute x is outside the years 1 to 9999; use"):
        read(pa.array([2**62], pa.timestamp("s")))


def test_a_column_of_nulls_is_read_and_says_nothing() -> None:
    assert read(pa.nulls(2)) == [None, None]
    assert schema_from_arrow(pa.schema([("x", pa.null())])) == Schema()


@pytest.mark.parametrize(
    ("type_", "step"),
    [
        (pa.date32(), "cast it to timestamp"),
        (pa.date64(), "cast it to timestamp"),
        (pa.time32("s"), "cast it to int64 or string"),
        (pa.duration("us"), "cast it to int64 or string"),
        (pa.binary(), "cast it to string, or drop it"),
        (pa.binary(4), "cast it to string, or drop it"),
        (pa.list_(pa.int64()), "turn it into a struct or into one row an element, or drop it"),
        (pa.map_(pa.string(), pa.int64()), "turn it into a struct"),
        (pa.month_day_nano_interval(), "cast it to a type that docs/events.md lists, or drop it"),
        (pa.uuid(), "cast it to a type that docs/events.md lists, or drop it"),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused_with_the_next_step(type_: Any, step: str) -> None:
    words = f"column o.x is of Arrow type {type_}; {step}"
    table = pa.table([pa.StructArray.from_arrays([pa.nulls(1, type_)], names=["x"])], names=["o"])
    with pytest.raises(EventError) as in_rows:
        attributes_from_arrow(table)
    assert str(in_rows.value).startswith(f"event: {words}")
    with pytest.raises(SchemaError) as in_schema:
        schema_from_arrow(table.schema)
    assert str(in_schema.value).startswith(f"schema: {words}")


def test_bad_columns_are_refused() -> None:
    with pytest.raises(EventError, match="column x occurs twice; rename one of them"):
        attributes_from_arrow(pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]))
    with pytest.raises(EventError, match="attribute name '' is not a non-empty string"):
        attributes_from_arrow(pa.table([pa.array([1])], names=[""]))
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(EventError, match="column x is not UTF-8; encode its texts as UTF-8"):
        read(broken)
    deep = pa.int64()
    for _ in range(NESTING_MAX):
        deep = pa.struct([("x", deep)])
    with pytest.raises(EventError, match=r"columns nest deeper than 32 at x\.x"):
        read(pa.array([None], deep))


def test_columns_are_read_as_the_schema_says() -> None:
    assert exactly(read(pa.array([5, None]), one(Type.FLOAT))) == exactly([5.0, None])
    assert exactly(read(pa.array([5]), one(Type.DECIMAL))) == exactly([Decimal(5)])
    assert exactly(read(pa.array([Decimal(5)], pa.decimal128(20, 0)), one(Type.INTEGER))) == exactly([5])
    with pytest.raises(EventError, match=r"^row 2: event: attribute x is 9007199254740993, which no float equals"):
        read(pa.array([1, 2**53 + 1]), one(Type.FLOAT))
    with pytest.raises(EventError, match=r"^row 1: event: attribute x is 5\.0, a float; send an integer"):
        read(pa.array([5.0]), one(Type.INTEGER))
    with pytest.raises(EventError, match=r"^event: column x is a struct; the schema says integer"):
        read(pa.array([{"y": 1}]), one(Type.INTEGER))
    with pytest.raises(EventError, match=r"^event: column x is of Arrow type int64; the schema says a struct"):
        read(pa.array([1]), Schema((Attribute("x.y", Type.INTEGER),)))


def test_rows_are_counted_over_all_chunks() -> None:
    chunks = pa.chunked_array([pa.array([1, 2]), pa.array([3, 2**53 + 1])])
    with pytest.raises(EventError, match=r"^row 4: "):
        attributes_from_arrow(pa.table([chunks], names=["x"]), one(Type.FLOAT))


def test_a_table_of_other_columns_holds_no_events() -> None:
    table = events_to_arrow([Event("e", "p", 0, NOW, {})])
    with pytest.raises(
        EventError, match=r"^event: the table has columns id, publisher; select id, publisher, sequence, time, "
    ):
        events_from_arrow(table.select(["id", "publisher"]))
    with pytest.raises(EventError, match=r"^event: column attributes is not a struct; make it one"):
        events_from_arrow(table.set_column(4, "attributes", pa.array(["{}"])))
    with pytest.raises(EventError, match=r"^row 1: event: sequence is -1; it must be"):
        events_from_arrow(table.set_column(2, "sequence", pa.array([-1])))
    with pytest.raises(EventError, match=r"^row 1: event: attributes is of class NoneType"):
        events_from_arrow(table.set_column(4, "attributes", pa.array([None], pa.struct([("x", pa.int64())]))))
