"""`deliver`: what is written is what there was, counted once, and nothing is overwritten that should not be."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import meetpoint as mp
from meetpoint.errors import MeetpointError
from meetpoint.language import Attribute, Schema, Type
from meetpoint.language.events.arrow import attributes_from_arrow, attributes_to_arrow
from meetpoint.matching.io.rejects import Reject, SourceError
from meetpoint.spark.streaming.sinks import DeliveryResult, deliver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema(
    (
        Attribute("subscription", Type.STRING),
        Attribute("price", Type.DECIMAL, Decimal(0), Decimal(100), Decimal("0.01")),
        Attribute("ratio", Type.FLOAT),
        Attribute("at", Type.TIMESTAMP),
    )
)
ROWS = [
    {
        "subscription": text,
        "price": Decimal("8.30"),
        "ratio": ratio,
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    }
    for text, ratio in [
        (" ann ", 0.1),
        ('say "hi"', math.inf),
        ("a\\b", -0.5),
        ("line\nbreak, comma", 1e300),
        ("ÄÖ🙂", 5e-324),
        ("007", 0.0),
    ]
]


@pytest.fixture(scope="module")
def hits(spark: SparkSession) -> Any:
    return spark.createDataFrame(attributes_to_arrow(ROWS, SCHEMA))


def texts(path: Path) -> list[str]:
    return [text for part in sorted(path.glob("part-*")) for text in part.read_text("utf-8").splitlines()]


# -- written and counted -----------------------------------------------------------------------------------------------


def test_parquet_holds_every_row_and_says_how_many(spark: SparkSession, hits: Any, tmp_path: Path) -> None:
    path = tmp_path / "hits.parquet"
    assert deliver(hits, path) == DeliveryResult(len(ROWS), str(path), "parquet")
    assert (path / "_SUCCESS").exists()
    read = spark.read.parquet(str(path)).coalesce(1).toArrow()
    assert sorted(map(repr, attributes_from_arrow(read))) == sorted(map(repr, ROWS))


@pytest.mark.parametrize(("ending", "format_"), [("jsonl", "json"), ("csv", "csv")])
def test_texts_are_read_back_exactly(hits: Any, tmp_path: Path, ending: str, format_: str) -> None:
    path = tmp_path / f"hits.{ending}"
    delivered = deliver(hits.coalesce(1), path)
    assert delivered == DeliveryResult(len(ROWS), str(path), format_)
    [part] = path.glob("part-*")
    whole = tmp_path / f"whole.{ending}"
    part.rename(whole)
    rejects: list[Reject] = []
    accepted = mp.backtest("TRUE", str(whole), schema=SCHEMA, rejects=rejects)
    assert rejects == []
    assert [sample.attributes for sample in accepted.samples] == ROWS[:5]
    assert accepted.hits == len(ROWS)


def test_the_plan_runs_once(spark: SparkSession, tmp_path: Path) -> None:
    """Every run of the plan leaves a file of its own."""
    seen = tmp_path / "seen"
    seen.mkdir()
    place = str(seen)

    def leave(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        Path(place, uuid.uuid4().hex).touch()
        yield from batches

    once = spark.range(0, 100, 1, 2).mapInArrow(leave, "id bigint").where("id % 10 = 3")
    assert deliver(once, tmp_path / "out.parquet").rows == 10
    assert len(list(seen.iterdir())) == 2


def test_no_rows_are_delivered_as_none(hits: Any, tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl", "csv"):
        assert deliver(hits.where("price > 99"), tmp_path / f"none.{ending}").rows == 0


def test_append_and_overwrite_are_done_when_told(spark: SparkSession, hits: Any, tmp_path: Path) -> None:
    path = tmp_path / "hits.parquet"
    deliver(hits, path)
    assert deliver(hits, path, mode="append").rows == len(ROWS)
    assert spark.read.parquet(str(path)).count() == 2 * len(ROWS)
    assert deliver(hits.limit(1), path, mode="overwrite").rows == 1
    assert spark.read.parquet(str(path)).count() == 1


def test_partitions_are_directories(spark: SparkSession, hits: Any, tmp_path: Path) -> None:
    path = tmp_path / "by"
    assert deliver(hits, path, format="jsonl", partition_by="price").format == "json"
    assert [one.name for one in path.glob("price=*")] == ["price=8.30"]
    assert deliver(hits, tmp_path / "by2.csv", partition_by=["price", "at"]).rows == len(ROWS)


def test_options_win(hits: Any, tmp_path: Path) -> None:
    path = tmp_path / "hits.csv"
    deliver(hits.where("subscription = '007'"), path, options={"header": False, "sep": ";"})
    assert texts(path) == ["007;8.30;0.0;2026-01-02T03:04:05.678901Z"]
    deliver(hits.where("subscription = '007'"), tmp_path / "h.jsonl", options={"timestampFormat": "yyyy"})
    assert json.loads(texts(tmp_path / "h.jsonl")[0])["at"] == "2026"


def test_any_sink_of_spark_will_do(hits: Any) -> None:
    assert deliver(hits, None, format="noop", mode="append") == DeliveryResult(len(ROWS), None, "noop")


# -- refused before any job --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def untouchable(spark: SparkSession) -> Any:
    """Hits on which every job fails, so that whatever is raised was raised before one."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert not batch.num_rows, "a job ran"
            yield batch

    return spark.range(1).mapInArrow(fail, "subscription string, price int, tags array<string>, at timestamp")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "{tmp}/out"}, "out: the ending says no format; end it in .parquet, .jsonl or .csv, or say format="),
        ({"to": "{tmp}/out.txt"}, "the ending says no format"),
        ({"to": ""}, "to: '' is no path"),
        ({"to": 5}, "to: given an object of class int"),
        ({"to": None}, "to: given None; give a path, or say with format="),
        ({"to": None, "format": "parquet"}, "to: given None, and parquet is written to files; give a path"),
        ({"to": "{tmp}/there.parquet"}, "there.parquet: there is something already; choose another path, or say mode="),
        ({"to": "{tmp}/there.parquet", "mode": "upsert"}, "mode is 'upsert'; use error, append, overwrite"),
        ({"to": "{tmp}/there.parquet", "mode": "ignore"}, "mode is 'ignore'"),
        ({"to": "{tmp}/x", "format": "parqet"}, "format 'parqet' is none that this Spark knows; did you mean parquet?"),
        ({"to": "{tmp}/x", "format": "zebra"}, "format 'zebra' is none that this Spark knows; add its package"),
        ({"to": "{tmp}/x", "format": 5}, "format is 5; use parquet"),
        ({"to": "{tmp}/there.parquet/file/x.parquet"}, "file is a file; choose another directory"),
        ({"to": "foo://host/x.parquet"}, 'cannot be written: .*No FileSystem for scheme "foo"'),
        ({"to": "{tmp}/x.csv"}, "column 'tags' is of type array<string>, which CSV does not hold; deliver .parquet"),
        ({"to": "{tmp}/x.parquet", "partition_by": "prise"}, "no column 'prise'; did you mean price?"),
        ({"to": "{tmp}/x.parquet", "partition_by": ["price", "Price"]}, "no column 'Price'; did you mean price?"),
        ({"to": "{tmp}/x.parquet", "partition_by": ["price", "tags", "at", "subscription"]}, "it names all columns"),
        ({"to": "{tmp}/x.parquet", "partition_by": 5}, "partition_by: given 5"),
        ({"to": "{tmp}/x.parquet", "options": ["zstd"]}, "options: give a mapping"),
        ({"to": "{tmp}/x.parquet", "options": {"compression": "best"}}, "x.parquet: cannot be written: .*codec best"),
        ({"to": "{tmp}/x", "format": "text"}, "cannot be written: .*Text datasource doesn't support the column"),
        ({"to": None, "format": "noop"}, "noop: cannot be written: .*ErrorIfExists"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_job(
    untouchable: Any, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    (tmp_path / "there.parquet").mkdir()
    (tmp_path / "there.parquet" / "file").touch()
    filled: dict[str, Any] = {
        key: value.format(tmp=tmp_path) if isinstance(value, str) and key == "to" else value
        for key, value in given.items()
    }
    with pytest.raises(MeetpointError, match=message) as caught:
        deliver(untouchable, **filled)
    assert "\n" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["there.parquet"]


def test_an_input_is_not_overwritten(spark: SparkSession, hits: Any, tmp_path: Path) -> None:
    path = tmp_path / "with space" / "events.parquet"
    deliver(hits, path)
    read = spark.read.parquet(str(path)).mapInArrow(lambda batches: batches, hits.schema)
    for place in (str(path), path.as_uri(), str(path.parent)):
        with pytest.raises(SourceError, match="the hits are read from there; overwrite another path"):
            deliver(read, place, format="parquet", mode="overwrite")
    assert spark.read.parquet(str(path)).count() == len(ROWS)


def test_a_stream_or_no_frame_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MeetpointError, match=r"the DataFrame is a stream; use stream\(…\)"):
        deliver(spark.readStream.format("rate").load(), tmp_path / "x.parquet")
    with pytest.raises(MeetpointError, match="hits: given an object of class list"):
        deliver([1], tmp_path / "x.parquet")  # type: ignore[arg-type]


def test_what_a_job_dies_of_is_not_taken_for_a_bad_path(untouchable: Any, tmp_path: Path) -> None:
    with pytest.raises(PythonException, match="a job ran"):
        deliver(untouchable, tmp_path / "x.parquet")
