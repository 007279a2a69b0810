"""Compaction: the many small files of an hour become few, and expired hours are removed.

An hour is merged when it is over and `GRACE_S` more have passed: no broker writes to it then. Parts of one stream with
the same columns become one file. The steps are ordered so that a crash at any point loses nothing:

1. The list of merges is written (`_merged.json`).
2. Each merged file is renamed into its place. From that moment readers take it instead of its parts
   (`parts.parts_of_hour`); before it they take the parts.
3. A run at least `GRACE_S` later removes the parts, so that no reader loses a file that it has just found.

A run that is cut short leaves the old files; the next one begins anew and removes leftovers. Of two concurrent runs one
waits for the other, hour by hour.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.api.ids import HomeId
from meetpoint.archive.parts import (
    HOUR_FORM,
    MERGED,
    WRITING,
    ArchiveError,
    ArchivePart,
    Merge,
    hour_folders,
    merges_of_hour,
    open_part,
    overlapping,
    part_name,
    parts_of_hour,
)
from meetpoint.archive.writer import COLUMNS, sync_path, write_synced

__all__ = ["CompactedHour", "closed_hours", "expired_hours", "merge_hour", "remove_hour", "sweep_removed"]

GRACE_S: Final = 600.0
"""The delay from the end of an hour to its merge, and from that to the deletion of its parts."""
ROW_GROUP: Final = 8_192
"""The rows that a reader gets at once. A reader that wants a few numbers reads few of these groups."""
HOUR_S: Final = 3600.0
_GONE: Final = "gone."


class CompactedHour(NamedTuple):
    hour: str
    files_before: int
    files_after: int
    rows: int
    removed: int


def _begins(hour: Path) -> float:
    name = hour.name.removeprefix("hour=")
    return datetime.strptime(name, HOUR_FORM).replace(tzinfo=UTC).timestamp()


def closed_hours(folder: Path, now: float) -> list[Path]:
    """Return the hours to which no broker writes any more."""
    return [hour for hour in hour_folders(folder) if _begins(hour) + HOUR_S + GRACE_S <= now]


def expired_hours(folder: Path, keep_s: float, now: float) -> list[Path]:
    """Return the hours that ended more than `keep_s` ago."""
    return [hour for hour in closed_hours(folder, now) if _begins(hour) + HOUR_S + keep_s <= now]


def remove_hour(hour: Path) -> None:
    """Remove an hour, at once for readers; `sweep_removed` frees the disk."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(hour, _writing_path(hour, f"{_GONE}{hour.name}.{secrets.token_hex(4)}"))


def sweep_removed(folder: Path) -> None:
    """Delete the files of removed hours, also of a run that was cut short."""
    for left in (folder / WRITING).glob(f"{_GONE}*"):
        shutil.rmtree(left, ignore_errors=True)


def merge_hour(hour: Path, now: float | None = None) -> CompactedHour:
    """Merge the files of an hour that is over, and delete parts that were merged at least `GRACE_S` ago."""
    with _alone(hour):
        for left in _writing_path(hour, "").glob(f"merging.{hour.name}.*"):
            left.unlink(missing_ok=True)
        removed = _sweep(hour, time.time() if now is None else now)
        parts = parts_of_hour(hour)
        merges = _planned(parts)
        if merges:
            merged = {merge.into for merge, _ in merges}
            before = [merge for merge in merges_of_hour(hour) if merge.into not in merged]
            _write_list(hour, [*before, *(merge for merge, _ in merges)])
        rows = sum([_merge(hour, merge, group) for merge, group in merges])
        return CompactedHour(hour.name.removeprefix("hour="), len(parts), len(parts_of_hour(hour)), rows, removed)


@contextlib.contextmanager
def _alone(hour: Path) -> Iterator[None]:
    """Hold the lock of an hour. Two runs at a time would overwrite each other's list of merges."""
    handle = os.open(hour, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks for folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _planned(parts: Sequence[ArchivePart]) -> list[tuple[Merge, list[ArchivePart]]]:
    """Return the merges to make, each with its parts in order."""
    groups: dict[tuple[HomeId, int, pa.Schema], list[ArchivePart]] = defaultdict(list)
    for part in parts:
        with open_part(part.path, COLUMNS.names) as file:
            groups[part.home, part.stream, file.schema_arrow.remove_metadata()].append(part)
    planned = []
    for (home, stream, _), group in groups.items():
        first, last = min(part.first for part in group), max(part.last for part in group)
        merge = Merge(part_name(home, stream, first, last, merged=True), tuple(part.path.name for part in group))
        if len(group) > 1 and merge.into not in merge.of:  # else the merged file would replace one of its own parts
            planned.append((merge, sorted(group, key=lambda part: (part.first, part.last))))
    return planned


def _merge(hour: Path, merge: Merge, group: Sequence[ArchivePart]) -> int:
    """Write a merged file row group by row group, and return its number of rows."""
    partial = _writing_path(hour, f"merging.{hour.name}.{secrets.token_hex(4)}")
    rows = 0
    tables = _in_order(hour, group)
    first = next(tables)
    with partial.open("wb") as file:
        with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write_table(table, row_group_size=ROW_GROUP)
                rows += table.num_rows
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, hour / merge.into)
    sync_path(hour)
    return rows


def _in_order(hour: Path, group: Sequence[ArchivePart]) -> Iterator[pa.Table]:
    """Yield the rows of parts by number, in tables of about a row group: an hour may be larger than the memory."""
    waiting: list[pa.Table] = []
    for overlap in overlapping(group):
        tables = []
        for part in overlap:
            with open_part(part.path, COLUMNS.names) as file:
                tables.append(file.read())
        table = pa.concat_tables(tables).sort_by("number")
        numbers = table["number"].to_pylist()
        if len(set(numbers)) != len(numbers):  # merging them would give readers an event twice
            names = ", ".join(part.path.name for part in overlap[:3])
            raise ArchiveError(f"{hour}: {names}… hold some events twice; please report this")
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= ROW_GROUP:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _writing_path(hour: Path, name: str) -> Path:
    """Return a path for an incomplete or removed file; create its folder, which copies of an archive may lack."""
    folder = hour.parent / WRITING
    folder.mkdir(exist_ok=True)
    return folder / name


def _write_list(hour: Path, merges: Sequence[Merge]) -> None:
    partial = _writing_path(hour, f"merging.{hour.name}.{secrets.token_hex(4)}")
    write_synced(partial, msgspec.json.encode(merges))
    os.replace(partial, hour / MERGED)
    sync_path(hour)


def _sweep(hour: Path, now: float) -> int:
    """Delete parts that were merged long enough ago for every reader to have finished with them."""
    removed = 0
    left = []
    for merge in merges_of_hour(hour):
        into = hour / merge.into
        if not into.exists():
            continue  # a run was cut short before this file was complete
        left.append(merge)
        if now - into.stat().st_mtime >= GRACE_S:
            for name in merge.of:
                path = hour / name
                if path.exists():
                    path.unlink()
                    removed += 1
    if left != list(merges_of_hour(hour)):
        _write_list(hour, left)
    return removed
