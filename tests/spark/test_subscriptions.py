from __future__ import annotations

import logging
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meetpoint as mp
from meetpoint.errors import MeetpointError
from meetpoint.language import Type
from meetpoint.matching.io.rejects import Reject, SourceError
from meetpoint.spark import Subscriptions, match
from meetpoint.spark.subscriptions import compilation
from meetpoint.spark.subscriptions.store import versions

ROWS: list[tuple[str | None, str | None]] = [
    ("ann", "price > 1"),
    ("bob", "price >"),
    ("ann", "price > 2"),
    (None, "price > 3"),
    ("", "price > 4"),
    ("cem", None),
    ("bob", "price > 5"),
    ("dan", "symbol LIKE 'A%' OR price = 6"),
    ("eve", ""),
    ("ann", None),
    ("fay", "TRUE"),
]


def rows_table(rows: list[tuple[str | None, str | None]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([id_ for id_, _ in rows], pa.string()),
            "filter": pa.array([text for _, text in rows], pa.string()),
        }
    )


@pytest.fixture(scope="module")
def subscriptions(spark: Any) -> Subscriptions:
    """Some good and some bad rows, spread over partitions."""
    return Subscriptions.from_dataframe(spark.createDataFrame(rows_table(ROWS)).repartitionByRange(5, "filter"))


def taken(subscriptions: Subscriptions) -> dict[object, str]:
    table = subscriptions.filters.toArrow()
    return dict(zip(table["id"].to_pylist(), table["filter"].to_pylist(), strict=True))


def refused(subscriptions: Subscriptions) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = subscriptions.rejected.orderBy("row").toArrow().to_pylist()
    return found


# -- what is taken and what is set aside -------------------------------------------------------------------------------


def test_the_same_rows_are_set_aside_as_without_spark(spark: Any) -> None:
    rows: list[Reject] = []
    mp.match([{}], rows_table(ROWS), rejects=rows)
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(rows_table(ROWS)).coalesce(1))
    assert [(bad["row"], bad["reason"]) for bad in refused(subscriptions)] == sorted((r.row, r.reason) for r in rows)
    assert [(bad["id"], bad["filter"]) for bad in refused(subscriptions)] == [
        ROWS[bad["row"]] for bad in refused(subscriptions)
    ]
    assert taken(subscriptions) == {id_: text for id_, text in ROWS if id_ in ("dan", "fay")} | {"ann": "price > 1"}


def test_no_row_is_lost_however_they_are_spread(subscriptions: Subscriptions) -> None:
    bad = refused(subscriptions)
    assert len(bad) + subscriptions.count == len(ROWS)
    assert len({one["row"] for one in bad}) == len(bad)
    given = [(one["id"], one["filter"]) for one in bad] + list(taken(subscriptions).items())
    assert sorted(given, key=str) == sorted(ROWS, key=str)


def test_of_rows_with_one_id_the_first_stays_whichever_worker_meets_it(spark: Any) -> None:
    count = 5000
    ids = [n % 1000 for n in range(count)]
    table = pa.table({"id": ids, "filter": [f"x = {n}" for n in range(count)]})
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(table).coalesce(1))
    assert taken(subscriptions) == {n: f"x = {n}" for n in range(1000)}
    bad = refused(subscriptions)
    assert [one["row"] for one in bad] == list(range(1000, count))
    assert bad[0] == {"row": 1000, "id": 0, "filter": "x = 1000", "reason": "id 0: occurs a second time; rename it"}
    hits = match(spark.createDataFrame(pa.table({"x": [5, 1005]})), subscriptions).toArrow().to_pylist()
    assert hits == [{"x": 5, "subscription": 5}]


def test_an_id_whose_filter_is_refused_is_taken_all_the_same(spark: Any) -> None:
    table = rows_table([("ann", "price >"), *((f"u{n}", "TRUE") for n in range(200)), ("ann", "price > 1")])
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(table).coalesce(1))
    assert [(one["row"], one["reason"][:30]) for one in refused(subscriptions)] == [
        (0, "id 'ann': filter, column 8: th"),
        (201, "id 'ann': occurs a second time"),
    ]


