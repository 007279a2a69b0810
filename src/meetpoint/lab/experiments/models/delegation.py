"""Paper D's tree of regions on peers that nothing happens to, as a model: who would hold how many entries.

Space, keys and the rule that splits a region are those of the live scheme (`schemes.dmm`); regions are a dictionary,
peers are ids, and what would be sent is not. A region is considered whenever it has got an entry, as a broker does.

Covering is as printed (section 5.4): a subscription goes from its subscriber's peer over relays to the peer of the
root, and is dropped at the first peer on its way that has passed on a wider one. Narrower ones that went before stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import TypeAlias

from meetpoint.api.ids import Key
from meetpoint.language.filters.constraints import NumberSet
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.dmm.rules import DmmSettings, HolderLoad, SplitCounts, ask_again_at, should_split, split_counts
from meetpoint.schemes.dmm.space import ROOT, Box, Code, Space

__all__ = [
    "DOMAIN",
    "Peers",
    "Range",
    "Tree",
    "coarse",
    "fine",
    "grown",
    "keys_held",
    "probing_any",
    "quenched",
    "top_share",
]

Range: TypeAlias = tuple[int, int]
"""A subscription: the values from the first to the last."""
Deciding: TypeAlias = Callable[[Code, int, SplitCounts], bool]
"""Whether a region with so many entries, which part so, is split."""

DOMAIN = 2**18
"""Values are from 1 to this."""
_RING = Ring(128)
_DIGIT_BITS = 4
_DIGITS = _RING.bits // _DIGIT_BITS
_LEAVES = 4
"""Neighbours on each side that a peer knows."""


def fine(seed: int, count: int = 1000) -> list[Range]:
    """Subscriptions of section 5.2: one value each."""
    chance = Random(f"fine/{seed}")
    return [(value, value) for value in (chance.randint(1, DOMAIN) for _ in range(count))]


def coarse(seed: int, count: int = 1000) -> list[Range]:
    """Subscriptions of section 5.3: a random lower and a random upper value."""
    chance = Random(f"coarse/{seed}")
    pairs = [(chance.randint(1, DOMAIN), chance.randint(1, DOMAIN)) for _ in range(count)]
    return [(min(pair), max(pair)) for pair in pairs]


def _paper_space(name: str, depth: int) -> Space:
    """One attribute with the paper's bounds."""
    return Space.of(Schema((Attribute(name, Type.INTEGER, minimum=1, maximum=DOMAIN),)), depth)


def _box_of(space: Space, wanted: Range) -> Box:
    """Where a subscription lies."""
    low, high = wanted
    (dimension,) = space.dimensions
    constraint = NumberSet((Interval(low, False, high, False),))
    return space.box(Conjunction(((dimension.attribute.name, constraint),)))


# -- peers -------------------------------------------------------------------------------------------------------------


class Peers:
    """So many peers with random ids: who has a key, and over whom a message goes to it, by Pastry's rules."""

    def __init__(self, count: int, seed: int) -> None:
        self.ids = sorted(_RING.number(_RING.hash(b"peer %d of %d" % (number, seed))) for number in range(count))
        self.seed = seed
        self.owner = lru_cache(None)(self._owner)
        self._table = lru_cache(None)(self._entry)

    def __len__(self) -> int:
        return len(self.ids)

    def _owner(self, key: Key) -> int:
        """The peer whose id is numerically closest, round the circle."""
        return self._closest(range(len(self.ids)), _RING.number(key))

    def path(self, source: int, key: Key, *, cached: bool) -> list[int]:
        """The peers a message for a key comes to, from the first to the last; with cached routes it goes straight."""
        owner = self.owner(key)
        path = [source]
        while path[-1] != owner:
            path.append(owner if cached else self._next(path[-1], _RING.number(key), owner))
            assert len(path) <= len(self.ids), "round in circles"
        return path

    def _next(self, at: int, key: int, owner: int) -> int:
        count = len(self.ids)
        near = [(at + step) % count for step in range(-_LEAVES, _LEAVES + 1)]
        if owner in near:
            return owner
        shared = _shared_digits(self.ids[at], key)
        found = self._table(at, shared, _digit(key, shared))
        if found is not None:
            return found
        row = [self._table(at, shared, digit) for digit in range(2**_DIGIT_BITS)]
        return self._closest([*near, *(peer for peer in row if peer is not None)], key)

    def _entry(self, at: int, row: int, digit: int) -> int | None:
        """A peer whose id begins as this one's, and goes on with a digit; any one, as Pastry takes the nearest."""
        fit = [
            other
            for other, there in enumerate(self.ids)
            if _shared_digits(there, self.ids[at]) >= row and _digit(there, row) == digit
        ]
        return Random(f"{self.seed}/{at}/{row}/{digit}").choice(fit) if fit else None

    def _closest(self, peers: Iterable[int], key: int) -> int:
        def distance(peer: int) -> int:
            there = self.ids[peer]
            return min((there - key) % _RING.size, (key - there) % _RING.size)

        return min(peers, key=distance)


def _digit(number: int, row: int) -> int:
    return (number >> (_RING.bits - _DIGIT_BITS * (row + 1))) % (1 << _DIGIT_BITS)


def _shared_digits(a: int, b: int) -> int:
    return next((row for row in range(_DIGITS) if _digit(a, row) != _digit(b, row)), _DIGITS - 1)


