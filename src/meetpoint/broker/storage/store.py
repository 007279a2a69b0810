"""The store of one broker: records are on disk before anyone is told so.

The rules. One thread writes. Whatever was handed in since its last transaction goes into the next (group commit), so
that the number of producers, not of syncs, sets the pace. Tickets are kept in order, each whole or not at all, and told
persisted only after the sync that holds them.

Without room on the disk nothing is told, and the same is tried again each second, since SQLite has then written
nothing. Any other error of writing or syncing ends the store, and the broker with it: after a failed sync nobody knows
what is on disk, and a second one would say "done" without having done it.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey
from meetpoint.broker.storage.database import (
    Recovered,
    explained,
    is_full,
    open_file,
    open_memory,
    recover,
    standby_connection,
)
from meetpoint.broker.storage.folder import DATABASE, JOURNAL, Lock, make_folder
from meetpoint.broker.storage.journal import LINES_MAX, Journal, JournalLine
from meetpoint.broker.storage.layout import Changes, Identity, commit, read_identity, write_identity
from meetpoint.node.runtime.effects import Trace
from meetpoint.node.runtime.records import Record

__all__ = ["LATENCY_BOUNDS_S", "Identity", "Store", "StoreMeasures", "StoreState"]

FULL_RETRY_S = 1.0
BATCH_RECORDS: Final = 20_000
BATCH_BYTES: Final = 16 << 20
"""Limits from which a transaction takes no further ticket."""
CHECKPOINT_RECORDS: Final = 20_000
CHECKPOINT_COMMITS: Final = 2_000
CHECKPOINT_BYTES: Final = 16 << 20
"""Limits from which the log is checkpointed into the file, whatever comes first; it stays at about 16 MB."""

LATENCY_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets in which commits are counted; the last bucket has none."""


class StoreState(msgspec.Struct, frozen=True):
    """Whether the store can write: `full`, and it will again when there is room; `failed`, and it never will."""

    full: bool = False
    failed: str = ""


class StoreMeasures(msgspec.Struct, frozen=True):
    """The measures of the store, since it was opened."""

    queued: int
    """Number of tickets that are not on disk yet."""
    commits: int
    commit_seconds: float
    """Time that all commits took, sync included."""
    commit_seconds_last: float
    commit_buckets: tuple[int, ...]
    """Number of commits by their time, not cumulated: see `LATENCY_BOUNDS_S`."""
    records: int
    """Number of records written or erased; several writes of one name in one transaction count once."""
    bytes: int
    """Bytes of the records that were written."""
    file_bytes: int
    """Bytes on disk now, the log included."""
    journal_dropped: int
    full: bool


class _Ticket(msgspec.Struct, frozen=True, gc=False):
    number: int
    records: tuple[Record, ...]
    erased: tuple[tuple[bytes, str], ...]


