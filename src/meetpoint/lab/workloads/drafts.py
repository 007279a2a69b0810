"""What a mix is, and what all are drawn with: long form in whole columns, values, choices of attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.lab.workloads.longform import LONG_FORM, OPS

__all__ = [
    "Array",
    "Draft",
    "Mix",
    "Rng",
    "choose",
    "column",
    "cut_words",
    "joined",
    "lengths_of",
    "pick",
    "some_words",
    "zipf",
]

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
        """Ranges, one a row; where both ends are equal it is an equality."""
        op = np.where(low == high, OPS.index("eq"), OPS.index("range"))
        self._add(attribute, rows, op, low, high, np.full(len(rows), -1))

    def ranges_of(self, attribute: str, rows: Array, ordered: Array, least: float, most: float) -> None:
        """Ranges that accept a share of some values in order, between `least` and `most`, each of them as likely."""
        share = self.rng.uniform(least, most, len(rows))
        first = self.rng.uniform(0, 1 - share)
        low, high = (ordered[(at * (len(ordered) - 1)).astype(np.int64)] for at in (first, first + share))
        self.ranges(attribute, rows, low, high)

    def texts(
        self, attribute: str, op: str, rows: Array, values: Sequence[str], which: Array, cut: Array | None = None
    ) -> None:
        """Tests for a value each, or for its first, or with `suffix` its last, `cut` characters."""
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
        """Tests for values, by shares of ops; a value that is no longer than the shortest part is tested whole."""
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
        """All rows, ordered by subscription and then by attribute."""
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
    """A vocabulary, and what is drawn from it."""

    @abstractmethod
    def __init__(self, rng: Rng) -> None: ...

    @abstractmethod
    def events(self, rng: Rng, count: int) -> pa.Table:
        """So many events, a column an attribute."""

    @abstractmethod
    def subscriptions(self, rng: Rng, count: int) -> Draft:
        """So many subscriptions, numbered from 0."""


def choose(rng: Rng, weights: Sequence[float] | Array, sizes: Array) -> Array:
    """For each subscription so many of the attributes, none twice, as a mask; the heavy ones more often.

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
    """Numbers below `count`, the n-th as often as 1 / n ** theta; 0 is all alike."""
    weights = 1 / np.arange(1, count + 1) ** theta
    return rng.choice(count, size, p=weights / weights.sum())


def pick(rng: Rng, shares: Mapping[int, float], size: int) -> Array:
    """Numbers by their shares."""
    return rng.choice(list(shares), size, p=list(shares.values()))


def some_words(rng: Rng, count: int, shortest: int, longest: int) -> list[str]:
    """Distinct words of random letters, in random order."""
    words: dict[str, None] = {}
    while len(words) < count:
        lengths = rng.integers(shortest, longest + 1, count)
        letters = rng.integers(0, len(_LETTERS), (count, longest))
        for length, row in zip(lengths.tolist(), letters.tolist(), strict=True):
            words["".join(map(_LETTERS.__getitem__, row[:length]))] = None
    return list(words)[:count]


def cut_words(rng: Rng, values: Sequence[str], which: Array, least: int) -> Array:
    """For each value a length between `least` and its own."""
    lengths = lengths_of(values, which)
    return rng.integers(np.minimum(least, lengths), lengths + 1)


def lengths_of(values: Sequence[str], which: Array) -> Array:
    """The lengths of some values by their numbers: of those only, since there may be many more."""
    distinct, code = np.unique(which, return_inverse=True)
    return np.array([len(values[number]) for number in distinct.tolist()], dtype=np.int64)[code]


def column(values: Sequence[str], which: Array) -> pa.Array:
    """A column of strings by the numbers of their values; a negative number is NULL."""
    return pa.array(values, pa.string()).take(pa.array(which, mask=which < 0))


def joined(parts: Sequence[pa.Array], between: str) -> pa.Array:
    """Columns of strings joined row by row."""
    return pc.binary_join_element_wise(*parts, between)
