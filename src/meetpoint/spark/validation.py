"""`validate`: events that conform to a schema, and dead letters for the others.

Every row is marked once, in one pass: it is either an event, or a dead letter with the reason that `Schema.conform` or
`attributes_from_json` gives. `good` and `dead` are two filters on that pass, so that a row is in exactly one of them
and good + dead = in.

The two are lazy, as DataFrames are: each job on either of them marks the rows anew. The marks depend on nothing but the
row, so this holds across jobs too as long as events give the same rows again (files, tables, topics do). Where they do
not (a sample without a seed, a table that changes meanwhile), `marked.persist()` first, or write `marked` and read it
back. Two streams, one of `good` and one of `dead`, read the source separately, and agree in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree
from meetpoint.language.values import Type
from meetpoint.matching.io.rejects import RAW_MAX, reject
from meetpoint.matching.tables.conformance import ConformanceChecker, rows_as_json
from meetpoint.spark.columns import check_frame, schema_from_spark, spark_schema
from meetpoint.spark.worker_files import check_workers

__all__ = ["DEAD_COLUMNS", "EventRows", "RowCounts", "Validated", "refuse_type", "validate"]

DEAD_COLUMNS = ("raw", "reason", "source")
"""The columns of dead letters, all texts: the row (its first 65,536 characters), the reason, and its source."""
_KAFKA = {"topic": "string", "partition": "int", "offset": "bigint"}
_SHOWN_MAX = 8
_Path = tuple[str, ...]


class RowCounts(NamedTuple):
    """The number of rows that were events and that were not, and the reason of the first that was not."""

    good: int
    dead: int
    first_reason: str | None


@dataclass(frozen=True)
class EventRows:
    """Rows that were read: a DataFrame of events, and one of dead letters (`DEAD_COLUMNS`) where there may be any."""

    good: DataFrame
    dead: DataFrame | None
    marked: DataFrame | None

    def row_counts(self) -> RowCounts:
        """Count both, in one job."""
        if self.marked is None:
            return RowCounts(int(self.good.count()), 0, None)
        reason = F.col("reason")
        row = (
            self.marked.agg(
                F.count_if(reason.isNull()).alias("good"),
                F.count_if(reason.isNotNull()).alias("dead"),
                F.first(reason, ignorenulls=True).alias("first"),
            )
            .toArrow()
            .to_pylist()[0]
        )
        return RowCounts(row["good"], row["dead"], row["first"])


@dataclass(frozen=True)
class Validated(EventRows):
    """Events that conform to a schema, and dead letters.

    - `good`: the columns of the schema and those that were kept.
    - `dead`: the columns of `DEAD_COLUMNS`.
    - `marked`: both, each row once: the struct `event`, or the columns of a dead letter. Persist it to check rows once.
    """

    dead: DataFrame
    marked: DataFrame

    def counts(self) -> dict[str, int]:
        """Return how many rows came `in`, and how many are `good` and `dead`, from one job.

        Raise EventError for a stream, which has no count.
        """
        if self.marked.isStreaming:
            raise EventError("events: a stream has no count; count the rows that its queries have written")
        counts = self.row_counts()
        return {"in": counts.good + counts.dead, "good": counts.good, "dead": counts.dead}


def validate(
    events: DataFrame, schema: Schema, *, column: str | None = None, keep: Sequence[str] = (), source: str | None = None
) -> Validated:
    """Check the rows of a DataFrame, a table or a stream, against a schema.

    - `column`: names a column of JSON objects, texts or bytes, as from Kafka or from text files. Without it the columns
      are the attributes.
    - `keep`: names columns that are no attributes and are passed on unchecked. Others are an error; beside a `column`
      they are dropped.
    - `source`: an expression of Spark for the place where a row came from, such as `_metadata.file_path`. Kafka's
      topic, partition and offset are the default.

    Raise EventError, before any job, where a column is missing or of a type that the schema does not take.

        checked = validate(events, read_schema("schema.yaml"))
        checked.good.write.parquet("events")
    """
    check_frame(events, "events")
    if not isinstance(schema, Schema):
        raise SchemaError(f"schema: given an object of class {type(schema).__name__}; give a Schema")
    if not len(schema):
        raise SchemaError("schema: it has no attributes; declare those that events have")
    columns = events.schema
    kept = _check_kept(columns, keep, schema)
    if column is None:
        _check_columns(columns, schema.tree, (), tuple(kept))
        names = list(schema.tree)
    else:
        _check_texts(columns, column)
        names = [column]
    names += kept
    origin = _origin(events, columns, column, source)
    taken = [*map(_quoted, names), *([] if origin is None else [origin])]
    # Plain names, because mapInArrow reads a dot in a name as a path.
    inputs = events.select(*(one.alias(f"c{at}") for at, one in enumerate(taken)))
    event = T.StructType([*spark_schema(schema).fields, *kept.values()])
    check_workers(events.sparkSession)
    marked = inputs.mapInArrow(
        _RowMarker(schema, names, from_json=column is not None),
        T.StructType([T.StructField("event", event), *(T.StructField(name, T.StringType()) for name in DEAD_COLUMNS)]),
    )
    is_dead = F.col("reason").isNotNull()
    return Validated(marked.where(~is_dead).select("event.*"), marked.where(is_dead).select(*DEAD_COLUMNS), marked)


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


# -- checks before any job ---------------------------------------------------------------------------------------------


def _check_kept(columns: T.StructType, keep: object, schema: Schema) -> dict[str, T.StructField]:
    if isinstance(keep, str) or not isinstance(keep, Sequence):
        raise EventError(f"keep: given {keep!r}; give a list of the names of columns")
    kept: dict[str, T.StructField] = {}
    for name in keep:
        field = _find(columns, name)
        if field is None:
            raise EventError(f"keep: events have no column {name!r}; {_near(name, columns.names)}")
        if name in schema.tree:
            raise EventError(f"keep: {show_name((name,))} is an attribute of the schema; leave it out, or rename it")
        kept[name] = T.StructField(name, field.dataType, metadata=field.metadata)
    return kept


def _find(columns: T.StructType, name: object) -> T.StructField | None:
    found = [field for field in columns.fields if field.name == name]
    if len(found) > 1:
        raise EventError(f"events: column {name!r} occurs {len(found)} times; rename or drop all but one")
    return found[0] if found else None


def _near(name: object, names: Sequence[str]) -> str:
    near = get_close_matches(str(name)[:200], names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    shown = ", ".join(names[:_SHOWN_MAX]) + (", …" if len(names) > _SHOWN_MAX else "")
    return f"the columns are {shown}"


def _check_texts(columns: T.StructType, column: object) -> None:
    field = _find(columns, column)
    if field is None:
        raise EventError(f"events: there is no column {column!r}; {_near(column, columns.names)}")
    if not isinstance(field.dataType, T.StringType | T.CharType | T.VarcharType | T.BinaryType):
        raise EventError(
            f"events: column {column!r} is of type {field.dataType.simpleString()}; name one of JSON texts or bytes"
        )


def _check_columns(columns: T.StructType, tree: SchemaTree, path: _Path, kept: Sequence[str]) -> None:
    """Raise EventError where a column is missing, unknown, or of a type that its attribute does not take."""
    for name in columns.names:
        if name not in tree and name not in kept:
            within = "" if path else "name it in keep=, "
            raise EventError(
                f"events: column {show_name((*path, name))} is not in the schema ({_declared_near(name, tree)}); "
                f"{within}drop it, or add it to the schema"
            )
    for name, declared in tree.items():
        here = (*path, name)
        field = _find(columns, name)
        if field is None:
            raise EventError(
                f"events: there is no column {show_name(here)}, and the schema has it; {_near(name, columns.names)} "
                "(one that is NULL in all rows may be added as lit(None))"
            )
        if isinstance(field.dataType, T.NullType):
            continue
        if isinstance(declared, Attribute):
            if not _takes(declared.type, field.dataType):
                refuse_type(here, field.dataType.simpleString(), str(declared.type))
        elif isinstance(field.dataType, T.StructType):
            _check_columns(field.dataType, declared, here, ())
        else:
            refuse_type(here, field.dataType.simpleString(), "an object")


def _declared_near(name: str, tree: Mapping[str, object]) -> str:
    near = get_close_matches(name[:200], list(tree), n=1)
    return f"did you mean {near[0]}?" if near else "it has " + ", ".join(list(tree)[:_SHOWN_MAX])


def _takes(wanted: Type, column: T.DataType) -> bool:
    """Return whether values of a column are values of a type, or integers that stand for one."""
    if isinstance(column, T.StructType):
        return False
    found = [attribute.type for attribute in schema_from_spark(T.StructType().add("x", column))]
    if wanted is Type.INTEGER and isinstance(column, T.DecimalType):
        return bool(column.scale == 0)
    return found == [wanted] or (found == [Type.INTEGER] and wanted in (Type.FLOAT, Type.DECIMAL))


def refuse_type(path: tuple[str, ...], type_name: str, wanted: str) -> None:
    """Raise EventError for a column of another type than the schema's."""
    raise EventError(
        f"events: column {show_name(path)} is of type {type_name} and the schema says {wanted}; "
        "cast the column, or change the schema"
    )


