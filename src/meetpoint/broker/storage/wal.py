"""Damage in the middle of SQLite's write-ahead log, which SQLite takes for its end.

Each frame of the log has a checksum that goes on from the one before, and SQLite reads up to the first frame that does
not fit: after a crash that is the write nobody was told of. But a transaction is written only after the one before it
was synced. So a frame that does not fit, and after it the end of a transaction *and* the begin of another, both of the
same run of the log (its salts say so), are no torn write: what was told persisted is damaged. Only the very last
transaction of a log cannot be told from a torn one.

The format is https://www.sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path

__all__ = ["BUSY_S", "damage_in_log", "read_only", "stand_by"]

BUSY_S = 30
"""How long to wait for another process that has the file locked, such as someone's SQLite shell."""

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
_SHM_HEAD = 20


def damage_in_log(database: Path) -> str | None:
    """What is wrong with the log beside a database that nobody has open; None where all is well, or there is none.

    It opens the database to learn how far SQLite reads, without changing either file.
    """
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size < _HEADER.size:
        return None
    valid = _frames_valid(database)
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, _, page, _, salt_1, salt_2, *sums = _HEADER.unpack(head)
        if magic | 1 != _MAGIC | 1 or page < 512 or list(_header_sums(head, magic)) != sums:
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
    """SQLite's checksum over the header, in the order of bytes that it names."""
    words = struct.unpack(">6I" if magic & 1 else "<6I", head[:24])
    first = second = 0
    for low, high in zip(words[::2], words[1::2], strict=True):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second


def _frames_valid(database: Path) -> int:
    """How many frames SQLite accepts: `mxFrame` in the index of the log, which it makes when it first reads."""
    with contextlib.closing(read_only(database)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        with database.with_name(database.name + "-shm").open("rb") as file:
            head = file.read(_SHM_HEAD)
    return int(struct.unpack_from("=I", head, 16)[0])


def read_only(database: Path) -> sqlite3.Connection:
    """A connection that changes neither the file nor its log, not even when it is closed."""
    address = f"{database.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes
    return connection


def stand_by(database: Path) -> sqlite3.Connection:
    """A connection that does nothing but be there, so that another one is not the last.

    Whoever closes a database last brings its log into it and syncs both; Python can turn that off from 3.12 on only.
    After a sync that failed it must not be: the next one may say "done" of what was never written.
    """
    connection = read_only(database)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from its first look on it counts
    return connection
