"""What a transaction changes, in as few statements as there can be.

Python's sqlite3 lets go of the interpreter's lock for every row that it hands to SQLite, and takes it again: beside a
busy thread that can cost milliseconds each time. So rows are written many to a statement. The numbers of rows are
powers of two, so that a few prepared statements serve all transactions.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator, Sequence

from meetpoint.broker.storage.layout import Row, row_of
from meetpoint.node.runtime.records import Record

__all__ = ["STATEMENTS", "Changes", "commit"]

ROWS_MAX = 128
STATEMENTS = 2 * ROWS_MAX.bit_length() + 8
"""How many different statements there are, and some more."""


class Changes:
    """What some tickets come to, of which the last word on a name counts."""

    def __init__(self) -> None:
        self._last: dict[tuple[bytes, str], Record | None] = {}
        self.size = 0
        """About how many bytes are written."""

    def __len__(self) -> int:
        return len(self._last)

    def add(self, records: Sequence[Record], erased: Sequence[tuple[bytes, str]]) -> None:
        """A ticket, after those before it: its records, then what it erases."""
        last = self._last
        for record in records:
            last[record.home, record.name] = record
            self.size += record.size
        for at in erased:
            last[at] = None

    def prepare(self) -> list[tuple[str, list[object]]]:
        """The statements and what goes into them."""
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
    """One transaction, on disk when this returns; where it raises, nothing of it is."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
