"""`backtest`: a filter over a history that is too large for one process.

Each partition runs the core of `meetpoint.matching.backtest` on its batches and returns one small part. The parts are
summed on Spark, and those sums on the driver, which thus holds as many parts as a shuffle has partitions, however many
events there are. Only the answer itself grows: a bucket for every stretch of time with events. Five samples are kept,
at every step.

The row number of a sample counts rows in the order of partitions, as `events.toArrow()` has them: of the same rows in
the same order, `mp.backtest` gives exactly the same. Events after a shuffle may have another order each time, and then
other samples; the numbers stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.names import join_name, split_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.render import render_constraint
from meetpoint.language.values import Type
from meetpoint.matching.backtest import Backtest, Sample, backtest_batch, check_name, check_width, no_timestamps
from meetpoint.matching.tables.arrow_columns import read_batch
from meetpoint.matching.tables.columns import ColumnBatch, Columns
from meetpoint.spark.columns import check_filter, check_frame, schema_from_spark, unusable_columns
from meetpoint.spark.validation import refuse_type
from meetpoint.spark.worker_files import check_workers

__all__ = ["backtest"]

_ROW_BITS = 40
"""The bits of a row's number within its partition; the number of the partition stands above them."""
_PART_COLUMNS = "partition bigint, part binary"
_PACKED = "packed"
"""The attribute with a sample's whole row on its way, as Arrow writes it, so that every type comes back."""


def backtest(
    filter: str | Filter,  # noqa: A002
    events: DataFrame,
    *,
    time: str | None = None,
    width: timedelta | str = "1h",
    schema: Schema | None = None,
) -> Backtest:
    """Compute what a filter would have done on a DataFrame of events.

    - `events`: a table. Samples hold all its columns, so select those that matter first.
    - `time`: names the column of the timeline; `width` is that of its buckets, also as a text: 30s, 15m, 1h, 1d, 1w.
    - `schema`: checks the filter and the kinds of the columns.

    Raise FilterError, EventError or MeetpointError, before any job, where the filter, the schema or `time` does not fit
    the columns.

        found = backtest("price > 120", events, time="at", width="1d")
        print(found.hits, "of", found.events)
    """
    if not isinstance(filter, str | Filter):
        raise MeetpointError(f"backtest: the filter is of class {type(filter).__name__}; give a text or a Filter")
    check_frame(events, "events")
    if events.isStreaming:
        raise EventError("events: the DataFrame is a stream; backtest a table")
    step = check_width(width)
    text = filter if isinstance(filter, str) else filter.text
    if schema is not None:
        parse_filter(text, schema)
        _check_kinds(events.schema, schema)
    wanted = check_filter(text, events.schema)
    if time is not None:
        check_name("--time", time)
        _check_time(events.schema, time)
    check_workers(events.sparkSession)
    names = list(events.columns)
    # Plain names, because mapInArrow reads a dot in a name as a path.
    placed = events.toDF(*(f"c{at}" for at in range(len(names))))
    parts = placed.mapInArrow(_BacktestPartition(wanted, names, time, step), _PART_COLUMNS)
    sums = parts.repartition("partition").mapInArrow(_sum_partition, _PART_COLUMNS)
    total = _sum_parts(map(_decode, sums.toArrow()["part"].to_pylist()))
    if total is None:
        return Backtest(wanted.text)
    if total.error is not None:
        raise EventError(total.error)
    if time is not None and total.sum.events and not total.sum.buckets:
        raise no_timestamps(time, holds_other=False)
    return _finished(total, wanted)


# -- checks before any job ---------------------------------------------------------------------------------------------


def _check_kinds(columns: T.StructType, schema: Schema) -> None:
    """Raise EventError for a column of another kind than the schema's. Numbers may have any type and any bounds."""
    known = schema_from_spark(columns)
    unusable = unusable_columns(columns)
    for attribute in schema:
        found = known.get(attribute.name)
        if found is not None:
            if found.type.kind is not attribute.type.kind:
                refuse_type(attribute.path, str(found.type), str(attribute.type))
        elif unusable.get(attribute.name, "void") != "void":
            refuse_type(attribute.path, unusable[attribute.name], str(attribute.type))
        elif any(name.startswith(f"{attribute.name}.") for name in (*known.names, *unusable)):
            refuse_type(attribute.path, "struct", str(attribute.type))
        else:
            for depth in range(1, len(attribute.path)):
                above = join_name(attribute.path[:depth])
                if above in known:
                    refuse_type(attribute.path[:depth], str(known[above].type), "an object")


