"""Ideal rings: hops are those of real nodes, and links those that they have."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from meetpoint.api.ids import NodeId, Peer
from meetpoint.lab.experiments.rings import IdealRing, hashed, spaced
from meetpoint.node.runtime.ring import Ring
from tests.overlays.chord.test_hops import Still


@pytest.mark.parametrize(
    ("ring", "nodes"),
    [
        (Ring(), hashed(Ring(), 48, 5)),
        (Ring(), spaced(Ring(), 32)),
        (Ring(4), spaced(Ring(4), 16)),
        (Ring(5), [Ring(5).node(number) for number in (1, 4, 5, 6, 20, 31)]),
        (Ring(), hashed(Ring(), 2, 5)),
        (Ring(), hashed(Ring(), 1, 5)),
    ],
    ids=["hashed", "spaced", "every", "small", "two", "one"],
)
def test_hops_are_those_of_nodes(ring: Ring, nodes: Sequence[NodeId]) -> None:
    """Every key, the ids of nodes among them, from some nodes: as far as messages between real nodes go."""
    ideal = IdealRing(ring, nodes)
    still = Still(ring, [Peer(node, "somewhere") for node in nodes])
    chance = random.Random(1)
    keys = [*ideal.nodes, *(ring.key(chance.getrandbits(ring.bits)) for _ in range(60))]
    for source in chance.sample(range(len(nodes)), min(4, len(nodes))):
        for key in keys:
            owner, hops = still.lookup(ideal.nodes[source], key)
            assert (ideal.nodes[ideal.owner(key)], ideal.hops(source, key)) == (owner.id, hops)


def test_links_are_the_successor_and_a_finger_for_every_doubling() -> None:
    ideal = IdealRing(Ring(4), spaced(Ring(4), 16))
    numbers = [[ideal.ring.number(link) for link in ideal.links(at)] for at in (0, 10)]
    assert numbers == [[1, 2, 4, 8], [2, 11, 12, 14]]
    ring = Ring()
    uneven = IdealRing(ring, hashed(ring, 40, 2))
    for at, node in enumerate(uneven.nodes):
        fingers = {uneven.nodes[uneven.owner(ring.add(node, 1 << exponent))] for exponent in range(ring.bits)}
        assert uneven.links(at) == sorted(fingers - {node})
    assert IdealRing(ring, hashed(ring, 1, 2)).links(0) == []
