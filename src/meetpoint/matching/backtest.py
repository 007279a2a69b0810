"""A backtest: a filter over history, with how often it would have fired, when, on what, and what nearly fired.

It works on Arrow batches and adds up: `Backtest`s of parts of a table, in any grouping, sum to the Backtest of the
whole. So it runs in one process, behind the gateway and on Spark alike.

A near miss is an event that the filter does not accept and would accept if one constraint were dropped. It is counted
under that constraint, and under several if each alone would do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError
from meetpoint.language.filters.filter import Filter
from meetpoint.language.names import split_name
from meetpoint.language.syntax.render import render_constraint
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.matching.tables.columns import BATCH_ROWS, ColumnBatch, Columns

__all__ = [
    "Backtest",
    "Bucket",
    "Sample",
    "backtest",
    "backtest_batch",
    "check_name",
    "check_width",
    "no_timestamps",
    "read_width",
]

SAMPLES_MAX = 5
WIDTH_MIN = timedelta(seconds=1)
WIDTH_MAX = timedelta(days=3_650_000)
"""The widest bucket: longer than all years that timestamps have."""
_WIDTH = re.compile(r"([0-9]{1,15})([smhdw])", re.ASCII | re.IGNORECASE)
_WIDTHS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_FIRST = datetime(1, 1, 1, tzinfo=UTC)


class Bucket(msgspec.Struct, frozen=True):
    """A stretch of time: its beginning, the events in it, and those accepted."""

    start: datetime
    events: int
    hits: int

    @property
    def rate(self) -> float:
        return self.hits / self.events


class Sample(msgspec.Struct, frozen=True):
    """An accepted event: its row number in the whole table and its attributes."""

    row: int
    attributes: dict[str, Any]


class Backtest(msgspec.Struct):
    """The result of a filter over events. Two of them, of two parts of a table, add up."""

    filter: str
    events: int = 0
    hits: int = 0
    near_misses: Counter[str] = msgspec.field(default_factory=Counter)
    buckets: dict[datetime, tuple[int, int]] = msgspec.field(default_factory=dict)
    samples: list[Sample] = msgspec.field(default_factory=list)
    untimed: int = 0

    @property
    def rate(self) -> float:
        """The share of events accepted."""
        return self.hits / self.events if self.events else 0.0

    def timeline(self) -> list[Bucket]:
        """Return the buckets that hold events, in the order of time."""
        return [Bucket(start, events, hits) for start, (events, hits) in sorted(self.buckets.items())]

    def __add__(self, other: Backtest) -> Backtest:
        buckets = dict(self.buckets)
        for start, (events, hits) in other.buckets.items():
            before = buckets.get(start, (0, 0))
            buckets[start] = (before[0] + events, before[1] + hits)
        samples = sorted([*self.samples, *other.samples], key=lambda sample: sample.row)
        return Backtest(
            self.filter,
            self.events + other.events,
            self.hits + other.hits,
            self.near_misses + other.near_misses,
            buckets,
            samples[:SAMPLES_MAX],
            self.untimed + other.untimed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result for a program, ready for JSON (values of samples as they are)."""
        return {
            "filter": self.filter,
            "events": self.events,
            "hits": self.hits,
            "rate": self.rate,
            "near_misses": dict(self.near_misses.most_common()),
            "timeline": [{"start": b.start.isoformat(), "events": b.events, "hits": b.hits} for b in self.timeline()],
            "untimed": self.untimed,
            "samples": [{"row": sample.row, "attributes": sample.attributes} for sample in self.samples],
        }


def backtest(
    filter_: Filter,
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | ColumnBatch],
    *,
    time: str | None = None,
    width: timedelta | str = timedelta(hours=1),
    first_row: int = 0,
) -> Backtest:
    """Run a filter over a table or batches; `time` names the column of the timeline, in buckets of `width`.

    An event without a timestamp there is counted as untimed; EventError if all of them are.
    """
    step = check_width(width)
    if time is not None:
        check_name("--time", time)
    total = Backtest(filter_.text)
    holds_other = False
    for batch in _batches(data, first_row):
        total = total + backtest_batch(filter_, batch, time, step)
        holds_other = holds_other or (time is not None and bool(batch.columns.column(time).valid.any()))
    if time is not None and total.events and not total.buckets:
        raise no_timestamps(time, holds_other)
    return total


def no_timestamps(time: str, holds_other: bool) -> EventError:
    """Return the error for events without a timestamp under a name, where there may be other values."""
    if holds_other:
        return EventError(f"backtest: {time} does not hold timestamps; name an attribute that does")
    return EventError(f"backtest: the events have no attribute {time}; name one that holds timestamps")