def _check_time(columns: T.StructType, time: str) -> None:
    name = join_name(split_name(time))
    known = schema_from_spark(columns)
    found = known.get(name)
    if found is not None and found.type is Type.TIMESTAMP:
        return
    others = (*known.names, *unusable_columns(columns))
    raise no_timestamps(time, any(other == name or other.startswith(f"{name}.") for other in others))


# -- parts -------------------------------------------------------------------------------------------------------------


class _PartialBacktest(msgspec.Struct):
    """The sum over some partitions, their numbers of rows, and the first error if there was one.

    The samples are packed, and their rows numbered within their partition, which stands above `_ROW_BITS`.
    """

    sum: Backtest
    rows: dict[int, int]
    error: str | None = None

    def __add__(self, other: _PartialBacktest) -> _PartialBacktest:
        rows = dict(self.rows)
        for partition, count in other.rows.items():
            rows[partition] = rows.get(partition, 0) + count
        return _PartialBacktest(self.sum + other.sum, rows, self.error or other.error)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_PartialBacktest, dec_hook=lambda _, value: Counter(value))


def _decode(data: bytes) -> _PartialBacktest:
    return _DECODER.decode(data)


def _row(partition: int, part: _PartialBacktest) -> pa.RecordBatch:
    arrays = [pa.array([partition], pa.int64()), pa.array([_ENCODER.encode(part)], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["partition", "part"])


def _sum_parts(parts: Iterable[_PartialBacktest]) -> _PartialBacktest | None:
    """Return the sum of parts; None of none. Parts of like size are added first, since adding copies all buckets of
    both.
    """
    sums: list[tuple[int, _PartialBacktest]] = []
    for part in parts:
        size = 1
        while sums and sums[-1][0] == size:
            part = sums.pop()[1] + part
            size *= 2
        sums.append((size, part))
    total: _PartialBacktest | None = None
    for _, part in reversed(sums):
        total = part if total is None else part + total
    return total


def _finished(total: _PartialBacktest, filter_: Filter) -> Backtest:
    """Return the sum with its samples unpacked and numbered through all partitions, and its near misses in order."""
    found = total.sum
    found.samples = [
        Sample(_row_number(total.rows, sample.row), _unpack_row(sample.attributes[_PACKED])) for sample in found.samples
    ]
    texts = [render_constraint(name, wanted) for each in filter_.conjunctions for name, wanted in each.constraints]
    found.near_misses = Counter({text: found.near_misses[text] for text in texts if text in found.near_misses})
    return found


def _row_number(rows: dict[int, int], row: int) -> int:
    partition = row >> _ROW_BITS
    return sum(count for other, count in rows.items() if other < partition) + (row & (1 << _ROW_BITS) - 1)


def _pack_row(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return bytes(sink.getvalue())


def _unpack_row(data: bytes) -> dict[str, Any]:
    with pa.ipc.open_stream(data) as stream:
        return read_batch(stream.read_next_batch())[0]


# -- in the workers ----------------------------------------------------------------------------------------------------


class _BacktestPartition:
    """Maps the batches of one partition to its part. An unreadable column is reported in it, not raised from a job."""

    def __init__(self, filter_: Filter, names: list[str], time: str | None, width: timedelta) -> None:
        self._filter = filter_
        self._names = names
        self._time = time
        self._width = width

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        part = _sum_parts(self._parts(batches, partition))
        if part is not None:
            yield _row(partition, part)

    def _parts(self, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[_PartialBacktest]:
        first = partition << _ROW_BITS
        for placed in batches:
            batch = placed.rename_columns(self._names)
            rows = range(first, first + batch.num_rows)
            try:
                found = backtest_batch(
                    self._filter, ColumnBatch(rows, Columns.of_batch(batch)), self._time, self._width
                )
            except MeetpointError as error:
                yield _PartialBacktest(Backtest(self._filter.text), {}, str(error))
                return
            found.samples = [
                Sample(sample.row, {_PACKED: _pack_row(batch.slice(sample.row - first, 1))}) for sample in found.samples
            ]
            yield _PartialBacktest(found, {partition: batch.num_rows})
            first += batch.num_rows


def _sum_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    part = _sum_parts(_decode(data.as_py()) for batch in batches for data in batch.column("part"))
    if part is not None:
        yield _row(0, part)
