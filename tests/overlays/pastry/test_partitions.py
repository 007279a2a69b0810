"""Networks that were torn apart, wrong suspicions, and what comes from outside: all of it is borne."""

from __future__ import annotations

import random

import pytest

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.runtime.effects import Send
from meetpoint.overlays.pastry import MESSAGES
from meetpoint.overlays.pastry.messages import (
    Greet,
    GreetReply,
    NotMember,
    PastryFind,
    PastryFound,
    PastryJoin,
    PastryJoinReply,
    PastryLeaving,
    PastryRouted,
)
from tests.overlays.pastry.driving import PACKER, Text, World, drawn, peer

HEALED_S = 30.0


@pytest.mark.slow
@pytest.mark.parametrize(("count", "parts"), [(12, 2), (12, 3), (32, 2)])
@pytest.mark.parametrize("seed", range(2))
def test_parts_of_a_torn_network_serve_apart_and_become_one_again(count: int, parts: int, seed: int) -> None:
    world = World(seed=seed, detector=False)
    peers = drawn(world.ring, count, seed)
    world.found(peers)
    world.run(2)
    chance = random.Random(seed)
    world.sides = {each.id: chance.randrange(parts) for each in peers}
    world.run(60)
    for side in range(parts):
        views = {node: view for node, view in world.members().items() if world.sides[node] == side}
        assert all(view.ready for view in views.values()), "each part goes on"
    world.sides = {}
    assert world.heal(HEALED_S) <= HEALED_S


def test_networks_that_were_founded_apart_and_remember_each_other_become_one() -> None:
    world = World(seed=5)
    peers = drawn(world.ring, 12, 5)
    for founder in peers:
        world.found([founder])
    for host in world.hosts.values():
        world.step(host, lambda host=host: host.overlay.remember(peers))  # type: ignore[misc]
    assert world.heal(2 * HEALED_S) <= 2 * HEALED_S


@pytest.mark.parametrize("seed", range(4))
def test_one_that_is_cut_off_from_its_neighbours_alone_loses_its_place_and_gets_it_back(seed: int) -> None:
    """Both neighbours take it for dead, wrongly: its leases end before they close the gap, so no key has two owners."""
    world = World(seed=seed, detector=False)
    peers = drawn(world.ring, 12, seed)
    world.found(peers)
    world.run(3)
    world.watched = True
    lonely = peers[5].id
    world.cuts = {frozenset((lonely, peers[at].id)) for at in (4, 6)}
    world.run(8)
    assert not world.members()[lonely].ready
    world.cuts = set()
    world.heal(HEALED_S)
    assert world.broken == []


def test_a_wrong_word_that_a_node_is_lost_is_forgotten_when_it_speaks() -> None:
    world = World(seed=1)
    peers = drawn(world.ring, 12, 1)
    hosts = world.found(peers)
    world.run(3)
    world.watched = True
    for host in hosts:
        world.step(host, lambda host=host: host.lose(peers[3]) if host.runtime.me != peers[3] else None)  # type: ignore[misc]
    world.run(6)
    assert world.departures() is None or world.heal(HEALED_S) <= HEALED_S
    assert world.broken == []


# -- what comes from outside -------------------------------------------------------------------------------------------

SHORT = NodeId(Key(b"\x01"))


def stranger(world: World) -> Peer:
    return peer(world.ring, 77_777)


@pytest.mark.parametrize("seed", range(3))
def test_nonsense_is_dropped_and_counted_and_never_raises(seed: int) -> None:
    world = World(seed=seed)
    peers = drawn(world.ring, 6, seed)
    hosts = world.found(peers)
    world.run(2)
    host, life = hosts[0], (0, 0)
    bad = Peer(SHORT, "x")
    nowhere = Peer(stranger(world).id, "")
    good = (peers[1].id, peers[2].id)
    nonsense: list[Message] = [
        Greet(1, life, (SHORT, peers[1].id), 31, True, 1, 1),
        Greet(1, life, good, 31, True, 1, 1, 1 << 62, 3),
        Greet(1, life, good, -1, True, -5, -5, -5, -5),
        PastryJoin(bad, life, 1, 1),
        PastryJoin(nowhere, life, 1, 1),
        PastryJoin(host.runtime.me, life, 1, 1),
        PastryJoinReply(1, (bad,)),
        PastryFind(Key(b"\x01"), stranger(world), 1, 1),
        PastryFind(Key(peers[1].id), bad, 1, 1),
        PastryFind(Key(peers[1].id), stranger(world), 1, 1, -3),
        PastryFound(99, 1),
        PastryRouted(Key(b"\x01"), stranger(world), 1, b""),
        PastryRouted(Key(host.runtime.me.id), stranger(world), 1, b"\xff\x00"),
        PastryRouted(Key(host.runtime.me.id), nowhere, 1, PACKER.encode(Text("x"))),
    ]
    for message in nonsense:
        before = sum(world.observed.values())
        world.step(host, lambda message=message: host.receive(stranger(world), message))  # type: ignore[misc]
        if not isinstance(message, Greet):
            assert sum(world.observed.values()) > before, message
    for message in (PastryLeaving(life), PastryLeaving((9, 9))):  # of a life that nobody knows
        world.step(host, lambda message=message: host.receive(stranger(world), message))  # type: ignore[misc]
    world.step(host, lambda: host.receive(peers[1], PastryLeaving((9, 9))))
    assert peers[1].id in host.overlay.view().leaves
    for reply in (GreetReply(3, life, good, 31, 3, True, 1, 1, (bad,)), NotMember(3, life)):
        world.step(host, lambda reply=reply: host.receive(stranger(world), reply))  # type: ignore[misc]
    assert host.delivered_here == []
    world.heal(HEALED_S)


def test_an_answer_with_nonsense_is_no_answer() -> None:
    world = World(seed=3)
    peers = drawn(world.ring, 4, 3)
    host, *_ = world.found(peers)
    effects = host.do(world.now, lambda: host.overlay._maintenance.greet(peers[2]))
    (greet,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(greet, Greet)
    many = tuple(peer(world.ring, number) for number in range(100))
    reply = GreetReply(greet.request, (0, 0), (peers[1].id, peers[3].id), 19, 3, True, 1, 1, many)
    world.step(host, lambda: host.receive(peers[2], reply))
    assert world.observed["pastry_malformed"] == 1
    assert len(host.overlay.view().leaves) == 3


def test_every_kind_of_message_survives_the_wire() -> None:
    world = World(seed=2, packed=True)
    peers = drawn(world.ring, 8, 2)
    world.found(peers[:5])
    for joiner in peers[5:]:
        world.join(joiner, peers[0])
    world.heal(HEALED_S)
    world.leave(peers[1].id)
    world.lookup(world.hosts[peers[0].id], world.ring.key(12345))
    host = world.hosts[peers[0].id]
    for number in range(20):
        key = world.ring.key(number << 120)
        world.step(host, lambda key=key: host.overlay.route(key, Text("x")))  # type: ignore[misc]
    world.run(5)
    names = {kind.__name__ for kind in MESSAGES} - {"NotMember"}
    assert names <= set(world.sent)
