"""The order of a publisher's events at a subscriber: with `meet`, where most events never come to a home."""

from __future__ import annotations

import pytest

from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published, Stored
from meetpoint.api.requests import Leave, Unsubscribe
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.node.home.publisher_order import Watermark
from meetpoint.placement.messages import DeliverToHome
from meetpoint.schemes.meet.entries import place_of
from meetpoint.schemes.meet.messages import MatchRequest
from tests.node.world import RING
from tests.placement.small_world import MeetWorld, home, symbols_between

IDS = [f"e{number:02}x" for number in range(1, 11)]


def world_with(count: int, *places: int) -> MeetWorld:
    """Subscription `s` at each of some nodes, which wants all events with `symbol = value`; its key is at node 3."""
    world = MeetWorld(count)
    world.run(2)
    for place in places:
        world.subscribed(place, f"s{place}", f"symbol = '{VALUE}'")
    return world


VALUE, OTHER, *_ = symbols_between(2000, 3000)


def lose(world: MeetWorld, id_: str, kind: type[Message] = MatchRequest, to: int | None = None) -> None:
    """What brings one event is lost."""

    def weather(source: int, target: int, message: Message) -> tuple[int, ...] | None:
        lost = isinstance(message, kind) and id_.encode() in message.content and to in (None, target)  # type: ignore[attr-defined]
        return () if lost else None

    world.weather = weather


def clear(world: MeetWorld) -> None:
    world.weather = lambda source, to, message: None


def came(world: MeetWorld, name: str) -> list[str]:
    return [event for each, event in world.came() if each == name]


def publish(world: MeetWorld, number: int, ids: list[str], value: str = VALUE) -> None:
    for id_ in ids:
        world.publish(number, id_, symbol=value)


def test_events_come_in_the_order_in_which_they_were_published() -> None:
    world = world_with(5, 2, 4)
    lose(world, IDS[3])
    publish(world, 1, IDS)
    world.run(1)
    assert came(world, "s2") == came(world, "s4") == IDS[:3]
    clear(world)
    world.run(10)
    assert came(world, "s2") == came(world, "s4") == IDS
    assert "order_given_up" not in world.observed


def test_an_event_is_waited_for_no_longer_than_said() -> None:
    world = world_with(5, 2)
    lose(world, IDS[3])
    publish(world, 1, IDS)
    world.run(29)
    assert came(world, "s2") == IDS[:3]
    world.run(3)
    assert came(world, "s2") == IDS[:3] + IDS[4:]
    assert world.observed["order_given_up"] >= 1
    publish(world, 1, ["later"])
    world.run(3)
    assert came(world, "s2")[-1] == "later", "what has been given up once is not waited for again"
    clear(world)
    world.run(10)
    assert sorted(came(world, "s2")) == sorted([*IDS, "later"])


def test_what_is_on_its_way_to_a_broker_that_is_down_holds_up_nobody_else() -> None:
    world = world_with(6, 2, 5)
    world.subscribed(5, "other", f"symbol = '{OTHER}'")
    world.crash(5)
    publish(world, 1, IDS[:5])
    world.publish(1, "for the dead", symbol=OTHER)
    publish(world, 1, IDS[5:])
    world.run(3)
    assert came(world, "s2") == IDS
    assert world.nodes[1].snapshot().outbox == 11, "nothing is settled"
    publish(world, 1, ["later"])
    world.run(3)
    assert came(world, "s2")[-1] == "later"
    assert "order_given_up" not in world.observed
    world.start(5, contacts=[1])
    world.run(40)
    assert came(world, "s5") == [*IDS, "later"]
    assert came(world, "other") == ["for the dead"]


def test_a_silent_broker_holds_up_others_for_a_few_seconds_at_most() -> None:
    """It is cut off: nobody is told that it is lost."""
    world = world_with(6, 2, 5)
    world.subscribed(5, "other", f"symbol = '{OTHER}'")
    world.cut_off(5)
    for id_ in IDS:
        world.publish(1, f"not {id_}", symbol=OTHER)
        world.publish(1, id_, symbol=VALUE)
    world.run(5)
    assert came(world, "s2") == IDS
    world.heal()
    world.run(40)
    assert came(world, "s5") == IDS
    assert "order_given_up" not in world.observed


