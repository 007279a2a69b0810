"""What a caller gives, checked before any job starts: choices, DataFrames, filters against their columns."""

from __future__ import annotations

from typing import Any

from meetpoint.errors import FilterError, MeetpointError
from meetpoint.language import Filter, parse_filter
from meetpoint.language.syntax.tree import predicates
from meetpoint.spark.types import schema_from_spark, unusable_columns

__all__ = ["check_choice", "check_filter", "check_frame"]


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
