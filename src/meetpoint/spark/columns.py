"""Columns of DataFrames: schemas as Spark's types and back, and the checks of arguments before any job starts.

An attribute is a column, an object of attributes a struct. Columns of types that no attribute has (a date, an array, a
string under a collation) are left out of the schema, since a filter may do without them. `unusable_columns` names them,
so that an error can name the type instead of calling the column unknown.

Rows cross between Python and Spark as Arrow (`createDataFrame(table)`, `toArrow()`), never as Row objects: PySpark
turns a Row's timestamps into the local time of the Python process.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

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
    "check_no_column",
    "schema_from_spark",
    "spark_schema",
    "unusable_columns",
]

_Path = tuple[str, ...]
_TYPES: dict[type[T.DataType], Type] = {
    T.BooleanType: Type.BOOLEAN,
    T.ByteType: Type.INTEGER,
    T.ShortType: Type.INTEGER,
    T.IntegerType: Type.INTEGER,
    T.LongType: Type.INTEGER,
    T.FloatType: Type.FLOAT,
    T.DoubleType: Type.FLOAT,
    T.DecimalType: Type.DECIMAL,
    T.StringType: Type.STRING,
    T.CharType: Type.STRING,
    T.VarcharType: Type.STRING,
    T.TimestampType: Type.TIMESTAMP,
    T.TimestampNTZType: Type.TIMESTAMP,
}


def spark_schema(schema: Schema) -> T.StructType:
    """Return the columns of a DataFrame of attributes. Attributes of one object stand together in its struct.

    For example:

        events = spark.readStream.schema(spark_schema(schema)).parquet("events")
    """
    return _struct(schema.tree)


def schema_from_spark(columns: T.StructType) -> Schema:
    """Return the schema of a DataFrame, given `df.schema`, without the columns that `unusable_columns` names.

    Raise SchemaError where a column occurs twice.

        schema = schema_from_spark(events.schema)
    """
    attributes = []
    for path, field in _leaves(columns, ()):
        type_ = _type_of(field.dataType)
        if type_ is not None:
            scale = field.dataType.scale if isinstance(field.dataType, T.DecimalType) else None
            notes = {key: text for key, text in (field.metadata or {}).items() if isinstance(text, str)}
            attributes.append(attribute_from_column(path, type_, scale, notes))
    return Schema(tuple(attributes))


def unusable_columns(columns: T.StructType) -> dict[str, str]:
    """Return columns that no attribute can be: canonical name to Spark's type name (`date`, `array<int>`)."""
    return {
        join_name(path): field.dataType.simpleString()
        for path, field in _leaves(columns, ())
        if _type_of(field.dataType) is None
    }


def _struct(tree: SchemaTree) -> T.StructType:
    fields = []
    for segment, below in tree.items():
        if isinstance(below, dict):
            fields.append(T.StructField(segment, _struct(below)))
        else:
            fields.append(T.StructField(segment, _column_type(below), metadata=notes_of(below)))
    return T.StructType(fields)


def _column_type(attribute: Attribute) -> T.DataType:
    match attribute.type:
        case Type.INTEGER:
            return T.DecimalType(38, 0) if is_long_integer(attribute) else T.LongType()
        case Type.FLOAT:
            return T.DoubleType()
        case Type.DECIMAL:
            return T.DecimalType(*decimal_size(attribute))
        case Type.STRING:
            return T.StringType()
        case Type.BOOLEAN:
            return T.BooleanType()
        case Type.TIMESTAMP:
            return T.TimestampType()


def _leaves(columns: T.StructType, path: _Path) -> Iterator[tuple[_Path, T.StructField]]:
    seen: set[str] = set()
    for field in columns.fields:
        here = (*path, field.name)
        if field.name in seen:
            raise SchemaError(f"schema: column {show_name(here)} occurs twice; rename one of them")
        seen.add(field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _leaves(field.dataType, here)
        else:
            yield here, field


def _type_of(column: T.DataType) -> Type | None:
    found = _TYPES.get(type(column))
    if isinstance(column, T.StringType) and not column.isUTF8BinaryCollation():
        return None  # a collation does not compare texts by code point, as filters do
    return found


def check_choice(what: str, given: object, choices: tuple[str, ...]) -> None:
    """Raise MeetpointError unless an argument is one of its choices."""
    if given not in choices:
        raise MeetpointError(f"{what} is {given!r}; use {', '.join(choices)}")


def check_frame(frame: object, what: str) -> None:
    """Raise MeetpointError unless an argument is a DataFrame."""
    if not isinstance(frame, DataFrame):
        raise MeetpointError(
            f"{what}: given an object of class {type(frame).__name__}; give a Spark DataFrame, "
            "for instance spark.createDataFrame(...) of it"
        )


def check_no_column(events: DataFrame, added: str, reason: str) -> None:
    """Raise MeetpointError where events already have a column of a name that is added to them."""
    folded = str(events.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"
    for name in events.columns:
        if name == added or (folded and name.lower() == added):
            raise MeetpointError(
                f"events: there is a column {name!r} already, which {reason}; rename it: "
                f"events.withColumnRenamed({name!r}, 'event_{name}')"
            )


def check_filter(text: str, columns: T.StructType) -> Filter:
    """Parse a filter and check it against columns, before any job.

    `columns` is a `df.schema`. Raise FilterError where the filter names a column that is not there, or compares one
    with a value of another kind.

        check_filter("price > 120", events.schema)
    """
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
