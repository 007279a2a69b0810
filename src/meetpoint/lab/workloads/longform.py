"""Subscriptions in long form: one row per constraint, so that peers without our language can hold them.

A subscription is the conjunction of its rows, which are on distinct attributes and stand together, ordered by
subscription and then by attribute. `eq` compares with `text`, or with a number where `low` equals `high`; `range` is
low <= value <= high, with infinities for an open end; `prefix`, `suffix` and `contains` test for `text`. NULL satisfies
no row. Not every filter can be said so: those that cannot are named, never dropped silently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from meetpoint.language.filters.constraints import EVERY_TEXT, Constraint, NumberSet, TextSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.like import Pattern, PatternSort
from meetpoint.language.syntax.render import literal_text

__all__ = ["LONG_FORM", "OPS", "Workload", "filter_texts", "long_form"]

OPS = ("eq", "range", "prefix", "suffix", "contains")
LONG_FORM = pa.schema(
    [
        ("subscription", pa.int64()),
        ("attribute", pa.string()),
        ("op", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("text", pa.string()),
    ]
)
DOUBLE_DIGITS = 15
"""Decimals of so many digits are told apart by the doubles nearest to them."""

_Row: TypeAlias = tuple[str, str, float | None, float | None, str | None]
_FIFTEEN_DIGITS = Context(prec=DOUBLE_DIGITS)
_PLAIN_BELOW = 1e15


class Workload(msgspec.Struct, frozen=True):
    """Subscriptions in long form, and the events that meet them: one column an attribute, rows numbered from 0."""

    name: str
    subscriptions: pa.Table
    events: pa.Table


# -- long form to text -------------------------------------------------------------------------------------------------


def filter_texts(workload: Workload | pa.Table) -> Iterator[tuple[int, str]]:
    """Each subscription with its filter as a text, so that whatever reads our language can be asked too."""
    table = workload.subscriptions if isinstance(workload, Workload) else workload
    columns = [table[name].to_pylist() for name in LONG_FORM.names]
    for subscription, rows in groupby(zip(*columns, strict=True), key=itemgetter(0)):
        yield subscription, " AND ".join(_row_text(*row[1:]) for row in rows)


def _row_text(attribute: str, op: str, low: float | None, high: float | None, text: str | None) -> str:
    if text is not None:
        return f"{attribute} {_text_test(op, text)}"
    assert low is not None
    assert high is not None
    if low == high:
        return f"{attribute} = {_number(low)}"
    if math.isinf(low) and math.isinf(high):
        return f"({attribute} <= 0 OR {attribute} > 0)"
    if math.isinf(high):
        return f"{attribute} >= {_number(low)}"
    if math.isinf(low):
        return f"{attribute} <= {_number(high)}"
    return f"{attribute} BETWEEN {_number(low)} AND {_number(high)}"


@lru_cache(maxsize=65_536)
def _text_test(op: str, text: str) -> str:
    if op == "eq":
        return f"= {literal_text(text)}"
    pieces = {"prefix": (text, ""), "suffix": ("", text), "contains": ("", text, "")}[op]
    return f"LIKE {literal_text(Pattern(pieces).text())}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < _PLAIN_BELOW else repr(value)


# -- filters to long form ----------------------------------------------------------------------------------------------


def long_form(filters: Iterable[tuple[int, Filter]]) -> tuple[pa.Table, list[int]]:
    """The long form of the filters that have one, by number, and the numbers of those that have none.

    Bounds are doubles. They judge floats as our language does, and also integers and decimals of at most
    `DOUBLE_DIGITS` digits: a bound that would judge those differently has no long form.
    """
    said: dict[int, list[_Row]] = {}
    unsaid: list[int] = []
    for number, filter_ in filters:
        rows = _rows(filter_)
        if rows is None:
            unsaid.append(number)
        else:
            said[number] = rows
    columns: list[list[Any]] = [[] for _ in LONG_FORM.names]
    for number in sorted(said):
        for row in said[number]:
            for column, cell in zip(columns, (number, *row), strict=True):
                column.append(cell)
    return pa.table(columns, schema=LONG_FORM), unsaid


def _rows(filter_: Filter) -> list[_Row] | None:
    if len(filter_.conjunctions) != 1 or not filter_.conjunctions[0].constraints:
        return None  # FALSE, TRUE, or alternatives
    rows = []
    for attribute, constraint in filter_.conjunctions[0].constraints:
        form = _form(constraint)
        if form is None:
            return None
        rows.append((attribute, *form))
    return rows


def _form(constraint: Constraint) -> tuple[str, float | None, float | None, str | None] | None:
    match constraint:
        case NumberSet(doubles=None):
            return _number_form(constraint)
        case TextSet((only,), like=(), unlike=()) if only.is_point:
            return "eq", None, None, str(only.low)
        case TextSet(intervals, like=like, unlike=()) if intervals == EVERY_TEXT and len(like) <= 1:
            return _pattern_form(like[0]) if like else ("prefix", None, None, "")
    return None


def _pattern_form(pattern: Pattern) -> tuple[str, None, None, str] | None:
    match pattern.sort:
        case PatternSort.PREFIX:
            return "prefix", None, None, pattern.pieces[0]
        case PatternSort.SUFFIX:
            return "suffix", None, None, pattern.pieces[1]
        case PatternSort.SUBSTRING:
            return "contains", None, None, pattern.pieces[1]
    return None


def _number_form(constraint: NumberSet) -> tuple[str, float, float, None] | None:
    if len(constraint.exact) != 1 or len(constraint.for_floats()) != 1:
        return None
    if any(
        end is not None and _rounds_onto_another(end) for end in (constraint.exact[0].low, constraint.exact[0].high)
    ):
        return None
    interval = constraint.for_floats()[0]
    low = -math.inf if interval.low is None else float(interval.low)  # type: ignore[arg-type]
    high = math.inf if interval.high is None else float(interval.high)  # type: ignore[arg-type]
    if interval.low is not None and interval.low_open:
        low = math.nextafter(low, math.inf)
    if interval.high is not None and interval.high_open:
        high = math.nextafter(high, -math.inf)
    if low > high or (math.isinf(low) and low > 0) or (math.isinf(high) and high < 0):
        return None  # holds no double at all
    return ("eq" if low == high else "range"), low, high, None


def _rounds_onto_another(bound: object) -> bool:
    """Whether a shorter decimal has the same double, so that an exact value there would be judged differently."""
    exact = Decimal(bound)  # type: ignore[arg-type]
    short = _FIFTEEN_DIGITS.plus(exact)
    return short != exact and float(short) == float(exact)
