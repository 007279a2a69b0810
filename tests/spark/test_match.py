"""`match` against the oracles, Scan and Spark SQL's WHERE, on every type, and with more output than a buffer holds."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from meetpoint.errors import FilterError, MeetpointError, SchemaError, SetupError
from meetpoint.language import Attributes, parse_filter
from meetpoint.matching.index import Index
from meetpoint.spark import Subscriptions, match, plan
from meetpoint.spark.matching import job as match_job
from meetpoint.spark.matching import match_lists
from meetpoint.spark.subscriptions.store import FileDigest, Manifest, Version
from tests.spark.scenes import (
    frame_of,
    pairs_in,
    pairs_in_lists,
    scanned,
    some_events,
    some_filters,
    subscriptions_of,
)
from tests.spark.test_language_oracle import spark_text

FILTERS, EVENTS, WHERES = 700, 300, 150


# -- the oracles -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filters() -> dict[str, str]:
    return some_filters(5, FILTERS)


@pytest.fixture(scope="module")
def events() -> list[Attributes]:
    return some_events(6, EVENTS)


@pytest.fixture(scope="module")
def frame(spark: Any, events: list[Attributes]) -> Any:
    return frame_of(spark, events)


@pytest.fixture(scope="module")
def expected(filters: dict[str, str], events: list[Attributes]) -> Counter[tuple[int, Any]]:
    return scanned(filters, events)


def test_pairs_are_those_of_scan(
    spark: Any, frame: Any, filters: dict[str, str], expected: Counter[tuple[int, Any]]
) -> None:
    subscriptions = subscriptions_of(spark, filters)
    assert pairs_in(match(frame, subscriptions)) == expected
    assert 0.2 < expected.total() / (FILTERS * EVENTS) < 0.8
    assert pairs_in(match(frame, subscriptions.compile(sample=frame))) == expected


def test_lists_are_those_of_scan_with_every_event_once(
    spark: Any, frame: Any, filters: dict[str, str], expected: Counter[tuple[int, Any]]
) -> None:
    assert pairs_in_lists(match(frame, subscriptions_of(spark, filters), result="lists")) == expected


def test_pairs_are_those_of_spark_where(interpreted: Any, frame: Any, filters: dict[str, str]) -> None:
    some = {id_: filters[id_] for id_ in list(filters)[:WHERES]}
    texts = [spark_text(parse_filter(text)) for text in some.values()]
    answers = frame.selectExpr("n", *(f"({text}) AS `where {at}`" for at, text in enumerate(texts))).toArrow()
    expected = Counter(
        (n, id_)
        for at, id_ in enumerate(some)
        for n in answers.filter(answers[f"where {at}"].combine_chunks().fill_null(False))["n"].to_pylist()
    )
    assert pairs_in(match(frame, subscriptions_of(interpreted, some))) == expected


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_of_every_type_pass_as_they_are(spark: Any) -> None:
    frame = spark.sql(
        "SELECT 1 AS x, DATE '2026-01-01' AS day, array(array(1, NULL)) AS lists, map('a', map(1, 'z')) AS maps, "
        "CAST('abc' AS BINARY) AS bytes, INTERVAL '1' DAY AS span, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS local, "
        "CAST(1.5 AS DECIMAL(38, 10)) AS money, 'a' COLLATE UTF8_LCASE AS folded, NULL AS nothing, "
        "named_struct('a', named_struct('b.c', CAST(2 AS TINYINT))) AS nested, 5 AS `dotted.name`, 6 AS `tick``ed`"
    )
    frame = frame.withMetadata("x", {"meetpoint.note": "kept"})
    for result, added in (("pairs", "subscription"), ("lists", "subscriptions")):
        hits = match(frame, subscriptions_of(spark, {7: "x = 1 AND nested.a.`b.c` = 2"}), result=result)
        assert hits.schema.fields[:-1] == frame.schema.fields
        assert hits.schema["x"].metadata == {"meetpoint.note": "kept"}
        assert (hits.columns[-1], hits.schema[added].nullable) == (added, False)
        assert hits.toArrow().drop_columns([added]) == frame.toArrow()


def test_only_what_is_asked_for_need_be_there(spark: Any) -> None:
    filters = {"there": "x > 1", "neither": "gone = 1", "null": "gone IS NULL", "either": "gone.deep = 1 OR x = 1"}
    frame = spark.createDataFrame(pa.table({"n": [0, 1, 2], "x": [1, 2, None]}))
    subscriptions = subscriptions_of(spark, filters)
    expected = scanned(filters, [{"x": 1}, {"x": 2}, {}])
    assert pairs_in(match(frame, subscriptions, missing="null")) == expected
    with pytest.raises(FilterError, match=r"subscription 'neither': events have no column gone; .*missing='null'"):
        match(frame, subscriptions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i = 1 AND prise > 1", "column 11: subscription 'ann': events have no column prise; did you mean price?"),
        ("I = 1", "subscription 'ann': events have no column I; did you mean i?"),
        ("i = '1'", "subscription 'ann': i is of type integer and is compared with a string; write a number"),
        ("i > 1 AND i = '1'", "column 11: subscription 'ann': i is of type integer and is compared with a string"),
        ("i > 5 AND i < 3 AND nowhere = 1", "column 21: subscription 'ann': events have no column nowhere"),
        ("o = 1", "o is an object; name one of its attributes: o.x"),
        ("o.y = 1", "events have no column o.y"),
        ("day = TIMESTAMP '2026-01-01'", "column day is of type date, which a filter does not compare; cast it"),
        ("tags IS NULL", "column tags is of type array<string>"),
    ],
)
def test_a_filter_that_does_not_fit_the_columns_is_told_before_matching(spark: Any, text: str, message: str) -> None:
    schema = "i INT, price DOUBLE, day DATE, tags ARRAY<STRING>, o STRUCT<x: INT>"
    frame = spark.createDataFrame([], schema)
    with pytest.raises(FilterError, match=message) as caught:
        match(frame, subscriptions_of(spark, {"bob": "i IS NOT NULL OR o IS NULL", "ann": text}))
    assert "\n" not in str(caught.value)


# -- more output than any buffer ---------------------------------------------------------------------------------------


def test_an_event_that_all_of_300_000_subscriptions_accept_is_exact(spark: Any) -> None:
    count = 300_000
    table = pa.table({"id": pa.array(range(count)), "filter": [f"x > {-n % 1000}" for n in range(count)]})
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(table))
    rows = "(0, 2000, repeat('wide', 1000)), (1, CAST(NULL AS INT), 'none'), (2, 500, 'half')"
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(n, x, w)")
    found = match(frame, subscriptions).select("n", "subscription", length_of("w")).toArrow()
    half = [n for n in range(count) if -n % 1000 < 500]
    for number, expected, length in ((0, range(count), 4000), (2, half, 4)):
        mine = found.filter(pc.equal(found["n"], number))
        assert np.array_equal(np.sort(mine["subscription"].to_numpy()), np.array(expected))
        assert pc.unique(mine["w"]).to_pylist() == [length]
    assert len(found) == count + len(half)
    lists = match(frame, subscriptions, result="lists").orderBy("n").toArrow()
    assert pc.list_value_length(lists["subscriptions"]).to_pylist() == [count, 0, len(half)]
    assert np.array_equal(np.sort(lists["subscriptions"][0].values.to_numpy()), np.arange(count))


def length_of(name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.length(name).alias(name)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("limits", [(1, 1, 1), (50, 7, 3), (1000, 64, 10_000)])
def test_batches_of_any_bounds_hold_the_same_matches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: bool, limits: tuple[int, int, int]
) -> None:
    held, listed, rows = limits
    monkeypatch.setattr(match_lists, "HELD_PAIRS", held)
    monkeypatch.setattr(match_lists, "LIST_MAX", listed)
    monkeypatch.setattr(match_lists, "OUTPUT_ROWS", rows)
    monkeypatch.setattr(match_lists, "OUTPUT_BYTES", 2000)
    filters = {f"u{n}": f"x >= {n % 40}" for n in range(80)} | {"never": "x > 99", "null": "x IS NULL"}
    Index.from_filters((id_, parse_filter(text)) for id_, text in filters.items()).save(tmp_path / "i.mpx")
    events: list[Attributes] = [{"x": x} for x in (*range(10, 44), None, -1)]
    columns = ("x", "wide", "tags", "map", "nested", "n")
    batch = pa.record_batch(
        {
            "x": pa.array([e["x"] for e in events], pa.int64()),
            "wide": ["w" * (900 * (n % 3)) for n in range(len(events))],
            "tags": [["a"] * (n % 5) for n in range(len(events))],
            "map": pa.array([[("k", n)] for n in range(len(events))], pa.map_(pa.string(), pa.int64())),
            "nested": [{"a": n, "b": None} for n in range(len(events))],
            "n": pa.array(range(len(events)), pa.int32()),
        }
    ).slice(1)
    found: Counter[tuple[int, str]] = Counter()
    seen: list[int] = []
    for out in match_lists.match_batch(Index.open(tmp_path / "i.mpx"), batch, pa.string(), whole):
        assert out.num_rows <= rows
        assert out.num_rows == 1 or out.nbytes < 4000
        for row in out.rename_columns([*columns, "subscriptions"]).to_pylist():
            assert row["wide"] == "w" * (900 * (row["n"] % 3))
            assert row["nested"] == {"a": row["n"], "b": None}
            assert whole or 0 < len(row["subscriptions"]) <= listed
            seen.append(row["n"])
            found.update((row["n"], id_) for id_ in row["subscriptions"])
    assert found == Counter({pair: 1 for pair in scanned(filters, events) if pair[0]})
    if whole:
        assert seen == list(range(1, len(events)))


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_gives_what_a_table_gives(
    spark: Any, frame: Any, filters: dict[str, str], expected: Counter[tuple[int, Any]], tmp_path: Path
) -> None:
    frame.write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "events"))
    hits = match(stream, subscriptions_of(spark, filters))
    assert hits.isStreaming
    query = (
        hits.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "hits"))
    )
    query.awaitTermination()
    assert pairs_in(spark.read.parquet(str(tmp_path / "hits"))) == expected


def test_a_watermark_stays(spark: Any) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    hits = match(stream, subscriptions_of(spark, {1: "value > 1"}))
    assert hits.schema["timestamp"].metadata == stream.schema["timestamp"].metadata != {}


# -- plans -------------------------------------------------------------------------------------------------------------


def test_the_plan_is_printed_and_logged(
    spark: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.createDataFrame(pa.table({"x": [1]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1", "bob": "x ="})
    with caplog.at_level(logging.INFO, "meetpoint.spark"):
        match(frame, subscriptions, explain=True)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["strategy", "subscriptions", "index", "result"]
    assert "broadcast: the index has 0.0 MiB, and 50% of this machine's memory are" in printed[0]
    assert printed[1].endswith("1, 1 set aside")
    assert "match: broadcast: the index has 0.0 MiB" in caplog.text
    match(frame, subscriptions)
    assert capsys.readouterr().out == ""
    asked = plan(frame, subscriptions, strategy="broadcast", result="lists")
    assert (asked.strategy, asked.reason, asked.result) == ("broadcast", "as asked", "lists")


@pytest.mark.parametrize(
    ("megabytes", "settings", "strategy"),
    [
        (400, {}, "broadcast"),
        (600, {}, "partitioned"),
        (600, {"spark.executor.memory": "2g"}, "broadcast"),
        (600, {"spark.executor.memory": "2g", "spark.executor.pyspark.memory": "1000"}, "partitioned"),
        (3000, {"spark.executor.memory": "2048m", "spark.executor.instances": "4"}, "partitioned"),
        (5000, {"spark.executor.memory": "2048m", "spark.executor.instances": "4"}, "join"),
    ],
)
def test_auto_goes_by_the_size_of_the_index_and_of_the_cluster(
    megabytes: int, settings: dict[str, str], strategy: str
) -> None:
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)))
    manifest = Manifest(
        subscriptions=1, rejected=0, first_reason=None, id_type="string", uses=(), format=1, created="",
        files={"index.mpx": FileDigest(megabytes << 20, "")},
    )  # fmt: skip
    chosen, reason = match_job._choose(cast(Any, session), Version("/alerts", 1, manifest))
    assert chosen == strategy
    assert f"the index has {megabytes:,}.0 MiB, and 50% of an executor's memory are" in reason


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_bad_subscriptions_are_told_and_the_good_ones_match(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0], "x": [1]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1", "bob": "x =", "cem": "x >"})
    with caplog.at_level(logging.WARNING, "meetpoint.spark"):
        assert pairs_in(match(frame, subscriptions)) == Counter([(0, "ann")])
    (record,) = caplog.records
    assert record.getMessage().startswith("match: 2 subscriptions were set aside, the first because: id 'bob': filter")
    with pytest.raises(MeetpointError, match="subscriptions: 2 cannot be used, the first because: id 'bob'"):
        match(frame, subscriptions, on_bad="error")


def test_arguments_that_are_none_are_refused(spark: Any) -> None:
    frame = spark.createDataFrame(pa.table({"x": [1]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1"})
    with pytest.raises(MeetpointError, match="events: given an object of class list; give a Spark DataFrame"):
        match([{"x": 1}], subscriptions)  # type: ignore[arg-type]
    with pytest.raises(MeetpointError, match="subscriptions: given an object of class DataFrame; make them with Sub"):
        match(frame, frame)
    for name in ("strategy", "result", "missing", "on_bad", "ship"):
        with pytest.raises(MeetpointError, match=f"{name} is 'fast'; use "):
            match(frame, subscriptions, **{name: "fast"})  # type: ignore[arg-type]
    assert subscriptions.version is None


@pytest.mark.parametrize(
    ("columns", "result", "message"),
    [
        ("1 AS x, 2 AS subscription", "pairs", "there is a column 'subscription' already, which matching adds; rename"),
        ("1 AS x, 2 AS subscriptions", "lists", "there is a column 'subscriptions' already"),
        ("1 AS x, INTERVAL '1' MONTH AS m", "pairs", "column 'm' is of type interval month, which Spark does not hand"),
        ("1 AS x, array(map(1, make_interval(1))) AS m", "pairs", "column 'm' is of type array<map<int,interval>>"),
        ("1 AS x, 2 AS x", "pairs", "column x occurs twice; rename one of them"),
    ],
)
def test_columns_that_cannot_be_matched_are_refused(spark: Any, columns: str, result: str, message: str) -> None:
    with pytest.raises((MeetpointError, SchemaError), match=message):
        match(spark.sql(f"SELECT {columns}"), subscriptions_of(spark, {"ann": "x = 1"}), result=result)


def test_a_column_may_have_the_name_of_the_other_result(spark: Any) -> None:
    frame = spark.sql("SELECT 1 AS x, 2 AS subscriptions, 3 AS Subscription")
    hits = match(frame, subscriptions_of(spark, {"ann": "x = 1"}))
    assert [tuple(row) for row in hits.collect()] == [(1, 2, 3, "ann")]


def test_events_without_columns_are_refused(spark: Any) -> None:
    with pytest.raises(MeetpointError, match="events: the DataFrame has no columns"):
        match(spark.range(3).select(), subscriptions_of(spark, {"ann": "TRUE"}))


# -- how the index reaches the workers ---------------------------------------------------------------------------------


def test_a_copy_of_the_index_serves_where_the_directory_is_not_shared(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0, 1], "x": [1, 2]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1"}).compile(tmp_path / "alerts")
    copied, by_path = match(frame, subscriptions, ship="copy"), match(frame, subscriptions, ship="path")
    (tmp_path / "alerts").rename(tmp_path / "elsewhere")
    assert pairs_in(copied) == Counter([(0, "ann")])
    with pytest.raises(Exception, match=r"SetupError: .*index.mpx: the index is not on this worker; compile it to"):
        by_path.count()


def test_a_worker_takes_no_other_file_for_the_index(spark: Any, tmp_path: Path) -> None:
    from meetpoint.spark.worker_files import ship

    first = subscriptions_of(spark, {"ann": "x = 1"}).compile(tmp_path / "one").version
    second = subscriptions_of(spark, {"ann": "x = 2"}).compile(tmp_path / "two").version
    assert first is not None
    assert second is not None
    assert first.index_bytes == second.index_bytes
    shipped = ship(spark, first.index_path)
    assert shipped.find() == str(first.index_path)
    second.index_path.replace(first.index_path)
    with pytest.raises(SetupError, match="the index is not on this worker"):
        shipped.find()
