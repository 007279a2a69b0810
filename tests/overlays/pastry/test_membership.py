"""Networks of real nodes on the small driver: they come together, bear losses, and are ideal again in a stated time."""

from __future__ import annotations

import random

import pytest

from meetpoint.api.ids import Key, Peer
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.pastry import PastrySettings
from meetpoint.overlays.pastry.rules import LEFT, RIGHT
from tests.overlays.pastry.driving import Text, World, drawn, peer
from tests.overlays.pastry.mutants import ReadyUnleased

HEALED_S = 30.0
"""Within so long of the last change a network of up to 64 nodes is ideal."""


def contact(world: World, chance: random.Random, but: bytes = b"") -> Peer:
    return world.hosts[chance.choice([node for node in sorted(world.members()) if node != but])].runtime.me


# -- beginning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 10, 64])
def test_founders_are_ready_from_the_start_and_stay_so(count: int) -> None:
    world = World()
    world.found(drawn(world.ring, count, 1))
    assert world.departures() is None
    world.watched = True
    world.run(20)
    assert world.departures() is None
    assert world.broken == []
    assert world.observed["pastry_unready"] == 0
    assert all(host.joins == 1 for host in world.hosts.values())


def test_a_quiet_network_costs_less_than_four_messages_a_second_and_node() -> None:
    world = World()
    world.found(drawn(world.ring, 32, 1))
    world.run(60)
    assert sum(world.sent.values()) / 32 / 60 < 4


@pytest.mark.parametrize("bits", [8, 128])
def test_a_network_grows_from_one_by_joins_one_after_another(bits: int) -> None:
    world = World(Ring(bits), seed=3, packed=True)
    peers = drawn(world.ring, 12, 3)
    world.found(peers[4:5])
    world.watched = True
    chance = random.Random(3)
    for joiner in peers[:4] + peers[5:]:
        host = world.join(joiner, contact(world, chance))
        assert world.run_until(lambda host=host: host.joins == 1, 2.0, 0.05) <= 2.0  # type: ignore[misc]
        world.heal(HEALED_S)
    assert world.broken == []


@pytest.mark.slow
@pytest.mark.parametrize("founders", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_many_may_join_at_the_same_time_though_one_is_helped_at_a_time(founders: int, seed: int) -> None:
    world = World(seed=seed)
    peers = drawn(world.ring, founders + 30, seed)
    random.Random(seed).shuffle(peers)
    world.found(peers[:founders])
    world.watched = True
    for joiner in peers[founders:]:
        world.join(joiner, peers[0])
    assert world.heal(HEALED_S) <= HEALED_S
    assert world.broken == []


def test_joiners_that_are_ready_without_leases_break_the_invariant_in_a_storm() -> None:
    """The watch would see it: the mutant of the search, run as a node."""
    world = World(seed=1, rules=ReadyUnleased)
    peers = drawn(world.ring, 20, 1)
    world.found(peers[:2])
    world.watched = True
    for joiner in peers[2:]:
        world.join(joiner, peers[0])
    world.run(10)
    assert world.broken


def test_a_joiner_goes_on_until_a_member_answers_and_may_be_given_another() -> None:
    world = World(detector=False)
    world.found([peer(world.ring, 1000)])
    host = world.join(peer(world.ring, 2000), peer(world.ring, 7))  # nobody is there
    world.run(5)
    assert host.joins == 0
    world.step(host, lambda: host.overlay.join(peer(world.ring, 1000)))
    world.run(2)
    assert host.joins == 1


def test_a_joiner_whose_helper_crashes_is_helped_by_another() -> None:
    world = World(seed=6, detector=False)
    peers = drawn(world.ring, 12, 6)
    world.found([*peers[:5], *peers[6:]])
    world.run(2)
    world.join(peers[5], peers[0])
    world.run(0.06)  # the question is on its way, or just answered
    world.crash(peers[4].id)
    assert world.heal(HEALED_S) <= 12


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_node_whose_neighbour_is_silent_is_not_ready_when_its_lease_is_over_and_ready_again_soon() -> None:
    world = World(seed=2, detector=False)
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    world.watched = True
    world.crash(peers[3].id)
    beside = world.hosts[peers[2].id]
    lost = world.run_until(lambda: not beside.overlay.view().ready, 4.0, 0.05)
    assert lost <= 3.1, "the lease that it held"
    again = world.run_until(lambda: all(view.ready for view in world.members().values()), 3.0, 0.05)
    assert lost + again <= 4.0
    assert world.heal(HEALED_S) <= 10
    assert world.broken == []


def test_a_dead_neighbour_is_suspected_within_three_seconds_on_both_sides() -> None:
    world = World(seed=2, detector=False)
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    world.crash(peers[3].id)
    beside = [world.hosts[peers[at].id].overlay for at in (2, 4)]

    def seen() -> bool:
        return not any(peers[3] in pastry.neighbours(8) for pastry in beside)

    assert world.run_until(seen, 3.0, 0.05) <= 3.0


def test_a_neighbour_keeps_its_place_while_it_may_count_on_a_lease_although_it_is_reported_lost() -> None:
    world = World(seed=2)
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    host = world.hosts[peers[2].id]
    world.crash(peers[3].id)
    world.step(host, lambda: host.lose(peers[3]))
    assert host.overlay.view().right == peers[3].id
    assert peers[3] not in host.overlay.neighbours(4), "copies go elsewhere at once"
    world.run(4.5)
    assert host.overlay.view().right == peers[4].id


def test_a_process_that_was_stopped_does_not_deliver_by_a_lease_that_is_over() -> None:
    """Its timers are late, too: what comes first must not be the message."""
    world = World(seed=2)
    peers = drawn(world.ring, 8, 2)
    world.found(peers)
    world.run(5)
    host = world.hosts[peers[2].id]
    own = Key(peers[2].id)
    host.do(world.now, lambda: host.overlay.route(own, Text("before")))
    host.do(world.now + 10_000_000, lambda: host.overlay.route(own, Text("after")))
    assert [body for _, body, _, _ in host.delivered_here] == [Text("before")]


def test_a_leave_closes_the_gap_at_once() -> None:
    world = World(seed=2, delay_us=(1000, 1000))
    peers = drawn(world.ring, 16, 2)
    world.found(peers)
    world.run(5)
    world.watched = True
    world.leave(peers[3].id)
    world.run(0.01)
    members = world.members()
    assert members[peers[2].id].right == peers[4].id
    assert members[peers[4].id].left == peers[2].id
    assert world.departures() is None or world.heal(2.0) <= 2.0
    assert world.broken == []


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [True, False])
def test_neighbours_up_to_one_less_than_half_the_leaves_may_fail_at_once(detector: bool) -> None:
    world = World(seed=2, detector=detector)
    peers = drawn(world.ring, 24, 2)
    world.found(peers)
    world.run(2)
    world.watched = True
    for gone in peers[5:8]:
        world.crash(gone.id)
    assert world.heal(HEALED_S) < 10
    assert world.broken == []


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_is_ready_within_five_seconds_and_ideal_again(seed: int) -> None:
    world = World(seed=seed, detector=seed % 2 == 0)
    peers = drawn(world.ring, 16, seed)
    world.found(peers)
    world.run(3)
    world.watched = True
    world.crash(peers[5].id)
    world.run(0.5 * seed)
    host = world.join(peer(world.ring, world.ring.number(peers[5].id), 1), peers[9])
    assert world.run_until(lambda: host.overlay.view().ready, 5.0, 0.05) <= 5.0
    world.heal(HEALED_S)
    assert world.broken == []


