"""Paper E, sections 5.1 and 5.3: the graph keeps itself, by node-join, node-location, and neighbours in reserve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil, log2
from random import Random

import msgspec
import pytest

from meetpoint.api.messages import Message
from meetpoint.schemes.rebeca import RebecaSettings
from meetpoint.schemes.rebeca.discovery import TRIES_MAX
from meetpoint.schemes.rebeca.graph import fingers, following, reserve_count
from meetpoint.schemes.rebeca.messages import (
    FilterQuery,
    FilterUpdate,
    LocateNode,
    NeighbourList,
    NeighbourQuery,
    NodeJoined,
    NodeLocated,
    ranges_of,
)
from tests.node.world import RING
from tests.placement.small_world import free
from tests.schemes.rebeca.small_world import NUMBERS, QUICK, RebecaWorld

SIZE = RING.size
LEASE_S = QUICK.lease_us / 1e6
PERIOD_S = QUICK.period_us / 1e6
ONE = msgspec.structs.replace(QUICK, reserves_per_level=0)
"""One in reserve."""
FEW = msgspec.structs.replace(QUICK, reserves_per_level=0.5)
"""Two in reserve."""
EVEN = list(range(2, 66, 4))
Weather = Callable[[int, int, Message], Iterable[int] | None]


def quiet(numbers: Iterable[int] = NUMBERS, settings: RebecaSettings = QUICK, seed: int = 1) -> RebecaWorld:
    """A network that has come to rest."""
    world = RebecaWorld(numbers, seed=seed, rebeca=settings)
    world.run(3 + LEASE_S)
    return world


def losing(*kinds: type[Message]) -> Weather:
    """Messages of some kinds are lost."""
    return lambda source, to, message: [] if isinstance(message, kinds) else None


def places_of(world: RebecaWorld) -> list[int]:
    return sorted(member.edges.place for _, member in world.parts_of_graph())


def wrong_edges(world: RebecaWorld) -> dict[int, list[int]]:
    """Members whose edges do not lead where Chord's fingers would, and where they lead."""
    places = places_of(world)
    led = {member.edges.place: list(member.edges.graph.nodes) for _, member in world.parts_of_graph()}
    return {place: nodes for place, nodes in led.items() if nodes != fingers(place, places, SIZE)}


def reserves_of(world: RebecaWorld) -> dict[int, list[int]]:
    return {
        member.edges.place: [each.place for each in world.scheme(number).members.targets.reserve(member)]
        for number, member in world.parts_of_graph()
    }


def is_ring(world: RebecaWorld) -> bool:
    """Whether every first edge leads to the next member that is up."""
    places = places_of(world)
    return all(
        member.first == following(member.edges.place, places, 1, SIZE)[0] for _, member in world.parts_of_graph()
    )


def until(world: RebecaWorld, is_so: Callable[[], bool], seconds: float) -> None:
    """Run until something is so, and no longer than that."""
    end = world.now + seconds * 1e6
    while not is_so():
        assert world.now < end, "it does not come about"
        world.run(0.05)


# -- when all is quiet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_who_begins_together_finds_its_edges_whatever_the_ids_are(seed: int) -> None:
    numbers = sorted(Random(seed).sample(range(1, 65), 3 + 5 * seed))
    assert not wrong_edges(quiet(numbers, seed=seed))


@pytest.mark.parametrize("per_level", [0, 0.5, 1, 2])
def test_the_next_ones_clockwise_are_in_reserve(per_level: float) -> None:
    settings = msgspec.structs.replace(QUICK, reserves_per_level=per_level)
    world = quiet(settings=settings)
    count = reserve_count(len(NUMBERS), per_level)
    places = places_of(world)
    assert reserves_of(world) == {place: following(place, places, count, SIZE) for place in places}


