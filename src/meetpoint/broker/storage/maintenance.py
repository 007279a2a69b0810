"""Maintenance of stores: checking one, copying it while a broker writes it, and putting a copy in place.

A backup is one file, complete in itself: the records as of one moment, without the journal. A broker that starts from a
restored one knows nothing of what happened since. So its notes that its homes are complete are removed, and it asks the
other brokers for what they have, of which the newer wins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from meetpoint.broker.storage.database import (
    WAYS_OUT,
    check_header,
    connect,
    damage_in_log,
    explained,
    is_completeness_note,
    read_only,
    refuse_foreign_file,
    structural_damage,
)
from meetpoint.broker.storage.folder import DATABASE, Lock, StoreError, is_in_use, make_folder, sync_folder
from meetpoint.broker.storage.layout import (
    MIGRATIONS,
    Identity,
    read_identity,
    read_records,
    read_row,
    schema_of,
    schema_wanted,
)

__all__ = ["CheckReport", "backup", "check", "restore"]


class CheckReport(msgspec.Struct, frozen=True):
    """The contents of a store, and what is wrong with it."""

    path: str
    version: int
    newest_version: int
    identity: Identity | None
    is_in_use: bool
    records: dict[str, int]
    """Number of records of each kind, the first part of their names."""
    deleted: int
    """Number of records that say that a name was deleted; they are counted among the others."""
    homes: int
    damaged: tuple[tuple[str, str], ...]
    """Records with a wrong checksum: home in hex, and name. The broker sets them aside when it next starts."""
    set_aside: int
    """Number of records that were set aside when a broker started."""
    missing: int
    """Number of those without a newer record of their name."""
    file_bytes: int
    log_bytes: int
    problems: tuple[str, ...]
    """Problems with the files themselves."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the present contents."""
        return not (self.problems or self.damaged)


def check(path: Path) -> CheckReport:
    """Read all of a store, or of a backup, and change nothing; also while a broker uses it."""
    file = path / DATABASE if path.is_dir() else path
    check_header(file)
    in_use = path.is_dir() and is_in_use(path)
    with explained(file):
        problems = []
        if not in_use and (problem := damage_in_log(file)) is not None:
            problems.append(problem)
        with contextlib.closing(read_only(file)) as connection:
            connection.execute("BEGIN")
            version = refuse_foreign_file(connection, file)
            if (problem := structural_damage(connection)) is not None:
                problems.append(problem)
            if version == len(MIGRATIONS) and schema_of(connection) != schema_wanted():
                problems.append("its tables are not those of a store")
            return _read(connection, file, version, in_use, problems)


_SET_ASIDE = (
    "SELECT count(*), count(*) - count(records.name) FROM damaged LEFT JOIN records"
    " ON records.home = damaged.home AND records.name = CAST(damaged.name AS TEXT)"
)


def _read(connection: sqlite3.Connection, file: Path, version: int, in_use: bool, problems: list[str]) -> CheckReport:
    kinds: Counter[str] = Counter()
    homes = set()
    damaged = []
    deleted = set_aside = missing = 0
    identity = None
    try:
        for row in read_records(connection):
            record = read_row(*row)
            if record is None:
                damaged.append((_shown(row[0], hexadecimal=True), _shown(row[1])))
            else:
                kinds[record.name.split("/", 1)[0]] += 1
                homes.add(record.home)
                deleted += record.value is None
        ((set_aside, missing),) = connection.execute(_SET_ASIDE)
        identity = read_identity(connection, file)
    except (sqlite3.DatabaseError, UnicodeDecodeError, StoreError) as error:
        problems.append(str(error))
    log = file.with_name(file.name + "-wal")
    return CheckReport(
        path=str(file),
        version=version,
        newest_version=len(MIGRATIONS),
        identity=identity,
        is_in_use=in_use,
        records=dict(sorted(kinds.items())),
        deleted=deleted,
        homes=len(homes - {b""}),
        damaged=tuple(damaged),
        set_aside=set_aside,
        missing=missing,
        file_bytes=file.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        problems=tuple(problems),
    )


def _shown(found: object, hexadecimal: bool = False) -> str:
    if isinstance(found, bytes):
        return found.hex() if hexadecimal else found.decode(errors="replace")
    return repr(found)


def backup(path: Path, to: Path) -> CheckReport:
    """Copy a store to a new file, while a broker may write it, and read the copy back."""
    file = path / DATABASE
    check_header(file)
    if to.exists():
        raise StoreError(f"backup {to}: is there already; name a new file")
    partial = to.with_name(to.name + ".partial")
    with explained(file), contextlib.closing(read_only(file)) as source:
        refuse_foreign_file(source, file)
        with _copying(partial, to):
            with explained(partial), contextlib.closing(connect(partial)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # so that it is one file
            return _put_in_place(partial, to)


def restore(source: Path, path: Path) -> CheckReport:
    """Put a backup into the folder of a broker that is not running and has no store there."""
    if source.is_dir():
        raise StoreError(f"backup {source}: is a folder; name the file that `meetpoint store backup` wrote")
    report = check(source)
    if not report.is_sound:
        raise StoreError(f"backup {source}: is damaged: {_first_problem(report)}; restore another one")
    make_folder(path)
    file = path / DATABASE
    partial = path / (DATABASE + ".partial")
    lock = Lock(path)
    try:
        for there in (file, file.with_name(DATABASE + "-wal")):
            if there.exists():
                raise StoreError(f"store {there}: is there already; move it away, or restore into another folder")
        with _copying(partial, file):
            shutil.copyfile(source, partial)
            with explained(partial), contextlib.closing(connect(partial)) as copy:
                _drop_completeness_notes(copy)
            return _put_in_place(partial, file)
    finally:
        lock.release()


def _drop_completeness_notes(copy: sqlite3.Connection) -> None:
    """Remove the notes by which a node would believe that it has everything."""
    notes = [
        record for row in read_records(copy) if (record := read_row(*row)) is not None and is_completeness_note(record)
    ]
    copy.execute("BEGIN IMMEDIATE")
    copy.executemany("DELETE FROM records WHERE home = ? AND name = ?", [(note.home, note.name) for note in notes])
    copy.execute("COMMIT")


@contextlib.contextmanager
def _copying(partial: Path, to: Path) -> Iterator[None]:
    """Turn errors of making a copy into StoreErrors, and remove what is left of it."""
    try:
        partial.unlink(missing_ok=True)
        yield
    except OSError as error:
        raise StoreError(f"{to}: cannot be written: {error.strerror}; make room there, or name another place") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _put_in_place(partial: Path, to: Path) -> CheckReport:
    """Read a copy back, sync it, and give it its name, unless that is taken meanwhile."""
    report = check(partial)
    if not report.is_sound:
        problem = _first_problem(report)
        raise StoreError(
            f"{to}: the copy is damaged: {problem}; run `meetpoint store check` on the store, and {WAYS_OUT}"
        )
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(partial, to)
    except FileExistsError:
        raise StoreError(f"{to}: is there already; name a new file") from None
    partial.unlink()
    sync_folder(to.parent)
    return msgspec.structs.replace(report, path=str(to))


def _first_problem(report: CheckReport) -> str:
    return report.problems[0] if report.problems else f"{len(report.damaged)} records"
