"""The strategy `broadcast`: every worker maps the whole index and matches the Arrow batches of its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.match_lists import lists_schema, match_batch, to_result, with_plain_names
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import WorkerFile, open_index, ship

__all__ = ["run"]


def run(events: DataFrame, version: Version, *, result: str, how: str) -> DataFrame:
    """Return the DataFrame of matches: `result` is pairs or lists, `how` the way that the index gets to workers."""
    id_type = version.manifest.id_type
    work = partial(
        _match_batches,
        shipped=ship(events.sparkSession, version.index_path, how),
        names=tuple(events.columns),
        id_type=ID_TYPES[id_type],
        whole=result == "lists",
    )
    listed = with_plain_names(events).mapInArrow(work, lists_schema(events.schema, id_type))
    return to_result(listed, events.columns, result)


def _match_batches(
    batches: Iterable[pa.RecordBatch], *, shipped: WorkerFile, names: tuple[str, ...], id_type: pa.DataType, whole: bool
) -> Iterator[pa.RecordBatch]:
    """Map events to events with lists."""
    index = open_index(shipped)
    for batch in batches:
        named = pa.RecordBatch.from_arrays(batch.columns, names)
        for at in range(0, named.num_rows, match_lists.EVENTS):
            yield from match_batch(index, named.slice(at, match_lists.EVENTS), id_type, whole)