def test_one_that_lost_its_disk_and_comes_back_under_an_incarnation_heard_before_is_let_in() -> None:
    world = World(seed=4, detector=False)
    peers = drawn(world.ring, 10, 4)
    numbers = [world.ring.number(each.id) for each in peers]
    world.found(peers)
    for incarnation in (3, 1, 1):
        world.crash(peers[5].id)
        world.run(0.3)
        world.join(peer(world.ring, numbers[5], incarnation), peers[0])
        world.heal(HEALED_S)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_with_a_fifth_of_all_messages_lost_a_network_still_becomes_ideal(seed: int) -> None:
    world = World(seed=seed, detector=False, loss=0.2)
    peers = drawn(world.ring, 14, seed)
    world.found(peers[:8])
    for joiner in peers[8:]:
        world.join(joiner, peers[0])
    world.run(40)
    world.loss = 0.0
    assert world.heal(HEALED_S) <= HEALED_S


@pytest.mark.parametrize("seed", range(6))
def test_churn_under_a_perfect_detector_keeps_the_invariant(seed: int) -> None:
    """Crashes, restarts and joins, each where the network stands (`invariant.stands`)."""
    world = World(seed=seed)
    chance = random.Random(seed)
    peers = drawn(world.ring, 16, seed)
    world.found(peers[:10])
    world.watched = True
    lives = dict.fromkeys((each.id for each in peers), 0)
    for _ in range(12):
        world.run(chance.uniform(0.2, 4))
        absent = [each for each in peers if each.id not in world.hosts]
        if absent and chance.random() < 0.6:
            who = chance.choice(absent)
            lives[who.id] += 1
            world.join(peer(world.ring, world.ring.number(who.id), lives[who.id]), contact(world, chance))
        elif len(world.members()) > 5:
            world.crash_one(chance)
    world.heal(HEALED_S)
    assert world.broken == []


# -- keys --------------------------------------------------------------------------------------------------------------


def test_routed_messages_and_lookups_find_the_closest() -> None:
    world = World(seed=7, packed=True)
    peers = drawn(world.ring, 30, 7)
    world.found(peers)
    chance = random.Random(7)
    for number in range(60):
        key = world.ring.key(chance.getrandbits(128))
        host = world.hosts[chance.choice(peers).id]
        found, hops = world.lookup(host, key)
        assert found is not None
        assert found.id == world.owner(key)
        assert hops <= 3
        world.step(host, lambda host=host, key=key, number=number: host.overlay.route(key, Text(str(number))))  # type: ignore[misc]
        world.run(0.3)
        owner = world.hosts[world.owner(key)]
        assert owner.delivered_here[-1][:3] == (key, Text(str(number)), host.runtime.me)


def test_a_lookup_goes_round_a_dead_link() -> None:
    world = World(seed=8, detector=False)
    peers = drawn(world.ring, 40, 8)
    world.found(peers)
    world.run(1)
    asker = world.hosts[peers[0].id]
    key = Key(peers[20].id)
    first = asker.overlay.next_hop(key)
    assert first is not None
    if first.id != key:
        world.crash(first.id)
    found, _ = world.lookup(asker, key)
    assert found == peers[20]


def test_one_that_is_alone_has_every_key_and_is_its_own_neighbour() -> None:
    world = World()
    (host,) = world.found([peer(world.ring, 5)])
    assert world.lookup(host, world.ring.key(77)) == (host.runtime.me, 0)
    state = host.overlay._table.state
    assert state is not None
    assert state.near[LEFT] == state.near[RIGHT] == host.runtime.me.id
    assert host.overlay.neighbours(3) == ()
    assert host.overlay.split(None) == []


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"digit_bits": 3}, {"half": 0}, {"lease_us": 1}, {"lookup_tries": 0}):
        with pytest.raises(AssertionError):
            PastrySettings(**wrong)
