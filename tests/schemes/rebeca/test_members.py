"""Filters between nodes: what is told, when a subscription is acknowledged, and what an event then takes."""

from __future__ import annotations

from collections import Counter

import pytest

from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Subscribe, Unsubscribe
from meetpoint.language import parse_filter
from meetpoint.placement.entries.placement import RETAIN_US
from meetpoint.placement.messages import DeliverToHome, KeyedRequest
from meetpoint.schemes.rebeca.contacts import MISSED_MAX
from meetpoint.schemes.rebeca.graph import Range, fingers
from meetpoint.schemes.rebeca.invariant import not_kept, not_told
from meetpoint.schemes.rebeca.messages import (
    FilterAck,
    FilterQuery,
    FilterUpdate,
    ForwardEvent,
    MatchRange,
    PackedRange,
)
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.tables import ALL
from tests.node.world import RING
from tests.placement.small_world import CODEC, free, home
from tests.schemes.rebeca.small_world import NUMBERS, QUICK, RebecaWorld

LEASE_S = QUICK.lease_us / 1e6
PLACES = [1000 * number for number in NUMBERS]


def quiet(seconds: float = 3) -> RebecaWorld:
    """A network that has come to rest."""
    world = RebecaWorld()
    world.run(seconds)
    return world


# -- when all is quiet -------------------------------------------------------------------------------------------------


def test_edges_lead_where_chords_fingers_do_and_their_filters_are_of_all_that_is_wanted() -> None:
    world = quiet()
    for number, text in ((8, "a > 10"), (28, "a > 20"), (60, "b = 1"), (60, "a < 0 AND b = 2")):
        world.subscribed(number, f"s{number}{text}", text)
    world.run(1)
    members = {member.edges.place: member.edges for _, member in world.parts_of_graph()}
    assert sorted(members) == PLACES
    for place, edges in members.items():
        assert list(edges.graph.nodes) == fingers(place, PLACES, RING.size)
        assert not_told(edges, world.now) is None
        assert not edges.graph.split(edges.graph.own._replace(length=RING.size)).left
    filters = world.filters_now()
    assert not_kept(members, lambda u, v: filters[u, v]) is None
    assert parse_filter("a > 10").conjunctions[0] in filters[4000, 8000]
    assert all(rows != ALL for rows in filters.values())


def test_what_goes_leaves_every_filter_empty() -> None:
    world = quiet()
    for number in (8, 28, 60):
        world.subscribed(number, f"s{number}", f"a > {number} OR b = {number}")
    assert any(world.filters_now().values())
    for number in (8, 28, 60):
        world.ask(number, Unsubscribe(f"s{number}"))
    world.run(RETAIN_US / 1e6 + 5)
    assert set(world.filters_now().values()) == {()}


def test_an_event_goes_only_where_it_is_wanted_and_nowhere_twice() -> None:
    world = quiet()
    for number in (12, 41):
        world.subscribed(number, f"s{number}", "a = 1")
    for at, number in enumerate(NUMBERS):
        world.handed.clear()
        world.publish(number, f"e{number}", a=1)
        world.publish(number, f"n{number}", a=2)
        world.run(1)
        assert sorted(world.came()[2 * at :]) == [("s12", f"e{number}"), ("s41", f"e{number}")]
        to = Counter(to for _, to, _ in world.handed)
        assert set(to.values()) <= {1}
        assert number not in to
        assert len(to) <= 5, "not to all"
    assert world.observed.get("rebeca_left", 0) == world.observed.get("event_again", 0) == 0


def test_what_all_want_comes_to_each_once() -> None:
    world = quiet()
    for number in NUMBERS:
        world.subscribed(number, f"s{number}", "a = 1", 1)
    world.publish(20, "e", a=1)
    world.run(1)
    assert sorted(to for _, to, _ in world.handed) == [number for number in NUMBERS if number != 20]
    assert sorted(world.came()) == sorted((f"s{number}", "e") for number in NUMBERS)


