"""Counts for `measure`: of values, of the constraints and keys of filters, and of the events that satisfy them.

The three `…Counter` classes run in workers. They map Arrow batches to rows that add up: grouped by all but their
counts, they give the counts of the whole.

Statistics of events take two queries. The first asks for presence, distinct values and quantiles, which Spark computes
itself; the second for common values, prefixes and suffixes, and a sample of the events (`ValueCounter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.names import join_name, split_name
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.syntax.render import render_constraint
from meetpoint.language.values import Kind, Type
from meetpoint.matching.index import Index
from meetpoint.matching.keys.feedback import MeasuredQuantiles
from meetpoint.matching.keys.key_filters import filter_of_key
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import PARTS, KeySort, MeetKey, canonical_name, code_of
from meetpoint.matching.keys.statistics import (
    ATTRIBUTES_MAX,
    COMMON_MAX,
    PARTS_MAX,
    QUANTILES,
    AttributeStatistics,
    Frequencies,
    Statistics,
    text_statistics,
)
from meetpoint.matching.keys.value_counts import EventValueCounts, read_value
from meetpoint.matching.tables.arrow_columns import find_array
from meetpoint.spark.columns import unusable_columns

__all__ = [
    "ACCURACY",
    "FILTER_ROWS",
    "QUARTILES",
    "ColumnStatistics",
    "FilterCounter",
    "SatisfiedCounter",
    "ValueCounts",
    "build_statistics",
    "count_columns",
    "count_values",
    "selected",
]

SAMPLE_BYTES_MAX = 8 << 20
"""The most bytes of a sample: where events are large, it has fewer."""
VALUE_ROWS = pa.schema(
    {"attribute": pa.string(), "sort": pa.string(), "item": pa.string(), "uses": pa.int64(), "sample": pa.binary()}
)
FILTER_ROWS = pa.schema(
    {"sort": pa.string(), "attribute": pa.string(), "item": pa.binary(), "uses": pa.int64(), "share": pa.float64()}
)
_ROWS = 65_536
"""The rows that are yielded at a time, and the entries that are counted before that."""
SAMPLE_ROWS = 2000
"""The number of events that feedback keeps."""
QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
ACCURACY = 10_000
"""The accuracy of quantiles: they are off by at most one of so many parts of all values."""
_SPARE = 1.5
"""The events that are drawn for each that is kept, so that chance does not leave too few."""
_AT_ONCE = 100
"""The number of attributes that one query asks about."""
_EVENLY = tuple((part + 0.5) / QUANTILES for part in range(QUANTILES))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ValueCounter(msgspec.Struct, frozen=True):
    """Maps events to the counts of their values, prefixes and suffixes, and to a sample of the events.

    Each event is sampled with the same probability; the number of the partition seeds the draw, so that a rerun draws
    the same.
    """

    types: dict[str, Type]
    chance: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        rng = np.random.default_rng([0, part])
        counts = EventValueCounts(self.types)
        taken: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            counts.add(batch)
            some = batch.filter(pa.array(rng.random(batch.num_rows) < self.chance))
            if some.num_rows and size < SAMPLE_BYTES_MAX:
                taken.append(some)
                size += some.nbytes
        rows: list[tuple[Any, ...]] = [(name, sort.value, item, uses, None) for name, sort, item, uses in counts.rows()]
        if taken:
            rows.append(("", "sample", str(part), 0, _stream(taken)))
        yield from _in_batches(rows, VALUE_ROWS)


def _stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_sample(data: bytes) -> pa.Table:
    """Return the events of a row of sort `sample`."""
    return pa.ipc.open_stream(data).read_all()


class FilterCounter(msgspec.Struct, frozen=True):
    """Maps filters (a column of texts) to the counts of their constraints and meet keys.

    `share` is the share of events that the plan expects at a key. Rows of sort `filter` and `refused` count filters.
    """

    plan: bytes

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
                    yield from _in_batches(_filter_rows(counts, plan), FILTER_ROWS)
                    counts.clear()
        yield from _in_batches(_filter_rows(counts, plan), FILTER_ROWS)


_ENCODER = msgspec.msgpack.Encoder()


def _constraints(filter_: Filter) -> set[tuple[str, str, bytes]]:
    """Return the constraints of a filter, each once, however many of its conjunctions have it."""
    return {
        ("constraint", canonical_name(name), render_constraint(name, constraint).encode())
        for conjunction in filter_.conjunctions
        for name, constraint in conjunction.constraints
    }


def _filter_rows(counts: Counter[tuple[str, str, bytes]], plan: KeyPlan) -> list[tuple[str, str, bytes, int, float]]:
    rows = []
    for (sort, attribute, item), uses in counts.items():
        share = plan.share((msgspec.msgpack.decode(item, type=MeetKey),)) if sort == "key" else 1.0
        rows.append((sort, attribute, item, uses, share))
    return rows


class SatisfiedCounter(msgspec.Struct, frozen=True):
    """Maps events to the number of them that satisfy each constraint and have each key; keys are numbered after
    constraints.
    """

    constraints: tuple[bytes, ...]
    keys: tuple[bytes, ...]

    SCHEMA = "number INT, events BIGINT"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _index_of(self.constraints, self.keys)
        event_counts = np.zeros(len(self.constraints) + len(self.keys), np.int64)
        for batch in batches:
            for pairs in index.pairs(batch):
                counts = np.bincount(pairs.subscriptions, minlength=len(pairs.ids))
                event_counts[np.asarray(pairs.ids, np.int64)] += counts
        numbers = np.flatnonzero(event_counts)
        yield pa.record_batch(
            [pa.array(numbers.astype(np.int32)), pa.array(event_counts[numbers])], names=["number", "events"]
        )


@lru_cache(maxsize=2)
def _index_of(constraints: tuple[bytes, ...], keys: tuple[bytes, ...]) -> Index[int]:
    parser = FilterParser()
    filters = [parser.parse(text.decode()) for text in constraints]
    filters += [filter_of_key(msgspec.msgpack.decode(key, type=MeetKey)) for key in keys]
    return Index.from_filters(enumerate(filters))


def _in_batches(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), _ROWS):
        columns = zip(*rows[at : at + _ROWS], strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


# -- presence, distinct values, quantiles ------------------------------------------------------------------------------


class ColumnStatistics(msgspec.Struct, frozen=True):
    """The answers of one query about an attribute; `attribute` is None for a column whose values have no kind."""

    attribute: Attribute | None
    type: str
    there: int
    distinct: int = 0
    quartiles: tuple[Any, ...] = ()
    line: MeasuredQuantiles | None = None
    nans: int = 0


def count_columns(events: DataFrame, schema: Schema) -> tuple[int, dict[str, ColumnStatistics]]:
    """Return the number of events, and their attributes: objects before their parts."""
    odd = unusable_columns(events.schema)
    known = {attribute.name: attribute for attribute in schema}
    leaves = [*known, *odd]
    objects = {join_name(path[:depth]) for path in map(split_name, leaves) for depth in range(1, len(path))}
    names = sorted({*leaves, *objects}, key=_place_among(events.columns))
    rows, columns = 0, {}
    for at in range(0, max(len(names), 1), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        expressions = [F.count(F.lit(1)).alias("rows")]
        for number, name in enumerate(some):
            expressions += [one.alias(f"{what}{number}") for what, one in _questions(name, known.get(name)).items()]
        answers = events.agg(*expressions).toArrow().to_pylist()[0]
        rows = answers["rows"]
        for number, name in enumerate(some):
            shown = odd.get(name, "object") if name not in known else str(known[name].type)
            columns[name] = _column(known.get(name), shown, {key: answers.get(f"{key}{number}") for key in _ANSWERS})
    return rows, columns


_ANSWERS = ("there", "distinct", "quantiles", "nans")


def _place_among(columns: Sequence[str]) -> Callable[[str], tuple[int, tuple[str, ...]]]:
    place = {name: at for at, name in enumerate(columns)}
    return lambda name: (place[split_name(name)[0]], split_name(name))


def _questions(name: str, attribute: Attribute | None) -> dict[str, Column]:
    column = F.col(_quoted(split_name(name)))
    expressions = {"there": F.count(column)}
    if attribute is None:
        return expressions
    expressions["distinct"] = F.approx_count_distinct(column)
    if attribute.type is Type.FLOAT:
        expressions["nans"] = F.count_if(F.isnan(column))
        column = F.when(~F.isnan(column), column)
    if attribute.type.kind is Kind.NUMBER:
        expressions["quantiles"] = F.percentile_approx(column.cast("double"), _places(), ACCURACY)
    elif attribute.type is Type.TIMESTAMP:
        expressions["quantiles"] = F.percentile_approx(column, _places(), ACCURACY)
    return expressions


def _places() -> Column:
    """Return the ranks of quantiles as one short expression: a literal each would be a plan of tens of thousands."""
    return F.split(F.lit(",".join(map(repr, (*QUARTILES, *_EVENLY)))), ",").cast("array<double>")


def _quoted(path: Sequence[str]) -> str:
    return ".".join("`" + segment.replace("`", "``") + "`" for segment in path)


def _column(attribute: Attribute | None, shown: str, answers: Mapping[str, Any]) -> ColumnStatistics:
    quantiles = answers["quantiles"]
    if attribute is None or not quantiles:
        return ColumnStatistics(attribute, shown, answers["there"], answers["distinct"] or 0, nans=answers["nans"] or 0)
    kind = attribute.type.kind
    quartiles, evenly = quantiles[: len(QUARTILES)], quantiles[len(QUARTILES) :]
    if kind is Kind.TIMESTAMP:
        quartiles, evenly = [_utc(value) for value in quartiles], [_micros(_utc(value)) for value in evenly]
    elif attribute.type is Type.INTEGER:
        quartiles = [int(value) for value in quartiles]
    line = MeasuredQuantiles(kind, tuple(map(float, evenly)))
    return ColumnStatistics(
        attribute, shown, answers["there"], answers["distinct"], tuple(quartiles), line, answers["nans"] or 0
    )


def _utc(value: datetime) -> datetime:
    """Return a timestamp in UTC; one without a zone is UTC, as everywhere."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)


