"""The database file of a store: opening it, finding damage, and recovering its records.

A file is made under another name and renamed when it is complete, so that an empty one is never taken for a new store.
A file that is no store is refused, with what to do. Damage to the structure of a file is refused too, since nobody can
say what is missing: other brokers have copies, and there are backups. Damage to single records is told from it, and
those are set aside (`layout`).

SQLite takes damage in the middle of its write-ahead log for the log's end. Each frame has a checksum that continues the
one before, and SQLite reads up to the first frame that does not fit: after a crash that is the write nobody was told
of. But a transaction is written only after the one before it was synced. So a frame that does not fit, and after it the
end of a transaction *and* the begin of another, both of the same run of the log (its salts say so), are no torn write:
what was told persisted is damaged. Only the very last transaction of a log cannot be told from a torn one. The format
is https://www.sqlite.org/fileformat2.html, section 4.

A node takes a home for complete when it finds its own note that the home served here (`hosted/…`), and otherwise asks
all others for their copies and merges them with what it has. So where a record is damaged, the note of its home is
removed, for good, in one transaction; the node writes it again when the home is complete. Where the damaged record is a
node's own note, or its home is not known here, so that the damage may be in the name of the home, nobody can say what
is missing: all such notes are removed, and the node starts as one that has lost its disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage.folder import DATABASE, StoreError, sync_folder
from meetpoint.broker.storage.layout import (
    APPLICATION,
    MIGRATIONS,
    STATEMENTS,
    Migration,
    migrate,
    read_records,
    read_row,
    schema_of,
    schema_wanted,
    set_aside,
)
from meetpoint.node.cluster.home_manager import HOSTED
from meetpoint.node.node import INCARNATION
from meetpoint.node.runtime.records import LOCAL, Record

__all__ = [
    "BUSY_S", "WAYS_OUT", "Recovered", "check_header", "connect", "damage_in_log", "drop_completeness_notes",
    "explained", "is_completeness_note", "is_full", "open_file", "open_memory", "read_only", "recover",
    "refuse_damage", "refuse_foreign_file", "standby_connection", "structural_damage",
]  # fmt: skip

BUSY_S = 30
"""Time to wait for another process that has the file locked, such as someone's SQLite shell."""

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_LOG_MAGIC = 0x377F0682
_SHM_HEAD = 20


def damage_in_log(database: Path) -> str | None:
    """Return what is wrong with the log beside a database that nobody has open, or None.

    It opens the database to learn how far SQLite reads, without changing either file.
    """
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size < _HEADER.size:
        return None
    valid = _frames_valid(database)
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, _, page, _, salt_1, salt_2, *sums = _HEADER.unpack(head)
        if magic | 1 != _LOG_MAGIC | 1 or page < 512 or list(_header_sums(head, magic)) != sums:
            return "the head of its log" if any(file.read(1 << 16)) else None
        commit_page = 0
        index = valid
        while True:
            file.seek(_HEADER.size + index * (_FRAME.size + page))
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                return None
            number, size_after, *salts, _, _ = _FRAME.unpack(frame)
            if salts == [salt_1, salt_2]:
                if commit_page and number != commit_page:
                    return f"frame {valid + 1} of its log"
                commit_page = number if size_after else commit_page
            index += 1


def _header_sums(head: bytes, magic: int) -> tuple[int, int]:
    """Return SQLite's checksum over the header, in the byte order that the header names."""
    words = struct.unpack(">6I" if magic & 1 else "<6I", head[:24])
    first = second = 0
    for low, high in zip(words[::2], words[1::2], strict=True):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second


def _frames_valid(database: Path) -> int:
    """Return how many frames SQLite accepts: `mxFrame` in the log's index, which SQLite makes when it first reads."""
    with contextlib.closing(read_only(database)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        with database.with_name(database.name + "-shm").open("rb") as file:
            head = file.read(_SHM_HEAD)
    return int(struct.unpack_from("=I", head, 16)[0])


def read_only(database: Path) -> sqlite3.Connection:
    """Return a connection that changes neither the file nor its log, not even when it is closed."""
    address = f"{database.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes
    return connection


def standby_connection(database: Path) -> sqlite3.Connection:
    """Return an idle connection, so that another one is not the last.

    Closing the last connection checkpoints the log into the database and syncs both; Python can turn that off from 3.12
    on only. After a failed sync that must not happen: the next one may say "done" of what was never written.
    """
    connection = read_only(database)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from its first look on it counts
    return connection


class Recovered(msgspec.Struct, frozen=True):
    """The sound records, by home and name; and the names that were found damaged, as far as legible.

    Damaged records were set aside, and are reported this once; a node that starts with these records looks elsewhere
    for them.
    """

    records: tuple[Record, ...] = ()
    damaged: tuple[tuple[HomeId, str], ...] = ()


def is_completeness_note(record: Record) -> bool:
    """Return whether a record is a node's note that what it has on disk is all there was."""
    return record.home == LOCAL and (record.name == INCARNATION or record.name.startswith(HOSTED))


def drop_completeness_notes(records: Sequence[Record], damaged: Iterable[HomeId]) -> list[Record]:
    """Return the records without the notes that a home is complete, for homes with a damaged record."""
    hit = set(damaged)
    if LOCAL in hit or not hit <= {record.home for record in records}:
        return [record for record in records if not is_completeness_note(record)]
    notes = {HOSTED + home.hex() for home in hit}
    return [record for record in records if record.home != LOCAL or record.name not in notes]


_MAGIC = b"SQLite format 3\0"

ROOM_BYTES = 64 << 10
"""Free bytes below which a file system is full."""
WAYS_OUT = (
    "restore a backup into another folder (`meetpoint store restore`), "
    "or move this folder away and start without it, and the other brokers' copies come back"
)


def connect(path: Path | str, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection that syncs before a commit returns, and reads text as bytes, as it may be damaged.

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
    """Return a store in memory."""
    connection = connect(":memory:")
    migrate(connection, migrations)
    return connection


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, while a file is opened, into StoreErrors that say what to do."""
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
    """Open the file of a store, made where there is none, in the newest version. The caller has the lock."""
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
    """Make a new file, complete before it has its name."""
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
    """Refuse a file that is no database by its header; SQLite would take an empty file for a new one."""
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
    """Return the version of a store; refuse a database that is none, or too new."""
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
    """Return the error for a file that cannot be trusted."""
    return StoreError(f"store {path}: is damaged: {problem}; {WAYS_OUT}")


def structural_damage(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong with the structure of a file, or None; its rows have checksums of their own."""
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
    """Return the sound records, and set aside the damaged ones."""
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
    """Return a damaged value as bytes."""
    return found if isinstance(found, bytes) else str(found).encode()


def is_full(error: sqlite3.Error) -> bool:
    """Return whether there is no room; then nothing of the transaction was written, and it may be retried."""
    return _code(error) == sqlite3.SQLITE_FULL


def _has_no_room(path: Path) -> bool:
    """Return whether a file system has no room even for a log's index, without which SQLite reads nothing."""
    try:
        return shutil.disk_usage(path.parent).free < ROOM_BYTES
    except OSError:
        return False


_OF_ACCESS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code; 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
