"""The sink of `format("meetpoint")`, called as Spark calls it: each row is one event, whatever is killed."""

from __future__ import annotations

import fcntl
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import meetpoint as mp
from meetpoint.archive import read_archive
from meetpoint.broker.config import Access
from meetpoint.client.errors import NetworkError
from meetpoint.client.sync import SyncDelivery, SyncSubscription
from meetpoint.errors import EventError, MeetpointError
from meetpoint.local_network import Local
from meetpoint.security import Rights
from meetpoint.spark.network.options import QueryOptions
from meetpoint.spark.network.sink import SINK_OPTIONS, SinkSettings, StagingFolder, StreamWriter
from tests.security.authorities import TestAuthority
from tests.spark.network_scenes import PATIENCE_S, all_before_markers, brokers, until
from tests.tiers import SOAK

KILLS = 40 if SOAK else 2
BEYOND = 1_000_000
"""The number of markers: no row has it."""
COLUMNS = spark.StructType().add("n", "long").add("at", "timestamp")


def writer(here: Local, folder: Path, columns: spark.StructType = COLUMNS, **options: str) -> StreamWriter:
    given = {
        "url": here.url,
        "publisher": "job",
        "checkpointLocation": str(folder),
        "timeout": str(PATIENCE_S),
        **options,
    }
    return StreamWriter(SinkSettings.of(QueryOptions(given, SINK_OPTIONS), columns))


def rows(*numbers: int) -> pa.RecordBatch:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.record_batch({"n": list(numbers), "at": pa.array([at] * len(numbers), pa.timestamp("us", tz="UTC"))})


def commit(to: StreamWriter, number: int, *batches: pa.RecordBatch) -> None:
    to.commit([to.write(iter([batch])) for batch in batches], number)


def all_of(here: Local, subscription: SyncSubscription, count: int, **access: Any) -> list[SyncDelivery]:
    """So many events, and all others before a marker of each broker."""
    return all_before_markers(subscription, count, here.addresses, {"n": BEYOND}, **access)


def came(events: Iterable[SyncDelivery]) -> list[Any]:
    return [event["n"] for event in events]


def test_rows_are_events_in_their_order_and_a_batch_that_is_done_is_dropped(tmp_path: Path) -> None:
    with mp.local(brokers=2) as here, here.connect_sync() as net:
        subscription = net.subscribe("n >= 0")
        commit(writer(here, tmp_path, time="at"), 0, rows(0, 1, 2), rows(3))
        commit(writer(here, tmp_path, time="at"), 1)
        for number in (2, 2):
            commit(writer(here, tmp_path, time="at"), number, rows(4, 5))
        found = all_of(here, subscription, 6)
        assert came(found) == [0, 1, 2, 3, 4, 5]
        publisher = found[0].event.publisher
        assert publisher.startswith("batch/job-")
        assert [(each.event.publisher, each.event.sequence, each.id) for each in found] == [
            (publisher, n + 1, f"{publisher}/{n + 1}") for n in range(6)
        ]
        assert dict(found[0].event.attributes) == {"n": 0}
        assert found[0].event.time == datetime(2026, 1, 1, tzinfo=UTC)
        assert sorted(path.name for path in (tmp_path / "meetpoint").iterdir()) == ["lock", "state.json"]
        with pytest.raises(MeetpointError, match="batch 1 comes, and 2 is done: it belongs to another query"):
            commit(writer(here, tmp_path), 1, rows(7))


class CutError(Exception):
    """What stands for a crash."""


@pytest.mark.parametrize("cut", ["put_batch", "put_state"])
def test_a_commit_that_is_cut_short_goes_on_with_the_rows_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    with mp.local(brokers=2) as here, here.connect_sync() as net:
        subscription = net.subscribe("n >= 0")
        commit(writer(here, tmp_path), 0, rows(0))
        whole = getattr(StagingFolder, cut)

        def put(self: StagingFolder, what: Any) -> None:
            if cut == "put_batch":  # after it, and before anything is published
                whole(self, what)
            raise CutError

        monkeypatch.setattr(StagingFolder, cut, put)
        with pytest.raises(CutError):
            commit(writer(here, tmp_path), 1, rows(1, 2))
        monkeypatch.setattr(StagingFolder, cut, whole)
        commit(writer(here, tmp_path), 1, rows(2, 1, 99))
        commit(writer(here, tmp_path), 2, rows(3))
        assert came(all_of(here, subscription, 4)) == [0, 1, 2, 3]


