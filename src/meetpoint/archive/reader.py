"""Reading an archive: all events of a span of time, or pages of one stream for a broker's clients.

`read_archive` gives each event once. A publisher that gets no answer publishes an event again, maybe at another broker,
and both may be accepted: the archive then has both, under two keys and one id. Subscribers get one of them, and so do
readers here (`api.history_dedup`), if the two lie no more than an hour apart.

`ArchiveReader` answers how far each stream has come, and gives its events page by page. Folders of hours that are over
hardly ever change: each is listed again only when its modification time changes. Where a file is gone, because it was
merged into another (`compaction`), everything is listed anew.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.api.history_dedup import HistoryDedup
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive.parts import (
    ArchiveError,
    ArchivePart,
    check_archive,
    hour_folders,
    hour_name,
    list_parts,
    open_part,
    overlapping,
    parts_of_hour,
)
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["ArchiveReader", "ArchivedEvent", "Page", "StreamKey", "micros_of", "read_accepted", "read_archive"]

FRESH_NS: Final = 2_000_000_000
"""A folder that changed within this time may change again without a newer modification time."""
PAGE_BYTES: Final = 512 << 10
"""The size of a page, roughly."""
PAGE_LOOKED_MAX: Final = 20_000
"""The number of events that are examined for one page, whether they are wanted or not."""
_PAGE_COLUMNS: Final = ["number", "accepted_at", "tenant", "event"]
BATCH_ROWS: Final = 8_192
"""The number of rows that are read from a file at once."""
_ACCEPTED_COLUMNS = ["accepted_at", "tenant", "home", "stream", "number", "event"]

StreamKey = tuple[HomeId, int]


class ArchivedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of an archive, with its key, its tenant and the time of its acceptance."""

    key: EventKey
    at_us: int
    tenant: str
    event: Event


def read_archive(
    folder: str | Path, *, since: datetime | None = None, until: datetime | None = None, tenant: str | None = None
) -> Iterator[Event]:
    """Yield the events that brokers accepted in a span of time, hour by hour.

    `since` is inclusive and `until` exclusive; both need a time zone. `tenant` restricts the events to one tenant.
    Raise ArchiveError where the folder is no archive, or a file is damaged or removed meanwhile.

        mp.backtest("price > 120", mp.read_archive("/srv/archive", since=datetime(2026, 11, 16, tzinfo=UTC)))
    """
    return (each.event for each in read_accepted(folder, since=since, until=until, tenant=tenant))


def read_accepted(
    folder: str | Path, *, since: datetime | None = None, until: datetime | None = None, tenant: str | None = None
) -> Iterator[ArchivedEvent]:
    """Yield the same events as `read_archive`, with the key, tenant and time of each acceptance."""
    since_us, until_us = micros_of(since, "since"), micros_of(until, "until")
    check_archive(folder)
    # Two hours are enough, since repeats further apart than an hour are two events.
    hour, here, before = "", HistoryDedup(), HistoryDedup()
    for part in list_parts(Path(folder), since_us, until_us):
        if part.hour != hour:
            hour, here, before = part.hour, HistoryDedup(), here
        try:
            for each in _events(part.path, since_us, until_us, tenant):
                seen = (each.tenant, each.event.id), each.event, each.at_us
                is_repeated = here.knows(*seen) or before.knows(*seen)
                here.note(*seen)
                if not is_repeated:
                    yield each
        except FileNotFoundError:
            raise ArchiveError(f"{part.path}: was removed while the archive was read; read again") from None


def _events(path: Path, since_us: int | None, until_us: int | None, tenant: str | None) -> Iterator[ArchivedEvent]:
    with open_part(path, _ACCEPTED_COLUMNS) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=_ACCEPTED_COLUMNS):
            at_us = batch.column("accepted_at").cast(pa.int64()).to_pylist()
            names = [batch.column(name).to_pylist() for name in _ACCEPTED_COLUMNS[1:]]
            for at, owner, home, stream, number, content in zip(at_us, *names, strict=True):
                is_within = (since_us is None or at >= since_us) and (until_us is None or at < until_us)
                if is_within and tenant in (None, owner):
                    yield ArchivedEvent(EventKey(HomeId(home), stream, number), at, owner, from_msgpack(content))


