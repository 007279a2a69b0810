"""How far it is to a key, counted from the messages that were sent; and broadcasts."""

from __future__ import annotations

import random
from collections import Counter
from math import log2
from statistics import fmean

import pytest

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.node.runtime.effects import Send
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord import ChordSettings
from tests.overlays.chord.driving import Host, Text, World, drawn, peer


class Still:
    """A network in which no time passes: what is sent arrives, and nothing else happens."""

    def __init__(self, ring: Ring, peers: list[Peer], settings: ChordSettings | None = None) -> None:
        self.ring = ring
        self.order = tuple(sorted(peers))
        self.hosts: dict[bytes, Host] = {}
        self.sent = 0
        for at, me in enumerate(self.order):
            host = self.hosts[me.id] = Host(me, ring, at, settings or ChordSettings())
            host.do(0, lambda host=host: host.overlay.found(self.order))  # type: ignore[misc]

    def drain(self, host: Host, effects: list[object]) -> None:
        waiting = [(host.runtime.me, effect) for effect in effects if isinstance(effect, Send)]
        for source, effect in waiting:  # grows as we go
            self.sent += 1
            target = self.hosts[effect.to.id]
            answer = target.do(0, lambda t=target, s=source, e=effect: t.receive(s, e.message))  # type: ignore[misc]
            waiting += [(target.runtime.me, effect) for effect in answer if isinstance(effect, Send)]

    def lookup(self, node: bytes, key: Key) -> tuple[Peer, int]:
        """The owner, and the hops that the asker was told; they are the messages that were sent, but for the answer."""
        host = self.hosts[node]
        found: list[tuple[Peer, int]] = []
        self.sent = 0
        self.drain(host, [*host.do(0, lambda: host.overlay.lookup(key, lambda *answer: found.append(answer)))])
        ((owner, hops),) = found
        assert self.sent == (hops + 1 if hops else 0)
        return owner, hops

    def owner(self, key: bytes) -> Peer:
        return next((peer for peer in self.order if peer.id >= key), self.order[0])


def mean_hops(count: int, seed: int, lookups: int, settings: ChordSettings | None = None) -> float:
    ring = Ring()
    still = Still(ring, drawn(ring, count, seed), settings)
    chance = random.Random(f"keys {seed}")
    hops = []
    for _ in range(lookups):
        key = ring.key(chance.getrandbits(160))
        owner, far = still.lookup(chance.choice(still.order).id, key)
        assert owner == still.owner(key)
        hops.append(far)
    return fmean(hops)


@pytest.mark.slow
def test_mean_hops_are_half_the_logarithm_and_less_than_one() -> None:
    """½ log2 N + c, as in "Chord" and in paper A: the slope is 0.5 for a doubling, c the last step to the successor."""
    counts = [64, 256, 1024, 4096]
    means = {count: mean_hops(count, seed=count, lookups=1500) for count in counts}
    xs = [log2(count) for count in counts]
    x_mean, y_mean = fmean(xs), fmean(means.values())
    slope = sum((x - x_mean) * (means[n] - y_mean) for x, n in zip(xs, counts, strict=True)) / sum(
        (x - x_mean) ** 2 for x in xs
    )
    print({count: round(mean, 2) for count, mean in means.items()}, f"slope {slope:.3f}")  # noqa: T201 - figures of docs/chord.md
    assert 0.45 <= slope <= 0.55
    for count, mean in means.items():
        assert 0 <= mean - log2(count) / 2 <= 1


def test_shortcuts_over_all_successors_save_a_quarter_of_a_hop() -> None:
    with_them = mean_hops(512, 1, 1000, ChordSettings(shortcuts=True))
    without = mean_hops(512, 1, 1000)
    assert 0.15 <= without - with_them <= 0.4


# -- small rings -------------------------------------------------------------------------------------------------------


def test_on_a_full_ring_of_three_bits_hops_are_the_ones_of_the_distance() -> None:
    ring = Ring(3)
    still = Still(ring, [peer(ring, number) for number in range(8)])
    for a in range(8):
        for b in range(8):
            owner, hops = still.lookup(ring.key(a), ring.key(b))
            assert owner == peer(ring, b)
            assert hops == ((b - a) % 8).bit_count()


def test_the_example_of_paper_A_figure_6_takes_six_hops() -> None:
    ring = Ring(3)
    still = Still(ring, [peer(ring, number) for number in range(8)])
    assert [still.lookup(ring.key(3), ring.key(key))[1] for key in (6, 2, 4)] == [2, 3, 1]


def test_the_example_of_the_chord_paper_takes_its_path() -> None:
    """Stoica et al., figure 4: node 8 finds key 54 by way of 42 and 51 at 56."""
    ring = Ring(6)
    still = Still(ring, [peer(ring, number) for number in (1, 8, 14, 21, 32, 38, 42, 48, 51, 56)])
    assert still.lookup(ring.key(8), ring.key(54)) == (peer(ring, 56), 3)
    view = still.hosts[ring.key(8)].overlay.view()
    assert [ring.number(finger) for finger in view.fingers] == [21, 32, 42], "those beyond the first successor, 14"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_every_key_of_a_small_ring_is_found_from_everywhere(count: int) -> None:
    ring = Ring(4)
    still = Still(ring, drawn(ring, count, count))
    for node in still.hosts:
        for number in range(16):
            owner, hops = still.lookup(node, ring.key(number))
            assert owner == still.owner(ring.key(number))
            assert hops <= 4
            assert (hops == 0) == (owner.id == node)


