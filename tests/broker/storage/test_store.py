"""The store: what is kept, what is told and when; whose store it is, and who may have it; a disk without room."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage import LATENCY_BOUNDS_S, Identity, Store, StoreError, StoreState
from meetpoint.broker.storage import database as database_module
from meetpoint.broker.storage import folder as folder_module
from meetpoint.broker.storage import store as store_module
from meetpoint.broker.storage.database import open_memory
from meetpoint.broker.storage.layout import Changes
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import LOCAL, Record
from tests.broker.storage.opened import HOME, OTHER, Opened, kept, opened, record
from tests.store_conformance import StoreConformance

MEMORY = "/dev/shm"


@pytest.fixture
def swift_path() -> Iterator[Path]:
    """A folder where a sync costs nothing, if there is one: for tests of what is written, not of when."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


class FileRig:
    """A store on disk. A kill is a copy of its files, taken while it writes: what the kernel has is what is there."""

    def __init__(self, folder: Path) -> None:
        self._base = folder
        self._lives = itertools.count()
        self._path = folder / f"{next(self._lives)}"
        self._opened: Opened | None = None
        self._waiting: list[int] = []

    def persist(self, effect: Persist) -> None:
        if self._opened is None:
            self._opened = Opened(Store.open(self._path))
        self._opened.take(effect)
        self._waiting.append(effect.ticket)

    def settle(self) -> list[int]:
        """What is told answers all before it, too."""
        if self._opened is not None:
            self._opened.settle()
        answered, self._waiting = self._waiting, []
        return answered

    def restart(self) -> tuple[Record, ...]:
        if self._opened is not None:
            copy = self._base / f"{next(self._lives)}"
            copy_as_killed(self._path, copy)
            self.close()
            self._path = copy
        return kept(self._path)

    def renew(self) -> None:
        self.close()
        self._waiting = []
        self._path = self._base / f"{next(self._lives)}"

    def close(self) -> None:
        if self._opened is not None:
            self._opened.store.close()
            self._opened = None
            shutil.rmtree(self._path)


def copy_as_killed(path: Path, to: Path) -> None:
    """The files as a kill would leave them, the log last; its index in shared memory dies with the process."""
    to.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copyfile(path / name, to / name)


class TestFiles(StoreConformance):
    @pytest.fixture
    def rig(self, swift_path: Path) -> Iterator[FileRig]:
        rig = FileRig(swift_path)
        yield rig
        rig.close()


