"""A subscription that changes while an event is on its way: the event meets one whole version. And homes that end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Leave, Subscribe, Unsubscribe, Update
from meetpoint.placement.dissemination import dissemination
from meetpoint.placement.entries import placement
from meetpoint.placement.messages import DeliverToHome
from meetpoint.schemes.meet.messages import MatchRequest, SummaryUpdate
from tests.placement.small_world import MeetWorld, free, home
from tests.placement.test_races import US, Lost, on, value_between


def overtaken(seconds: float) -> bool:
    """An event finds nothing at the new place, for it is there too early; at the old one it is late by some time.

    Whether it came.
    """
    world = MeetWorld(4)
    world.run(2)
    old, new = value_between(4000, 1000, "symbol"), value_between(3000, 4000, "color")
    world.subscribed(2, "s", f"symbol = '{old}'")
    lost = Lost(world, lambda _, to, message: isinstance(message, MatchRequest) and to == 1)
    world.weather = lost
    world.publish(3, "e", symbol=old, color=new)
    world.run(0.5)
    asked = world.ask(2, Update("s", f"color = '{new}'"))
    world.run(seconds)
    assert world.answers[asked] == Stored()
    lost.until = world.now
    world.run(30)
    assert world.nodes[3].snapshot().outbox == 0
    return world.came() == [("s", "e")]


@pytest.mark.parametrize("seconds", [2, 6, 10, 18, 25, 40])
def test_an_event_meets_the_old_version_or_the_new_one(seconds: float) -> None:
    assert overtaken(seconds)


def test_a_mutant_that_withdraws_at_once_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "RETAIN_US", 0)
    assert not overtaken(2)


def test_a_mutant_whose_attempts_never_begin_anew_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dissemination, "ATTEMPT_US", 1000 * US)
    assert not overtaken(25)


def test_what_was_withdrawn_is_forgotten_everywhere() -> None:
    world = MeetWorld(4)
    world.run(2)
    old, new = value_between(4000, 1000, "symbol"), value_between(3000, 4000, "color")
    world.subscribed(2, "s", f"symbol = '{old}'")
    world.ask(2, Update("s", f"color = '{new}'"))
    world.run(30)
    entries = {number: [*world.scheme(number)._ownership.entries[home(number)]] for number in world.nodes}
    assert {number: len(names) for number, names in entries.items()} == {1: 0, 2: 0, 3: 0, 4: 1}
    world.ask(2, Unsubscribe("s"))
    world.run(30)
    assert all(not world.scheme(number)._ownership.entries[home(number)] for number in world.nodes)
    assert all(not world.scheme(number)._placement._places[home(number)] for number in world.nodes)
    assert not any(name.startswith(("placed/", "places/")) for disk in world.disks.values() for _, name in disk)


def test_a_late_put_brings_nothing_back() -> None:
    world = MeetWorld(4)
    world.run(2)
    value = value_between(4000, 1000, "symbol")
    late: list[Callable[[], None]] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        return (40_000, 26 * US) if type(message).__name__ == "KeyedRequest" and source == 2 and not late else None

    world.weather = weather
    world.subscribed(2, "s", f"symbol = '{value}'")
    late.append(lambda: None)
    world.ask(2, Unsubscribe("s"))
    world.run(40)
    assert world.observed.get("entry_late") == 1
    assert world.scheme(1)._ownership.entries[home(1)] == {}


def test_who_is_down_is_not_asked_as_fast_as_messages_go() -> None:
    """Two homes at one node have summaries to renew, and events to bring, at a node that is down."""
    world = MeetWorld(4, holding_us=500 * US)
    world.run(2)
    world.subscribed(3, "far", "symbol = 'A'")
    one, other = value_between(4000, 1000, "color"), value_between(3000, 4000, "shape")
    world.ask(4, Leave())
    world.run(50)
    assert sorted(world.nodes[1].home_manager.homes) == [home(1), home(4)]
    world.publish(3, "before", color=one, shape=other)
    world.run(2)
    sent = 0

    def count(source: int, to: int, message: Message) -> None:
        nonlocal sent
        sent += to == 3 and isinstance(message, SummaryUpdate | DeliverToHome)

    world.weather = count
    world.crash(3)
    world.ask(2, Subscribe("a", f"color = '{one}'"))
    world.ask(2, Subscribe("b", f"shape = '{other}'"))
    for number in range(5):
        world.publish(2, f"e{number}", symbol="A")
    world.run(5)
    assert 0 < sent < 200


def test_a_home_that_is_to_end_and_gets_a_subscriber_does_not() -> None:
    world = MeetWorld(4, holding_us=2 * US)
    world.run(2)
    value = value_between(4000, 1000, "symbol")
    world.subscribed(4, "s", f"symbol = '{value}'")
    world.ask(4, Leave())
    world.run(10)
    assert home(4) in world.nodes[1].home_manager.homes
    world.ask(1, Unsubscribe("s"))
    world.run(22)
    free(world, 1, home(4))
    asked = world.ask(1, Subscribe("s", f"symbol = '{value}'"))
    world.run(60)
    assert world.answers[asked] == Stored()
    world.check_arcs()
    world.publish(3, "e", symbol=value)
    world.run(5)
    assert world.came() == [("s", "e")]
    world.ask(1, Unsubscribe("s"))
    world.run(60)
    assert home(4) not in world.nodes[1].home_manager.homes
    world.check_arcs()


@pytest.mark.parametrize("seconds", [0.1, 0.4, 1, 3])
def test_a_home_that_moves_while_it_places_goes_on_where_it_is(seconds: float) -> None:
    world = MeetWorld(4, holding_us=2 * US)
    world.run(2)
    value = value_between(2000, 3000, "symbol")
    world.weather = Lost(world, lambda source, to, message: type(message).__name__ == "KeyedRequest" and source == 4)
    world.ask(4, Subscribe("s", f"symbol = '{value}'"))
    world.run(seconds)
    world.ask(4, Leave())
    world.run(20)
    assert 4 not in world.nodes
    world.publish(2, "e", symbol=value)
    world.run(5)
    assert world.came() == [("s", "e")]


def test_arcs_go_round_and_what_lies_there_with_them() -> None:
    world = MeetWorld(4)
    world.run(2)
    values = [on(world, 2, 1000 * (number or 4), 1000 * (number + 1), f"s{number}") for number in range(4)]
    for number in (4, 1, 2, 3, 4, 2, 1):
        free(world, number)
        world.run(3)
        world.check_arcs()
    world.run(40)
    for number, value in enumerate(values):
        world.publish(3, f"e{number}", symbol=value)
    world.run(5)
    assert sorted(world.came()) == [(f"s{number}", f"e{number}") for number in range(4)]