@pytest.mark.slow
def test_the_farthest_key_is_no_farther_than_the_ring_has_bits() -> None:
    ring = Ring(10)
    still = Still(ring, [peer(ring, number) for number in range(1024)])
    assert still.lookup(ring.key(5), ring.key(4))[1] == 10, "all ones: a hop for each bit"


def test_without_any_finger_a_message_still_arrives_along_the_ring() -> None:
    ring = Ring()
    still = Still(ring, drawn(ring, 24, 3))
    for host in still.hosts.values():
        for exponent in list(host.overlay._table.fingers):
            host.overlay._table.point(exponent, None)
    first, last = still.order[0], still.order[-1]
    assert still.lookup(first.id, last.id) == (last, 23)


def test_a_message_goes_round_fingers_that_are_dead() -> None:
    """Half of the nodes are gone, and nobody knows yet but by its own lookups: all keys are found in the end."""
    world = World(seed=8, detector=True)
    peers = drawn(world.ring, 48, 8)
    world.found(peers)
    world.run(3)
    chance = random.Random(8)
    for gone in peers[::3]:
        world.crash(gone.id)
    for _ in range(40):
        key = world.ring.key(chance.getrandbits(160))
        host = world.hosts[chance.choice(sorted(world.hosts))]
        assert world.lookup(host, key)[0] is not None
    world.heal(30)
    for _ in range(40):
        key = world.ring.key(chance.getrandbits(160))
        host = world.hosts[chance.choice(sorted(world.hosts))]
        found, _ = world.lookup(host, key)
        assert found is not None
        assert found.id == world.owner(key)


def test_a_routed_message_arrives_once_with_its_hops_and_its_origin() -> None:
    ring = Ring()
    still = Still(ring, drawn(ring, 64, 2))
    chance = random.Random(2)
    for at in range(50):
        key = ring.key(chance.getrandbits(160))
        origin = still.hosts[chance.choice(still.order).id]
        still.sent = 0
        still.drain(origin, [*origin.do(0, lambda key=key, o=origin, at=at: o.overlay.route(key, Text(str(at))))])  # type: ignore[misc]
        owner = still.hosts[still.owner(key).id]
        assert owner.delivered_here == [(key, Text(str(at)), origin.runtime.me, still.sent)]
        owner.delivered_here.clear()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("bits", [8, 160])
def test_the_next_hop_is_where_a_message_would_go_and_leads_to_the_owner(count: int, bits: int) -> None:
    ring = Ring(bits)
    still = Still(ring, drawn(ring, count, count))
    chance = random.Random(count)
    keys = [ring.key(chance.getrandbits(bits)) for _ in range(50)] + [Key(each.id) for each in still.order]
    for key in keys:
        node, hops = chance.choice(still.order), 0
        _, far = still.lookup(node.id, key)
        while (onward := still.hosts[node.id].overlay.next_hop(key)) is not None:
            host = still.hosts[node.id]
            effects = host.do(0, lambda host=host, key=key: host.overlay.route(key, Text("")))  # type: ignore[misc]
            assert [effect.to for effect in effects if isinstance(effect, Send)] == [onward]
            node, hops = onward, hops + 1
        assert node == still.owner(key)
        assert hops == far


def test_who_is_no_member_knows_no_next_hop() -> None:
    world = World()
    stranger = world.start(peer(world.ring, 7))
    assert stranger.overlay.next_hop(world.ring.key(3)) is None


# -- broadcasts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 33, 200])
@pytest.mark.parametrize("bits", [8, 160])
def test_a_broadcast_reaches_every_other_node_exactly_once(count: int, bits: int) -> None:
    ring = Ring(bits)
    still = Still(ring, drawn(ring, count, count))
    for origin in still.order[:3]:
        reached: Counter[bytes] = Counter()
        depth = 0
        level: list[tuple[bytes, bytes | None]] = [(origin.id, None)]
        while level:
            following: list[tuple[bytes, bytes | None]] = []
            for node, scope in level:
                for to, part in still.hosts[node].overlay.split(scope):
                    reached[to.id] += 1
                    following.append((to.id, part))
            level = following
            depth += bool(level)
        assert reached == Counter({peer.id: 1 for peer in still.order if peer != origin})
        assert depth <= 2 * log2(count) + 1


def test_the_scope_of_a_broadcast_ends_before_its_end() -> None:
    ring = Ring(6)
    still = Still(ring, [peer(ring, number) for number in (10, 20, 30, 40)])
    chord = still.hosts[ring.key(10)].overlay
    assert [(ring.number(to.id), ring.number(part)) for to, part in chord.split(None)] == [(20, 30), (30, 40), (40, 10)]
    assert [(ring.number(to.id), ring.number(part)) for to, part in chord.split(ring.key(40))] == [(20, 30), (30, 40)]
    assert [(ring.number(to.id), ring.number(part)) for to, part in chord.split(ring.key(35))] == [(20, 30), (30, 35)]
    assert chord.split(ring.key(20)) == []
    assert chord.split(ring.key(10)) == []


def test_neighbours_are_the_next_nodes_nearest_first() -> None:
    ring = Ring(6)
    still = Still(ring, [peer(ring, number) for number in (10, 20, 30)])
    chord = still.hosts[ring.key(20)].overlay
    assert chord.neighbours(0) == ()
    assert chord.neighbours(1) == (peer(ring, 30),)
    assert chord.neighbours(9) == (peer(ring, 30), peer(ring, 10))
    assert chord.peers() == (peer(ring, 10), peer(ring, 30))
    alone = Still(ring, [peer(ring, 5)]).hosts[NodeId(ring.key(5))].overlay
    assert alone.neighbours(2) == ()
    assert alone.peers() == ()
    assert alone.split(None) == []
