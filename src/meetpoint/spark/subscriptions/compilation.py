"""Compilation: workers parse the filters of a DataFrame, and the driver builds the index.

A worker turns some ten thousand filters at a time into rank form, which is small and quick to merge; its output also
has the ids, the texts and the rows that were set aside. The driver drops ids that occur a second time, merges, compiles
and writes the files of a version. Rows are told apart by their place in the DataFrame: of two rows with one id the
first stays, whichever worker meets it.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.names import split_name
from meetpoint.language.schema.schema import Schema, show_value
from meetpoint.language.syntax.tree import kind_compared, predicates
from meetpoint.matching.io.rejects import RAW_MAX, Reject, reject
from meetpoint.matching.io.subscriptions import id_repeated, unparsed_subscriptions
from meetpoint.spark.subscriptions.store import (
    FILTERS_FILE,
    INDEX_FILE,
    REJECTED_FILE,
    SAMPLE_FILE,
    AttributeUse,
    VersionContents,
)
from meetpoint.spark.worker_files import check_workers

if TYPE_CHECKING:
    from meetpoint.matching.index.rank_form import PackedRankForm, RankForm

__all__ = ["COLUMNS", "ID_TYPES", "parse", "write_version"]

COLUMNS = ("id", "filter", "subscriber", "broken")
"""The columns that are parsed; `broken` is a line of a file that is no row, else NULL."""
ID_TYPES = {
    "string": pa.string(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
"""The types of ids: Spark's name and Arrow's."""
CHUNK = 32_768
"""The number of filters that a worker holds at a time."""
TASKS_MAX = 64
SAMPLE_KEPT = 2048
"""The number of events that are kept with a version."""
_TASKS = 8
"""The tasks where the session does not say how many run at once."""
_SENT = "part BINARY, size BIGINT"

_log = logging.getLogger("meetpoint.spark")

Array: TypeAlias = "np.ndarray[Any, Any]"
_Comparisons: TypeAlias = dict[tuple[str, str | None], tuple[int, str]]
"""An attribute and the kind that it is compared as, with the first row and filter that does so."""


class _ParsedChunk(msgspec.Struct, frozen=True):
    """The result of one chunk, as a worker sends it."""

    good: pa.Table  # place, id, filter, subscriber, in the order of the rank form
    bad: pa.Table  # place, id, filter, reason, named: whether its id counts as taken
    rows: PackedRankForm
    seen: _Comparisons


class ParsedSubscriptions(msgspec.Struct, frozen=True):
    """All subscriptions: the good ones, as texts and in rank form, and those that were set aside."""

    filters: pa.Table  # id, filter, subscriber
    rejected: pa.Table  # row, id, filter, reason
    rows: RankForm | None
    uses: tuple[AttributeUse, ...]
    id_type: str


# -- in the workers ----------------------------------------------------------------------------------------------------


class _RecordingParser(FilterParser):
    """A parser that records the filters that it parsed in full: all others have the shape of one of them."""

    def __init__(self, schema: Schema | None) -> None:
        super().__init__(schema)
        self.in_full: list[Filter] = []

    def _parse_whole(self, text: str) -> Any:
        found = super()._parse_whole(text)
        self.in_full.append(found[0])
        return found


def _parse_batches(batches: Iterable[pa.RecordBatch], *, schema: Schema | None) -> Iterator[pa.RecordBatch]:
    """Map rows of subscriptions to chunks, pickled and compressed."""
    parser = _RecordingParser(schema)
    for table in _chunks(batches):
        part = pickle.dumps(_parse_chunk(table, parser), pickle.HIGHEST_PROTOCOL)
        packed = pa.compress(part, codec="zstd", asbytes=True)
        yield pa.record_batch({"part": pa.array([packed], pa.binary()), "size": pa.array([len(part)], pa.int64())})


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= CHUNK:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting)


def _parse_chunk(table: pa.Table, parser: _RecordingParser) -> _ParsedChunk:
    from meetpoint.matching.index.filter_reader import gather
    from meetpoint.matching.index.rank_form import PackedRankForm

    table = table.sort_by("place")  # else an id's first row would not be the first of the DataFrame
    readable = pc.is_null(table["broken"])
    broken, table = table.filter(pc.invert(readable)), table.filter(readable)
    places = table["place"].to_pylist()
    rejects: list[Reject] = []
    refused: set[int] = set()
    good: list[int] = []
    filters: list[Filter] = []
    seen: _Comparisons = {}
    for one in unparsed_subscriptions(table.select(["id", "filter", "subscriber"]), rejects.append):
        try:
            filter_ = parser.parse(one.text)
        except FilterError as error:
            rejects.append(reject("subscriptions", one.row, f"id {show_value(one.id)}: {error}", one.text))
            refused.add(one.row)
            continue
        good.append(one.row)
        filters.append(filter_)
        while parser.in_full:
            for predicate in predicates(parser.in_full.pop().tree):
                seen.setdefault((predicate.attribute, kind_compared(predicate)), (places[one.row], one.text))
    reasons = [one.reason for one in rejects]
    named = [one.row in refused for one in rejects]
    bad = pa.concat_tables(
        [
            _set_aside(table.take(pa.array([one.row for one in rejects], pa.int64())), "filter", reasons, named),
            _set_aside(broken, "broken", ["the line cannot be read; correct it"] * len(broken), [False] * len(broken)),
        ]
    )
    texts = table.take(pa.array(good, pa.int64())).select(["place", "id", "filter", "subscriber"])
    return _ParsedChunk(texts, bad, PackedRankForm.of(gather(filters)), seen)


def _set_aside(table: pa.Table, raw: str, reasons: list[str], named: list[bool]) -> pa.Table:
    return pa.table(
        {
            "place": table["place"],
            "id": table["id"],
            "filter": pc.utf8_slice_codeunits(table[raw], 0, RAW_MAX),
            "reason": pa.array(reasons, pa.string()),
            "named": pa.array(named, pa.bool_()),
        }
    )


# -- on the driver -----------------------------------------------------------------------------------------------------


def parse(source: DataFrame, id_type: str, schema: Schema | None) -> ParsedSubscriptions:
    """Parse the subscriptions of a DataFrame that has the columns `COLUMNS`, by one job."""
    check_workers(source.sparkSession)
    started = time.perf_counter()
    _log.info("compile: parsing the filters")
    placed = source.select(F.monotonically_increasing_id().alias("place"), *COLUMNS)
    sent = placed.repartition(_tasks(source.sparkSession)).mapInArrow(partial(_parse_batches, schema=schema), _SENT)
    parsed = _merge_chunks([_unpack_chunk(one) for one in sent.toArrow().to_pylist()], id_type)
    _log.info(
        "compile: %s filters parsed and %s rows set aside in %.1f s",
        f"{parsed.filters.num_rows:,}",
        f"{parsed.rejected.num_rows:,}",
        time.perf_counter() - started,
    )
    return parsed


def _unpack_chunk(sent: dict[str, Any]) -> _ParsedChunk:
    part: _ParsedChunk = pickle.loads(pa.decompress(sent["part"], sent["size"], codec="zstd"))
    return part


def _tasks(spark: SparkSession) -> int:
    """Return the number of tasks that run at once, up to `TASKS_MAX`."""
    from pyspark.errors import PySparkException

    try:
        wanted = int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect has no context
        wanted = int(spark.conf.get("spark.default.parallelism", str(_TASKS)) or _TASKS)
    return max(1, min(wanted, TASKS_MAX))


def _merge_chunks(parts: list[_ParsedChunk], id_type: str) -> ParsedSubscriptions:
    from meetpoint.matching.index.rank_form import keep, merge

    ids = ID_TYPES[id_type]
    texts = pa.schema([("place", pa.int64()), ("id", ids), ("filter", pa.string()), ("subscriber", pa.string())])
    faults = pa.schema(
        [("place", pa.int64()), ("id", ids), ("filter", pa.string()), ("reason", pa.string()), ("named", pa.bool_())]
    )
    good = pa.concat_tables([texts.empty_table(), *(part.good.cast(texts) for part in parts)])
    bad = pa.concat_tables([faults.empty_table(), *(part.bad.cast(faults) for part in parts)])
    kept = _first_of_each_id(good, bad.filter(bad["named"]))
    ends = np.cumsum([len(part.good) for part in parts])
    pieces = [
        keep(part.rows.unpacked(), kept[end - len(part.good) : end]) for part, end in zip(parts, ends, strict=True)
    ]
    rows = merge(pieces) if kept.any() else None
    repeated = good.filter(pa.array(~kept))
    reasons = pa.array([id_repeated(id_) for id_ in repeated["id"].to_pylist()], pa.string())
    bad = pa.concat_tables(
        [bad.drop_columns(["named"]), repeated.drop_columns(["subscriber"]).append_column("reason", reasons)]
    ).sort_by("place")
    everywhere = np.sort(np.concatenate([good["place"].to_numpy()[kept], bad["place"].to_numpy()]))
    row = pa.array(np.searchsorted(everywhere, bad["place"].to_numpy()), pa.int64())
    return ParsedSubscriptions(
        good.filter(pa.array(kept)).drop_columns(["place"]),
        bad.drop_columns(["place"]).add_column(0, "row", row),
        rows,
        _uses(parts, good, kept, rows),
        id_type,
    )


def _first_of_each_id(good: pa.Table, named: pa.Table) -> Array:
    """Return which good rows are the first of their id, among all rows that have an id."""
    places = np.concatenate([good["place"].to_numpy(), named["place"].to_numpy()])
    order = np.argsort(places)
    ids = pa.chunked_array([*good["id"].chunks, *named["id"].chunks], good.schema.field("id").type)
    codes = ids.combine_chunks().dictionary_encode().indices.to_numpy()[order]
    first = np.zeros(len(codes), np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    answer = np.empty_like(first)
    answer[order] = first
    return answer[: good.num_rows]


def _uses(parts: list[_ParsedChunk], good: pa.Table, kept: Array, rows: RankForm | None) -> tuple[AttributeUse, ...]:
    """Return every comparison of the filters, each with the first filter that makes it."""
    seen: _Comparisons = {}
    for part in parts:
        for use, example in part.seen.items():
            seen[use] = min(example, seen.get(use, example))
    places = good["place"].to_numpy()
    order = np.argsort(places)
    uses: list[AttributeUse] = []
    used = set() if rows is None else {line.key.attribute for line in rows.lines} | {name for name, _ in rows.patterns}
    for (attribute, kind), (place, text) in sorted(seen.items(), key=lambda item: item[1]):
        at = int(order[np.searchsorted(places, place, sorter=order)])
        if kept[at] or attribute in used:  # else only a row with a repeated id uses it, which is set aside
            uses.append(AttributeUse(attribute, kind, good["id"][at].as_py(), text))
    return tuple(uses)


# -- files -------------------------------------------------------------------------------------------------------------


def write_version(
    folder: Path, parsed: ParsedSubscriptions, *, sample: pa.Table | None, schema: Schema | None
) -> VersionContents:
    """Compile the index, and write the files of a version into a folder."""
    from meetpoint.matching.index.events import guess_of, sample_of
    from meetpoint.matching.index.segment import Segment
    from meetpoint.matching.index.storage import save

    started = time.perf_counter()
    wanted = {split_name(use.attribute)[0] for use in parsed.uses}
    event_sample = None
    if sample is not None:
        event_sample = sample_of(sample.select([name for name in sample.schema.names if name in wanted]))
    elif schema is not None:
        event_sample = guess_of(schema)
    segments: list[tuple[Any, Any, Any, Any]] = []
    if parsed.rows is not None:
        segment = Segment.of_rows(parsed.rows, event_sample)
        ids = parsed.filters["id"].combine_chunks()
        segments.append((segment, ids, np.arange(len(ids)), None))
    save(str(folder / INDEX_FILE), segments, event_sample)
    if sample is not None:
        _write_sample(folder / SAMPLE_FILE, sample.select([name for name in sample.schema.names if name in wanted]))
    pq.write_table(parsed.filters, folder / FILTERS_FILE, compression="zstd")
    pq.write_table(parsed.rejected, folder / REJECTED_FILE, compression="zstd")
    _log.info(
        "compile: an index of %s bytes in %.1f s",
        f"{(folder / INDEX_FILE).stat().st_size:,}",
        time.perf_counter() - started,
    )
    reasons = parsed.rejected["reason"]
    return VersionContents(
        subscriptions=parsed.filters.num_rows,
        rejected=parsed.rejected.num_rows,
        first_reason=reasons[0].as_py() if len(reasons) else None,
        id_type=parsed.id_type,
        uses=parsed.uses,
    )


def _write_sample(path: Path, sample: pa.Table) -> None:
    """Keep events from all over the sample: the strategies that use keys choose them by these."""
    rows = np.linspace(0, max(sample.num_rows - 1, 0), min(sample.num_rows, SAMPLE_KEPT)).astype(np.int64)
    kept = sample.take(pa.array(rows))
    with pa.ipc.new_file(str(path), kept.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(kept)