def test_where_a_batch_goes_on_is_not_guessed_while_a_broker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with brokers(tmp_path, 2, scheme="flood") as here, mp.connect_sync(here.url_of(0)) as net:
        subscription = net.subscribe("n >= 0")
        put_state = StagingFolder.put_state
        with monkeypatch.context() as patched:
            patched.setattr(
                StagingFolder, "put_state", lambda self, state: _cut() if state.done == 0 else put_state(self, state)
            )
            with pytest.raises(CutError):
                commit(writer(here, tmp_path), 0, rows(1, 2))
        here.stop_broker(1, drain=False)
        with pytest.raises(NetworkError, match="1 of 2 brokers did not answer"):
            commit(writer(here, tmp_path, timeout="5"), 0, rows(1, 2))
        here.start_broker(1)
        commit(writer(here, tmp_path), 0, rows(1, 2))
        assert came(all_of(here, subscription, 2)) == [1, 2]


def _cut() -> None:
    raise CutError


def is_publishing(staging: Path) -> bool:
    """Whether a process is about to publish a batch."""
    if not any(staging.glob("batch-*")):
        return False
    with (staging / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def test_drivers_and_brokers_are_killed_and_each_row_is_one_event(tmp_path: Path) -> None:
    rng = random.Random(3)
    batches, size = 2 + KILLS, 600 if SOAK else 200
    (tmp_path / "job").mkdir()
    with brokers(tmp_path, scheme="flood") as here, here.connect_sync(timeout=PATIENCE_S) as net:
        subscription = net.subscribe("n >= 0", durable="all")
        command = [sys.executable, "-m", "tests.spark.network_commit", str(tmp_path / "job"), here.url]
        command += [str(batches), str(size)]
        for kill in range(KILLS):
            with subprocess.Popen(command) as process:
                try:
                    until(lambda: is_publishing(tmp_path / "job" / "meetpoint"), "it publishes")
                    time.sleep(rng.choice((0, 0.02, 0.2, 1)) * rng.random())
                finally:
                    process.kill()
            if kill % 2:
                here.stop_broker(kill % 3, drain=False)
                here.start_broker(kill % 3)
        assert subprocess.run(command, check=False).returncode == 0
        assert Counter(came(all_of(here, subscription, batches * size))) == Counter(range(batches * size))
    archived = {each.id: each.attributes["n"] for each in read_archive(tmp_path / "archive")}
    assert Counter(archived.values()) - Counter({BEYOND: 3}) == Counter(range(batches * size))


def test_rows_that_no_event_can_be_are_refused_with_the_row_or_put_aside(tmp_path: Path) -> None:
    with mp.local(brokers=1) as here, here.connect_sync() as net:
        net.declare("attributes:\n  n: {type: integer, min: 0}\n")
        subscription = net.subscribe("n >= 0")
        columns = spark.StructType().add("n", "long")
        bad = pa.record_batch({"n": pa.array([1, -5, 2], pa.int64())})
        to = writer(here, tmp_path / "a", columns)
        with pytest.raises(EventError, match=r'row \{"n":-5\}: event: .*-5.*; or set option deadLetters to a folder'):
            to.write(iter([bad]))
        letters = tmp_path / "dead"
        commit(writer(here, tmp_path / "b", columns, deadLetters=str(letters)), 0, bad)
        (line,) = (letters / "batch-0.jsonl").read_text().splitlines()
        assert json.loads(line)["raw"] == '{"n":-5}'
        assert "-5" in json.loads(line)["reason"]
        assert came(all_of(here, subscription, 2)) == [1, 2]


def test_rows_that_brokers_refuse_are_tried_again_or_put_aside(tmp_path: Path) -> None:
    keys = TestAuthority(tmp_path)
    few, all_ = keys.token("ann", tenant="acme", publish=Rights(("n < 10",))), keys.token("ann", tenant="acme")
    with (
        mp.local(brokers=2, access=Access(**keys.access)) as here,
        here.connect_sync(token=all_) as net,
    ):
        subscription = net.subscribe("n >= 0")
        for _ in range(2):
            with pytest.raises(EventError, match=r'2 rows were refused, the first is \{"n":10,.*\}: .* permits'):
                commit(writer(here, tmp_path / "a", token=few), 0, rows(1, 10, 2, 11))
        commit(writer(here, tmp_path / "a", token=all_), 0, rows(99))
        assert came(all_of(here, subscription, 4, token=all_)) == [1, 2, 10, 11]
        (tmp_path / "token").write_text(few)
        letters: dict[str, Any] = {"deadLetters": str(tmp_path / "dead"), "tokenFile": str(tmp_path / "token")}
        commit(writer(here, tmp_path / "b", **letters), 0, rows(3, 10, 4))
        commit(writer(here, tmp_path / "b", **letters), 1, rows(5))
        assert came(all_of(here, subscription, 3, token=all_)) == [3, 4, 5]
        (line,) = (tmp_path / "dead" / "batch-0.jsonl").read_text().splitlines()
        assert json.loads(json.loads(line)["raw"])["n"] == 10


def test_a_folder_of_another_query_and_one_that_is_in_use_are_refused(tmp_path: Path) -> None:
    with mp.local(brokers=1) as here:
        (tmp_path / "metadata").write_text('{"id": "one"}')
        staging = str(tmp_path / "staging")
        commit(writer(here, tmp_path, staging=staging), 0, rows(1))
        with pytest.raises(MeetpointError, match="belongs to publisher job, not to other"):
            commit(writer(here, tmp_path, staging=staging, publisher="other"), 1, rows(1))
        (tmp_path / "metadata").write_text('{"id": "two"}')
        with pytest.raises(MeetpointError, match="belongs to another query, with another checkpoint"):
            commit(writer(here, tmp_path, staging=staging), 1, rows(1))
        (tmp_path / "metadata").write_text('{"id": "one"}')
        with (tmp_path / "staging" / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(MeetpointError, match=r"another process publishes from here for more than 0\.5 s"):
                commit(writer(here, tmp_path, staging=staging, timeout="0.5"), 1, rows(1))
        (tmp_path / "staging" / "state.json").write_text("{")
        with pytest.raises(MeetpointError, match=r"state\.json: is damaged; put back a copy of it"):
            commit(writer(here, tmp_path, staging=staging), 1, rows(1))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"publisher": ""}, COLUMNS, "option publisher: is ''; give the query a name"),
        ({"publisher": "a/b"}, COLUMNS, "option publisher: is 'a/b'"),
        ({"checkpointLocation": "hdfs://x/y"}, COLUMNS, "option staging: the checkpoint is on no disk of the driver"),
        ({"time": "n"}, COLUMNS, "option time: 'n' is no column of timestamps"),
        ({"colour": "red"}, COLUMNS, "option colour: there is none of that name"),
        ({}, spark.StructType().add("day", "date"), "column day: is of type date, which no attribute is; cast it"),
    ],
)
def test_what_is_wrong_is_said_before_any_row(tmp_path: Path, options: dict[str, str], columns: Any, said: str) -> None:
    with mp.local(brokers=1) as here, pytest.raises(MeetpointError, match=said) as raised:
        writer(here, tmp_path, columns, **options)
    assert "\n" not in str(raised.value)


def test_columns_that_the_networks_schema_does_not_have_are_refused(tmp_path: Path) -> None:
    with mp.local(brokers=1) as here:
        with here.connect_sync() as net:
            net.declare("attributes:\n  n: {type: integer}\n")
        with pytest.raises(MeetpointError, match="column at: the network's schema has no such attribute"):
            writer(here, tmp_path)
        writer(here, tmp_path, time="at")