@pytest.mark.slow
@pytest.mark.parametrize(("lease_s", "round_s"), [(4.0, 2 * PERIOD_S), (2.4, 0.6), (1.2, PERIOD_S)])
def test_at_rest_nobody_looks_for_anybody_and_an_edge_is_asked_as_seldom_as_leases_allow(
    lease_s: float, round_s: float
) -> None:
    """A lease lasts for as many rounds as there are levels, three here, and a third more; one or two periods each."""
    world = quiet(settings=msgspec.structs.replace(QUICK, lease_us=round(lease_s * 1e6)))
    seen: Counter[type[Message]] = Counter()

    def weather(source: int, to: int, message: Message) -> None:
        for kind in (FilterQuery, FilterUpdate, NeighbourList, NodeJoined, LocateNode, NodeLocated, NeighbourQuery):
            seen[kind] += isinstance(message, kind)

    world.weather = weather
    world.run(5 * LEASE_S)
    edges = sum(len(list(member.edges.graph.nodes)) for _, member in world.parts_of_graph())
    assert {kind for kind, count in seen.items() if count} == {FilterQuery, FilterUpdate}
    rounds = 5 * LEASE_S / round_s
    assert edges * rounds < seen[FilterQuery] < edges * rounds * 1.25, "some rounds are shorter by up to a quarter"
    assert all(rows == () for rows in world.filters_now().values()), "no filter was over meanwhile"


# -- node-join ---------------------------------------------------------------------------------------------------------


class Joins:
    """Who is told of a member that joins, by node-joins that arrive."""

    def __init__(self, world: RebecaWorld, also: Weather = lambda source, to, message: None) -> None:
        self.told: Counter[int] = Counter()
        self.sent = 0
        self._also = also
        world.weather = self._weather

    def _weather(self, source: int, to: int, message: Message) -> Iterable[int] | None:
        delays = self._also(source, to, message)
        if isinstance(message, NodeJoined):
            self.sent += 1
            place, range_ = RING.number(message.to.place), message.range.range(RING)
            targets = ranges_of(RING, message.targets)
            assert range_ is not None
            assert targets is not None
            if range_.holds(place, SIZE) and any(each.holds(place, SIZE) for each in targets):
                self.told[place] += 1 if delays is None else len(list(delays))
        return delays


def lookers(places: list[int], joined: int) -> set[int]:
    """All whose edge a member is to be."""
    return {place for place in places if place != joined and joined in fingers(place, sorted(places), SIZE)}


@pytest.mark.parametrize("joined", [6, 25, 50, 64])
def test_a_node_join_reaches_just_those_whose_edge_the_member_is_to_be(joined: int) -> None:
    """Nobody else looks for anyone meanwhile: it is the notice that does it."""
    world = quiet()
    joins = Joins(
        world, lambda source, to, message: [] if isinstance(message, LocateNode) and source != joined else None
    )
    world.start(joined, contacts=(4, 60))
    until(world, lambda: joined * 1000 in places_of(world) and not wrong_edges(world), LEASE_S)
    world.run(LEASE_S)
    oracle = lookers(places_of(world), 1000 * joined)
    assert joins.told == Counter(oracle)
    assert joins.sent <= 2 * len(oracle) + 2, "and few lie on the way"


@pytest.mark.slow
def test_a_node_join_that_is_lost_is_sent_again_until_nothing_is_left() -> None:
    world = quiet()
    lost = losing(NodeJoined)
    joins = Joins(world, lambda source, to, message: lost(source, to, message) if world.now < end else
                  [] if isinstance(message, LocateNode) and source != 50 else None)  # fmt: skip
    end = world.now + 12 * QUICK.period_us
    world.start(50, contacts=(4, 60))
    world.run(12 * PERIOD_S)
    assert not joins.told
    assert joins.sent >= 2
    world.run(2 ** (TRIES_MAX - 1) * PERIOD_S)
    assert set(joins.told) == lookers(places_of(world), 50_000)
    sent = joins.sent
    world.run(2 ** (TRIES_MAX + 1) * PERIOD_S)
    assert joins.sent == sent, "nothing is left"


def test_what_was_told_is_not_told_again() -> None:
    """One of those that are to hear of it does not: only it is told again."""
    world = quiet()
    deaf = 41
    joins = Joins(world, lambda source, to, message: [] if isinstance(message, NodeJoined) and to == deaf and
                  world.now < end else None)  # fmt: skip
    end = world.now + 8 * QUICK.period_us
    world.start(50, contacts=(4, 60))
    world.run(2 ** (TRIES_MAX - 1) * PERIOD_S)
    oracle = lookers(places_of(world), 50_000)
    assert 1000 * deaf in oracle
    assert joins.told == Counter(oracle)


