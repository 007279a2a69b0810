"""Archives of brokers on Spark: read as events like any other files, and compacted hour by hour.

Events that conformed to the network's schema have columns of their own. Older ones are decoded from their bytes, and
become dead letters where they do not conform. Of an event that was accepted twice under one id, one is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from meetpoint.api.limits import SAME_ID_US
from meetpoint.archive.compaction import (
    CompactedHour,
    closed_hours,
    expired_hours,
    merge_hour,
    remove_hour,
    sweep_removed,
)
from meetpoint.archive.parts import ArchiveError, check_archive, list_parts
from meetpoint.archive.reader import micros_of
from meetpoint.archive.writer import COLUMNS
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.spark.columns import schema_from_spark, spark_schema
from meetpoint.spark.validation import DEAD_COLUMNS, EventRows, validate

__all__ = ["compact_archive", "read_archive"]

_TEXT = "value"
_REPEATED = "is_repeated"
_PROBLEM = "problem"
_RESULT = pa.schema(
    [(name, pa.string() if name == "hour" else pa.int64()) for name in CompactedHour._fields]
    + [(_PROBLEM, pa.string())]
)


def read_archive(
    spark: SparkSession,
    folder: str,
    schema: Schema | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tenant: str | None = None,
) -> EventRows:
    """Read the events that brokers accepted in a span of time.

    - `folder`: the folder that brokers archive to, as the driver and the workers see it.
    - `schema`: needed where the events have none, or where attributes changed their types.
    - `since` (inclusive) and `until` (exclusive): moments with a time zone.
    - `tenant`: restricts the events to one tenant.

    Raise ArchiveError where the folder is no archive, has no events of that time, or holds a damaged file.

        history = read_archive(spark, "/srv/archive", since=datetime(2026, 11, 16, tzinfo=UTC)).good
    """
    since_us, until_us = micros_of(since, "since"), micros_of(until, "until")
    check_archive(folder)
    paths = [part.path for part in list_parts(Path(folder), since_us, until_us)]
    if not paths:
        raise ArchiveError(f"{folder}: holds no events of that time; wait until brokers have written some")
    frame = _rows_of(spark, folder, paths, schema)
    for moment, condition in (
        (since, F.col("accepted_at") >= F.lit(since)),
        (until, F.col("accepted_at") < F.lit(until)),
    ):
        frame = frame if moment is None else frame.where(condition)
    frame = frame if tenant is None else frame.where(F.col("tenant") == F.lit(tenant))
    frame = _once(frame)
    has_columns = "attributes" in frame.columns
    declared = schema
    if declared is None and has_columns:
        declared = schema_from_spark(frame.select("attributes.*").schema)
    if declared is None:
        raise ArchiveError(f"{folder}: its events have no schema; name one (meetpoint schema infer makes it)")
    untyped = frame.where("attributes IS NULL") if has_columns else frame
    checked = validate(untyped.select("event").mapInArrow(_texts, f"{_TEXT} binary"), declared, column=_TEXT)
    if not has_columns:
        return checked
    typed = _as_declared(frame.where("attributes IS NOT NULL").select("attributes.*"), declared)
    if schema is not None:
        other = validate(typed, declared)
        good, marked, dead = other.good, other.marked, checked.dead.unionByName(other.dead)
    else:
        none = [F.lit(None).cast("string").alias(name) for name in DEAD_COLUMNS]
        good, marked, dead = typed, typed.select(F.struct("*").alias("event"), *none), checked.dead
    return EventRows(checked.good.unionByName(good), dead, checked.marked.unionByName(marked))


def _rows_of(spark: SparkSession, folder: str, paths: Sequence[Path], schema: Schema | None) -> DataFrame:
    """Return all rows of some parts, without the struct where an attribute has several types."""
    for path in paths:
        if not path.stat().st_size:  # Spark ignores an empty file silently, and events would be missing
            raise ArchiveError(f"{path}: cannot be read: it is empty; put back a copy of it, or move it away")
    texts = [str(path) for path in paths]
    try:
        return spark.read.option("mergeSchema", True).parquet(*texts)
    except Exception as error:  # an error of Spark, whose class differs with Connect
        found = re.search(r"incompatible data types (\".*?\" and \".*?\")", str(error))
        if found is None:
            raise
        if schema is None:
            raise ArchiveError(
                f"{folder}: attributes are not of the same types in all its files ({found[1]}); "
                "name a schema, or read a time in which they are"
            ) from None
    return spark.read.schema(from_arrow_schema(COLUMNS)).parquet(*texts)


def _once(frame: DataFrame) -> DataFrame:
    """Drop repeats of an event, by the rules of `api.history_dedup`."""
    by_id = Window.partitionBy("tenant", "id").orderBy("accepted_at", "home", "stream", "number")
    at_us, same = F.unix_micros("accepted_at"), F.struct("publisher", "sequence")
    is_repeated = (at_us - F.lag(at_us).over(by_id) <= SAME_ID_US) | (same == F.lag(same).over(by_id))
    return frame.withColumn(_REPEATED, F.coalesce(is_repeated, F.lit(False))).where(~F.col(_REPEATED)).drop(_REPEATED)


def _as_declared(typed: DataFrame, schema: Schema) -> DataFrame:
    """Select columns in the order of a schema; attributes that were declared later are NULL."""
    present = set(typed.columns)
    return typed.select(
        *(
            F.col("`" + field.name.replace("`", "``") + "`") if field.name in present
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(schema).fields
        )
    )  # fmt: skip


def _texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = [attributes_to_json(from_msgpack(content).attributes) for content in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.binary())], names=[_TEXT])


# -- compaction --------------------------------------------------------------------------------------------------------


def compact_archive(
    spark: SparkSession, folder: str, *, keep_s: float | None = None, now: float | None = None
) -> list[CompactedHour]:
    """Merge the files of all hours that are over, one hour a task, and remove expired hours.

    - `folder`: must be the same for the driver and the workers.
    - `keep_s`: removes hours that ended longer ago; None keeps all.
    - `now`: the current time, in seconds since 1970; tests set it.

    Raise ArchiveError with the first problem, after all other hours are done.

        for hour in compact_archive(spark, "/srv/archive", keep_s=30 * 86_400):
            print(hour.hour, hour.files_before, hour.files_after)
    """
    at = time.time() if now is None else now
    path = Path(folder)
    check_archive(folder)
    for hour in [] if keep_s is None else expired_hours(path, keep_s, at):
        remove_hour(hour)
    sweep_removed(path)
    hours = [str(hour) for hour in closed_hours(path, at)]
    if not hours:
        return []
    frame = spark.createDataFrame([(hour,) for hour in hours], "hour string").repartition(len(hours))
    results = frame.mapInArrow(_merge, from_arrow_schema(_RESULT)).toArrow().to_pylist()
    problems = sorted(each[_PROBLEM] for each in results if each[_PROBLEM] is not None)
    if problems:
        others = f" (and {len(problems) - 1} more hours with problems)" if len(problems) > 1 else ""
        raise ArchiveError(f"{problems[0]}{others}; all other hours are done")
    return sorted(CompactedHour(*(each[name] for name in CompactedHour._fields)) for each in results)


def _merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for hour in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([_merged(Path(hour))], _RESULT)


def _merged(hour: Path) -> dict[str, Any]:
    """Compact an hour and return the result as a row. A damaged file must not keep other hours from being merged."""
    try:
        return {**merge_hour(hour)._asdict(), _PROBLEM: None}
    except FileNotFoundError:  # another run has removed the hour meanwhile
        return {**CompactedHour(hour.name.removeprefix("hour="), 0, 0, 0, 0)._asdict(), _PROBLEM: None}
    except (ArchiveError, OSError) as error:
        return {**CompactedHour(hour.name, 0, 0, 0, 0)._asdict(), _PROBLEM: str(error)}
