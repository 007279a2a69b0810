"""A filter over history: how often it would have fired, when, on what, and what nearly fired.

The core works on Arrow batches and adds up: `Backtest`s of parts of a table, in any grouping, sum to the Backtest of
the whole, which is how it runs in one process, behind the gateway and on Spark alike.

A near miss is an event that the filter does not accept and would accept if one constraint were dropped; each is counted
under that constraint (and under several, where each alone would do).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError
from meetpoint.language.filters import Filter
from meetpoint.language.render import render_constraint
from meetpoint.matching.columns import Columns

__all__ = ["Backtest", "Bucket", "Sample", "backtest", "read_width"]

BATCH_ROWS = 65_536
SAMPLES_MAX = 5
_WIDTHS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(msgspec.Struct, frozen=True):
    """One stretch of time: its beginning, the events in it, and those accepted."""

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
    """What a filter would have done. Two of them, of two parts of a table, add up."""

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
        """The buckets that hold events, in the order of time."""
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
        """The same for a program, ready for JSON (values of samples as they are)."""
        return {
            "filter": self.filter,
            "events": self.events,
            "hits": self.hits,
            "rate": self.rate,
            "near_misses": dict(self.near_misses.most_common()),
            "timeline": [{"start": b.start.isoformat(), "events": b.events, "hits": b.hits} for b in self.timeline()],
            "untimed": self.untimed,
            "samples": [{"row": sample.row, **sample.attributes} for sample in self.samples],
        }


def backtest(
    filter_: Filter,
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | Columns],
    *,
    time: str | None = None,
    width: timedelta = timedelta(hours=1),
    first_row: int = 0,
) -> Backtest:
    """Run a filter over a table or batches; `time` names the column for the timeline, in buckets of `width`."""
    if width < timedelta(seconds=1):
        raise EventError(f"backtest: a bucket of {width} is too narrow; the narrowest is one second")
    total = Backtest(filter_.text)
    for columns in _batches(data):
        total = total + _one_batch(filter_, columns, time, width, first_row + total.events)
    return total


def _batches(data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | Columns]) -> Iterator[Columns]:
    if isinstance(data, pa.Table):
        data = data.to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, pa.RecordBatch):
        data = [data]
    for batch in data:
        yield batch if isinstance(batch, Columns) else Columns.of_batch(batch)


def _one_batch(filter_: Filter, columns: Columns, time: str | None, width: timedelta, first_row: int) -> Backtest:
    hits = columns.accepted(filter_)
    result = Backtest(filter_.text, len(columns), len(hits), _near_misses(columns, filter_, hits))
    result.samples = [Sample(first_row + int(row), dict(columns.row(int(row)))) for row in hits[:SAMPLES_MAX]]
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
        if all(value is None for value in columns.values(time)):
            raise EventError(f"backtest: the events have no attribute {time}; name one that holds timestamps")
        raise EventError(f"backtest: {time} does not hold timestamps; name an attribute that does")
    micros, valid = found
    step = width // timedelta(microseconds=1)
    starts = micros // step
    was_hit = np.zeros(len(micros), dtype=np.bool_)
    was_hit[hits] = True
    distinct, inverse = np.unique(starts[valid], return_inverse=True)
    events = np.bincount(inverse, minlength=len(distinct))
    accepted = np.bincount(inverse, weights=was_hit[valid], minlength=len(distinct))
    buckets = {
        _EPOCH + timedelta(microseconds=int(start) * step): (int(n), int(h))
        for start, n, h in zip(distinct, events, accepted, strict=True)
    }
    return buckets, int(len(micros) - valid.sum())


def read_width(text: str) -> timedelta:
    """The width of a bucket as people write it: 30s, 15m, 1h, 1d, 1w."""
    number, unit = text[:-1], text[-1:].lower()
    if not number.isdecimal() or unit not in _WIDTHS or int(number) < 1:
        raise EventError(f"backtest: {text!r} is not a width; write a number and s, m, h, d or w, such as 15m")
    return timedelta(seconds=int(number) * _WIDTHS[unit])
