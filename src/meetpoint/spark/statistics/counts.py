"""What `measure` does in workers: counts of values, of what subscriptions ask, and of the events that satisfy it.

Each class here maps Arrow batches to rows that add up: whoever groups them by all but their counts has the counts of
the whole.


What events hold, counted on Spark: two queries, and the statistics that they make.

The first asks for presence, distinct values and quantiles, which Spark counts by itself; the second for common values,
prefixes and suffixes, and a sample of the events, counted in workers (see `tallying`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "ACCURACY",
    "QUARTILES",
    "SAMPLE_BYTES_MAX",
    "AskedRows",
    "Column",
    "MetRows",
    "Tallies",
    "TallyRows",
    "Things",
    "columns_of",
    "read_sample",
    "selected",
    "statistics_of",
    "tallies_of",
]

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
        tallies = EventValueCounts(self.types)
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


SAMPLE_ROWS = 2000
"""Events that feedback keeps."""
QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
ACCURACY = 10_000
"""Quantiles are off by at most one of so many parts of all values."""
_SPARE = 1.5
"""Events that are drawn for each that is kept, so that chance does not leave too few."""
_AT_ONCE = 100
"""Attributes that one query asks about."""
_EVENLY = tuple((part + 0.5) / QUANTILES for part in range(QUANTILES))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# -- columns -----------------------------------------------------------------------------------------------------------


class Column(msgspec.Struct, frozen=True):
    """What one query says of an attribute; `attribute` is None for what holds values of no kind."""

    attribute: Attribute | None
    type: str
    there: int
    distinct: int = 0
    quartiles: tuple[Any, ...] = ()
    line: MeasuredQuantiles | None = None
    nans: int = 0


def columns_of(events: DataFrame, schema: Schema) -> tuple[int, dict[str, Column]]:
    """How many events there are, and their attributes: objects before their parts."""
    odd = unusable_columns(events.schema)
    known = {attribute.name: attribute for attribute in schema}
    leaves = [*known, *odd]
    objects = {join_name(path[:depth]) for path in map(split_name, leaves) for depth in range(1, len(path))}
    names = sorted({*leaves, *objects}, key=_place_among(events.columns))
    rows, columns = 0, {}
    for at in range(0, max(len(names), 1), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        asked = [F.count(F.lit(1)).alias("rows")]
        for number, name in enumerate(some):
            asked += [one.alias(f"{what}{number}") for what, one in _questions(name, known.get(name)).items()]
        said = events.agg(*asked).toArrow().to_pylist()[0]
        rows = said["rows"]
        for number, name in enumerate(some):
            shown = odd.get(name, "object") if name not in known else str(known[name].type)
            columns[name] = _column(known.get(name), shown, {key: said.get(f"{key}{number}") for key in _ANSWERS})
    return rows, columns


_ANSWERS = ("there", "distinct", "quantiles", "nans")


def _place_among(columns: Sequence[str]) -> Any:
    place = {name: at for at, name in enumerate(columns)}
    return lambda name: (place[split_name(name)[0]], split_name(name))


def _questions(name: str, attribute: Attribute | None) -> dict[str, Any]:
    column = F.col(_quoted(split_name(name)))
    asked = {"there": F.count(column)}
    if attribute is None:
        return asked
    asked["distinct"] = F.approx_count_distinct(column)
    if attribute.type is Type.FLOAT:
        asked["nans"] = F.count_if(F.isnan(column))
        column = F.when(~F.isnan(column), column)
    if attribute.type.kind is Kind.NUMBER:
        asked["quantiles"] = F.percentile_approx(column.cast("double"), _places(), ACCURACY)
    elif attribute.type is Type.TIMESTAMP:
        asked["quantiles"] = F.percentile_approx(column, _places(), ACCURACY)
    return asked


def _places() -> Any:
    """The places of quantiles as one short expression: a literal each would be a plan of tens of thousands."""
    return F.split(F.lit(",".join(map(repr, (*QUARTILES, *_EVENLY)))), ",").cast("array<double>")


def _quoted(path: Sequence[str]) -> str:
    return ".".join("`" + segment.replace("`", "``") + "`" for segment in path)


def _column(attribute: Attribute | None, shown: str, said: Mapping[str, Any]) -> Column:
    quantiles = said["quantiles"]
    if attribute is None or not quantiles:
        return Column(attribute, shown, said["there"], said["distinct"] or 0, nans=said["nans"] or 0)
    kind = attribute.type.kind
    quartiles, evenly = quantiles[: len(QUARTILES)], quantiles[len(QUARTILES) :]
    if kind is Kind.TIMESTAMP:
        quartiles, evenly = [_utc(value) for value in quartiles], [_micros(_utc(value)) for value in evenly]
    elif attribute.type is Type.INTEGER:
        quartiles = [int(value) for value in quartiles]
    line = MeasuredQuantiles(kind, tuple(map(float, evenly)))
    return Column(attribute, shown, said["there"], said["distinct"], tuple(quartiles), line, said["nans"] or 0)


def _utc(value: datetime) -> datetime:
    """As everywhere, a timestamp without a zone is UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)


# -- tallies -----------------------------------------------------------------------------------------------------------


class Things(msgspec.Struct, frozen=True):
    """Common things of an attribute with their counts; how many things there are, and how often in all."""

    common: dict[str, int]
    things: int
    uses: int


