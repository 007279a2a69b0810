"""What waits for subscribers, in a small world: presence, tries, dead letters, pauses, lifetimes, repeats, moves."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Detach,
    Forget,
    Leave,
    Reject,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Update,
)
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.node.cluster.directory import Entry
from meetpoint.node.home.subscription_table import Subscription
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import Record
from tests.node.world import RING, World

HIGH = "price > 1"


def subscribed(
    world: World, number: int, name: str, terms: SubscriptionOptions | None = None, filter_: str = HIGH
) -> None:
    request = world.ask(number, Subscribe(name, filter_, SubscriptionOptions() if terms is None else terms))
    world.run(2)
    assert world.answers.get(request) == Stored()


def came(world: World, name: str = "s") -> list[tuple[str, bool]]:
    return [(event, again) for each, event, again in world.notified if each == name]


def records(world: World, number: int, prefix: str) -> list[str]:
    return sorted(name for _, name in world.disks[number] if name.startswith(prefix))


def queued(world: World) -> int:
    return sum(node.snapshot().queued for node in world.nodes.values())


# -- presence ----------------------------------------------------------------------------------------------------------


def test_what_comes_while_nobody_is_there_waits_and_comes_once_someone_is() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    world.away.add("s")
    for number in range(5):
        world.publish(2, f"e{number}", price=3)
    world.run(3600)
    assert came(world) == []
    assert world.nodes[1].held_subscriptions()[0].is_present is False
    assert world.nodes[1].held_subscriptions()[0].queued == 5
    world.away.clear()
    present = world.ask(1, Attach("s", 10))
    world.run(5)
    assert world.answers[present] == Stored()
    assert [event for event, _ in came(world)] == [f"e{number}" for number in range(5)]
    assert queued(world) == 0
    assert "dead_letter" not in world.observed


def test_who_says_how_many_it_takes_gets_no_more() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = False
    world.ask(1, Attach("s", 3))
    for number in range(8):
        world.publish(2, f"e{number}", price=3)
    world.run(5)
    assert came(world) == [("e0", False), ("e1", False), ("e2", False)]
    world.ask(1, Acknowledge(world.keys["e1"], ("s",)))
    assert came(world)[3:] == [("e3", False)]


def test_before_anyone_said_how_many_256_are_out() -> None:
    world = World(1)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = False
    for number in range(300):
        world.publish(1, f"e{number}", price=3)
    world.run(5)
    assert len(came(world)) == 256


def test_a_subscriber_that_leaves_in_the_middle_of_a_retry_has_no_try_counted() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(1)
    for wait in (2, 6, 31):
        world.ask(1, Reject(world.keys["e"], ("s",), "not now"))
        world.run(wait)
    assert len(came(world)) == 4, "the fourth try is out"
    for _ in range(10):
        world.ask(1, Detach("s"))
        world.run(1000)
        world.ask(1, Attach("s", 1))
        world.run(1)
    assert len(came(world)) == 14
    assert "dead_letter" not in world.observed
    world.acknowledges = True
    world.ask(1, Detach("s"))
    world.ask(1, Attach("s", 1))
    world.run(1)
    assert queued(world) == 0


def test_presence_at_a_name_that_is_not_here_is_told() -> None:
    world = World(2)
    world.run(1)
    outcome = world.answers[world.ask(1, Attach("unknown", 3))]
    assert isinstance(outcome, Refused)
    assert outcome.retry
    assert "'unknown'" in outcome.reason
    assert world.answers[world.ask(1, Detach("unknown"))] == Stored()


# -- restarts and moves ------------------------------------------------------------------------------------------------


def test_a_crash_at_any_moment_around_the_notification_loses_nothing_and_repeats_nothing_unmarked() -> None:
    for delay in range(0, 300, 5):
        world = World(3, seed=delay)
        world.run(1)
        subscribed(world, 1, "s")
        world.publish(2, "e", price=3)
        world.run(delay / 1000)
        world.crash(1)
        world.run(1)
        world.start(1, contacts=[2])
        world.run(60)
        assert came(world).count(("e", False)) <= 1, delay
        assert came(world), delay
        assert queued(world) == 0, delay


@pytest.mark.parametrize("is_away", [False, True])
def test_a_line_moves_with_its_home(is_away: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s")
    world.acknowledges = False
    if is_away:
        world.away.add("s")
    for number in range(3):
        world.publish(1, f"e{number}", price=3)
    world.run(3)
    leave = world.ask(2, Leave())
    world.run(20)
    assert world.answers[leave] == Stored()
    world.acknowledges = True
    world.away.clear()
    world.notified.clear()
    world.ask(3, Attach("s", 100))
    world.run(40)
    assert [event for event, _ in dict.fromkeys(came(world))] == ["e0", "e1", "e2"]
    assert all(again for _, again in came(world))
    assert queued(world) == 0


def test_acknowledgements_that_are_not_written_yet_go_along_with_a_home_that_moves() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s")
    for number in range(30):
        world.publish(1, f"e{number}", price=3)
        world.run(0.01)
    world.run(0.15)
    world.ask(2, Leave())
    world.run(60)
    assert 2 not in world.nodes
    assert sorted(event for event, again in came(world) if not again) == sorted(f"e{number}" for number in range(30))
    assert queued(world) == 0


def test_an_acknowledgement_that_waits_to_be_written_is_written_before_a_home_moves() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s")
    world.acknowledges = False
    world.publish(1, "e", price=3)
    world.publish(1, "f", price=3)
    world.run(2)
    world.nodes[2].home_manager.homes.copy().popitem()[1].deliveries._flushing._interval_us = 1 << 60
    world.ask(2, Acknowledge(world.keys["e"], ("s",)))
    world.ask(2, Acknowledge(world.keys["f"], ("s",)))
    world.ask(2, Leave())
    world.run(60)
    assert 2 not in world.nodes
    assert came(world) == [("e", False), ("f", False)]


def made(id_: str) -> bytes:
    return to_msgpack(Event(id_, "q", 1, parse_timestamp("2026-01-01T00:00:00Z"), {"price": 3}))


def taken_at(world: World, number: int, event: EventKey, content: bytes) -> None:
    """An event comes to the home of a node, from nowhere."""
    node = world.nodes[number]
    effects = node._runtime.begin(Instant(world.now))
    next(iter(node.home_manager.homes.values())).take(event, content)
    world._apply(number, node, effects)


def test_nothing_is_notified_before_it_is_on_two_disks() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    world.cut_off(1)
    afar = HomeId(bytes(RING.node(2000)))
    taken_at(world, 1, EventKey(afar, 1, 1), made("e"))
    low = to_msgpack(Event("low", "q", 2, parse_timestamp("2026-01-01T00:00:00Z"), {"price": 0}))
    taken_at(world, 1, EventKey(afar, 1, 2), low)
    world.run(3)
    assert came(world) == []
    world.heal()
    world.run(5)
    assert came(world) == [("e", False)]


def test_a_publishing_home_that_is_gone_has_nothing_on_its_way() -> None:
    world = World(4, gossip_us=3_600_000_000)
    world.run(1)
    subscribed(world, 1, "s")
    world.crash(2)
    afar = HomeId(bytes(RING.node(2000)))
    taken_at(world, 1, EventKey(afar, 1, 5), made("e"))
    world.run(3)
    assert came(world) == [], "1 to 4 may come"
    node = world.nodes[1]
    effects = node._runtime.begin(Instant(world.now))
    node.directory.learn([Entry(afar, 9, node.me, gone=True)])
    world._apply(1, node, effects)
    world.run(2)
    assert came(world) == [("e", False)]
    assert "order_given_up" not in world.observed


def test_a_home_that_stays_after_all_goes_on_where_it_was() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s")
    world.acknowledges = False
    world.publish(1, "e", price=3)
    world.run(2)
    world.nodes[3].home_manager._accepting = False  # as if it were leaving
    world.ask(2, Leave())
    world.run(3)
    world.publish(1, "f", price=3)
    world.acknowledges = True
    world.run(60)
    assert {event for event, _ in came(world)} == {"e", "f"}
    assert ("f", False) in came(world)
    assert [again for event, again in came(world) if event == "e"][1:] != [False]
    assert queued(world) == 0


def test_two_homes_at_one_node_are_acknowledged_together() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "one")
    subscribed(world, 2, "two")
    world.ask(1, Leave())
    world.run(20)
    assert sorted(len(node.snapshot().homes) for node in world.nodes.values()) == [1, 2]
    world.acknowledges = False
    world.publish(3, "e", price=3)
    world.run(2)
    assert sorted(world.notified) == [("one", "e", False), ("two", "e", False)]
    host = next(number for number, node in world.nodes.items() if len(node.snapshot().homes) == 2)
    world.ask(host, Acknowledge(world.keys["e"], ("one", "two")))
    world.run(1)
    assert queued(world) == 0


def test_a_subscription_that_a_former_version_kept_is_read() -> None:
    world = World(1)
    world.run(1)
    subscribed(world, 1, "s")
    kept = next(record for (_, name), record in world.disks[1].items() if name == "subscription/s")
    old = Record(kept.home, kept.name, kept.version, msgspec.msgpack.encode([1, "price > 5"]))
    world.disks[1][old.home, old.name] = old
    world.crash(1)
    world.start(1)
    world.run(20)
    (held,) = world.nodes[1].held_subscriptions()
    assert (held.name, held.filter, held.terms) == ("s", "price > 5", SubscriptionOptions())
    assert msgspec.msgpack.decode(old.value or b"", type=Subscription).until_us is None


# -- tries and dead letters --------------------------------------------------------------------------------------------


def test_a_rejected_event_comes_again_after_1_5_30_and_120_seconds_and_is_a_dead_letter_then() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    subscribed(world, 1, "other")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(1)
    world.ask(1, Acknowledge(world.keys["e"], ("other",)))
    at: list[int] = []
    for _ in range(5):
        while len(came(world)) == len(at):
            world.run(0.5)
        at.append(world.now // SECOND_US)
        world.ask(1, Reject(world.keys["e"], ("s",), "cannot parse it"))
    assert [b - a for a, b in pairwise(at)] == [1, 5, 30, 120]
    world.run(1)
    (letter,) = world.nodes[1].dead_letters()
    assert (letter.event, letter.names) == (world.keys["e"], ("s",))
    assert letter.reason == "cannot parse it, the last of 5 tries"
    assert abs(letter.at_us - world.now) < 2 * SECOND_US
    assert letter.content
    assert queued(world) == 0
    assert world.nodes[1].dead_letters("other") == []
    assert world.nodes[1].dead_letters("s", after=letter.event) == []


def test_dead_letters_outlive_a_lost_disk_and_are_forgotten_on_request() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(310)
    assert len(world.nodes[1].dead_letters()) == 1
    world.crash(1, lose_disk=True)
    world.run(2)
    world.start(1, contacts=[2])
    world.run(20)
    (letter,) = world.nodes[1].dead_letters("s")
    assert "not acknowledged within 30 s" in letter.reason
    world.ask(1, Forget(letter.event))
    world.run(3)
    assert world.nodes[1].dead_letters() == []
    assert [name for number in world.disks for name in records(world, number, "dead/")] == []


def test_dead_letters_are_bounded_and_so_are_lines() -> None:
    world = World(1, line_events_max=10, dead_letters_max=4)
    world.run(1)
    subscribed(world, 1, "s", SubscriptionOptions(paused=True))
    for number in range(20):
        world.publish(1, f"e{number:02}", price=3)
    world.run(5)
    assert world.nodes[1].held_subscriptions()[0].queued == 10
    assert world.observed["dead_letter"] == 10
    assert world.observed["dead_letter_forgotten"] == 6
    letters = world.nodes[1].dead_letters()
    assert [letter.event.number for letter in letters] == [7, 8, 9, 10]
    assert all("more than 10 events" in letter.reason for letter in letters)
    assert len(records(world, 1, "dead/")) == 4


def test_an_acknowledgement_that_comes_late_still_counts() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(30.5)
    world.ask(1, Acknowledge(world.keys["e"], ("s",)))
    world.run(400)
    assert came(world) == [("e", False)]
    assert queued(world) == 0


# -- at most once ------------------------------------------------------------------------------------------------------

ONCE = SubscriptionOptions(durable=False)


def test_at_most_once_is_notified_without_a_record_and_without_acknowledgement() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s", ONCE)
    subscribed(world, 1, "kept")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(2)
    assert sorted(world.notified) == [("kept", "e", False), ("s", "e", False)]
    world.ask(1, Acknowledge(world.keys["e"], ("kept",)))
    world.run(1)
    assert queued(world) == 0
    world.ask(1, Unsubscribe("kept"))
    world.run(1)
    world.publish(2, "f", price=3)
    world.run(400)
    assert came(world) == [("e", False), ("f", False)]
    assert records(world, 1, "queue/") == []
    assert queued(world) == 0


def test_at_most_once_ends_when_its_subscriber_goes() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s", ONCE)
    world.ask(1, Detach("s"))
    world.run(2)
    world.publish(2, "e", price=3)
    world.run(2)
    assert came(world) == []
    assert world.nodes[1].held_subscriptions() == []
    world.run(70)
    assert [name for number in world.disks for name in records(world, number, "subscription/")] == []


@pytest.mark.parametrize("moves", [False, True])
def test_at_most_once_ends_with_the_life_of_its_home(moves: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", ONCE)
    subscribed(world, 2, "kept")
    if moves:
        world.ask(2, Leave())
        world.run(20)
    else:
        world.crash(2)
        world.start(2, contacts=[1])
        world.run(20)
    world.publish(1, "e", price=3)
    world.run(5)
    assert world.notified == [("kept", "e", False)]
    assert [held.name for node in world.nodes.values() for held in node.held_subscriptions()] == ["kept"]


def test_at_most_once_while_paused_drops() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s", ONCE)
    world.ask(1, Update("s", paused=True))
    world.publish(2, "e", price=3)
    world.run(2)
    world.ask(1, Update("s", paused=False))
    world.run(2)
    world.publish(2, "f", price=3)
    world.run(2)
    assert came(world) == [("f", False)]


def test_a_durable_name_does_not_become_another_kind() -> None:
    world = World(1)
    world.run(1)
    subscribed(world, 1, "s")
    outcome = world.answers[world.ask(1, Subscribe("s", HIGH, ONCE))]
    assert isinstance(outcome, Refused)
    assert "durable" in outcome.reason


# -- terms -------------------------------------------------------------------------------------------------------------


def test_a_paused_subscription_gets_everything_later_and_in_order() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s", SubscriptionOptions(paused=True))
    for number in range(5):
        world.publish(2, f"e{number}", price=3)
    world.run(100)
    assert came(world) == []
    world.ask(1, Update("s", paused=False))
    world.run(5)
    assert came(world) == [(f"e{number}", False) for number in range(5)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_subscription_ends_when_its_lifetime_is_over(restart: bool) -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 2, "s", SubscriptionOptions(lifetime_us=60 * SECOND_US))
    world.away.add("s")
    world.publish(1, "e", price=3)
    world.run(5)
    if restart:
        world.crash(2)
        world.start(2, contacts=[1])
    world.run(51)
    assert len(world.nodes[2].held_subscriptions()) == 1
    assert world.ended == []
    world.run(5)
    assert world.ended == [("s", "its lifetime is over")]
    assert world.nodes[2].held_subscriptions() == []
    world.publish(1, "f", price=3)
    world.run(5)
    assert queued(world) == 0
    assert came(world) == []


def test_a_lifetime_may_be_longer_shorter_or_none() -> None:
    world = World(1)
    world.run(1)
    for name in ("longer", "shorter", "none"):
        subscribed(world, 1, name, SubscriptionOptions(lifetime_us=60 * SECOND_US))
    world.ask(1, Update("longer", lifetime_us=200 * SECOND_US))
    world.ask(1, Update("shorter", lifetime_us=10 * SECOND_US))
    world.ask(1, Update("none", lifetime_us=0))
    world.run(20)
    assert [name for name, _ in world.ended] == ["shorter"]
    world.run(100)
    assert [name for name, _ in world.ended] == ["shorter"]
    world.run(100)
    assert [name for name, _ in world.ended] == ["shorter", "longer"]
    assert [held.name for held in world.nodes[1].held_subscriptions()] == ["none"]


def test_what_is_said_of_a_subscription_is_kept_and_shown() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "a", SubscriptionOptions(owner="ann", labels=(("team", "x"), ("env", "prod"))))
    subscribed(world, 1, "b", SubscriptionOptions(owner="bob", labels=(("team", "x"),)))
    world.ask(1, Update("b", labels=(("team", "y"),)))
    world.run(2)
    world.crash(1)
    world.start(1, contacts=[2])
    world.run(20)
    node = world.nodes[1]
    assert [held.name for held in node.held_subscriptions()] == ["a", "b"]
    assert [held.name for held in node.held_subscriptions(owner="ann")] == ["a"]
    assert [held.name for held in node.held_subscriptions(labels=(("team", "x"),))] == ["a"]
    assert [held.name for held in node.held_subscriptions(after="a")] == ["b"]
    assert node.held_subscriptions()[1].terms.labels == (("team", "y"),)
    assert node.held_subscriptions()[0].filter == HIGH


# -- repeats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_the_same_event_published_again_elsewhere_is_not_notified_again(restart: bool, acknowledged: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 1, "s")
    world.acknowledges = acknowledged
    world.publish(2, "e", price=3)
    world.run(3)
    if restart:
        world.crash(1)
        world.start(1, contacts=[2])
        world.run(10)
    world.publish(3, "e", price=3)
    world.run(3)
    assert came(world)[0] == ("e", False)
    assert all(again for _, again in came(world)[1:])
    assert world.observed["event_repeated"] == 1
    world.acknowledges = True
    world.run(40)
    assert queued(world) == 0


def test_a_repeat_reaches_who_has_subscribed_meanwhile() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    world.publish(2, "e", price=3)
    world.run(3)
    subscribed(world, 1, "new")
    world.publish(3, "e", price=3)
    world.run(3)
    assert world.notified == [("s", "e", False), ("new", "e", False)]


def test_repeats_are_remembered_for_two_minutes_and_leave_nothing_behind() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s")
    for number in range(50):
        world.publish(2, f"e{number}", price=3)
        world.run(0.05)
    world.run(1)
    assert records(world, 1, "recent/")
    world.run(130)
    assert [name for number in world.disks for name in records(world, number, "recent/")] == []
    world.publish(3, "e1", price=3)
    world.run(3)
    assert came(world).count(("e1", False)) == 2


def test_no_more_ids_are_remembered_than_set() -> None:
    world = World(1, recent_max=10)
    world.run(1)
    subscribed(world, 1, "s")
    for number in range(30):
        world.publish(1, f"e{number}", price=3)
        world.run(0.1)
    world.publish(1, "e29", price=3)
    world.publish(1, "e1", price=3)
    world.run(3)
    assert came(world).count(("e29", False)) == 1
    assert came(world).count(("e1", False)) == 2
    assert len(records(world, 1, "recent/")) <= 11


# -- the end of a subscription -----------------------------------------------------------------------------------------


def test_the_end_of_a_subscription_takes_what_waits_for_it_and_leaves_the_rest() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    subscribed(world, 1, "other")
    world.away |= {"s", "other"}
    for number in range(5):
        world.publish(2, f"e{number}", price=3)
    world.run(3)
    world.ask(1, Unsubscribe("s"))
    world.run(3)
    world.away.clear()
    world.crash(1)
    world.start(1, contacts=[2])
    world.run(10)
    assert came(world) == []
    assert [event for event, _ in came(world, "other")] == [f"e{number}" for number in range(5)]
    assert queued(world) == 0


# -- what becomes of events --------------------------------------------------------------------------------------------


def test_what_becomes_of_an_event_is_told_where_that_is_wanted() -> None:
    world = World(3, trace=True)
    world.run(1)
    subscribed(world, 1, "s")
    subscribed(world, 2, "low", filter_="price < 1")
    world.publish(3, "e", price=3)
    world.run(5)
    world.publish(2, "e", price=3)
    world.run(5)
    key = world.keys["e"]
    steps = [(number, trace.step, trace.names) for number, trace in world.traces if trace.event == key]
    home = bytes(RING.node(1000))
    assert steps[0] == (3, "published", ())
    assert (1, "taken", ("s",)) in steps
    assert (2, "taken", ()) in steps
    assert (1, "notified", ("s",)) in steps
    assert (1, "acknowledged", ("s",)) in steps
    assert (3, "settled", ()) in steps
    assert next(trace.content for _, trace in world.traces if trace.step == "published")
    assert {trace.home for number, trace in world.traces if trace.step == "notified"} == {home}
    assert [(number, trace.names) for number, trace in world.traces if trace.step == "repeated"] == [(1, ("s",))]


def test_nothing_is_told_where_nobody_wants_to_know() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    world.publish(2, "e", price=3)
    world.run(5)
    assert world.traces == []
    assert world.keys["e"] == EventKey(world.keys["e"].home, 1, 1)


# -- many subscriptions ------------------------------------------------------------------------------------------------


def test_many_subscriptions_are_matched_by_an_index_that_keeps_in_step() -> None:
    pytest.importorskip("numba")
    world = World(1, index_from=20)
    world.run(1)
    for number in range(40):
        world.ask(1, Subscribe(f"s{number:02}", f"price > {number}"))
    world.run(3)
    home = next(iter(world.nodes[1].home_manager.homes.values()))
    assert home.table.has_index()
    world.publish(1, "a", price=5)
    world.run(2)
    assert sorted(name for name, _, _ in world.notified) == [f"s{number:02}" for number in range(5)]
    world.notified.clear()
    world.ask(1, Unsubscribe("s01"))
    world.ask(1, Update("s30", "price = 5"))
    world.ask(1, Update("s02", labels=(("a", "b"),)))
    world.run(3)
    world.publish(1, "b", price=5)
    world.run(2)
    assert sorted(name for name, _, _ in world.notified) == ["s00", "s02", "s03", "s04", "s30"]
    for number in range(39):
        world.ask(1, Unsubscribe(f"s{number:02}"))
    world.run(3)
    assert not home.table.has_index()
    world.notified.clear()
    world.publish(1, "c", price=50)
    world.run(2)
    assert [name for name, _, _ in world.notified] == ["s39"]


# -- sent again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["safe when the other is", "safe later"])
def test_an_event_that_was_sent_again_and_comes_first_by_that_has_the_place_of_the_earlier_one(first: bool) -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s")
    home = world.nodes[1].home_manager.find("s")
    assert home is not None

    def take(number: int, sequence: int) -> None:
        at = parse_timestamp("2026-11-16T09:00:00Z")
        event = Event(f"e{sequence}", "p", sequence, at, {"price": 3})

        def act() -> None:
            home.take(EventKey(HomeId(b"\x77\x77"), 1, number), to_msgpack(event))

        world.run_in(1, act)

    take(1103, 524)
    if first:
        world.run(1)
    take(901, 529)
    take(896, 524)
    world.run_in(1, lambda: home.skip_to(EventKey(HomeId(b"\x77\x77"), 1, 901), 900))
    world.run(1)
    assert came(world) == [("e524", False), ("e529", False)]