class Store:
    """The records and the journal of one broker.

    Open it, take what it `recovered`, and `start` it; then `persist` and `note`, and `close` it in the end.
    """

    def __init__(
        self, connection: sqlite3.Connection, folder: Path | None, lock: Lock | None, journal_lines: int
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._lock = lock
        self.recovered: Recovered = recover(connection)
        self.identity: Identity | None = read_identity(connection, folder)
        self._standby_connection = standby_connection(folder / DATABASE) if folder else None
        self._journal = Journal(folder / JOURNAL if folder else None, journal_lines)
        self._queue: queue.SimpleQueue[_Ticket | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._given = 0
        self._done = 0
        self._last_ticket: int | None = None
        self._held: _Ticket | None = None
        self._changes = Changes()
        self._state = StoreState()
        self._commits = 0
        self._commit_seconds = 0.0
        self._commit_seconds_last = 0.0
        self._buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._records = 0
        self._bytes = 0
        self._since_checkpoint = (0, 0, 0)

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        journal_lines: int = LINES_MAX,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> Store:
        """Open the store in a folder, made where there is none; None is a store in memory.

        StoreError says why not: another process has it, it is no store, a newer program wrote it, or it is damaged.
        """
        if path is None:
            return cls(open_memory(), None, None, journal_lines)
        make_folder(path)
        with contextlib.ExitStack() as undo:
            lock = Lock(path)
            undo.callback(lock.release)
            connection = open_file(path, factory=factory)
            undo.callback(connection.close)
            undo.enter_context(explained(path / DATABASE))
            store = cls(connection, path, lock, journal_lines)
            undo.pop_all()
        return store

    def set_identity(self, name: str, network: str, scheme: str = "") -> None:
        """Set whose store this is: written at the first start, before `start`; later it must be the same."""
        assert self._thread is None, "the writer has the connection"
        asked = Identity(name, network, scheme)
        with explained(self._folder / DATABASE) if self._folder else contextlib.nullcontext():
            self.identity = write_identity(self._connection, self._folder, self.identity, asked)

    def start(self, on_persisted: Callable[[int], None], on_state: Callable[[StoreState], None]) -> None:
        """Begin to write.

        Both callbacks run in the writer's thread and must be quick: `on_persisted` takes a ticket, when it and all
        before it are on disk; `on_state` is called when that changes.
        """
        assert self._thread is None, "a store is started once"
        self._on_persisted = on_persisted
        self._on_state = on_state
        self._thread = threading.Thread(target=self._run, name="meetpoint-store", daemon=True)
        self._thread.start()

    def persist(self, ticket: int, records: tuple[Record, ...], erased: tuple[tuple[bytes, str], ...] = ()) -> None:
        """Queue a ticket for the disk; any thread, and never waits. Tickets ascend.

        After a failure or `close` nothing is written, as after a kill.
        """
        assert self._last_ticket is None or ticket > self._last_ticket, f"ticket {ticket} after {self._last_ticket}"
        self._last_ticket = ticket
        self._given += 1
        self._queue.put(_Ticket(ticket, records, erased))

    def note(self, at_us: int, trace: Trace) -> None:
        """Note what became of an event in the journal; any thread, and never waits."""
        self._journal.note(at_us, trace)

    def journal(self, id: str = "", key: EventKey | None = None) -> list[JournalLine]:  # noqa: A002
        """Return the journal of an event, the oldest first; not for an event loop, as it reads files."""
        return self._journal.read(id, key)

    @property
    def state(self) -> StoreState:
        """Whether the store can write."""
        return self._state

    @property
    def measures(self) -> StoreMeasures:
        """The present measures; any thread."""
        return StoreMeasures(
            queued=self._given - self._done,
            commits=self._commits,
            commit_seconds=self._commit_seconds,
            commit_seconds_last=self._commit_seconds_last,
            commit_buckets=tuple(self._buckets),
            records=self._records,
            bytes=self._bytes,
            file_bytes=self._file_bytes(),
            journal_dropped=self._journal.dropped,
            full=self._state.full,
        )

    def close(self) -> None:
        """Write what was handed in before, and close the files; may be called twice.

        Where the disk is full or has failed, what was not told persisted is lost, as in a crash.
        """
        self._closing.set()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        self._journal.close()
        if self._state.failed:
            self._connection.close()  # before the bystander: the last one would write and sync once more
        if self._standby_connection is not None:
            self._standby_connection.close()
        if not self._state.failed:
            with contextlib.suppress(sqlite3.Error):  # all is in the log; the next start reads it there
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
        if self._lock is not None:
            self._lock.release()

    # -- the writer's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while tickets := self._take_batch():
                if not self._write():
                    return
                self._done += len(tickets)
                self._on_persisted(tickets[-1].number)
                self._checkpoint()
        except Exception as error:
            self._fail(error)

    def _take_batch(self) -> list[_Ticket]:
        """Return all tickets that wait, as far as they fit one transaction; none when the store is closed."""
        following = self._held or self._queue.get()
        self._held = None
        self._changes = changes = Changes()
        tickets: list[_Ticket] = []
        while following is not None:
            if len(changes) >= BATCH_RECORDS or changes.size >= BATCH_BYTES:
                self._held = following
                return tickets
            changes.add(following.records, following.erased)
            tickets.append(following)
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                return tickets
        self._queue.put(None)  # for the next round: the store is closed
        return tickets

    def _write(self) -> bool:
        """Write the changes to disk; return false where that is impossible, and the store is closed."""
        changes = self._changes
        statements = changes.prepare()
        while True:
            begin = time.perf_counter()
            try:
                if statements:
                    commit(self._connection, statements)
            except sqlite3.Error as error:
                if not is_full(error):
                    raise
                self._set_state(StoreState(full=True))
                if self._closing.is_set():
                    return False
                self._closing.wait(FULL_RETRY_S)
                continue
            self._set_state(StoreState())
            self._measure(time.perf_counter() - begin, changes)
            return True

    def _checkpoint(self) -> None:
        """Checkpoint the log into the file when it has grown.

        All is on disk already, so that a full disk does not matter here; any other error does.
        """
        since = self._since_checkpoint
        if since[0] < CHECKPOINT_COMMITS and since[1] < CHECKPOINT_RECORDS and since[2] < CHECKPOINT_BYTES:
            return
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
        self._since_checkpoint = (0, 0, 0)

    def _measure(self, seconds: float, changes: Changes) -> None:
        self._commits += 1
        self._commit_seconds += seconds
        self._commit_seconds_last = seconds
        self._buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self._records += len(changes)
        self._bytes += changes.size
        commits, records, written = self._since_checkpoint
        self._since_checkpoint = commits + 1, records + len(changes), written + changes.size

    def _set_state(self, state: StoreState) -> None:
        if state != self._state:
            self._state = state
            self._on_state(state)

    def _fail(self, error: Exception) -> None:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        where = f"store {self._folder / DATABASE}" if self._folder else "store"
        self._set_state(StoreState(failed=f"{where}: cannot be written: {error} ({name})"))

    def _file_bytes(self) -> int:
        if self._folder is None:
            return 0
        total = 0
        for name in (DATABASE, DATABASE + "-wal"):
            with contextlib.suppress(OSError):
                total += (self._folder / name).stat().st_size
        return total
