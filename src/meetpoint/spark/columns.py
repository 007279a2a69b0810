"""Schemas as Spark's column types, and back.

An attribute is a column, an object of attributes a struct. Columns of types that no attribute has (a date, an array, a
string under a collation) are left out of the schema, since a filter may do without them; `unusable_columns` says which
they are, so that an error can name the type instead of calling the column unknown.

Rows cross between Python and Spark as Arrow (`createDataFrame(table)`, `toArrow()`), never as Row objects: PySpark
turns a Row's timestamps into the local time of the Python process.


What a caller gives, checked before any job starts: choices, DataFrames, filters against their columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import types as spark

from meetpoint.errors import FilterError, MeetpointError, SchemaError
from meetpoint.language import Filter, parse_filter
from meetpoint.language.events.arrow import attribute_from_column, decimal_size, is_long_integer, notes_of
from meetpoint.language.names import join_name, show_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree
from meetpoint.language.syntax.tree import predicates
from meetpoint.language.values import Type

__all__ = [
    "check_choice",
    "check_filter",
    "check_frame",
    "schema_from_spark",
    "spark_schema",
    "unusable_columns",
]

_Path = tuple[str, ...]
_TYPES: dict[Any, Type] = {
    spark.BooleanType: Type.BOOLEAN,
    spark.ByteType: Type.INTEGER,
    spark.ShortType: Type.INTEGER,
    spark.IntegerType: Type.INTEGER,
    spark.LongType: Type.INTEGER,
    spark.FloatType: Type.FLOAT,
    spark.DoubleType: Type.FLOAT,
    spark.DecimalType: Type.DECIMAL,
    spark.StringType: Type.STRING,
    spark.CharType: Type.STRING,
    spark.VarcharType: Type.STRING,
    spark.TimestampType: Type.TIMESTAMP,
    spark.TimestampNTZType: Type.TIMESTAMP,
}


def spark_schema(schema: Schema) -> spark.StructType:
    """The columns of a DataFrame of attributes. Attributes of one object stand together in its struct."""
    return _struct(schema.tree)


def schema_from_spark(columns: spark.StructType) -> Schema:
    """The schema of a DataFrame by its `df.schema`, without the columns that `unusable_columns` names."""
    attributes = []
    for path, field in _leaves(columns, ()):
        type_ = _type_of(field.dataType)
        if type_ is not None:
            scale = field.dataType.scale if type_ is Type.DECIMAL else None
            notes = {key: text for key, text in (field.metadata or {}).items() if isinstance(text, str)}
            attributes.append(attribute_from_column(path, type_, scale, notes))
    return Schema(tuple(attributes))


def unusable_columns(columns: spark.StructType) -> dict[str, str]:
    """The columns that no attribute can be: canonical name to Spark's name of the type (`date`, `array<int>`)."""
    return {
        join_name(path): field.dataType.simpleString()
        for path, field in _leaves(columns, ())
        if _type_of(field.dataType) is None
    }


def _struct(tree: SchemaTree) -> spark.StructType:
    fields = []
    for segment, below in tree.items():
        if isinstance(below, dict):
            fields.append(spark.StructField(segment, _struct(below)))
        else:
            fields.append(spark.StructField(segment, _column_type(below), metadata=notes_of(below)))
    return spark.StructType(fields)


def _column_type(attribute: Attribute) -> Any:
    match attribute.type:
        case Type.INTEGER:
            return spark.DecimalType(38, 0) if is_long_integer(attribute) else spark.LongType()
        case Type.FLOAT:
            return spark.DoubleType()
        case Type.DECIMAL:
            return spark.DecimalType(*decimal_size(attribute))
        case Type.STRING:
            return spark.StringType()
        case Type.BOOLEAN:
            return spark.BooleanType()
        case Type.TIMESTAMP:
            return spark.TimestampType()


def _leaves(columns: spark.StructType, path: _Path) -> Iterator[tuple[_Path, Any]]:
    seen: set[str] = set()
    for field in columns.fields:
        here = (*path, field.name)
        if field.name in seen:
            raise SchemaError(f"schema: column {show_name(here)} occurs twice; rename one of them")
        seen.add(field.name)
        if isinstance(field.dataType, spark.StructType):
            yield from _leaves(field.dataType, here)
        else:
            yield here, field


def _type_of(column: Any) -> Type | None:
    found = _TYPES.get(type(column))
    if isinstance(column, spark.StringType) and not column.isUTF8BinaryCollation():
        return None  # it compares texts otherwise than by code point
    return found


def check_choice(what: str, given: object, choices: tuple[str, ...]) -> None:
    """MeetpointError where an argument is none of its choices."""
    if given not in choices:
        raise MeetpointError(f"{what} is {given!r}; use {', '.join(choices)}")


def check_frame(frame: Any, what: str) -> None:
    """MeetpointError where something is no DataFrame of Spark."""
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise MeetpointError(
            f"{what}: given an object of class {type(frame).__name__}; give a Spark DataFrame, "
            "for instance spark.createDataFrame(...) of it"
        )


def check_filter(text: str, columns: Any) -> Filter:
    """The filter, if every column it names is in `columns` (a `df.schema`) and of the kind it is compared with."""
    filter_ = parse_filter(text)
    unusable = unusable_columns(columns)
    for predicate in predicates(filter_.tree):
        type_name = unusable.get(predicate.attribute)
        if type_name is not None:
            raise FilterError(
                f"column {predicate.attribute} is of type {type_name}, which a filter does not compare",
                "cast it, for instance a date to a timestamp, before matching",
                text=text,
                start=predicate.start,
                end=predicate.end,
            )
    return parse_filter(text, schema_from_spark(columns))