# -- common values and a sample ----------------------------------------------------------------------------------------


class CommonItems(msgspec.Struct, frozen=True):
    """Common items of an attribute with their counts; the number of items, and of their uses."""

    common: dict[str, int]
    items: int
    uses: int


class ValueCounts(msgspec.Struct, frozen=True):
    """Common items by attribute and sort of key, and a sample of the events."""

    items: dict[tuple[str, str], CommonItems]
    sample: pa.Table | None

    def of(self, name: str, sort: KeySort) -> CommonItems:
        return self.items.get((name, sort), CommonItems({}, 0, 0))


def count_values(events: DataFrame, schema: Schema, rows: int) -> ValueCounts:
    """Count common values, prefixes and suffixes of all attributes, and draw a sample of the events."""
    types = {attribute.name: attribute.type for attribute in schema}
    if not types or not rows:
        return ValueCounts({}, None)
    counter = ValueCounter(types, _SPARE * SAMPLE_ROWS / rows)
    mapped = selected(events, types).mapInArrow(counter, from_arrow_schema(VALUE_ROWS))
    each = mapped.groupBy("attribute", "sort", "item").agg(
        F.sum("uses").alias("uses"), F.first("sample", ignorenulls=True).alias("sample")
    )
    of_sort = Window.partitionBy("attribute", "sort")
    ranked = each.select(
        "*",
        F.row_number().over(of_sort.orderBy(F.desc("uses"), "item")).alias("rank"),
        F.sum("uses").over(of_sort).alias("all_uses"),
        F.count(F.lit(1)).over(of_sort).alias("items"),
    )
    most = F.when(F.col("sort") == KeySort.VALUE.value, COMMON_MAX).otherwise(PARTS_MAX)
    rows_found = ranked.where((F.col("rank") <= most) | (F.col("sort") == "sample")).toArrow().to_pylist()
    found = sorted(rows_found, key=lambda row: row["rank"])
    items: dict[tuple[str, str], CommonItems] = {}
    for row in found:
        if row["sort"] != "sample":
            empty = CommonItems({}, row["items"], row["all_uses"])
            items.setdefault((row["attribute"], row["sort"]), empty).common[row["item"]] = row["uses"]
    return ValueCounts(items, _sampled([read_sample(row["sample"]) for row in found if row["sort"] == "sample"]))


