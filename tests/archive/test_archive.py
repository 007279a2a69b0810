"""The archive's files: what is written is read, each event once, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive import AcceptedEvent, Archive, ArchiveError, list_parts, read_accepted
from meetpoint.archive.parts import WRITING
from meetpoint.archive.reader import ArchiveReader
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value
from tests.archive.forking import PROCESSES

BEGIN = datetime(2026, 11, 16, 9, 59, 58, tzinfo=UTC)
HOMES = (HomeId(b"\x01" * 4), HomeId(b"\x02" * 4))
SCHEMA = Schema.from_yaml("attributes:\n  price: {type: integer}\n  order.id: {type: string}\n")


def accepted(
    number: int, home: HomeId = HOMES[0], *, seconds: float = 0.0, tenant: str = "", **attributes: Value
) -> AcceptedEvent:
    event = Event(f"e{number}", "p", number, BEGIN, attributes or {"price": number, "order": {"id": "x"}})
    at = BEGIN + timedelta(seconds=seconds)
    return AcceptedEvent(EventKey(home, 1, number), round(at.timestamp() * 1_000_000), to_msgpack(event), tenant)


def archive(folder: Path, network: str = "net", writer: str = "one") -> Archive:
    return Archive.open(folder, network, writer)


def keys(folder: Path, **span: Any) -> list[tuple[HomeId, int]]:
    return [(each.key.home, each.key.number) for each in read_accepted(folder, **span)]


def test_what_is_written_is_read_exactly_with_a_schema_and_without(tmp_path: Path) -> None:
    given = [accepted(number, HOMES[number % 2], seconds=number) for number in range(1, 6)]
    for schema, name in ((None, "loose"), (SCHEMA, "typed")):
        held = archive(tmp_path / name)
        held.write(given, schema)
        found = sorted(read_accepted(tmp_path / name), key=lambda each: each.key.number)
        assert [(each.key, each.at_us, to_msgpack(each.event)) for each in found] == [
            (each.key, each.at_us, each.content) for each in given
        ]
        assert {part.hour for part in list_parts(tmp_path / name)} == {"2026-11-16-09", "2026-11-16-10"}
    assert "attributes" not in ds.dataset(tmp_path / "loose", partitioning="hive").schema.names
    plain = ds.dataset(tmp_path / "typed", partitioning="hive").to_table()
    assert sorted(row["price"] for row in plain["attributes"].to_pylist()) == [1, 2, 3, 4, 5]
    assert set(plain["hour"].to_pylist()) == {"2026-11-16-09", "2026-11-16-10"}


def test_events_from_before_the_schema_are_kept_apart_and_read_as_exactly(tmp_path: Path) -> None:
    given = [accepted(1), accepted(2, price="dear"), accepted(3, other=1), accepted(4)]
    files = archive(tmp_path).write(given, SCHEMA)
    assert ["attributes" in pq.read_schema(path).names for path in files] == [True, False]
    assert keys(tmp_path) == [(HOMES[0], number) for number in (1, 4, 2, 3)]
    events = {each.key.number: each.event.attributes for each in read_accepted(tmp_path)}
    assert events[2] == {"price": "dear"}
    assert events[3] == {"other": 1}


def test_a_span_of_time_begins_with_its_first_moment_and_ends_before_its_last(tmp_path: Path) -> None:
    archive(tmp_path).write([accepted(number, seconds=number) for number in range(10)], None)
    since, until = BEGIN + timedelta(seconds=2), BEGIN + timedelta(seconds=5)
    assert keys(tmp_path, since=since, until=until) == [(HOMES[0], number) for number in (2, 3, 4)]
    with pytest.raises(ArchiveError, match="has no time zone"):
        keys(tmp_path, since=datetime(2026, 1, 1))


def test_of_one_tenant_only(tmp_path: Path) -> None:
    archive(tmp_path).write([accepted(1, tenant="a"), accepted(2, tenant="b"), accepted(3)], None)
    assert [each.key.number for each in read_accepted(tmp_path, tenant="a")] == [1]
    assert [each.key.number for each in read_accepted(tmp_path, tenant="")] == [3]


def test_what_is_given_again_after_a_crash_is_known(tmp_path: Path) -> None:
    rng = random.Random(5)
    given = [accepted(number, rng.choice(HOMES), seconds=number / 7) for number in range(200)]
    held = archive(tmp_path)
    first = rng.sample(given, 120)
    held.write(first[:50], None)
    held.write(first[50:], None)
    again = archive(tmp_path)
    assert {each.key for each in again.missing(given)} == {each.key for each in given} - {each.key for each in first}
    again.write(again.missing(given), None)
    assert sorted(keys(tmp_path)) == sorted((each.key.home, each.key.number) for each in given)
    assert again.missing(given) == []


def test_leftovers_are_swept_away_and_those_of_others_are_not(tmp_path: Path) -> None:
    archive(tmp_path).write([accepted(1)], None)
    for name in ("one.7", "two.7"):
        (tmp_path / WRITING / name).write_bytes(b"half")
    archive(tmp_path)
    assert [path.name for path in (tmp_path / WRITING).iterdir()] == ["two.7"]
    assert keys(tmp_path) == [(HOMES[0], 1)]


def test_mistakes_are_told(tmp_path: Path) -> None:
    archive(tmp_path / "a")
    with pytest.raises(ArchiveError, match="is the archive of network 'net', not of 'other'"):
        archive(tmp_path / "a", "other")
    with pytest.raises(ArchiveError, match="is no archive; give the folder"):
        list(read_accepted(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArchiveError, match="name a folder that this broker may write to"):
        archive(tmp_path / "file")
    (path,) = archive(tmp_path / "a").write([accepted(1)], None)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArchiveError, match=rf"{path.name}: cannot be read"):
        keys(tmp_path / "a")


def test_files_that_are_none_of_an_archives_are_passed_over_or_told_of(tmp_path: Path) -> None:
    held = archive(tmp_path)
    (path,) = held.write([accepted(1)], None)
    for name in ("notes.parquet", "abc-1-1-9.parquet", "0101-1-1.parquet"):
        (path.parent / name).write_bytes(b"x")
    (tmp_path / "other.parquet").write_bytes(b"x")
    assert keys(tmp_path) == [(HOMES[0], 1)]
    foreign = path.with_name(path.name.replace("-1-1.", "-2-9."))
    pq.write_table(pa.table({"price": [1, 2]}), foreign)
    shelf = ArchiveReader(tmp_path)
    for reads in (
        lambda: keys(tmp_path),
        lambda: held.missing([accepted(5)]),
        lambda: shelf.page((HOMES[0], 1), 1, 9, 0, lambda tenant, event: True),
    ):
        with pytest.raises(ArchiveError, match=rf"{foreign.name}: has no column \w+, so it is no file of an archive"):
            reads()
    foreign.write_bytes(path.read_bytes()[:150])
    for reads in (
        lambda: keys(tmp_path),
        lambda: held.missing([accepted(5)]),
        lambda: shelf.page((HOMES[0], 1), 1, 9, 0, lambda tenant, event: True),
    ):
        with pytest.raises(ArchiveError, match=rf"{foreign.name}: cannot be read: .*move it away"):
            reads()


def write_until_killed(folder: Path, number: int, seconds: float, told: Connection) -> None:
    held = archive(folder)
    threading.Timer(seconds, os._exit, (1,)).start()
    while True:
        held.write([accepted(number + each) for each in range(50)], None)
        number += 50
        told.send(number)


def test_a_writer_that_is_killed_leaves_whole_files_and_what_it_said_it_wrote(tmp_path: Path) -> None:
    rng, number = random.Random(3), 0
    for _ in range(4):
        hears, tells = PROCESSES.Pipe(duplex=False)
        seconds = rng.uniform(0.1, 0.4)
        writer = PROCESSES.Process(target=write_until_killed, args=(tmp_path, number, seconds, tells))
        writer.start()
        tells.close()
        told = number
        with hears, contextlib.suppress(EOFError):
            while True:
                told = hears.recv()
        writer.join()
        assert writer.exitcode == 1
        held = archive(tmp_path)
        wanted = [accepted(each) for each in range(told + 50)]
        missing = held.missing(wanted)
        assert all(each.key.number >= told for each in missing)
        held.write(missing, None)
        number = told + 50
    assert sorted(number for _, number in keys(tmp_path)) == list(range(number))