def test_an_end_of_a_subscription_whose_events_are_held_ends_the_waiting() -> None:
    world = world_with(5, 2)
    lose(world, IDS[0])
    publish(world, 1, IDS)
    world.run(1)
    assert world.nodes[2].snapshot().queued == 9
    ended = world.ask(2, Unsubscribe("s2"))
    world.run(3)
    assert world.answers[ended] == Stored()
    assert world.nodes[2].snapshot().queued == 0
    asked = world.observed["order_asked"]
    world.run(40)
    assert world.observed["order_asked"] <= asked + 1
    assert world.notified == []


def test_a_publishing_home_that_lost_every_disk_goes_on_under_a_new_stream() -> None:
    world = world_with(6, 5)
    publish(world, 1, IDS[:3])
    world.run(3)
    lose(world, IDS[3])
    publish(world, 1, IDS[3:6])
    world.run(2)
    assert came(world, "s5") == IDS[:3]
    for number in (1, 2, 3):
        world.crash(number, lose_disk=True)
    clear(world)
    world.run(2)
    for number in (1, 2, 3):
        world.start(number, contacts=[4])
    world.run(60)
    publish(world, 1, IDS[6:])
    world.run(10)
    assert came(world, "s5")[:3] == IDS[:3]
    assert came(world, "s5")[-4:] == IDS[6:]


def test_a_home_that_moves_with_events_it_holds_keeps_their_order() -> None:
    world = world_with(6, 5)
    lose(world, IDS[3])
    publish(world, 1, IDS)
    world.run(2)
    assert came(world, "s5") == IDS[:3]
    world.ask(5, Leave())
    world.run(10)
    assert 5 not in world.nodes
    clear(world)
    world.run(20)
    in_order = [event for name, event, _ in world.notified if name == "s5"]
    assert in_order == IDS, "all of them, those that were held when the home moved are marked"


def test_a_restart_of_the_publisher_is_waited_for() -> None:
    world = world_with(5, 2)
    lose(world, IDS[3])
    publish(world, 1, IDS)
    world.run(1)
    world.crash(1)
    clear(world)
    world.run(10)
    assert came(world, "s2") == IDS[:3]
    world.start(1, contacts=[3])
    world.run(20)
    assert came(world, "s2") == IDS
    assert "order_given_up" not in world.observed


@pytest.mark.parametrize("is_down", [False, True])
def test_who_does_not_answer_is_asked_a_few_times_a_second_and_no_more(is_down: bool) -> None:
    world = world_with(5, 2)
    lose(world, IDS[3])
    publish(world, 1, IDS)
    world.run(1)
    if is_down:
        world.crash(1)  # whoever asks hears at once that it is
    else:
        world.cut_off(1)
    before = world.observed["order_asked"]
    world.run(25)
    assert 15 <= world.observed["order_asked"] - before <= 25 * 4
    clear(world)
    if is_down:
        world.start(1, contacts=[3])
    else:
        world.heal()
    world.run(30)
    assert sorted(came(world, "s2")) == sorted(IDS)


def test_where_nothing_overlaps_nobody_asks() -> None:
    world = world_with(5, 2, 4)
    for id_ in IDS:
        publish(world, 1, [id_])
        world.run(1)
    assert came(world, "s2") == IDS
    assert "order_asked" not in world.observed


def test_the_last_event_of_a_burst_is_not_late() -> None:
    world = world_with(5, 2)
    publish(world, 1, IDS)
    world.run(1)
    assert came(world, "s2") == IDS


# -- publishers that move ----------------------------------------------------------------------------------------------


