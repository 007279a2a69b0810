"""`validate`: the same verdicts and reasons as the language's own, on tables, JSON and streams; nothing lost."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as column

from meetpoint.errors import EventError, MeetpointError, SchemaError
from meetpoint.language import Attribute, Schema, Type, Value
from meetpoint.language.events.arrow import attributes_from_arrow, attributes_to_arrow
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.spark.columns import schema_from_spark, spark_schema
from meetpoint.spark.validation import Validated, validate
from tests.language.strategies import exactly
from tests.workloads import TYPES, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOSE = Schema(tuple(Attribute(name, type_) for name, type_ in TYPES.items()))
TIGHT = Schema(
    (
        Attribute("i", Type.INTEGER, -5, 2**53),
        Attribute("binary", Type.INTEGER, precision=2),
        Attribute("d", Type.DECIMAL, Decimal(-5), Decimal(10), Decimal("0.1")),
        Attribute("f", Type.FLOAT, Decimal("-0.1"), Decimal("1e300")),
        Attribute("date", Type.FLOAT, precision=Decimal("0.1")),
        Attribute("s", Type.STRING),
        Attribute("user", Type.STRING),
        Attribute("b", Type.BOOLEAN),
        Attribute("t", Type.TIMESTAMP, datetime(2025, 1, 1, tzinfo=UTC)),
        Attribute("o.x", Type.INTEGER, 0, precision=1),
        Attribute("o.`odd name`", Type.STRING),
    )
)
TRADES = Schema(
    (
        Attribute("symbol", Type.STRING),
        Attribute("price", Type.DECIMAL, Decimal(0), Decimal(1000), Decimal("0.01")),
        Attribute("at", Type.TIMESTAMP),
        Attribute("order.side", Type.STRING),
    )
)
GOOD = {"symbol": "OTE", "price": 8.3, "at": "2026-01-02T03:04:05.678901Z", "order": {"side": "buy"}}
POISON = {
    "": "line 1, column 1: is not JSON",
    "{": "is not JSON",
    "[]": "is a list; write one JSON object",
    "null": "is null",
    '{"price": 8.301}': "not a whole number of steps of 0.01",
    '{"price": -1}': "price is -1, below the minimum 0: change the event, or the schema",
    '{"price": "8.30"}': "attribute price is '8.30', a string; send a decimal",
    '{"at": "yesterday"}': "attribute at is wrong",
    '{"price": 1, "price": 2}': "occurs twice",
    '{"prise": 1}': "prise is not in the schema (did you mean price?)",
    '{"order": 1}': "send an object",
    '{"order": {"size": 1}}': "order.size is not in the schema",
}


def reason_of(row: dict[str, Value], schema: Schema) -> str | None:
    try:
        attributes_to_arrow([row], schema)
    except EventError as error:
        return str(error).removeprefix("row 1: ")
    return None


def bag(rows: list[dict[str, Value]]) -> Counter[str]:
    """The rows in no order, each value exactly."""
    return Counter(repr(exactly(row)) for row in rows)


def letters(validated: Validated) -> list[dict[str, Any]]:
    return list(validated.dead.toArrow().to_pylist())


def untouchable(spark: SparkSession, columns: str) -> Any:
    """A DataFrame on which every job fails, so that whatever is raised was raised before one."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert not batch.num_rows, "a job ran"
            yield batch

    return spark.range(1).mapInArrow(fail, columns)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_columns_get_the_verdicts_and_the_reasons_of_the_language(spark: SparkSession) -> None:
    rows = attributes_from_arrow(attributes_to_arrow(random_events(random.Random(11), 600), LOOSE))
    frame = spark.createDataFrame(attributes_to_arrow(rows, LOOSE)).repartition(3)
    reasons = [reason_of(row, TIGHT) for row in rows]
    validated = validate(frame, TIGHT)

    found = validated.good.toArrow()
    want = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    assert 10 < len(want) < 590
    assert bag(attributes_from_arrow(found, TIGHT)) == bag(
        attributes_from_arrow(attributes_to_arrow(want, TIGHT), TIGHT)
    )
    assert validated.good.schema == spark_schema(TIGHT)
    assert schema_from_spark(validated.good.schema) == TIGHT

    dead = letters(validated)
    assert Counter(letter["reason"] for letter in dead) == Counter(filter(None, reasons))
    assert Counter(letter["raw"] for letter in dead) == Counter(
        attributes_to_json(row).decode() for row, reason in zip(rows, reasons, strict=True) if reason is not None
    )
    assert validated.counts() == {"in": 600, "good": len(want), "dead": 600 - len(want)}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_json_gets_the_verdicts_and_the_reasons_of_the_language(spark: SparkSession, as_bytes: bool) -> None:
    rows = random_events(random.Random(12), 300)
    texts = [attributes_to_json(row).decode() for row in rows] + list(POISON)
    wanted: list[dict[str, Value]] = []
    reasons: dict[str, str] = {}
    for text in texts:
        try:
            row = attributes_from_json(text, TIGHT)
            reason = reason_of(row, TIGHT)
        except EventError as error:
            reason = str(error)
        if reason is None:
            wanted.append(row)
        else:
            reasons[text] = reason
    values = pa.array([text.encode() for text in texts]) if as_bytes else pa.array(texts)
    validated = validate(spark.createDataFrame(pa.table({"value": values})).repartition(3), TIGHT, column="value")

    dead = letters(validated)
    assert {letter["raw"]: letter["reason"] for letter in dead} == reasons
    assert len(dead) + len(wanted) == len(texts)
    assert bag(attributes_from_arrow(validated.good.toArrow(), TIGHT)) == bag(
        attributes_from_arrow(attributes_to_arrow(wanted, TIGHT), TIGHT)
    )


