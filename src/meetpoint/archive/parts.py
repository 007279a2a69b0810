"""The layout of an archive folder, and the meaning of its file names.

    FOLDER/_meetpoint.json                                  the network that the archive belongs to
    FOLDER/_writing/…                                       files that are not complete yet
    FOLDER/hour=2026-11-16-09/HOME-STREAM-FIRST-LAST.parquet
    FOLDER/hour=2026-11-16-09/_merged.json                  the files that another file replaces (`compaction`)

A part has events of one home, one stream and one hour of acceptance (UTC, by the clock of the broker that wrote it). It
is renamed into its place when it is complete and on disk, and it never changes: a reader sees all of it or nothing.
Several brokers may write to one folder, because a home is at one broker at a time and its parts bear its name. Spark,
and every other reader of Parquet folders, passes over names that begin with an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.api.ids import HomeId
from meetpoint.errors import MeetpointError

__all__ = [
    "HOUR_FORM",
    "MERGED",
    "NOTE",
    "WRITING",
    "ArchiveError",
    "ArchivePart",
    "Merge",
    "check_archive",
    "hour_folders",
    "hour_name",
    "is_archive",
    "list_parts",
    "merges_of_hour",
    "open_part",
    "overlapping",
    "part_name",
    "parts_of_hour",
]

NOTE = "_meetpoint.json"
WRITING = "_writing"
MERGED = "_merged.json"
_HOUR = re.compile(r"hour=(\d{4}-\d{2}-\d{2}-\d{2})")
_PART = re.compile(r"((?:[0-9a-f]{2})+)-(\d+)-(\d+)-(\d+)(-merged)?\.parquet")
HOUR_FORM = "%Y-%m-%d-%H"


class ArchiveError(MeetpointError):
    """An archive cannot be read or written; the message names the folder or file, and what to do."""


@contextmanager
def open_part(path: Path, columns: Sequence[str]) -> Iterator[pq.ParquetFile]:
    """Open a part's file, of which some columns are read; raise ArchiveError where it is damaged or is no part."""
    try:
        with pq.ParquetFile(path) as file:
            if missing := [name for name in columns if name not in file.schema_arrow.names]:
                raise ArchiveError(f"{path}: has no column {missing[0]}, so it is no file of an archive; move it away")
            yield file
    except FileNotFoundError:
        raise  # a compaction merged or removed it: callers list the parts anew
    except (pa.ArrowException, OSError) as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArchiveError(f"{path}: cannot be read: {problem}; put back a copy of it, or move it away") from None


class ArchivePart(NamedTuple):
    """A file of an archive: events of one stream, from its first number to its last."""

    hour: str
    home: HomeId
    stream: int
    first: int
    last: int
    path: Path


def is_archive(path: str | Path) -> bool:
    """Return whether brokers archive to a folder."""
    return (Path(path) / NOTE).is_file()


def check_archive(path: str | Path) -> None:
    """Raise ArchiveError unless brokers archive to this folder."""
    if not is_archive(path):
        raise ArchiveError(f"{path}: is no archive; give the folder that brokers archive to")


class Merge(msgspec.Struct, frozen=True, array_like=True):
    """A merged file, and the parts that it replaces as soon as it exists."""

    into: str
    of: tuple[str, ...]


def hour_name(at_us: int) -> str:
    """Return the hour of a moment (microseconds since 1970), as it stands in the name of a folder."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime(HOUR_FORM)


def part_name(home: HomeId, stream: int, first: int, last: int, *, merged: bool = False) -> str:
    return f"{home.hex()}-{stream}-{first}-{last}{'-merged' if merged else ''}.parquet"


def list_parts(folder: Path, since_us: int | None = None, until_us: int | None = None) -> Iterator[ArchivePart]:
    """Yield the parts of the hours that touch a span of time, the oldest hour first; all without a span."""
    first = "" if since_us is None else hour_name(since_us)
    last = None if until_us is None else hour_name(until_us)
    for path in hour_folders(folder):
        hour = path.name.removeprefix("hour=")
        if hour >= first and (last is None or hour <= last):
            yield from parts_of_hour(path)


def hour_folders(folder: Path) -> list[Path]:
    """Return the folders of hours, the oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if _HOUR.fullmatch(path.name) and path.is_dir())
    except OSError as error:
        raise ArchiveError(f"{folder}: {error.strerror}; give the folder that brokers archive to") from None


def parts_of_hour(hour: Path) -> list[ArchivePart]:
    """Return the parts of an hour, without those that a merged file replaces."""
    try:
        # Before the list of merges: that is written before a merged file appears, so no name here is unknown to it.
        names = {path.name for path in hour.iterdir()}
    except FileNotFoundError:
        return []  # the hour expired meanwhile
    names.difference_update(*(merge.of for merge in merges_of_hour(hour) if merge.into in names))
    found = []
    for name in names:
        if match := _PART.fullmatch(name):
            home, stream, first, last, _ = match.groups()
            at = hour.name.removeprefix("hour=")
            found.append(ArchivePart(at, HomeId(bytes.fromhex(home)), int(stream), int(first), int(last), hour / name))
    return sorted(found)


def overlapping(parts: Iterable[ArchivePart]) -> Iterator[list[ArchivePart]]:
    """Yield parts of one stream in groups whose numbers overlap; the input is sorted by first number."""
    group: list[ArchivePart] = []
    for part in parts:
        if group and part.first > max(each.last for each in group):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def merges_of_hour(hour: Path) -> tuple[Merge, ...]:
    """Return the merges of an hour, finished or about to be."""
    try:
        content = (hour / MERGED).read_bytes()
    except FileNotFoundError:
        return ()
    try:
        return msgspec.json.decode(content, type=tuple[Merge, ...])
    except msgspec.DecodeError:
        raise ArchiveError(f"{hour / MERGED}: cannot be read; put back a copy of it") from None
