"""Models of Chord rings without churn: owners, hops, walks of `lists`, and the loads of nodes.

*Walks* bring entries of `lists` to their nodes, and events to what they ask for. The entries and the way are those of
the code that brokers run (`schemes.lists`): to the first key by routing, then, from node to node, to the next key at
which an event may ask (`placement.keyed_rpc`). That hops are those of a simulated network is a test.

*Loads* count the keys of drawn values at the nodes that own them, placed by the hashing that brokers use, by their
first 64 bits: arrays, so that a million take a second. *Words* are values of 7 small letters of 6 attributes (paper B,
section 7.2), drawn by Zipf's law from all that there are. *Numbers* are skewed, and placed in order (paper A, section
4): by the linear scale of their bounds, or by a scale from quantiles of other values of the same kind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from meetpoint.api.ids import HomeId, Key, NodeId
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Quantiles
from meetpoint.schemes.lists.entries import ListEntry, entries_of, next_point
from meetpoint.schemes.lists.number_lines import next_key
from meetpoint.schemes.lists.value_hash import Hashing


def hashed(ring: Ring, count: int, seed: int) -> list[NodeId]:
    """Return so many nodes at hashed ids."""
    return [NodeId(ring.hash(b"node %d of %d" % (number, seed))) for number in range(count)]


def spaced(ring: Ring, count: int) -> list[NodeId]:
    """Return so many nodes, all equally far from the next."""
    return [ring.node(ring.size * number // count) for number in range(count)]


class IdealRing:
    """Nodes with ideal pointers: each has its successor, and the first node at or after its id + 2^k for every k.

    A message goes to the link nearest before its key, until that is this node: then to its successor. So does a node
    (`overlays.chord.table`); that hops are the same is a test.
    """

    def __init__(self, ring: Ring, nodes: Sequence[NodeId]) -> None:
        self.ring = ring
        self.nodes = sorted(nodes)
        self._links: dict[int, list[NodeId]] = {}  # of nodes that were come by: of a million, few are
        self._hops: dict[tuple[int, int, bool], int] = {}

    def owner(self, key: bytes) -> int:
        """Return the number of the node that has a key: the first at or after it."""
        return bisect_left(self.nodes, key) % len(self.nodes)

    def hops(self, source: int, key: bytes) -> int:
        """Return the messages from a node to the owner of a key."""
        owner = self.owner(key)
        # No node lies between the owner and the one before it: all keys there are equally far, but for the owner's id.
        known = (source, owner, self.nodes[owner] == key)
        hops = self._hops.get(known)
        if hops is None:
            hops = self._hops[known] = self._walk(source, owner, key)
        return hops

    def _walk(self, at: int, owner: int, key: bytes) -> int:
        hops = 0
        while at != owner:
            links = self._links.get(at) or self._links_of(at)
            before = links[bisect_right(links, key) - 1]
            at = (at + 1) % len(self.nodes) if before == self.nodes[at] else self.owner(before)
            hops += 1
        return hops

    def links(self, at: int) -> list[NodeId]:
        """Return the other nodes that a node knows."""
        return [node for node in self._links.get(at) or self._links_of(at) if node != self.nodes[at]]

    def _links_of(self, at: int) -> list[NodeId]:
        """Return the node itself and its links, sorted; the shorter steps all lead to its successor."""
        node, ring = self.nodes[at], self.ring
        successor = self.nodes[(at + 1) % len(self.nodes)]
        near = max(ring.distance(node, successor).bit_length() - 1, 0)
        points = (ring.add(node, 1 << exponent) for exponent in range(near, ring.bits))
        links = sorted({node, *(self.nodes[self.owner(point)] for point in points)})
        self._links[at] = links
        return links


# -- walks -------------------------------------------------------------------------------------------------------------


Ids: TypeAlias = Literal["every", "spaced", "hashed"]
"""The placement of nodes. `every`: at every id of a ring that has no more of them, as in the paper's figures. `spaced`:
evenly on the ring of 160 bits. `hashed`: at the hashes of their names, as brokers are."""


def ideal_ring(ids: Ids, nodes: int, seed: int) -> IdealRing:
    """Return a ring of so many nodes, a power of 2 where they are at every id."""
    if ids == "every":
        small = Ring(nodes.bit_length() - 1)
        assert small.size == nodes, f"{nodes} is no power of 2"
        return IdealRing(small, spaced(small, nodes))
    return IdealRing(Ring(), spaced(Ring(), nodes) if ids == "spaced" else hashed(Ring(), nodes, seed))


def entries_for(hashing: Hashing, filter_: str) -> tuple[ListEntry, ...]:
    """Return the entries of a filter of one conjunction."""
    (conjunction,) = parse_filter(filter_).conjunctions
    return entries_of(hashing, conjunction, HomeId(b""), 0)


class Walked(NamedTuple):
    """The messages and nodes of a walk to all nodes of some entries."""

    hops: int
    """Messages from the origin, and from node to node."""
    nodes: tuple[int, ...]
    """The nodes that were reached, in order, each once."""
    answers: int
    """Messages back to the origin, one from each stop of a walk that is not at the origin."""


def walk(
    ring: IdealRing, hashing: Hashing, origin: int, entries: Iterable[ListEntry], *, skipping: bool = True
) -> Walked:
    """Bring entries to their keys, each by a walk of its own; without `skipping` to every node of their arcs."""
    hops = answers = 0
    reached: dict[int, None] = {}
    size = hashing.ring.distance
    for entry in entries:
        at, key = origin, entry.low
        while True:
            hops += ring.hops(at, key)
            at = ring.owner(key)
            reached[at] = None
            answers += at != origin
            last = ring.nodes[at]
            if size(key, last) >= size(key, entry.high):
                break
            onward = next_point(hashing, entry, last) if skipping else next_key(hashing.ring, _span(entry), last)
            if onward is None:
                break
            key = onward
    return Walked(hops, tuple(reached), answers)


def _span(entry: ListEntry) -> tuple[Key, Key]:
    return entry.low, entry.high


# -- loads -------------------------------------------------------------------------------------------------------------


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ATTRIBUTES: Final = 6
LETTERS, LENGTH = "abcdefghijklmnopqrstuvwxyz", 7
SCATTER: Final = 5_726_623_061
"""A factor that is odd and no multiple of 13: words of neighbouring ranks have no letters in common."""
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


def loads(keys: Array, nodes: Sequence[NodeId]) -> Array:
    """Count the keys of each node, by the first 64 bits of ids."""
    ends = np.sort(np.array([_head(node) for node in nodes], np.uint64))
    owners = np.searchsorted(ends, keys, side="left") % len(nodes)
    return np.bincount(owners, minlength=len(nodes))


def _head(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def max_to_min(load: Array) -> float:
    """Return the ratio of the largest load to the least, which counts as at least one key."""
    return float(load.max() / max(load.min(), 1))


def max_to_mean(load: Array) -> float:
    """Return the ratio of the largest load to the mean: the number of nodes where all is at one."""
    return float(load.max() / load.mean())


# -- words -------------------------------------------------------------------------------------------------------------


def zipf(random: np.random.Generator, theta: float, values: int, count: int) -> Array:
    """Draw ranks from 0, by Zipf's law over so many values, taken as a continuum: there are too many to add up."""
    drawn = random.random(count)
    far: Array
    if theta == 1.0:
        far = np.exp(drawn * np.log(values + 1.0))
    else:
        far = (drawn * ((values + 1.0) ** (1 - theta) - 1) + 1) ** (1 / (1 - theta))
    return np.minimum((far - 1.0).astype(np.int64), values - 1, dtype=np.int64)


