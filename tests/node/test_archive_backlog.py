"""What is accepted is told in the order of its numbers, and kept until it is archived."""

from __future__ import annotations

from meetpoint.api.ids import EventKey
from meetpoint.api.requests import Subscribe
from meetpoint.node.runtime.effects import Accepted
from meetpoint.node.runtime.inputs import Archived, Withdrawn
from tests.node.world import World


def published(world: World, number: int) -> list[str]:
    return sorted(name for _, name in world.disks[number] if name.startswith("published/"))


def archive(world: World, number: int, upto: EventKey) -> None:
    world._handle(number, world.nodes[number], Archived(upto))
    world.run(2)


def told(world: World, number: int = 1) -> list[int]:
    return [each.event.number for at, each in world.accepted if at == number]


def test_an_event_stays_until_it_is_settled_and_archived() -> None:
    world = World(2, archives=True)
    world.run(1)
    world.ask(2, Subscribe("s", "price > 1"))
    world.run(2)
    for each in range(4):
        world.publish(1, f"e{each}", price=3)
    world.run(5)
    assert len(world.notified) == 4, "all is settled"
    assert told(world) == [1, 2, 3, 4]
    assert len(published(world, 1)) == 4
    home = world.accepted[0][1].event.home
    assert world.nodes[1].archived() == [(home, 1, 4, 0)]
    archive(world, 1, EventKey(home, 1, 3))
    assert published(world, 1) == ["published/1/4"]
    assert world.nodes[1].archived() == [(home, 1, 4, 3)]
    archive(world, 1, EventKey(home, 1, 4))
    assert published(world, 1) == []
    assert world.nodes[1].archived() == [(home, 1, 4, 4)]


def test_what_is_archived_before_it_is_settled_stays_as_well() -> None:
    world = World(3, archives=True)
    world.run(1)
    world.ask(3, Subscribe("s", "price > 1"))
    world.run(2)
    world.cut_off(3)
    world.publish(1, "e", price=3)
    world.run(2)
    ((_, effect),) = world.accepted
    archive(world, 1, effect.event)
    assert published(world, 1) == ["published/1/1"]
    world.heal()
    world.run(60)
    assert [id_ for _, id_, _ in world.notified] == ["e"]
    assert published(world, 1) == []


def test_after_a_crash_all_that_may_not_be_archived_is_told_again() -> None:
    world = World(3, archives=True)
    world.run(1)
    for each in range(4):
        world.publish(1, f"e{each}", price=3)
    world.run(5)
    home = world.accepted[0][1].event.home
    archive(world, 1, EventKey(home, 1, 2))
    world.accepted.clear()
    world.crash(1)
    world.run(1)
    world.start(1, contacts=(2, 3))
    world.run(30)
    assert told(world) == [3, 4]
    world.publish(1, "e4", price=3)
    world.run(5)
    assert told(world) == [3, 4, 5]
    archive(world, 1, EventKey(home, 1, 5))
    assert published(world, 1) == []


def test_what_was_taken_back_is_never_told_and_holds_nothing_up() -> None:
    world = World(2, archives=True)
    world.run(1)
    asked = [world.publish(1, f"e{each}", price=3) for each in range(3)]
    world._handle(1, world.nodes[1], Withdrawn(asked[1]))
    world.run(5)
    assert told(world) == [1, 3]
    home = world.accepted[0][1].event.home
    archive(world, 1, EventKey(home, 1, 3))
    assert world.nodes[1].archived() == [(home, 1, 3, 3)]
    assert published(world, 1) == []


def test_where_nothing_is_archived_nothing_is_told_or_kept() -> None:
    world = World(2)
    world.run(1)
    world.publish(1, "e", price=3)
    world.run(5)
    assert world.accepted == []
    assert published(world, 1) == []


def test_the_driver_is_told_with_the_content() -> None:
    world = World(1, archives=True)
    world.run(1)
    world.publish(1, "e", price=3)
    world.run(1)
    ((_, effect),) = world.accepted
    assert isinstance(effect, Accepted)
    assert b"price" in effect.content
