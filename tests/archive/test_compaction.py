"""Merging: fewer files, the same events; at every moment, for whoever reads, and after whatever cut it short."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from meetpoint.archive import compaction, read_accepted
from meetpoint.archive.compaction import GRACE_S, closed_hours, expired_hours, merge_hour, remove_hour, sweep_removed
from meetpoint.archive.parts import MERGED, WRITING, hour_folders, list_parts
from meetpoint.archive.reader import ArchiveReader
from tests.archive.forking import PROCESSES
from tests.archive.test_archive import BEGIN, HOMES, SCHEMA, accepted, archive, keys

HOUR_END = (BEGIN + timedelta(seconds=2)).timestamp()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Make archives of so many events, each once, that tests copy."""
    return functools.cache(lambda count: fill(tmp_path_factory.mktemp("made"), count))


@pytest.fixture
def filled(tmp_path: Path, made: Callable[[int], Path]) -> Callable[..., list[int]]:
    """Fill the test's folder with an archive; return the numbers of its events."""

    def copied(count: int = 300) -> list[int]:
        shutil.copytree(made(count), tmp_path, dirs_exist_ok=True)
        return list(range(count))

    return copied


def fill(folder: Path, count: int) -> Path:
    rng = random.Random(7)
    held = archive(folder)
    for begin in range(0, count, 10):
        some = [accepted(number, HOMES[number % 2], seconds=number / 100) for number in range(begin, begin + 10)]
        if rng.random() < 0.3:
            some[3] = accepted(begin + 3, HOMES[(begin + 3) % 2], seconds=begin / 100, price="dear")
        held.write(some, SCHEMA)
    return folder


def numbers(folder: Path) -> list[int]:
    return sorted(number for _, number in keys(folder))


def test_an_hour_that_is_over_has_a_file_for_each_stream_and_kind_of_columns(
    tmp_path: Path, filled: Callable[..., list[int]]
) -> None:
    wanted = filled()
    before = {(each.key, each.at_us): each.event for each in read_accepted(tmp_path)}
    first, second = hour_folders(tmp_path)
    files = len(list(list_parts(tmp_path)))
    told = merge_hour(first)
    assert told.files_before > told.files_after == 3
    assert told.removed == 0
    assert len(list(list_parts(tmp_path))) == files - told.files_before + 3
    assert numbers(tmp_path) == wanted
    assert {(each.key, each.at_us): each.event for each in read_accepted(tmp_path)} == before
    assert merge_hour(first)[1:4] == (3, 3, 0), "there is nothing more to merge"
    later = first.stat().st_mtime + GRACE_S + 1
    assert merge_hour(first, later).removed == told.files_before
    assert numbers(tmp_path) == wanted
    merge_hour(second)
    assert numbers(tmp_path) == wanted


def test_a_broker_serves_the_same_before_and_after(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    filled()
    shelf = ArchiveReader(tmp_path)

    def read() -> list[int]:
        found: list[int] = []
        for stream, last in shelf.streams().items():
            after = 0
            while after < last:
                rows, after = shelf.page(stream, after, last, 0, lambda tenant, event: True)
                found += [row.number for row in rows]
        return found

    before = read()
    assert sorted(before) == list(range(1, 300)), "numbers begin with 1"
    for hour in hour_folders(tmp_path):
        merge_hour(hour)
        assert read() == before
        merge_hour(hour, hour.stat().st_mtime + GRACE_S + 1)
        assert read() == before


def test_only_hours_that_are_over_and_old_ones_go(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    filled()
    first, second = hour_folders(tmp_path)
    assert closed_hours(tmp_path, HOUR_END + GRACE_S - 1) == []
    assert closed_hours(tmp_path, HOUR_END + GRACE_S) == [first]
    day = 86_400.0
    assert expired_hours(tmp_path, day, HOUR_END + day - 1) == []
    assert expired_hours(tmp_path, day, HOUR_END + day) == [first]
    remove_hour(first)
    remove_hour(first)
    assert hour_folders(tmp_path) == [second]


def merge_some_steps(hour: Path, steps: int) -> None:
    """Merge an hour, and die after so many changes on disk."""

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*said: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps < 0:
                os._exit(9)
            return function(*said)

        return step

    for module, name in ((os, "replace"), (compaction, "write_synced"), (compaction, "sync_path")):
        setattr(module, name, counted(getattr(module, name)))
    merge_hour(hour)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7])
def test_a_run_that_is_cut_short_leaves_what_was_there(
    tmp_path: Path, filled: Callable[..., list[int]], steps: int
) -> None:
    wanted = filled(100)
    (hour,) = hour_folders(tmp_path)
    cut_short = PROCESSES.Process(target=merge_some_steps, args=(hour, steps))
    cut_short.start()
    cut_short.join()
    assert cut_short.exitcode == 9
    assert numbers(tmp_path) == wanted
    merge_hour(hour)
    assert numbers(tmp_path) == wanted
    assert (hour / MERGED).exists()


