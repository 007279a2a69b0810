"""How evenly nodes are loaded by what `lists` places under keys.

Keys are drawn, placed by the hashing that brokers use, and counted at the nodes that have them, by their first 64 bits:
arrays, so that a million take a second. *Words* are values of 7 small letters of 6 attributes (paper B, section 7.2),
drawn by Zipf's law from all that there are. *Numbers* are skewed, and placed in order (paper A, section 4): by the
linear scale of their bounds, or by a scale from quantiles of other values of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meetpoint.api.ids import NodeId
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Quantiles
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = [
    "ATTRIBUTES",
    "LENGTH",
    "NUMBERS",
    "Array",
    "draw_numbers",
    "draw_words",
    "keys_of",
    "loads",
    "max_to_mean",
    "max_to_min",
    "placed_numbers",
    "placed_words",
    "quantiles",
    "word",
    "zipf",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ATTRIBUTES: Final = 6
LETTERS, LENGTH = "abcdefghijklmnopqrstuvwxyz", 7
SCATTER: Final = 5_726_623_061
"""Odd, and no multiple of 13: words of neighbouring ranks have no letters in common."""
RANKS: Final = 10_000

NUMBERS: Final = Schema.from_yaml(
    f"""
    attributes:
      price: {{type: decimal, min: 0.0, max: 10000.0, precision: 0.01}}
      rank: {{type: integer, min: 1, max: {RANKS}}}
    """
)
"""Prices are log-normal, σ = 1. Ranks are whole numbers by Zipf's law, θ = 1: a single value is one key, whatever its
share, and no scale can divide it."""


# -- loads -------------------------------------------------------------------------------------------------------------


def loads(keys: Array, nodes: Sequence[NodeId]) -> Array:
    """How many keys each node has, by the first 64 bits of ids."""
    ends = np.sort(np.array([_head(node) for node in nodes], np.uint64))
    owners = np.searchsorted(ends, keys, side="left") % len(nodes)
    return np.bincount(owners, minlength=len(nodes))


def _head(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def max_to_min(load: Array) -> float:
    """With an empty node, as if it had one."""
    return float(load.max() / max(load.min(), 1))


def max_to_mean(load: Array) -> float:
    """As many as there are nodes where all is at one."""
    return float(load.max() / load.mean())


# -- words -------------------------------------------------------------------------------------------------------------


def zipf(random: np.random.Generator, theta: float, values: int, count: int) -> Array:
    """Ranks from 0, by Zipf's law over so many values, taken as a continuum: there are too many to add up."""
    drawn = random.random(count)
    far: Array
    if theta == 1.0:
        far = np.exp(drawn * np.log(values + 1.0))
    else:
        far = (drawn * ((values + 1.0) ** (1 - theta) - 1) + 1) ** (1 / (1 - theta))
    return np.minimum((far - 1.0).astype(np.int64), values - 1, dtype=np.int64)


def word(rank: int, length: int = LENGTH) -> str:
    """One of all words of a length, each of one rank."""
    number = rank * SCATTER % len(LETTERS) ** length
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)


def draw_words(
    random: np.random.Generator, theta: float, count: int, attributes: int = ATTRIBUTES, length: int = LENGTH
) -> Iterator[tuple[str, str]]:
    """So many attributes, each with a value."""
    ranks = zipf(random, theta, len(LETTERS) ** length, count).tolist()
    names = random.integers(attributes, size=count).tolist()
    return ((f"a{at}", word(rank, length)) for at, rank in zip(names, ranks, strict=True))


def placed_words(theta: float, count: int, seed: int, attributes: int = ATTRIBUTES, length: int = LENGTH) -> Array:
    """The keys of so many values of all attributes, as `lists` places an equality."""
    random = np.random.default_rng([seed, int(theta * 10)])
    return keys_of(draw_words(random, theta, count, attributes, length))


def keys_of(texts: Iterable[tuple[str, str]]) -> Array:
    """The keys at which texts of attributes lie, and are asked for."""
    hashing = Hashing(Ring())
    return np.array([_head(hashing.text(*each)) for each in texts], np.uint64)


# -- numbers -----------------------------------------------------------------------------------------------------------


def draw_numbers(name: str, count: int, seed: int) -> list[float]:
    """Values of one of `NUMBERS`."""
    if name == "rank":
        return [int(rank) + 1 for rank in zipf(np.random.default_rng([seed, 2]), 1.0, RANKS, count).tolist()]
    assert name == "price"
    drawn = np.exp(np.random.default_rng([seed, 1]).normal(4.0, 1.0, count))
    return [float(value) for value in np.minimum(drawn, 10_000.0).round(2).tolist()]


def quantiles(values: Sequence[float], attribute: Attribute, parts: int) -> Quantiles:
    """A scale of so many parts, from what was seen."""
    order = sorted(values)
    return Quantiles.of([order[part * len(order) // parts] for part in range(1, parts)], attribute)


def placed_numbers(
    name: str, values: Sequence[float], scale: Quantiles | None = None, *, in_order: bool = True
) -> Array:
    """The keys of values of one of `NUMBERS`: by the plain hash, or in order, by a scale or the linear one."""
    scales = {} if scale is None else {name: scale}
    line = Hashing(Ring(), NUMBERS, order_preserving=in_order, scales=scales).line(name, Kind.NUMBER)
    heads = {value: _head(line.keys(value)[0]) for value in dict.fromkeys(values)}
    return np.fromiter((heads[value] for value in values), np.uint64, len(values))