def test_doubled_and_late_notices_do_no_harm() -> None:
    world = quiet()
    kinds = (NodeJoined, LocateNode, NodeLocated, NeighbourList, NeighbourQuery)
    world.weather = lambda source, to, message: [10_000, 400_000, 1_500_000] if isinstance(message, kinds) else None
    world.start(50, contacts=(4, 60))
    world.run(2)
    world.crash(20)
    world.run(2)
    world.start(24, contacts=(4, 60))
    until(world, lambda: 24_000 in places_of(world) and not wrong_edges(world), 4 * LEASE_S)
    for number in (24, 50):
        world.subscribed(number, f"s{number}", "a = 1", 2 * LEASE_S)
    world.publish(4, "e", a=1)
    world.run(2)
    assert sorted(world.came()) == [("s24", "e"), ("s50", "e")]


def test_who_gets_the_keys_of_another_tells_those_whose_edge_it_is_now() -> None:
    world = quiet()
    joins = Joins(world, losing(LocateNode))
    free(world, 20)
    until(world, lambda: 20_000 not in places_of(world) and not wrong_edges(world), 2 * LEASE_S)
    gained = {place for place in places_of(world) if place != 28_000
              and any(12_000 < (place + (1 << k)) % SIZE <= 20_000 for k in range(RING.bits))}  # fmt: skip
    world.run(4 * PERIOD_S)
    assert set(joins.told) == gained


def test_without_any_notice_edges_show_by_themselves_that_they_are_not_right() -> None:
    """A node-join is lost for good; who has another edge sees where its keys begin, and looks for the right one."""
    world = quiet()
    world.weather = losing(NodeJoined)
    world.start(50, contacts=(4, 60))
    until(world, lambda: 50_000 in places_of(world) and not wrong_edges(world), 2 * LEASE_S)


# -- node-location -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [EVEN, sorted(Random(5).sample(range(1, 66), 16))], ids=["even", "any"])
def test_a_node_location_takes_messages_as_a_tree_has_levels(numbers: Iterable[int]) -> None:
    numbers = [number for number in numbers if number != 33]
    world = quiet(numbers, ONE)
    walks: Counter[bytes] = Counter()
    answers: Counter[bytes] = Counter()

    def weather(source: int, to: int, message: Message) -> None:
        if isinstance(message, LocateNode) and message.origin.address == "n33":
            walks[message.key] += 1
        if isinstance(message, NodeLocated) and to == 33:
            answers[message.key] += 1

    world.weather = weather
    world.start(33, contacts=(numbers[0], numbers[-1]))
    until(world, lambda: 33_000 in places_of(world) and not wrong_edges(world), 2 * LEASE_S)
    assert walks
    assert set(walks) <= set(answers)
    assert max(walks.values()) <= ceil(log2(len(numbers)))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [LocateNode, NodeLocated])
def test_a_node_location_that_is_lost_is_sent_again(lost: type[Message]) -> None:
    world = quiet(EVEN, ONE)
    world.weather = losing(lost, NodeJoined)
    world.start(33, contacts=(2, 62))
    world.run(2 + 4 * PERIOD_S)
    assert 33_000 in wrong_edges(world)
    world.weather = losing(NodeJoined)
    until(world, lambda: not wrong_edges(world), 4 * LEASE_S)


def test_who_looks_for_a_key_of_one_that_is_down_is_told_of_the_next() -> None:
    """Fingers begin at keys of members that are down: edges lead to the next ones that are not."""
    world = quiet()
    for number in (20, 32, 41):
        world.crash(number)
    world.run(2 * LEASE_S)
    world.weather = losing(NodeJoined)
    world.start(32, contacts=(4, 60))
    until(world, lambda: 32_000 in places_of(world) and not wrong_edges(world), 2 * LEASE_S)


def test_a_member_that_knows_nobody_asks_the_overlay() -> None:
    """The next one is down, and nobody asks it either: whoever the overlay leads to knows others."""
    world = quiet()
    for number in (41, 60):
        world.crash(number)
    world.run(2 * LEASE_S)
    asked: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, NeighbourQuery) and source == 41:
            asked.append(RING.number(message.key))
        return [] if isinstance(message, FilterQuery) and to == 41 and not asked else None

    world.weather = weather
    world.start(41, contacts=(4, 8))
    until(world, lambda: 41_000 in places_of(world) and not wrong_edges(world), 2 * LEASE_S)
    assert set(asked) == {41_001}


# -- reserves and repair -----------------------------------------------------------------------------------------------


def test_a_first_edge_that_is_silent_is_followed_by_the_next_in_reserve_that_is_not() -> None:
    """Seven in a row are down; nobody is told of anybody since. All in reserve are asked at once, not one by one."""
    world = quiet(EVEN)
    for number in EVEN[3:10]:
        world.crash(number)
    world.weather = losing(NeighbourList, NodeJoined, LocateNode, NodeLocated, NeighbourQuery)
    until(world, lambda: is_ring(world), LEASE_S)


