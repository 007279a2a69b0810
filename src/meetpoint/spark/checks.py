"""Filters against the columns of a DataFrame, refused before any job starts."""

from __future__ import annotations

from typing import Any

from meetpoint.errors import FilterError
from meetpoint.language import Filter, parse_filter
from meetpoint.language.tree import predicates
from meetpoint.spark.types import schema_from_spark, unusable_columns

__all__ = ["check_filter"]


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
