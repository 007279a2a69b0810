"""The network's schema in a small world: it grows, spreads, and is the same everywhere."""

from __future__ import annotations

import pytest

from meetpoint.api.outcomes import Outcome, Published, Refused, Stored
from meetpoint.api.requests import Declare, Leave, Subscribe
from meetpoint.language.schema.schema import Schema
from tests.node.world import World

TRADES = "name: trades\nattributes:\n  stock: string\n  price: {type: decimal, min: 0}\n"


def declared(world: World, number: int, text: str, seconds: float = 3) -> Outcome | None:
    request = world.ask(number, Declare(text))
    world.run(seconds)
    return world.answers.get(request)


def schemas(world: World) -> list[Schema | None]:
    return [node.schema for node in world.nodes.values()]


def test_a_schema_spreads_to_all_and_stays() -> None:
    world = World(5)
    world.run(1)
    assert schemas(world) == [None] * 5
    assert declared(world, 3, TRADES) == Stored()
    wanted = Schema.from_yaml(TRADES)
    for schema in schemas(world):
        assert schema is not None
        assert schema.name == "trades"
        assert {each.name: each for each in schema} == {each.name: each for each in wanted}
    for number in range(1, 6):
        world.crash(number)
    for number in range(1, 6):
        world.start(number)
    world.run(40)
    assert [schema and set(schema.names) for schema in schemas(world)] == [{"stock", "price"}] * 5


def test_attributes_are_added_and_never_changed() -> None:
    world = World(3)
    world.run(1)
    declared(world, 1, TRADES)
    assert declared(world, 2, "attributes:\n  volume: integer\n  stock: string\n") == Stored()
    assert [schema and set(schema.names) for schema in schemas(world)] == [{"stock", "price", "volume"}] * 3
    outcome = declared(world, 3, "attributes:\n  price: string\n")
    assert isinstance(outcome, Refused)
    assert "price" in outcome.reason
    assert not outcome.retry
    outcome = declared(world, 3, "attributes:\n  price.unit: string\n")
    assert isinstance(outcome, Refused)
    outcome = declared(world, 3, "attributes: [")
    assert isinstance(outcome, Refused)
    assert "line" in outcome.reason


def test_whoever_joins_later_knows_it() -> None:
    world = World(3)
    world.run(1)
    declared(world, 1, TRADES)
    world.start(4, contacts=[2])
    world.run(20)
    assert world.nodes[4].schema is not None
    for number in (1, 2):
        world.ask(number, Leave())
        world.run(20)
    assert [schema is not None for schema in schemas(world)] == [True, True]


def test_two_sides_of_a_cut_agree_afterwards_whatever_they_declared() -> None:
    seen = set()
    for order in ((1, 5), (5, 1)):
        world = World(6)
        world.run(1)
        world.cut_off(4, 5, 6)
        for number in order:
            kind = "string" if number == 1 else "integer"
            world.ask(number, Declare(f"attributes:\n  size: {kind}\n  only{number}: boolean\n"))
        world.run(5)
        world.heal()
        world.run(40)
        agreed = {schema.to_yaml() for schema in schemas(world) if schema is not None}
        assert len(agreed) == 1
        seen |= agreed
        assert all(schema is not None and len(schema) == 3 for schema in schemas(world))
    assert len(seen) == 1, "who came first does not matter"


def test_filters_and_events_are_checked_against_it() -> None:
    world = World(2)
    world.run(1)
    declared(world, 1, TRADES)
    outcome = world.answers[world.ask(2, Subscribe("s", "prize > 1"))]
    assert isinstance(outcome, Refused)
    assert "did you mean price?" in outcome.reason
    request = world.ask(2, Subscribe("s", "price > 1"))
    world.run(2)
    assert world.answers[request] == Stored()
    outcome = world.answers[world.publish(2, "e", price="high")]
    assert isinstance(outcome, Refused)
    assert "price" in outcome.reason
    request = world.publish(2, "f", price=3)
    world.run(3)
    assert isinstance(world.answers[request], Published)
    assert [event for _, event, _ in world.notified] == ["f"]


def test_a_subscription_older_than_the_schema_is_kept() -> None:
    world = World(2)
    world.run(1)
    world.ask(1, Subscribe("s", "colour = 'red'"))
    world.run(2)
    declared(world, 1, TRADES)
    world.crash(1)
    world.start(1, contacts=[2])
    world.run(20)
    assert [held.filter for held in world.nodes[1].held_subscriptions()] == ["colour = 'red'"]


@pytest.mark.parametrize("texts", [("not yaml: [",), ("x" * 300_000,)])
def test_what_a_peer_says_that_is_no_schema_is_left_out(texts: tuple[str, ...]) -> None:
    world = World(2)
    world.run(1)
    node = world.nodes[1]
    learnt = node._runtime.begin(node._runtime.now)
    node.directory.schema_gossip.learn(texts)
    world._apply(1, node, learnt)
    assert node.schema is None
    assert {"schema_malformed", "schema_oversized"} & world.observed.keys()
