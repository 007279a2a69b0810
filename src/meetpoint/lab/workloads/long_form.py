"""Subscriptions in long form: one row per constraint, so that peers without our language can hold them.

A subscription is the conjunction of its rows, which are on distinct attributes and stand together, ordered by
subscription and then by attribute. `eq` compares with `text`, or with a number where `low` equals `high`; `range` is
low <= value <= high, with infinities for an open end; `prefix`, `suffix` and `contains` test for `text`. NULL satisfies
no row. Not every filter has a long form: those that have none are named, never dropped silently.

`Draft` draws the long form of a mix (`Mix`) in whole columns: values, and choices of attributes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.language.filters.constraints import EVERY_TEXT, Constraint, NumberSet, TextSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.like import Pattern, PatternSort
from meetpoint.language.syntax.render import literal_text

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
    """Yield each subscription with its filter as text, so that any reader of our language can be asked too."""
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
    """Return the long form of the filters that have one, by number, and the numbers of those that have none.

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
    """Return whether a shorter decimal has the same double, so that an exact value there would be judged
    differently.
    """
    exact = Decimal(bound)  # type: ignore[arg-type]
    short = _FIFTEEN_DIGITS.plus(exact)
    return short != exact and float(short) == float(exact)


# -- drafts ------------------------------------------------------------------------------------------------------------


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Rng: TypeAlias = np.random.Generator

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CHOICE_ROWS = 65_536


