"""The figures of docs/reach.md: `python -m tests.schemes.reach.measures [part …]`. A model in one process, no network.

Everything is by the rules that nodes are to run; messages are counted, not sent.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping
from statistics import mean

from meetpoint.language import Attribute, Conjunction, Schema, Type, parse_filter
from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach.ids import AttributeIds, Ids, SignatureIds, is_required, is_subset, tree_of
from tests.overlays.hypercube.growing import Cube, SiblingTakesOver, even, grown, path
from tests.schemes.reach.test_printed import simulated
from tests.schemes.reach.tree_walk import walk

SEEDS = range(5)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def measure_changes() -> None:
    """Joins and leaves: who is asked, whose table changes, how uneven it gets."""
    say("joins and leaves, 5 seeds: the network grows from k to 2k and shrinks to k again, ids of 16 bits")
    say("   k   asked touched   max  | leave: asked touched   max |  gap grown, shrunk  links  max")
    for count in (16, 64, 256):
        joins, leaves, gaps, links = [], [], [], []
        for seed in SEEDS:
            rng = random.Random(seed)
            cube = grown(16, count, rng)
            joins += [cube.join(f"x{at}", rng.choice(sorted(cube.members))) for at in range(count)]
            grown_gap = cube.gap
            leaves += [cube.leave(rng.choice(cube.names)) for _ in range(count)]
            gaps.append((grown_gap, cube.gap))
            links += [len(member.links) for member in cube.members.values()]
        say(
            f"{count:4} {mean(j.asked for j in joins):7.2f} {mean(j.touched for j in joins):7.2f}"
            f" {max(j.touched for j in joins):5}  | {mean(j.asked for j in leaves):12.2f}"
            f" {mean(j.touched for j in leaves):7.2f} {max(j.touched for j in leaves):5} |"
            f" {max(a for a, _ in gaps):10} {max(b for _, b in gaps):7} {mean(links):6.2f} {max(links):4}"
        )


def measure_leaves() -> None:
    """How uneven lengths get by the two rules for leaves."""
    say("leaves: 128 nodes, then 512 times one leaves and one joins, then 64 leave; ids of 16 bits, 5 seeds")
    say(
        "                    gap: worst, last  neighbours: most uneven  links: mean, max  touched by a leave: mean, max"
    )
    for kind in (Cube, SiblingTakesOver):
        worst, last, uneven, links, touched = 0, 0, 0, [], []
        for seed in SEEDS:
            rng = random.Random(seed)
            cube = kind(16)
            for number in range(1, 128 + 512 + 64):
                if number >= 128:
                    touched.append(cube.leave(rng.choice(cube.names)).touched)
                if number < 128 + 512:
                    cube.join(f"n{number}", rng.choice(sorted(cube.members)))
                worst = max(worst, cube.gap)
                for member in cube.members.values():
                    uneven = max(uneven, *(abs(e.region.length - member.region.length) for e in member.links), 0)
                    links.append(len(member.links))
            last = max(last, cube.gap)
        say(
            f"  {kind.__name__:16} {worst:10} {last:6} {uneven:20} {mean(links):20.2f} {max(links):4}"
            f" {mean(touched):16.2f} {max(touched):4}"
        )


def measure_full() -> None:
    """How many host a region when 2^n and more nodes have joined through random members."""
    say("regions when so many nodes have joined a cube of 2^n ids, 5 seeds, least … most")
    for dimensions in (4, 6, 8):
        for count in (1 << dimensions, 5 << dimensions - 2):
            regions = [len(grown(dimensions, count, random.Random(seed)).members) for seed in SEEDS]
            say(f"  2^{dimensions} = {1 << dimensions:3} ids, {count:3} nodes: {min(regions)} … {max(regions)}")


def measure_paths() -> None:
    """How long paths are."""
    say("path length, all pairs of 5 seeds: mean, longest, half of log2 k")
    for count in (16, 23, 64, 90):
        lengths = []
        for seed in SEEDS:
            cube = grown(12, count, random.Random(seed))
            lengths += [len(path(cube, a, b.bits)) - 1 for a in cube.members for b in cube.members]
        say(f"  {count:3} nodes: {mean(lengths):.2f} {max(lengths)}  ({(count.bit_length() - 1) / 2:.1f})")


def measure_trees() -> None:
    """How the load of handing on spreads."""
    say("sends of the busiest node other than the root, mean per event: 64 nodes, event 111111, 2,000 messages")
    cube, root = even(6, 6), Region(63, 6)
    for floor in (0, 3, 6):
        sends: Counter[Region] = Counter()
        for number in range(2000):
            sends.update(here for here, _ in walk(cube, root, 63, tree_of(f"m{number}", floor)).edges)
        del sends[root]
        say(f"  floor {floor}: {max(sends.values()) / 2000:.2f}")


# -- ids by attributes and by signatures -------------------------------------------------------------------------------

NAMES = [f"a{place:02}" for place in range(16)]
SCHEMA = Schema(tuple(Attribute(name, Type.INTEGER) for name in NAMES))
VALUES = 50


def subscription(rng: random.Random, equalities: float) -> Conjunction:
    """One to three of sixteen attributes, the first ones more often; equalities or ranges."""
    chosen = {NAMES[min(int(rng.expovariate(0.25)), 15)] for _ in range(rng.randint(1, 3))}
    terms = []
    for name in sorted(chosen):
        value = rng.randrange(VALUES)
        terms.append(f"{name} = {value}" if rng.random() < equalities else f"{name} > {value}")
    return parse_filter(" AND ".join(terms)).conjunctions[0]


def published(rng: random.Random) -> Mapping[str, object]:
    """Four attributes, the first ones more often."""
    chosen: dict[str, object] = {}
    while len(chosen) < 4:
        chosen[NAMES[min(int(rng.expovariate(0.25)), 15)]] = rng.randrange(VALUES)
    return chosen


def measure_ids() -> None:
    """Nodes visited, what lies there and what is checked, by kind of id."""
    say(
        "ids: 64 nodes of even length, 16 attributes of 50 values, events of 4 attributes, 2,000 subscriptions; 5 seeds"
    )
    say("equalities  ids             nodes an event  checked an event  matches  fullest node's share")
    kinds: list[tuple[str, Ids]] = [("attributes", AttributeIds(SCHEMA))]
    kinds += [(f"signature {width}", SignatureIds(SCHEMA, width)) for width in (8, 16, 32, 64)]
    cube = even(64, 6)
    for equalities in (0.2, 0.9):
        for label, ids in kinds:
            say(f"{equalities:10} {label:16}" + _ids_line(cube, ids, equalities))


def _ids_line(cube: Cube, ids: Ids, equalities: float) -> str:
    visited, checked, matches, fullest = [], [], [], []
    for seed in SEEDS:
        rng = random.Random(seed)
        made = [subscription(rng, equalities) for _ in range(2000)]
        placed = [(each, ids.of_conjunction(each)) for each in made]
        at = Counter(bits & 63 for _, bits in placed)
        fullest.append(max(at.values()) / len(placed))
        for _ in range(100):
            event = published(rng)
            bits = ids.of_event(event)
            visited.append(sum(is_required(region, bits) for region in cube.members))
            near = [each for each, its in placed if is_subset(its, bits)]
            checked.append(len(near))
            matches.append(sum(each.accepts(event) for each in near))
    return f"{mean(visited):14.2f} {mean(checked):17.1f} {mean(matches):8.1f} {mean(fullest):10.1%}"


def measure_printed() -> None:
    """What the printed rule misses."""
    missed = simulated(networks=200, events=20)
    say(f"the printed rule, 200 networks of 3 to 40 nodes, 20 events each: {missed}")


PARTS = {
    "changes": measure_changes,
    "leaves": measure_leaves,
    "full": measure_full,
    "paths": measure_paths,
    "printed": measure_printed,
    "trees": measure_trees,
    "ids": measure_ids,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
