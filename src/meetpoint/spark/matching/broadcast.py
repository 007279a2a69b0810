"""The strategy `broadcast`: every worker maps the whole index and matches the Arrow batches that come by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from meetpoint.spark.matching import match_lists
from meetpoint.spark.matching.match_lists import anonymous, finished, listed_schema, match_batch
from meetpoint.spark.subscriptions.compilation import ID_TYPES
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import Shipped, open_index, ship

__all__ = ["run"]


def run(events: Any, version: Version, *, result: str, how: str) -> Any:
    """The DataFrame of matches: `result` is pairs or lists, `how` a way of shipping."""
    id_type = version.manifest.id_type
    work = partial(
        _match_batches,
        shipped=ship(events.sparkSession, version.index_path, how),
        names=tuple(events.columns),
        id_type=ID_TYPES[id_type],
        whole=result == "lists",
    )
    listed = anonymous(events).mapInArrow(work, listed_schema(events.schema, id_type))
    return finished(listed, events.columns, result)


def _match_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    shipped: Shipped,
    names: tuple[str, ...],
    id_type: pa.DataType,
    whole: bool,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events to events with lists."""
    index = open_index(shipped)
    for batch in batches:
        named = pa.RecordBatch.from_arrays(batch.columns, names)
        for at in range(0, named.num_rows, match_lists.EVENTS):
            yield from match_batch(index, named.slice(at, match_lists.EVENTS), id_type, whole)
