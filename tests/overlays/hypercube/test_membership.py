"""Places: those of founders, joiners, nodes that come back, standbys, and both sides of a torn network."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Span
from meetpoint.overlays.hypercube import HypercubeSettings, Region
from meetpoint.overlays.hypercube.invariant import gap, not_hosted_once
from meetpoint.overlays.hypercube.messages import (
    Heartbeat,
    HostedRegion,
    HostSearch,
    HypercubeLeaving,
    NeighbourRegion,
    Offer,
    RegionReserved,
)
from meetpoint.overlays.hypercube.regions import are_neighbours, key_of, packed, span_of
from tests.overlays.hypercube.driving import QUICK, Host, Text, World, drawn, peer


def begun(count: int, seed: int = 1, dimensions: int = 8, **more: Any) -> World:
    world = World(seed=seed, dimensions=dimensions, **more)
    world.found(drawn(world.ring, count, seed))
    world.run(3)
    assert world.departures() is None
    world.watched = True
    return world


def regions(world: World) -> dict[bytes, list[Region]]:
    return {node: [region for region, _ in view.pieces] for node, view in world.members().items()}


def again(me: Peer) -> Peer:
    return Peer(me.id, me.address, me.incarnation + 1)


# -- founding and joining ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 8, 11])
def test_founders_have_their_places_at_once(count: int) -> None:
    world = World(dimensions=3)
    hosts = world.found(drawn(world.ring, count, count))
    assert world.departures() is None or count > 8, "who stands by has yet to tell its sponsor"
    assert all(host.joins == 1 for host in hosts)
    world.run(2)
    assert world.departures() is None
    assert sum(bool(view.pieces) for view in world.members().values()) == min(count, 8)
    places = hosts[0].overlay.places
    assert places is not None
    spans = places.founding([host.runtime.me.id for host in hosts])
    for host in hosts:
        mine = host.overlay.places.mine() if host.overlay.places is not None else None
        assert mine == ((spans[host.runtime.me.id],) if host.runtime.me.id in spans else ())


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_many_join_one_at_once(loss: float) -> None:
    world = World(seed=3, settings=QUICK, dimensions=10, loss=loss, detector=False, packed=True)
    peers = drawn(world.ring, 24, 3)
    world.found(peers[:1])
    for each in peers[1:]:
        world.join(each, peers[0])
    world.heal(60)
    assert gap(world.members()) <= 2


def test_a_joiner_that_dies_before_it_claims_takes_nothing_with_it() -> None:
    world = begun(4, settings=QUICK)
    late = peer(world.ring, 77)
    world.join(late, next(iter(world.hosts.values())).runtime.me)
    world.run_until(lambda: world.sent["Offer"] > 0, 5, 0.005)
    world.crash(late.id)
    assert world.departures() is None
    world.run(5)
    assert world.departures() is None


def test_what_one_says_once_a_second_is_one_message_for_each_link() -> None:
    world = begun(16)
    world.sent.clear()
    world.run(20)
    links = sum(len(view.links) for view in world.members().values())
    assert set(world.sent) == {"Heartbeat"}
    assert world.sent["Heartbeat"] == pytest.approx(20 * links, rel=0.1)


# -- coming back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [True, False])
@pytest.mark.parametrize("down", [0.3, 2.0, 4.0, 20.0])
def test_a_node_that_restarts_has_its_region_back(down: float, detector: bool) -> None:
    world = begun(11, seed=int(down * 10), detector=detector)
    chance = random.Random(down)
    for _ in range(3):
        before = regions(world)
        me = world.hosts[chance.choice(sorted(world.hosts))].runtime.me
        world.crash(me.id)
        world.run(down)
        world.join(again(me), world.hosts[chance.choice(sorted(world.hosts))].runtime.me)
        world.heal(20)
        assert regions(world) == before, "nothing has moved"


def test_a_region_that_nobody_came_back_for_becomes_others() -> None:
    world = begun(11, settings=QUICK)
    before = regions(world)
    gone = max(before, key=lambda node: before[node])
    world.crash(gone)
    world.run(4)
    assert any(view.reserved_for for view in world.members().values()), "kept for it"
    world.run_until(lambda: world.departures() is None, 60)
    assert not any(view.reserved_for for view in world.members().values())


def test_a_node_that_leaves_keeps_nothing() -> None:
    world = begun(11)
    world.leave(sorted(world.hosts)[4])
    world.run(0.5)
    assert not any(view.reserved_for for view in world.members().values())
    world.heal(20)


def test_an_old_word_does_not_bring_back_what_was_given_away() -> None:
    world = begun(4, settings=QUICK)
    old: list[tuple[Host, Peer, Message]] = []
    send = world._send

    def keep(host: Host, to: Peer, message: Message) -> None:
        old.append((host, to, message))
        send(host, to, message)

    world._send = keep  # type: ignore[method-assign]
    world.run(2)
    world._send = send  # type: ignore[method-assign]
    for number in range(5):
        world.join(peer(world.ring, 1000 + number), world.hosts[sorted(world.hosts)[0]].runtime.me)
    world.heal(20)
    before = regions(world)
    for host, to, message in old:
        if to.id in world.hosts:
            world.step(world.hosts[to.id], lambda h=host, t=to, m=message: world.hosts[t.id].receive(h.runtime.me, m))  # type: ignore[misc]
    world.run(3)
    assert world.departures() is None
    assert regions(world) == before
    assert world.broken == []


@pytest.mark.parametrize("detector", [True, False])
def test_two_halves_that_die_together_have_a_host_again_soon(detector: bool) -> None:
    world = begun(16, detector=detector)
    one = sorted(world.hosts)[6]
    (region,) = regions(world)[one]
    other = next(node for node, some in regions(world).items() if some == [region.sibling])
    world.crash(one)
    world.crash(other)

    def hosted() -> bool:
        return not_hosted_once((each for some in regions(world).values() for each in some), 8) is None

    assert world.run_until(hosted, 20) <= (5 if detector else 10)


# -- standing by -------------------------------------------------------------------------------------------------------


def test_one_who_stands_by_routes_through_its_sponsor_and_hosts_what_needs_a_host() -> None:
    world = begun(6, dimensions=2, settings=QUICK)
    standbys = [node for node, view in world.members().items() if not view.pieces]
    assert len(standbys) == 2
    for point in range(4):
        key = key_of(world.ring, point, 2)
        found, hops = world.lookup(world.hosts[standbys[0]], key)
        assert found is not None
        assert found.id == world.owner(key)
        assert 1 <= hops <= 3
    gone = [node for node, view in world.members().items() if view.pieces][:2]
    for node in gone:
        world.crash(node)
    world.run_until(lambda: all(world.members()[node].pieces for node in standbys), 60)
    world.heal(10)
    assert {len(some) for some in regions(world).values()} == {1}, "four regions, four nodes"


def test_those_who_stood_by_go_on_when_nobody_else_is_left() -> None:
    world = begun(5, dimensions=1, settings=QUICK)
    world.watched = False
    for node in [node for node, view in world.members().items() if view.pieces]:
        world.crash(node)
    world.heal(90)
    assert len(world.hosts) == 3
    assert gap(world.members()) == 0


def test_one_whose_sponsor_goes_at_once_finds_another() -> None:
    world = World(dimensions=2, settings=QUICK)
    world.found(drawn(world.ring, 5, 1))
    (standby,) = (view for view in world.members().values() if not view.pieces)
    assert standby.sponsor is not None
    world.leave(standby.sponsor)
    assert world.heal(30) < 8
    assert world.observed["hypercube_begun_anew"] == 0


def test_a_join_is_refused_only_where_as_many_stand_by_as_may() -> None:
    world = begun(2 + 32, dimensions=1, settings=QUICK)
    late = world.join(peer(world.ring, 5), next(iter(world.hosts.values())).runtime.me)
    world.run(5)
    assert world.sent["JoinRefused"] > 0
    assert not late.overlay.view().joined
    world.leave(sorted(node for node, view in world.members().items() if not view.pieces)[0])
    world.heal(30)


# -- torn networks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [6, 25, 70])
def test_a_torn_network_gives_regions_back_while_they_are_kept(seconds: int) -> None:
    world = begun(12, seed=seconds, detector=False)
    before = regions(world)
    world.sides = {node: at % 2 for at, node in enumerate(sorted(world.hosts))}
    world.run(seconds)
    world.sides = {}
    world.heal(60)
    if seconds < 30:
        assert regions(world) == before
    assert world.broken == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_parts_that_grew_apart_become_one(seed: int) -> None:
    world = begun(16, seed=seed, settings=QUICK, detector=False)
    chance = random.Random(seed)
    peers = drawn(world.ring, 30, seed + 100)
    world.sides = {node: chance.randrange(3) for node in sorted(world.hosts)}
    world.run(10)
    for number, each in enumerate(peers[:9]):
        contact = chance.choice(sorted(node for node in world.hosts if world.sides[node] == number % 3))
        world.sides[each.id] = number % 3
        world.join(each, world.hosts[contact].runtime.me)
        world.run(3)
    world.sides = {}
    world.heal(60)
    assert world.broken == []


# -- peers and keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "dimensions"), [(1, 4), (2, 4), (7, 4), (16, 4), (21, 4), (23, 8)])
def test_a_broadcast_reaches_everyone_exactly_once(count: int, dimensions: int) -> None:
    world = begun(count, dimensions=dimensions)
    for origin in sorted(world.hosts):
        reached: list[bytes] = []
        ahead: list[tuple[bytes, bytes | None]] = [(origin, None)]
        while ahead:
            node, scope = ahead.pop()
            reached.append(node)
            ahead += [(to.id, part) for to, part in world.hosts[node].overlay.split(scope)]
        assert sorted(reached) == sorted(world.hosts)


def test_copies_belong_to_siblings_first_and_never_here() -> None:
    world = begun(21, dimensions=4)
    for node, host in world.hosts.items():
        near = [each.id for each in host.overlay.neighbours(9)]
        assert node not in near
        assert len(set(near)) == len(near) > 1
        assert host.overlay.neighbours(1) == host.overlay.neighbours(9)[:1]
        for mine in regions(world)[node]:
            (sibling,) = regions(world)[near[0]]
            assert mine.sibling.holds(sibling) or sibling.holds(mine.sibling)
            assert are_neighbours(mine, sibling)


def test_a_key_is_found_with_the_region_around_it() -> None:
    world = begun(13)
    start = world.hosts[sorted(world.hosts)[5]]
    places = start.overlay.places
    assert places is not None
    answers: list[tuple[Peer | None, Span | None]] = []

    def take(found: Peer | None, span: Span | None) -> None:
        answers.append((found, span))

    for point in range(0, 256, 9):
        key = key_of(world.ring, point, 8)
        world.step(start, lambda k=key: places.host_of(k, take))  # type: ignore[misc]
        world.run(1)
        found, span = answers[-1]
        assert found is not None
        (region,) = regions(world)[found.id]
        assert span == span_of(world.ring, region)
        assert span.first <= key <= span.last


def test_messages_are_routed_to_the_host_of_their_key() -> None:
    world = begun(13)
    for at, node in enumerate(sorted(world.hosts)):
        key = key_of(world.ring, 19 * at % 256, 8)
        host = world.hosts[node]
        world.step(host, lambda h=host, k=key: h.overlay.route(k, Text("hello")))  # type: ignore[misc]
        world.run(1)
        ((got, body, origin, _),) = world.hosts[world.owner(key)].delivered_here[-1:]
        assert (got, body, origin.id) == (key, Text("hello"), node)


# -- strangers ---------------------------------------------------------------------------------------------------------


def test_nothing_that_a_stranger_says_lasts() -> None:
    world = begun(9, settings=QUICK, dimensions=6)
    chance = random.Random(4)
    stranger = peer(world.ring, 4242)
    link = NeighbourRegion(packed(Region(1, 1)), 7, stranger)
    lies: list[Message] = [
        Heartbeat((9, 9), 99, 0, (HostedRegion(packed(Region(0, 0)), 1 << 40),), links=(link,)),
        Heartbeat(
            (9, 9),
            100,
            0,
            (HostedRegion(packed(Region(2, 3)), 50), HostedRegion(packed(Region(1, 1)), 50)),
            standby_count=9,
        ),
        Heartbeat((9, 9), 101, 0, (), sponsor=world.hosts[sorted(world.hosts)[0]].runtime.me.id),
        Heartbeat((9, 9), 102, 0, (HostedRegion(b"what", 3),)),
        Heartbeat((9, 9), 103, 0, (HostedRegion(packed(Region(1, 2)), 1 << 63),)),
        Heartbeat((9, 9), 104, 0, (HostedRegion(packed(Region(1, 2)), 3, b"nobody"),)),
        Offer((0, 0), packed(Region(3, 2)), 60, (link,)),
        HostSearch(stranger, packed(Region(5, 3)), 60, (link,), packed(Region(1, 3)), 0, True),
        HostSearch(stranger, packed(Region(0, 0)), 60, (link,), packed(Region(0, 0)), 0, True),
        RegionReserved(b"short", stranger, 0),
        HypercubeLeaving((3, 3)),
    ]
    for _ in range(60):
        host = world.hosts[chance.choice(sorted(world.hosts))]
        lie = chance.choice(lies)
        world.step(host, lambda h=host, m=lie: h.receive(stranger, m))  # type: ignore[misc]
        world.run(0.2)
    assert world.observed["hypercube_malformed"] > 10
    world.heal(90)
    assert world.broken == []


def test_settings_that_will_not_do_are_named() -> None:
    with pytest.raises(AssertionError, match="time to speak"):
        HypercubeSettings(silent_us=1)
    with pytest.raises(AssertionError, match="no more than a key"):
        World(dimensions=300).start(peer(World().ring, 1))
