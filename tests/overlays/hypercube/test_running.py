"""The claims of paper C about paths and joins, and ours about leaves, hold of running nodes."""

from __future__ import annotations

import math
import random

import pytest

from meetpoint.overlays.hypercube.invariant import gap
from meetpoint.overlays.hypercube.regions import Region, distance, key_of
from tests.overlays.hypercube.driving import QUICK, World, drawn

HEALED_S = 60.0


def region(world: World, node: bytes) -> Region:
    ((found, _),) = world.hosts[node].overlay.view().pieces
    return found


def resolved(count: int, seed: int, dimensions: int = 16) -> World:
    world = World(seed=seed, settings=QUICK, dimensions=dimensions)
    world.found(drawn(world.ring, count, seed))
    world.heal(HEALED_S)
    return world


@pytest.mark.parametrize("length", [1, 2, 4, 5])
def test_with_ids_of_one_length_a_path_is_exactly_the_hamming_distance(length: int) -> None:
    world = resolved(1 << length, length)
    chance = random.Random(length)
    assert gap(world.members()) == 0
    for _ in range(60):
        start = chance.choice(sorted(world.hosts))
        point = chance.getrandbits(16)
        found, hops = world.lookup(world.hosts[start], key_of(world.ring, point, 16))
        assert found is not None
        assert region(world, found.id).hosts(point)
        assert hops == distance(region(world, start), point)


@pytest.mark.parametrize("count", [3, 11, 23, 40])
def test_with_others_a_path_is_at_most_the_wrong_bits_at_its_beginning(count: int) -> None:
    world = resolved(count, count)
    chance = random.Random(count)
    for _ in range(60):
        start = chance.choice(sorted(world.hosts))
        point = chance.getrandbits(16)
        found, hops = world.lookup(world.hosts[start], key_of(world.ring, point, 16))
        assert found is not None
        assert region(world, found.id).hosts(point)
        assert hops <= distance(region(world, start), point)


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 16, 32, 64, 128])
def test_a_join_touches_as_many_as_log_k(count: int) -> None:
    """The two halves, and who is next to them: at most two for each bit."""
    world = resolved(count, 1)
    chance = random.Random(count)
    joiners = [each for each in drawn(world.ring, 2 * count, 2) if each.id not in world.hosts][:4]
    for me in joiners:
        before = {node: view.version for node, view in world.members().items()}
        contact = world.hosts[chance.choice(sorted(before))].runtime.me
        world.join(me, contact)
        world.heal(HEALED_S)
        after = world.members()
        touched = {node for node, view in after.items() if before.get(node) != view.version}
        half = region(world, me.id)
        other = next(node for node in after if region(world, node) == half.sibling)
        assert touched <= {me.id, other, *(host for node in (me.id, other) for _, host in after[node].links)}
        assert len(touched) <= 1.6 * math.log2(len(after)) + 2


# -- many at once ------------------------------------------------------------------------------------------------------


def churned(seed: int, count: int, rounds: int, at_once: int) -> tuple[World, int, int]:
    """A network in which some come and some go, all at the same time; the widest gap, and between neighbours."""
    world = resolved(count, seed)
    chance = random.Random(seed)
    widest = uneven = 0
    for turn in range(rounds):
        strangers = [each for each in drawn(world.ring, at_once, 1000 * seed + turn + 1) if each.id not in world.hosts]
        for node in chance.sample(sorted(world.members()), at_once):
            world.leave(node)
        for me in strangers:
            world.join(me, chance.choice([world.hosts[node].runtime.me for node in sorted(world.members())]))
        world.heal(HEALED_S)
        views = world.members()
        widest = max(widest, gap(views))
        for view in views.values():
            own = view.pieces[0][0].length
            uneven = max([uneven, *(abs(own - link.length) for link, _ in view.links)])
    return world, widest, uneven


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_joins_and_leaves_at_the_same_time_leave_lengths_even(seed: int) -> None:
    _, widest, uneven = churned(seed, 24, 6, 4)
    assert uneven <= 1
    assert widest <= 2
