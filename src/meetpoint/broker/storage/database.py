"""Opening the file of a store: what is no store is refused, with what to do; what is damaged is found.

The rules. A file is made under another name and renamed when it is whole, so that an empty one is never taken for a new
store. Damage to the structure of a file is refused, since nobody can say what is missing: the others have copies, and
there are backups. Damage to single records is told from it and set aside (`layout`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage.changes import STATEMENTS
from meetpoint.broker.storage.errors import StoreError
from meetpoint.broker.storage.folder import DATABASE, sync_folder
from meetpoint.broker.storage.layout import (
    APPLICATION,
    MIGRATIONS,
    Migration,
    migrate,
    read_records,
    read_row,
    schema_of,
    schema_wanted,
    set_aside,
)
from meetpoint.broker.storage.recovery import Recovered, drop_completeness_notes
from meetpoint.broker.storage.wal import BUSY_S, damage_in_log
from meetpoint.node.runtime.records import Record

__all__ = [
    "WAYS_OUT",
    "connect",
    "explained",
    "is_full",
    "look_into",
    "open_file",
    "open_memory",
    "recover",
    "refuse_damage",
    "refuse_what_is_no_store",
    "structural_damage",
]

_MAGIC = b"SQLite format 3\0"

ROOM_BYTES = 64 << 10
"""With less than this a file system is full."""
WAYS_OUT = (
    "restore a backup into another folder (`meetpoint store restore`), "
    "or move this folder away and start without it, and the other brokers' copies come back"
)


def connect(path: Path | str, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """A connection that syncs before a commit returns, and reads text as bytes, as damaged text is no text.

    SQLite's own checkpoints are off: it would keep an error of theirs to itself, and a sync that failed once must not
    be believed the next time.
    """
    connection = sqlite3.connect(
        path,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
        factory=factory,
    )
    connection.text_factory = bytes
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def open_memory(migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """A store that nobody keeps."""
    connection = connect(":memory:")
    migrate(connection, migrations)
    return connection


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite, while a file is opened, in words that say what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_full(error) or (_code(error) == sqlite3.SQLITE_IOERR and _has_no_room(path)):
            raise StoreError(f"store {path}: the disk is full; make room and start again") from None
        if _code(error) == sqlite3.SQLITE_IOERR:
            raise StoreError(
                f"store {path}: the disk does not read or write: {error} ({error.sqlite_errorname}); "
                f"see what the system's log says of the disk and start again, or {WAYS_OUT}"
            ) from None
        if _code(error) in _OF_ACCESS:
            raise StoreError(f"store {path}: {error}; let this user write there, and no other program") from None
        raise refuse_damage(path, str(error)) from None
    except UnicodeDecodeError:  # from the sqlite3 module: what SQLite has to say quotes what is damaged
        raise refuse_damage(path, "SQLite cannot read it") from None


def open_file(
    folder: Path,
    migrations: Sequence[Migration] = MIGRATIONS,
    *,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    """The file of a store, made where there is none, and brought to the newest version. The caller has the lock."""
    path = folder / DATABASE
    if not path.exists():
        _make(path, migrations)
    check_header(path)
    with explained(path), contextlib.ExitStack() as undo:
        if (problem := damage_in_log(path)) is not None:
            raise refuse_damage(path, problem)
        connection = connect(path, factory=factory)
        undo.callback(connection.close)
        refuse_foreign_file(connection, path, len(migrations))
        if (problem := structural_damage(connection)) is not None:
            raise refuse_damage(path, problem)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != b"wal":
            raise StoreError(f"store {path}: cannot keep a write-ahead log here; use a folder on a local disk")
        migrate(connection, migrations)
        if schema_of(connection) != schema_wanted(migrations):
            raise refuse_damage(path, "its tables are not those of a store")
        undo.pop_all()
    return connection


def _make(path: Path, migrations: Sequence[Migration]) -> None:
    """A new file, whole before it has its name."""
    if (left := path.with_name(path.name + "-wal")).exists():
        raise StoreError(f"store {path}: is missing, and {left.name} is there; bring it back, or {WAYS_OUT}")
    made = path.with_name(path.name + ".new")
    try:
        made.unlink(missing_ok=True)
        connection = connect(made)
        try:
            migrate(connection, migrations)
        finally:
            connection.close()
        os.rename(made, path)
        sync_folder(path.parent)
    except (OSError, sqlite3.DatabaseError) as error:
        raise StoreError(f"store {path}: cannot be made: {error}; make room there, or use another folder") from None


def check_header(path: Path) -> None:
    """Refuse what can be seen not to be a database without SQLite, which would take an empty file for a new one."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(f"store {path}: {error.strerror}; name the folder of a broker's data") from None
    if not head:
        raise refuse_damage(path, "is empty")
    if head != _MAGIC:
        raise StoreError(f"store {path}: is no store of Meetpoint; use another folder, or {WAYS_OUT}")


def refuse_foreign_file(connection: sqlite3.Connection, path: Path, newest: int = len(MIGRATIONS)) -> int:
    """The version of a store; what is none, or too new, is refused."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreError(f"store {path}: is a database, and no store of Meetpoint; use another folder")
    if version < 1:
        raise refuse_damage(path, f"it says that it has version {version}")
    if version > newest:
        raise StoreError(
            f"store {path}: has version {version}, and this program knows versions up to {newest}; "
            "start it with the newer program that wrote it"
        )
    return int(version)


def refuse_damage(path: Path, problem: str) -> StoreError:
    """What is said of a file that cannot be trusted."""
    return StoreError(f"store {path}: is damaged: {problem}; {WAYS_OUT}")


def structural_damage(connection: sqlite3.Connection) -> str | None:
    """What is wrong with the structure of a file; not with its rows, which have checksums."""
    try:
        for (said,) in connection.execute("PRAGMA quick_check(10000)"):
            text = bytes(said).decode(errors="replace")
            if text != "ok" and not any(known in text for known in _OF_ROWS):
                return " ".join(text.split())
    except sqlite3.DatabaseError as error:
        if is_full(error) or _code(error) in (sqlite3.SQLITE_IOERR, *_OF_ACCESS):
            raise  # of the disk, and no word about what is on it
        return str(error)
    except UnicodeDecodeError as error:
        return str(error)
    return None


_OF_ROWS = ("PRIMARY KEY order", " value in ", "NULL value")


def recover(connection: sqlite3.Connection) -> Recovered:
    """All records that are sound; what is not is set aside."""
    records: list[Record] = []
    damaged = []
    for row in read_records(connection):
        record = read_row(*row)
        if record is None:
            damaged.append(row)
        else:
            records.append(record)
    if not damaged:
        return Recovered(tuple(records))
    names = [(HomeId(_bytes(home)), _bytes(name).decode(errors="replace")) for home, name, *_ in damaged]
    records = drop_completeness_notes(records, [home for home, _ in names])
    set_aside(connection, records, damaged, time.time_ns() // 1000)
    records.sort(key=lambda record: (record.home, record.name))
    return Recovered(tuple(records), tuple(names))


def _bytes(found: object) -> bytes:
    """What stands where bytes should, as bytes."""
    return found if isinstance(found, bytes) else str(found).encode()


def is_full(error: sqlite3.Error) -> bool:
    """Whether there is no room; then nothing of the transaction was written, and it may be tried again."""
    return _code(error) == sqlite3.SQLITE_FULL


def _has_no_room(path: Path) -> bool:
    """Whether a file system has not even room for the index of a log, without which SQLite reads nothing."""
    try:
        return shutil.disk_usage(path.parent).free < ROOM_BYTES
    except OSError:
        return False


_OF_ACCESS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
