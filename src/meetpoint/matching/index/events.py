"""Events for the index, in batches: from JSON lines, tables, batches, readers and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.names import join_name
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.io.rejects import Reject, reject
from meetpoint.matching.tables.columns import ColumnParts, Columns, parts_of_batch, parts_of_rows

if TYPE_CHECKING:
    from meetpoint.matching.index.json_lines import JsonLines
    from meetpoint.matching.index.segment import EventSample

__all__ = ["EventBatch", "JsonEvents", "batches_of", "guess_of", "sample_of"]

_SAMPLE = 2000
_GUESSES = 512
_STRETCHES = 40
"""Stretches of a table that a sample is taken from."""


class JsonEvents:
    """Events as the bytes of JSON lines, read as `attributes_from_json` reads them.

    Bad lines raise, unless `rejects` is a list: then they are put there, and keep their row numbers.
    """

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        *,
        schema: Schema | None = None,
        rejects: list[Reject] | None = None,
    ) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise EventError(f"events: given an object of class {type(data).__name__}; give the bytes of JSON lines")
        self.data = memoryview(data).cast("B") if isinstance(data, memoryview) else data
        self.schema = schema
        self.rejects = rejects

    def batches(self, size: int) -> Iterator[EventBatch]:
        """Yield the lines in batches of at most `size`."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))[size - 1 :: size] + 1
        view = memoryview(self.data)
        row, line = 0, 1
        for begin, end in zip([0, *ends.tolist()], [*ends.tolist(), len(view)], strict=True):
            if begin < end:
                batch = _JsonBatch(self, view[begin:end], row, line)
                yield batch
                row, line = row + batch.events, line + size


class EventBatch:
    """A batch of events: their number, that of the first, and their attributes as columns and as parts."""

    good: Any = None
    """Which rows are events at all; None: all."""

    def __init__(self, first: int, columns: Columns) -> None:
        self.first = first
        self._columns = columns

    @property
    def events(self) -> int:
        return len(self._columns)

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def only(self) -> Mapping[str, object] | None:
        """The single event of the batch, if its attributes are at hand."""
        source = self._columns.source
        return source[0] if isinstance(source, list) and len(source) == 1 else None

    def parts(self, names: Iterable[str]) -> ColumnParts:
        return self._columns.parts(names)


class _JsonBatch(EventBatch):
    """A batch of lines, which are read once the wanted attributes are known."""

    def __init__(self, events: JsonEvents, data: memoryview, first: int, line: int) -> None:
        self.first = first
        self._events = events
        self._data = data
        self._line = line
        self._read: JsonLines | None = None

    @property
    def events(self) -> int:
        return self._lines(()).rows

    @property
    def good(self) -> Any:
        read = self._lines(())
        return read.good if read.rejects else None

    @property
    def only(self) -> None:
        return None

    def parts(self, names: Iterable[str]) -> ColumnParts:
        return self._lines(list(names)).parts

    @cached_property
    def columns(self) -> Columns:
        read = self._lines(())
        lines = [self._data[begin:end].tobytes().rstrip(b"\r\n") for begin, end in read.bounds.tolist()]
        schema = self._events.schema
        rows = [attributes_from_json(x, schema) if g else {} for x, g in zip(lines, read.good.tolist(), strict=True)]
        return Columns.of_rows(rows)

    def _lines(self, names: Sequence[str]) -> JsonLines:
        from meetpoint.matching.index.json_lines import LineReader

        if self._read is None or not set(names) <= self._read.parts.keys():
            again = self._read is not None  # for more names: its rejects were reported the first time
            self._read = LineReader(names, self._events.schema).read(self._data, self._line)
            for row, reason in () if again else self._read.rejects:
                begin, end = self._read.bounds[row].tolist()
                raw = self._data[begin:end].tobytes().rstrip(b"\r\n").decode("utf-8", "replace")
                bad = reject("events", self.first + row, reason, raw)
                if self._events.rejects is None:
                    raise EventError(f"events, row {bad.row}: {bad.reason}; pass rejects=[] to set bad rows aside")
                self._events.rejects.append(bad)
        return self._read


