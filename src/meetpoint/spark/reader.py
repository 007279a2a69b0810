"""Events from files and folders, read by Spark: Parquet, JSON lines, CSV and archives of brokers.

The suffix of a path decides. Parquet has its types. A line of JSON is read as everywhere in Meetpoint (see
`attributes_from_json`), with the given schema or else with the types that Spark finds in all lines. CSV is split by
Spark, and its fields are read as `meetpoint.matching.io.csv` reads them, all but the nested ones. A row that is no
event is a dead letter with its reason: good + dead = in, as in `validate`, which checks the rows if there is a schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.archive import is_archive
from meetpoint.language.names import join_name, show_name
from meetpoint.language.schema.schema import Attribute, Schema, with_article
from meetpoint.language.values import Type
from meetpoint.matching.io.csv import NULL_WORDS
from meetpoint.matching.io.events import SUFFIXES, format_of
from meetpoint.matching.io.rejects import STANDARD_STREAM, SourceError
from meetpoint.spark.archives import read_archive
from meetpoint.spark.columns import schema_from_spark, spark_schema
from meetpoint.spark.validation import DEAD_COLUMNS, EventRows, validate

__all__ = ["BROKEN", "CSV_OPTIONS", "follow_events", "read_events", "read_frame", "read_history", "read_rows"]

BROKEN, _REASON, _RAW = "_meetpoint_broken", "_meetpoint_reason", "_meetpoint_raw"
_SOURCE = "_metadata.file_path"
CSV_OPTIONS: dict[str, Any] = {
    "header": True,
    "multiLine": True,
    "quote": '"',
    "escape": '"',
    "columnNameOfCorruptRecord": BROKEN,
}
_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]{1,20})?$"
_LONG = r"^-?[0-9]{16,}$"
"""Integers that a double may not hold exactly."""
_CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?(Z|UTC|[-+][0-9]{2}:[0-9]{2})?)?"
_TIME = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([T ]{_CLOCK})?$"
_FLOAT_FIELD = r"^-?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]{1,4})?$|^-?Infinity$"
_DECIMAL_FIELD = r"^-?([0-9]{1,20}([.][0-9]{0,18})?|[.][0-9]{1,18})$"
_WORD_DIGITS = 18


def read_events(spark: SparkSession, path: str, schema: Schema | None = None, keep: Sequence[str] = ()) -> EventRows:
    """Read the events of a file or folder, checked against a schema where one is given.

    `keep` names columns of Parquet that the schema does not have and that are passed on.
    """
    if is_archive(path):
        return read_archive(spark, path, schema)
    kind = detect_format(path)
    if kind == "jsonl":
        return _read_json(spark, path, schema)
    if kind == "csv":
        return _read_csv(spark, path, schema)
    frame = read_rows(spark, path)
    if schema is None:
        return EventRows(frame, None, None)
    return validate(frame, schema, keep=keep, source=_SOURCE)


def read_history(spark: SparkSession, path: str, schema: Schema | None = None) -> EventRows:
    """Read events where a schema only gives types: its bounds do not count, and there may be other attributes.

    Parquet has its types, so the schema is not used there; the caller checks their kinds.
    """
    if is_archive(path):
        return read_archive(spark, path, schema)
    kind = detect_format(path)
    if schema is None or kind == "parquet":
        return read_events(spark, path)
    found = _types_of_json(spark, path) if kind == "jsonl" else _types_of_csv(*_split_csv(spark, path))
    declared = {attribute.name: Attribute(attribute.name, attribute.type) for attribute in schema}
    others = [attribute for attribute in found if attribute.name not in declared]
    return read_events(spark, path, Schema((*declared.values(), *others)))


def read_rows(spark: SparkSession, path: str) -> DataFrame:
    """Read the rows of a file or folder as Spark does: for output that Spark itself wrote."""
    kind = detect_format(path)
    if kind == "parquet":
        return read_frame(path, spark.read.parquet)
    if kind == "jsonl":
        return read_frame(path, spark.read.json)
    return read_frame(
        path, lambda where: spark.read.options(inferSchema=True, preferDate=False, **CSV_OPTIONS).csv(where)
    )


def follow_events(
    spark: SparkSession, folder: str, schema: Schema | None, files: int | None
) -> tuple[DataFrame, str | None]:
    """Return a stream of the files in a folder, present and future, `files` of them a batch.

    With it comes the name of the column of JSON texts, or None for Parquet.
    """
    kind = detect_format(folder)
    if "://" not in folder and not os.path.isdir(folder):
        raise SourceError(f"{folder}: is a file; a stream follows a folder to which files are added")
    if kind == "csv":
        raise SourceError(f"{folder}: a stream is of .parquet or .jsonl files; turn CSV to one of them first")
    reader = spark.readStream if files is None else spark.readStream.option("maxFilesPerTrigger", files)
    if kind == "jsonl":
        if schema is None:
            raise SourceError(f"{folder}: what JSON lines will hold is not known; name a schema")
        return reader.text(folder).where("trim(value) <> ''"), "value"
    return reader.schema(read_rows(spark, folder).schema).parquet(folder), None


def detect_format(path: str) -> str:
    """Return jsonl, csv or parquet, by the suffix of a path; without one, by the files in the folder."""
    if path == STANDARD_STREAM:
        raise SourceError("-: Spark reads files and folders, not standard input; name one")
    is_local = "://" not in path
    if is_local and not os.path.exists(path) and not any(sign in path for sign in "*?[{"):
        raise SourceError(f"{path}: no such file or directory; check the path")
    if is_local and os.path.isdir(path) and not os.path.splitext(path.rstrip("/"))[1]:
        formats = sorted(set(_formats(path)))
        if len(formats) != 1:
            content = f"holds {' and '.join(formats)} files" if formats else "holds no .parquet, .jsonl or .csv files"
            raise SourceError(f"{path}: the folder {content}; name one that holds files of one of these formats")
        return formats[0]
    return format_of(path.rstrip("/"))


def _formats(folder: str) -> Iterable[str]:
    for _, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            found = SUFFIXES.get(os.path.splitext(name)[1].lower())
            if found is not None and not name.startswith(("_", ".")):
                yield found


def read_frame(path: str, read: Callable[[str], DataFrame]) -> DataFrame:
    """Apply a reader of Spark to a path; raise SourceError where it cannot read it."""
    try:
        frame = read(path)
        frame.schema  # noqa: B018 - Spark Connect only detects a bad path here
    except Exception as error:  # an error of PySpark, or of its bridge to Java
        found = re.search(r"\[[A-Z_.]+\].*", str(error))
        problem = type(error).__name__ if found is None else found[0].partition(" SQLSTATE:")[0].rstrip(". ")
        raise SourceError(f"{path}: cannot be read: {problem}; check the path and the file") from None
    if not frame.schema.fields:
        raise SourceError(f"{path}: there are no columns; check that the file holds rows")
    return frame


# -- JSON lines --------------------------------------------------------------------------------------------------------


def _read_json(spark: SparkSession, path: str, schema: Schema | None) -> EventRows:
    wanted = _types_of_json(spark, path) if schema is None else schema
    lines = read_frame(path, spark.read.text)
    return validate(lines.where("trim(value) <> ''"), wanted, column="value", source=_SOURCE)


def _types_of_json(spark: SparkSession, path: str) -> Schema:
    frame = read_frame(path, lambda where: spark.read.json(where, columnNameOfCorruptRecord=BROKEN))
    found = schema_from_spark(T.StructType([field for field in frame.schema.fields if field.name != BROKEN]))
    if not len(found):
        raise SourceError(f"{path}: no line is a JSON object with attributes; check the file")
    return found


# -- CSV ---------------------------------------------------------------------------------------------------------------


def _read_csv(spark: SparkSession, path: str, schema: Schema | None) -> EventRows:
    """Read the fields one by one; a field that is not of its type makes its row a dead letter."""
    placed, names = _split_csv(spark, path)
    wanted = _types_of_csv(placed, names) if schema is None else schema
    fields = _fields(path, names, wanted)
    typed = {field.name: field.dataType for field in spark_schema(wanted).fields}
    values = [
        (F.lit(None).cast(typed[name]) if at is None else _value(at, attribute.type)).alias(name)
        for name, (at, attribute) in fields.items()
    ]
    reasons = [_reason(at, attribute) for at, attribute in fields.values() if at is not None]
    of_length = F.when(F.col(BROKEN).isNotNull(), F.lit(f"there are not {len(names)} fields, as in the header"))
    raw = F.coalesce(BROKEN, F.to_csv(F.struct(*(F.col(f"c{at}") for at in range(len(names))))))
    reason = F.coalesce(of_length, *reasons)
    # Validated here, because later columns lose the metadata with the names of the files.
    read = placed.select(*values, reason.alias(_REASON), F.when(reason.isNotNull(), raw).alias(_RAW))
    checked = validate(read, wanted, keep=[_REASON, _RAW], source=_SOURCE)
    marked = checked.marked.select(
        "event",
        F.coalesce(f"event.{_RAW}", "raw").alias("raw"),
        F.coalesce(f"event.{_REASON}", "reason").alias("reason"),
        "source",
    )
    good = marked.where("reason IS NULL").select("event.*").drop(_REASON, _RAW)
    return EventRows(good, marked.where("reason IS NOT NULL").select(*DEAD_COLUMNS), marked)


def _split_csv(spark: SparkSession, path: str) -> tuple[DataFrame, list[str]]:
    """Return rows of texts in columns by number, and the names in the header."""
    names = read_frame(path, lambda where: spark.read.csv(where, **CSV_OPTIONS)).columns
    columns = T.StructType([T.StructField(name, T.StringType()) for name in (*names, BROKEN)])
    texts = read_frame(path, lambda where: spark.read.schema(columns).csv(where, enforceSchema=False, **CSV_OPTIONS))
    return texts.toDF(*(f"c{at}" for at in range(len(names))), BROKEN), names


def _fields(path: str, names: Sequence[str], schema: Schema) -> dict[str, tuple[int | None, Attribute]]:
    """Return the number of each attribute's column, None where there is none."""
    for name, declared in schema.tree.items():
        if not isinstance(declared, Attribute):
            raise SourceError(
                f"{path}: {show_name((name,))} is an object in the schema, which CSV does not hold on Spark; "
                "give .jsonl or .parquet"
            )
    for name in names:
        if name not in schema.tree:
            raise SourceError(f"{path}: column {show_name((name,))} is not in the schema; drop it, or add it there")
    return {a.path[0]: (names.index(a.path[0]) if a.path[0] in names else None, a) for a in schema}


