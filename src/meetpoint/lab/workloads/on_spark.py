"""Workloads of any size, drawn on the workers that use them.

A workload is drawn in blocks, each from a seed of its own and all from one vocabulary (see `generator`), so
that it depends neither on how many partitions there are nor on how many machines, and is the very workload that
`generator` draws in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.generator import BLOCK, Blocks, check_sizes, default_subscriptions
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.lab.workloads.zipf import Zipf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = 100_000
"""The default number of events."""
_SUBSCRIPTIONS = pa.schema([("id", pa.int64()), ("filter", pa.string())])


class GeneratedWorkload(NamedTuple):
    """Subscriptions (`id`, `filter`), and events: `event`, which numbers them from 0, and a column an attribute."""

    subscriptions: DataFrame
    events: DataFrame


def generate(
    spark: SparkSession,
    mix: str | Zipf = "ticks",
    *,
    subscriptions: int | None = None,
    events: int | None = None,
    seed: int = 7,
    partitions: int | None = None,
) -> GeneratedWorkload:
    """Draw subscriptions and events of a mix, lazily, and always the same.

    A mix with parameters is a text such as `zipf:attributes=20,values_theta=0.9`, or a `Zipf`.
    """
    # A text, as the mix travels to workers and is the key of a cache there.
    mix = str(mix)
    if not hasattr(spark, "range"):
        raise MeetpointError(f"generate: given an object of class {type(spark).__name__}; give a Spark session")
    if partitions is not None and partitions < 1:
        raise MeetpointError(f"generate: {partitions} partitions; ask for 1 or more")
    asked = default_subscriptions(mix) if subscriptions is None else subscriptions
    held = EVENTS if events is None else events
    check_sizes(mix, asked, held, seed)
    schema = pa.schema([("event", pa.int64()), *_blocks(mix, seed).events(0, 1).schema])
    return GeneratedWorkload(
        _drawn(spark, _SubscriptionBlocks(mix, seed, asked), _SUBSCRIPTIONS, partitions),
        _drawn(spark, _EventBlocks(mix, seed, held), schema, partitions),
    )


def _drawn(spark: Any, draw: _Draw, schema: pa.Schema, partitions: int | None) -> Any:
    columns = ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
    return spark.range(0, -(-draw.rows // BLOCK), 1, partitions).mapInArrow(draw, columns)


_SPARK_TYPES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "STRING"}


# -- in workers --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _blocks(mix: str, seed: int) -> Blocks:
    """Return the blocks of a mix. Cached: a vocabulary takes a while to draw, and a process draws many blocks of it."""
    return Blocks(mix, seed)


class _Draw(msgspec.Struct, frozen=True):
    """A function from numbers of blocks to their rows."""

    mix: str
    seed: int
    rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks = _blocks(self.mix, self.seed)
        for batch in batches:
            for block in batch.column(0).to_pylist():
                table = self._table(blocks, block, min(self.rows - block * BLOCK, BLOCK))
                yield from table.combine_chunks().to_batches()

    def _table(self, blocks: Blocks, block: int, rows: int) -> pa.Table:
        raise NotImplementedError


class _EventBlocks(_Draw, frozen=True):
    def _table(self, blocks: Blocks, block: int, rows: int) -> pa.Table:
        numbers = pa.array(np.arange(rows, dtype=np.int64) + block * BLOCK)
        return blocks.events(block, rows).add_column(0, "event", numbers)


class _SubscriptionBlocks(_Draw, frozen=True):
    def _table(self, blocks: Blocks, block: int, rows: int) -> pa.Table:
        ids, texts = zip(*filter_texts(blocks.subscriptions(block, rows)), strict=True)
        return pa.table([pa.array(ids), pa.array(texts)], schema=_SUBSCRIPTIONS)