def check_name(option: str, name: object) -> None:
    """Raise EventError if an option's value is not the name of an attribute."""
    if not isinstance(name, str):
        raise EventError(f"{option}: given an object of class {type(name).__name__}; give the name of an attribute")
    try:
        split_name(name)
    except ValueError as error:
        raise EventError(f"{option}: {error}; write it like price, order.price or `odd name`") from None


def check_width(width: object) -> timedelta:
    """Return the width of a bucket, also from its text; EventError if it is not a sensible width."""
    if isinstance(width, str):
        return read_width(width)
    if not isinstance(width, timedelta):
        raise EventError(f"backtest: the width is of class {type(width).__name__}; give a timedelta, or a text like 1h")
    if width < WIDTH_MIN:
        raise EventError(f"backtest: a bucket of {width} is too narrow; the narrowest is one second")
    if width > WIDTH_MAX:
        raise EventError(f"backtest: a bucket of {width} is too wide; the widest is {WIDTH_MAX.days} days")
    return width


def _batches(
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | ColumnBatch], first_row: int
) -> Iterator[ColumnBatch]:
    if isinstance(data, pa.Table):
        data = data.to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, pa.RecordBatch):
        data = [data]
    for batch in data:
        if isinstance(batch, ColumnBatch):
            yield batch
        else:
            yield ColumnBatch(range(first_row, first_row + batch.num_rows), Columns.of_batch(batch))
            first_row += batch.num_rows


def backtest_batch(filter_: Filter, batch: ColumnBatch, time: str | None, width: timedelta) -> Backtest:
    """Return the result of a filter over one batch, with or without timestamps; `backtest` adds these up."""
    columns = batch.columns
    hits = columns.accepted(filter_)
    result = Backtest(filter_.text, len(columns), len(hits), _near_misses(columns, filter_, hits))
    result.samples = [Sample(batch.rows[int(row)], dict(columns.row(int(row)))) for row in hits[:SAMPLES_MAX]]
    if time is not None and len(columns):
        result.buckets, result.untimed = _buckets(columns, time, width, hits)
    return result


def _near_misses(columns: Columns, filter_: Filter, hits: Any) -> Counter[str]:
    missed = np.ones(len(columns), dtype=np.bool_)
    missed[hits] = False
    found: dict[str, Any] = {}
    for conjunction in filter_.conjunctions:
        masks = [columns.mask(name, constraint) for name, constraint in conjunction.constraints]
        if not masks:
            continue
        failures = len(masks) - np.sum(masks, axis=0, dtype=np.int16)
        near = missed & (failures == 1)
        for (name, constraint), mask in zip(conjunction.constraints, masks, strict=True):
            text = render_constraint(name, constraint)
            alone = near & ~mask
            found[text] = alone | found[text] if text in found else alone
    return Counter({text: count for text, rows in found.items() if (count := int(rows.sum()))})


def _buckets(columns: Columns, time: str, width: timedelta, hits: Any) -> tuple[dict[datetime, tuple[int, int]], int]:
    found = columns.instants(time)
    if found is None:
        return {}, len(columns)
    micros, valid = found
    step = width // MICROSECOND
    starts = micros // step  # rounded down, so that times before 1970 fall into the right bucket too
    was_hit = np.zeros(len(micros), dtype=np.bool_)
    was_hit[hits] = True
    distinct, inverse = np.unique(starts[valid], return_inverse=True)
    events = np.bincount(inverse, minlength=len(distinct))
    accepted = np.bincount(inverse, weights=was_hit[valid], minlength=len(distinct))
    buckets = {
        _bucket_start(int(start) * step): (int(n), int(h))
        for start, n, h in zip(distinct, events, accepted, strict=True)
    }
    return buckets, int(len(micros) - valid.sum())


def _bucket_start(micros: int) -> datetime:
    """Return the start of a bucket; the first of all starts with the year 1, though its width may reach before it."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return _FIRST


def read_width(text: str) -> timedelta:
    """Return the width of a bucket as people write it: 30s, 15m, 1h, 1d, 1w."""
    match = _WIDTH.fullmatch(text)
    seconds = int(match[1]) * _WIDTHS[match[2].lower()] if match else 0
    if not 1 <= seconds <= WIDTH_MAX // timedelta(seconds=1):
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise EventError(f"backtest: {shown!r} is not a width; write a number and s, m, h, d or w, such as 15m")
    return timedelta(seconds=seconds)
