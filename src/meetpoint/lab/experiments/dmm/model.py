"""Models of paper D: its tree of regions on peers without churn (figures 6 to 9), and its z-codes (figures 4 and 5).

The tree: space, keys and the rule that splits a region are those of the live scheme (`schemes.dmm`); regions are a
dictionary, peers are ids, and nothing is sent. A region is considered whenever it has got an entry, as a broker does.

Covering is as printed (section 5.4): a subscription goes from its subscriber's peer over relays to the peer of the
root, and is dropped at the first peer on its way that has passed on a wider one. Narrower ones that went before stay.

Z-codes are run as printed, read carelessly, and corrected. Nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import Key
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results, verdict_of
from meetpoint.lab.printed.papers_cd import (
    careless_range,
    corrected_code,
    corrected_range,
    corrected_weave,
    printed_code,
    printed_range,
    printed_weave,
)
from meetpoint.language.filters.constraints import NumberSet
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.dmm.rules import DmmSettings, HolderLoad, SplitCounts, ask_again_at, should_split, split_counts
from meetpoint.schemes.dmm.space import ROOT, Box, Code, Space

Range: TypeAlias = tuple[int, int]
"""A subscription: the values from the first to the last."""
SplitRule: TypeAlias = Callable[[Code, int, SplitCounts], bool]
"""A rule: whether to split a region with so many entries into such parts."""

DOMAIN = 2**18
"""The largest value; values start at 1."""
_RING = Ring(128)
_DIGIT_BITS = 4
_DIGITS = _RING.bits // _DIGIT_BITS
_LEAVES = 4
"""Neighbours on each side that a peer knows."""


def fine(seed: int, count: int = 1000) -> list[Range]:
    """Draw the subscriptions of section 5.2: one value each."""
    chance = Random(f"fine/{seed}")
    return [(value, value) for value in (chance.randint(1, DOMAIN) for _ in range(count))]


def coarse(seed: int, count: int = 1000) -> list[Range]:
    """Draw the subscriptions of section 5.3: a random lower and a random upper value."""
    chance = Random(f"coarse/{seed}")
    pairs = [(chance.randint(1, DOMAIN), chance.randint(1, DOMAIN)) for _ in range(count)]
    return [(min(pair), max(pair)) for pair in pairs]


def _paper_space(name: str, depth: int) -> Space:
    """Return the space of one attribute with the paper's bounds."""
    return Space.of(Schema((Attribute(name, Type.INTEGER, minimum=1, maximum=DOMAIN),)), depth)


def _box_of(space: Space, wanted: Range) -> Box:
    """Return the box of a subscription."""
    low, high = wanted
    (dimension,) = space.dimensions
    constraint = NumberSet((Interval(low, False, high, False),))
    return space.box(Conjunction(((dimension.attribute.name, constraint),)))


# -- peers -------------------------------------------------------------------------------------------------------------


class Peers:
    """Peers with random ids: owners of keys and routes by Pastry's rules."""

    def __init__(self, count: int, seed: int) -> None:
        self.ids = sorted(_RING.number(_RING.hash(b"peer %d of %d" % (number, seed))) for number in range(count))
        self.seed = seed
        self.owner = lru_cache(None)(self._owner)
        self._table = lru_cache(None)(self._entry)

    def __len__(self) -> int:
        return len(self.ids)

    def _owner(self, key: Key) -> int:
        """Return the peer whose id is numerically closest, round the circle."""
        return self._closest(range(len(self.ids)), _RING.number(key))

    def path(self, source: int, key: Key, *, cached: bool) -> list[int]:
        """Return the peers of a message's way to a key, from the first to the last; straight with cached routes."""
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
        """Return a peer whose id shares so many digits with this one's and goes on with `digit`. Any one, as Pastry
        takes the nearest.
        """
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
        self.decide: SplitRule = self._should_split  # experiments may put another rule in its place
        self._ask_at: dict[Code, int] = {}

    @property
    def total(self) -> int:
        """The number of all entries."""
        return sum(self.loads)

    def holder(self, code: Code) -> int:
        """Return the peer that holds a region."""
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
        """Count the leaves in which a subscription lies."""
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
            # Asked again only when it has grown: else every further entry would repeat the refusal.
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


def grow_tree(settings: DmmSettings, peers: int, subscriptions: Iterable[Range], seed: int) -> Tree:
    """Grow the tree of some subscriptions."""
    tree = Tree(Peers(peers, seed), settings)
    for wanted in subscriptions:
        tree.insert(wanted)
    return tree


