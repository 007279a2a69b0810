"""Checking, backing up and restoring, beside a broker that writes."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from meetpoint.broker.storage import Identity, Store, StoreError
from meetpoint.broker.storage import folder as folder_module
from meetpoint.broker.storage.maintenance import backup, check, restore
from meetpoint.node.cluster.home_manager import HOSTED
from meetpoint.node.node import INCARNATION
from meetpoint.node.runtime.records import LOCAL, Record
from tests.broker.storage.opened import HOME, OTHER, Opened, kept, opened, record


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LOCK_WAIT_S", 0.05)


def make(path: Path) -> None:
    store = Store.open(path)
    store.set_identity("a:1", "trades")
    one = Opened(store)
    one.put(
        record("queue/1"),
        record("queue/2", None),
        record("outbox/1", home=OTHER),
        Record(LOCAL, INCARNATION, 3, b""),
        Record(LOCAL, HOSTED + HOME.hex(), 1, b""),
        Record(LOCAL, "directory/01", 1, b"e"),
    )
    store.close()


def test_a_check_says_what_is_there(tmp_path: Path) -> None:
    make(tmp_path)
    before = (tmp_path / "store.db").read_bytes()
    report = check(tmp_path)
    assert report.records == {"directory": 1, "hosted": 1, "incarnation": 1, "outbox": 1, "queue": 2}
    assert (report.homes, report.deleted, report.version, report.newest_version) == (2, 1, 1, 1)
    assert report.identity == Identity("a:1", "trades")
    assert report.file_bytes == len(before)
    assert report.is_sound
    assert not report.is_in_use
    assert (tmp_path / "store.db").read_bytes() == before
    with opened(tmp_path) as one:
        one.put(record("queue/3"))
        report = check(tmp_path)
        assert report.is_in_use
        assert report.records["queue"] == 3
        assert report.log_bytes > 0


def test_a_check_finds_damage_and_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("UPDATE records SET version = 9 WHERE name = 'queue/1'")
    connection.commit()
    connection.close()
    for _ in range(2):
        report = check(tmp_path)
        assert report.damaged == ((HOME.hex(), "queue/1"),)
        assert not report.is_sound
    data = bytearray((tmp_path / "store.db").read_bytes())
    data[4096 * 2 + 3] ^= 0xFF  # how many cells a page has
    (tmp_path / "store.db").write_bytes(data)
    assert check(tmp_path).problems


@pytest.mark.parametrize("what", ["nothing", "empty", "text"])
def test_what_is_no_store_is_not_checked(tmp_path: Path, what: str) -> None:
    if what != "nothing":
        (tmp_path / "store.db").write_text("" if what == "empty" else "text " * 100)
    with pytest.raises(StoreError, match=r"store .*store\.db: .*; "):
        check(tmp_path)
    with pytest.raises(StoreError, match=r"store .*store\.db: .*; "):
        backup(tmp_path, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


def test_a_backup_of_a_store_that_is_written_is_one_moment_of_it(tmp_path: Path) -> None:
    """Each ticket writes two names with one version, so that a torn copy would show."""
    with opened(tmp_path / "store") as one:
        stop = threading.Event()
        pads = tuple(record(f"pad/{i}", b"x" * 2000) for i in range(300))
        one.put(*pads, record("a", version=0), record("z", version=0))

        def write() -> None:
            version = 0
            while not stop.is_set():
                version += 1
                one.persist(record("a", version=version), record("z", version=version), record(f"n/{version % 500}"))
                if version % 20 == 0:
                    one.settle()

        writer = threading.Thread(target=write)
        writer.start()
        versions = []
        try:
            for number in range(4):
                told = one.told[-1]
                report = backup(tmp_path / "store", tmp_path / f"{number}.db")
                assert report.is_sound
                assert report.path == str(tmp_path / f"{number}.db")
                restore(tmp_path / f"{number}.db", tmp_path / f"restored-{number}")
                held = {each.name: each.version for each in kept(tmp_path / f"restored-{number}")}
                assert held["a"] == held["z"]
                assert held["a"] >= told - 1, "all that was told before is in it"
                versions.append(held["a"])
        finally:
            stop.set()
            writer.join()
        assert versions == sorted(versions)
        assert versions[-1] > versions[0], "it was written meanwhile"
        one.settle()
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix not in (".db",)) == [
        "restored-0", "restored-1", "restored-2", "restored-3", "store",
    ]  # fmt: skip


def test_what_is_restored_asks_the_others_for_what_is_newer(tmp_path: Path) -> None:
    """The notes that would let a node believe its disk are gone, and all else is there."""
    make(tmp_path / "store")
    backup(tmp_path / "store", tmp_path / "backup.db")
    report = restore(tmp_path / "backup.db", tmp_path / "new" / "store")
    assert report.records == {"directory": 1, "outbox": 1, "queue": 2}
    before = kept(tmp_path / "store")
    assert kept(tmp_path / "new" / "store") == tuple(
        each for each in before if each.name.split("/")[0] not in ("incarnation", "hosted")
    )
    store = Store.open(tmp_path / "new" / "store")
    assert store.identity == Identity("a:1", "trades")
    store.close()
    assert sorted(check(tmp_path / "backup.db").records) == sorted({"incarnation", "hosted", *report.records})


def test_a_backup_does_not_overwrite(tmp_path: Path) -> None:
    make(tmp_path / "store")
    (tmp_path / "backup.db").write_text("precious")
    with pytest.raises(StoreError, match="is there already; name a new file"):
        backup(tmp_path / "store", tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_text() == "precious"


def test_a_restore_does_not_overwrite_nor_disturb_a_running_broker(tmp_path: Path) -> None:
    make(tmp_path / "store")
    backup(tmp_path / "store", tmp_path / "backup.db")
    before = kept(tmp_path / "store")
    with pytest.raises(StoreError, match=r"store\.db: is there already; move it away"):
        restore(tmp_path / "backup.db", tmp_path / "store")
    with opened(tmp_path / "store"), pytest.raises(StoreError, match="in use by process"):
        restore(tmp_path / "backup.db", tmp_path / "store")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "store.db-wal").write_text("left")
    with pytest.raises(StoreError, match=r"store\.db-wal: is there already"):
        restore(tmp_path / "backup.db", tmp_path / "other")
    assert kept(tmp_path / "store") == before
    assert sorted(each.name for each in (tmp_path / "other").iterdir()) == ["lock", "store.db-wal"]


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    make(tmp_path / "store")
    backup(tmp_path / "store", tmp_path / "backup.db")
    with sqlite3.connect(tmp_path / "backup.db") as connection:
        connection.execute("UPDATE records SET value = X'FF' WHERE name = 'queue/1'")
    connection.close()
    with pytest.raises(StoreError, match=r"backup\.db: is damaged: 1 records; restore another one"):
        restore(tmp_path / "backup.db", tmp_path / "new")
    with pytest.raises(StoreError, match="is a folder"):
        restore(tmp_path / "store", tmp_path / "new")
    os.truncate(tmp_path / "backup.db", 5000)
    with pytest.raises(StoreError, match="is damaged"):
        restore(tmp_path / "backup.db", tmp_path / "new")
    assert not (tmp_path / "new" / "store.db").exists()


def test_damage_is_not_backed_up_in_silence(tmp_path: Path) -> None:
    make(tmp_path / "store")
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
        connection.execute("UPDATE records SET value = X'FF' WHERE name = 'queue/1'")
    connection.close()
    with pytest.raises(StoreError, match="the copy is damaged: 1 records"):
        backup(tmp_path / "store", tmp_path / "backup.db")
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    make(tmp_path / "store")
    with pytest.raises(StoreError, match=r"nowhere"):
        backup(tmp_path / "store", tmp_path / "nowhere" / "backup.db")
