"""Where the files of an archive lie, and what their names say.

    FOLDER/_meetpoint.json                                  whose archive it is
    FOLDER/_writing/…                                       files that are not whole yet
    FOLDER/hour=2026-11-16-09/HOME-STREAM-FIRST-LAST.parquet
    FOLDER/hour=2026-11-16-09/_merged.json                  which files are in another one by now (`merging`)

A part has events of one home, one stream and one hour of acceptance (UTC, by the clock of the broker that wrote it). It
is renamed into its place when it is whole and on disk, and never changed: a reader sees all of it or nothing. Several
brokers may write to one folder, since a home is at one broker at a time and its parts bear its name. What begins with
an underscore is passed over by Spark and by every other reader of Parquet folders.
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
    "Merge",
    "Part",
    "check_archive",
    "hour_name",
    "hours",
    "is_archive",
    "list_parts",
    "merges_of",
    "opened",
    "overlapping",
    "part_name",
    "parts_within",
]

NOTE = "_meetpoint.json"
WRITING = "_writing"
MERGED = "_merged.json"
_HOUR = re.compile(r"hour=(\d{4}-\d{2}-\d{2}-\d{2})")
_PART = re.compile(r"((?:[0-9a-f]{2})+)-(\d+)-(\d+)-(\d+)(-merged)?\.parquet")
HOUR_FORM = "%Y-%m-%d-%H"


class ArchiveError(MeetpointError):
    """An archive cannot be read or written; says which folder or file, and what to do."""


@contextmanager
def opened(path: Path, columns: Sequence[str]) -> Iterator[pq.ParquetFile]:
    """A part's file, of which some columns are read; ArchiveError where it is damaged, or is none of an archive's."""
    try:
        with pq.ParquetFile(path) as file:
            if lacking := [name for name in columns if name not in file.schema_arrow.names]:
                raise ArchiveError(f"{path}: has no column {lacking[0]}, so it is no file of an archive; move it away")
            yield file
    except FileNotFoundError:
        raise  # it was merged into another one, or is too old by now
    except (pa.ArrowException, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArchiveError(f"{path}: cannot be read: {said}; put back a copy of it, or move it away") from None


class Part(NamedTuple):
    """One file of an archive: some events of a stream, from its first number to its last."""

    hour: str
    home: HomeId
    stream: int
    first: int
    last: int
    path: Path


def is_archive(path: str | Path) -> bool:
    """Whether brokers archive to a folder."""
    return (Path(path) / NOTE).is_file()


def check_archive(path: str | Path) -> None:
    """ArchiveError where a folder is none that brokers archive to."""
    if not is_archive(path):
        raise ArchiveError(f"{path}: is no archive; give the folder that brokers archive to")


class Merge(msgspec.Struct, frozen=True, array_like=True):
    """A file, and those that it was made of: as soon as it is there they do not count any more."""

    into: str
    of: tuple[str, ...]


def hour_name(at_us: int) -> str:
    """The hour of a moment (microseconds since 1970), as it stands in the name of a folder."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime(HOUR_FORM)


def part_name(home: HomeId, stream: int, first: int, last: int, *, merged: bool = False) -> str:
    """The name of a part's file."""
    return f"{home.hex()}-{stream}-{first}-{last}{'-merged' if merged else ''}.parquet"


def list_parts(folder: Path, since_us: int | None = None, until_us: int | None = None) -> Iterator[Part]:
    """The parts of the hours that touch a span of time, the oldest hour first; all where none is given."""
    first = "" if since_us is None else hour_name(since_us)
    last = None if until_us is None else hour_name(until_us)
    for within in hours(folder):
        hour = within.name.removeprefix("hour=")
        if hour >= first and (last is None or hour <= last):
            yield from parts_within(within)


def hours(folder: Path) -> list[Path]:
    """The folders of hours, the oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if _HOUR.fullmatch(path.name) and path.is_dir())
    except OSError as error:
        raise ArchiveError(f"{folder}: {error.strerror}; give the folder that brokers archive to") from None


def parts_within(hour: Path) -> list[Part]:
    """The parts of an hour, without those that were merged into others."""
    try:
        names = {path.name for path in hour.iterdir()}  # before the list is read, which is there first
    except FileNotFoundError:
        return []  # it has become too old meanwhile
    names.difference_update(*(merge.of for merge in merges_of(hour) if merge.into in names))
    found = []
    for name in names:
        if said := _PART.fullmatch(name):
            home, stream, first, last, _ = said.groups()
            at = hour.name.removeprefix("hour=")
            found.append(Part(at, HomeId(bytes.fromhex(home)), int(stream), int(first), int(last), hour / name))
    return sorted(found)


def overlapping(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Parts of one stream that begin ever later, in groups: what overlaps in numbers is in one."""
    together: list[Part] = []
    for part in parts:
        if together and part.first > max(each.last for each in together):
            yield together
            together = []
        together.append(part)
    if together:
        yield together


def merges_of(hour: Path) -> tuple[Merge, ...]:
    """What was merged in an hour, or was about to be."""
    try:
        held = (hour / MERGED).read_bytes()
    except FileNotFoundError:
        return ()
    try:
        return msgspec.json.decode(held, type=tuple[Merge, ...])
    except msgspec.DecodeError:
        raise ArchiveError(f"{hour / MERGED}: cannot be read; put back a copy of it") from None
