"""The tables of a store, how they came to be, and what a record in them is worth.

| table | what it holds |
| --- | --- |
| `records` | all records, clustered by home and name: one copy of each, so that no index can disagree with it |
| `damaged` | what was found with a wrong checksum, as it was found |
| `meta` | whose store this is |

Every record has a CRC-32 over all of it. One that does not fit is *missing*, as if it had never come: it is set aside
and reported, and never passed on.

`MIGRATIONS[n]` takes a file of version n to n + 1, all in one transaction; version 0 is an empty file. A step is never
changed once a release has it: add another.
"""

from __future__ import annotations

import functools
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias
from zlib import crc32

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.records import Record

__all__ = [
    "APPLICATION",
    "MIGRATIONS",
    "Migration",
    "Row",
    "checksum",
    "migrate",
    "read_records",
    "read_row",
    "row_of",
    "schema_of",
    "schema_wanted",
    "set_aside",
]

APPLICATION = int.from_bytes(b"MeeP")
"""SQLite's `application_id`: says that a database is a store of ours."""

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
    """Bring a file to the newest version, all steps or none; from which version it came."""
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
    """The tables as the file describes them."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return sorted((_plain(name), _plain(sql)) for name, sql in found)


def schema_wanted(migrations: Sequence[Migration] = MIGRATIONS) -> list[tuple[str, str]]:
    """The tables as they are in a new file."""
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
    """A description without what SQLite changes in it by itself: a renamed table comes back in quotes."""
    return text.decode(errors="replace").replace('"', "") if isinstance(text, bytes) else ""


def checksum(home: bytes, name: bytes, version: int, value: bytes | None) -> int:
    """CRC-32 over all that a record is; the lengths keep what is next to each other apart."""
    return crc32(value or b"", crc32(_HEAD.pack(len(home), len(name), version, value is None) + home + name))


def row_of(record: Record) -> Row:
    """A record as a row of `records`."""
    home, name, version, value = record.home, record.name, record.version, record.value
    return home, name, version, value, checksum(home, name.encode(), version, value)


def read_row(home: Any, name: Any, version: Any, value: Any, crc: Any) -> Record | None:
    """A row, its name as bytes, as a record; None where it is damaged: even the types may be."""
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
    """All rows of `records` in their order, as `read_row` wants them, whatever they hold: text comes as bytes."""
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
