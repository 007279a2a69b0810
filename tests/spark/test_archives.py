"""Archives on Spark: the same events as in one process, merged hours and all."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import meetpoint as mp
from meetpoint.archive import ArchiveError, list_parts, read_archive
from meetpoint.archive.compaction import GRACE_S
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.spark import backtest, compact_archive
from meetpoint.spark.archives import read_archive as read_on_spark
from meetpoint.spark.reader import read_events
from tests.archive.test_archive import BEGIN, HOMES, SCHEMA, accepted, archive

pytestmark = pytest.mark.xdist_group("spark")
FILTER = "price BETWEEN 40 AND 160 AND order.id LIKE 'x%'"


def filled(folder: Path, *, typed: bool = True) -> None:
    rng = random.Random(9)
    held = archive(folder)
    for begin in range(0, 200, 20):
        some = [accepted(number, rng.choice(HOMES), seconds=number / 50) for number in range(begin, begin + 20)]
        held.write(some, SCHEMA if typed else None)
    again = accepted(50, HOMES[1], seconds=1)
    again = type(again)(type(again.key)(HOMES[1], 1, 1000), again.at_us, again.content)
    held.write([again], SCHEMA if typed else None)


def rows(frame: Any) -> Counter[tuple[object, ...]]:
    return Counter((row["price"], row["order"]["id"]) for row in frame.toArrow().to_pylist())


def here(folder: Path, **span: Any) -> Counter[tuple[object, ...]]:
    events = [each.attributes for each in read_archive(folder, **span)]
    return Counter((each["price"], each["order"]["id"]) for each in events)  # type: ignore[index]


@pytest.mark.parametrize("typed", [True, False])
def test_the_same_events_as_in_one_process(spark: Any, tmp_path: Path, typed: bool) -> None:
    filled(tmp_path, typed=typed)
    schema = None if typed else SCHEMA
    read = read_on_spark(spark, str(tmp_path), schema)
    assert rows(read.good) == here(tmp_path)
    assert read.row_counts()[:2] == (200, 0)
    since, until = BEGIN + timedelta(seconds=1), BEGIN + timedelta(seconds=3)
    some = read_on_spark(spark, str(tmp_path), schema, since=since, until=until)
    assert rows(some.good) == here(tmp_path, since=since, until=until)


def test_ids_that_are_used_again_later_are_other_events(spark: Any, tmp_path: Path) -> None:
    one = accepted(1)
    sent = [(0, HOMES[0], "p", 1), (100, HOMES[1], "q", 1), (1000, HOMES[0], "q", 2), (3000, HOMES[1], "q", 2)]
    given = []
    for number, (seconds, home, publisher, sequence) in enumerate(sent, 1):
        event = Event("e", publisher, sequence, BEGIN, {"price": number, "order": {"id": "x"}})
        key = type(one.key)(home, 1, number)
        given.append(type(one)(key, one.at_us + seconds * 1_000_000, to_msgpack(event)))
    archive(tmp_path).write(given, SCHEMA)
    assert sorted(rows(read_on_spark(spark, str(tmp_path)).good)) == [(1, "x"), (3, "x")]
    assert sum(here(tmp_path).values()) == 2


def test_events_from_before_the_schema_are_read_or_are_dead_letters(spark: Any, tmp_path: Path) -> None:
    held = archive(tmp_path)
    held.write([accepted(1), accepted(2, price=7), accepted(3, price="dear")], SCHEMA)
    read = read_events(spark, str(tmp_path), None)
    assert sorted(row["price"] for row in read.good.toArrow().to_pylist()) == [1, 7]
    assert read.dead is not None
    (dead,) = read.dead.toArrow().to_pylist()
    assert "price" in dead["reason"]
    assert read.row_counts()[:2] == (2, 1)


def test_without_any_schema_it_says_what_to_do(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path, typed=False)
    with pytest.raises(ArchiveError, match="its events have no schema; name one"):
        read_on_spark(spark, str(tmp_path))
    with pytest.raises(ArchiveError, match="holds no events of that time"):
        read_on_spark(spark, str(tmp_path), since=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(ArchiveError, match="until: 2030-01-01T00:00:00 has no time zone"):
        read_on_spark(spark, str(tmp_path), until=datetime(2030, 1, 1))
    with pytest.raises(ArchiveError, match="is no archive; give the folder"):
        read_on_spark(spark, str(tmp_path / "hour=2026-11-16-09"))


def test_attributes_that_were_of_another_type_once_are_read_with_a_schema(spark: Any, tmp_path: Path) -> None:
    held = archive(tmp_path)
    texts = Schema.from_yaml("attributes:\n  price: {type: string}\n")
    held.write([accepted(1)], SCHEMA)
    held.write([accepted(2, seconds=3600, price="dear"), accepted(3, seconds=3600, price="7")], texts)
    with pytest.raises(ArchiveError, match=r"not of the same types in all its files .*price: BIGINT.*; name a schema"):
        read_on_spark(spark, str(tmp_path))
    read = read_on_spark(spark, str(tmp_path), SCHEMA)
    assert [row["price"] for row in read.good.toArrow().to_pylist()] == [1]
    assert read.dead is not None
    assert ["price" in row["reason"] for row in read.dead.toArrow().to_pylist()] == [True, True]
    later = read_on_spark(spark, str(tmp_path), since=BEGIN + timedelta(hours=1)).good
    assert sorted(row["price"] for row in later.toArrow().to_pylist()) == ["7", "dear"]


def test_a_damaged_file_is_told_of_and_other_hours_are_merged(spark: Any, tmp_path: Path) -> None:
    held = archive(tmp_path)
    damaged, _ = held.write([accepted(1), accepted(2, seconds=3600)], SCHEMA)
    held.write([accepted(3, seconds=3601)], SCHEMA)
    for content in (b"", damaged.read_bytes()[:150]):
        damaged.write_bytes(content)
        with pytest.raises(ArchiveError, match=rf"{damaged.name}: cannot be read: .*; all other hours are done"):
            compact_archive(spark, str(tmp_path), now=(BEGIN + timedelta(hours=4)).timestamp())
        with pytest.raises(ArchiveError if not content else Exception, match=damaged.name):
            read_on_spark(spark, str(tmp_path)).good.toArrow()
    assert [part.path.name.endswith("-merged.parquet") for part in list_parts(tmp_path)] == [False, True]


def test_a_backtest_says_the_same_on_spark_and_in_one_process_and_after_merging(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path)
    there = mp.backtest(FILTER, mp.read_archive(tmp_path)).hits
    assert there > 50
    assert backtest(FILTER, read_events(spark, str(tmp_path)).good).hits == there
    now = (BEGIN + timedelta(hours=2)).timestamp() + GRACE_S
    files = len(list(list_parts(tmp_path)))
    done = compact_archive(spark, str(tmp_path), now=now)
    assert [each.hour for each in done] == ["2026-11-16-09", "2026-11-16-10"]
    assert len(list(list_parts(tmp_path))) == sum(each.files_after for each in done) < files
    assert backtest(FILTER, read_events(spark, str(tmp_path)).good).hits == there
    assert mp.backtest(FILTER, mp.read_archive(tmp_path)).hits == there


def test_old_hours_go_and_only_those(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path)
    now = (BEGIN + timedelta(hours=2)).timestamp()
    done = compact_archive(spark, str(tmp_path), keep_s=3600 + 60, now=now)
    assert [each.hour for each in done] == ["2026-11-16-10"]
    assert {part.hour for part in list_parts(tmp_path)} == {"2026-11-16-10"}
    with pytest.raises(ArchiveError, match="is no archive; give the folder"):
        compact_archive(spark, str(tmp_path / "hour=2026-11-16-10"))