def word(rank: int, length: int = LENGTH) -> str:
    """Return the word of a rank among all words of a length."""
    number = rank * SCATTER % len(LETTERS) ** length
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)


def draw_words(
    random: np.random.Generator, theta: float, count: int, attributes: int = ATTRIBUTES, length: int = LENGTH
) -> Iterator[tuple[str, str]]:
    """Draw attributes, each with a value."""
    ranks = zipf(random, theta, len(LETTERS) ** length, count).tolist()
    names = random.integers(attributes, size=count).tolist()
    return ((f"a{at}", word(rank, length)) for at, rank in zip(names, ranks, strict=True))


def placed_words(theta: float, count: int, seed: int, attributes: int = ATTRIBUTES, length: int = LENGTH) -> Array:
    """Return the keys of so many values of all attributes, as `lists` places an equality."""
    random = np.random.default_rng([seed, int(theta * 10)])
    return keys_of(draw_words(random, theta, count, attributes, length))


def keys_of(texts: Iterable[tuple[str, str]]) -> Array:
    """Return the keys at which texts of attributes lie, and are asked for."""
    hashing = Hashing(Ring())
    return np.array([_head(hashing.text(*each)) for each in texts], np.uint64)


# -- numbers -----------------------------------------------------------------------------------------------------------


def draw_numbers(name: str, count: int, seed: int) -> list[float]:
    """Draw values of one of `NUMBERS`."""
    if name == "rank":
        return [int(rank) + 1 for rank in zipf(np.random.default_rng([seed, 2]), 1.0, RANKS, count).tolist()]
    assert name == "price"
    drawn = np.exp(np.random.default_rng([seed, 1]).normal(4.0, 1.0, count))
    return [float(value) for value in np.minimum(drawn, 10_000.0).round(2).tolist()]


def quantiles(values: Sequence[float], attribute: Attribute, parts: int) -> Quantiles:
    """Return a scale of so many parts, from a sample of values."""
    order = sorted(values)
    return Quantiles.of([order[part * len(order) // parts] for part in range(1, parts)], attribute)


def placed_numbers(
    name: str, values: Sequence[float], scale: Quantiles | None = None, *, in_order: bool = True
) -> Array:
    """Return the keys of values of one of `NUMBERS`: by the plain hash, or in order, by a scale or the linear one."""
    scales = {} if scale is None else {name: scale}
    line = Hashing(Ring(), NUMBERS, order_preserving=in_order, scales=scales).line(name, Kind.NUMBER)
    heads = {value: _head(line.keys(value)[0]) for value in dict.fromkeys(values)}
    return np.fromiter((heads[value] for value in values), np.uint64, len(values))
