"""Paper D's figures 6 to 9, and delegation that is stopped by a probe, on the model of `delegation`.

1000 subscriptions of one attribute with values from 1 to 2^18, on 2 to 30 peers with random 128-bit ids. The load of a
peer is how many entries of the tree it holds. The paper gives neither threshold nor depth limit; where a line does not
say, a region with more than 10 entries is split, at most 6 times from the root, with which all figures come out.

    keys      figure 6: which share of 1000 keys the fullest fifth of the peers has
    fine      figure 7: the same of fine subscriptions, without delegation and with it
    coarse    figure 8: the same of coarse ones, and how many entries there are for a subscription
    covering  figure 9: with covering on the way
    probe     the rule of `schemes.dmm` with its defaults, and others, for comparison
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from benchmarks.delegation import Deciding, Peers, Range, Tree, coarse, fine, keys_held, quenched, top_share
from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.schemes.dmm.policy import Parts
from meetpoint.schemes.dmm.settings import DmmSettings
from meetpoint.schemes.dmm.space import Code

__all__ = ["PAPER", "PARTS", "any_three", "grown", "main"]

PARTS = ("keys", "fine", "coarse", "covering", "probe")
PAPER = DmmSettings(threshold=10, depth=6, delegation="always")
"""What figures 7 to 9 are drawn with here."""
SUBSCRIPTIONS = 1000
LARGEST = float(SUBSCRIPTIONS)
TOTAL = 5.0
TO_PLAIN = 1.5


class Sizes(msgspec.Struct, frozen=True):
    """How much is run."""

    seeds: int = 9
    peers: tuple[int, ...] = (2, 5, 10, 20, 30)
    depths: tuple[int, ...] = (3, 5, 6, 10)
    every: Sequence[int] = range(2, 31)


QUICK = Sizes(seeds=2, peers=(2, 10, 30), depths=(3, 6), every=(2, 3))


def grown(settings: DmmSettings, peers: int, subscriptions: Sequence[Range], seed: int) -> Tree:
    """The tree that subscriptions make."""
    tree = Tree(Peers(peers, seed), settings)
    for wanted in subscriptions:
        tree.insert(wanted)
    return tree


def keys(sizes: Sizes) -> Iterator[Figure]:
    """Figure 6."""
    for count in sizes.peers:
        shares = [100 * top_share(keys_held(Peers(count, seed), SUBSCRIPTIONS)) for seed in range(sizes.seeds)]
        yield figure(f"figure 6: keys at the fullest fifth of {count} peers", shares, "%")


def shares(number: str, make: Callable[[int], list[Range]], sizes: Sizes) -> Iterator[Figure]:
    """Figures 7 and 8: without delegation, and with it."""
    for name, settings in (("a", msgspec.structs.replace(PAPER, delegation="never")), ("b", PAPER)):
        for count in sizes.peers:
            found = [100 * top_share(grown(settings, count, make(seed), seed).loads) for seed in range(sizes.seeds)]
            yield figure(f"figure {number} ({name}): at the fullest fifth of {count} peers", found, "%")


def fine_grained(sizes: Sizes) -> Iterator[Figure]:
    """Figure 7, and what another threshold does."""
    yield from shares("7", fine, sizes)
    for threshold in (10, 100):
        settings = DmmSettings(threshold=threshold, delegation="always")
        found = [100 * top_share(grown(settings, 30, fine(seed), seed).loads) for seed in range(sizes.seeds)]
        yield figure(f"threshold {threshold}, depth {settings.depth}: at the fullest fifth of 30", found, "%")


def coarse_grained(sizes: Sizes) -> Iterator[Figure]:
    """Figure 8, and how fast depth multiplies."""
    yield from shares("8", coarse, sizes)
    for threshold in (PAPER.threshold, 100):
        for depth in sizes.depths:
            settings = msgspec.structs.replace(PAPER, threshold=threshold, depth=depth)
            found = [grown(settings, 30, coarse(seed), seed).total / SUBSCRIPTIONS for seed in range(sizes.seeds)]
            yield figure(f"figure 8: total, threshold {threshold}, depth {depth}", found, "x")


def covering(sizes: Sizes) -> Iterator[Figure]:
    """Figure 9: entries for a subscription, with the ways that routes give and with cached routes."""
    plain = [grown(PAPER, 2, coarse(seed), seed).total / SUBSCRIPTIONS for seed in range(sizes.seeds)]
    yield figure("figure 9: total without covering, any number of peers", plain, "x")
    for cached in (True, False):
        for count in sizes.peers:
            totals = []
            for seed in range(sizes.seeds):
                tree = Tree(Peers(count, seed), PAPER)
                quenched(tree, coarse(seed), seed, cached=cached)
                totals.append(tree.total / SUBSCRIPTIONS)
            how = "cached routes" if cached else "Pastry's routes"
            yield figure(f"figure 9: total with covering, {count} peers, {how}", totals, "x")


# -- the probe ---------------------------------------------------------------------------------------------------------


def _probing_any(tree: Tree, probes: int, seed: int) -> Deciding:
    """A rule that does as the paper suggests: split if a few random peers have more room than this one.

    As good as ours where it can be: nothing is asked for a split that adds next to nothing, and the larger half must
    make the fullest of the peers probed a good deal less full than this one is.
    """
    chance = Random(f"probes/{seed}")
    settings = tree.settings

    def decide(code: Code, entries: int, parts: Parts) -> bool:
        if parts.left + parts.right - entries <= settings.growth * entries:
            return True
        here = tree.holder(code)
        others = [peer for peer in range(len(tree.peers)) if peer != here]
        probed = [tree.loads[peer] for peer in chance.sample(others, min(probes, len(others)))]
        return max(probed) + max(parts.left, parts.right) <= (1 - settings.relief) * tree.loads[here]

    return decide


def probe(sizes: Sizes) -> Iterator[Figure]:
    """What is asked of the rule, then what other settings and another rule would do."""
    ours = DmmSettings()
    plain = msgspec.structs.replace(ours, delegation="always")
    for count in sizes.peers:
        trees = [grown(ours, count, coarse(seed), seed) for seed in range(sizes.seeds)]
        totals = [tree.total / SUBSCRIPTIONS for tree in trees]
        yield _worst(f"coarse, {count} peers: total", totals, "x", TOTAL)
        yield _worst(f"coarse, {count} peers: largest", [float(max(tree.loads)) for tree in trees], "", LARGEST)
        to_plain = [
            max(grown(ours, count, fine(seed), seed).loads) / max(grown(plain, count, fine(seed), seed).loads)
            for seed in range(sizes.seeds)
        ]
        yield _worst(f"fine, {count} peers: largest to plain", to_plain, "x", TO_PLAIN)
    others = {
        f"relief {relief}, growth {growth}": msgspec.structs.replace(ours, relief=relief, growth=growth)
        for relief, growth in ((0.05, 0.125), (0.5, 0.125), (0.2, 0.5), (0.2, 0.0))
    }
    for count in (sizes.peers[0], sizes.peers[-1]):
        for name, settings in others.items():
            trees = [grown(settings, count, coarse(seed), seed) for seed in range(sizes.seeds)]
            yield from _both(f"{name}, {count}", trees)
    for count in sizes.peers:
        yield from _both(f"3 random peers, {count}", [any_three(count, seed) for seed in range(sizes.seeds)])
    yield from _misses(sizes)


def _misses(sizes: Sizes) -> Iterator[Figure]:
    """Of all numbers of peers, and seeds, how many end with a peer that holds more than there are subscriptions."""
    every = [(count, seed) for count in sizes.every for seed in range(sizes.seeds)]
    ours = [max(grown(DmmSettings(), count, coarse(seed), seed).loads) for count, seed in every]
    theirs = [max(any_three(count, seed).loads) for count, seed in every]
    for name, found in (("ours", ours), ("3 random peers", theirs)):
        missed = float(sum(largest > SUBSCRIPTIONS for largest in found))
        goal = 0 if found is ours else None
        yield Figure(
            f"{name}: above {SUBSCRIPTIONS:,} of {len(every)} runs", missed, missed, missed, "", goal, at_most=True
        )
        yield Figure(f"{name}: the largest of all", float(max(found)), min(found), max(found), "")


def _worst(name: str, values: Sequence[float], unit: str, goal: float) -> Figure:
    """The largest of values, and their range: what must hold for each."""
    return Figure(name, max(values), min(values), max(values), unit, goal, at_most=True)


def any_three(count: int, seed: int) -> Tree:
    """The tree that coarse subscriptions make if three random peers are probed; it may run away, so not too deep."""
    tree = Tree(Peers(count, seed), DmmSettings(depth=16))
    tree.decide = _probing_any(tree, 3, seed)
    for wanted in coarse(seed):
        tree.insert(wanted)
    return tree


def _both(name: str, trees: Sequence[Tree]) -> Iterator[Figure]:
    yield figure(f"{name}: coarse, total", [tree.total / SUBSCRIPTIONS for tree in trees], "x")
    yield figure(f"{name}: coarse, largest", [float(max(tree.loads)) for tree in trees], "")


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, PARTS, arguments)
    sizes = QUICK if told.quick else Sizes()
    parts = dict(zip(PARTS, (keys, fine_grained, coarse_grained, covering, probe), strict=True))
    found = (one for part in PARTS if part in told.parts for one in parts[part](sizes))
    if told.json:
        sys.stdout.write(msgspec.json.encode([*found]).decode() + "\n")
    else:
        tell(found, judge=not told.quick)


if __name__ == "__main__":
    main()
