"""Rejects: a whole file is refused with a `SourceError`, one row of it with a `Reject` that says where and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError

__all__ = ["RAW_MAX", "REASON_MAX", "STANDARD_STREAM", "Reject", "Rejected", "SourceError", "open_source", "reject"]

RAW_MAX = 65_536
"""Characters of a rejected row that are kept."""
REASON_MAX = 500
"""Characters of the reason that are kept: a name or a value in it may be of any length."""
STANDARD_STREAM = "-"

_GZIP = b"\x1f\x8b"


class SourceError(MeetpointError):
    """A file that cannot be read or written at all."""


class Reject(msgspec.Struct, frozen=True):
    """A rejected row: its input, its number, the reason, and its raw text."""

    input: str
    row: int
    reason: str
    raw: str


Rejected: TypeAlias = Callable[[Reject], None]


def reject(what: str, row: int, reason: str, raw: object) -> Reject:
    """Return a Reject with a reason and a raw text of bounded length; the reason is on one line."""
    line = " ".join(reason.splitlines())
    cut = line if len(line) <= REASON_MAX else line[: REASON_MAX - 1] + "…"
    return Reject(what, row, _writable(cut), _writable(str(raw)[:RAW_MAX]))


def _writable(text: str) -> str:
    """Return the text without lone surrogates, which no file of ours can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def open_source(path: str) -> IO[bytes]:
    """Return a file, or standard input, to read bytes from; SourceError says what is wrong with the path."""
    if path == STANDARD_STREAM:
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SourceError(f"{path}: {said.lower()}; check the path") from None


def refuse_packed(path: str, head: bytes) -> None:
    """Refuse a gzip file with the name of its contents; else all of its lines would be rejected one by one."""
    if head.startswith(_GZIP):
        raise SourceError(f"{path}: is a gzip file; unpack it: gunzip, or gzip -dc FILE | meetpoint … -")
