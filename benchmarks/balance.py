"""How evenly nodes are loaded by what is placed under keys: `python -m benchmarks.balance [--quick] [--json]`.

*strings*: paper B, section 7.2, has 128 nodes, values of 7 characters and 6 attributes, and a ratio of the largest to
the smallest storage of 1.07. It does not say how many entries there are, nor where nodes lie. Here: each entry is one
value, drawn by Zipf's law from all words of 7 small letters, placed where `lists` places it (the plain hash of
attribute and text); on nodes that are evenly spaced, and on nodes whose ids are hashes. The ratio is told with the
number of entries, as it depends on it: even with perfect hashing the smallest of 128 shares of n entries is smaller
than the mean by about 2.5 * sqrt(128 / n). Hashed ids make some arcs hundreds of times as long as others, however many
entries there are.

*numbers*: an order-preserving hash (paper A, section 4) keeps neighbours together, and so all values that are common.
Skewed values are placed by the linear scale of their bounds, and by a scale from 128 quantiles of *other* values of the
same kind. What is told is the largest load to the mean; 128 would be all at one node. Values of `price` are log-normal,
σ = 1, at a precision of 0.01; `rank` is whole numbers by Zipf's law, θ = 1: a single value is one key, whatever its
share, and no scale can divide it.

Each figure is the median of several seeds (of values, and of ids where they are hashed), with the range. It takes half
a minute of CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import msgspec
import numpy as np

from benchmarks.figures import Figure, asked, figure, tell
from benchmarks.rings import hashed, spaced
from meetpoint.language.attribute import Attribute
from meetpoint.language.schema import Schema
from meetpoint.language.values import Kind
from meetpoint.protocol.ring import NodeId, Ring
from meetpoint.rendezvous.scales import Quantiles
from meetpoint.schemes.lists.hashing import Hashing

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

PARTS = ("strings", "numbers")
NODES = 128
ATTRIBUTES = 6
LETTERS, LENGTH = "abcdefghijklmnopqrstuvwxyz", 7
WORDS = len(LETTERS) ** LENGTH
SCATTER = 5_726_623_061
"""Odd, and no multiple of 13: words of neighbouring ranks have no letters in common."""
GOAL = 1.08
"""The largest to the smallest storage that a simulation found for the paper's claim."""
CUTS = NODES - 1
RANKS = 10_000

SCHEMA = Schema.from_yaml(
    f"""
    attributes:
      price: {{type: decimal, min: 0.0, max: 10000.0, precision: 0.01}}
      rank: {{type: integer, min: 1, max: {RANKS}}}
    """
)


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    entries: tuple[int, ...] = (60_000, 1_000_000)
    thetas: tuple[float, ...] = (0.5, 1.0)
    numbers: int = 100_000
    seeds: int = 3
    id_seeds: int = 9


QUICK = Sizes(entries=(2_000, 20_000), thetas=(0.5,), numbers=2_000, seeds=2, id_seeds=3)


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
    return float(load.max() / load.mean())


# -- strings -----------------------------------------------------------------------------------------------------------


def zipf(random: np.random.Generator, theta: float, values: int, count: int) -> Array:
    """Ranks from 0, by Zipf's law over so many values, taken as a continuum: there are too many to add up."""
    drawn = random.random(count)
    far: Array
    if theta == 1.0:
        far = np.exp(drawn * np.log(values + 1.0))
    else:
        far = (drawn * ((values + 1.0) ** (1 - theta) - 1) + 1) ** (1 / (1 - theta))
    return np.minimum((far - 1.0).astype(np.int64), values - 1, dtype=np.int64)


def word(rank: int) -> str:
    """One of all words, each of one rank."""
    number = rank * SCATTER % WORDS
    letters = []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)


def placed_words(theta: float, count: int, seed: int) -> Array:
    """The keys of so many values of all attributes, as `lists` places an equality."""
    hashing = Hashing(Ring())
    random = np.random.default_rng([seed, int(theta * 10)])
    ranks = zipf(random, theta, WORDS, count).tolist()
    attributes = random.integers(ATTRIBUTES, size=count).tolist()
    heads = (_head(hashing.text(f"a{at}", word(rank))) for at, rank in zip(attributes, ranks, strict=True))
    return np.fromiter(heads, np.uint64, count)