class Draft:
    """The long form of subscriptions, an attribute at a time."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self._pool: list[str] = []
        self._blocks: list[tuple[str, dict[str, Array]]] = []

    def ranges(self, attribute: str, rows: Array, low: Array, high: Array) -> None:
        """Add ranges, one a row; where both ends are equal it is an equality."""
        op = np.where(low == high, OPS.index("eq"), OPS.index("range"))
        self._add(attribute, rows, op, low, high, np.full(len(rows), -1))

    def ranges_of(self, attribute: str, rows: Array, ordered: Array, least: float, most: float) -> None:
        """Add ranges that accept a share of ordered values, each share between `least` and `most` as likely."""
        share = self.rng.uniform(least, most, len(rows))
        first = self.rng.uniform(0, 1 - share)
        low, high = (ordered[(at * (len(ordered) - 1)).astype(np.int64)] for at in (first, first + share))
        self.ranges(attribute, rows, low, high)

    def texts(
        self, attribute: str, op: str, rows: Array, values: Sequence[str], which: Array, cut: Array | None = None
    ) -> None:
        """Add tests for a value each, or for its first, or with `suffix` its last, `cut` characters."""
        lengths = lengths_of(values, which)
        long = int(lengths.max(initial=0)) + 1
        taken = lengths if cut is None else cut
        distinct, code = np.unique(which.astype(np.int64) * long + taken, return_inverse=True)
        first = len(self._pool)
        for key in distinct.tolist():
            value, length = values[key // long], key % long
            self._pool.append(value[len(value) - length :] if op == "suffix" else value[:length])
        nothing = np.full(len(rows), np.nan)
        self._add(attribute, rows, np.full(len(rows), OPS.index(op)), nothing, nothing, code + first)

    def words(
        self,
        attribute: str,
        rows: Array,
        values: Sequence[str],
        which: Array,
        shares: Mapping[str, float],
        shortest: int = 2,
    ) -> None:
        """Add tests for values, by shares of ops; a value no longer than the shortest part is tested whole."""
        drawn = self.rng.random(len(rows))
        short = lengths_of(values, which) <= shortest
        floor = 0.0
        for op, share in shares.items():
            mine = (drawn >= floor) & (drawn < floor + share)
            mine = mine | short if op == "eq" else mine & ~short
            cut = None if op == "eq" else cut_words(self.rng, values, which[mine], shortest)
            self.texts(attribute, op, rows[mine], values, which[mine], cut)
            floor += share

    def _add(self, attribute: str, rows: Array, op: Array, low: Array, high: Array, text: Array) -> None:
        self._blocks.append((attribute, {"rows": rows, "op": op, "low": low, "high": high, "text": text}))

    def table(self) -> pa.Table:
        """Return all rows, ordered by subscription and then by attribute."""
        blocks = sorted(self._blocks, key=lambda block: block[0])
        whole = {name: np.concatenate([block[name] for _, block in blocks]) for name in blocks[0][1]}
        names = sorted({attribute for attribute, _ in blocks})
        attribute = np.repeat([names.index(a) for a, _ in blocks], [len(block["rows"]) for _, block in blocks])
        order = np.argsort(whole["rows"], kind="stable")
        absent = whole["text"][order] >= 0
        columns = [
            pa.array(whole["rows"][order], pa.int64()),
            pa.array(names).take(pa.array(attribute[order])),
            pa.array(OPS).take(pa.array(whole["op"][order])),
            pa.array(whole["low"][order], mask=absent),
            pa.array(whole["high"][order], mask=absent),
            pa.array(self._pool, pa.string()).take(pa.array(whole["text"][order], mask=~absent)),
        ]
        return pa.table(columns, schema=LONG_FORM)


class Mix(ABC):
    """A vocabulary, and the draws from it."""

    @abstractmethod
    def __init__(self, rng: Rng) -> None: ...

    @abstractmethod
    def events(self, rng: Rng, count: int) -> pa.Table:
        """Draw events, a column an attribute."""

    @abstractmethod
    def subscriptions(self, rng: Rng, count: int) -> Draft:
        """Draw subscriptions, numbered from 0."""


def choose(rng: Rng, weights: Sequence[float] | Array, sizes: Array) -> Array:
    """Choose for each subscription so many of the attributes, none twice, as a mask; the heavy ones more often.

    `weights` are one row for all, or a row a subscription. The smallest of exponential draws, each divided by its
    weight, are distributed like draws one after another without putting back.
    """
    weight = np.asarray(weights, dtype=np.float64)
    many = weight.ndim == 2
    chosen = np.zeros((len(sizes), weight.shape[-1]), dtype=np.bool_)
    for at in range(0, len(sizes), _CHOICE_ROWS):
        part = slice(at, at + _CHOICE_ROWS)
        size = sizes[part]
        with np.errstate(divide="ignore"):
            draws = rng.standard_exponential((len(size), weight.shape[-1])) / (weight[part] if many else weight)
        last = np.sort(draws, axis=1)[np.arange(len(size)), size - 1]
        chosen[part] = draws <= last[:, None]
    return chosen


def zipf(rng: Rng, count: int, size: int, theta: float) -> Array:
    """Draw numbers below `count`, the n-th as often as 1 / n ** theta; 0 is all alike."""
    weights = 1 / np.arange(1, count + 1) ** theta
    return rng.choice(count, size, p=weights / weights.sum())


def pick(rng: Rng, shares: Mapping[int, float], size: int) -> Array:
    """Draw numbers by their shares."""
    return rng.choice(list(shares), size, p=list(shares.values()))


def some_words(rng: Rng, count: int, shortest: int, longest: int) -> list[str]:
    """Draw distinct words of random letters, in random order."""
    words: dict[str, None] = {}
    while len(words) < count:
        lengths = rng.integers(shortest, longest + 1, count)
        letters = rng.integers(0, len(_LETTERS), (count, longest))
        for length, row in zip(lengths.tolist(), letters.tolist(), strict=True):
            words["".join(map(_LETTERS.__getitem__, row[:length]))] = None
    return list(words)[:count]


def cut_words(rng: Rng, values: Sequence[str], which: Array, least: int) -> Array:
    """Draw for each value a length between `least` and its own."""
    lengths = lengths_of(values, which)
    return rng.integers(np.minimum(least, lengths), lengths + 1)


def lengths_of(values: Sequence[str], which: Array) -> Array:
    """Return the lengths of some values by their numbers: of those only, since there may be many more."""
    distinct, code = np.unique(which, return_inverse=True)
    return np.array([len(values[number]) for number in distinct.tolist()], dtype=np.int64)[code]


def column(values: Sequence[str], which: Array) -> pa.Array:
    """Return a column of strings by the numbers of their values; a negative number is NULL."""
    return pa.array(values, pa.string()).take(pa.array(which, mask=which < 0))


def joined(parts: Sequence[pa.Array], between: str) -> pa.Array:
    """Join columns of strings row by row."""
    return pc.binary_join_element_wise(*parts, between)