def random_probe_rule(tree: Tree, probes: int, seed: int) -> SplitRule:
    """Return the paper's rule: split if a few random peers have more room than this one.

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


def insert_with_covering(tree: Tree, subscriptions: Iterable[Range], seed: int, *, cached: bool) -> int:
    """Insert subscriptions of random peers unless a wider one covers them on their way; return how many are covered."""
    chance = Random(f"subscribers/{seed}")
    peers = tree.peers
    # The key of the root region, as the live scheme hashes it.
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
    """Count how many of so many random keys each peer has (section 5.1)."""
    held = [0] * len(peers)
    for number in range(count):
        held[peers.owner(_RING.hash(b"key %d of %d" % (number, peers.seed)))] += 1
    return held


def top_share(loads: Sequence[int]) -> float:
    """Return the share of everything at the fullest fifth of the peers, at least one."""
    fullest = sorted(loads, reverse=True)[: max(1, round(len(loads) / 5))]
    return sum(fullest) / sum(loads)


# -- figures 6 to 9 ----------------------------------------------------------------------------------------------------


SUBSCRIPTIONS: Final = 1000
THRESHOLD: Final = 10
DEPTH: Final = 6
"""The threshold and depth of figures 6 to 9, as the paper gives none."""
STORED: Final = (
    "keys",
    "fine",
    "fine delegated",
    "coarse",
    "coarse delegated",
    "coarse delegated, covered",
)
RUNAWAY_AT: Final = 8
"""The depth limit where nothing else stops delegation: another level would double the cost."""
PROBES = 3
"""The random peers that the paper's idea asks here."""


def _wanted(kind: str, count: int, seed: int) -> list[Range]:
    if kind == "fine":
        return fine(seed, count)
    if kind == "coarse":
        return coarse(seed, count)
    half = count // 2
    assert kind == "fine, then coarse"
    return fine(seed, half) + coarse(seed, count - half)


def _settings(parameters: Parameters, delegation: str) -> DmmSettings:
    chosen = {"threshold": parameters["threshold"], "depth": parameters["depth"], "delegation": delegation}
    for name in ("growth", "relief"):
        if name in parameters:
            chosen[name] = parameters[name]
    return msgspec.convert(chosen, DmmSettings)


def _loads(parameters: Parameters, seed: int) -> tuple[int, ...]:
    """Return each peer's load of what is `stored`: `keys`, or `fine` or `coarse` subscriptions, which may be
    `delegated`.
    """
    peers, count, stored = int(parameters["peers"]), int(parameters["subscriptions"]), str(parameters["stored"])
    kind, _, how = stored.partition(" ")
    settings = _settings(parameters, "always" if how else "never")
    return _held(kind, how, peers, count, settings, seed)


@lru_cache(maxsize=16)  # a curve has several points
def _held(kind: str, how: str, peers: int, count: int, settings: DmmSettings, seed: int) -> tuple[int, ...]:
    if kind == "keys":
        return tuple(keys_held(Peers(peers, seed), count))
    wanted = _wanted(kind, count, seed)
    if how == "delegated, covered":
        tree = Tree(Peers(peers, seed), settings)
        insert_with_covering(tree, wanted, seed, cached=True)
        return tuple(tree.loads)
    return tuple(grow_tree(settings, peers, wanted, seed).loads)


def run_shares(parameters: Parameters, seed: int) -> Metrics:
    """Measure a point of the paper's curves: the share of the emptiest peers, so many percent of them."""
    loads = sorted(_loads(parameters, seed))
    emptiest = len(loads) * int(parameters["percent"]) // 100
    return {"held_share": sum(loads[:emptiest]) / sum(loads)}


def run_balance(parameters: Parameters, seed: int) -> Metrics:
    """Measure the share of the fullest fifth, and the entries for a subscription."""
    loads = _loads(parameters, seed)
    return {
        "top_fifth_share": top_share(loads),
        "entries_per_subscription": sum(loads) / int(parameters["subscriptions"]),
        "largest_share": max(loads) / sum(loads),
    }


def run_totals(parameters: Parameters, seed: int) -> Metrics:
    """Measure plain delegation by threshold and depth limit: how often a subscription is stored."""
    count = int(parameters["subscriptions"])
    wanted = _wanted(str(parameters["kind"]), count, seed)
    tree = grow_tree(_settings(parameters, "always"), int(parameters["peers"]), wanted, seed)
    return {
        "entries_per_subscription": tree.total / count,
        "leaves": len(tree.leaves),
        "delegations": len(tree.leaves) - 1,
        "copies_most": max(map(tree.copies, wanted)),
        "top_fifth_share": top_share(tree.loads),
    }


def run_covering(parameters: Parameters, seed: int) -> Metrics:
    """Measure covering on the way to the root, over the ways that a cache of routes gives, or Pastry's own."""
    count = int(parameters["subscriptions"])
    wanted = _wanted("coarse", count, seed)
    tree = Tree(Peers(int(parameters["peers"]), seed), _settings(parameters, "always"))
    covered = 0
    if parameters["ways"] == "not covered":
        for each in wanted:
            tree.insert(each)
    else:
        covered = insert_with_covering(tree, wanted, seed, cached=parameters["ways"] == "cached")
    return {
        "entries_per_subscription": tree.total / count,
        "covered_share": covered / count,
        "top_fifth_share": top_share(tree.loads),
    }


# -- what stops delegation ---------------------------------------------------------------------------------------------