def test_a_publisher_that_moves_keeps_its_order() -> None:
    world = world_with(5, 2)
    lose(world, "first")
    request = world.publish_as("p", 1, 1, "first", symbol=VALUE)
    world.run(1)
    published = world.answers[request]
    assert isinstance(published, Published)
    second = world.publish_as("p", 2, 4, "second", published.event, symbol=VALUE)
    third = world.publish_as("p", 3, 4, "third", symbol=VALUE)
    stranger = world.publish_as("q", 1, 4, "stranger", symbol=VALUE)
    world.run(5)
    assert isinstance(world.answers[stranger], Published)
    assert not {second, third} & world.answers.keys()
    assert came(world, "s2") == ["stranger"]
    clear(world)
    world.run(10)
    assert isinstance(world.answers[second], Published)
    assert isinstance(world.answers[third], Published)
    assert came(world, "s2") == ["stranger", "first", "second", "third"]


def test_what_went_by_another_broker_and_is_held_here_goes_first() -> None:
    """The answer to the publisher's broker comes before the answer to the subscriber's."""
    world = world_with(5, 2)
    world.subscribed(5, "other", f"symbol = '{OTHER}'")
    lose(world, "stuck")
    world.publish_as("q", 1, 1, "stuck", symbol=OTHER)
    request = world.publish_as("p", 1, 1, "first", symbol=VALUE)
    world.run(1)
    published = world.answers[request]
    assert isinstance(published, Published)
    world.weather = lambda source, to, message: () if isinstance(message, Watermark) and source == 2 else None
    world.publish_as("p", 2, 4, "second", published.event, symbol=VALUE)
    world.run(12)
    assert came(world, "other") == ["stuck"]
    assert world.nodes[2].snapshot().queued == 2, "home 2 has both, and has not heard that nothing comes before"
    assert came(world, "s2") == []
    clear(world)
    world.run(5)
    assert came(world, "s2") == ["first", "second"]


def test_a_publisher_whose_last_broker_does_not_come_back_waits_no_longer_than_said() -> None:
    world = world_with(5, 2)
    lose(world, "first")
    request = world.publish_as("p", 1, 1, "first", symbol=VALUE)
    world.run(1)
    published = world.answers[request]
    assert isinstance(published, Published)
    world.crash(1)
    second = world.publish_as("p", 2, 4, "second", published.event, symbol=VALUE)
    world.run(29)
    assert second not in world.answers
    world.run(4)
    assert isinstance(world.answers[second], Published)
    third = world.publish_as("p", 3, 4, "third", published.event, symbol=VALUE)
    world.run(1)
    assert isinstance(world.answers[third], Published), "it is waited for once"


def test_a_publisher_that_comes_back_to_its_broker_does_not_wait() -> None:
    world = world_with(5, 2)
    lose(world, "first", DeliverToHome)
    request = world.publish_as("p", 1, 1, "first", symbol=VALUE)
    world.run(1)
    published = world.answers[request]
    assert isinstance(published, Published)
    second = world.publish_as("p", 2, 1, "second", published.event, symbol=VALUE)
    world.run(1)
    assert isinstance(world.answers[second], Published)
    assert world.now < 60 * SECOND_US


def test_what_lies_where_a_slow_broker_once_held_keys_is_not_taken_for_others() -> None:
    """A broker that waits for another has given a part of its arc away since it told the publisher what it holds."""
    world = MeetWorld(5)
    world.run(2)
    moved = symbols_between(5000, 6000)[0]
    kind = next(
        f"K{number}" for number in range(1_000)
        if RING.number(place_of(RING, MeetKey(KeySort.VALUE, "kind", "string", 0, 0, f"K{number}"))) <= 1000
    )  # fmt: skip
    world.subscribed(4, "wants", f"symbol = '{moved}'")
    world.subscribed(3, "down", f"kind = '{kind}'")
    world.publish(2, "first", symbol=moved)
    world.run(1)
    world.start(6, contacts=range(1, 6))
    world.run(4)
    assert world.arcs()[home(6)], "it has its arc, and the publisher does not know"
    world.crash(3)
    world.publish(2, "both", symbol=moved, kind=kind)
    world.publish(2, "one", symbol=moved)
    world.run(4)
    assert came(world, "wants") == ["first", "both", "one"]