# -- the tree ----------------------------------------------------------------------------------------------------------


class Tree:
    """Regions at peers."""

    def __init__(self, peers: Peers, settings: DmmSettings) -> None:
        self.space = _paper_space(f"a{peers.seed}", settings.depth)  # another name, other keys
        self.peers = peers
        self.settings = settings
        self.loads = [0] * len(peers)
        self.leaves: dict[Code, list[Box]] = {ROOT: []}
        self.refused = 0
        self.decide: Deciding = self._should_split  # experiments may put another rule in its place
        self._ask_at: dict[Code, int] = {}

    @property
    def total(self) -> int:
        """All entries."""
        return sum(self.loads)

    def holder(self, code: Code) -> int:
        """Who holds a region."""
        return self.peers.owner(_RING.hash(b"dmm" + self.space.digest + code.encode()))

    def insert(self, wanted: Range) -> None:
        """Put a subscription into all leaves that it meets, then split those that are full."""
        box = _box_of(self.space, wanted)
        met = self._met(box)
        for code in met:
            self.leaves[code].append(box)
            self.loads[self.holder(code)] += 1
        for code in met:
            self._consider(code)

    def copies(self, wanted: Range) -> int:
        """In how many leaves a subscription lies."""
        return len(self._met(_box_of(self.space, wanted)))

    def _met(self, box: Box) -> list[Code]:
        met: list[Code] = []
        codes = [ROOT]
        while codes:
            code = codes.pop()
            if not self.space.meets(code, box):
                continue
            if code in self.leaves:
                met.append(code)
            else:
                codes += self.space.children(code) or ()
        return met

    def _consider(self, code: Code) -> None:
        entries = self.leaves[code]
        if len(entries) <= self.settings.threshold or len(entries) < self._ask_at.get(code, 0):
            return
        parts = split_counts(self.space, code, entries)
        if parts is None or not self.decide(code, len(entries), parts):
            self._ask_at[code] = ask_again_at(len(entries))
            self.refused += 1
            return
        halves = self.space.children(code)
        assert halves is not None
        self.loads[self.holder(code)] -= len(entries)
        del self.leaves[code]
        for half in halves:
            self.leaves[half] = [box for box in entries if self.space.meets(half, box)]
            self.loads[self.holder(half)] += len(self.leaves[half])
        for half in halves:
            self._consider(half)

    def _should_split(self, code: Code, entries: int, parts: SplitCounts) -> bool:
        here, low, high = [self._seat(each) for each in (code, *parts.halves)]
        return should_split(entries, parts.left, parts.right, here, (low, high), self.settings)

    def _seat(self, code: Code) -> HolderLoad:
        holder = self.holder(code)
        return HolderLoad(b"%d" % holder, self.loads[holder])


def grown(settings: DmmSettings, peers: int, subscriptions: Iterable[Range], seed: int) -> Tree:
    """The tree that subscriptions make."""
    tree = Tree(Peers(peers, seed), settings)
    for wanted in subscriptions:
        tree.insert(wanted)
    return tree


def probing_any(tree: Tree, probes: int, seed: int) -> Deciding:
    """A rule that does as the paper suggests: split if a few random peers have more room than this one.

    As good as ours where it can be: nothing is asked for a split that adds next to nothing, and the larger half must
    make the fullest of the peers probed a good deal less full than this one is.
    """
    chance = Random(f"probes/{seed}")
    settings = tree.settings

    def decide(code: Code, entries: int, parts: SplitCounts) -> bool:
        if parts.left + parts.right - entries <= settings.growth * entries:
            return True
        here = tree.holder(code)
        others = [peer for peer in range(len(tree.peers)) if peer != here]
        probed = [tree.loads[peer] for peer in chance.sample(others, min(probes, len(others)))]
        return max(probed) + max(parts.left, parts.right) <= (1 - settings.relief) * tree.loads[here]

    return decide


# -- covering ----------------------------------------------------------------------------------------------------------


def quenched(tree: Tree, subscriptions: Iterable[Range], seed: int, *, cached: bool) -> int:
    """Insert subscriptions of random peers, but those that a wider one covers on their way; how many are covered."""
    chance = Random(f"subscribers/{seed}")
    peers = tree.peers
    root = _RING.hash(b"dmm" + tree.space.digest)
    passed: list[list[Range]] = [[] for _ in range(len(peers))]
    covered = 0
    for low, high in subscriptions:
        way = peers.path(chance.randrange(len(peers)), root, cached=cached)
        for peer in way[:-1] or way:  # the last is in the tree already, unless the subscriber is there too
            if any(first <= low and high <= last for first, last in passed[peer]):
                covered += 1
                break
            passed[peer].append((low, high))
        else:
            tree.insert((low, high))
    return covered


# -- shapes ------------------------------------------------------------------------------------------------------------


def keys_held(peers: Peers, count: int) -> list[int]:
    """How many of so many random keys each peer has (section 5.1)."""
    held = [0] * len(peers)
    for number in range(count):
        held[peers.owner(_RING.hash(b"key %d of %d" % (number, peers.seed)))] += 1
    return held


def top_share(loads: Sequence[int]) -> float:
    """Which share of everything the fullest fifth of the peers has, at least one."""
    fullest = sorted(loads, reverse=True)[: max(1, round(len(loads) / 5))]
    return sum(fullest) / sum(loads)
