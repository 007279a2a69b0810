"""Random values, attributes, schemas and events, and what it means that two of them are exactly the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Context, Decimal

from hypothesis import strategies as st

from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.language.names import join_name
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Type, Value

TRADES = """\
name: trades
attributes:
  symbol: string
  price: {type: decimal, min: 0, max: 1000.00, precision: 0.01}
  volume: {type: integer, min: 1, precision: 1}
  ratio: {type: float, min: -1, max: 1, precision: 0.1}
  live: boolean
  at: {type: timestamp, min: 2026-01-01, max: "2026-12-31 23:59:59Z"}
  order.side: string
  order.depth.level: integer
"""
"""A schema with a bit of everything."""

INTEGER_MAX = 10**38 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "price", "select", "and", "a.b", "a`b", "größe", "🙂", " ", "\x00", "new\nline", "NaN", "id"]
    ),
    TEXT.filter(bool),
)
INTEGERS = st.one_of(
    st.sampled_from(
        [0, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, INTEGER_MAX, -INTEGER_MAX]
    ),
    st.integers(-INTEGER_MAX, INTEGER_MAX),
    st.integers(-1000, 1000),
)
INTEGERS_64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 5e-324, 0.1, 2.0**53, 1e22, 1e23, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
    ),
    st.floats(),
)
TIMESTAMPS = st.one_of(
    st.sampled_from([datetime.min, datetime.max, datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    st.datetimes(),
).map(lambda value: value.replace(tzinfo=UTC, fold=0))


@st.composite
def decimals(draw: st.DrawFn) -> Decimal:
    """Every decimal that some DECIMAL(38, s) holds, as written: trailing zeros, exponents and all."""
    digits = draw(st.integers(1, 38))
    number = draw(st.integers(0, 10**digits - 1))
    exponent = draw(st.integers(-38, 38 - len(str(number))))
    return Decimal((draw(st.integers(0, 1)), tuple(map(int, str(number))), exponent))


VALUES: dict[Type, st.SearchStrategy[Value]] = {
    Type.INTEGER: INTEGERS,
    Type.FLOAT: FLOATS,
    Type.DECIMAL: decimals(),
    Type.STRING: TEXT,
    Type.BOOLEAN: st.booleans(),
    Type.TIMESTAMP: TIMESTAMPS,
}
COLUMN_DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1).map(
    lambda number: Decimal(number).scaleb(-18, Context(prec=38))
)
"""Decimals as a DECIMAL(38, 18) column holds them."""
COLUMN_VALUES = VALUES | {Type.INTEGER: INTEGERS_64, Type.DECIMAL: COLUMN_DECIMALS}
SCALARS: st.SearchStrategy[Value] = st.one_of(st.none(), *VALUES.values())
ATTRIBUTES: st.SearchStrategy[dict[str, Value]] = st.dictionaries(
    NAMES, st.recursive(SCALARS, lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=6), max_size=5
)
LABELS = TEXT.filter(bool)
SEQUENCES = st.one_of(st.sampled_from([0, 1, 2**63 - 1]), st.integers(0, 2**63 - 1))


def events(attributes: st.SearchStrategy[dict[str, Value]] = ATTRIBUTES) -> st.SearchStrategy[Event]:
    return st.builds(Event, LABELS, LABELS, SEQUENCES, TIMESTAMPS, attributes)


@st.composite
def schemas(draw: st.DrawFn, types: tuple[Type, ...] = tuple(Type)) -> Schema:
    """Schemas of types alone, some attributes nested."""
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    attributes: list[Attribute] = []
    for name in names:
        inner = draw(st.lists(NAMES, unique=True, max_size=2))
        paths: list[tuple[str, ...]] = [(name, below) for below in inner] or [(name,)]
        attributes += [Attribute(join_name(path), draw(st.sampled_from(types))) for path in paths]
    return Schema(tuple(attributes))


@st.composite
def rows_of(
    draw: st.DrawFn, schema: Schema, values: Mapping[Type, st.SearchStrategy[Value]] = VALUES
) -> dict[str, Value]:
    """A row that has every attribute of a schema, or NULL in its place."""
    row: dict[str, Value] = {}
    for attribute in schema:
        within = row
        for segment in attribute.path[:-1]:
            below = within.setdefault(segment, {})
            assert isinstance(below, dict)
            within = below
        within[attribute.path[-1]] = draw(st.one_of(st.none(), values[attribute.type]))
    return row


def exactly(value: object) -> object:
    """Equal for two values only if they are the same in value and class: 1, 1.0, True, 0.0 and -0.0 all differ."""
    if isinstance(value, Mapping):
        return {name: exactly(below) for name, below in value.items()}
    if isinstance(value, list):
        return [exactly(below) for below in value]
    if isinstance(value, datetime):
        return type(value), repr(value), value.tzinfo is UTC
    return type(value), repr(value)


def refusal(call: Callable[[], object]) -> str:
    """The text of the EventError that a call raises; nothing where it raises none. Any other error passes through."""
    try:
        call()
    except EventError as error:
        return str(error)
    return ""
