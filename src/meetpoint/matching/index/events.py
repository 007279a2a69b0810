"""Events for the index, from whatever holds them, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meetpoint.errors import EventError
from meetpoint.language.event import Event
from meetpoint.language.names import join_name
from meetpoint.matching.columns import Columns
from meetpoint.matching.index.event_parts import Parts, parts_of_batch, parts_of_rows

if TYPE_CHECKING:
    from meetpoint.matching.index.segment import Sample

__all__ = ["EventBatch", "batches_of", "sample_of"]

_SAMPLE = 2000
_STRETCHES = 40
"""A table is sampled in so many places."""


class EventBatch:
    """Some events: their number, that of the first, and their attributes in the two forms that matching needs."""

    def __init__(self, first: int, source: pa.RecordBatch | Sequence[Mapping[str, object]]) -> None:
        self.first = first
        self.events = len(source)
        self._source = source
        self._columns: Columns | None = None

    @property
    def columns(self) -> Columns:
        if self._columns is None:
            source = self._source
            self._columns = Columns.of_batch(source) if isinstance(source, pa.RecordBatch) else Columns.of_rows(source)
        return self._columns

    def parts(self, names: Iterable[str]) -> Parts:
        if isinstance(self._source, pa.RecordBatch):
            return parts_of_batch(self._source, names)
        return parts_of_rows(self._source, names)


def batches_of(events: Any, size: int) -> Iterator[EventBatch]:
    """Whatever holds events, in batches of at most `size`."""
    first = 0
    for source in _sources(events, size):
        for at in range(0, len(source), size):
            some = source.slice(at, size) if isinstance(source, pa.RecordBatch) else source[at : at + size]
            yield EventBatch(first + at, some)
        first += len(source)


def _sources(events: Any, size: int) -> Iterator[Any]:
    if isinstance(events, pa.RecordBatch):
        yield events
    elif isinstance(events, pa.Table):
        yield from events.to_batches()
    elif isinstance(events, pa.RecordBatchReader):
        yield from events
    elif isinstance(events, Mapping | Event | str | bytes) or not isinstance(events, Iterable):
        raise EventError(
            f"events: given an object of class {type(events).__name__}; give a table, batches, or a list of rows"
        )
    else:
        rows: list[Any] = []
        for one in events:
            if isinstance(one, pa.RecordBatch):
                yield one
                continue
            rows.append(one.attributes if isinstance(one, Event) else one)
            if len(rows) == size:
                yield rows
                rows = []
        yield rows


def sample_of(events: Any) -> Sample | None:
    """Up to some thousand events from all over a table or list, as parts of all their attributes."""
    from meetpoint.matching.index.segment import Sample

    if isinstance(events, pa.Table):
        stretches = max(min(_STRETCHES, events.num_rows), 1)
        length = min(-(-events.num_rows // stretches), _SAMPLE // stretches)
        begins = [at * events.num_rows // stretches for at in range(stretches)]
        picked = pa.concat_tables([events.slice(at, length) for at in begins]).combine_chunks().to_batches()
        if not picked or not picked[0].num_rows:
            return None
        return Sample(parts_of_batch(picked[0], _names_of(picked[0].schema)), picked[0].num_rows).shuffled()
    if isinstance(events, pa.RecordBatch):
        return sample_of(pa.Table.from_batches([events]))
    rows = [row.attributes if isinstance(row, Event) else row for row in events]
    rows = rows[:: max(len(rows) // _SAMPLE, 1)]
    names = {name for row in rows for name in _names_in(row)}
    return Sample(parts_of_rows(rows, names), len(rows)).shuffled() if rows else None


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
