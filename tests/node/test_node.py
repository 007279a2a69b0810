"""Nodes in a small world: what is acknowledged is kept, whatever crashes, moves or loses its disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Attach, Leave, Subscribe, Unsubscribe, Update
from meetpoint.node.cluster.directory import Entry
from meetpoint.node.cluster.home_manager import HomeTakenOver, TakeOverHome
from meetpoint.node.cluster.replication import ReplicasHeld, ReplicasReleased, Replicate
from meetpoint.node.node import GOSSIPS_PER_REMINDER
from meetpoint.node.runtime.effects import Send
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.inputs import Instant, Received
from tests.node.world import RING, Table, World


def subscribed(world: World, number: int, name: str, filter_: str) -> None:
    request = world.ask(number, Subscribe(name, filter_))
    world.run(2)
    assert world.answers.get(request) == Stored()


def unmarked(world: World) -> list[tuple[str, str]]:
    return [(name, event) for name, event, redelivered in world.notified if not redelivered]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_an_event_reaches_exactly_the_subscriptions_that_match(count: int) -> None:
    world = World(count)
    world.run(1)
    for number in range(1, count + 1):
        subscribed(world, number, f"high{number}", f"price > {number}")
    request = world.publish(1, "e", price=3)
    world.run(10)
    assert isinstance(world.answers[request], Published)
    assert sorted(unmarked(world)) == [(f"high{number}", "e") for number in range(1, min(count, 2) + 1)]
    assert len(world.notified) == min(count, 2)
    for node in world.nodes.values():
        view = node.snapshot()
        assert (view.outbox, view.queued, view.unsafe) == (0, 0, 0)


def test_answers_wait_for_two_disks() -> None:
    world = World(3)
    world.run(1)
    world.cut_off(1)
    subscribe = world.ask(1, Subscribe("s", "price > 1"))
    publish = world.publish(1, "e", price=3)
    world.run(30)
    assert subscribe not in world.answers
    assert publish not in world.answers
    world.heal()
    world.run(20)
    assert world.answers[subscribe] == Stored()
    assert isinstance(world.answers[publish], Published)
    assert unmarked(world) == [("s", "e")]


@pytest.mark.parametrize("lose_disk", [False, True])
def test_a_subscription_outlives_a_crash_of_its_home(lose_disk: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.crash(2, lose_disk=lose_disk)
    world.publish(1, "while down", price=3)
    world.run(5)
    world.start(2, contacts=[1, 3])
    world.run(30)
    world.publish(3, "after", price=3)
    world.run(5)
    assert unmarked(world) == [("s", "while down"), ("s", "after")]


@pytest.mark.parametrize("lose_disk", [False, True])
def test_an_acknowledged_event_outlives_a_crash_of_its_publisher(lose_disk: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 1, "s", "price > 1")
    world.crash(1)
    request = world.publish(2, "e", price=3)
    world.run(2)
    assert isinstance(world.answers[request], Published)
    world.crash(2, lose_disk=lose_disk)
    world.start(1, contacts=[3])
    world.run(5)
    world.start(2, contacts=[3])
    world.run(30)
    assert unmarked(world) == [("s", "e")]
    again = world.publish(2, "f", price=3)
    world.run(5)
    assert isinstance(world.answers[again], Published)
    assert unmarked(world) == [("s", "e"), ("s", "f")]


def test_what_was_not_acknowledged_comes_again_marked() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s", "price > 1")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(5)
    world.crash(1)
    world.acknowledges = True
    world.start(1, contacts=[2])
    world.run(40)
    assert world.notified == [("s", "e", False), ("s", "e", True)]


def test_a_subscriber_that_never_acknowledges_makes_a_dead_letter() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 1, "s", "price > 1")
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(310)
    assert [redelivered for _, _, redelivered in world.notified] == [False, True, True, True, True]
    assert world.observed["dead_letter"] == 1
    assert world.nodes[1].snapshot().queued == 0


def test_a_home_that_lost_every_copy_publishes_anew_and_is_heard() -> None:
    world = World(5)
    world.run(1)
    subscribed(world, 5, "s", "price > 1")
    for number in range(3):
        world.publish(1, f"e{number}", price=3)
    world.run(5)
    for number in (1, 2, 3):
        world.crash(number, lose_disk=True)
    world.run(3)
    for number in (1, 2, 3):
        world.start(number, contacts=[4])
    world.run(60)
    world.publish(1, "anew", price=3)
    world.run(5)
    assert sorted(unmarked(world)) == [("s", "anew"), ("s", "e0"), ("s", "e1"), ("s", "e2")]


def test_a_late_broker_keeps_no_trace_of_events_before_its_time() -> None:
    world = World(3)
    world.run(1)
    for number in range(20):
        world.publish(1, f"e{number}", price=3)
        world.run(1)
    world.start(4, contacts=[1])
    world.run(20)
    subscribed(world, 4, "s", "price > 1")
    world.publish(1, "late", price=3)
    world.run(10)
    seen = [record for (_, name), record in world.disks[4].items() if name.startswith("seen/")]
    assert [msgspec.msgpack.decode(record.value or b"") for record in seen] == [[21, [], []]]


def test_an_old_offer_of_a_home_that_comes_late_is_not_taken() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.run(5)
    heir = world.nodes[3]
    offer = Received(world.nodes[2].me, TakeOverHome(77, HomeId(HOME_OF_2), 2))
    world._handle(3, heir, offer)
    world.run(10)
    assert heir.snapshot().homes == (bytes((3000).to_bytes(2, "big")),)


def test_an_acknowledged_unsubscribe_ends_deliveries_and_a_later_disk_loss_does_not_undo_it() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    request = world.ask(2, Unsubscribe("s"))
    world.run(2)
    assert world.answers[request] == Stored()
    world.crash(2, lose_disk=True)
    world.run(3)
    world.start(2, contacts=[1])
    world.run(30)
    world.publish(1, "e", price=3)
    world.run(5)
    assert world.notified == []


def test_a_copy_from_before_the_end_of_a_subscription_brings_nothing_back() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.acknowledges = False
    world.publish(1, "e", price=3)
    world.run(2)
    world.cut_off(4)  # it keeps a copy of the notification that waits
    world.run(1)
    world.acknowledges = True
    request = world.ask(2, Unsubscribe("s"))
    world.run(2)
    assert world.answers[request] == Stored()
    world.notified.clear()
    world.crash(2, lose_disk=True)
    world.heal()
    world.run(1)
    world.start(2, contacts=[1])
    world.run(30)
    assert world.notified == []
    assert world.nodes[2].snapshot().queued == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_subscription_that_ended_is_forgotten_after_a_while(restart: bool) -> None:
    world = World(3, tombstone_us=60_000_000)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.ask(2, Unsubscribe("s"))
    world.run(2)
    if restart:
        world.crash(2)
        world.start(2, contacts=[1])
    world.run(50)
    assert kept_at(world, "subscription/s") == [1, 2, 3]
    world.run(20)
    assert kept_at(world, "subscription/s") == []


def kept_at(world: World, name: str) -> list[int]:
    return [number for number, disk in sorted(world.disks.items()) if any(each == name for _, each in disk)]


def test_an_update_counts_from_its_acknowledgement() -> None:
    world = World(3)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    request = world.ask(2, Update("s", "price < 1"))
    world.run(2)
    assert world.answers[request] == Stored()
    world.publish(1, "high", price=3)
    world.publish(1, "low", price=0)
    world.run(5)
    assert unmarked(world) == [("s", "low")]


def test_a_home_moves_with_its_subscriptions_and_unsettled_events_when_its_node_leaves() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    subscribed(world, 4, "far", "price > 1")
    world.crash(4)
    world.publish(2, "before", price=3)
    world.run(2)
    leave = world.ask(2, Leave())
    world.run(60)
    assert world.answers[leave] == Stored()
    assert 2 not in world.nodes
    world.publish(1, "after", price=3)
    world.run(5)
    world.start(4, contacts=[1])
    world.run(30)
    assert sorted(unmarked(world)) == [("far", "after"), ("far", "before"), ("s", "after"), ("s", "before")]
    gone = world.ask(3, Unsubscribe("s"))
    world.run(60)
    assert world.answers[gone] == Stored()
    assert len(world.nodes[3].snapshot().homes) == 1, "an adopted home that is empty is dissolved"


@pytest.mark.slow
def test_a_node_that_crashes_while_it_leaves_has_left_or_serves_but_never_both() -> None:
    for delay in range(0, 600, 10):
        world = World(10, seed=delay, gossip_us=HOUR)
        world.run(1)
        subscribed(world, 2, "s", "price > 1")
        world.ask(2, Leave())
        world.run(delay / 1000)
        if 2 in world.nodes:
            world.crash(2)
            world.run(0.1)
            world.start(2, contacts=[1])
        for number in range(30):
            world.publish(1, f"e{number}", price=3)
            world.run(0.1)
        world.run(90)
        hosts = [number for number, node in world.nodes.items() if HOME_OF_2 in node.snapshot().homes]
        assert len(hosts) == 1, (delay, hosts)
        assert {node.state for node in world.nodes.values()} == {"ready"}, delay
        assert "home_displaced" not in world.observed, delay
        assert sorted(unmarked(world)) == sorted(("s", f"e{number}") for number in range(30)), delay


HOUR = 3_600_000_000
HOME_OF_2 = bytes((2000).to_bytes(2, "big"))


def test_a_heir_that_crashes_while_it_adopts_loses_nothing() -> None:
    for delay in range(0, 2_000, 50):
        world = World(4, seed=delay)
        world.run(1)
        subscribed(world, 2, "s", "price > 1")
        world.ask(2, Leave())
        world.run(delay / 1000)
        lose_disk = delay % 100 == 0
        world.crash(3, lose_disk=lose_disk)
        world.run(3)
        world.start(3, contacts=[1])
        world.run(90)
        world.publish(1, "e", price=3)
        world.run(5)
        assert unmarked(world) == [("s", "e")], delay
        assert 2 not in world.nodes, delay


def test_a_home_is_not_offered_to_a_node_that_the_directory_does_not_list() -> None:
    world = World(4, gossip_us=HOUR)
    world.run(1)
    subscribed(world, 1, "s", "price > 1")
    newcomer = Peer(RING.node(1500), "n1.5", 1)  # in the overlay, between 1 and 2, and in nobody's list
    world.members[newcomer.id] = newcomer
    world.members_changed()
    world.run(2)
    leave = world.ask(1, Leave())
    world.run(20)
    assert world.answers[leave] == Stored()
    assert [number for number, node in world.nodes.items() if len(node.snapshot().homes) == 2] == [2]


def test_copies_of_a_lost_disk_outlive_the_nodes_that_kept_them() -> None:
    world = World(7)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.crash(2, lose_disk=True)
    for number in (3, 4):  # all that have a copy
        leave = world.ask(number, Leave())
        world.run(20)
        assert world.answers[leave] == Stored()
    world.start(2, contacts=[1])
    world.run(30)
    world.publish(1, "e", price=3)
    world.run(5)
    assert unmarked(world) == [("s", "e")]


@pytest.mark.parametrize("copied_meanwhile", [False, True])
def test_copies_are_thrown_away_unless_new_ones_came_since_the_question(copied_meanwhile: bool) -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    host, replicator, home = world.nodes[2].me, world.nodes[3], HomeId(HOME_OF_2)
    effects = replicator._runtime.begin(Instant(world.now))
    replicator._runtime.start("asks", replicator.home_manager._ask_host(home, host))
    (question,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(question, ReplicasHeld)
    if copied_meanwhile:
        record = replicator.home_manager.replicas.records(home)[0]
        replicator.handle(Received(host, Replicate(1, home, 1, 1_000, (record,), (), False, False)), Instant(world.now))
    replicator.handle(Received(host, ReplicasReleased(question.request, free=True)), Instant(world.now))
    assert bool(replicator.home_manager.replicas.records(home)) == copied_meanwhile


def test_what_a_leaving_node_has_learnt_stays_known() -> None:
    for seed in range(10):
        world = World(8, seed=seed, gossip_us=HOUR)
        world.run(1)
        subscribed(world, 2, "s", "price > 1")
        known_to_one = Entry(HomeId(b"\x99\x99"), 5, Peer(RING.node(39321), "gone", 1), gone=True)
        leaver = world.nodes[2]
        leaver._runtime.begin(Instant(world.now))
        leaver.directory.learn([known_to_one])
        world.ask(2, Leave())
        world.run(20)
        assert 2 not in world.nodes
        assert [1 for node in world.nodes.values() if known_to_one in node.directory.entries()], seed


def test_an_heir_that_has_given_a_home_on_says_that_it_had_accepted_it() -> None:
    """Its answer was lost, and the giver asks again: were it told no, the home would begin again, beside the other."""
    world = World(6)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    offer, answers = TakeOverHome(77, HomeId(HOME_OF_2), 2), list[object]()
    giver = world.nodes[2].me
    for leaver in (2, 3):
        world.ask(leaver, Leave())
        heir = world.nodes[3]
        while leaver in world.nodes:
            world.run(0.01)
            if leaver == 3 and HOME_OF_2 not in heir.home_manager._replicators and 3 in world.nodes:
                effects = heir.handle(Received(giver, offer), Instant(world.now))
                answers += [effect.message for effect in effects if isinstance(effect, Send) and effect.to == giver]
                world._apply(3, heir, [effect for effect in effects if effect not in answers])
    assert set(answers) == {HomeTakenOver(77, True)}
    hosts = [number for number, node in world.nodes.items() if HOME_OF_2 in node.snapshot().homes]
    assert hosts == [4]


def test_an_heir_that_restarted_unnoticed_gets_everything_before_it_adopts() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.nodes[3].home_manager.replicas._whole.clear()  # as after a restart that node 2 has not heard of
    leave = world.ask(2, Leave())
    world.run(10)
    assert world.answers[leave] == Stored()
    world.publish(1, "e", price=3)
    world.run(5)
    assert unmarked(world) == [("s", "e")]


def test_after_an_offer_that_was_refused_the_home_serves_under_an_epoch_that_nobody_was_offered() -> None:
    world = World(4)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    for heir in (1, 3, 4):
        world.nodes[heir].home_manager._accepting = False  # as if they were leaving
    world.ask(2, Leave())
    world.run(3)
    replicator = world.nodes[2].home_manager._replicators[HomeId(HOME_OF_2)]
    entry = world.nodes[2].directory.get(HOME_OF_2)
    assert entry is not None
    assert entry.epoch == replicator.epoch >= 3
    world.publish(1, "e", price=3)
    world.run(5)
    assert {event for _, event, _ in world.notified} == {"e"}


def test_two_that_leave_and_would_give_all_to_each_other_both_go() -> None:
    """On a ring nobody is the next of its own next; siblings of a hypercube are."""
    world = World(5)
    world.run(1)
    for one, other in ((2, 3), (3, 2)):
        overlay = world.nodes[one].overlay
        first = world.nodes[other].me
        others = overlay.neighbours(4)
        near = (first, *(peer for peer in others if peer.id != first.id))
        overlay.neighbours = lambda count, near=near: near[:count]  # type: ignore[method-assign,misc]
        subscribed(world, one, f"s{one}", "price > 1")
    world.run(3)
    leaves = [world.ask(leaver, Leave()) for leaver in (2, 3)]
    world.run(20)
    assert [world.answers.get(leave) for leave in leaves] == [Stored(), Stored()]
    world.publish(1, "e", price=3)
    world.run(5)
    assert sorted(unmarked(world)) == [("s2", "e"), ("s3", "e")]


def test_a_home_outlives_the_disk_of_the_node_that_has_just_adopted_it() -> None:
    for delay in range(0, 1_000, 50):
        world = World(8, seed=delay, gossip_us=HOUR)
        world.run(1)
        subscribed(world, 2, "s", "price > 1")
        world.ask(2, Leave())
        while 2 in world.nodes:
            world.run(0.01)
        world.run(delay / 1000)
        world.crash(3, lose_disk=True)
        world.run(1)
        world.start(3, contacts=[6])
        world.run(40)
        world.publish(1, "e", price=3)
        world.run(10)
        assert unmarked(world) == [("s", "e")], delay


def test_a_network_that_restarts_as_a_whole_serves_again() -> None:
    world = World(5)
    world.run(1)
    subscribed(world, 2, "s", "price > 1")
    world.crash(2)
    request = world.publish(1, "e", price=3)
    world.run(2)
    assert isinstance(world.answers[request], Published)
    for number in (1, 3, 4, 5):
        world.crash(number)
    world.run(5)
    for number in range(1, 6):
        world.start(number)
    world.run(40)
    assert unmarked(world) == [("s", "e")]
    assert {node.state for node in world.nodes.values()} == {"ready"}


def test_a_broker_that_joins_behind_a_partition_misses_nothing_from_beyond_it() -> None:
    world = World(5, gossip_us=HOUR)  # so that the publisher learns of it from acknowledgements alone
    world.run(1)
    world.cut_off(4, 5, 6)
    world.start(6, contacts=[5])
    world.nodes[6].home_manager.kept_disk = True  # it knows that it is new, and need not ask those beyond
    world.run(20)
    subscribed(world, 6, "s", "price > 1")
    request = world.publish(1, "e", price=3)
    world.run(20)
    assert isinstance(world.answers[request], Published)
    assert world.notified == []
    world.heal()
    world.run(30)
    assert unmarked(world) == [("s", "e")]
    assert world.nodes[1].snapshot().outbox == 0


def test_a_broker_that_lost_its_disk_comes_back_through_one_that_never_heard_of_it() -> None:
    world = World(6, gossip_us=HOUR)
    world.run(1)
    world.start(7, contacts=[1])
    world.run(5)
    subscribed(world, 7, "s", "price > 1")
    own = world.nodes[7].home_manager.homes.copy().popitem()[0]
    unaware = [number for number in range(1, 7) if world.nodes[number].directory.get(own) is None]
    assert unaware, "only its witnesses list it"
    world.crash(7, lose_disk=True)
    world.run(2)
    world.start(7, contacts=unaware[:1])
    world.run(20)
    world.publish(1, "e", price=3)
    world.run(20)
    assert unmarked(world) == [("s", "e")]


def test_a_broker_that_joins_behind_a_partition_waits_until_it_knows_that_it_is_new() -> None:
    """It may have been here before and have lost its disk: two others would know, and they may be beyond."""
    world = World(5)
    world.run(1)
    world.cut_off(4, 5, 6)
    world.start(6, contacts=[5])
    world.run(20)
    request = world.ask(6, Subscribe("s", "price > 1"))
    world.run(20)
    assert request not in world.answers
    world.heal()
    world.run(30)
    assert world.answers[request] == Stored()
    world.publish(1, "e", price=3)
    world.run(20)
    assert unmarked(world) == [("s", "e")]
    assert world.nodes[1].snapshot().outbox == 0


@pytest.mark.parametrize("seed", range(5))
def test_lost_messages_cost_time_and_nothing_else(seed: int) -> None:
    world = World(6, loss=0.3, seed=seed)
    world.run(5)
    for number in range(1, 7):
        request = world.ask(number, Subscribe(f"s{number}", "price > 1"))
        world.run(20)
        assert world.answers[request] == Stored()
    for number in range(1, 7):
        world.publish(number, f"e{number}", price=3)
    world.run(120)
    wanted = sorted((f"s{s}", f"e{e}") for s in range(1, 7) for e in range(1, 7))
    assert sorted(unmarked(world)) == wanted


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (Subscribe("s", "price >"), "filter, column"),
        (Subscribe("", "price > 1"), "0 characters"),
        (Subscribe("n" * 513, "price > 1"), "513 characters"),
        (Subscribe("known", "price > 2"), "another filter"),
        (Update("known", "price >"), "filter, column"),
    ],
)
def test_a_mistake_is_refused_with_its_reason(what: Subscribe | Update, reason: str) -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "known", "price > 1")
    request = world.ask(1, what)
    outcome = world.answers[request]
    assert isinstance(outcome, Refused)
    assert reason in outcome.reason
    assert not outcome.retry


@pytest.mark.parametrize("what", [Update("unknown", "price > 1"), Unsubscribe("unknown")])
def test_a_subscription_that_is_not_here_may_be_elsewhere(what: Update | Unsubscribe) -> None:
    world = World(2)
    world.run(1)
    outcome = world.answers[world.ask(1, what)]
    assert isinstance(outcome, Refused)
    assert "no subscription 'unknown'" in outcome.reason
    assert outcome.retry


def test_a_node_whose_contact_dies_joins_through_another() -> None:
    world = World(4)
    world.run(1)
    world.joins_fail = True
    world.start(5, contacts=[1, 2, 3])
    world.run(2)
    world.joins_fail = False
    world.run(30)
    assert world.nodes[5].state == "ready"


def test_asking_again_under_the_same_name_is_the_same_subscription() -> None:
    world = World(2)
    world.run(1)
    subscribed(world, 1, "s", "price > 1")
    subscribed(world, 1, "s", "price > 1")
    world.publish(2, "e", price=3)
    world.run(5)
    assert unmarked(world) == [("s", "e")]


def test_the_last_broker_does_not_leave() -> None:
    world = World(1)
    world.run(1)
    outcome = world.answers[world.ask(1, Leave())]
    assert isinstance(outcome, Refused)
    assert "last broker" in outcome.reason


def test_a_node_that_lost_all_neighbours_reminds_its_overlay_of_everybody() -> None:
    """Should they live, and no pointer lead there: the directory knows them."""
    world = World(4)
    world.run(1)
    table = world.nodes[1].overlay
    assert isinstance(table, Table)
    table.remembered.clear()
    world.run(10)
    assert table.remembered == []
    world.cut_off(1)
    world.run(1)
    everybody = [RING.node(1000 * number) for number in (2, 3, 4)]
    assert [peer.id for peer in table.remembered[-1]] == everybody
    known = len(table.remembered)
    world.run(20)
    assert len(table.remembered) > known, "and again: somebody may be new"


def test_an_overlay_is_reminded_now_and_then() -> None:
    world = World(3)
    world.run(1)
    table = world.nodes[2].overlay
    assert isinstance(table, Table)
    before = len(table.remembered)
    world.run(6.5 * GOSSIPS_PER_REMINDER)
    assert 1 <= len(table.remembered) - before <= 2


def test_who_comes_back_for_a_subscription_is_told_of_it_when_it_is_in_force() -> None:
    """It asked for it, lost the connection, and asks for what there is: it must not be told earlier than the first."""
    world = World(3)
    world.run(1)
    home = next(iter(world.nodes[1].home_manager.homes.values()))
    placed: list[Signal[None]] = []

    def place(home: HomeId, name: str) -> Signal[None]:
        placed.append(Signal())
        return placed[-1]

    placer: Any = SimpleNamespace(place=place, when_placed=place)
    home._placer = placer
    world.cut_off(1)
    made = world.ask(1, Subscribe("s", "price > 1"))
    taken = world.ask(1, Attach("s", 10))
    world.run(5)
    assert placed == [], "it is not safe yet"
    world.heal()
    world.run(10)
    late = world.ask(1, Attach("s", 10))
    world.run(1)
    assert len(placed) == 3
    assert not world.answers.keys() & {made, taken, late}
    for signal in placed:
        world.run_in(1, lambda signal=signal: signal.set(None))  # type: ignore[misc]
    world.run(1)
    assert [world.answers[each] for each in (made, taken, late)] == [Stored()] * 3
