"""Many small files of an hour become few, and hours that are old enough go.

An hour is merged when it is over, and a while longer: no broker writes to it then. Parts of one stream and of the same
columns become one. First the list of what is to be merged into which file is written, then each file is put into its
place: from that moment on readers take it for those that it was made of (`parts.parts_within`), and before it they take
those. What was merged is removed by the next run, or by one ten minutes later, so that no reader loses a file that it
has just found. A run that is cut short leaves what was there; the next one begins anew, and sweeps up. Of two runs at a
time one waits for the other, hour by hour.
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
    Merge,
    Part,
    hours,
    merges_of,
    opened,
    overlapping,
    part_name,
    parts_within,
)
from meetpoint.archive.writer import COLUMNS, sync_folder, write_synced

__all__ = ["Merged", "closed_hours", "expired_hours", "forget_hour", "merge_hour", "sweep_forgotten"]

GRACE_S: Final = 600.0
"""How long after its end an hour counts as over, and what was merged away is kept."""
ROW_GROUP: Final = 8_192
"""Rows that a reader gets at once; whoever looks for some numbers reads few of these."""
HOUR_S: Final = 3600.0
_GONE: Final = "gone."


class Merged(NamedTuple):
    """What became of an hour."""

    hour: str
    files_before: int
    files_after: int
    rows: int
    removed: int


def _begins(hour: Path) -> float:
    said = hour.name.removeprefix("hour=")
    return datetime.strptime(said, HOUR_FORM).replace(tzinfo=UTC).timestamp()


def closed_hours(folder: Path, now: float) -> list[Path]:
    """The hours to which nobody writes any more."""
    return [hour for hour in hours(folder) if _begins(hour) + HOUR_S + GRACE_S <= now]


def expired_hours(folder: Path, keep_s: float, now: float) -> list[Path]:
    """The hours that ended longer ago than is kept."""
    return [hour for hour in closed_hours(folder, now) if _begins(hour) + HOUR_S + keep_s <= now]


def forget_hour(hour: Path) -> None:
    """Remove an hour, at once for readers; `sweep_forgotten` makes the room free."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(hour, _beside(hour, f"{_GONE}{hour.name}.{secrets.token_hex(4)}"))


def sweep_forgotten(folder: Path) -> None:
    """Remove the files of hours that were forgotten, by this run or by one that was cut short."""
    for left in (folder / WRITING).glob(f"{_GONE}*"):
        shutil.rmtree(left, ignore_errors=True)


def merge_hour(hour: Path, now: float | None = None) -> Merged:
    """Merge the files of an hour that is over, and remove those that were merged long enough ago."""
    with _alone(hour):
        for left in _beside(hour, "").glob(f"merging.{hour.name}.*"):
            left.unlink(missing_ok=True)
        removed = _sweep(hour, time.time() if now is None else now)
        parts = parts_within(hour)
        merges = _planned(parts)
        if merges:
            merged = {merge.into for merge, _ in merges}
            before = [merge for merge in merges_of(hour) if merge.into not in merged]
            _write_list(hour, [*before, *(merge for merge, _ in merges)])
        rows = sum([_merge(hour, merge, group) for merge, group in merges])
        return Merged(hour.name.removeprefix("hour="), len(parts), len(parts_within(hour)), rows, removed)


@contextlib.contextmanager
def _alone(hour: Path) -> Iterator[None]:
    """Two runs at a time would write over each other's list: the second waits, and finds little to do."""
    handle = os.open(hour, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that has no locks for folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _planned(parts: Sequence[Part]) -> list[tuple[Merge, list[Part]]]:
    """Which file is to be made of which parts."""
    groups: dict[tuple[HomeId, int, pa.Schema], list[Part]] = defaultdict(list)
    for part in parts:
        with opened(part.path, COLUMNS.names) as file:
            groups[part.home, part.stream, file.schema_arrow.remove_metadata()].append(part)
    planned = []
    for (home, stream, _), group in groups.items():
        first, last = min(part.first for part in group), max(part.last for part in group)
        merge = Merge(part_name(home, stream, first, last, merged=True), tuple(part.path.name for part in group))
        if len(group) > 1 and merge.into not in merge.of:  # what has the name already cannot be in itself
            planned.append((merge, sorted(group, key=lambda part: (part.first, part.last))))
    return planned


def _merge(hour: Path, merge: Merge, group: Sequence[Part]) -> int:
    """Make a file of some parts, row group by row group; how many rows it has."""
    beside = _beside(hour, f"merging.{hour.name}.{secrets.token_hex(4)}")
    rows = 0
    tables = _in_order(hour, group)
    first = next(tables)
    with beside.open("wb") as file:
        with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write_table(table, row_group_size=ROW_GROUP)
                rows += table.num_rows
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, hour / merge.into)
    sync_folder(hour)
    return rows


def _in_order(hour: Path, group: Sequence[Part]) -> Iterator[pa.Table]:
    """The rows of parts by their numbers, in tables of about a row group: an hour may be larger than the memory."""
    held: list[pa.Table] = []
    for together in overlapping(group):
        tables = []
        for part in together:
            with opened(part.path, COLUMNS.names) as file:
                tables.append(file.read())
        table = pa.concat_tables(tables).sort_by("number")
        numbers = table["number"].to_pylist()
        if len(set(numbers)) != len(numbers):  # they would be merged into two rows
            names = ", ".join(part.path.name for part in together[:3])
            raise ArchiveError(f"{hour}: {names}… hold some events twice; please report this")
        held.append(table)
        if sum(each.num_rows for each in held) >= ROW_GROUP:
            yield pa.concat_tables(held).combine_chunks()
            held.clear()
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _beside(hour: Path, name: str) -> Path:
    """A place for what is not whole yet, or not wanted any more; copies of an archive may lack the folder."""
    within = hour.parent / WRITING
    within.mkdir(exist_ok=True)
    return within / name


def _write_list(hour: Path, merges: Sequence[Merge]) -> None:
    beside = _beside(hour, f"merging.{hour.name}.{secrets.token_hex(4)}")
    write_synced(beside, msgspec.json.encode(merges))
    os.replace(beside, hour / MERGED)
    sync_folder(hour)


def _sweep(hour: Path, now: float) -> int:
    """Remove what is in another file by now, and was there before nobody could look for it any more."""
    removed = 0
    left = []
    for merge in merges_of(hour):
        into = hour / merge.into
        if not into.exists():
            continue  # a run that was cut short
        left.append(merge)
        if now - into.stat().st_mtime >= GRACE_S:
            for name in merge.of:
                path = hour / name
                if path.exists():
                    path.unlink()
                    removed += 1
    if left != list(merges_of(hour)):
        _write_list(hour, left)
    return removed
