"""Quenching, copies and pushed ids in the running scheme: what they save, and that nothing is missed meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Subscribe, Unsubscribe
from meetpoint.placement.messages import Entry, KeyedRequest
from meetpoint.schemes.reach import ReachSettings
from meetpoint.schemes.reach.load_shedding import MARK
from meetpoint.schemes.reach.messages import (
    CopyRequest,
    CopyUpdate,
    IdleQuery,
    LoadQuery,
    PackedRegion,
    RevokeIdle,
)
from tests.placement.eyes import Overseen, held_by_nobody, held_twice, schemes
from tests.placement.small_world import CODEC, RING, home
from tests.schemes.reach.load_networks import balanced, lacking, make
from tests.schemes.reach.small_world import PLAIN, ReachWorld, attributes

QUENCHED = msgspec.structs.replace(PLAIN, quench="quenched", lease_us=5_000_000)
COPIED = msgspec.structs.replace(PLAIN, copies="copied", lease_us=5_000_000, busy_per_s=0.5)
PUSHED = msgspec.structs.replace(PLAIN, pushing="pushed", push_above=6)
EVERYTHING = 0b111111


def publish(world: ReachWorld, count: int, event: int = EVERYTHING, seconds: float = 0.5) -> list[str]:
    """Events at one node, and so much time for each."""
    names = []
    for _ in range(count):
        names.append(f"e{len(world.answers)}-{world.now}")
        world.publish(4, names[-1], **attributes(event))
        world.run(seconds)
    return names


def handed_for(world: ReachWorld, count: int, event: int = EVERYTHING) -> float:
    """Messages with a duty, an event."""
    before = len(world.handed)
    publish(world, count, event)
    return (len(world.handed) - before) / count


def a_world(settings: ReachSettings) -> ReachWorld:
    world = ReachWorld(reach=settings)
    world.run(2)
    return world


# -- quenching ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_events_do_not_go_where_nothing_is_wanted_and_go_there_when_it_is() -> None:
    world = a_world(QUENCHED)
    assert handed_for(world, 1) >= 15
    publish(world, 8)
    assert handed_for(world, 4) <= 1  # to the root, from where it is published
    request = world.ask(8, Subscribe("s", "a = 1"))
    world.run(1)
    assert world.answers[request] == Stored()
    events = publish(world, 1)
    assert ("s", events[0]) in world.came()
    assert handed_for(world, 4) >= 4
    request = world.ask(8, Unsubscribe("s"))
    world.run(1)
    assert world.answers[request] == Stored()
    publish(world, 150)  # it comes back by itself
    assert handed_for(world, 4) <= 1


def test_a_subscription_waits_for_one_that_was_lost_with_what_it_was_told() -> None:
    world = a_world(QUENCHED)
    publish(world, 10)
    lost = world.holder(EVERYTHING)
    world.crash(lost)
    began = world.now
    request = world.ask(8, Subscribe("s", "a = 1"))
    world.run(1)
    assert request not in world.answers
    while request not in world.answers:
        world.run(0.25)
    assert world.now - began <= 1.2 * QUENCHED.lease_us


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_busy_place_is_answered_for_by_those_above_it() -> None:
    world = a_world(COPIED)
    for number, text in enumerate(("a = 1", "b = 1", "a = 1 AND b = 1", "TRUE")):
        world.subscribed(8, f"s{number}", text)
    publish(world, 6)
    before = len(world.handed), world.observed.get("reach_stood_in", 0)
    events = publish(world, 6)
    assert len(world.handed) - before[0] <= 6 * 4
    assert world.observed["reach_stood_in"] - before[1] >= 6 * 10
    root = world.holder(EVERYTHING)
    answered = {pair for handled in world.scheme(root)._duties._recent.values() for pair in handled.stood_in}
    assert (home(world.holder(0)), world.nodes[root].me.id) in answered, "the answer says for whom, and who"
    assert all(bytes(whose) != bytes(node) for whose, node in answered)
    came = world.came()
    assert all((f"s{number}", event) in came for number in range(4) for event in events)


def test_what_is_placed_where_copies_are_is_in_them() -> None:
    world = a_world(COPIED)
    publish(world, 8)
    assert world.observed["reach_stood_in"]
    for number in range(4):
        world.subscribed(8, f"s{number}", f"a = 1 AND b = {number % 2}", 1)
        events = publish(world, 2)
        if number % 2:
            assert all((f"s{number}", event) in world.came() for event in events)
    request = world.ask(8, Unsubscribe("s1"))
    world.run(1)
    assert world.answers[request] == Stored()
    events = publish(world, 2)
    assert not any(("s1", event) in world.came() for event in events)
    assert all(("s3", event) in world.came() for event in events)


# -- pushing -----------------------------------------------------------------------------------------------------------


def crowd(world: ReachWorld) -> None:
    """Many subscriptions at four ids of one node."""
    for number in range(16):
        more = ("", " AND e = 1", " AND f = 1", " AND e = 1 AND f = 1")[number % 4]
        world.subscribed(8, f"s{number}", f"a = 1 AND b >= {number - 20}{more}", 0.3)


def at_each(world: ReachWorld) -> dict[int, int]:
    """Entries by node."""
    loads = {}
    for number in world.others():
        scheme = world.scheme(number)
        loads[number] = sum(len(scheme._tables.at(each)) for each in world.nodes[number].home_manager.homes)
    return loads


@pytest.mark.slow
def test_ids_with_many_entries_are_pushed_away_and_come_back_when_few_are_left() -> None:
    world = a_world(PUSHED)
    full = world.holder(0b11)
    arcs = world.arcs()
    crowd(world)
    assert at_each(world)[full] == 16
    world.run(60)
    assert world.observed["reach_pushed"] >= 2
    assert max(at_each(world).values()) <= 8
    world.check_arcs()
    events = publish(world, 3)
    assert all((f"s{number}", event) in world.came() for number in range(16) for event in events)
    for number in range(16):
        world.ask(8, Unsubscribe(f"s{number}"))
    world.run(60)
    assert world.observed["reach_pushed_back"] >= 2
    assert world.arcs() == arcs
    marks = [name for number in world.others() for each in world.scheme(number)._ownership.entries.values()
             for name in each if name.startswith(MARK)]  # fmt: skip
    assert marks == []


def test_one_id_alone_is_not_pushed_to_and_fro() -> None:
    world = a_world(PUSHED)
    for number in range(16):
        world.subscribed(8, f"s{number}", f"a = 1 AND b >= {number - 20}", 0.3)
    world.run(40)
    assert "reach_pushed" not in world.observed


# -- strangers ---------------------------------------------------------------------------------------------------------

NOBODY = Peer(RING.node(1), "nowhere", 1)
WRONG: dict[str, Message] = {
    "a region with a bit too many": RevokeIdle(1, 5, PackedRegion(b"\x04", 2)),
    "a region that is too long": RevokeIdle(1, 5, PackedRegion(b"", 7)),
    "a region of less than nothing": RevokeIdle(1, 5, PackedRegion(b"", -1)),
    "a copy of no region": CopyRequest(1, home(8), PackedRegion(b"\xff\xff", 6), 1, 0, ""),
    "a copy for no life": CopyRequest(1, home(8), PackedRegion(b"", 0), -1, 0, ""),
}
ODD: dict[str, Message] = {
    "a copy of everything": CopyRequest(1, home(8), PackedRegion(b"", 0), 1, 0, ""),
    "a copy of a home that is not": CopyRequest(1, home(99), PackedRegion(b"", 6), 1, 77, None),
    "news of no copy": CopyUpdate(1, 5, 7, "what", Entry(b"", b"", b"")),
    "a region that nobody was told of": RevokeIdle(1, 5, PackedRegion(b"", 0)),
    "a home that is not": LoadQuery(1, home(99)),
}


def eager_world() -> ReachWorld:
    return a_world(msgspec.structs.replace(PLAIN, quench="quenched", copies="copied", pushing="pushed"))


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_counted(what: str) -> None:
    world = eager_world()
    world.say(8, WRONG[what], NOBODY)
    assert world.observed.get("question_malformed") == 1
    world.subscribed(8, "s", "a = 1")


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_is_answered_and_changes_nothing(what: str) -> None:
    world = eager_world()
    world.say(8, ODD[what], NOBODY)
    world.subscribed(8, "s", "a = 1")
    events = publish(world, 1)
    assert world.came() == [("s", events[0])]


@pytest.mark.parametrize(
    "question",
    [
        IdleQuery(PackedRegion(b"\x01", 0), NOBODY, 1, 1_000),
        IdleQuery(PackedRegion(b"", 0), NOBODY, -1, 1_000),
        IdleQuery(PackedRegion(b"", 0), NOBODY, 1, -1),
        IdleQuery(PackedRegion(b"", 0), NOBODY, 1, 1 << 60),
    ],
)
def test_questions_that_make_no_sense_are_counted(question: IdleQuery) -> None:
    world = eager_world()
    number = world.holder(0)
    key = bytes(world.scheme(number)._cube.key(0))
    world.say(number, KeyedRequest(key, key, NOBODY, 1, 0, CODEC.encode(question)))
    assert world.observed.get("question_malformed") == 1


# -- whole networks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overlay", "faults", "seed"),
    [("hypercube", "churn", 3), ("hypercube", "all", 4), ("chord", "all", 6), ("pastry", "lossy", 2)],
)
def test_nothing_is_missed_while_all_of_it_goes_on(overlay: str, faults: str, seed: int) -> None:
    net = make(seed, faults, overlay)
    Overseen(net, lambda: lacking(net), 50)
    net.run()
    report = net.report()
    assert report.good, report.problems
    seen: dict[str, Any] = report.observed
    assert seen["reach_stood_in"] > 50
    assert seed % 3 or seen["reach_quenched"] > 0  # in every third network few subscribe
    assert not [name for name in seen if name.endswith("_malformed")]
    assert held_twice(net) == []
    assert held_by_nobody(net) == []
    assert sum(balanced(net)) == sum(
        not name.startswith(MARK)
        for scheme in schemes(net)
        for entries in scheme._ownership.entries.values()
        for name in entries
    )
