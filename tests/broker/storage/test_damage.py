"""Files that are not what they should be: damage is found and told, and never taken for what was kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage import Store, StoreError
from meetpoint.broker.storage.database import drop_completeness_notes, open_file
from meetpoint.broker.storage.layout import MIGRATIONS, Migration, checksum
from meetpoint.broker.storage.maintenance import check
from meetpoint.node.cluster.home_manager import HOSTED
from meetpoint.node.node import INCARNATION
from meetpoint.node.runtime.records import LOCAL, Record
from tests.broker.storage.opened import HOME, OTHER, kept, opened, record
from tests.tiers import SOAK

FLIPS = 1000 if SOAK else 60
DATABASE, LOG = "store.db", "store.db-wal"
Kept = dict[tuple[bytes, str], Record]


def fill(path: Path, seed: int) -> list[Kept]:
    """Twenty transactions; what the store holds after each."""
    random = Random(seed)
    model: Kept = {}
    after = []
    with opened(path) as one:
        for version in range(20):
            records: Kept = {}
            for _ in range(12):
                at = random.choice((HOME, OTHER)), f"queue/{random.randrange(300):04}"
                value = random.choice((None, b"", random.randbytes(200), random.randbytes(random.choice((30, 9000)))))
                records[at] = Record(*at, version, value)
            one.put(*records.values())
            model.update(records)
            after.append(dict(model))
        shutil.copytree(path, path.with_name("killed"))
    (path.with_name("killed") / "store.db-shm").unlink()
    return after


def flip(file: Path, at: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def flips(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Places in a file, some of them in its first page."""
    random = Random(seed)
    for i in range(FLIPS):
        yield random.randrange(size if i % 5 else min(size, 4096)), random.randrange(8)


def judge(path: Path, allowed: list[Kept]) -> str:
    """Open a store that has a flipped bit; what became of it. Nothing may be wrong or missing without a word."""
    try:
        store = Store.open(path)
    except StoreError as error:
        return "refused" if str(error).isprintable() else f"refused in lines: {error}"
    try:
        have = {(each.home, each.name): each for each in store.recovered.records}
        damaged = store.recovered.damaged
        assert any(
            all(model.get(at) == each for at, each in have.items()) and len(model) == len(have) + len(damaged)
            for model in allowed
        ), f"{len(have)} records and {len(damaged)} damaged"
    finally:
        store.close()
    again = Store.open(path)
    again.close()
    assert again.recovered.damaged == (), "it is set aside, for good"
    assert {(each.home, each.name): each for each in again.recovered.records} == have
    assert check(path).missing == len(damaged)
    return "set aside" if damaged else "fine"


@pytest.mark.slow
def test_a_flipped_bit_anywhere_in_the_file_is_never_believed(tmp_path: Path) -> None:
    after = fill(tmp_path / "whole", 1)
    seen = set()
    for number, (at, bit) in enumerate(flips((tmp_path / "whole" / DATABASE).stat().st_size, 1)):
        path = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "whole", path)
        flip(path / DATABASE, at, bit)
        seen.add(judge(path, after[-1:]))
        shutil.rmtree(path)
    assert seen == {"refused", "set aside", "fine"}


def test_a_flipped_bit_anywhere_in_the_log_loses_at_most_what_looks_like_a_torn_end(tmp_path: Path) -> None:
    """The last transaction alone cannot be told from one that a crash tore."""
    after = fill(tmp_path / "whole", 2)
    assert judge_copy(tmp_path, None) == "fine", "the log alone is sound"
    seen = {judge_copy(tmp_path, place, after) for place in flips((tmp_path / "killed" / LOG).stat().st_size, 2)}
    assert seen == {"refused", "fine"}


def judge_copy(folder: Path, place: tuple[int, int] | None, after: list[Kept] | None = None) -> str:
    path = folder / "copy"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / "killed", path)
    if place is None:
        return judge(path, [{(each.home, each.name): each for each in kept(folder / "whole")}])
    flip(path / LOG, *place)
    before = (path / LOG).read_bytes(), (path / DATABASE).read_bytes()
    assert after is not None
    word = judge(path, after[-2:])
    if word == "refused":
        assert before == ((path / LOG).read_bytes(), (path / DATABASE).read_bytes()), "what is refused is left alone"
    return word


def test_a_page_that_lost_a_row_is_refused_though_every_row_in_it_is_sound(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 5)
    data = bytearray((tmp_path / "whole" / DATABASE).read_bytes())
    leaves = [at for at in range(4096, len(data), 4096) if data[at] == 0x0A and data[at + 4] > 2]
    data[leaves[3] + 4] -= 1  # how many rows the page has
    (tmp_path / "whole" / DATABASE).write_bytes(data)
    with pytest.raises(StoreError, match=r"store\.db: is damaged: .*page"):
        Store.open(tmp_path / "whole")