def micros_of(moment: datetime | None, what: str) -> int | None:
    """Convert a moment to microseconds since 1970; raise ArchiveError if it has no time zone."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ArchiveError(f"{what}: {moment.isoformat()} has no time zone; give one, as datetime(…, tzinfo=UTC)")
    return round(moment.timestamp() * 1_000_000)


class PageRow(NamedTuple):
    """An event of a page, as encoded bytes."""

    number: int
    at_us: int
    content: bytes


class Page(NamedTuple):
    """Events of a stream in the order of their numbers; all wanted events up to `reached` are in it."""

    rows: list[PageRow]
    reached: int


class ArchiveReader:
    """Reads one archive folder for the clients of a broker, from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._hours: dict[str, tuple[int, list[ArchivePart]]] = {}

    def streams(self) -> dict[StreamKey, int]:
        """Return the highest archived number of every stream."""
        found: dict[StreamKey, int] = {}
        for part in self._parts():
            key = part.home, part.stream
            found[key] = max(found.get(key, 0), part.last)
        return found

    def page(
        self, stream: StreamKey, after: int, upto: int, since_us: int, wanted: Callable[[str, Event], bool]
    ) -> Page:
        """Return a page of a stream: numbers above `after` and up to `upto`, accepted at `since_us` or later.

        `wanted` receives the tenant and the event, and decides whether the event is in the page.
        """
        try:
            return self._page(stream, after, upto, since_us, wanted)
        except FileNotFoundError:
            with self._lock:
                self._hours.clear()
            return self._page(stream, after, upto, since_us, wanted)

    def _page(
        self, stream: StreamKey, after: int, upto: int, since_us: int, wanted: Callable[[str, Event], bool]
    ) -> Page:
        first_hour = hour_name(since_us)
        parts = [
            part
            for part in self._parts()
            if (part.home, part.stream) == stream
            and part.last > after
            and part.first <= upto
            and part.hour >= first_hour
        ]
        parts.sort(key=lambda part: (part.first, part.last))
        rows: list[PageRow] = []
        size = looked = 0
        reached = after
        for group in overlapping(parts):  # a writer's two files overlap: one has the struct, one not
            for number, at_us, tenant, content in heapq.merge(*(_rows(part, after, upto) for part in group)):
                looked += 1
                if at_us >= since_us and wanted(tenant, from_msgpack(content)):
                    rows.append(PageRow(number, at_us, content))
                    size += len(content) + 32
                reached = number
                if size >= PAGE_BYTES or looked >= PAGE_LOOKED_MAX:
                    return Page(rows, reached)
            reached = min(max(part.last for part in group), upto)
        return Page(rows, upto)

    def _parts(self) -> Iterator[ArchivePart]:
        with self._lock:
            known = self._hours
            found: dict[str, tuple[int, list[ArchivePart]]] = {}
            for path in hour_folders(self._folder):
                try:
                    changed = path.stat().st_mtime_ns
                    before = known.get(path.name)
                    is_old = time.time_ns() - changed > FRESH_NS
                    if before is None or before[0] != changed or not is_old:
                        before = changed, parts_of_hour(path)
                    found[path.name] = before
                except FileNotFoundError:
                    continue  # the hour expired meanwhile
            self._hours = found
        for _, parts in found.values():
            yield from parts


def _rows(part: ArchivePart, after: int, upto: int) -> Iterator[tuple[int, int, str, bytes]]:
    """Yield the rows of a file, in the order of their numbers, batch by batch: a merged file may have many pages."""
    with open_part(part.path, _PAGE_COLUMNS) as file:
        place = file.schema_arrow.get_field_index("number")
        groups = [group for group in range(file.num_row_groups) if _may_have(file, group, place, after, upto)]
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=_PAGE_COLUMNS):
            numbers, at_us = batch.column("number").to_pylist(), batch.column("accepted_at").cast(pa.int64())
            rest = batch.column("tenant").to_pylist(), batch.column("event").to_pylist()
            for row in zip(numbers, at_us.to_pylist(), *rest, strict=True):
                if after < row[0] <= upto:
                    yield row


def _may_have(file: pq.ParquetFile, group: int, place: int, after: int, upto: int) -> bool:
    statistics = file.metadata.row_group(group).column(place).statistics
    return statistics is None or not statistics.has_min_max or (statistics.max > after and statistics.min <= upto)