def _present(at: int, type_: Type) -> Column:
    """Return a field, NULL where its text means so."""
    text = F.col(f"c{at}")
    words = [""] if type_ is Type.STRING else sorted(NULL_WORDS)
    return F.when(~text.isin(words), text)


def _value(at: int, type_: Type) -> Column:
    """Return a field as its type, NULL where it is not of that type."""
    text = _present(at, type_)
    match type_:
        case Type.STRING:
            return text
        case Type.INTEGER:
            return F.when(text.rlike(r"^-?[0-9]{1,38}$"), text.try_cast("decimal(38,0)"))
        case Type.FLOAT:
            return F.when(text.rlike(_FLOAT_FIELD), text.try_cast("double"))
        case Type.DECIMAL:
            return F.when(text.rlike(_DECIMAL_FIELD), text.try_cast("decimal(38,18)"))
        case Type.BOOLEAN:
            return F.when(F.lower(text).isin("true", "false"), F.lower(text) == "true")
        case Type.TIMESTAMP:
            return F.when(text.rlike(_TIME), text.try_cast("timestamp"))


def _reason(at: int, attribute: Attribute) -> Column:
    text = _present(at, attribute.type)
    problem = F.concat(F.lit(f"{attribute.shown}: '"), text, F.lit(f"' is not {with_article(attribute.type)}"))
    return F.when(text.isNotNull() & _value(at, attribute.type).isNull(), problem)


