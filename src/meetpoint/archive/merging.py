"""Many small files of an hour become few, and hours that are old enough go.

An hour is merged when it is over, and a while longer: no broker writes to it then. Parts of one stream and of the same
columns become one. First the list of what is to be merged into which file is written, then the file is put into its
place: from that moment on readers take it for those that it was made of (`parts.parts_within`), and before it they take
those. What was merged is removed by the next run, or by one ten minutes later, so that no reader loses a file that it
has just found. A run that is cut short leaves what was there; the next one begins anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.archive.parts import (
    HOUR_FORM,
    MERGED,
    WRITING,
    ArchiveError,
    Merge,
    Part,
    hours,
    merges_of,
    part_name,
    parts_within,
)
from meetpoint.archive.writing import sync_folder, write_synced

__all__ = ["Merged", "closed_hours", "expired_hours", "forget_hour", "merge_hour"]

GRACE_S: Final = 600.0
"""How long after its end an hour counts as over, and what was merged away is kept."""
ROW_GROUP: Final = 8_192
"""Rows that a reader gets at once; whoever looks for some numbers reads few of these."""
HOUR_S: Final = 3600.0


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
    """Remove an hour, at once for readers."""
    beside = hour.parent / WRITING / f"gone.{hour.name}"
    with contextlib.suppress(FileNotFoundError):
        os.replace(hour, beside)
    shutil.rmtree(beside, ignore_errors=True)


def merge_hour(hour: Path, now: float | None = None) -> Merged:
    """Merge the files of an hour that is over, and remove those that were merged long enough ago."""
    removed = _sweep(hour, time.time() if now is None else now)
    parts = parts_within(hour)
    groups: dict[tuple[bytes, int, pa.Schema], list[Part]] = defaultdict(list)
    for part in parts:
        groups[part.home, part.stream, _columns(part)].append(part)
    merges = list(merges_of(hour))
    rows = 0
    for (_, stream, _), group in groups.items():
        if len(group) < 2:
            continue
        table = pa.concat_tables([pq.read_table(part.path, partitioning=None) for part in group]).sort_by("number")
        first, last = min(part.first for part in group), max(part.last for part in group)
        merge = Merge(part_name(group[0].home, stream, first, last, merged=True), tuple(p.path.name for p in group))
        _check_whole(hour, merge, table)
        beside = hour.parent / WRITING / f"merging.{hour.name}.{merge.into}"
        with beside.open("wb") as file:
            pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP)
            file.flush()
            os.fsync(file.fileno())
        merges.append(merge)
        _write_list(hour, merges)
        os.replace(beside, hour / merge.into)
        sync_folder(hour)
        rows += table.num_rows
    return Merged(hour.name.removeprefix("hour="), len(parts), len(parts_within(hour)), rows, removed)


def _columns(part: Part) -> pa.Schema:
    try:
        return pq.read_schema(part.path).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArchiveError(f"{part.path}: cannot be read: {said}; put back a copy of it, or move it away") from None


def _check_whole(hour: Path, merge: Merge, table: pa.Table) -> None:
    """The same event in two files of a stream would be merged into two rows: that must not be."""
    numbers = table["number"].to_pylist()
    if len(set(numbers)) != len(numbers):
        raise ArchiveError(f"{hour}: {', '.join(merge.of[:3])}… hold some events twice; please report this")


def _write_list(hour: Path, merges: Sequence[Merge]) -> None:
    beside = hour.parent / WRITING / f"merging.{hour.name}.json"
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