# -- when a subscription is acknowledged -------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [FilterUpdate, FilterAck])
def test_a_subscription_waits_for_whoever_does_not_know_of_it_and_not_longer_than_a_lease(lost: type[Message]) -> None:
    """Who lost what it was told publishes as soon as the subscription is acknowledged: its filter is over by then."""
    world = quiet()
    world.weather = lambda source, to, message: [] if isinstance(message, lost) and 60 in (source, to) else None
    request = world.ask(4, Subscribe("s", "a = 1"))
    began = world.now
    while request not in world.answers:
        world.run(0.01)
        assert world.now - began < 2 * QUICK.lease_us
    assert world.answers[request] == Stored()
    assert world.now - began > QUICK.lease_us // 2
    world.publish(60, "e", a=1)
    world.run(3)
    assert world.came() == [("s", "e")]


def test_a_subscription_is_soon_acknowledged_where_all_answer() -> None:
    world = quiet()
    world.subscribed(41, "s", "a = 1", 0.6)


def test_who_is_told_by_one_that_no_edge_leads_to_any_more_says_that_it_knows() -> None:
    """Its edge led there before: it relies on nothing of that, and nobody need wait for a lease to end."""
    world = quiet()
    member = next(member for number, member in world.parts_of_graph() if number == 8)
    assert 60_000 not in member.edges.graph.nodes
    known: list[FilterAck] = []

    def weather(source: int, to: int, message: Message) -> None:
        if isinstance(message, FilterAck) and (source, to) == (8, 60):
            known.append(message)

    world.weather = weather
    teller, whole = Named(home(60), home(60), 7), PackedRange.of(RING, Range(0, RING.size))
    world.say(8, FilterUpdate(member.name, teller, 5, whole, ("a = 1",), world.now, 1, True))
    world.run(1)
    assert known == [FilterAck(teller, member.name, 5)]
    assert not member.edges.since(60_000)


def test_after_a_restart_a_subscription_waits_for_what_may_have_been_told() -> None:
    world = quiet()
    world.crash(20)
    world.run(0.5)
    world.start(20, contacts=(4, 8))
    world.run(1.5)
    request = world.ask(20, Subscribe("s", "a = 1"))
    world.run(1)
    assert request not in world.answers
    world.run(LEASE_S)
    assert world.answers[request] == Stored()
    world.publish(60, "e", a=1)
    world.run(2)
    assert world.came() == [("s", "e")]


def test_who_joins_waits_for_what_its_giver_told_and_has_its_keys() -> None:
    world = quiet()
    world.start(50, contacts=(4, 60))
    joined = None
    while joined is None:
        world.run(0.05)
        joined = next((member for _, member in world.parts_of_graph() if member.edges.place == 50_000), None)
    assert joined.edges.ready_at - world.now > QUICK.lease_us // 2
    world.run(2 * LEASE_S)
    world.subscribed(50, "s", "a = 1", 2)
    world.publish(41, "e", a=1)
    world.run(1)
    assert world.came() == [("s", "e")]
    assert world.observed.get("rebeca_left", 0) == 0


# -- when something is lost --------------------------------------------------------------------------------------------


def test_what_the_graph_leaves_is_brought_by_errands() -> None:
    world = quiet()
    for number in (8, 32, 41):
        world.subscribed(number, f"s{number}", "a = 1")
    served = []

    def weather(source: int, to: int, message: Message) -> list[int] | None:
        if isinstance(message, KeyedRequest) and isinstance(CODEC.decode(message.body), MatchRange):
            served.append(to)
        return [] if isinstance(message, ForwardEvent) and to in (32, 41) else None

    world.weather = weather
    world.publish(4, "e", a=1)
    world.run(4)
    assert sorted(world.came()) == [("s32", "e"), ("s41", "e"), ("s8", "e")]
    assert {32, 41} <= set(served)
    assert world.observed["rebeca_left"] > 0


def test_an_event_is_not_settled_before_every_key_was_answered_for() -> None:
    world = quiet()
    world.subscribed(32, "s", "a = 1")
    world.crash(32)
    world.publish(4, "e", a=1)
    world.run(20)
    assert world.came() == []
    outbox = next(iter(world.nodes[4].home_manager.homes.values())).outbox
    assert len(outbox)
    world.start(32, contacts=(4, 8))
    world.run(20)
    assert world.came() == [("s", "e")]
    assert not len(outbox)


