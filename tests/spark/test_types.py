"""Spark's column types: schemas and rows there and back, timestamps read alike, other columns remembered."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as column

from meetpoint.errors import SchemaError
from meetpoint.language import Attribute, Schema, Type, Value
from meetpoint.language.events.arrow import attributes_from_arrow, attributes_to_arrow
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.spark import schema_from_spark, spark_schema, unusable_columns
from tests.language.strategies import COLUMN_VALUES, TRADES, exactly, rows_of
from tests.language.test_event import documented_rows
from tests.language.test_timestamps import READ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[Type, list[Value]] = {
    Type.INTEGER: [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    Type.FLOAT: [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    Type.DECIMAL: [
        Decimal("0E-18"),
        Decimal("8.300000000000000000"),
        Decimal("-99999999999999999999.999999999999999999"),
        Decimal("1E-18"),
    ],
    Type.STRING: ["", "NYSE", "\x00", "🙂", "\U0010ffff", "a\nb", " "],
    Type.BOOLEAN: [True, False],
    Type.TIMESTAMP: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 10, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}
TYPED = Schema(
    (
        *(Attribute(f"{type_}", type_) for type_ in Type),
        *(Attribute(f"o.`in an object`.{type_}", type_) for type_ in Type),
    )
)
MIXED = Schema(
    (
        *TYPED,
        Attribute("long", Type.INTEGER, maximum=10**38 - 1),
        Attribute("price", Type.DECIMAL, Decimal(0), Decimal("999.99"), Decimal("0.01")),
    )
)


def random_rows(seed: int, count: int) -> list[dict[str, Value]]:
    """Rows of MIXED in which every value above occurs, and nulls."""
    rng = random.Random(seed)

    def pick(number: int, type_: Type) -> Value:
        pool = [*VALUES[type_], None]
        return pool[number] if number < len(pool) else rng.choice(pool)

    return [
        {
            **{f"{type_}": pick(number, type_) for type_ in Type},
            "o": None if number == 20 else {"in an object": {f"{type_}": pick(number, type_) for type_ in Type}},
            "long": rng.choice([10**38 - 1, -(10**38) + 1, 2**63, 0, None]),
            "price": rng.choice([Decimal("8.30"), Decimal("0.00"), Decimal("999.99"), None]),
        }
        for number in range(count)
    ]


def test_every_type_goes_to_spark_and_comes_back(spark: SparkSession) -> None:
    rows = random_rows(seed=1, count=40)
    frame = spark.createDataFrame(attributes_to_arrow(rows, MIXED), schema=spark_schema(MIXED))
    assert schema_from_spark(frame.schema) == MIXED
    assert exactly(attributes_from_arrow(frame.coalesce(1).toArrow(), MIXED)) == exactly(rows)


@settings(max_examples=10, deadline=None)
@given(st.lists(rows_of(TYPED, COLUMN_VALUES), min_size=1, max_size=30))
def test_any_rows_go_to_spark_and_come_back_without_saying_the_schema(
    spark: SparkSession, rows: list[dict[str, Value]]
) -> None:
    frame = spark.createDataFrame(attributes_to_arrow(rows, TYPED))
    assert frame.schema.simpleString() == spark_schema(TYPED).simpleString()
    assert exactly(attributes_from_arrow(frame.coalesce(1).toArrow())) == exactly(rows)


def test_columns_of_every_width_are_read(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT tinyint(1) AS b, smallint(2) AS h, int(3) AS i, bigint(4) AS l, float(0.1) AS f, double(0.1) AS d, "
        "cast(8.3 AS decimal(10, 2)) AS m, cast('v' AS varchar(5)) AS v, cast('c' AS char(1)) AS c, "
        "timestamp_ntz '2026-01-02 03:04:05' AS n, timestamp '2026-01-02 03:04:05' AS t, "
        "named_struct('x', 1, 'y', named_struct('z', 'deep')) AS o"
    )
    assert attributes_from_arrow(frame.toArrow()) == [
        {
            "b": 1, "h": 2, "i": 3, "l": 4, "f": 0.10000000149011612, "d": 0.1, "m": Decimal("8.30"), "v": "v",
            "c": "c", "n": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "t": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "o": {"x": 1, "y": {"z": "deep"}},
        }
    ]  # fmt: skip
    assert {attribute.name: attribute.type for attribute in schema_from_spark(frame.schema)} == {
        "b": Type.INTEGER, "h": Type.INTEGER, "i": Type.INTEGER, "l": Type.INTEGER, "f": Type.FLOAT, "d": Type.FLOAT,
        "m": Type.DECIMAL, "v": Type.STRING, "c": Type.STRING, "n": Type.TIMESTAMP, "t": Type.TIMESTAMP,
        "o.x": Type.INTEGER, "o.y.z": Type.STRING,
    }  # fmt: skip


def test_every_timestamp_that_we_read_spark_reads_the_same(spark: SparkSession) -> None:
    rng = random.Random(3)
    texts = list(READ)
    for _ in range(300):
        local = datetime(1900, 1, 1) + timedelta(microseconds=rng.randrange(200 * 365 * 86400 * 10**6))
        fraction = rng.choice(["", f".{rng.randrange(10 ** rng.randint(1, 6))}"])
        zone = rng.choice(
            ["", "Z", "UTC", f"{rng.choice('+-')}{rng.randrange(18):02}:{rng.randrange(60):02}", "+18:00"]
        )
        gap = rng.choice(["", " "]) if zone else ""
        texts.append(f"{local:%Y-%m-%d}{rng.choice(' T')}{local:%H:%M:%S}{fraction}{gap}{zone}")
    spark_micros = spark.sql(
        "SELECT " + ", ".join(f"unix_micros(TIMESTAMP '{text}') AS t{number}" for number, text in enumerate(texts))
    ).collect()[0]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ours = [(parse_timestamp(text) - epoch) // timedelta(microseconds=1) for text in texts]
    assert dict(zip(texts, spark_micros, strict=True)) == dict(zip(texts, ours, strict=True))


def test_a_schema_becomes_columns() -> None:
    assert spark_schema(Schema.from_yaml(TRADES)).simpleString() == (
        "struct<symbol:string,price:decimal(6,2),volume:bigint,ratio:double,live:boolean,at:timestamp,"
        "order:struct<side:string,depth:struct<level:bigint>>>"
    )


def test_a_schema_comes_back_from_its_columns_with_all_its_bounds() -> None:
    schema = Schema.from_yaml(TRADES)
    assert schema_from_spark(spark_schema(schema)).attributes == schema.attributes
    as_json = column.StructType.fromJson(spark_schema(schema).jsonValue())
    assert schema_from_spark(as_json).attributes == schema.attributes


@pytest.mark.parametrize("name", [*Type, "object"])
def test_what_the_document_says_of_spark_is_true(name: str) -> None:
    attribute = Attribute("x.y", Type.INTEGER) if name == "object" else Attribute("x", Type(name))
    said = documented_rows()[name][4]
    assert said.startswith(f"`{spark_schema(Schema((attribute,)))['x'].dataType.simpleString().partition('<')[0]}`")


@pytest.mark.usefixtures("spark")  # fromDDL asks it
def test_columns_that_no_attribute_can_be_are_left_out_and_remembered() -> None:
    parsed = column.StructType.fromDDL(
        "day date, raw binary, tags array<int>, more map<string, int>, price double, "
        "o struct<day: date, side: string>, name string collate UTF8_LCASE, span interval day to second, "
        "`odd.name` date"
    )
    assert isinstance(parsed, column.StructType)
    columns = parsed.add("nothing", column.NullType())
    assert schema_from_spark(columns).names == ("price", "o.side")
    assert unusable_columns(columns) == {
        "day": "date",
        "raw": "binary",
        "tags": "array<int>",
        "more": "map<string,int>",
        "o.day": "date",
        "name": "string collate UTF8_LCASE",
        "span": "interval day to second",
        "`odd.name`": "date",
        "nothing": "void",
    }


def test_a_decimal_column_gives_its_step_as_the_precision() -> None:
    columns = column.StructType().add("x", column.DecimalType(10, 2)).add("y", column.DecimalType(38, 0))
    assert schema_from_spark(columns).attributes == (
        Attribute("x", Type.DECIMAL, precision=Decimal("0.01")),
        Attribute("y", Type.DECIMAL, precision=Decimal(1)),
    )


@pytest.mark.parametrize("metadata", [{"comment": "of another kind", "length": 5}, {"meetpoint.type": "string"}])
def test_notes_of_others_are_ignored(metadata: dict[str, Any]) -> None:
    columns = column.StructType().add("x", column.LongType(), metadata=metadata)
    assert schema_from_spark(columns) == Schema((Attribute("x", Type.INTEGER),))


def test_a_column_that_occurs_twice_is_refused() -> None:
    columns = column.StructType().add("x", column.LongType()).add("x", column.LongType())
    with pytest.raises(SchemaError, match=r"^schema: column x occurs twice; rename one of them"):
        schema_from_spark(columns)