def _origin(events: DataFrame, columns: T.StructType, column: str | None, source: str | None) -> Column | None:
    if source is None:
        types = {field.name: field.dataType.simpleString() for field in columns.fields}
        if column is None or any(types.get(name) != type_ for name, type_ in _KAFKA.items()):
            return None
        return F.concat_ws("/", *(_quoted(name).cast("string") for name in _KAFKA))
    if not isinstance(source, str):
        raise EventError(f"source: given an object of class {type(source).__name__}; give an expression as a text")
    origin = F.expr(source).cast("string") if source.strip() else None
    try:
        if origin is None or not events.select(origin).schema:
            raise EventError("source: the expression is empty; write one such as _metadata.file_path")
    except (AnalysisException, ParseException) as error:
        problem = (str(error).strip().splitlines() or ["it is no expression"])[0].partition(" SQLSTATE:")[0]
        raise EventError(f"source: {source!r} does not fit the events: {problem}") from None
    return origin


# -- in the workers ----------------------------------------------------------------------------------------------------


class _RowMarker:
    """Maps batches of rows to batches of marked rows: first a batch's good ones, then its dead ones.

    The rows have the columns of `names`: one for each attribute, or one of JSON, then those that are kept. One more is
    the source, if known.
    """

    def __init__(self, schema: Schema, names: list[str], *, from_json: bool) -> None:
        self._schema = schema
        self._names = names
        self._from_json = from_json

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        conforming = ConformanceChecker(self._schema)
        for batch in batches:
            if batch.num_rows:
                yield from self._mark(conforming, batch)

    def _mark(self, conforming: ConformanceChecker, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        end = len(self._names)
        rows = batch.select(range(end)).rename_columns(self._names)
        checked = 1 if self._from_json else len(conforming.columns.names)
        kept = rows.select(range(checked, end))
        if self._from_json:
            texts = pc.cast(rows.column(0), pa.large_binary()).to_pylist()
            good, problems = conforming.split_json(texts)
        else:
            good, problems = conforming.split(rows.select(range(checked)))
        event = pa.struct([*good.schema, *kept.schema])
        is_good = np.ones(batch.num_rows, dtype=np.bool_)
        is_good[list(problems)] = False
        if good.num_rows:
            if problems:
                kept = kept.filter(pa.array(is_good))
            struct = pa.StructArray.from_arrays([*good.columns, *kept.columns], fields=list(event))
            none = pa.nulls(good.num_rows, pa.string())
            yield _marked(struct, none, none, none)
        if problems:
            numbers = np.flatnonzero(~is_good)
            lost = pa.array(numbers)
            raws = [texts[at] for at in numbers] if self._from_json else rows_as_json(rows.take(lost))
            source = pc.cast(batch.column(end).take(lost), pa.string()) if batch.num_columns > end else None
            yield _dead(event, raws, [problems[int(at)] for at in numbers], source)


def _dead(event: Any, raws: Sequence[str | bytes | None], reasons: Sequence[str], source: Any) -> pa.RecordBatch:
    texts = [raw[:_RAW_BYTES].decode("utf-8", "replace") if isinstance(raw, bytes) else raw for raw in raws]
    # Bounded like all rejects: long raw texts are cut, and the reason is on one line.
    rejects = [reject("events", 0, reason, text) for reason, text in zip(reasons, texts, strict=True)]
    return _marked(
        pa.nulls(len(rejects), event),
        pa.array([None if raw is None else r.raw for raw, r in zip(raws, rejects, strict=True)], pa.string()),
        pa.array([r.reason for r in rejects], pa.string()),
        pa.nulls(len(rejects), pa.string()) if source is None else source,
    )


_RAW_BYTES = 4 * RAW_MAX
"""The bytes that hold as many characters as are kept."""


def _marked(event: Any, raw: Any, reason: Any, source: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([event, raw, reason, source], names=["event", *DEAD_COLUMNS])