def run_probe(parameters: Parameters, seed: int) -> Metrics:
    """Measure delegation by a rule: our probe of the two peers concerned, the paper's random ones, or none."""
    count, rule = int(parameters["subscriptions"]), str(parameters["rule"])
    wanted = _wanted(str(parameters["kind"]), count, seed)
    tree = Tree(Peers(int(parameters["peers"]), seed), _settings(parameters, "always" if rule == "none" else "probed"))
    if rule == "3 random peers":
        tree.decide = random_probe_rule(tree, PROBES, seed)
    for each in wanted:
        tree.insert(each)
    largest = max(tree.loads)
    return {
        "entries_per_subscription": tree.total / count,
        "largest_peer": largest,
        "above_all_subscriptions": largest > count,
        "leaves": len(tree.leaves),
    }


# -- figures 4 and 5 ---------------------------------------------------------------------------------------------------


def _halved(domain: int) -> Iterator[tuple[Range, Range]]:
    """Yield the two halves of every range of more than one value that figure 4 comes to, as printed."""
    waiting = [""]
    for code in waiting:  # grows as we go
        low, high = printed_range(code, 1, domain)
        if low < high:
            yield printed_range(f"{code}0", 1, domain), printed_range(f"{code}1", 1, domain)
            waiting += [f"{code}{bit}" for bit in "01" if printed_range(f"{code}{bit}", 1, domain) != (low, high)]


def run_codes(parameters: Parameters, seed: int) -> Metrics:
    """Count, for values from 1 to `domain`, overlapping halves and events that miss the leaf of their subscription.

    The latter for a tree of two leaves.
    """
    domain = int(parameters["domain"])
    halves = list(_halved(domain))
    values = range(1, domain + 1)

    def lost(value: int) -> bool:
        low, high = careless_range(printed_code(value, value, 1, domain)[:1], 1, domain)
        return not low <= value <= high

    def lost_by_ours(value: int) -> bool:
        return corrected_range(corrected_code(value, value, 1, domain), 1, domain) != (value, value)

    return {
        "halvings": len(halves),
        "overlapping": sum(lower[1] >= upper[0] for lower, upper in halves),
        "lost_carelessly": sum(map(lost, values)),
        "lost_by_ours": sum(map(lost_by_ours, values)),
    }


def run_weaving(parameters: Parameters, seed: int) -> Metrics:
    """Measure the length of a point's code for a boolean and a number of so many bits: the depth limit of division."""
    bits = int(parameters["bits"])
    codes = [corrected_code(1, 1, 1, 2), corrected_code(1, 1, 1, 1 << bits)]
    return {"as_printed": len(printed_weave(codes)), "as_corrected": len(corrected_weave(codes, [True, True]))}


def _judge_codes(results: Results) -> Judged:
    domains = [int(domain) for domain in results.distinct("codes", "domain")]
    overlapping, lost, ours = (
        {domain: results.spread("codes", metric, domain=domain).median for domain in domains}
        for metric in ("overlapping", "lost_carelessly", "lost_by_ours")
    )
    bad = [domain for domain in domains if overlapping[domain]]
    powers = [domain for domain in domains if domain.bit_count() == 1]
    is_right = all(not overlapping[domain] for domain in powers)
    return Judged(
        ours=f"halves overlap in {len(bad)} of {len(domains)} domains of {domains[0]} to {domains[-1]} values",
        verdict=verdict_of(not bad, is_right),
        why="Where l + u is even the lower half ends at m and the upper one begins at it. Read with halves that do not "
        f"overlap, line 7 sends the event m to the half that does not have it: a value is lost at the first split in "
        f"{sum(map(bool, lost.values()))} of the domains. Where a domain has a power of two values it is "
        f"{'right' if is_right else 'wrong too'}. Halves that end at ⌊m⌋ and begin after it make it true of all: "
        f"{sum(ours.values()):.0f} values are lost.",
    )


def _judge_weaving(results: Results) -> Judged:
    sizes = [int(bits) for bits in results.distinct("weaving", "bits")]
    printed, ours = (
        {bits: results.spread("weaving", metric, bits=bits).median for bits in sizes}
        for metric in ("as_printed", "as_corrected")
    )
    last = sizes[-1]
    return Judged(
        ours=f"{printed[last]:.0f} bits for a boolean and a number of {last} bits, where a point has {1 + last}",
        verdict=verdict_of(all(printed[bits] == 1 + bits for bits in sizes), printed[sizes[0]] == 1 + sizes[0]),
        why="As many bits of each are taken as the shortest has: one boolean attribute caps the depth, and a full leaf "
        f"cannot be split. A dimension that is down to one value misses its turns in ours: {ours[last]:.0f} bits.",
    )


CODE_CLAIMS: Final = (
    PaperClaim(
        id="D19",
        place="section 4.1.1, figure 4",
        says="Each bit of a z-code divides a region in half.",
        number="none given",
        judge=_judge_codes,
    ),
    PaperClaim(
        id="D20",
        place="section 4.1.1, figure 5",
        says="The z-code of several attributes is that of each, interleaved.",
        number="none given",
        judge=_judge_weaving,
    ),
)