def test_edges_lead_past_one_that_is_silent_until_it_is_back() -> None:
    world = quiet()
    world.subscribed(8, "s", "a = 1")
    world.crash(28)
    world.run(LEASE_S / 2 + MISSED_MAX * QUICK.period_us / 1e6)
    left = [place for _, member in world.parts_of_graph() for place in member.edges.graph.nodes]
    assert 28_000 not in left
    world.handed.clear()
    world.publish(20, "e", a=1)
    world.run(1)
    assert world.came() == [("s", "e")]
    assert 28 not in {to for _, to, _ in world.handed}
    world.start(28, contacts=(4, 8))
    world.run(3)
    assert 28_000 in [place for _, member in world.parts_of_graph() for place in member.edges.graph.nodes]


def test_a_home_that_gives_its_keys_away_is_answered_for_by_who_has_them() -> None:
    """As where places do not follow from ids: its entries lie at another home."""
    world = quiet()
    world.subscribed(20, "s", "a = 1")
    free(world, 20)
    world.run(3 * LEASE_S)
    assert 20_000 not in {member.edges.place for _, member in world.parts_of_graph()}
    world.subscribed(20, "t", "a = 1 OR a = 2", 2)
    for at, number in enumerate((4, 20, 28)):
        world.handed.clear()
        world.publish(number, f"e{at}", a=1)
        world.run(2)
        assert sorted(world.came()[2 * at :]) == [("s", f"e{at}"), ("t", f"e{at}")]


def test_what_waits_at_a_home_that_gives_it_away_is_not_acknowledged_for_that() -> None:
    world = quiet()
    free(world, 20)
    world.run(3 * LEASE_S)
    world.weather = lambda source, to, message: [] if isinstance(message, FilterUpdate) and to in (12, 60) else None
    request, began = world.ask(20, Subscribe("s", "a = 1")), world.now
    world.run(0.3)
    free(world, 28)
    while request not in world.answers:
        world.run(0.05)
    assert world.now - began > QUICK.lease_us // 2
    for number in (12, 60):
        world.publish(number, f"e{number}", a=1)
    world.run(3)
    assert sorted(world.came()) == [("s", "e12"), ("s", "e60")]


def test_a_late_question_of_a_former_life_does_no_harm() -> None:
    """Messages of a node that has restarted meanwhile come after those of its next life."""
    world = quiet()

    def weather(source: int, to: int, message: Message) -> list[int] | None:
        if isinstance(message, FilterQuery | FilterUpdate | FilterAck) and 20 in (source, to):
            return [30_000, 2_500_000]
        return None

    world.weather = weather
    world.subscribed(28, "s", "a = 1")
    world.crash(20)
    world.run(0.2)
    world.start(20, contacts=(4, 8))
    world.run(1.5)
    request = world.ask(20, Subscribe("t", "a = 2"))
    world.run(2.5 * LEASE_S)
    assert world.answers[request] == Stored()
    for at, number in enumerate(NUMBERS):
        world.publish(number, f"e{at}", a=1 + at % 2)
        world.run(2)
    assert sorted(event for _, event in world.came()) == [f"e{at}" for at in range(len(NUMBERS))]


def test_one_that_is_back_with_a_clock_that_is_behind_is_heard() -> None:
    """Its numbers are lower than those of its former life, which count no more."""
    world = quiet()
    world.subscribed(20, "s", "a = 1")
    world.crash(20)
    world.rates[20] = 0.2
    world.start(20, contacts=(4, 8))
    world.run(2 * LEASE_S)
    filters = world.filters_now()
    to = [rows for (_, place), rows in filters.items() if place == 20_000]
    assert to
    assert ALL not in to


def test_a_home_that_is_slow_is_left_to_the_events_origin() -> None:
    """Its entries lie elsewhere: whoever holds them does not wait, and says who has not got the event."""
    world = quiet()
    world.subscribed(20, "s", "a = 1")
    free(world, 20)
    world.run(3 * LEASE_S)
    brings: list[int] = []

    def weather(source: int, to: int, message: Message) -> list[int] | None:
        if isinstance(message, DeliverToHome):
            brings.append(source)
            return [] if source == 28 else None
        return None

    world.weather = weather
    world.publish(8, "e", a=1)
    world.run(3)
    assert world.came() == [("s", "e")]
    assert brings[-1] == 8
    assert world.observed["rebeca_homes_left"] == 1
    assert world.observed.get("event_again", 0) == 0