def strings(sizes: Sizes) -> Iterator[Figure]:
    """Storage by the plain hash."""
    ring = Ring()
    for theta in sizes.thetas:
        keys = [placed_words(theta, max(sizes.entries), seed) for seed in range(sizes.seeds)]
        for entries in sizes.entries:
            name = f"max/min of {entries:,} entries, θ {theta}, ids"
            even = [max_to_min(loads(each[:entries], spaced(ring, NODES))) for each in keys]
            claimed = theta <= 0.5 and entries >= 1_000_000
            yield figure(f"{name} evenly spaced", even, "x", **({"goal": GOAL, "at_most": True} if claimed else {}))
            ids = [hashed(ring, NODES, seed) for seed in range(sizes.id_seeds)]
            drawn = [loads(keys[0][:entries], nodes) for nodes in ids]
            yield figure(f"{name} hashed", [max_to_min(load) for load in drawn], "x")
            yield figure(f"{name.replace('min', 'mean')} hashed", [max_to_mean(load) for load in drawn], "x")


# -- numbers -----------------------------------------------------------------------------------------------------------


def prices(count: int, seed: int) -> list[float]:
    """Log-normal values."""
    drawn = np.exp(np.random.default_rng([seed, 1]).normal(4.0, 1.0, count))
    return [float(value) for value in np.minimum(drawn, 10_000.0).round(2).tolist()]


def ranks(count: int, seed: int) -> list[float]:
    """Whole numbers, small ones most often."""
    return [int(rank) + 1 for rank in zipf(np.random.default_rng([seed, 2]), 1.0, RANKS, count).tolist()]


def quantiles(values: Sequence[float], attribute: Attribute) -> Quantiles:
    """A scale from what was seen."""
    order = sorted(values)
    return Quantiles.of([order[(part + 1) * len(order) // (CUTS + 1)] for part in range(CUTS)], attribute)


def placed_numbers(name: str, values: Sequence[float], seen: Sequence[float] | None) -> Array:
    """The keys of values by the linear scale; by quantiles where some were seen."""
    scales = {} if seen is None else {name: quantiles(seen, SCHEMA[name])}
    line = Hashing(Ring(), SCHEMA, order_preserving=True, scales=scales).line(name, Kind.NUMBER)
    heads = {value: _head(line.keys(value)[0]) for value in dict.fromkeys(values)}
    return np.fromiter((heads[value] for value in values), np.uint64, len(values))


def numbers(sizes: Sizes) -> Iterator[Figure]:
    """Loads by the order-preserving hash."""
    ring = Ring()
    made: dict[str, Callable[[int, int], list[float]]] = {"price": prices, "rank": ranks}
    placements: dict[str, Callable[[int], list[NodeId]]] = {
        "evenly spaced": lambda seed: spaced(ring, NODES),
        "hashed": partial(hashed, ring, NODES),
    }
    for (name, make), scale in product(made.items(), ("linear", "quantiles")):
        keys = [
            placed_numbers(
                name, make(sizes.numbers, seed), make(sizes.numbers, 1000 + seed) if scale != "linear" else None
            )
            for seed in range(1, sizes.seeds + 1)
        ]
        for where, nodes in placements.items():
            found = [max_to_mean(loads(each, nodes(seed))) for seed, each in enumerate(keys)]
            yield figure(f"max/mean of {sizes.numbers:,} {name}s, {scale}, ids {where}", found, "x")


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, PARTS, arguments)
    sizes = QUICK if told.quick else Sizes()
    parts = {"strings": strings, "numbers": numbers}
    found = (one for part in PARTS if part in told.parts for one in parts[part](sizes))
    if told.json:
        sys.stdout.write(msgspec.json.encode([*found]).decode() + "\n")
    else:
        tell(found, judge=not told.quick)


if __name__ == "__main__":
    main()