def batches_of(events: Any, size: int) -> Iterator[EventBatch]:
    """Yield events in batches of at most `size`, from any source that the index takes."""
    if isinstance(events, JsonEvents):
        yield from events.batches(size)
        return
    first = 0
    for source in _sources(events, size):
        for at in range(0, len(source), size):
            if isinstance(source, pa.RecordBatch):
                yield EventBatch(first + at, Columns.of_batch(source.slice(at, size)))
            else:
                yield EventBatch(first + at, Columns.of_rows(source[at : at + size]))
        first += len(source)


def _sources(events: Any, size: int) -> Iterator[Any]:
    if isinstance(events, pa.RecordBatch):
        yield events
    elif isinstance(events, pa.Table):
        yield from events.to_batches()
    elif isinstance(events, pa.RecordBatchReader):
        yield from events
    elif isinstance(events, Mapping | Event | str | bytes) or not isinstance(events, Iterable):
        given = f"an object of class {type(events).__name__}"
        raise EventError(f"events: given {given}; give a table, batches, a list of rows, or JsonEvents")
    else:
        rows: list[Any] = []
        for one in events:
            if isinstance(one, pa.RecordBatch):
                yield rows
                rows = []
                yield one
                continue
            row = one.attributes if isinstance(one, Event) else one
            if not isinstance(row, Mapping):
                raise EventError(f"events: a row of class {type(row).__name__}; give dicts of attributes, or Events")
            rows.append(row)
            if len(rows) == size:
                yield rows
                rows = []
        yield rows


def sample_of(events: Any) -> EventSample | None:
    """Return up to some thousand events from all over a table or list, as parts of all their attributes."""
    from meetpoint.matching.index.segment import EventSample

    if isinstance(events, pa.Table):
        stretches = max(min(_STRETCHES, events.num_rows), 1)
        length = min(-(-events.num_rows // stretches), _SAMPLE // stretches)
        begins = [at * events.num_rows // stretches for at in range(stretches)]
        picked = pa.concat_tables([events.slice(at, length) for at in begins]).combine_chunks().to_batches()
        if not picked or not picked[0].num_rows:
            return None
        return EventSample(parts_of_batch(picked[0], _names_of(picked[0].schema)), picked[0].num_rows).shuffled()
    if isinstance(events, pa.RecordBatch):
        return sample_of(pa.Table.from_batches([events]))
    if isinstance(events, Columns):
        return sample_of(events.source)
    rows: list[Mapping[str, object]] = []
    for batch in islice(batches_of(events, _SAMPLE), _STRETCHES):
        rows += batch.columns.rows()
    rows = rows[:: max(len(rows) // _SAMPLE, 1)]
    names = {name for row in rows for name in _names_in(row)}
    return EventSample(parts_of_rows(rows, names), len(rows)).shuffled() if rows else None


def guess_of(schema: Schema) -> EventSample | None:
    """Return events that have every value between the bounds of a schema's attributes equally often."""
    from meetpoint.matching.index.segment import EventSample

    rows: list[dict[str, Any]] = [{} for _ in range(_GUESSES)]
    names = []
    for attribute in schema:
        low, high = attribute.minimum, attribute.maximum
        if low is None or high is None:
            continue
        names.append(attribute.name)
        for at, row in enumerate(rows):
            value = low + (high - low) / (_GUESSES - 1) * at  # type: ignore[operator]
            for segment in attribute.path[:-1]:
                row = row.setdefault(segment, {})
            row[attribute.path[-1]] = value if isinstance(value, datetime) else float(value)
    return EventSample(parts_of_rows(rows, names), _GUESSES, guessed=True).shuffled() if names else None


def _names_of(schema: Any, path: tuple[str, ...] = ()) -> list[str]:
    names: list[str] = []
    for field in schema:
        here = (*path, field.name)
        names.append(join_name(here))
        if pa.types.is_struct(field.type):
            names += _names_of(field.type, here)
    return names


def _names_in(row: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[str]:
    for key, value in row.items():
        yield join_name((*path, key))
        if isinstance(value, Mapping):
            yield from _names_in(value, (*path, key))
