"""The layout of a store: its tables and their migrations, its identity, and the statements of a transaction.

| table | what it holds |
| --- | --- |
| `records` | all records, clustered by home and name: one copy of each, so that no index can disagree with it |
| `damaged` | what was found with a wrong checksum, as it was found |
| `meta` | whose store this is |

Every record has a CRC-32 over all of it. One that does not fit is *missing*, as if it had never come: it is set aside
and reported, and never passed on.

`MIGRATIONS[n]` takes a file of version n to n + 1, all in one transaction; version 0 is an empty file. A step is never
changed once a release has it: add another.

A store says which broker and network it belongs to, as a broker that started with another's data would speak with two
voices. It says by which scheme it was kept, too: what one scheme places at a key, another one does not find, or takes
for its own.

A transaction is as few statements as possible. Python's sqlite3 lets go of the interpreter's lock for every row that it
hands to SQLite, and takes it again: beside a busy thread that can cost milliseconds each time. So rows are written many
to a statement. The numbers of rows are powers of two, so that a few prepared statements serve all transactions.
"""

from __future__ import annotations

import functools
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage.folder import StoreError
from meetpoint.node.runtime.records import Record

__all__ = [
    "APPLICATION", "MIGRATIONS", "STATEMENTS", "Changes", "Identity", "Migration", "Row", "checksum", "commit",
    "migrate", "read_identity", "read_records", "read_row", "row_of", "schema_of", "schema_wanted", "set_aside",
    "write_identity",
]  # fmt: skip

APPLICATION = int.from_bytes(b"MeeP")
"""SQLite's `application_id`, by which a database is a store of ours."""

Row: TypeAlias = tuple[bytes, str, int, bytes | None, int]
Migration: TypeAlias = Callable[[sqlite3.Connection], object]

_HEAD = struct.Struct(">IIq?")


def _first_tables(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(_RECORDS.format(name="records"))
    connection.execute(
        "CREATE TABLE damaged (home BLOB, name BLOB, version, value BLOB, crc, found_us INTEGER NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"
    )


_RECORDS = (
    "CREATE TABLE {name} (home BLOB NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value BLOB,"
    " crc INTEGER NOT NULL, PRIMARY KEY (home, name)) WITHOUT ROWID"
)

MIGRATIONS: tuple[Migration, ...] = (_first_tables,)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring a file to the newest version, all steps or none; return the version that it had."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    assert version <= len(migrations), "whoever opens the file has looked"
    if version < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in migrations[version:]:
                step(connection)
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return int(version)


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tables as the file describes them."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return sorted((_plain(name), _plain(sql)) for name, sql in found)


def schema_wanted(migrations: Sequence[Migration] = MIGRATIONS) -> list[tuple[str, str]]:
    """Return the tables of a new file."""
    return list(_schema_wanted(tuple(migrations)))


@functools.cache
def _schema_wanted(migrations: tuple[Migration, ...]) -> tuple[tuple[str, str], ...]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.text_factory = bytes
    try:
        migrate(connection, migrations)
        return tuple(schema_of(connection))
    finally:
        connection.close()


def _plain(text: object) -> str:
    """Return a description without what SQLite changes in it by itself: a renamed table comes back in quotes."""
    return text.decode(errors="replace").replace('"', "") if isinstance(text, bytes) else ""


def checksum(home: bytes, name: bytes, version: int, value: bytes | None) -> int:
    """Return a CRC-32 over all of a record; the lengths keep adjacent fields apart."""
    return crc32(value or b"", crc32(_HEAD.pack(len(home), len(name), version, value is None) + home + name))


def row_of(record: Record) -> Row:
    """Return a record as a row of `records`."""
    home, name, version, value = record.home, record.name, record.version, record.value
    return home, name, version, value, checksum(home, name.encode(), version, value)


def read_row(home: Any, name: Any, version: Any, value: Any, crc: Any) -> Record | None:
    """Return a row, its name as bytes, as a record; None where it is damaged: even the types may be."""
    if (
        type(home) is bytes
        and type(name) is bytes
        and type(version) is int
        and (value is None or type(value) is bytes)
        and crc == checksum(home, name, version, value)
    ):
        return Record(HomeId(home), name.decode(), version, value)
    return None


def read_records(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Return all rows of `records` in their order, for `read_row`, whatever they hold: text comes as bytes."""
    assert connection.text_factory is bytes
    return connection.execute("SELECT home, name, version, value, crc FROM records")


def set_aside(connection: sqlite3.Connection, records: Sequence[Record], rows: Sequence[Row], found_us: int) -> None:
    """Keep damaged rows in `damaged`, and only these records in `records`.

    The whole table is written anew, since a row whose key is wrong lies where no search finds it, and misleads others.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany("INSERT INTO damaged VALUES (?, ?, ?, ?, ?, ?)", [(*row, found_us) for row in rows])
        connection.execute(_RECORDS.format(name="sound"))
        connection.executemany("INSERT INTO sound VALUES (?, ?, ?, ?, ?)", map(row_of, records))
        connection.execute("DROP TABLE records")
        connection.execute("ALTER TABLE sound RENAME TO records")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


class Identity(msgspec.Struct, frozen=True):
    """The names of the broker, from which its id follows, of its network, and of the scheme."""

    name: str
    network: str
    scheme: str = ""
    """Name of the scheme; empty in stores of a former version."""


def read_identity(connection: sqlite3.Connection, folder: Path | None) -> Identity | None:
    """Return what was written at the first start; None before it."""
    found: dict[str, str] = {}
    for name, value, crc in connection.execute("SELECT name, value, crc FROM meta"):
        if type(name) is not bytes or type(value) is not bytes or crc != checksum(b"", name, 0, value):
            raise StoreError(f"store {folder}: it is damaged where it says whose it is; restore a backup of it")
        found[name.decode()] = value.decode()
    if "name" not in found or "network" not in found:
        return None
    return Identity(found["name"], found["network"], found.get("scheme", ""))


def write_identity(
    connection: sqlite3.Connection, folder: Path | None, held: Identity | None, asked: Identity
) -> Identity:
    """Write what the store does not say yet; refuse another identity."""
    if held is not None and (held.name, held.network) != (asked.name, asked.network):
        raise StoreError(
            f"store {folder}: belongs to broker {held.name!r} of network {held.network!r}, "
            f"not to {asked.name!r} of {asked.network!r}; start that one with it, or use another folder"
        )
    if held is not None and held.scheme and asked.scheme and held.scheme != asked.scheme:
        raise StoreError(
            f"store {folder}: was kept by the scheme {held.scheme}, not {asked.scheme}; "
            "set scheme as it was, or use another folder"
        )
    said = msgspec.structs.asdict(held) if held is not None else {}
    new = {name: value for name, value in msgspec.structs.asdict(asked).items() if value and not said.get(name)}
    if new:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?, ?)",
            [(name, value, checksum(b"", name.encode(), 0, value.encode())) for name, value in new.items()],
        )
        connection.execute("COMMIT")
    return Identity(**{**said, **new})


