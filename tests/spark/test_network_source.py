"""The source of `format("meetpoint")`, called as Spark calls it, with real brokers: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import meetpoint as mp
from meetpoint.api.client_messages import Stream, StreamsReply
from meetpoint.api.ids import Peer
from meetpoint.broker import run
from meetpoint.broker.config import Archiving
from meetpoint.client.errors import NetworkError
from meetpoint.errors import FilterError, MeetpointError, SchemaError
from meetpoint.language import parse_filter
from meetpoint.language.events.json import attributes_from_json
from meetpoint.matching import Scan
from meetpoint.spark.network import planner
from meetpoint.spark.network.planner import UNHOSTED_S, ArchivedStream, StreamTracker, advance, ranges_between
from meetpoint.spark.network.source import MeetpointDataSource, StreamReader, TableReader, columns_of
from tests.broker.talking import broker
from tests.spark.network_scenes import (
    SCHEMA,
    all_batches,
    brokers,
    numbers_of,
    publish,
    rows_between,
    stream_reader,
    until,
)

HOME = b"\x01" * 4
A, B = Peer(b"a", "a:1"), Peer(b"b", "b:1")  # type: ignore[arg-type]


def offset(**streams: int) -> dict[str, Any]:
    return {"since_us": 0, "read_us": 5, "streams": {str(place_of(name)): n for name, n in streams.items()}}


def place_of(name: str) -> ArchivedStream:
    return ArchivedStream(name, HOME, 1)


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_shared_out_so_that_nobody_waits_behind_one_with_much() -> None:
    start = offset(x=10)
    upto = {place_of("x"): 1_000, place_of("y"): 3, place_of("z"): 500}
    end = advance(start, upto, 100, 7)
    assert end == {"since_us": 0, "read_us": 7, "streams": offset(x=10 + 48, y=3, z=49)["streams"]}
    assert sum(end["streams"].values()) - 10 == 100
    assert advance(start, upto, None, 7)["streams"] == offset(x=1_000, y=3, z=500)["streams"]
    assert advance(start, upto, 1, 7)["streams"] == offset(x=10, y=1)["streams"]
    assert advance(start, {place_of("x"): 9}, 100, 7) is start, "it never goes back"
    assert advance(start, upto, 100, 1)["read_us"] == 5, "nor does its clock"


def test_ranges_cover_what_is_between_two_offsets_once() -> None:
    found = ranges_between(offset(x=10, y=3), offset(x=35, y=3, z=1), 10)
    assert [(each.place.archive, each.after, each.upto) for each in found] == [
        ("x", 10, 20), ("x", 20, 30), ("x", 30, 35), ("z", 0, 1),
    ]  # fmt: skip


def test_what_two_archives_have_of_a_stream_comes_from_the_one_that_was_read_first() -> None:
    known = {each.place.archive: each.known for each in ranges_between(offset(y=4), offset(x=9, y=7), 100)}
    assert known == {"x": (("y", 4),), "y": (("x", 9),)}


def told(archive: str, *streams: Stream) -> StreamsReply:
    return StreamsReply(archive, streams)


def test_a_stream_goes_as_far_as_its_host_says_and_one_whose_host_is_away_waits() -> None:
    watch, place = StreamTracker(), place_of("x")
    hosted, listed = Stream(HOME, 1, True, 9, 7), Stream(HOME, 1, False, 8, 8)
    found = watch.update({A: told("x", listed), B: told("x", hosted)}, True, 0.0)
    assert found == {place: (9, 7, (B, A))}
    for now in (0.0, UNHOSTED_S, 10 * UNHOSTED_S):
        assert watch.update({A: told("x", listed)}, False, now)[place].archived is None


@pytest.mark.parametrize("is_all", [True, False])
def test_a_stream_that_nobody_hosts_any_more_is_over_after_a_while(is_all: bool) -> None:
    watch, place = StreamTracker(), place_of("x")
    # Where not all brokers answer it is known by another stream of the home, which is hosted.
    elsewhere = () if is_all else (Stream(HOME, 2, True, 1, 1),)

    def archived(last: int, now: float) -> int | None:
        return watch.update({A: told("x", Stream(HOME, 1, False, last, last), *elsewhere)}, is_all, now)[place].archived

    assert archived(5, 0.0) is None
    assert archived(5, UNHOSTED_S - 0.1) is None
    assert archived(6, UNHOSTED_S) is None, "something was written"
    assert archived(6, 2 * UNHOSTED_S - 0.1) is None
    assert archived(6, 2 * UNHOSTED_S) == 6


# -- with brokers ------------------------------------------------------------------------------------------------------


def test_batches_have_what_scan_finds_and_a_restart_goes_on(tmp_path: Path) -> None:
    with brokers(tmp_path) as here:
        for number in range(3):
            publish(here.url_of(number), range(100 * number, 100 * number + 40))
        text = "n >= 20 AND symbol <> 'B'"
        options = {"url": here.url, "since": "earliest", "maxEventsPerBatch": "50", "eventsPerPartition": "7"}
        reader = stream_reader(**options, filter=text)
        reader.prepareForTriggerAvailableNow()
        batches = list(all_batches(reader, reader.initialOffset()))
        reader.stop()
        assert len(batches) == 3
        assert all(len(rows) <= 50 for _, rows in batches)
        scan: Scan[str] = Scan()
        scan.add("it", parse_filter(text))
        wanted = [n for n in (*range(40), *range(100, 140), *range(200, 240))
                  if scan.match({"n": n, "symbol": "ABC"[n % 3]})]  # fmt: skip
        assert numbers_of(row for _, rows in batches for row in rows) == wanted
        for end, rows in batches:
            assert {row["read_at"] for row in rows} == {datetime.fromtimestamp(end["read_us"] / 1e6, UTC)}
        again = stream_reader(**options, filter=text)  # after a crash: another process, the offsets of the checkpoint
        assert rows_between(again, batches[0][0], batches[1][0]) == batches[1][1]
        publish(here.url_of(1), range(300, 310))
        again.prepareForTriggerAvailableNow()
        more = list(all_batches(again, batches[-1][0]))
        assert numbers_of(row for _, rows in more for row in rows) == [n for n in range(300, 310) if n % 3 != 1]
        again.stop()


def test_latest_a_moment_and_earliest(tmp_path: Path) -> None:
    with brokers(tmp_path, 2) as here:
        publish(here.url_of(0), range(10))
        time.sleep(0.01)
        moment = datetime.now(UTC)
        publish(here.url_of(1), range(10, 20))
        latest = stream_reader(url=here.url)
        begin = latest.initialOffset()
        publish(here.url_of(0), range(20, 30))
        since = stream_reader(url=here.url, since=moment.isoformat().replace("+00:00", "Z"))
        for reader, start, wanted in (
            (latest, begin, range(20, 30)),
            (since, since.initialOffset(), range(10, 30)),
        ):
            reader.prepareForTriggerAvailableNow()
            assert numbers_of(row for _, rows in all_batches(reader, start) for row in rows) == list(wanted)
            reader.stop()
        table = TableReader(MeetpointDataSource({"url": here.url})._asked())
        rows = [row for part in table.partitions() for batch in table.read(part) for row in batch.to_pylist()]
        assert numbers_of(rows) == list(range(30))
        assert len({(row["home"], row["stream"], row["number"]) for row in rows}) == 30


def test_columns_follow_the_schema_and_what_does_not_fit_is_not_lost(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as here:
        publish(here.url, range(2), colour="red")
        with here.connect_sync() as net:
            net.declare(SCHEMA)
        publish(here.url, range(2, 4), order={"price": 1})
        source = MeetpointDataSource({"url": here.url, "since": "earliest"})
        columns = source.schema()
        assert to_arrow_schema(columns, timezone="UTC").equals(columns_of(source._asked().schema))
        reader = pickle.loads(pickle.dumps(source.streamReader(columns)))  # as Spark brings it to workers
        reader.prepareForTriggerAvailableNow()
        rows = [row for _, found in all_batches(reader, reader.initialOffset()) for row in found]
        reader.stop()
        assert [row["attributes"] for row in rows[:2]] == [None, None]
        assert [dict(attributes_from_json(row["unfit"])) for row in rows[:2]] == [
            {"n": n, "symbol": "AB"[n], "colour": "red"} for n in range(2)
        ]
        assert [row["unfit"] for row in rows[2:]] == [None, None]
        assert [row["attributes"]["n"] for row in rows[2:]] == [2, 3]
        assert str(rows[2]["attributes"]["order"]["price"]) == "1.00"
        (tmp_path / "other.yaml").write_text("attributes:\n  n: {type: integer}\n  colour: {type: string}\n")
        other = MeetpointDataSource({"url": here.url, "schema": str(tmp_path / "other.yaml")})
        assert other.schema()["attributes"].dataType.simpleString() == "struct<n:bigint,colour:string>"


def test_attributes_that_are_declared_while_a_query_runs_cost_it_nothing_that_it_has_columns_for(
    tmp_path: Path,
) -> None:
    with brokers(tmp_path, 1) as here, here.connect_sync() as net:
        net.publish({"n": 0, "symbol": 7, "colour": "red"})  # before there is a schema: of no type that it will have
        net.declare(SCHEMA)
        (tmp_path / "own.yaml").write_text(SCHEMA)
        readers = [
            MeetpointDataSource({"url": here.url, "since": "earliest", **said})
            for said in ({}, {"schema": str(tmp_path / "own.yaml")})
        ]
        streams = [source.streamReader(source.schema()) for source in readers]
        net.declare(SCHEMA + "  colour: {type: string}\n  order.tax: {type: integer}\n")
        net.publish({"n": 1, "symbol": "A", "colour": "red"})
        net.publish({"n": 2, "symbol": "A", "order": {"price": 1, "tax": 2}})
        net.publish({"n": 3, "symbol": "A", "order": {"price": 1}})
        found = []
        for stream in streams:
            stream.prepareForTriggerAvailableNow()
            found.append([row for _, rows in all_batches(stream, stream.initialOffset()) for row in rows])
            stream.stop()
    followed, own = found
    assert [row["unfit"] is None for row in followed] == [False, True, True, True]
    assert [row["attributes"] and row["attributes"]["n"] for row in followed] == [None, 1, 2, 3]
    assert str(followed[2]["attributes"]["order"]) == str(followed[3]["attributes"]["order"])
    assert [row["unfit"] is None for row in own] == [False, False, False, True], "a schema of one's own says what fits"


def test_a_broker_that_is_away_holds_up_its_own_stream_only(tmp_path: Path) -> None:
    with brokers(tmp_path, scheme="flood") as here:
        publish(here.url_of(0), range(10))
        publish(here.url_of(2), range(100, 110))
        reader = stream_reader(url=here.url, since="earliest")
        start = reader.initialOffset()
        until(lambda: len(reader.latestOffset(start, ReadAllAvailable())["streams"]) == 2, "both are archived")
        here.stop_broker(2, drain=False)
        publish(here.url_of(0), range(10, 20))
        until(lambda: sum(reader.latestOffset(start, ReadAllAvailable())["streams"].values()) == 20, "one goes on")
        end = reader.latestOffset(start, ReadMaxRows(1_000))
        assert numbers_of(rows_between(reader, start, end)) == list(range(20))
        here.start_broker(2)
        until(lambda: sum(reader.latestOffset(end, ReadAllAvailable())["streams"].values()) == 30, "the other is back")
        last = reader.latestOffset(end, ReadAllAvailable())
        assert numbers_of(rows_between(reader, end, last)) == list(range(100, 110))
        reader.stop()


def test_a_task_whose_broker_died_reads_from_another_and_else_says_so(tmp_path: Path) -> None:
    with brokers(tmp_path, scheme="flood") as here:
        publish(here.url_of(2), range(30))
        reader = stream_reader(url=here.url, since="earliest")
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        here.stop_broker(2, drain=False)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert numbers_of(rows) == list(range(30)), "brokers share the folder"
        here.stop_broker(1, drain=False)
        here.stop_broker(0, drain=False)
        soon = msgspec.structs.replace(reader._query.connection, timeout_s=1.0)
        for part in parts:
            part.task = msgspec.structs.replace(part.task, connection=soon)
        with pytest.raises(NetworkError, match=r"from number 1 on could not be read within 1 s: .*; start the query"):
            [batch for part in parts for batch in reader.read(part)]
        going_on = StreamReader(msgspec.structs.replace(reader._query, connection=soon))
        with pytest.raises(NetworkError, match="no broker has answered for 1 s"):
            until(lambda: going_on.latestOffset(start, ReadAllAvailable()) != start, "never")
        reader.stop()
        going_on.stop()


def test_what_two_archives_have_comes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a home moved to a broker with a folder of its own, which archives again what it is not certain of."""

    def read(url: str) -> None:
        publish(url, range(30))
        reader = stream_reader(url=url, since="earliest", eventsPerPartition="8")
        reader.prepareForTriggerAvailableNow()
        batches = list(all_batches(reader, reader.initialOffset()))
        assert numbers_of(row for _, rows in batches for row in rows) == list(range(30))
        (hour,) = (tmp_path / "x").glob("hour=*")
        parts = sorted(hour.glob("*.parquet"))
        publish(url, range(30, 40))
        until(lambda: len(list(hour.glob("*.parquet"))) > len(parts), "more is archived")
        (tmp_path / "y" / hour.name).mkdir()
        for path in hour.glob("*.parquet"):
            shutil.copy(path, tmp_path / "y" / hour.name / path.name)
        again = stream_reader(url=url, since="earliest", eventsPerPartition="8")
        again.prepareForTriggerAvailableNow()
        (last,) = list(all_batches(again, batches[-1][0]))
        assert len(last[0]["streams"]) == 2, "it has come to the end of both"
        assert numbers_of(last[1]) == list(range(30, 40))
        new = list(all_batches(again, again.initialOffset()))
        assert numbers_of(row for _, rows in new for row in rows) == list(range(40))
        reader.stop()
        again.stop()

    async def main() -> None:
        folders = [Archiving(folder=str(tmp_path / name), flush_s=0.05) for name in "xy"]
        async with (
            broker(archive=folders[0], scheme="flood") as one,
            broker(archive=folders[1], scheme="flood", join=(one.address,)),
        ):
            await asyncio.to_thread(read, f"mp://{one.address}")

    monkeypatch.setattr(planner, "UNHOSTED_S", 0.0)
    run(main())


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, MeetpointError, "option url: is missing; say where brokers are"),
        ({"url": "ftp://x"}, NetworkError, "begins with ftp://"),
        ({"url": "mp://x", "sinse": "latest"}, MeetpointError, "option sinse: there is none .*; did you mean since?"),
        ({"url": "mp://x", "since": "soon"}, MeetpointError, "option since: .*; or give earliest or latest"),
        ({"url": "mp://x", "filter": "n >"}, FilterError, "filter, column"),
        ({"url": "mp://x", "schema": "/nowhere.yaml"}, SchemaError, "cannot be read"),
        ({"url": "mp://x", "maxEventsPerBatch": "0", "schema": "S"}, MeetpointError, "maxEventsPerBatch: is '0'; give"),
        ({"url": "mp://x", "timeout": "-1"}, MeetpointError, "option timeout: is '-1'; give seconds above 0"),
        ({"url": "mp://x", "token": "t", "tokenFile": "f"}, MeetpointError, "both are given"),
        ({"url": "mp://127.0.0.1:1", "tokenFile": "/nowhere"}, MeetpointError, "tokenFile /nowhere: no such file"),
        ({"url": "mp://127.0.0.1:1"}, NetworkError, "nothing listens at 127.0.0.1:1"),
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_said_in_one_line(
    tmp_path: Path, options: dict[str, str], error: type[Exception], said: str
) -> None:
    (tmp_path / "s.yaml").write_text(SCHEMA)
    given = {name: str(tmp_path / "s.yaml") if value == "S" else value for name, value in options.items()}
    with pytest.raises(error, match=said) as raised:
        MeetpointDataSource(given).schema()
    assert "\n" not in str(raised.value)


def test_columns_of_ones_own_and_networks_without_an_archive_are_refused(tmp_path: Path) -> None:
    from pyspark.sql import types as spark

    with mp.local(brokers=1) as here:
        source = MeetpointDataSource({"url": here.url})
        with pytest.raises(MeetpointError, match=r"leave \.schema\(…\) out"):
            source.streamReader(spark.StructType().add("id", "string"))
        with pytest.raises(NetworkError, match="this broker keeps no archive"):
            stream_reader(url=here.url).initialOffset()
        with pytest.raises(MeetpointError, match="a table has nothing since latest"):
            TableReader(MeetpointDataSource({"url": here.url, "since": "latest"})._asked()).partitions()


def test_a_token_is_read_on_the_driver_and_goes_along(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with brokers(tmp_path, 1) as here:
        publish(here.url, range(3))
        reader = stream_reader(url=here.url, since="earliest", tokenFile=str(tmp_path / "token"))
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        parts = reader.partitions(start, json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable()))))
        assert [(part.task.connection.token, part.task.connection.token_file) for part in parts] == [("secret", "")]
        reader.stop()
