"""Nodes whose disk is full, in a small world: they take nothing for a while, and lose nothing."""

from __future__ import annotations

import pytest

from meetpoint.api.limits import SECOND_US
from meetpoint.api.outcomes import Published, Stored
from meetpoint.api.requests import Subscribe, SubscriptionOptions
from tests.node.world import World

HOUR_US = 3600 * SECOND_US


def subscribed(world: World, number: int, name: str) -> None:
    request = world.ask(number, Subscribe(name, "price > 1", SubscriptionOptions()))
    world.run(2)
    assert world.answers.get(request) == Stored()


def came(world: World, name: str) -> list[str]:
    return [event for each, event, again in world.notified if each == name and not again]


def test_what_is_brought_again_to_a_full_disk_makes_no_write_each_time() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 3, "full")
    world.full.add(3)
    for sequence in range(20):
        world.publish_as("p", sequence, 1, f"e{sequence}", price=3)
    world.run(2)
    before = world.writes[3]
    world.run(120)
    assert world.writes[3] - before < 20 * 20
    world.full.clear()
    world.run(20)
    assert came(world, "full") == [f"e{sequence}" for sequence in range(20)]
    assert all(not node.snapshot().outbox for node in world.nodes.values()), "who brought it again was told in the end"


def test_an_event_that_was_taken_back_is_never_published_and_may_be_brought_again() -> None:
    world = World(1)
    world.run(1)
    subscribed(world, 1, "s")
    world.full.add(1)
    request = world.publish(1, "e", price=3)
    world.run(5)
    assert request not in world.answers
    world.withdraw(1, request)
    world.full.clear()
    world.run(300)
    assert came(world, "s") == []
    assert world.nodes[1].snapshot().outbox == 0
    assert world.observed["event_withdrawn"] == 1
    world.crash(1)
    world.start(1)
    world.run(10)
    again = world.publish(1, "e", price=3)
    world.run(3)
    assert isinstance(world.answers[again], Published)
    assert came(world, "s") == ["e"]


def test_only_the_event_that_was_taken_back_is_not_published() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    world.full.add(1)
    requests = [world.publish_as("p", sequence, 1, f"e{sequence}", price=3) for sequence in range(3)]
    world.withdraw(1, requests[1])
    world.full.clear()
    world.run(5)
    assert came(world, "s") == ["e0", "e2"]


def test_an_event_that_was_taken_back_while_it_waited_for_others_is_never_published() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 3, "s")
    first = world.publish_as("p", 1, 1, "e1", price=3)
    world.run(3)
    answer = world.answers[first]
    assert isinstance(answer, Published)
    world.cut_off(1)
    second = world.publish_as("p", 2, 2, "e2", answer.event, price=3)
    world.run(3)
    world.withdraw(2, second)
    world.heal()
    world.run(60)
    assert came(world, "s") == ["e1"]
    assert second not in world.answers
    assert world.observed["event_withdrawn"] == 1


@pytest.mark.parametrize("by_us", [HOUR_US, -HOUR_US])
def test_a_repeat_is_known_although_the_clock_was_set_between_two_lives(by_us: int) -> None:
    world = World(1)
    world.run(4000)
    subscribed(world, 1, "s")
    world.publish(1, "e", price=3)
    world.run(1)
    assert came(world, "s") == ["e"]
    world.crash(1)
    world.run(60)  # for what was under way
    world.now += by_us
    world.start(1)
    world.run(10)
    world.publish(1, "e", price=3)
    world.run(3)
    assert came(world, "s") == ["e"]
    assert world.observed["event_repeated"] == 1
