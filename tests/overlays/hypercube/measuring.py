"""The figures of docs/hypercube.md that are of nodes that run: `python -m tests.overlays.hypercube.measuring [part …]`.

Nodes that are nothing but their overlay, with messages of 5 to 50 ms, and settings as they are by default.
"""

from __future__ import annotations

import random
import sys
from statistics import mean

from meetpoint.api.limits import SECOND_US
from meetpoint.overlays.hypercube.invariant import gap, not_hosted_once
from tests.overlays.hypercube.driving import World, drawn

SEEDS = range(3)
SETTLED_S = 180.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def begun(count: int, seed: int) -> World:
    world = World(seed=seed)
    world.found(drawn(world.ring, count, seed))
    world.heal(SETTLED_S)
    world.run(3)
    return world


def measure_gap() -> None:
    """Joins and leaves at the same time: how uneven it gets, and how long it takes."""
    say("at once c of 64 leave and c come, 10 times, 3 seeds: seconds until all is ideal: mean, most; then")
    say("    c   settled: mean    most   global gap: while, after   neighbours differ by: while, after")
    for at_once in (1, 4, 16):
        seconds, widest, uneven, wide_after, uneven_after = [], 0, 0, 0, 0
        for seed in SEEDS:
            world = begun(64, seed)
            chance = random.Random(seed)
            for turn in range(10):
                strangers = drawn(world.ring, at_once, 1000 * (seed + 1) + turn)
                for node in chance.sample(sorted(world.members()), at_once):
                    world.leave(node)
                for me in strangers:
                    world.join(me, world.hosts[chance.choice(sorted(world.members()))].runtime.me)
                at = world.now
                while world.departures() is not None:
                    world.run(0.25)
                    widest, uneven = max(widest, gap(world.members())), max(uneven, differ(world))
                seconds.append((world.now - at) / SECOND_US)
                wide_after, uneven_after = max(wide_after, gap(world.members())), max(uneven_after, differ(world))
        say(
            f"{at_once:5} {mean(seconds):15.1f} {max(seconds):7.1f} {widest:20} {wide_after:6}"
            f" {uneven:30} {uneven_after:6}"
        )


def differ(world: World) -> int:
    """By how much the lengths of neighbours differ, at most; as far as they know."""
    views = world.members().values()
    return max(
        (abs(own.length - link.length) for view in views for own, _ in view.pieces for link, _ in view.links), default=0
    )


def measure_upkeep() -> None:
    """Measure the cost of a quiet network."""
    say("quiet: messages that a node sends in a second, links")
    for count in (8, 16, 64, 256):
        world = begun(count, 1)
        world.sent.clear()
        world.run(20)
        links = mean(len(view.links) for view in world.members().values())
        say(f"{count:5} {world.sent.total() / count / 20:10.1f} {links:8.1f}   {dict(world.sent.most_common(3))}")


def measure_repair() -> None:
    """Crashes: how long ids have no host, and when each node has one region again."""
    say("c of 64 crash at once, 5 times, 3 seeds: seconds until every id has one host again, until all is ideal")
    say("    c  driver tells   hosted: mean    most    ideal: mean    most")
    for at_once in (1, 4, 16):
        for detector in (True, False):
            hosted, ideal = [], []
            for seed in SEEDS:
                for turn in range(5):
                    world = begun(64, 10 * seed + turn)
                    world.detector = detector
                    chance = random.Random(turn)
                    for node in chance.sample(sorted(world.members()), at_once):
                        world.crash(node)
                    at = world.now
                    world.run_until(lambda world=world: is_hosted(world), SETTLED_S, 0.1)  # type: ignore[misc]
                    hosted.append((world.now - at) / SECOND_US)
                    world.heal(SETTLED_S)
                    ideal.append((world.now - at) / SECOND_US)
            say(
                f"{at_once:5} {'yes' if detector else 'no':>13} {mean(hosted):14.1f} {max(hosted):7.1f}"
                f" {mean(ideal):14.1f} {max(ideal):7.1f}"
            )


def is_hosted(world: World) -> bool:
    """Return whether every id has exactly one host."""
    return not_hosted_once((r for v in world.members().values() for r, _ in v.pieces), world.dimensions) is None


PARTS = {"gap": measure_gap, "upkeep": measure_upkeep, "repair": measure_repair}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
