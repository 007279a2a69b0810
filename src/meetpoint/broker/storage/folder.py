"""The folder of a store: its files, how they are put there durably, and the lock of the process that uses it.

store.db        the records (SQLite), with store.db-wal and store.db-shm beside it
journal/        what became of events; no promise depends on it
lock            held while a process has the store open; names the process
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from meetpoint.errors import MeetpointError, one_line

__all__ = ["DATABASE", "JOURNAL", "LOCK", "Lock", "StoreError", "is_in_use", "make_folder", "sync_folder"]


class StoreError(MeetpointError):
    """A store cannot be used as asked; the message says what is wrong with which file, and what to do."""

    def __init__(self, said: str) -> None:
        super().__init__(one_line(said))  # SQLite may quote what is damaged


if sys.platform != "win32":
    import fcntl


DATABASE = "store.db"
JOURNAL = "journal"
LOCK = "lock"
LOCK_WAIT_S = 0.5
"""Time to wait for a process that is just ending, or only checks whether the store is in use."""


def make_folder(folder: Path) -> None:
    """Make a folder where it is missing, and sync its name."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
    except OSError as error:
        raise StoreError(f"store {folder}: cannot be made: {error.strerror}; name a folder you may write to") from None


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder, after a file was made, renamed or removed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """The lock of a store: one process, and once in that process. The kernel releases it when the process dies."""

    def __init__(self, folder: Path) -> None:
        if sys.platform == "win32":
            raise StoreError(f"store {folder}: a store on disk needs Linux or macOS; keep it in memory here")
        try:
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"store {folder}: {LOCK}: {error.strerror}; name a folder you may write to") from None
        until = time.monotonic() + LOCK_WAIT_S
        while not _lock(self._descriptor, fcntl.LOCK_EX):
            if time.monotonic() > until:
                holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                raise StoreError(
                    f"store {folder}: is in use by process {holder or 'unknown'}; stop that one, or use another folder"
                )
            time.sleep(LOCK_WAIT_S / 20)
        with contextlib.suppress(OSError):  # a full disk keeps nobody from having the lock; the store says so itself
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the store. The file stays: removing it would let two processes lock two files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_in_use(folder: Path) -> bool:
    """Return whether some process has the store open now."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
