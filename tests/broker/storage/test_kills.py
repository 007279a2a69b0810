"""Processes that die at any moment, and disks that fail: what was told persisted is there, and each ticket is whole."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from meetpoint.broker.storage.maintenance import check
from meetpoint.node.runtime.records import Record
from tests.broker.storage import appender
from tests.broker.storage.opened import WAIT_S, kept
from tests.tiers import SOAK

KILLS = 150 if SOAK else 15


class Lives:
    """The process that lives and dies again and again."""

    def __init__(self, path: Path, *arguments: str, under: tuple[str, ...] = ()) -> None:
        command = [*under, sys.executable, "-m", "tests.broker.storage.appender", str(path), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def begin(self, first: int, count: int = 0) -> int:
        """A life; its process id."""
        self._input.write(f"{first} {count}\n".encode())
        self._input.flush()
        word, number = self._output.readline().split()
        assert word == b"alive"
        return int(number)

    def heard(self) -> Iterator[list[str]]:
        """Yield the output of a life, until it is dead."""
        for line in self._output:
            words = line.decode().split()
            if words == ["dead"]:
                return
            yield words

    def close(self) -> None:
        self._input.close()
        self._process.wait(WAIT_S)
        self._output.close()


@contextlib.contextmanager
def lives(path: Path, *arguments: str, under: tuple[str, ...] = ()) -> Iterator[Lives]:
    made = Lives(path, *arguments, under=under)
    try:
        yield made
    finally:
        made.close()


class Model:
    """A model of the store's contents after a number of tickets."""

    def __init__(self) -> None:
        self.ticket = 0
        self.kept: dict[tuple[bytes, str], Record] = {}

    def go_to(self, ticket: int) -> None:
        for number in range(self.ticket + 1, ticket + 1):
            given = appender.effect(number)
            self.kept.update({(record.home, record.name): record for record in given.records})
            for at in given.erased:
                self.kept.pop(at, None)
        self.ticket = ticket


def recover(path: Path, model: Model, told: int) -> None:
    """Bring the model to where the store is, and compare."""
    records = kept(path)
    last = max((record.version for record in records if record.name == appender.LAST), default=0)
    assert last >= told, f"told {told}, and there is {last}"
    model.go_to(last)
    assert records == tuple(model.kept[at] for at in sorted(model.kept))


def test_nothing_told_is_lost_and_no_ticket_is_torn_by_kills(tmp_path: Path) -> None:
    random = Random() if SOAK else Random(5)
    model, told, hits = Model(), 0, 0
    with lives(tmp_path / "store") as process:
        for kill in range(KILLS):
            pid = process.begin(model.ticket + 1)
            patience = random.choice((0, 1, 5, random.randrange(60)))
            killed = False
            heard = 0
            if not patience:
                os.kill(pid, signal.SIGKILL)
                killed = True
            for words in process.heard():
                assert words[0] == "told", words
                told, heard = int(words[1]), heard + 1
                if heard >= patience and not killed:
                    os.kill(pid, signal.SIGKILL)
                    killed = True
            hits += heard > 0
            recover(tmp_path / "store", model, told)
            assert kill or model.ticket or not patience
    assert hits >= KILLS // 2, "most kills came while it wrote"


def test_a_life_that_ends_by_itself_has_told_everything(tmp_path: Path) -> None:
    with lives(tmp_path / "store") as process:
        process.begin(1, 500)
        assert [*process.heard()][-1] == ["told", "500"]
    model = Model()
    recover(tmp_path / "store", model, 500)
    assert model.ticket == 500


def test_a_write_that_fails_ends_the_store_and_nothing_more_is_told(tmp_path: Path) -> None:
    """A file that may not grow is an error of writing that is not a full disk."""
    with lives(tmp_path / "store", str(400_000)) as process:
        process.begin(1)
        said = [*process.heard()]
    assert said[-1][:2] == ["state", "failed"]
    assert "SQLITE_IOERR_WRITE" in said[-1][-1]
    assert sum(words[0] == "state" for words in said) == 1
    recover(tmp_path / "store", Model(), int(said[-2][1]) if len(said) > 1 else 0)


# -- with the system calls in sight ------------------------------------------------------------------------------------


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.returncode == 0


traced = pytest.mark.skipif(not _can_trace(), reason="needs strace, and the right to trace")


@traced
def test_every_word_comes_after_a_sync_of_all_that_was_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    under = ("strace", "-f", "-qq", "-y", "-s", "64", "-e", "trace=write,pwrite64,fdatasync,fsync", "-o", str(trace))
    with lives(tmp_path / "store", under=under) as process:
        process.begin(1, 300)
        told = [int(words[1]) for words in process.heard()]
    assert told[-1] == 300
    words = unsynced = 0
    for line in trace.read_text().splitlines():
        if re.search(r"pwrite64\(\d+<.*store\.db-wal>", line):
            unsynced += 1
        elif re.search(r"sync(?:\(\d+<.*store\.db-wal>| resumed.*)\) += 0", line):
            unsynced = 0
        elif '"told ' in line:
            words += 1
            assert not unsynced, f"{line}: {unsynced} writes were not synced"
    assert words == len(told)
    assert words > 1


@traced
def test_a_sync_that_fails_ends_the_store(tmp_path: Path) -> None:
    """From some sync on all fail, once: a second try would succeed, and must not be made."""
    with lives(tmp_path / "store") as process:
        process.begin(1, 10)
        assert [*process.heard()][-1] == ["told", "10"]
    inject = "inject=fdatasync,fsync:error=EIO:when=6"
    with lives(tmp_path / "store", under=("strace", "-f", "-qq", "-o", os.devnull, "-e", inject)) as process:
        process.begin(11)
        said = [*process.heard()]
    assert said[-1][:2] == ["state", "failed"]
    assert "SQLITE_IOERR_FSYNC" in said[-1][-1]
    recover(tmp_path / "store", Model(), int(said[-2][1]) if len(said) > 1 else 10)


@traced
def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """The kernel says ENOSPC for some writes; then there is room again."""
    inject = "inject=pwrite64:error=ENOSPC:when=60..61"
    with lives(tmp_path / "store", under=("strace", "-f", "-qq", "-o", os.devnull, "-e", inject)) as process:
        process.begin(1, 400)
        said = [*process.heard()]
    assert [words[1] for words in said if words[0] == "state"] == ["full", "writing"]
    assert said[-1] == ["told", "400"]
    recover(tmp_path / "store", Model(), 400)
    assert check(tmp_path / "store").is_sound