def _types_of_csv(placed: DataFrame, names: Sequence[str]) -> Schema:
    """Return for each column the narrowest type that holds all its fields and loses nothing: 007 is a text."""
    counted = []
    for at in range(len(names)):
        text = _present(at, Type.INTEGER)
        counted += [
            F.count(text).alias(f"present{at}"),
            F.count_if(text.rlike(_WHOLE) & (F.length(text) <= _WORD_DIGITS)).alias(f"whole{at}"),
            F.count_if(text.rlike(_NUMBER) & ~text.rlike(_LONG)).alias(f"number{at}"),
            F.count_if(text.isin("true", "false")).alias(f"boolean{at}"),
            F.count_if(text.rlike(_TIME) & text.try_cast("timestamp").isNotNull()).alias(f"timestamp{at}"),
        ]
    counts = placed.where(F.col(BROKEN).isNull()).agg(*counted).toArrow().to_pylist()[0]
    choices = (
        ("whole", Type.INTEGER),
        ("number", Type.FLOAT),
        ("boolean", Type.BOOLEAN),
        ("timestamp", Type.TIMESTAMP),
    )
    attributes = []
    for at, name in enumerate(names):
        present = counts[f"present{at}"]
        fitting = [type_ for name_, type_ in choices if present and counts[f"{name_}{at}"] == present]
        attributes.append(Attribute(join_name((name,)), fitting[0] if fitting else Type.STRING))
    return Schema(tuple(attributes))
