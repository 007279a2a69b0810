"""`validate`: events that conform to a schema, and dead letters for the others.

Every row is marked once, in one pass: it is either an event, or a dead letter with its reason, in the words that
`Schema.conform` and `attributes_from_json` have for it. `good` and `dead` are two filters on that pass, so that a row
is in exactly one of them and good + dead = in.

The two are lazy, as DataFrames are: each job on either of them marks the rows anew. The marks depend on nothing but the
row, so this holds across jobs too as long as events give the same rows again (files, tables, topics do). Where they do
not (a sample without a seed, a table that is written to meanwhile), `marked.persist()` first, or write `marked` and
read it back. Two streams, one of `good` and one of `dead`, read the source on their own, and agree in the same way.


What was read from files, folders and archives: good rows, dead letters, and how many there are of each.
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
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree
from meetpoint.language.values import Type
from meetpoint.matching.io.rejects import RAW_MAX, reject
from meetpoint.matching.tables.conformance import ConformanceChecker, rows_as_json
from meetpoint.spark.columns import check_frame, schema_from_spark, spark_schema
from meetpoint.spark.worker_files import check_workers

__all__ = [
    "DEAD_COLUMNS",
    "EventFiles",
    "Tally",
    "Validated",
    "refuse_type",
    "validate",
]

DEAD_COLUMNS = ("raw", "reason", "source")
"""The columns of dead letters, all texts: the row (its first 65,536 characters), why, and where it came from."""
_KAFKA = {"topic": "string", "partition": "int", "offset": "bigint"}
_SHOWN_MAX = 8
_Path = tuple[str, ...]


@dataclass(frozen=True)
class Validated:
    """Events that conform, in the columns of the schema and what was kept, and dead letters: raw, reason, source."""

    good: Any
    dead: Any
    marked: Any
    """Both, each row once: the struct `event`, or `raw`, `reason` and maybe `source`. Persist it to mark only once."""

    def counts(self) -> dict[str, int]:
        """How many rows came `in`, and how many are `good` and `dead`, from one job."""
        if self.marked.isStreaming:
            raise EventError("events: a stream has no count; count the rows that its queries have written")
        is_dead = F.col("reason").isNotNull()
        counted = self.marked.agg(
            F.count(F.lit(1)).alias("in"), F.count_if(~is_dead).alias("good"), F.count_if(is_dead).alias("dead")
        )
        row: dict[str, int] = counted.toArrow().to_pylist()[0]
        return row


def validate(
    events: Any, schema: Schema, *, column: str | None = None, keep: Sequence[str] = (), source: str | None = None
) -> Validated:
    """Check the rows of a DataFrame, a table or a stream, against a schema.

    The columns are the attributes, or else `column` names one of JSON objects, texts or bytes, as from Kafka or from
    text files. Columns that are no attributes are an error unless `keep` names them, which passes them on unchecked;
    beside a `column` they are dropped. `source` is an expression of Spark that says where a row came from, such as
    `_metadata.file_path`; Kafka's topic, partition and offset are used by themselves.

    A column that is missing or of a type that the schema does not take is an EventError, before any job.
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
    # By their place, since mapInArrow takes a dot in a name for a path.
    inputs = events.select(*(one.alias(f"c{at}") for at, one in enumerate(taken)))
    event = spark.StructType([*spark_schema(schema).fields, *kept.values()])
    check_workers(events.sparkSession)
    marked = inputs.mapInArrow(
        _Mark(schema, names, from_json=column is not None),
        spark.StructType([spark.StructField("event", event), *(_text_field(name) for name in DEAD_COLUMNS)]),
    )
    is_dead = F.col("reason").isNotNull()
    return Validated(marked.where(~is_dead).select("event.*"), marked.where(is_dead).select(*DEAD_COLUMNS), marked)


def _text_field(name: str) -> spark.StructField:
    return spark.StructField(name, spark.StringType())


