"""Publishers of batches: what was accepted is accepted once, however long ago, and after every crash."""

from __future__ import annotations

import pytest

from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Leave, Publish, Subscribe
from meetpoint.node.home.dedup import PUBLISHERS_MAX, is_of_batches
from meetpoint.node.runtime.inputs import Withdrawn
from tests.node.world import World

LATER_S = 3600.0
"""Long after ids of events are forgotten."""


def subscribed(world: World) -> None:
    world.run(1)
    request = world.ask(1, Subscribe("s", "price > 1"))
    world.run(2)
    assert world.answers[request] == Stored()


def send(world: World, *sequences: int, publisher: str = "batch/q", number: int = 2) -> list[object]:
    asked = [world.publish_as(publisher, each, number, f"{publisher}/{each}", price=3) for each in sequences]
    world.run(2)
    return [world.answers.get(each) for each in asked]


@pytest.mark.parametrize(
    ("name", "is_one"), [("batch/q", True), ("@acme/ann/batch/q", True), ("mybatch/q", False), ("q", False)]
)
def test_whose_name_says_so(name: str, is_one: bool) -> None:
    assert is_of_batches(name) is is_one


def test_what_was_accepted_is_answered_and_carried_no_second_time() -> None:
    world = World(3)
    subscribed(world)
    assert all(isinstance(each, Published) for each in send(world, 1, 2, 3))
    world.run(LATER_S)
    assert all(isinstance(each, Published) for each in send(world, 2, 3, 4))
    assert [event for _, event, _ in world.notified] == [f"batch/q/{each}" for each in (1, 2, 3, 4)]
    assert [world.nodes[each].progress("batch/q") for each in (1, 2, 3)] == [0, 4, 0]
    send(world, 1, publisher="other")
    world.run(LATER_S)
    send(world, 1, publisher="other")
    assert [event for _, event, _ in world.notified][4:] == ["other/1", "other/1"], (
        "others are known by their ids alone"
    )


def test_a_broker_that_crashed_knows_it_again() -> None:
    world = World(3)
    subscribed(world)
    send(world, 1, 2, 3)
    world.crash(2)
    world.run(1)
    world.start(2, contacts=(1, 3))
    world.run(30)
    assert world.nodes[2].progress("batch/q") == 3
    world.run(LATER_S)
    send(world, 3, 4)
    assert [event for _, event, _ in world.notified] == [f"batch/q/{each}" for each in (1, 2, 3, 4)]


def test_what_was_taken_back_is_accepted_when_it_comes_again() -> None:
    world = World(3)
    subscribed(world)
    send(world, 1)
    asked = [world.publish_as("batch/q", each, 2, f"batch/q/{each}", price=3) for each in (2, 3)]
    for each in asked:
        world._handle(2, world.nodes[2], Withdrawn(each))
    again = world.publish_as("batch/q", 2, 2, "batch/q/2", price=3)
    world.run(2)
    assert world.answers[again] == Refused("it was refused before; publish it again", retry=True)
    assert world.nodes[2].progress("batch/q") == 1
    world.run(LATER_S)
    assert all(isinstance(each, Published) for each in send(world, 2, 3))
    assert [event for _, event, _ in world.notified] == [f"batch/q/{each}" for each in (1, 2, 3)]


def test_so_many_publishers_are_remembered_and_no_more() -> None:
    world = World(1)
    world.run(1)
    for each in range(PUBLISHERS_MAX + 5):
        send(world, 7, publisher=f"batch/{each}", number=1)
    node = world.nodes[1]
    known = [each for each in range(PUBLISHERS_MAX + 5) if node.progress(f"batch/{each}")]
    assert known == list(range(5, PUBLISHERS_MAX + 5))
    assert sum(name.startswith("progress/") for _, name in world.disks[1]) == PUBLISHERS_MAX


def test_events_without_a_name_are_none_of_batches() -> None:
    world = World(1)
    world.run(1)
    outcome = world.answers.get(world.ask(1, Publish(b"no event")))
    assert isinstance(outcome, Refused)


def test_a_home_whose_broker_left_stays_as_long_as_a_publisher_of_batches_may_ask() -> None:
    world = World(3)
    world.run(1)
    send(world, 1, 2, 3)
    world.ask(2, Leave())
    world.run(60)
    assert 2 not in world.nodes
    world.run(600)
    assert max(node.progress("batch/q") for node in world.nodes.values()) == 3