def test_a_filter_on_what_only_a_repeated_row_compares_asks_nothing_of_events(spark: Any) -> None:
    table = rows_table([("ann", "price > 1"), *((f"u{n}", "price > 2") for n in range(100)), ("ann", "nowhere = 1")])
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(table).coalesce(1))
    assert [(use.attribute, use.kind, use.id) for use in subscriptions.compiled.manifest.uses] == [
        ("price", "number", "ann")
    ]


@pytest.mark.parametrize("type_", ["tinyint", "int", "varchar(5)"])
def test_ids_keep_their_type(spark: Any, type_: str) -> None:
    frame = spark.sql(f"SELECT CAST(7 AS {type_}) AS id, 'x = 1' AS filter")
    hits = match(spark.sql("SELECT 1 AS x"), Subscriptions.from_dataframe(frame))
    assert hits.schema["subscription"].dataType == frame.schema["id"].dataType
    assert not hits.schema["subscription"].nullable
    assert hits.collect()[0]["subscription"] == frame.collect()[0]["id"]


def test_no_rows_are_no_subscriptions(spark: Any) -> None:
    empty = Subscriptions.from_dataframe(spark.createDataFrame([], "id BIGINT, filter STRING"))
    assert (empty.count, empty.rejected.count(), str(empty.lint())) == (0, 0, "0 filters: nothing odd")
    events = spark.range(3)
    assert match(events, empty).count() == 0
    assert match(events, empty, result="lists").collect() == [(n, []) for n in range(3)]


def test_columns_of_any_name_and_a_schema(spark: Any) -> None:
    frame = spark.createDataFrame(pa.table({"who.is": ["ann", "bob"], "`x`": ["price > 1", "prise > 1"]}))
    schema = mp.Schema((mp.Attribute("price", Type.FLOAT),))
    subscriptions = Subscriptions.from_dataframe(frame, id="who.is", where="`x`", schema=schema)
    assert taken(subscriptions) == {"ann": "price > 1"}
    assert "did you mean price?" in refused(subscriptions)[0]["reason"]


# -- lint --------------------------------------------------------------------------------------------------------------


def test_lint_says_the_same_as_without_spark(
    spark: Any, subscriptions: Subscriptions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rejects: list[Reject] = []
    expected = mp.lint(rows_table(ROWS), rejects=rejects)
    ordered = Subscriptions.from_dataframe(spark.createDataFrame(rows_table(ROWS)).coalesce(1))
    with caplog.at_level(logging.WARNING, "meetpoint.spark"):
        assert ordered.lint() == expected
    assert "6 rows have no good id or no filter" in caplog.text
    subscriptions.compile(tmp_path)
    assert str(Subscriptions.open(tmp_path, spark=spark).lint()) == str(expected)


def test_lint_compares_the_filters_of_one_subscriber(spark: Any) -> None:
    frame = spark.createDataFrame(
        pa.table({"id": [1, 2, 3], "filter": ["x > 1", "x > 2", "x > 3"], "whose": [10, 10, 11]})
    )
    assert str(Subscriptions.from_dataframe(frame, subscriber="whose").lint()) == "3 filters: 1 covered"
    assert str(Subscriptions.from_dataframe(frame).lint()) == "3 filters: 2 covered"


# -- compiling ---------------------------------------------------------------------------------------------------------


def test_compiled_subscriptions_are_opened_without_the_table(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(rows_table(ROWS))
    compiled = Subscriptions.from_dataframe(frame).compile(tmp_path)
    assert compiled.version is not None
    opened = Subscriptions.open(tmp_path, spark=spark)
    assert opened.version == compiled.version
    assert opened.count == compiled.count == 3
    assert refused(opened) == refused(compiled)
    events = spark.createDataFrame(pa.table({"price": [1.5, 6.0], "symbol": ["AB", "B"]}))
    assert sorted(match(events, opened).collect()) == sorted(match(events, compiled).collect())
    again = opened.compile(tmp_path, sample=events)
    assert again.version is not None
    assert (again.version.number, again.count, again.rejected.count()) == (2, 3, len(ROWS) - 3)
    assert Subscriptions.open(tmp_path, 1).version == compiled.version


def test_each_compile_is_a_new_version_and_old_hits_stay_as_they_were(spark: Any, tmp_path: Path) -> None:
    events = spark.createDataFrame(pa.table({"x": [1, 2, 3]}))

    def compiled(text: str) -> Subscriptions:
        table = pa.table({"id": ["a"], "filter": [text]})
        return Subscriptions.from_dataframe(spark.createDataFrame(table)).compile(tmp_path, keep=2)

    old = match(events, compiled("x > 2"))
    new = match(events, compiled("x > 1"))
    assert (old.count(), new.count()) == (1, 2)
    compiled("x > 0")
    assert versions(tmp_path) == [2, 3]


def test_on_bad_error_publishes_nothing(spark: Any, tmp_path: Path) -> None:
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(rows_table(ROWS)).coalesce(1))
    with pytest.raises(MeetpointError, match="8 cannot be used, the first because: id 'bob': filter, column 8"):
        subscriptions.compile(tmp_path, on_bad="error")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MeetpointError, match="on_bad is 'raise'; use warn, error"):
        subscriptions.compile(tmp_path, on_bad="raise")


