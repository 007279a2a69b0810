"""Reading an archive in one process: the events of a span of time, each once.

A publisher that gets no answer publishes an event again, maybe at another broker, and both may be accepted: the archive
has both, under two keys and one id. Subscribers get one of them; so does whoever reads here (`protocol.repeats`), of
what lies no more than an hour apart.


What a broker answers from its archive: how far each stream has come, and its events, page by page.

Folders of hours that are over hardly ever change: each is listed again only when its time of change is another one. A
file that was merged into another meanwhile (`merging`) is gone; then everything is listed anew.
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
    Part,
    check_archive,
    hour_name,
    hours,
    list_parts,
    opened,
    overlapping,
    parts_within,
)
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = [
    "ArchiveShelf",
    "Archived",
    "Page",
    "Row",
    "StreamKey",
    "micros_of",
    "read_accepted",
    "read_archive",
]

BATCH_ROWS: Final = 8_192
"""So many rows of a file are read at once."""
_ACCEPTED_COLUMNS = ["accepted_at", "tenant", "home", "stream", "number", "event"]


class Archived(msgspec.Struct, frozen=True, gc=False):
    """An event of an archive, and what is known of its acceptance."""

    key: EventKey
    at_us: int
    tenant: str
    event: Event


def read_archive(
    folder: str | Path, *, since: datetime | None = None, until: datetime | None = None, tenant: str | None = None
) -> Iterator[Event]:
    """The events that brokers accepted from one moment on and before another, hour by hour; of one tenant, or of all.

    Give them to `backtest` or `match` as they come: `mp.backtest(filter, mp.read_archive(folder))`.
    """
    return (each.event for each in read_accepted(folder, since=since, until=until, tenant=tenant))


def read_accepted(
    folder: str | Path, *, since: datetime | None = None, until: datetime | None = None, tenant: str | None = None
) -> Iterator[Archived]:
    """The same, with what is known of each event's acceptance."""
    since_us, until_us = micros_of(since, "since"), micros_of(until, "until")
    within = Path(folder)
    check_archive(within)
    hour, here, before = "", HistoryDedup(), HistoryDedup()
    for part in list_parts(within, since_us, until_us):
        if part.hour != hour:
            hour, here, before = part.hour, HistoryDedup(), here
        try:
            for each in _events(part.path, since_us, until_us, tenant):
                said = (each.tenant, each.event.id), each.event, each.at_us
                is_again = here.knows(*said) or before.knows(*said)
                here.note(*said)
                if not is_again:
                    yield each
        except FileNotFoundError:
            raise ArchiveError(f"{part.path}: was removed while the archive was read; read again") from None


def _events(path: Path, since_us: int | None, until_us: int | None, tenant: str | None) -> Iterator[Archived]:
    with opened(path, _ACCEPTED_COLUMNS) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=_ACCEPTED_COLUMNS):
            at_us = batch.column("accepted_at").cast(pa.int64()).to_pylist()
            names = [batch.column(name).to_pylist() for name in _ACCEPTED_COLUMNS[1:]]
            for at, whose, home, stream, number, content in zip(at_us, *names, strict=True):
                is_within = (since_us is None or at >= since_us) and (until_us is None or at < until_us)
                if is_within and tenant in (None, whose):
                    yield Archived(EventKey(HomeId(home), stream, number), at, whose, from_msgpack(content))


def micros_of(moment: datetime | None, what: str) -> int | None:
    """A moment as microseconds since 1970; ArchiveError where it may be any, without a time zone."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ArchiveError(f"{what}: {moment.isoformat()} has no time zone; give one, as datetime(…, tzinfo=UTC)")
    return round(moment.timestamp() * 1_000_000)


FRESH_NS: Final = 2_000_000_000
"""A folder that changed so short a while ago may change again without showing it."""
PAGE_BYTES: Final = 512 << 10
"""About how many bytes a page holds."""
PAGE_LOOKED_MAX: Final = 20_000
"""So many events are looked at for one page, whether they are wanted or not."""
_PAGE_COLUMNS: Final = ["number", "accepted_at", "tenant", "event"]

StreamKey = tuple[HomeId, int]


class Row(NamedTuple):
    """An event of a page."""

    number: int
    at_us: int
    content: bytes


class Page(NamedTuple):
    """Some events of a stream in the order of their numbers; all that are wanted up to `reached` are in it."""

    rows: list[Row]
    reached: int


class ArchiveShelf:
    """One folder, as it is read by threads of a broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._hours: dict[str, tuple[int, list[Part]]] = {}

    def streams(self) -> dict[StreamKey, int]:
        """The highest number that is there of every stream."""
        found: dict[StreamKey, int] = {}
        for part in self._parts():
            key = part.home, part.stream
            found[key] = max(found.get(key, 0), part.last)
        return found

    def page(
        self, stream: StreamKey, after: int, upto: int, since_us: int, wanted: Callable[[str, Event], bool]
    ) -> Page:
        """Events of a stream beyond one number and up to another, accepted from a moment on; `wanted` is asked with
        the tenant and the event.
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
        rows: list[Row] = []
        size = looked = 0
        reached = after
        for together in overlapping(parts):  # `writing`: one file with the struct, one without
            for number, at_us, tenant, content in heapq.merge(*(_rows(part, after, upto) for part in together)):
                looked += 1
                if at_us >= since_us and wanted(tenant, from_msgpack(content)):
                    rows.append(Row(number, at_us, content))
                    size += len(content) + 32
                reached = number
                if size >= PAGE_BYTES or looked >= PAGE_LOOKED_MAX:
                    return Page(rows, reached)
            reached = min(max(part.last for part in together), upto)
        return Page(rows, upto)

    def _parts(self) -> Iterator[Part]:
        with self._lock:
            known = self._hours
            found: dict[str, tuple[int, list[Part]]] = {}
            for within in hours(self._folder):
                try:
                    changed = within.stat().st_mtime_ns
                    before = known.get(within.name)
                    is_old = time.time_ns() - changed > FRESH_NS
                    if before is None or before[0] != changed or not is_old:
                        before = changed, parts_within(within)
                    found[within.name] = before
                except FileNotFoundError:
                    continue  # it has become too old meanwhile
            self._hours = found
        for _, parts in found.values():
            yield from parts


def _rows(part: Part, after: int, upto: int) -> Iterator[tuple[int, int, str, bytes]]:
    """The rows of a file, by their numbers, read as they are wanted: a merged file may have many pages."""
    with opened(part.path, _PAGE_COLUMNS) as file:
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