def merge_again_and_again(hour: Path) -> None:
    for _ in range(5):
        merge_hour(hour)


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    wanted = filled(200)
    (hour,) = hour_folders(tmp_path)
    runs = [PROCESSES.Process(target=merge_again_and_again, args=(hour,)) for _ in range(3)]
    for each in runs:
        each.start()
    while any(each.is_alive() for each in runs):
        assert numbers(tmp_path) == wanted
    assert [each.exitcode for each in runs] == [0, 0, 0]
    parts = list(list_parts(tmp_path))
    assert len(parts) == 3
    merged = [number for part in parts for number in pq.read_table(part.path)["number"].to_pylist()]
    assert sorted(merged) == wanted, "nothing is in two files"
    assert list((tmp_path / WRITING).iterdir()) == []


def merge_and_tell(hour: Path, told: Connection) -> None:
    """Merge an hour, and tell when it has to wait for the lock."""
    flock = fcntl.flock

    def telling(handle: int, how: int) -> None:
        try:
            flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            told.send("waits for the lock")
            flock(handle, how)

    with mock.patch.object(fcntl, "flock", telling):
        merge_hour(hour)
    told.send("done")


def test_an_hour_that_is_being_merged_is_left_alone_by_others(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    filled(100)
    (hour,) = hour_folders(tmp_path)
    handle = os.open(hour, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    hears, tells = PROCESSES.Pipe(duplex=False)
    other = PROCESSES.Process(target=merge_and_tell, args=(hour, tells))
    try:
        other.start()
        tells.close()
        assert hears.recv() == "waits for the lock"
        assert not (hour / MERGED).exists()
    finally:
        os.close(handle)
    assert hears.recv() == "done"
    hears.close()
    other.join()
    assert (hour / MERGED).exists()


def test_what_comes_late_to_an_hour_is_merged_too_and_never_into_a_file_of_its_name(tmp_path: Path) -> None:
    held = archive(tmp_path)
    held.write([accepted(1), accepted(2)], None)
    held.write([accepted(8), accepted(9)], None)
    (hour,) = hour_folders(tmp_path)
    assert merge_hour(hour).files_after == 1
    held.write([accepted(5)], None)
    assert merge_hour(hour).files_after == 2, "numbers 1 to 9 are the name of a file that is there"
    assert merge_hour(hour, hour.stat().st_mtime + GRACE_S + 1).files_after == 2
    assert numbers(tmp_path) == [1, 2, 5, 8, 9]
    held.write([accepted(10)], None)
    assert merge_hour(hour).files_after == 1
    (part,) = list_parts(tmp_path)
    assert pq.read_table(part.path)["number"].to_pylist() == [1, 2, 5, 8, 9, 10], "in the order of numbers"


def test_what_a_run_left_that_was_cut_short_is_swept_up(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    filled()
    first, second = hour_folders(tmp_path)
    for name in (f"merging.{second.name}.1234", f"merging.{second.name}.json"):
        (tmp_path / WRITING / name).write_bytes(b"half")
    merge_hour(second)
    remove_hour(first)
    assert len(list((tmp_path / WRITING).iterdir())) == 1, "it is not there for readers, but its files still are"
    sweep_removed(tmp_path)
    assert list((tmp_path / WRITING).iterdir()) == []


def test_a_copy_of_an_archive_without_empty_folders_is_one(tmp_path: Path, filled: Callable[..., list[int]]) -> None:
    filled()
    first, second = hour_folders(tmp_path)
    (tmp_path / WRITING).rmdir()
    assert merge_hour(second).files_after < 5
    (tmp_path / WRITING).rmdir()
    remove_hour(first)
    assert hour_folders(tmp_path) == [second]


def test_a_merged_file_is_read_a_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meetpoint.archive.compaction.ROW_GROUP", 50)
    monkeypatch.setattr("meetpoint.archive.reader.BATCH_ROWS", 50)
    monkeypatch.setattr("meetpoint.archive.reader.PAGE_LOOKED_MAX", 20)
    held = archive(tmp_path)
    for begin in range(1, 1001, 10):
        held.write([accepted(number) for number in range(begin, begin + 10)], None)
    (hour,) = hour_folders(tmp_path)
    assert merge_hour(hour).files_after == 1
    (part,) = list_parts(tmp_path)
    assert pq.ParquetFile(part.path).num_row_groups >= 20
    read: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, *said: Any, **more: Any) -> Any:
        for batch in batches(file, *said, **more):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    page = ArchiveReader(tmp_path).page((HOMES[0], 1), 100, 1000, 0, lambda tenant, event: True)
    assert ([row.number for row in page.rows], page.reached) == (list(range(101, 121)), 120)
    assert sum(read) <= 100, "what the next pages have is not read for this one"