def _quoted(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


# -- checks before any job ---------------------------------------------------------------------------------------------


def _check_kept(columns: spark.StructType, keep: object, schema: Schema) -> dict[str, spark.StructField]:
    if isinstance(keep, str) or not isinstance(keep, Sequence):
        raise EventError(f"keep: given {keep!r}; give a list of the names of columns")
    kept: dict[str, spark.StructField] = {}
    for name in keep:
        field = _find(columns, name)
        if field is None:
            raise EventError(f"keep: events have no column {name!r}; {_near(name, columns.names)}")
        if name in schema.tree:
            raise EventError(f"keep: {show_name((name,))} is an attribute of the schema; leave it out, or rename it")
        kept[name] = spark.StructField(name, field.dataType, metadata=field.metadata)
    return kept


def _find(columns: spark.StructType, name: object) -> spark.StructField | None:
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


def _check_texts(columns: spark.StructType, column: object) -> None:
    field = _find(columns, column)
    if field is None:
        raise EventError(f"events: there is no column {column!r}; {_near(column, columns.names)}")
    if not isinstance(field.dataType, spark.StringType | spark.CharType | spark.VarcharType | spark.BinaryType):
        raise EventError(
            f"events: column {column!r} is of type {field.dataType.simpleString()}; name one of JSON texts or bytes"
        )


def _check_columns(columns: spark.StructType, tree: SchemaTree, path: _Path, kept: Sequence[str]) -> None:
    """EventError where a column is missing, too many, or of a type that its attribute does not take."""
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
        if isinstance(field.dataType, spark.NullType):
            continue
        if isinstance(declared, Attribute):
            if not _takes(declared.type, field.dataType):
                refuse_type(here, field.dataType.simpleString(), str(declared.type))
        elif isinstance(field.dataType, spark.StructType):
            _check_columns(field.dataType, declared, here, ())
        else:
            refuse_type(here, field.dataType.simpleString(), "an object")


def _declared_near(name: str, tree: Mapping[str, object]) -> str:
    near = get_close_matches(name[:200], list(tree), n=1)
    return f"did you mean {near[0]}?" if near else "it has " + ", ".join(list(tree)[:_SHOWN_MAX])


def _takes(wanted: Type, column: spark.DataType) -> bool:
    """Whether values of a column are values of a type, or are integers that stand for one."""
    if isinstance(column, spark.StructType):
        return False
    found = [attribute.type for attribute in schema_from_spark(spark.StructType().add("x", column))]
    if wanted is Type.INTEGER and isinstance(column, spark.DecimalType):
        return bool(column.scale == 0)
    return found == [wanted] or (found == [Type.INTEGER] and wanted in (Type.FLOAT, Type.DECIMAL))


def refuse_type(path: tuple[str, ...], type_name: str, wanted: str) -> None:
    """EventError for a column of another type than the schema wants."""
    raise EventError(
        f"events: column {show_name(path)} is of type {type_name} and the schema says {wanted}; "
        "cast the column, or change the schema"
    )


def _origin(events: Any, columns: spark.StructType, column: str | None, source: str | None) -> Any | None:
    """The column that says where a row came from."""
    if source is None:
        held = {field.name: field.dataType.simpleString() for field in columns.fields}
        if column is None or any(held.get(name) != type_ for name, type_ in _KAFKA.items()):
            return None
        return F.concat_ws("/", *(_quoted(name).cast("string") for name in _KAFKA))
    if not isinstance(source, str):
        raise EventError(f"source: given an object of class {type(source).__name__}; give an expression as a text")
    origin = F.expr(source).cast("string") if source.strip() else None
    try:
        if origin is None or not events.select(origin).schema:
            raise EventError("source: the expression is empty; write one such as _metadata.file_path")
    except (AnalysisException, ParseException) as error:
        said = (str(error).strip().splitlines() or ["it is no expression"])[0].partition(" SQLSTATE:")[0]
        raise EventError(f"source: {source!r} does not fit the events: {said}") from None
    return origin


# -- in the workers ----------------------------------------------------------------------------------------------------


class _Mark:
    """Batches of rows to batches of marked rows: first a batch's good ones, then its dead ones.

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
            held = pa.StructArray.from_arrays([*good.columns, *kept.columns], fields=list(event))
            none = pa.nulls(good.num_rows, pa.string())
            yield _marked(held, none, none, none)
        if problems:
            numbers = np.flatnonzero(~is_good)
            lost = pa.array(numbers)
            raws = [texts[at] for at in numbers] if self._from_json else rows_as_json(rows.take(lost))
            source = pc.cast(batch.column(end).take(lost), pa.string()) if batch.num_columns > end else None
            yield _dead(event, raws, [problems[int(at)] for at in numbers], source)


def _dead(event: Any, raws: Sequence[str | bytes | None], reasons: Sequence[str], source: Any) -> pa.RecordBatch:
    texts = [raw[:_RAW_BYTES].decode("utf-8", "replace") if isinstance(raw, bytes) else raw for raw in raws]
    # As everywhere rows are set aside: of bounded length, the reason on one line.
    rejects = [reject("events", 0, reason, text) for reason, text in zip(reasons, texts, strict=True)]
    return _marked(
        pa.nulls(len(rejects), event),
        pa.array([None if raw is None else r.raw for raw, r in zip(raws, rejects, strict=True)], pa.string()),
        pa.array([r.reason for r in rejects], pa.string()),
        pa.nulls(len(rejects), pa.string()) if source is None else source,
    )


_RAW_BYTES = 4 * RAW_MAX
"""Bytes that hold as many characters as are kept."""


def _marked(event: Any, raw: Any, reason: Any, source: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([event, raw, reason, source], names=["event", *DEAD_COLUMNS])


class Tally(NamedTuple):
    """How many rows were events, how many were none, and why the first of these was not."""

    good: int
    dead: int
    first_reason: str | None


@dataclass(frozen=True)
class EventFiles:
    """What was read: a DataFrame of events, and one of dead letters (raw, reason, source) where there may be any."""

    good: Any
    dead: Any | None
    marked: Any | None

    def tally(self) -> Tally:
        """Count both, in one job."""
        if self.marked is None:
            return Tally(int(self.good.count()), 0, None)
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
        return Tally(row["good"], row["dead"], row["first"])