@pytest.mark.parametrize("cut", [1, 24, 4000, 20_000])
def test_a_torn_end_of_the_log_is_no_damage(tmp_path: Path, cut: int) -> None:
    after = fill(tmp_path / "whole", 3)
    log = tmp_path / "killed" / LOG
    os.truncate(log, log.stat().st_size - cut)
    recovered = kept(tmp_path / "killed")
    assert {(each.home, each.name): each for each in recovered} in after[-2:]


# -- one damaged record ------------------------------------------------------------------------------------------------


def damage(path: Path, home: HomeId, name: str) -> None:
    """Change a record behind the back of its checksum."""
    connection = sqlite3.connect(path / DATABASE)
    changed = connection.execute(
        "UPDATE records SET value = X'00' || value WHERE home = ? AND name = ?", (bytes(home), name)
    )
    assert changed.rowcount == 1
    connection.commit()
    connection.close()


def notes_of(path: Path) -> set[str]:
    return {each.name for each in kept(path) if each.home == LOCAL}


HOSTED_HOME, HOSTED_OTHER = HOSTED + HOME.hex(), HOSTED + OTHER.hex()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two homes, with the notes that they are whole."""
    with opened(tmp_path) as one:
        one.put(record("a"), record("b"), record("c"), record("a", home=OTHER), record("b", home=OTHER))
        notes = (HOSTED_HOME, HOSTED_OTHER, INCARNATION, "directory/00")
        one.put(*(Record(LOCAL, name, 4, b"note") for name in notes))
    return tmp_path


def test_a_damaged_record_is_set_aside_and_reported_and_all_others_are_there(path: Path) -> None:
    damage(path, HOME, "b")
    assert check(path).damaged == ((HOME.hex(), "b"),)
    with opened(path) as one:
        recovered = one.store.recovered
        assert recovered.damaged == ((HOME, "b"),)
        assert [each for each in recovered.records if each.home != LOCAL] == [
            record("a"), record("c"), record("a", home=OTHER), record("b", home=OTHER),
        ]  # fmt: skip
        one.put(record("d"))
    report = check(path)
    assert (report.set_aside, report.missing, report.damaged) == (1, 1, ())
    with opened(path) as one:
        assert one.store.recovered.damaged == ()
        one.put(record("b", b"again", version=2))
    assert record("b", b"again", version=2) in kept(path)
    report = check(path)
    assert (report.set_aside, report.missing, report.is_sound) == (1, 0, True)
    connection = sqlite3.connect(path / DATABASE)
    assert connection.execute("SELECT home, name, value FROM damaged").fetchall() == [(HOME, b"b", b"\0v")]
    connection.close()


def test_with_a_damaged_record_goes_the_note_that_its_home_is_whole(path: Path) -> None:
    assert notes_of(path) == {HOSTED_HOME, HOSTED_OTHER, INCARNATION, "directory/00"}
    damage(path, HOME, "b")
    for _ in range(2):  # also for a node that is killed before it has looked elsewhere
        assert notes_of(path) == {HOSTED_OTHER, INCARNATION, "directory/00"}
    damage(path, OTHER, "a")
    assert notes_of(path) == {INCARNATION, "directory/00"}


@pytest.mark.parametrize("name", [INCARNATION, HOSTED_OTHER, "directory/00"])
def test_with_a_damaged_note_go_all_notes_that_say_a_home_is_whole(path: Path, name: str) -> None:
    damage(path, LOCAL, name)
    assert notes_of(path) == {"directory/00"} - {name}


def test_a_damaged_name_of_a_home_may_have_been_any_homes(path: Path) -> None:
    connection = sqlite3.connect(path / DATABASE)
    connection.execute("UPDATE records SET home = X'0102' WHERE home = ? AND name = 'b'", (bytes(HOME),))
    connection.commit()
    connection.close()
    with opened(path) as one:
        assert one.store.recovered.damaged == ((HomeId(b"\1\2"), "b"),)
    assert notes_of(path) == {"directory/00"}


# -- what is no store, or another's ------------------------------------------------------------------------------------


def make(path: Path) -> None:
    with opened(path) as one:
        one.put(record("a"), record("large", b"x" * 50_000))


@pytest.mark.parametrize("size", [0, 15, 100, 4096, 20_000])
def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, size: int) -> None:
    make(tmp_path)
    os.truncate(tmp_path / DATABASE, size)
    before = (tmp_path / DATABASE).read_bytes()
    with pytest.raises(StoreError, match=r"store.db: is .*; .*move this folder away"):
        Store.open(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("name,price\nACME,3\n" * 1000)
    with pytest.raises(StoreError, match="is no store of Meetpoint; use another folder"):
        Store.open(tmp_path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("CREATE TABLE records (x)")
    connection.close()
    with pytest.raises(StoreError, match="is a database, and no store of Meetpoint"):
        Store.open(tmp_path)


def test_a_missing_file_beside_its_log_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 4)
    (tmp_path / "killed" / DATABASE).unlink()
    with pytest.raises(StoreError, match=r"store.db: is missing, and store.db-wal is there; bring it back"):
        Store.open(tmp_path / "killed")


def test_a_store_that_was_never_finished_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "store.db.new").write_bytes(b"half")
    make(tmp_path)
    assert len(kept(tmp_path)) == 2
    assert not (tmp_path / "store.db.new").exists()


def test_tables_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    connection.close()
    with pytest.raises(StoreError, match="its tables are not those of a store"):
        Store.open(tmp_path)


# -- versions ----------------------------------------------------------------------------------------------------------

VERSION_1 = """
PRAGMA application_id = 1298490704;
CREATE TABLE records (home BLOB NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value BLOB,
 crc INTEGER NOT NULL, PRIMARY KEY (home, name)) WITHOUT ROWID;