def test_poisoned_texts_say_what_is_wrong(spark: SparkSession) -> None:
    texts = [*POISON, None, "\ufeff{}", json.dumps(GOOD), "{}"]
    validated = validate(spark.createDataFrame(pa.table({"value": texts})), TRADES, column="value")
    reasons = {letter["raw"]: letter["reason"] for letter in letters(validated)}
    for text, said in POISON.items():
        assert said in reasons[text]
    assert reasons[None] == "event: is NULL; send one JSON object"
    assert "byte order mark" in reasons["\ufeff{}"]
    assert validated.counts() == {"in": len(texts), "good": 2, "dead": len(texts) - 2}
    assert attributes_from_arrow(validated.good.where("symbol IS NOT NULL").toArrow()) == [
        {
            "symbol": "OTE",
            "price": Decimal("8.30"),
            "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            "order": {"side": "buy"},
        }
    ]


def test_texts_that_are_not_utf8_are_dead_and_shown(spark: SparkSession) -> None:
    values = pa.array([b'{"symbol": "\xff"}', b'{"symbol": "a"}'])
    frame = spark.createDataFrame(pa.table({"value": values}))
    for texts in (frame, frame.select(F.col("value").cast("string"))):
        validated = validate(texts, TRADES, column="value")
        [dead] = letters(validated)
        assert dead["reason"] == "event, byte 13: is not UTF-8; encode the JSON as UTF-8"
        assert dead["raw"] == '{"symbol": "\ufffd"}'
        assert validated.good.count() == 1


def test_columns_that_no_row_of_python_could_hold_are_dead_and_shown(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT cast(X'ff61' AS string) AS symbol, cast(1 AS decimal(6, 2)) AS price, timestamp_micros(0) AS at, "
        "named_struct('side', 'buy') AS `order` UNION ALL "
        "SELECT 'late', 2, timestamp_micros(253402300800000000), NULL UNION ALL SELECT 'fine', 3, NULL, NULL"
    )
    validated = validate(frame, TRADES)
    assert {json.loads(letter["raw"])["symbol"]: letter for letter in letters(validated)} == {
        "\ufffda": {
            "raw": '{"symbol":"\ufffda","price":1.00,"at":"1970-01-01T00:00:00.000000Z","order":{"side":"buy"}}',
            "reason": "event: column symbol is not UTF-8; encode its texts as UTF-8",
            "source": None,
        },
        "late": {
            "raw": '{"symbol":"late","price":2.00,"at":"253402300800000000 microseconds since 1970","order":null}',
            "reason": "event: attribute at is outside the years 1 to 9999; use a time within them",
            "source": None,
        },
    }
    assert [row["symbol"] for row in validated.good.toArrow().to_pylist()] == ["fine"]