class StoreMachine(RuleBasedStateMachine):
    """A store beside a dict, through restarts, with transactions of any size."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        self.path = Path(self._folder.name) / "store"
        self.model: dict[tuple[bytes, str], Record] = {}

    @initialize()
    def open(self) -> None:
        self.opened = Opened(Store.open(self.path))

    @rule(
        records=st.lists(
            st.builds(
                Record,
                st.sampled_from([HOME, OTHER, LOCAL]),
                st.sampled_from(["", "a", "b", "ä\0\n", "queue/1"]),
                st.integers(-(2**63), 2**63 - 1),
                st.none() | st.binary(max_size=20) | st.just(b"\0" * 5000),
            ),
            max_size=5,
        ),
        erased=st.lists(st.tuples(st.sampled_from([HOME, OTHER]), st.sampled_from(["a", "b"])), max_size=3),
    )
    def persist(self, records: list[Record], erased: list[tuple[HomeId, str]]) -> None:
        """A name that is both written and erased is gone: that is the order in which the simulated disk does it."""
        self.opened.persist(*records, erased=tuple(erased))
        self.model.update({(each.home, each.name): each for each in records})
        for at in erased:
            self.model.pop(at, None)

    @rule()
    def settle(self) -> None:
        self.opened.settle()

    @rule()
    def restart(self) -> None:
        self.opened.store.close()
        store = Store.open(self.path)
        assert store.recovered.records == tuple(self.model[at] for at in sorted(self.model))
        assert store.recovered.damaged == ()
        self.opened = Opened(store)

    @invariant()
    def told_in_order(self) -> None:
        if hasattr(self, "opened"):
            told = list(self.opened.told)
            assert told == sorted(set(told))

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.restart()
            self.opened.store.close()
        self._folder.cleanup()


TestModel = StoreMachine.TestCase
TestModel.settings = settings(max_examples=30, stateful_step_count=20)


# -- telling -----------------------------------------------------------------------------------------------------------


class Gated(sqlite3.Connection):
    """A connection that waits at the gate with each commit, and counts them."""

    gate = threading.Event()
    reached = threading.Event()
    commits = 0

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and Gated.armed:
            Gated.commits += 1
            Gated.reached.set()
            assert Gated.gate.wait(20)
        return super().execute(sql, *arguments)

    armed = False


@pytest.fixture
def gate() -> Iterator[type[Gated]]:
    Gated.gate, Gated.reached, Gated.commits, Gated.armed = threading.Event(), threading.Event(), 0, True
    yield Gated
    Gated.gate.set()
    Gated.armed = False


def test_nothing_is_told_before_the_commit_and_what_comes_meanwhile_goes_into_one(
    tmp_path: Path, gate: type[Gated]
) -> None:
    gate.armed = False
    with opened(tmp_path, factory=gate) as one:
        gate.armed = True
        one.persist(record("first"))
        assert gate.reached.wait(20)
        for name in "abcdefgh":
            one.persist(record(name))
        assert one.told == []
        assert one.store.measures.queued == 9
        gate.gate.set()
        one.settle()
        assert one.told == [1, 9]
        assert gate.commits == 2
        assert one.store.measures.queued == 0


def test_a_transaction_has_a_largest_size_and_the_rest_follows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: type[Gated]
) -> None:
    monkeypatch.setattr(store_module, "BATCH_RECORDS", 10)
    gate.armed = False
    with opened(tmp_path, factory=gate) as one:
        gate.armed = True
        one.persist(record("first"))
        assert gate.reached.wait(20)
        for ticket in range(2, 8):
            one.persist(*(record(f"{ticket}/{i}") for i in range(4)), record("last", version=ticket))
        one.persist(*(record(f"large/{i}") for i in range(25)))  # more than fits, and yet one ticket
        gate.gate.set()
        one.settle()
        assert one.told == [1, 4, 7, 8]
    records = kept(tmp_path)
    assert len(records) == 1 + 6 * 4 + 1 + 25
    assert record("last", version=7) in records


def test_closing_writes_and_tells_what_was_handed_in(tmp_path: Path, gate: type[Gated]) -> None:
    gate.armed = False
    store = Store.open(tmp_path, factory=gate)
    one = Opened(store)
    gate.armed = True
    one.persist(record("a"))
    assert gate.reached.wait(20)
    one.persist(record("b"))
    closer = threading.Thread(target=store.close)
    closer.start()
    gate.gate.set()
    closer.join(20)
    assert not closer.is_alive()
    assert one.told == [1, 2]
    store.close()  # which it may
    assert len(kept(tmp_path)) == 2


def test_producers_in_many_threads_are_all_told(tmp_path: Path) -> None:
    """One counter gives the tickets, as the loop of a broker does; persist itself may be called by any thread."""
    with opened(tmp_path) as one:
        lock = threading.Lock()

        def produce(number: int) -> None:
            for i in range(50):
                with lock:
                    one.persist(record(f"{number}/{i}"))

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.settle()
        assert one.told[-1] == 400
        measures = one.store.measures
        assert measures.commits == len(one.told) == sum(measures.commit_buckets)
        assert len(measures.commit_buckets) == len(LATENCY_BOUNDS_S) + 1
        assert measures.records == 400
        assert measures.bytes == sum(each.size for each in (record(f"{n}/{i}") for n in range(8) for i in range(50)))
        assert measures.file_bytes > measures.bytes
        assert 0 < measures.commit_seconds_last <= measures.commit_seconds
    assert len(kept(tmp_path)) == 400


@pytest.mark.parametrize("count", [1, 2, 3, 127, 128, 129, 255, 300])
def test_any_number_of_records_is_written_and_erased_in_one_transaction(swift_path: Path, count: int) -> None:
    """Rows go many to a statement: none is left out at the bounds, of several homes."""
    with opened(swift_path) as one:
        one.put(*(record(f"{i}", home=home) for i in range(count) for home in (HOME, OTHER)), record("stays"))
        assert one.store.measures.commits == 1
    assert len(kept(swift_path)) == 2 * count + 1
    with opened(swift_path) as one:
        gone = [(HOME, f"{i}") for i in range(count)] + [(OTHER, f"{i}") for i in range(0, count, 2)]
        one.put(*(record(f"new/{i}") for i in range(count)), erased=tuple(gone))
    left = {(each.home, each.name) for each in kept(swift_path)}
    assert left == {
        (HOME, "stays"),
        *((HOME, f"new/{i}") for i in range(count)),
        *((OTHER, f"{i}") for i in range(1, count, 2)),
    }


def test_erasing_finds_names_by_the_key_of_the_table() -> None:
    connection = open_memory()
    changes = Changes()
    changes.add((), tuple((HOME, f"{i}") for i in range(5)))
    ((statement, values),) = changes.prepare()
    (plan,) = connection.execute("EXPLAIN QUERY PLAN " + statement, values)
    connection.close()
    assert b"USING PRIMARY KEY (home=? AND name=?)" in plan[3]


def test_tickets_that_do_not_ascend_are_a_programmers_error() -> None:
    with opened(None) as one:
        one.store.persist(5, ())
        with pytest.raises(AssertionError, match="ticket 5 after 5"):
            one.store.persist(5, ())


def test_the_log_is_brought_into_the_file_and_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CHECKPOINT_RECORDS", 200)
    with opened(tmp_path) as one:
        for i in range(60):
            one.put(*(record(f"{i}/{j}", b"x" * 100) for j in range(20)))
        grown = (tmp_path / "store.db").stat().st_size
        assert grown > 1200 * 100 * 0.7, "most of it is in the file"
        assert (tmp_path / "store.db-wal").stat().st_size < grown * 3
    assert len(kept(tmp_path)) == 1200
    assert not (tmp_path / "store.db-wal").exists(), "a store that was closed is one file"


def test_a_store_in_memory_tells_and_forgets() -> None:
    with opened(None) as one:
        one.put(record("a"))
        assert one.told == [1]
        assert one.store.measures.file_bytes == 0
    with opened(None) as one:
        assert one.store.recovered.records == ()


# -- a disk without room, and one that fails ---------------------------------------------------------------------------


class Small(sqlite3.Connection):
    """A connection that the test can get hold of, to make its file too small."""

    last: Small

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        Small.last = self

    def limit(self, pages: int) -> None:
        self.execute(f"PRAGMA max_page_count = {pages}")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FULL_RETRY_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with opened(tmp_path, factory=Small) as one:
        one.put(record("before"))
        Small.last.limit(10)
        one.persist(record("large", b"x" * 200_000), erased=((HOME, "before"),))
        one.until(lambda: bool(one.states), "a state")
        for i in range(5):
            one.persist(record(f"waiting/{i}"))
        assert one.states == [StoreState(full=True)]
        assert one.store.measures.full
        assert one.store.state.full
        assert one.told == [1]
        assert one.store.measures.queued == 6
        Small.last.limit(100_000)
        one.settle()
        assert one.states == [StoreState(full=True), StoreState()]
        assert one.store.state == StoreState()
        assert one.told == [1, 2, 7]
    assert {each.name for each in kept(tmp_path)} == {"large", *(f"waiting/{i}" for i in range(5))}


@pytest.mark.usefixtures("impatient")
def test_a_store_that_is_closed_while_full_ends_and_keeps_what_was_told(tmp_path: Path) -> None:
    with opened(tmp_path, factory=Small) as one:
        one.put(record("told"))
        Small.last.limit(10)
        one.persist(record("large", b"x" * 200_000))
        one.persist(record("behind"))
        one.until(lambda: bool(one.states), "a state")
    assert one.told == [1]
    assert kept(tmp_path) == (record("told"),)


class Failing(sqlite3.Connection):
    """A connection where a statement fails as SQLite would let it fail."""

    statement = ""
    code = sqlite3.SQLITE_IOERR_FSYNC
    times = 0

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if Failing.statement and sql.startswith(Failing.statement):
            Failing.times += 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = Failing.code, "SQLITE_IOERR_FSYNC"
            raise error
        return super().execute(sql, *arguments)


@pytest.fixture
def failing() -> Iterator[type[Failing]]:
    Failing.statement, Failing.times = "", 0
    yield Failing
    Failing.statement = ""


@pytest.mark.parametrize("statement", ["COMMIT", "BEGIN", "PRAGMA wal_checkpoint"])
def test_an_error_of_writing_or_syncing_ends_the_store_without_a_second_try(
    tmp_path: Path, failing: type[Failing], statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECKPOINT_COMMITS", 2)
    with opened(tmp_path, factory=failing) as one:
        one.put(record("told"))
        failing.statement = statement
        one.persist(record("a"))
        one.until(lambda: bool(one.states), "a state")
        (state,) = one.states
        assert state.failed.startswith(f"store {tmp_path / 'store.db'}: cannot be written")
        assert "SQLITE_IOERR_FSYNC" in state.failed
        assert not state.full
        one.persist(record("b"))
        failing.statement = ""
        assert one.told == ([1, 2] if statement.startswith("PRAGMA") else [1])
    assert failing.times == 1
    assert (tmp_path / "store.db-wal").stat().st_size, "closing it does not write and sync what was never certain"
    assert record("told") in kept(tmp_path)
    assert record("b") not in kept(tmp_path)


# -- whose store it is, and who may have it ----------------------------------------------------------------------------


def test_a_store_belongs_to_the_broker_that_started_it_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert store.identity is None
    store.set_identity("ä:7400", "trades")
    store.close()
    store = Store.open(tmp_path)
    try:
        assert store.identity == Identity("ä:7400", "trades")
        store.set_identity("ä:7400", "trades")
        for name, network in (("b:7400", "trades"), ("ä:7400", "other")):
            with pytest.raises(StoreError, match=r"belongs to broker 'ä:7400' of network 'trades', not to .*; start"):
                store.set_identity(name, network)
    finally:
        store.close()


def test_a_store_is_of_the_scheme_that_kept_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.set_identity("a:7400", "trades")  # a former version did not say
    store.set_identity("a:7400", "trades", "meet")
    store.close()
    store = Store.open(tmp_path)
    try:
        assert store.identity == Identity("a:7400", "trades", "meet")
        store.set_identity("a:7400", "trades", "meet")
        with pytest.raises(StoreError, match=r"was kept by the scheme meet, not lists; set scheme as it was, or use"):
            store.set_identity("a:7400", "trades", "lists")
    finally:
        store.close()


@pytest.mark.parametrize("statement", ["PRAGMA quick_check", "PRAGMA journal_mode"])
def test_a_disk_that_cannot_be_read_is_not_taken_for_damage(
    tmp_path: Path, failing: type[Failing], statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path).close()
    failing.statement = statement
    with pytest.raises(StoreError, match=r"the disk does not read or write: .*SQLITE_IOERR_FSYNC") as said:
        Store.open(tmp_path, factory=failing)
    assert "is damaged" not in str(said.value)
    monkeypatch.setattr(database_module, "ROOM_BYTES", 1 << 62)  # there is not even so much
    with pytest.raises(StoreError, match=r"the disk is full; make room and start again"):
        Store.open(tmp_path, factory=failing)
    failing.statement = ""
    Store.open(tmp_path).close()


def test_a_store_is_open_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LOCK_WAIT_S", 0.05)
    with opened(tmp_path) as one:
        with pytest.raises(StoreError, match=f"in use by process {os.getpid()}; stop that one"):
            Store.open(tmp_path)
        code = "import sys, pathlib; from meetpoint.broker.storage import Store; Store.open(pathlib.Path(sys.argv[1]))"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert other.returncode == 1
        assert f"in use by process {os.getpid()}" in other.stderr
        one.put(record("a"))
    assert kept(tmp_path) == (record("a"),)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be made: .*; name a folder"):
        Store.open(tmp_path / "file" / "store")


def test_missing_folders_are_made(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "b?c#d %41") as one:
        one.put(record("a"))
    assert kept(tmp_path / "a" / "b?c#d %41") == (record("a"),)