ROWS_MAX = 128
STATEMENTS = 2 * ROWS_MAX.bit_length() + 8
"""Number of different statements, with some spare."""


class Changes:
    """The changes of some tickets; of several to one name the last counts."""

    def __init__(self) -> None:
        self._last: dict[tuple[bytes, str], Record | None] = {}
        self.size = 0
        """About how many bytes are written."""

    def __len__(self) -> int:
        return len(self._last)

    def add(self, records: Sequence[Record], erased: Sequence[tuple[bytes, str]]) -> None:
        """Add a ticket, after those before it: its records, then what it erases."""
        last = self._last
        for record in records:
            last[record.home, record.name] = record
            self.size += record.size
        for at in erased:
            last[at] = None

    def prepare(self) -> list[tuple[str, list[object]]]:
        """Return the statements and their values."""
        rows = [row_of(record) for record in self._last.values() if record is not None]
        gone: dict[bytes, list[str]] = {}
        for (home, name), record in self._last.items():
            if record is None:
                gone.setdefault(home, []).append(name)
        return [*_writing(rows), *_erasing(gone)]


def _writing(rows: Sequence[Row]) -> Iterator[tuple[str, list[object]]]:
    at = 0
    while at < len(rows):
        count = min(ROWS_MAX, 1 << ((len(rows) - at).bit_length() - 1))
        yield _write(count), [value for row in rows[at : at + count] for value in row]
        at += count


def _erasing(gone: dict[bytes, list[str]]) -> Iterator[tuple[str, list[object]]]:
    for home, names in gone.items():
        for at in range(0, len(names), ROWS_MAX):
            some = names[at : at + ROWS_MAX]
            count = 1 << (len(some) - 1).bit_length()
            yield _erase(count), [home, *some, *some[-1:] * (count - len(some))]


@functools.cache
def _write(count: int) -> str:
    return "INSERT OR REPLACE INTO records VALUES " + ", ".join(["(?, ?, ?, ?, ?)"] * count)


@functools.cache
def _erase(count: int) -> str:
    return f"DELETE FROM records WHERE home = ? AND name IN ({', '.join('?' * count)})"


def commit(connection: sqlite3.Connection, statements: Sequence[tuple[str, list[object]]]) -> None:
    """Commit one transaction, on disk when this returns; where it raises, nothing of it is."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