def test_numbers_and_times_of_every_width_become_the_schemas(spark: SparkSession) -> None:
    schema = Schema(
        (
            Attribute("small", Type.INTEGER),
            Attribute("whole", Type.INTEGER),
            Attribute("long", Type.INTEGER, maximum=10**30),
            Attribute("wide", Type.FLOAT),
            Attribute("count", Type.FLOAT),
            Attribute("price", Type.DECIMAL, Decimal(0), Decimal(100), Decimal("0.01")),
            Attribute("steps", Type.DECIMAL, precision=Decimal("0.5")),
            Attribute("local", Type.TIMESTAMP),
            Attribute("nothing", Type.DECIMAL),
            Attribute("none.x", Type.STRING),
        )
    )
    frame = spark.sql(
        "SELECT tinyint(id) AS small, cast(id AS decimal(20, 0)) * 9223372036854775807 AS whole, "
        "cast(id AS decimal(38, 0)) * 1000000000000000000000 AS long, float(id) / 4 AS wide, bigint(id) AS count, "
        "cast(id AS decimal(38, 18)) / 100 AS price, int(id) AS steps, timestamp_ntz '2026-01-02 03:04:05.678901' AS "
        "local, NULL AS nothing, NULL AS none FROM range(3)"
    )
    validated = validate(frame, schema)
    assert validated.good.schema == spark_schema(schema)
    assert exactly(attributes_from_arrow(validated.good.orderBy("small").toArrow(), schema)) == exactly(
        [
            {
                "small": n,
                "whole": n * (2**63 - 1),
                "long": n * 10**21,
                "wide": n / 4,
                "count": float(n),
                "price": Decimal(n) / 100 + Decimal("0.00"),
                "steps": Decimal(n) + Decimal("0.0"),
                "local": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
                "nothing": None,
                "none": None,
            }
            for n in range(2)
        ]
    )
    [dead] = letters(validated)
    assert dead["reason"] == (
        "event: attribute whole is 18446744073709551614, beyond 64 bits; declare a min or max beyond them in the "
        "schema, and the column is a DECIMAL(38, 0)"
    )


def test_times_keep_their_instant_whatever_the_sessions_zone(spark: SparkSession) -> None:
    schema = Schema((Attribute("t", Type.TIMESTAMP), Attribute("n", Type.TIMESTAMP)))
    frame = spark.sql("SELECT timestamp_micros(1) AS t, timestamp_ntz '1970-01-01 00:00:00.000002' AS n")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Athens")
    try:
        good = validate(frame, schema).good.selectExpr("unix_micros(t) AS t", "unix_micros(n) AS n")
        assert good.toArrow().to_pylist() == [{"t": 1, "n": 2}]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_floats_are_measured_by_their_spelling(spark: SparkSession) -> None:
    schema = Schema((Attribute("f", Type.FLOAT, Decimal("0.1"), Decimal("0.3"), Decimal("0.1")),))
    values = [0.1, 0.2, 0.3, 0.30000000000000004, 0.1 + 0.05, math.nan, -math.inf, None]
    validated = validate(spark.createDataFrame(pa.table({"f": pa.array(values, pa.float64())})), schema)
    assert validated.good.toArrow()["f"].to_pylist() == [0.1, 0.2, 0.3, None]
    assert validated.counts() == {"in": 8, "good": 4, "dead": 4}


def test_a_long_row_is_cut_and_a_long_reason_too(spark: SparkSession) -> None:
    schema = Schema((Attribute("s", Type.STRING), Attribute("x", Type.INTEGER, 0)))
    frame = spark.createDataFrame(pa.table({"s": ["é" * 100_000], "x": [-1]}))
    text = attributes_to_json({"s": "é" * 100_000, "y" * 1000: -1}).decode()
    for validated in (
        validate(frame, schema),
        validate(spark.createDataFrame(pa.table({"value": [text]})), schema, column="value"),
    ):
        [dead] = letters(validated)
        assert len(dead["raw"]) == 65_536
        assert dead["raw"].startswith('{"s":"é')
        assert len(dead["reason"]) <= 500


def test_no_rows_are_no_rows(spark: SparkSession) -> None:
    for validated in (
        validate(spark.createDataFrame([], spark_schema(TRADES)), TRADES),
        validate(spark.createDataFrame([], "value string"), TRADES, column="value"),
    ):
        assert validated.counts() == {"in": 0, "good": 0, "dead": 0}
        assert validated.good.schema == spark_schema(TRADES)
        assert validated.dead.schema.simpleString() == "struct<raw:string,reason:string,source:string>"


# -- what else comes with a row ----------------------------------------------------------------------------------------