def test_progress_is_logged_and_nothing_is_printed(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "meetpoint.spark"):
        Subscriptions.from_dataframe(spark.createDataFrame(rows_table(ROWS))).compile(tmp_path)
    assert "3 filters parsed and 8 rows set aside" in caplog.text
    assert "an index of" in caplog.text
    assert capsys.readouterr() == ("", "")


def test_chunks_are_together_what_one_chunk_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from meetpoint.spark.subscriptions.compilation import _chunks, _merge_chunks, _parse_chunk, _RecordingParser

    monkeypatch.setattr(compilation, "CHUNK", 2)
    table = rows_table(ROWS)
    nulls = pa.nulls(len(ROWS), pa.string())
    table = pa.table(
        {"place": pa.array(range(len(ROWS)), pa.int64()), "id": table["id"], "filter": table["filter"]}
    ).append_column("subscriber", nulls)
    table = table.append_column("broken", nulls)
    whole = _merge_chunks([_parse_chunk(table, _RecordingParser(None))], "string")
    parser = _RecordingParser(None)
    chunks = list(_chunks(table.to_batches(max_chunksize=1)))
    assert [len(chunk) for chunk in chunks] == [2, 2, 2, 2, 2, 1]
    parts = [_parse_chunk(chunk, parser) for chunk in chunks]
    for pieces in (parts, parts[::-1]):
        joined = _merge_chunks(pieces, "string")
        assert joined.rejected.to_pylist() == whole.rejected.to_pylist()
        assert joined.uses == whole.uses
        assert sorted(joined.filters.to_pylist(), key=str) == sorted(whole.filters.to_pylist(), key=str)
        assert joined.rows is not None
        assert joined.rows.subscriptions == 3


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_every_format_hold_the_same_subscriptions(spark: Any, tmp_path: Path) -> None:
    good = {"ann": 'symbol = "A,B"', "bob": "price > 1\n  AND price < 3"}
    pq.write_table(pa.table({"id": list(good), "filter": list(good.values())}), tmp_path / "s.parquet")
    (tmp_path / "s.jsonl").write_text(
        '{"id": "ann", "filter": "symbol = \\"A,B\\"", "subscriber": "x"}\n'
        '{"id": "bob", "filter": "price > 1\\n  AND price < 3"}\n'
    )
    (tmp_path / "s.csv").write_text('id,filter\nann,"symbol = ""A,B"""\nbob,"price > 1\n  AND price < 3"\n')
    for name in ("s.parquet", "s.jsonl", "s.csv"):
        subscriptions = Subscriptions.read(tmp_path / name, spark)
        assert taken(subscriptions) == good, name
        assert subscriptions.rejected.count() == 0