def selected(events: DataFrame, names: Iterable[str]) -> DataFrame:
    """Select the columns that hold some attributes; at least one, since a row must have one to be there."""
    heads = {split_name(name)[0] for name in names}
    kept = [name for name in events.columns if name in heads] or events.columns[:1]
    return events.select(*[F.col(_quoted([name])) for name in kept])


def _sampled(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return as many of the drawn events as are kept, in no particular order, and always the same ones."""
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    kept = np.random.default_rng(0).permutation(whole.num_rows)[:SAMPLE_ROWS]
    sample = whole.take(pa.array(kept)).combine_chunks()
    while sample.nbytes > SAMPLE_BYTES_MAX and sample.num_rows > 1:
        sample = sample.take(pa.array(np.arange(sample.num_rows // 2)))
    return sample


# -- statistics --------------------------------------------------------------------------------------------------------


def build_statistics(rows: int, columns: Mapping[str, ColumnStatistics], counts: ValueCounts) -> Statistics:
    """Return the statistics of so many events, by their counts."""
    kept = sorted(columns, key=lambda name: (-columns[name].there, name))[:ATTRIBUTES_MAX]
    return Statistics(rows, {name: _of_column(name, columns[name], counts, rows) for name in sorted(kept)})


def _of_column(name: str, column: ColumnStatistics, counts: ValueCounts, rows: int) -> AttributeStatistics:
    there = column.there / rows if rows else 0.0
    if column.attribute is None or not column.there:
        return AttributeStatistics.of_object(there)
    counted = counts.of(name, KeySort.VALUE)
    rest, others = column.there - sum(counted.common.values()), column.distinct - len(counted.common)
    kind, type_ = column.attribute.type.kind, column.attribute.type
    if kind is Kind.STRING:
        values = Frequencies.of_common(counted.common, rows, rest, others)
        return AttributeStatistics.of_text(there, values, _part_frequencies(name, counts, rows))
    by_code: dict[int, int] = {}
    for text, uses in counted.common.items():  # integers above 2**53 may share a code
        code = code_of(read_value(text, type_))
        by_code[code] = by_code.get(code, 0) + uses
    return AttributeStatistics.of_line(there, kind, Frequencies.of_common(by_code, rows, rest, others), _codes(column))


def _part_frequencies(name: str, counts: ValueCounts, rows: int) -> dict[KeySort, Frequencies[str]]:
    """Return frequencies of prefixes and suffixes by their counts, of grams by the sample: there are too many to count
    all.
    """
    batches = [] if counts.sample is None else counts.sample.to_batches()
    texts = [text for batch in batches for text in find_array(batch, name).to_pylist() if text is not None]
    parts = text_statistics(texts, sum(batch.num_rows for batch in batches)).parts if texts else {}
    for sort in PARTS:
        counted = counts.of(name, sort)
        if sort is not KeySort.GRAM or sort not in parts:
            rest, others = counted.uses - sum(counted.common.values()), counted.items - len(counted.common)
            parts[sort] = Frequencies.of_common(counted.common, rows, rest, others)
    return parts


def _codes(column: ColumnStatistics) -> list[int]:
    """Return codes that stand for equally many values each, NaNs after all others."""
    line = column.line
    if line is None:
        return [code_of(float("nan"))]
    codes = [int(value) if line.kind is Kind.TIMESTAMP else code_of(value) for value in line.values]
    return codes + [code_of(float("nan"))] * round(column.nans / (column.there - column.nans) * len(codes))