class Tallies(msgspec.Struct, frozen=True):
    """By attribute and sort of key what is common, and a sample of the events."""

    things: dict[tuple[str, str], Things]
    sample: pa.Table | None

    def of(self, name: str, sort: KeySort) -> Things:
        return self.things.get((name, sort), Things({}, 0, 0))


def tallies_of(events: DataFrame, schema: Schema, rows: int) -> Tallies:
    """Common values, prefixes and suffixes of all attributes, and a sample of the events."""
    types = {attribute.name: attribute.type for attribute in schema}
    if not types or not rows:
        return Tallies({}, None)
    mapped = selected(events, types).mapInArrow(TallyRows(types, _SPARE * SAMPLE_ROWS / rows), TallyRows.SCHEMA)
    each = mapped.groupBy("attribute", "sort", "thing").agg(
        F.sum("uses").alias("uses"), F.first("sample", ignorenulls=True).alias("sample")
    )
    of_sort = Window.partitionBy("attribute", "sort")
    ranked = each.select(
        "*",
        F.row_number().over(of_sort.orderBy(F.desc("uses"), "thing")).alias("rank"),
        F.sum("uses").over(of_sort).alias("all_uses"),
        F.count(F.lit(1)).over(of_sort).alias("things"),
    )
    most = F.when(F.col("sort") == KeySort.VALUE.value, COMMON_MAX).otherwise(PARTS_MAX)
    rows_found = ranked.where((F.col("rank") <= most) | (F.col("sort") == "sample")).toArrow().to_pylist()
    found = sorted(rows_found, key=lambda row: row["rank"])
    things: dict[tuple[str, str], Things] = {}
    for row in found:
        if row["sort"] != "sample":
            empty = Things({}, row["things"], row["all_uses"])
            things.setdefault((row["attribute"], row["sort"]), empty).common[row["thing"]] = row["uses"]
    return Tallies(things, _sampled([read_sample(row["sample"]) for row in found if row["sort"] == "sample"]))


def selected(events: DataFrame, names: Iterable[str]) -> DataFrame:
    """Only the columns that hold some attributes; one at least, since a row must have one to be there."""
    heads = {split_name(name)[0] for name in names}
    kept = [name for name in events.columns if name in heads] or events.columns[:1]
    return events.select(*[F.col(_quoted([name])) for name in kept])


def _sampled(tables: Sequence[pa.Table]) -> pa.Table | None:
    """As many of the events drawn as are kept, in no particular order, and always the same ones."""
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    kept = np.random.default_rng(0).permutation(whole.num_rows)[:SAMPLE_ROWS]
    sample = whole.take(pa.array(kept)).combine_chunks()
    while sample.nbytes > SAMPLE_BYTES_MAX and sample.num_rows > 1:
        sample = sample.take(pa.array(np.arange(sample.num_rows // 2)))
    return sample


# -- statistics --------------------------------------------------------------------------------------------------------


def statistics_of(rows: int, columns: Mapping[str, Column], tallies: Tallies) -> Statistics:
    """The statistics of so many events, by what was counted."""
    kept = sorted(columns, key=lambda name: (-columns[name].there, name))[:ATTRIBUTES_MAX]
    return Statistics(rows, {name: _of_column(name, columns[name], tallies, rows) for name in sorted(kept)})


def _of_column(name: str, column: Column, tallies: Tallies, rows: int) -> AttributeStatistics:
    there = column.there / rows if rows else 0.0
    if column.attribute is None or not column.there:
        return AttributeStatistics.of_object(there)
    counted = tallies.of(name, KeySort.VALUE)
    rest, others = column.there - sum(counted.common.values()), column.distinct - len(counted.common)
    kind, type_ = column.attribute.type.kind, column.attribute.type
    if kind is Kind.STRING:
        values = Frequencies.of_common(counted.common, rows, rest, others)
        return AttributeStatistics.of_text(there, values, _part_frequencies(name, tallies, rows))
    by_code: dict[int, int] = {}
    for text, uses in counted.common.items():  # integers beyond 2**53 may share a code
        code = code_of(read_value(text, type_))
        by_code[code] = by_code.get(code, 0) + uses
    return AttributeStatistics.of_line(there, kind, Frequencies.of_common(by_code, rows, rest, others), _codes(column))


def _part_frequencies(name: str, tallies: Tallies, rows: int) -> dict[KeySort, Frequencies[str]]:
    """Of prefixes and suffixes by their counts, of grams by the sample: there are too many to count them all."""
    batches = [] if tallies.sample is None else tallies.sample.to_batches()
    texts = [text for batch in batches for text in find_array(batch, name).to_pylist() if text is not None]
    parts = text_statistics(texts, sum(batch.num_rows for batch in batches)).parts if texts else {}
    for sort in PARTS:
        counted = tallies.of(name, sort)
        if sort is not KeySort.GRAM or sort not in parts:
            rest, others = counted.uses - sum(counted.common.values()), counted.things - len(counted.common)
            parts[sort] = Frequencies.of_common(counted.common, rows, rest, others)
    return parts


def _codes(column: Column) -> list[int]:
    """Codes that stand for equally many values each, NaNs behind all others."""
    line = column.line
    if line is None:
        return [code_of(float("nan"))]
    codes = [int(value) if line.kind is Kind.TIMESTAMP else code_of(value) for value in line.values]
    return codes + [code_of(float("nan"))] * round(column.nans / (column.there - column.nans) * len(codes))