def test_kept_columns_pass_unchecked_and_are_shown_with_the_dead(spark: SparkSession) -> None:
    schema = Schema((Attribute("x", Type.INTEGER, 0),))
    frame = spark.sql("SELECT id - 1 AS x, date '2026-01-02' AS `a day`, array(id) AS tags FROM range(3)")
    validated = validate(frame, schema, keep=["a day", "tags"])
    assert validated.good.dtypes == [("x", "bigint"), ("a day", "date"), ("tags", "array<bigint>")]
    assert sorted(row["tags"][0] for row in validated.good.toArrow().to_pylist()) == [1, 2]
    assert [letter["raw"] for letter in letters(validated)] == ['{"x":-1,"a day":"2026-01-02","tags":"[0]"}']


def test_dead_letters_from_files_say_which_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"symbol": "a"}\n{"symbol": 1}\n', "utf-8")
    (tmp_path / "b.jsonl").write_text("oops\n", "utf-8")
    texts = spark.read.text(str(tmp_path))
    dead = letters(validate(texts, TRADES, column="value", source="_metadata.file_path"))
    assert {letter["raw"]: letter["source"].rpartition("/")[2] for letter in dead} == {
        '{"symbol": 1}': "a.jsonl",
        "oops": "b.jsonl",
    }


def test_dead_letters_from_kafka_say_topic_partition_and_offset(spark: SparkSession) -> None:
    records = spark.sql(
        "SELECT 'ticks' AS topic, int(id % 2) AS partition, id AS offset, encode('{\"symbol\": ' || id || '}', 'utf-8')"
        " AS value FROM range(2)"
    )
    validated = validate(records, TRADES, column="value", keep=["offset"])
    assert sorted(letter["source"] for letter in letters(validated)) == ["ticks/0/0", "ticks/1/1"]
    assert validated.good.columns == ["symbol", "price", "at", "order", "offset"]


def test_attributes_may_have_the_names_of_our_columns(spark: SparkSession) -> None:
    schema = Schema(tuple(Attribute(name, Type.STRING) for name in ("source", "raw", "event", "`value.x`")))
    frame = spark.sql(
        "SELECT 'a' AS source, 'b' AS raw, 'c' AS event, cast(X'ff' AS string) AS `value.x`, 'e' AS reason"
    )
    validated = validate(frame, schema, keep=["reason"], source="concat(source, '!')")
    [dead] = letters(validated)
    assert dead["source"] == "a!"
    assert dead["raw"] == '{"source":"a","raw":"b","event":"c","value.x":"\ufffd","reason":"e"}'
    texts = frame.selectExpr("""'{"source": "s", "raw": "r"}' AS value""", "1 AS reason")
    good = validate(texts, schema, column="value", keep=["reason"], source="value").good
    assert good.toArrow().to_pylist() == [{"source": "s", "raw": "r", "event": None, "value.x": None, "reason": 1}]


def test_marked_rows_that_are_persisted_are_marked_once(spark: SparkSession) -> None:
    schema = Schema((Attribute("x", Type.FLOAT, Decimal(0), Decimal("0.5")),))
    validated = validate(spark.range(200).select(F.rand().alias("x")), schema)
    validated.marked.persist()
    try:
        assert validated.good.count() + validated.dead.count() == 200
        assert validated.counts()["dead"] == validated.dead.count()
    finally:
        validated.marked.unpersist()


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_split_into_good_and_dead(spark: SparkSession, tmp_path: Path) -> None:
    lines = [json.dumps({**GOOD, "price": n}) for n in range(40)] + list(POISON)[1:]
    for number in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(lines[number::3]) + "\n", "utf-8")
    validated = validate(
        spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in")),
        TRADES,
        column="value",
        source="_metadata.file_name",
    )
    assert validated.good.isStreaming
    assert validated.dead.isStreaming
    for name, frame in (("good", validated.good), ("dead", validated.dead)):
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / name))
        )
        query.awaitTermination()
    good = spark.read.parquet(str(tmp_path / "good"))
    dead = spark.read.parquet(str(tmp_path / "dead"))
    assert sorted(int(row["price"]) for row in good.toArrow().to_pylist()) == list(range(40))
    assert sorted(row["raw"] for row in dead.toArrow().to_pylist()) == sorted(list(POISON)[1:])
    assert {row["source"] for row in dead.toArrow().to_pylist()} == {"0.txt", "1.txt", "2.txt"}
    with pytest.raises(EventError, match="a stream has no count"):
        validated.counts()