CREATE TABLE damaged (home BLOB, name BLOB, version, value BLOB, crc, found_us INTEGER NOT NULL);
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO records VALUES (X'0101', 'queue/1', 7, X'c0ffee', 3619925436), (X'', 'note', 1, NULL, 1080923533);
PRAGMA user_version = 1;
"""
"""The first version as it was released, by hand: whoever changes the layout has to bring such a file along."""


def make_version_1(path: Path) -> tuple[Record, ...]:
    records = (Record(LOCAL, "note", 1, None), Record(HomeId(b"\1\1"), "queue/1", 7, b"\xc0\xff\xee"))
    connection = sqlite3.connect(path / DATABASE)
    connection.executescript(VERSION_1.replace(",\n ", ", "))
    connection.close()
    return records


def test_the_checksum_of_a_record_stays_what_it_is() -> None:
    assert checksum(b"\1\1", b"queue/1", 7, b"\xc0\xff\xee") == 3619925436
    assert len({checksum(b"a", b"b", 1, None), checksum(b"a", b"b", 1, b""), checksum(b"ab", b"", 1, b"")}) == 3


def test_a_file_of_version_1_is_read(tmp_path: Path) -> None:
    records = make_version_1(tmp_path)
    assert kept(tmp_path) == records


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE meta ADD COLUMN since INTEGER")


def fail(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM records")
    raise sqlite3.OperationalError("a step that fails")


LATER: tuple[Migration, ...] = (*MIGRATIONS, add_column)


def test_an_older_file_is_brought_to_the_newest_version_with_all_it_holds(tmp_path: Path) -> None:
    records = make_version_1(tmp_path)
    open_file(tmp_path, LATER).close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("SELECT count(since) FROM meta").fetchone() == (0,)
    connection.close()
    with pytest.raises(StoreError, match=r"has version 2, and this program knows versions up to 1; start it with"):
        Store.open(tmp_path)
    connection = open_file(tmp_path, LATER)
    assert connection.execute("SELECT count(*) FROM records").fetchone() == (len(records),)
    connection.close()


def test_a_new_file_has_the_newest_version(tmp_path: Path) -> None:
    open_file(tmp_path, LATER).close()
    open_file(tmp_path, LATER).close()
    with pytest.raises(StoreError, match="has version 2"):
        Store.open(tmp_path)


def test_a_step_that_fails_leaves_the_older_file_as_it_was(tmp_path: Path) -> None:
    records = make_version_1(tmp_path)
    with pytest.raises(StoreError, match="a step that fails"):
        open_file(tmp_path, (*LATER, fail))
    assert kept(tmp_path) == records


def test_the_notes_that_homes_are_whole_are_kept_back_where_something_is_damaged() -> None:
    one, two = HomeId(b"1"), HomeId(b"2")
    notes = [Record(LOCAL, HOSTED + home.hex(), 1, b"") for home in (one, two)]
    known = [Record(LOCAL, INCARNATION, 1, b""), Record(one, "last", 1, b"x"), Record(two, "last", 1, b"x")]
    records = [*notes, *known]
    assert drop_completeness_notes(records, ()) == records
    assert drop_completeness_notes(records, [one]) == records[1:]
    assert drop_completeness_notes(records, [LOCAL]) == known[1:], "of a node's own notes any may be missing"
    assert drop_completeness_notes(records, [HomeId(b"3")]) == known[1:], "whose record it was is not known"
