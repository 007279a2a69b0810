"""Where a subscription is, asked of any node of a small world."""

from __future__ import annotations

import pytest

from meetpoint.api.outcomes import Located, Refused, Stored
from meetpoint.api.requests import Leave, Locate, Subscribe, Unsubscribe
from tests.node.world import World


def world_with_one() -> World:
    world = World(5)
    world.run(1)
    request = world.ask(2, Subscribe("s", "price > 1"))
    world.run(2)
    assert world.answers[request] == Stored()
    return world


def located(world: World, number: int, name: str, seconds: float = 4) -> object:
    request = world.ask(number, Locate(name))
    world.run(seconds)
    return world.answers.get(request)


def test_a_subscription_is_found_from_everywhere() -> None:
    world = world_with_one()
    for number in range(1, 6):
        assert located(world, number, "s") == Located(world.nodes[2].me, "price > 1")


def test_that_nobody_has_it_is_certain_once_all_have_said_so() -> None:
    world = world_with_one()
    assert located(world, 4, "unknown", 0.3) == Located(None)
    world.ask(2, Unsubscribe("s"))
    world.run(2)
    assert located(world, 4, "s") == Located(None)


def test_who_does_not_answer_is_named_in_time() -> None:
    world = world_with_one()
    world.crash(2)
    outcome = located(world, 4, "s", 3)
    assert isinstance(outcome, Refused)
    assert outcome.retry
    assert "n2" in outcome.reason
    world.cut_off(4)
    outcome = located(world, 4, "s", 3.3)
    assert isinstance(outcome, Refused)
    assert "n1, n2, n3 and 1 more" in outcome.reason
    world.heal()
    world.start(2, contacts=[1])
    world.run(10)
    assert located(world, 4, "s") == Located(world.nodes[2].me, "price > 1")


@pytest.mark.slow
def test_a_subscription_whose_home_moves_is_never_said_not_to_be() -> None:
    for seed in range(20):
        world = World(8, seed=seed, gossip_us=3_600_000_000)
        world.run(1)
        world.ask(2, Subscribe("s", "price > 1"))
        world.run(2)
        world.ask(2, Leave())
        asked = []
        for _ in range(60):
            asked += [world.ask(number, Locate("s")) for number in (1, 5, 7)]
            world.run(0.02)
        world.run(10)
        told = [world.answers[request] for request in asked]
        assert Located(None) not in told, seed
        assert located(world, 6, "s") == Located(world.nodes[3].me, "price > 1"), seed


def test_a_node_alone_knows_by_itself() -> None:
    world = World(1)
    world.run(1)
    request = world.ask(1, Locate("s"))
    assert world.answers[request] == Located(None)