def test_a_stream_of_columns_is_checked_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).selectExpr("id AS x").write.parquet(str(tmp_path / "in"))
    validated = validate(
        spark.readStream.schema("x bigint").parquet(str(tmp_path / "in")), Schema((Attribute("x", Type.INTEGER, 4),))
    )
    counted: Counter[str] = Counter()

    def count(batch: Any, _: int) -> None:
        counted.update(row["reason"] or "good" for row in batch.toArrow().to_pylist())

    query = validated.marked.writeStream.foreachBatch(count).trigger(availableNow=True).start()
    query.awaitTermination()
    assert counted["good"] == 6
    assert sum(counted.values()) == 10


# -- refused before any job --------------------------------------------------------------------------------------------

COLUMNS = "symbol string, price decimal(6,2), at timestamp, `order` struct<side: string>"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("price decimal(6,2), at timestamp, `order` struct<side: string>", "no column symbol, and the schema has it"),
        (COLUMNS.replace("price", "prize"), r"column prize is not in the schema \(did you mean price\?\)"),
        (COLUMNS.replace("price", "Price"), r"column Price is not in the schema \(did you mean price\?\)"),
        (COLUMNS + ", day date", "column day is not in the schema .*; name it in keep=, drop it"),
        (COLUMNS.replace("decimal(6,2)", "double"), "column price is of type double and the schema says decimal; cast"),
        (COLUMNS.replace("decimal(6,2)", "array<int>"), "column price is of type array<int>"),
        (COLUMNS.replace("decimal(6,2)", "struct<x: int>"), "column price is of type struct<x:int>"),
        (COLUMNS.replace("timestamp", "date"), "column at is of type date and the schema says timestamp"),
        (COLUMNS.replace("struct<side: string>", "string"), "column order is of type string .* says an object"),
        (COLUMNS.replace("side: string", "side: int"), "column order.side is of type int and the schema says string"),
        (COLUMNS.replace("side", "size"), "column order.size is not in the schema"),
        (COLUMNS.replace("side: string", "side: string, more: int"), "column order.more is not in the schema"),
        (COLUMNS.replace("symbol string", "symbol string collate UTF8_LCASE"), "string collate UTF8_LCASE"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_job(spark: SparkSession, columns: str, message: str) -> None:
    with pytest.raises(EventError, match=message) as caught:
        validate(untouchable(spark, columns), TRADES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"column": "valeu"}, "no column 'valeu'; did you mean value?"),
        ({"column": "n"}, "column 'n' is of type int; name one of JSON texts"),
        ({"column": "value", "keep": ["m"]}, "keep: events have no column 'm'; "),
        ({"column": "value", "keep": "n"}, "keep: given 'n'; give a list"),
        ({"column": "value", "keep": ["symbol"]}, "keep: symbol is an attribute of the schema"),
        ({"column": "value", "source": "no_such_column"}, "source: 'no_such_column' does not fit the events"),
        ({"column": "value", "source": "(("}, r"source: '\(\(' does not fit the events"),
        ({"column": "value", "source": " "}, "source: the expression is empty"),
        ({"column": "value", "source": 5}, "source: given an object of class int"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_any_job(
    spark: SparkSession, given: dict[str, Any], message: str
) -> None:
    events = untouchable(spark, "value string, n int, symbol string")
    with pytest.raises(EventError, match=message) as caught:
        validate(events, TRADES, **given)
    assert "\n" not in str(caught.value)


def test_what_is_no_frame_or_no_schema_is_refused(spark: SparkSession) -> None:
    with pytest.raises(MeetpointError, match="events: given an object of class list"):
        validate([{"x": 1}], TRADES)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="schema: given an object of class str; give a Schema"):
        validate(untouchable(spark, COLUMNS), "trades.yaml")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="schema: it has no attributes"):
        validate(untouchable(spark, COLUMNS), Schema())
    huge = Attribute("price", Type.DECIMAL, Decimal(0), Decimal("1e37"), Decimal("0.01"))
    with pytest.raises(SchemaError, match="narrow its bounds"):
        validate(untouchable(spark, "price decimal(6,2)"), Schema((huge,)))


def test_a_column_that_occurs_twice_is_refused(spark: SparkSession) -> None:
    twice = column.StructType().add("value", column.StringType()).add("value", column.StringType())
    with pytest.raises(EventError, match="column 'value' occurs 2 times; rename or drop all but one"):
        validate(spark.createDataFrame([], twice), TRADES, column="value")
