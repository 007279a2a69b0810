"""Reading an archive in one process: the events of a span of time, each once.

A publisher that gets no answer publishes an event again, maybe at another broker, and both may be accepted: the archive
has both, under two keys and one id. Subscribers get one of them; so does whoever reads here (`protocol.repeats`), of
what lies no more than an hour apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pyarrow as pa

from meetpoint.api.history_dedup import HistoryDedup
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive.parts import ArchiveError, check_archive, list_parts, opened
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["Archived", "micros_of", "read_accepted", "read_archive"]

BATCH_ROWS = 8192
_COLUMNS = ["accepted_at", "tenant", "home", "stream", "number", "event"]


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
    with opened(path, _COLUMNS) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=_COLUMNS):
            at_us = batch.column("accepted_at").cast(pa.int64()).to_pylist()
            names = [batch.column(name).to_pylist() for name in _COLUMNS[1:]]
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
