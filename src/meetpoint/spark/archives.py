"""Archives of brokers on Spark: read as events like any other files, merged and cut to size hour by hour.

Events that conformed to the network's schema have columns of their own; those from before it are read from their bytes,
and are dead letters where they do not conform. Of an event that was accepted twice, under one id, one is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from meetpoint.archive.merging import Merged, closed_hours, expired_hours, forget_hour, merge_hour
from meetpoint.archive.parts import ArchiveError, is_archive, list_parts
from meetpoint.language.event_json import attributes_to_json
from meetpoint.language.event_msgpack import from_msgpack
from meetpoint.language.schema import Schema
from meetpoint.spark.event_files import EventFiles
from meetpoint.spark.types import schema_from_spark, spark_schema
from meetpoint.spark.validating import DEAD_COLUMNS, validate

__all__ = ["compact_archive", "read_archive"]

_TEXT = "value"


def read_archive(
    running: Any,
    folder: str,
    schema: Schema | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tenant: str | None = None,
) -> EventFiles:
    """The events that were accepted from one moment on and before another; a schema is needed where they have none."""
    since_us, until_us = (None if each is None else round(each.timestamp() * 1e6) for each in (since, until))
    paths = [str(part.path) for part in list_parts(Path(folder), since_us, until_us)]
    if not paths:
        raise ArchiveError(f"{folder}: holds no events of that time; wait until brokers have written some")
    frame = running.read.option("mergeSchema", True).parquet(*paths)
    for moment, is_in in ((since, F.col("accepted_at") >= F.lit(since)), (until, F.col("accepted_at") < F.lit(until))):
        frame = frame if moment is None else frame.where(is_in)
    frame = frame if tenant is None else frame.where(F.col("tenant") == F.lit(tenant))
    frame = frame.dropDuplicates(["tenant", "id"])
    has_columns = "attributes" in frame.columns
    wanted = schema
    if wanted is None and has_columns:
        wanted = schema_from_spark(frame.schema["attributes"].dataType)
    if wanted is None:
        raise ArchiveError(f"{folder}: its events have no schema; name one, or declare one to the network")
    loose = frame.where("attributes IS NULL") if has_columns else frame
    checked = validate(loose.select("event").mapInArrow(_texts, f"{_TEXT} binary"), wanted, column=_TEXT)
    if not has_columns:
        return EventFiles(checked.good, checked.dead, checked.marked)
    typed = _as_declared(frame.where("attributes IS NOT NULL").select("attributes.*"), wanted)
    if schema is not None:
        other = validate(typed, wanted)
        good, marked, dead = other.good, other.marked, checked.dead.unionByName(other.dead)
    else:
        none = [F.lit(None).cast("string").alias(name) for name in DEAD_COLUMNS]
        good, marked, dead = typed, typed.select(F.struct("*").alias("event"), *none), checked.dead
    return EventFiles(checked.good.unionByName(good), dead, checked.marked.unionByName(marked))


def _as_declared(typed: Any, wanted: Schema) -> Any:
    """Columns in the order of a schema, also for attributes that were declared after all of these were written."""
    held = set(typed.columns)
    return typed.select(
        *(
            F.col("`" + field.name.replace("`", "``") + "`") if field.name in held
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(wanted).fields
        )
    )  # fmt: skip


def _texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = [attributes_to_json(from_msgpack(content).attributes) for content in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.binary())], names=[_TEXT])


# -- compaction --------------------------------------------------------------------------------------------------------


def compact_archive(
    running: Any, folder: str, *, keep_s: float | None = None, now: float | None = None
) -> list[Merged]:
    """Merge the files of all hours that are over, an hour a task, and forget hours that ended longer ago than `keep_s`.

    The folder must be the same for the driver and the workers.
    """
    at = time.time() if now is None else now
    within = Path(folder)
    if not is_archive(folder):
        raise ArchiveError(f"{folder}: is no archive; give the folder that brokers archive to")
    for hour in [] if keep_s is None else expired_hours(within, keep_s, at):
        forget_hour(hour)
    hours = [str(hour) for hour in closed_hours(within, at)]
    if not hours:
        return []
    frame = running.createDataFrame([(hour,) for hour in hours], "hour string").repartition(len(hours))
    kinds = {"hour": spark.StringType()}
    fields = [spark.StructField(name, kinds.get(name, spark.LongType())) for name in Merged._fields]
    table = frame.mapInArrow(_merge, spark.StructType(fields)).toArrow()
    return sorted(Merged(**row) for row in table.to_pylist())


def _merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        done: Sequence[Merged] = [merge_hour(Path(hour)) for hour in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pylist([each._asdict() for each in done])
