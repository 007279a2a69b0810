"""What `measure` does in workers: counts of values, of what subscriptions ask, and of the events that satisfy it.

Each class here maps Arrow batches to rows that add up: whoever groups them by all but their counts has the counts of
the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.syntax.render import render_constraint
from meetpoint.language.values import Type
from meetpoint.matching.index import Index
from meetpoint.matching.keys.key_filters import filter_of_key
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import MeetKey, canonical_name
from meetpoint.matching.keys.value_counts import EventTallies

__all__ = ["SAMPLE_BYTES_MAX", "AskedRows", "MetRows", "TallyRows", "read_sample"]

SAMPLE_BYTES_MAX = 8 << 20
"""Bytes of events that a sample takes: where events are large, it has fewer."""
_ROWS = 65_536
"""Rows that are handed over at a time, and things that are counted before they are."""


class TallyRows(msgspec.Struct, frozen=True):
    """Events to the counts of their values, prefixes and suffixes, and to some of the events themselves.

    An event is taken into the sample with a chance; which ones are is decided by the number of the partition.
    """

    types: dict[str, Type]
    chance: float

    SCHEMA = "attribute STRING, sort STRING, thing STRING, uses BIGINT, sample BINARY"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        rng = np.random.default_rng([0, part])
        tallies = EventTallies(self.types)
        taken: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            tallies.add(batch)
            some = batch.filter(pa.array(rng.random(batch.num_rows) < self.chance))
            if some.num_rows and size < SAMPLE_BYTES_MAX:
                taken.append(some)
                size += some.nbytes
        rows: list[tuple[Any, ...]] = [
            (name, sort.value, thing, uses, None) for name, sort, thing, uses in tallies.rows()
        ]
        if taken:
            rows.append(("", "sample", str(part), 0, _stream(taken)))
        yield from _handed_over(rows, _TALLY)


_TALLY = pa.schema(
    [
        ("attribute", pa.string()),
        ("sort", pa.string()),
        ("thing", pa.string()),
        ("uses", pa.int64()),
        ("sample", pa.binary()),
    ]
)


def _stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_sample(data: bytes) -> pa.Table:
    """The events of a row of sort `sample`."""
    return pa.ipc.open_stream(data).read_all()


class AskedRows(msgspec.Struct, frozen=True):
    """Filters (a column of texts) to the counts of their constraints and of the meet keys that they are filed under.

    `share` is the share of events that the plan expects at a key. Rows of sort `filter` and `refused` count filters.
    """

    plan: bytes

    SCHEMA = "sort STRING, attribute STRING, thing BINARY, uses BIGINT, share DOUBLE"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = KeyPlan.from_bytes(self.plan)
        parser = FilterParser()
        counts: Counter[tuple[str, str, bytes]] = Counter()
        for batch in batches:
            for text in batch.column(0).to_pylist():
                try:
                    filter_ = parser.parse(text)
                except FilterError:
                    counts["refused", "", b""] += 1
                    continue
                counts["filter", "", b""] += 1
                counts.update(_constraints(filter_))
                counts.update(("key", key.attribute, _ENCODER.encode(key)) for key in plan.keys_of_filter(filter_))
                if len(counts) > _ROWS:
                    yield from _handed_over(_asked_rows(counts, plan), _ASKED)
                    counts.clear()
        yield from _handed_over(_asked_rows(counts, plan), _ASKED)


_ENCODER = msgspec.msgpack.Encoder()
_ASKED = pa.schema(
    [
        ("sort", pa.string()),
        ("attribute", pa.string()),
        ("thing", pa.binary()),
        ("uses", pa.int64()),
        ("share", pa.float64()),
    ]
)


def _constraints(filter_: Filter) -> set[tuple[str, str, bytes]]:
    """The constraints of a filter, each once, however many of its conjunctions have it."""
    return {
        ("constraint", canonical_name(name), render_constraint(name, constraint).encode())
        for conjunction in filter_.conjunctions
        for name, constraint in conjunction.constraints
    }


def _asked_rows(counts: Counter[tuple[str, str, bytes]], plan: KeyPlan) -> list[tuple[str, str, bytes, int, float]]:
    rows = []
    for (sort, attribute, thing), uses in counts.items():
        share = plan.share((msgspec.msgpack.decode(thing, type=MeetKey),)) if sort == "key" else 1.0
        rows.append((sort, attribute, thing, uses, share))
    return rows


class MetRows(msgspec.Struct, frozen=True):
    """Events to how many of them satisfy each constraint and have each key, by their numbers, keys behind."""

    constraints: tuple[bytes, ...]
    keys: tuple[bytes, ...]

    SCHEMA = "number INT, events BIGINT"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _index_of(self.constraints, self.keys)
        met = np.zeros(len(self.constraints) + len(self.keys), np.int64)
        for batch in batches:
            for pairs in index.pairs(batch):
                counts = np.bincount(pairs.subscriptions, minlength=len(pairs.ids))
                met[np.asarray(pairs.ids, np.int64)] += counts
        numbers = np.flatnonzero(met)
        yield pa.record_batch([pa.array(numbers.astype(np.int32)), pa.array(met[numbers])], names=["number", "events"])


@lru_cache(maxsize=2)
def _index_of(constraints: tuple[bytes, ...], keys: tuple[bytes, ...]) -> Index[int]:
    parser = FilterParser()
    filters = [parser.parse(text.decode()) for text in constraints]
    filters += [filter_of_key(msgspec.msgpack.decode(key, type=MeetKey)) for key in keys]
    return Index.from_filters(enumerate(filters))


def _handed_over(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), _ROWS):
        columns = zip(*rows[at : at + _ROWS], strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)
