"""Homes that crash, move and end while what was covered is placed and what covered it is withdrawn: whole nodes."""

from __future__ import annotations

from typing import Any

import pytest

from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Leave, Subscribe, Unsubscribe, Update
from tests.placement.small_world import MeetWorld, home
from tests.placement.test_networks import SparingMeet
from tests.placement.test_races import US


class SparingWorld(MeetWorld):
    """Nodes that leave out what is covered."""

    kind = SparingMeet


def covered_world(node: int, **settings: Any) -> SparingWorld:
    """Subscriptions at one node, of which one covers the other."""
    world = SparingWorld(5, **settings)
    world.run(2)
    world.subscribed(node, "wide", "symbol LIKE 'S%'")
    world.subscribed(node, "narrow", "symbol = 'S1'")
    assert placed(world) == 1
    return world


def placed(world: MeetWorld) -> int:
    """How many entries lie at all homes, but for marks."""
    return sum(
        len(entries)
        for number in world.nodes
        for entries in world.scheme(number)._ownership.entries.values()
    )  # fmt: skip


def events_to(world: MeetWorld, name: str) -> list[str]:
    return [event for each, event in world.came() if each == name]


@pytest.mark.parametrize("change", [Unsubscribe("wide"), Update("wide", "symbol = 'T'")])
@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.1, 0.2, 0.5, 3, 19, 21])
@pytest.mark.parametrize("how", ["crash", "leave"])
def test_what_was_covered_is_met_at_every_moment(change: Unsubscribe | Update, seconds: float, how: str) -> None:
    """The home restarts, or moves, a while after what covered the other has ended or shrunk."""
    world = covered_world(4, holding_us=2 * US)
    published = []
    world.ask(4, change)
    world.run(seconds)
    if how == "crash":
        world.crash(4)
        world.run(0.5)
        world.start(4, contacts=[2])
    else:
        world.ask(4, Leave())
    for number in range(50):
        published.append(f"e{number:02}")
        world.publish(2, published[-1], symbol="S1")
        world.run(1)
    world.run(60)
    assert sorted(set(events_to(world, "narrow"))) == published
    assert placed(world) >= 1
    world.check_arcs()


def test_a_home_whose_subscriptions_were_covered_ends() -> None:
    world = covered_world(4, holding_us=2 * US)
    world.ask(4, Leave())
    world.run(20)
    assert home(4) in world.nodes[5].home_manager.homes
    for name in ("wide", "narrow"):
        world.ask(5, Unsubscribe(name))
        world.run(1)
    world.run(100)
    assert home(4) not in world.nodes[5].home_manager.homes
    assert placed(world) == 0
    world.check_arcs()
    kept = [name for number in world.nodes for _, name in world.disks[number]]
    assert not any(name.startswith(("placed/", "places/")) for name in kept)


@pytest.mark.slow
def test_what_covers_a_thousand_is_one_entry() -> None:
    world = covered_world(4)
    asked = [world.ask(4, Subscribe(f"s{number}", f"symbol = 'S{number}'")) for number in range(300)]
    world.run(3)
    assert all(world.answers[each] == Stored() for each in asked)
    assert placed(world) == 1
    world.publish(2, "e", symbol="S77")
    world.run(2)
    assert sorted(world.came()) == [("s77", "e"), ("wide", "e")]
    world.ask(4, Unsubscribe("wide"))
    world.run(30)
    assert placed(world) == 300, "those that are equal are placed once"
    world.publish(2, "later", symbol="S77")
    world.run(2)
    assert ("s77", "later") in world.came()
