"""Merging: fewer files, the same events; at every moment, for whoever reads, and after whatever cut it short."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from meetpoint.archive import read_accepted
from meetpoint.archive.merging import GRACE_S, closed_hours, expired_hours, forget_hour, merge_hour
from meetpoint.archive.parts import MERGED, hours, list_parts
from meetpoint.archive.serving import ArchiveShelf
from tests.archive.test_archive import BEGIN, HOMES, SCHEMA, accepted, archive, keys

HOUR_END = (BEGIN + timedelta(seconds=2)).timestamp()


def filled(folder: Path, count: int = 300) -> list[int]:
    rng = random.Random(7)
    held = archive(folder)
    for begin in range(0, count, 10):
        some = [accepted(number, HOMES[number % 2], seconds=number / 100) for number in range(begin, begin + 10)]
        if rng.random() < 0.3:
            some[3] = accepted(begin + 3, HOMES[(begin + 3) % 2], seconds=begin / 100, price="dear")
        held.write(some, SCHEMA)
    return list(range(count))


def numbers(folder: Path) -> list[int]:
    return sorted(number for _, number in keys(folder))


def test_an_hour_that_is_over_has_a_file_for_each_stream_and_kind_of_columns(tmp_path: Path) -> None:
    wanted = filled(tmp_path)
    before = {(each.key, each.at_us): each.event for each in read_accepted(tmp_path)}
    first, second = hours(tmp_path)
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


def test_a_broker_serves_the_same_before_and_after(tmp_path: Path) -> None:
    filled(tmp_path)
    shelf = ArchiveShelf(tmp_path)

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
    for hour in hours(tmp_path):
        merge_hour(hour)
        assert read() == before
        merge_hour(hour, hour.stat().st_mtime + GRACE_S + 1)
        assert read() == before


def test_only_hours_that_are_over_and_old_ones_go(tmp_path: Path) -> None:
    filled(tmp_path)
    first, second = hours(tmp_path)
    assert closed_hours(tmp_path, HOUR_END + GRACE_S - 1) == []
    assert closed_hours(tmp_path, HOUR_END + GRACE_S) == [first]
    day = 86_400.0
    assert expired_hours(tmp_path, day, HOUR_END + day - 1) == []
    assert expired_hours(tmp_path, day, HOUR_END + day) == [first]
    forget_hour(first)
    forget_hour(first)
    assert hours(tmp_path) == [second]


CUT_SHORT = """
import os, sys
from pathlib import Path
from meetpoint.archive import merging
steps = int(sys.argv[2])
def count(function):
    def counted(*said):
        global steps
        steps -= 1
        if steps < 0:
            os._exit(9)
        return function(*said)
    return counted
os.replace = count(os.replace)
merging.write_synced, merging.sync_folder = count(merging.write_synced), count(merging.sync_folder)
merging.merge_hour(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7])
def test_a_run_that_is_cut_short_leaves_what_was_there(tmp_path: Path, steps: int) -> None:
    wanted = filled(tmp_path, 100)
    (hour,) = hours(tmp_path)
    program = [sys.executable, "-c", CUT_SHORT, str(hour), str(steps)]
    assert subprocess.run(program, env={**os.environ}, check=False).returncode == 9
    assert numbers(tmp_path) == wanted
    merge_hour(hour)
    assert numbers(tmp_path) == wanted
    assert (hour / MERGED).exists()
