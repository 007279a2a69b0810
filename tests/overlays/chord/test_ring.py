"""Rings of real nodes on the small driver: they come together, bear losses, and are ideal again in a stated time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from meetpoint.api.ids import Peer
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord import ChordSettings
from meetpoint.overlays.chord.invariant import broken
from tests.overlays.chord.driving import World, drawn, peer
from tests.overlays.chord.mutants import NeverReplaced

HEALED_S = 30.0
"""Within so long of the last change a ring of up to 64 nodes is ideal."""


def wrong_fingers(world: World) -> int:
    """Return how many fingers are not the first member at or after their place."""
    wrong = 0
    for node, host in world.hosts.items():
        for exponent, finger in host.overlay._table.fingers.items():
            wrong += finger != world.owner(world.ring.add(node, 1 << exponent))
    return wrong


def contact(world: World, chance: random.Random, but: bytes = b"") -> Peer:
    return world.hosts[chance.choice([node for node in sorted(world.members()) if node != but])].runtime.me


# -- beginning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 64])
def test_founders_have_ideal_pointers_and_fingers_from_the_start(count: int) -> None:
    world = World()
    world.found(drawn(world.ring, count, 1))
    assert world.departures() is None
    assert world.wrong() is None
    assert wrong_fingers(world) == 0
    world.watched = True
    world.run(10)
    assert world.departures() is None
    assert world.broken == []
    assert all(host.joins == 1 for host in world.hosts.values())


def test_a_quiet_ring_costs_less_than_three_messages_a_second_and_node() -> None:
    world = World()
    world.found(drawn(world.ring, 32, 1))
    world.run(60)
    assert sum(world.sent.values()) / 32 / 60 < 3
    assert world.sent["NotifySuccessor"] == 0


@pytest.mark.parametrize("bits", [4, 160])
def test_a_network_grows_from_one_by_joins_one_after_another(bits: int) -> None:
    world = World(Ring(bits), seed=3, packed=True)
    peers = drawn(world.ring, 9, 3)
    world.found(peers[4:5])
    world.watched = True
    chance = random.Random(3)
    for joiner in peers[:4] + peers[5:]:
        world.join(joiner, contact(world, chance))
        world.heal(HEALED_S)
    assert world.broken == []
    world.run(60)
    assert wrong_fingers(world) == 0


@pytest.mark.parametrize("founders", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_many_may_join_at_the_same_time(founders: int, seed: int) -> None:
    world = World(seed=seed)
    peers = drawn(world.ring, founders + 20, seed)
    random.Random(seed).shuffle(peers)
    world.found(peers[:founders])
    world.watched = True
    for joiner in peers[founders:]:
        world.join(joiner, peers[0])
    world.heal(HEALED_S)
    assert world.broken == []


def test_a_joiner_goes_on_until_a_member_answers_and_may_be_given_another() -> None:
    world = World(detector=False)
    world.found([peer(world.ring, 1000)])
    host = world.join(peer(world.ring, 2000), peer(world.ring, 7))  # nobody is there
    world.run(5)
    assert host.joins == 0
    world.step(host, lambda: host.overlay.join(peer(world.ring, 1000)))
    world.run(1)
    assert host.joins == 1


def test_rings_that_were_founded_apart_and_remember_each_other_become_one() -> None:
    world = World(seed=5)
    peers = drawn(world.ring, 12, 5)
    for founder in peers:
        world.found([founder])
    for host in world.hosts.values():
        world.step(host, lambda host=host: host.overlay.remember(peers))  # type: ignore[misc]
    assert world.heal(HEALED_S) <= HEALED_S


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [True, False])
def test_neighbours_up_to_one_less_than_the_list_may_fail_at_once(detector: bool) -> None:
    world = World(seed=2, detector=detector)
    peers = drawn(world.ring, 24, 2)
    world.found(peers)
    world.run(2)
    for gone in peers[5:8]:
        world.crash(gone.id)
    assert world.heal(HEALED_S) < 10


def test_a_dead_successor_is_found_within_three_seconds() -> None:
    world = World(seed=2, detector=False)
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    world.crash(peers[3].id)
    before = world.hosts[peers[2].id]
    assert world.run_until(lambda: before.overlay.view().succ[0] == peers[4].id, 3.0, 0.05) <= 3.0


def test_a_leave_closes_the_ring_at_once() -> None:
    world = World(seed=2, delay_us=(1000, 1000))
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    world.watched = True
    world.leave(peers[3].id)
    world.run(0.01)
    members = world.members()
    assert members[peers[2].id].succ[0] == peers[4].id
    assert members[peers[4].id].prdc == peers[2].id
    assert peers[3] not in world.hosts[peers[0].id].overlay.neighbours(4), "those farther back know it too"
    world.heal(HEALED_S)
    assert world.broken == []


def test_a_member_that_lost_its_whole_list_finds_back_through_its_fingers() -> None:
    world = World(seed=4)
    peers = drawn(world.ring, 24, 4)
    world.found(peers)
    world.run(5)
    for gone in peers[6:10]:
        world.crash(gone.id)
    assert world.heal(HEALED_S) <= HEALED_S


def test_a_restart_is_a_fresh_join_under_the_next_incarnation() -> None:
    world = World(seed=6)
    peers = drawn(world.ring, 12, 6)
    world.found(peers)
    world.run(3)
    world.watched = True
    for again in range(1, 4):
        world.crash(peers[4].id)
        world.join(Peer(peers[4].id, peers[4].address, again), peers[7])
        world.heal(HEALED_S)
        assert world.hosts[peers[3].id].overlay.neighbours(1) == (Peer(peers[4].id, peers[4].address, again),)
    assert world.broken == []


# -- churn -------------------------------------------------------------------------------------------------------------


class Churn:
    """Nodes that come and go by chance."""

    def __init__(self, world: World, count: int, seed: int) -> None:
        self.world = world
        self.chance = random.Random(f"churn {seed}")
        peers = drawn(world.ring, 2 * count, seed)
        self.chance.shuffle(peers)
        self.peers = peers
        self.outside = peers[count:]
        self.gone = 0
        world.found(peers[:count])

    def run(self, seconds: float, may_go: Callable[[bytes], bool], parted: bool = False) -> None:
        world, chance = self.world, self.chance
        end = world.now + seconds * 1_000_000
        while world.now < end:
            world.run(chance.random() * 1.2)
            if parted and chance.random() < 0.1:
                world.sides = {} if world.sides else {peer.id: chance.randrange(2) for peer in self.peers}
            node = chance.choice(sorted(world.hosts))
            if chance.random() < 0.5 and may_go(node):
                self.gone += 1
                self.outside.append(world.hosts[node].runtime.me)
                (world.leave if chance.random() < 0.3 else world.crash)(node)
            elif self.outside:
                former = self.outside.pop(chance.randrange(len(self.outside)))
                world.join(Peer(former.id, former.address, former.incarnation + 1), contact(world, chance, former.id))
            self.seek()

    def seek(self) -> None:
        """Joiners whose contact is gone are given another."""
        for node, host in sorted(self.world.hosts.items()):
            if not host.overlay.view().joined and self.world.members():
                other = contact(self.world, self.chance, node)
                self.world.step(host, lambda host=host, other=other: host.overlay.join(other))  # type: ignore[misc]

    def heal(self) -> float:
        self.world.sides = {}
        self.world.loss = 0
        begun = self.world.now
        while self.world.departures() is not None:
            assert self.world.now - begun < HEALED_S * 1_000_000, self.world.departures()
            self.world.run(0.5)
            self.seek()
        return (self.world.now - begun) / 1_000_000


@pytest.mark.parametrize("seed", range(8))
def test_under_a_perfect_detector_the_invariant_holds_after_every_step(seed: int) -> None:
    """A member goes only where the operating assumption allows, with one to spare, since answers are on their way."""
    length = 3
    world = World(seed=seed, settings=ChordSettings(successors=length))
    churn = Churn(world, 12, seed)
    world.watched = True

    def may_go(node: bytes) -> bool:
        rest = {other: view for other, view in world.members().items() if other != node}
        spare = all(sum(entry in rest for entry in view.succ) >= 2 for view in rest.values())
        return node in world.members() and spare and len(rest) > length + 2 and broken(rest, length + 1) is None

    churn.run(40, may_go)
    assert churn.gone > 10
    churn.heal()
    assert world.broken == []


@pytest.mark.slow
@pytest.mark.parametrize(("count", "loss"), [(3, 0.1), (8, 0.3), (24, 0.1)])
@pytest.mark.parametrize("seed", range(3))
def test_after_churn_loss_and_partitions_a_ring_becomes_ideal(count: int, loss: float, seed: int) -> None:
    """No operating assumption, no perfect detector: only that somebody remembers somebody."""
    world = World(seed=seed, detector=False, loss=loss)
    churn = Churn(world, count, seed)
    churn.run(60, lambda node: len(world.members()) > max(2, count // 2) and node in world.members(), parted=True)
    assert churn.gone > 5
    churn.heal()
    world.run(120)
    assert wrong_fingers(world) == 0


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "sides"), [(2, 2), (3, 3), (5, 2), (16, 2), (16, 4), (64, 2), (64, 3)])
def test_a_network_that_was_torn_apart_for_a_minute_is_one_again_in_time(count: int, sides: int) -> None:
    world = World(seed=count, detector=False)
    peers = drawn(world.ring, count, count)
    world.found(peers)
    world.run(3)
    chance = random.Random(count)
    world.sides = {peer.id: at % sides if at < sides else chance.randrange(sides) for at, peer in enumerate(peers)}
    world.run(60)
    assert world.departures() is not None
    world.sides = {}
    assert world.heal(HEALED_S) <= HEALED_S


def test_without_a_passive_list_two_rings_stay_two() -> None:
    world = World(seed=1, detector=False, settings=ChordSettings(merge_share=0.0))
    peers = drawn(world.ring, 16, 1)
    world.found(peers)
    world.run(3)
    world.sides = {peer.id: at % 2 for at, peer in enumerate(peers)}
    world.run(60)
    world.sides = {}
    world.run(60)
    assert world.departures() is not None


def test_a_false_suspicion_heals_by_itself() -> None:
    world = World(seed=1)
    peers = drawn(world.ring, 8, 1)
    world.found(peers)
    world.run(3)
    host = world.hosts[peers[2].id]
    world.step(host, lambda: host.overlay.suspect(peers[3]))
    assert peers[3] not in host.overlay.neighbours(4)
    world.run(0.2)
    assert world.heal(HEALED_S) < 10
    assert peers[3] in host.overlay.neighbours(4)


def test_the_driver_runs_the_rules_it_is_given() -> None:
    """A mutant that the search catches keeps a ring of messages from becoming ideal too."""
    world = World(seed=1, rules=NeverReplaced)
    peers = drawn(world.ring, 8, 1)
    world.found(peers)
    world.run(3)
    world.crash(peers[3].id)
    world.run(HEALED_S)
    assert "predecessor" in str(world.departures())