def failed(world: RebecaWorld, gone: Iterable[int], *lost: type[Message]) -> bool:
    """Some fail at once, and some kinds of messages too; whether the ring is whole a while later."""
    for number in gone:
        world.crash(number)
    world.weather = losing(*lost)
    world.run(3 * LEASE_S)
    return is_ring(world)


@pytest.mark.parametrize("first", range(len(NUMBERS)))
def test_where_all_in_reserve_are_gone_fingers_and_incoming_edges_mend_the_ring(first: int) -> None:
    """Half of the nodes are gone, four in a row. Neither notices nor the overlay help."""
    gone = [NUMBERS[(first + step) % len(NUMBERS)] for step in range(1, 5)]
    world = quiet(settings=FEW)
    lone = reserves_of(world)[1000 * NUMBERS[first]]
    assert {place // 1000 for place in lone} <= set(gone), "its reserve is gone"
    assert failed(world, gone, NodeJoined, LocateNode, NodeLocated, NeighbourQuery)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_ring_is_mended_step_by_step(seed: int) -> None:
    """The nearest that is known knows one that lies between; without being told of that the ring stays cut."""
    numbers = sorted(Random(seed).sample(range(1, 66), 12))
    gone = Random(seed).sample(numbers, 6)
    others = (NodeJoined, LocateNode, NodeLocated, NeighbourQuery)
    assert failed(quiet(numbers, ONE), gone, *others)
    assert not failed(quiet(numbers, ONE), gone, *others, NeighbourList)


@pytest.mark.slow
def test_where_the_graph_has_fallen_apart_the_overlay_brings_its_parts_together() -> None:
    """Two in a row know only each other, and so do the others."""
    numbers = sorted(Random(3).sample(range(1, 66), 12))
    gone = Random(3).sample(numbers, 6)
    world = quiet(numbers, ONE)
    assert not failed(world, gone, NeighbourQuery)
    world.weather = losing()
    until(world, lambda: not wrong_edges(world), 4 * LEASE_S)


def test_reserves_are_as_they_should_be_again_when_some_have_failed_and_when_they_are_back() -> None:
    world = quiet()
    for number in (12, 32):
        world.crash(number)
    world.run(3 * LEASE_S)
    places, count = places_of(world), reserve_count(len(NUMBERS))
    assert len(places) == 6
    assert reserves_of(world) == {place: following(place, places, count, SIZE) for place in places}
    for number in (12, 32):
        world.start(number, contacts=(4, 8))
    world.run(3 * LEASE_S)
    places = places_of(world)
    assert len(places) == 8
    assert reserves_of(world) == {place: following(place, places, count, SIZE) for place in places}
    assert not wrong_edges(world)


def test_two_halves_that_were_apart_find_each_other_again() -> None:
    world = quiet()
    world.cut_off(4, 12, 28, 41)
    world.run(4 * LEASE_S)
    assert not is_ring(world)
    for _, member in world.parts_of_graph():
        side = (4, 12, 28, 41) if member.edges.place // 1000 in (4, 12, 28, 41) else (8, 20, 32, 60)
        assert {place // 1000 for place in member.edges.graph.nodes} <= set(side)
    world.heal()
    until(world, lambda: not wrong_edges(world), 6 * LEASE_S)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_rows_are_merged_by_what_events_are_like_now() -> None:
    """Before any event nothing is merged imperfectly; when there were some, and all are others, by those."""
    world = quiet((4, 20, 41), msgspec.structs.replace(QUICK, strategy="imperfect"))
    world.subscribed(20, "s", "(a = 1 AND b = 1) OR (a = 2 AND b = 2)", 2 * LEASE_S)
    assert len(world.filters_now()[4000, 20_000]) == 2
    for number in range(600):
        world.publish(20, f"e{number}", a=1 + number % 2, b=1 + number % 2)
        world.run(0.01)
    world.run(LEASE_S)
    assert len(world.filters_now()[4000, 20_000]) == 1
    for number in range(600):
        world.publish(20, f"f{number}", a=1 + number % 2, b=2 - number % 2)
        world.run(0.01)
    world.run(LEASE_S)
    assert len(world.filters_now()[4000, 20_000]) == 2
