"""Events, schemas and filters: what is published, what it may look like, and what a subscriber says of it."""

from meetpoint.language.constraints import (
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
)
from meetpoint.language.event import Event
from meetpoint.language.filters import Filter, FilterParser, parse_filter
from meetpoint.language.grid import grid_count, grid_values
from meetpoint.language.intervals import Interval
from meetpoint.language.like import Pattern, PatternSort
from meetpoint.language.names import join_name, split_name
from meetpoint.language.normal import Conjunction
from meetpoint.language.schema import Attribute, Schema
from meetpoint.language.subid import SubId, SubIdLayout, attribute_bits
from meetpoint.language.values import Attributes, Kind, Type, Value, clean_attributes, kind_of, type_of

__all__ = [
    "Absent",
    "Attribute",
    "Attributes",
    "BooleanSet",
    "Conjunction",
    "Constraint",
    "Event",
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
    "clean_attributes",
    "grid_count",
    "grid_values",
    "join_name",
    "kind_of",
    "parse_filter",
    "split_name",
    "type_of",
]
