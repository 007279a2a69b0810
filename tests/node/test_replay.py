"""A broker that was let in and says what it has no right to: old deletions, old records, homes that are another's.

Copies of a home are what its host says, and the highest version counts. So whatever another node repeats or makes up is
refused and counted, and when the host's disk is lost everything is there. (A broker that claims, under a new epoch,
that a home has come to it is believed: brokers trust who has a certificate.)
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.api.requests import Leave, Unsubscribe
from meetpoint.node.cluster.directory import Entry, Sync
from meetpoint.node.cluster.home_manager import Confirm, TakeOverHome
from meetpoint.node.cluster.replication import Replicate, StoreReplica
from meetpoint.node.runtime.effects import Send
from meetpoint.node.runtime.inputs import Instant, Received
from meetpoint.node.runtime.records import VERSIONS_PER_EPOCH, Record
from tests.node.test_node import subscribed, unmarked
from tests.node.world import RING, World

HOST, ROGUE = 2, 4
HOME = HomeId(bytes(RING.node(1000 * HOST)))
NAME = "subscription/s"


def told(world: World, message: Message) -> None:
    """The rogue says it to everybody, over links on which it is known to be who it is."""
    for number in [number for number in world.nodes if number not in (HOST, ROGUE)]:
        world._handle(number, world.nodes[number], Received(world.nodes[ROGUE].me, message))
    world.run(1)


def copies(world: World) -> dict[int, dict[str, int]]:
    """The versions that each node but the host keeps of the host's records."""
    return {
        number: {record.name: record.version for record in node.home_manager.replicas.records(HOME)}
        for number, node in world.nodes.items()
        if number != HOST
    }


@pytest.fixture
def world() -> World:
    """A subscription that ended and was made again, and an event that waits for it."""
    world = World(4)
    world.run(1)
    subscribed(world, HOST, "s", "price > 1")
    world.ask(HOST, Unsubscribe("s"))
    world.run(2)
    subscribed(world, HOST, "s", "price > 1")
    world.acknowledges = False
    world.publish(1, "waiting", price=3)
    world.run(5)
    return world


def assert_nothing_is_lost(world: World) -> None:
    """The host loses its disk, and all of it comes back from the others."""
    world.acknowledges = True
    world.notified.clear()
    world.crash(HOST, lose_disk=True)
    world.run(3)
    world.start(HOST, contacts=[1])
    world.run(40)
    world.publish(1, "later", price=3)
    world.run(5)
    assert {event for _, event, _ in world.notified} == {"waiting", "later"}


def epoch_of(world: World) -> int:
    entry = world.nodes[1].directory.get(HOME)
    assert entry is not None
    return entry.epoch


def record(version: int, value: bytes | None = None) -> Record:
    return Record(HOME, NAME, version, value)


Said = Callable[[int], Message]
"""What the rogue says, of the epoch that the home has."""

WITHOUT_RIGHT: dict[str, Said] = {
    "a deletion": lambda epoch: Replicate(7, HOME, epoch, 99, (), (NAME,), False, False),
    "everything, which is nothing": lambda epoch: Replicate(7, HOME, epoch, 99, (), (), True, True),
    "a tombstone of the next version": lambda epoch: Replicate(
        7, HOME, epoch, 99, (record((epoch + 1) * VERSIONS_PER_EPOCH - 1),), (), False, False
    ),
    "a deletion of an earlier epoch": lambda epoch: Replicate(7, HOME, epoch - 1, 99, (), (NAME,), False, False),
    "a version beyond the epoch that it claims": lambda epoch: Replicate(
        7, HOME, epoch + 1, 1, (record((epoch + 2) * VERSIONS_PER_EPOCH),), (), False, False
    ),
    "another's records in a copy of its own": lambda epoch: Replicate(
        7, HomeId(bytes(RING.node(1000 * ROGUE))), 9, 1, (record(2 * VERSIONS_PER_EPOCH),), (), False, False
    ),
    "another's records to be kept": lambda epoch: StoreReplica(
        7, HomeId(bytes(RING.node(1000 * ROGUE))), (record(2 * VERSIONS_PER_EPOCH),)
    ),
}


@pytest.mark.parametrize("name", WITHOUT_RIGHT)
def test_only_its_host_says_what_copies_of_a_home_are(world: World, name: str) -> None:
    before = copies(world)
    assert sum(NAME in each for each in before.values()) == 2
    told(world, WITHOUT_RIGHT[name](epoch_of(world)))
    assert copies(world) == before
    assert world.observed["peer_refused"] == 2
    assert_nothing_is_lost(world)


def test_an_old_tombstone_that_one_who_kept_it_hands_on_changes_nothing(world: World) -> None:
    """A node that leaves hands on copies that it has, however old they are."""
    before = copies(world)
    versions = [each[NAME] for each in before.values() if NAME in each]
    told(world, StoreReplica(7, HOME, (record(min(versions) - 1),)))
    kept = copies(world)
    assert [each[NAME] for each in kept.values() if each.get(NAME) in versions] == versions
    assert_nothing_is_lost(world)


def test_an_old_message_of_the_host_itself_that_comes_again_changes_nothing(world: World) -> None:
    before = copies(world)
    for number, node in world.nodes.items():
        if NAME in before.get(number, {}):
            old = Replicate(7, HOME, epoch_of(world), 1, (), (NAME,), False, False)
            world._handle(number, node, Received(world.nodes[HOST].me, old))
    world.run(1)
    assert copies(world) == before
    assert world.observed["copy_stale"] == 2
    assert_nothing_is_lost(world)


def test_a_home_is_adopted_from_its_host_only(world: World) -> None:
    taker = next(n for n in (1, 3) if world.nodes[n].home_manager.replicas.is_whole(HOME))
    offer = Received(world.nodes[ROGUE].me, TakeOverHome(7, HOME, epoch_of(world) + 1))
    effects = world.nodes[taker].handle(offer, Instant(world.now))
    assert not [each for each in effects if isinstance(each, Send) and isinstance(each.message, Confirm)]
    offer = Received(world.nodes[HOST].me, TakeOverHome(7, HOME, epoch_of(world) + 1))
    effects = world.nodes[taker].handle(offer, Instant(world.now))
    assert [each for each in effects if isinstance(each, Send) and isinstance(each.message, Confirm)]
    assert_nothing_is_lost(world)


@pytest.mark.parametrize("gone", [False, True])
def test_an_old_list_of_homes_that_comes_again_changes_nothing(world: World, gone: bool) -> None:
    """The home has moved since; nobody goes back to where it was, or believes that it is gone."""
    host = world.nodes[HOST].me
    before = epoch_of(world)
    world.ask(HOST, Leave())
    world.run(30)
    assert HOST not in world.nodes
    moved = world.nodes[1].directory.get(HOME)
    assert moved is not None
    assert moved.epoch > before
    told(world, Sync(7, b"old", (Entry(HOME, before, host, gone),)))
    for number in (1, 3):
        assert world.nodes[number].directory.get(HOME) == moved
    world.acknowledges = True
    world.publish(1, "later", price=3)
    world.run(10)
    assert ("s", "later") in unmarked(world)


def test_a_copy_under_an_epoch_that_is_new_is_believed(world: World) -> None:
    """So a home that moves is safe before all have heard of it."""
    epoch = epoch_of(world) + 1
    told(world, Replicate(7, HOME, epoch, 1, (record(epoch * VERSIONS_PER_EPOCH, b"x"),), (), False, False))
    assert "peer_refused" not in world.observed
    assert copies(world)[1][NAME] == epoch * VERSIONS_PER_EPOCH
