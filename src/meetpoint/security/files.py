"""Files that hold keys and signed data: never overwritten silently, private where they must be.

A key is on disk before anything that names it is handed out. A file that is replaced is complete at every moment: a
reader sees the old or the new one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from meetpoint.errors import MeetpointError

if sys.platform != "win32":
    import fcntl

__all__ = ["PRIVATE", "PUBLIC", "FileError", "append_line", "locked", "make_folder", "read", "replace", "write_new"]

PRIVATE = 0o600
PUBLIC = 0o644
READ_MAX = 16 << 20
"""The largest file that is read, in bytes; no key, list or certificate is longer."""


class FileError(MeetpointError):
    """A file of keys or certificates could not be read or written."""


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner may look into, unless it exists."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror}; name a folder you may write to") from None


def read(path: Path, what: str) -> bytes:
    """Read a whole file; raise FileError where it cannot be read or is too long."""
    try:
        with path.open("rb") as file:
            held = file.read(READ_MAX + 1)
    except OSError as error:
        raise FileError(f"{path}: {what}: {error.strerror}; give the path of a file that can be read") from None
    if len(held) > READ_MAX:
        raise FileError(f"{path}: {what}: it is longer than {READ_MAX >> 20} MiB; give the path of another file")
    return held


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file and sync it; raise FileError where it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise FileError(f"{path}: is there already and was left as it is; name another, or move it away") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}; name a place you may write to") from None
    _fill(descriptor, path, content, mode)
    _sync_folder(path.parent)


def replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically."""
    # In the same folder: only within one file system is a rename atomic.
    beside = path.with_name(f".{path.name}.new")
    with suppress(OSError):
        beside.unlink()  # of a run that was interrupted
    write_new(beside, content, mode)
    try:
        beside.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be replaced: {error.strerror}; name a place you may write to") from None
    _sync_folder(path.parent)


def append_line(path: Path, line: str, mode: int) -> None:
    """Append a line to a file and sync it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}; name a place you may write to") from None
    _fill(descriptor, path, line.encode() + b"\n", mode)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, so that concurrent changes by other processes are not lost."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror}; name the folder that was made before") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fill(descriptor: int, path: Path, content: bytes, mode: int) -> None:
    try:
        with os.fdopen(descriptor, "wb") as file:
            if sys.platform != "win32" and mode != PRIVATE:
                os.fchmod(descriptor, mode)  # what is public may be read whatever the umask
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}; make room, then do it again") from None


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
