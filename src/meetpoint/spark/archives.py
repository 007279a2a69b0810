"""Archives of brokers on Spark: read as events like any other files, merged and cut to size hour by hour.

Events that conformed to the network's schema have columns of their own; those from before it are read from their bytes,
and are dead letters where they do not conform. Of an event that was accepted twice, under one id, one is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from meetpoint.api.limits import SAME_ID_US
from meetpoint.archive.compaction import Merged, closed_hours, expired_hours, forget_hour, merge_hour, sweep_forgotten
from meetpoint.archive.parts import ArchiveError, check_archive, list_parts
from meetpoint.archive.reader import micros_of
from meetpoint.archive.writer import COLUMNS
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.spark.columns import schema_from_spark, spark_schema
from meetpoint.spark.validation import DEAD_COLUMNS, EventFiles, validate

__all__ = ["compact_archive", "read_archive"]

_TEXT = "value"
_AGAIN = "is_again"
_PROBLEM = "problem"
_MERGED = pa.schema(
    [(name, pa.string() if name == "hour" else pa.int64()) for name in Merged._fields] + [(_PROBLEM, pa.string())]
)


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
    since_us, until_us = micros_of(since, "since"), micros_of(until, "until")
    check_archive(folder)
    paths = [part.path for part in list_parts(Path(folder), since_us, until_us)]
    if not paths:
        raise ArchiveError(f"{folder}: holds no events of that time; wait until brokers have written some")
    frame = _rows_of(running, folder, paths, schema)
    for moment, is_in in ((since, F.col("accepted_at") >= F.lit(since)), (until, F.col("accepted_at") < F.lit(until))):
        frame = frame if moment is None else frame.where(is_in)
    frame = frame if tenant is None else frame.where(F.col("tenant") == F.lit(tenant))
    frame = _once(frame)
    has_columns = "attributes" in frame.columns
    wanted = schema
    if wanted is None and has_columns:
        wanted = schema_from_spark(frame.schema["attributes"].dataType)
    if wanted is None:
        raise ArchiveError(f"{folder}: its events have no schema; name one (meetpoint schema infer makes it)")
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


def _rows_of(running: Any, folder: str, paths: Sequence[Path], schema: Schema | None) -> Any:
    """All rows of some parts; without the struct where not all have an attribute of one type."""
    for path in paths:
        if not path.stat().st_size:  # Spark passes over it without a word
            raise ArchiveError(f"{path}: cannot be read: it is empty; put back a copy of it, or move it away")
    texts = [str(path) for path in paths]
    try:
        return running.read.option("mergeSchema", True).parquet(*texts)
    except Exception as error:  # Spark's own, of another class with Connect
        found = re.search(r"incompatible data types (\".*?\" and \".*?\")", str(error))
        if found is None:
            raise
        if schema is None:
            raise ArchiveError(
                f"{folder}: attributes are not of the same types in all its files ({found[1]}); "
                "name a schema, or read a time in which they are"
            ) from None
    return running.read.schema(from_arrow_schema(COLUMNS)).parquet(*texts)


def _once(frame: Any) -> Any:
    """Without what came before (`protocol.repeats`)."""
    by_id = Window.partitionBy("tenant", "id").orderBy("accepted_at", "home", "stream", "number")
    at_us, same = F.unix_micros("accepted_at"), F.struct("publisher", "sequence")
    is_again = (at_us - F.lag(at_us).over(by_id) <= SAME_ID_US) | (same == F.lag(same).over(by_id))
    return frame.withColumn(_AGAIN, F.coalesce(is_again, F.lit(False))).where(~F.col(_AGAIN)).drop(_AGAIN)


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
    check_archive(folder)
    for hour in [] if keep_s is None else expired_hours(within, keep_s, at):
        forget_hour(hour)
    sweep_forgotten(within)
    hours = [str(hour) for hour in closed_hours(within, at)]
    if not hours:
        return []
    frame = running.createDataFrame([(hour,) for hour in hours], "hour string").repartition(len(hours))
    kinds = {"hour": spark.StringType(), _PROBLEM: spark.StringType()}
    fields = [spark.StructField(name, kinds.get(name, spark.LongType())) for name in (*Merged._fields, _PROBLEM)]
    told = frame.mapInArrow(_merge, spark.StructType(fields)).toArrow().to_pylist()
    problems = sorted(each[_PROBLEM] for each in told if each[_PROBLEM] is not None)
    if problems:
        others = f" (and {len(problems) - 1} more hours with problems)" if len(problems) > 1 else ""
        raise ArchiveError(f"{problems[0]}{others}; all other hours are done")
    return sorted(Merged(*(each[name] for name in Merged._fields)) for each in told)


def _merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for hour in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([_merged(Path(hour))], _MERGED)


def _merged(hour: Path) -> dict[str, Any]:
    """What became of an hour; one with a damaged file must not keep others from being merged."""
    try:
        return {**merge_hour(hour)._asdict(), _PROBLEM: None}
    except FileNotFoundError:  # another run has forgotten it meanwhile
        return {**Merged(hour.name.removeprefix("hour="), 0, 0, 0, 0)._asdict(), _PROBLEM: None}
    except (ArchiveError, OSError) as error:
        return {**Merged(hour.name, 0, 0, 0, 0)._asdict(), _PROBLEM: str(error)}