def test_lines_that_are_no_rows_are_set_aside(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": "ann", "filter": "TRUE"}\n{"id": "bob", "filt\n')
    (tmp_path / "s.csv").write_text("id,filter\nann,TRUE\nbob,TRUE,oops\n")
    for name, line in (("s.jsonl", '{"id": "bob", "filt'), ("s.csv", "bob,TRUE,oops")):
        subscriptions = Subscriptions.read(tmp_path / name, spark)
        assert taken(subscriptions) == {"ann": "TRUE"}
        (bad,) = refused(subscriptions)
        assert (bad["row"], bad["filter"], bad["reason"]) == (1, line, "the line cannot be read; correct it")


def test_an_id_in_csv_is_a_text_and_in_json_what_it_is(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,filter\n007,TRUE\n")
    (tmp_path / "s.jsonl").write_text('{"id": 7, "filter": "TRUE"}\n')
    assert taken(Subscriptions.read(tmp_path / "s.csv", spark)) == {"007": "TRUE"}
    assert taken(Subscriptions.read(tmp_path / "s.jsonl", spark)) == {7: "TRUE"}


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_refused_before_any_job(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere.parquet: cannot be read: .*PATH_NOT_FOUND.*; check the path"):
        Subscriptions.read(tmp_path / "nowhere.parquet", spark)
    with pytest.raises(SourceError, match="the suffix says no format; name the file"):
        Subscriptions.read(tmp_path / "subs.xlsx", spark)
    (tmp_path / "s.csv").write_text("user,filter\nann,TRUE\n")
    with pytest.raises(SourceError, match=r"s.csv: there is no column id; the columns are user, filter"):
        Subscriptions.read(tmp_path / "s.csv", spark)
    (tmp_path / "s.parquet").write_text("no parquet")
    with pytest.raises(SourceError, match=r"s.parquet: cannot be read"):
        Subscriptions.read(tmp_path / "s.parquet", spark)
    with pytest.raises(SourceError, match="there is no such directory; compile some"):
        Subscriptions.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "user"}, "there is no column 'user', which id= names; did you mean 'users'?"),
        ({"id": "users", "where": "where"}, "there is no column 'where', which where= names; the columns are users, f"),
        ({"id": "users", "where": "Filter"}, "there is no column 'Filter', which where= names; did you mean 'filter'?"),
        ({"id": "users", "subscriber": "x"}, "there is no column 'x', which subscriber= names"),
        ({"id": "half"}, "column 'half' is of type double, and id is a string or an integer; cast it"),
        ({"id": "day"}, "column 'day' is of type date, and id is a string or an integer; cast it"),
        ({"id": "users", "where": "half"}, "column 'half' is of type double, and a filter is a text; cast it"),
        ({"id": "users", "subscriber": "half"}, "column 'half' is of type double, and subscriber is a string or"),
    ],
)
def test_a_wrong_column_is_told_before_any_job(spark: Any, columns: dict[str, str], message: str) -> None:
    table = pa.table({"users": ["a"], "filter": ["TRUE"], "half": [0.5], "day": [date(2026, 1, 1)]})
    with pytest.raises(MeetpointError, match=message) as caught:
        Subscriptions.from_dataframe(spark.createDataFrame(table), **columns)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_what_is_no_table_of_subscriptions_is_refused(spark: Any) -> None:
    with pytest.raises(MeetpointError, match="subscriptions: given an object of class dict; give a Spark DataFrame"):
        Subscriptions.from_dataframe({"ann": "TRUE"})  # type: ignore[arg-type]
    with pytest.raises(MeetpointError, match="the DataFrame is a stream"):
        Subscriptions.from_dataframe(spark.readStream.format("rate").load(), id="value", where="value")
    doubled = spark.sql("SELECT 'a' AS id, 'TRUE' AS filter, 'b' AS id")
    with pytest.raises(MeetpointError, match="there are two columns 'id'"):
        Subscriptions.from_dataframe(doubled)
    frame = spark.createDataFrame(rows_table(ROWS))
    with pytest.raises(MeetpointError, match="schema: given an object of class str; give a Schema"):
        Subscriptions.from_dataframe(frame, schema="price float")  # type: ignore[arg-type]
    subscriptions = Subscriptions.from_dataframe(frame)
    with pytest.raises(MeetpointError, match="sample: given an object of class list"):
        subscriptions.compile(sample=[{"price": 1}])
    with pytest.raises(MeetpointError, match="sample: the DataFrame is a stream"):
        subscriptions.compile(sample=spark.readStream.format("rate").load())
    assert subscriptions.version is None
