"""The language of events, schemas and filters: what is published, its types, and the interest of a subscriber."""

from meetpoint.language.events.event import Event
from meetpoint.language.filters.algebra import canonical, covers, equivalent, intersect, merge, overlaps, satisfiable
from meetpoint.language.filters.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.filters.explain import Explanation, explain
from meetpoint.language.filters.filter import Filter, FilterParser, parse_filter
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.like import Pattern, PatternSort
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.filters.papers import SubId, SubIdLayout, attribute_bits, grid_count, grid_values
from meetpoint.language.names import join_name, split_name
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Attributes, Kind, Type, Value, clean_attributes, kind_of, type_of

__all__ = [
    "Absent",
    "Attribute",
    "Attributes",
    "BooleanSet",
    "Conjunction",
    "Constraint",
    "Event",
    "Explanation",
    "Filter",
    "FilterParser",
    "Interval",
    "Kind",
    "NumberSet",
    "Pattern",
    "PatternSort",
    "Present",
    "Schema",
    "SubId",
    "SubIdLayout",
    "TextSet",
    "TimestampSet",
    "Type",
    "Value",
    "attribute_bits",
    "canonical",
    "clean_attributes",
    "covers",
    "equivalent",
    "explain",
    "grid_count",
    "grid_values",
    "intersect",
    "join_name",
    "kind_of",
    "merge",
    "overlaps",
    "parse_filter",
    "satisfiable",
    "split_name",
    "type_of",
]
