"""`backtest` on Spark: the same numbers, and of rows in the same order the same samples, as in one process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import meetpoint as mp
from meetpoint.errors import EventError, FilterError, MeetpointError
from meetpoint.language import Attribute, Attributes, Schema, Type, parse_filter
from meetpoint.language.events.arrow import attributes_to_arrow
from meetpoint.matching.backtest import SAMPLES_MAX, Backtest
from meetpoint.spark.columns import spark_schema
from meetpoint.spark.matching.backtest import _PartialBacktest, _sum_parts, backtest
from tests.workloads import TYPES, random_events, random_filter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOSE = Schema(tuple(Attribute(name, type_) for name, type_ in TYPES.items()))
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def rows() -> list[Attributes]:
    return random_events(random.Random(21), 500)


@pytest.fixture(scope="module")
def events(spark: SparkSession, rows: list[Attributes]) -> Any:
    """The rows in five partitions, of which two are empty and one is of several batches."""
    table = attributes_to_arrow(rows, LOOSE)
    slices = [table[:0], table[:70], table[70:400], table[:0], table[400:]]

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from slices[number].to_batches(max_chunksize=100)

    frame = spark.range(0, 5, 1, 5).mapInArrow(give, spark_schema(LOOSE)).cache()
    assert frame.toArrow().num_rows == len(rows)
    return frame


def shown(found: Backtest) -> str:
    """All of it, so that NaN equals NaN."""
    said = found.to_dict()
    said["near_misses"] = dict(sorted(said["near_misses"].items()))
    return repr(said)


# -- the same as in one process ----------------------------------------------------------------------------------------


def test_random_filters_say_the_same_as_in_one_process(events: Any, rows: list[Attributes]) -> None:
    rng = random.Random(22)
    table = events.toArrow()
    fired = 0
    widths: list[str | timedelta] = ["1s", "1d", timedelta(days=400)]
    for number in range(10):
        text = random_filter(rng)
        time, width = (None if number == 0 else "t"), rng.choice(widths)
        found = backtest(text, events, time=time, width=width)
        assert shown(found) == shown(mp.backtest(text, table, time=time, width=width)), text
        scan = mp.Scan[str]()
        scan.add("it", parse_filter(text))
        accepted = [number for number, row in enumerate(rows) if scan.match(row)]
        assert found.hits == len(accepted), text
        assert [sample.row for sample in found.samples] == accepted[:SAMPLES_MAX], text
        fired += bool(accepted)
    assert fired > 3


def test_a_parsed_filter_will_do_too(events: Any) -> None:
    filter_ = parse_filter("b AND i > 0")
    assert shown(backtest(filter_, events)) == shown(mp.backtest(filter_, events.toArrow()))


def test_near_misses_have_the_order_of_the_filters_normal_form(events: Any) -> None:
    found = backtest("i > 0 AND b AND s LIKE 'A%'", events)
    assert list(found.near_misses) == ["b", "i > 0", "s LIKE 'A%'"]


def test_samples_hold_columns_of_every_type(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT id AS n, date '2026-01-02' AS day, array(id) AS tags, map('k', id) AS more, X'00ff' AS raw, "
        "cast(id AS decimal(9, 2)) AS price, timestamp_micros(id) AS t, named_struct('x', NULL, 'y', id) AS o "
        "FROM range(0, 10, 1, 3)"
    )
    found = backtest("n >= 4", frame)
    assert found.samples == mp.backtest("n >= 4", frame.toArrow()).samples
    assert found.samples[0].attributes == {
        "n": 4,
        "day": date(2026, 1, 2),
        "tags": [4],
        "more": [("k", 4)],
        "raw": b"\x00\xff",
        "price": Decimal("4.00"),
        "t": datetime(1970, 1, 1, microsecond=4, tzinfo=UTC),
        "o": {"x": None, "y": 4},
    }


def test_names_with_dots_are_names(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id AS `a.b`, named_struct('b', id, 'x`y', timestamp_seconds(id)) AS a FROM range(9)")
    found = backtest("`a.b` > 2 AND a.b < 5", frame, time="a.`x``y`", width="3s")
    assert shown(found) == shown(mp.backtest("`a.b` > 2 AND a.b < 5", frame.toArrow(), time="a.`x``y`", width="3s"))
    assert (found.hits, len(found.buckets)) == (2, 3)


def test_many_partitions_and_buckets_add_up(spark: SparkSession) -> None:
    frame = spark.range(0, 3000, 1, 30).selectExpr("id", "timestamp_seconds(id * 60) AS t", "id % 7 AS x")
    found = backtest("x = 3", frame, time="t", width="1m")
    assert (found.events, found.hits, len(found.buckets)) == (3000, 429, 3000)
    assert [sample.row for sample in found.samples] == [3, 10, 17, 24, 31]
    assert shown(found) == shown(mp.backtest("x = 3", frame.toArrow(), time="t", width="1m"))


def test_shuffled_rows_give_the_same_numbers(events: Any) -> None:
    text = "i > 0 OR f < 1"
    found = backtest(text, events.repartition(7), time="t")
    once = backtest(text, events, time="t")
    assert (found.hits, found.near_misses, found.buckets) == (once.hits, once.near_misses, once.buckets)
    assert len(found.samples) == SAMPLES_MAX
    assert all(parse_filter(text).accepts(sample.attributes) for sample in found.samples)


def test_no_events_are_none(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "i bigint, t timestamp")
    assert backtest("i > 0", none, time="t") == Backtest("i > 0")


def test_events_without_a_time_are_counted(spark: SparkSession) -> None:
    """Also where all events of one partition are."""
    frame = spark.range(0, 40, 1, 4).selectExpr("id", "CASE WHEN id >= 10 THEN timestamp_seconds(id) END AS t")
    found = backtest("id < 20", frame, time="t")
    assert (found.untimed, found.hits, list(found.buckets.values())) == (10, 20, [(30, 10)])


def test_parts_add_up_in_any_grouping() -> None:
    parts = [
        _PartialBacktest(
            Backtest("x", n, 1, Counter({f"c{n % 3}": n}), {START + timedelta(hours=n % 4): (n, 1)}), {n % 5: n}
        )
        for n in range(1, 40)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert _sum_parts(parts) == whole
    assert _sum_parts(reversed(parts)) == whole
    assert _sum_parts([]) is None


# -- refused before any job --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def untouchable(spark: SparkSession) -> Any:
    """Events on which every job fails, so that whatever is raised was raised before one."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert not batch.num_rows, "a job ran"
            yield batch

    columns = "i int, s string, t timestamp, n timestamp_ntz, day date, o struct<x: int, t: timestamp>"
    return spark.range(1).mapInArrow(fail, columns)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"filter": "ii > 1"}, "no attribute ii; did you mean i?"),
        ({"filter": "i = '1'"}, "i is of type integer and is compared with a string"),
        ({"filter": "day > TIMESTAMP '2026-01-01'"}, "column day is of type date"),
        ({"filter": "i >"}, "complete the condition"),
        ({"filter": 5}, "the filter is of class int"),
        ({"time": "when"}, "the events have no attribute when; name one that holds timestamps"),
        ({"time": "T"}, "the events have no attribute T"),
        ({"time": "day"}, "day does not hold timestamps; name an attribute that does"),
        ({"time": "i"}, "i does not hold timestamps"),
        ({"time": "o"}, "o does not hold timestamps"),
        ({"time": "o.y"}, "the events have no attribute o.y"),
        ({"time": "o..t"}, "--time: .*expected a name at offset 2"),
        ({"time": 5}, "--time: given an object of class int"),
        ({"width": "soon"}, "'soon' is not a width"),
        ({"width": timedelta(0)}, "too narrow"),
        ({"width": 5}, "the width is of class int"),
        ({"schema": Schema((Attribute("j", Type.INTEGER),))}, "the schema has no attribute i"),
        (
            {"schema": Schema((Attribute("i", Type.INTEGER), Attribute("s", Type.FLOAT)))},
            "column s is of type string and the schema says float; cast the column, or change the schema",
        ),
        (
            {"schema": Schema((Attribute("i", Type.INTEGER), Attribute("day", Type.TIMESTAMP)))},
            "column day is of type date and the schema says timestamp",
        ),
        (
            {"schema": Schema((Attribute("i", Type.INTEGER), Attribute("o", Type.STRING)))},
            "column o is of type struct and the schema says string",
        ),
        (
            {"schema": Schema((Attribute("i", Type.INTEGER), Attribute("s.x", Type.STRING)))},
            "column s is of type string and the schema says an object",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_any_job(untouchable: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(MeetpointError, match=message) as caught:
        backtest(given.pop("filter", "i > 1"), untouchable, **given)
    assert "\n" not in str(caught.value)


def test_streams_and_what_is_no_frame_are_refused(spark: SparkSession) -> None:
    with pytest.raises(EventError, match="the DataFrame is a stream; backtest a table"):
        backtest("value > 1", spark.readStream.format("rate").load())
    with pytest.raises(MeetpointError, match="events: given an object of class list"):
        backtest("i > 1", [{"i": 2}])  # type: ignore[arg-type]


def test_times_that_are_all_null_are_an_error_as_in_one_process(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id", "cast(NULL AS timestamp) AS t")
    message = "the events have no attribute t; name one that holds timestamps"
    with pytest.raises(EventError, match=message):
        backtest("id > 1", frame, time="t")
    with pytest.raises(EventError, match=message):
        mp.backtest("id > 1", frame.toArrow(), time="t")


def test_a_column_that_cannot_be_read_is_told_on_one_line(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id, timestamp_micros(253402300800000000 + id) AS t FROM range(0, 20000, 1, 3)")
    with pytest.raises(EventError, match="column t has timestamps outside the years 1 to 9999") as caught:
        backtest("id > 1", frame, time="t")
    assert "\n" not in str(caught.value)


def test_a_schema_that_fits_changes_nothing(events: Any) -> None:
    text = "i > 0 AND o.x IS NULL"
    assert shown(backtest(text, events, schema=LOOSE)) == shown(backtest(text, events))
    with pytest.raises(FilterError, match="compared with"):
        backtest("i = 'x'", events, schema=LOOSE)
