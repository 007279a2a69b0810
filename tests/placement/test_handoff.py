"""Arcs that change hands while messages are late, disks are lost and homes end: for each rule of custody a world in
which nothing else prevents that two hold a key, or nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from meetpoint.api.messages import Message
from meetpoint.api.requests import Leave
from meetpoint.node.cluster.directory import Entry as Listed
from meetpoint.node.cluster.directory import Sync, Synced
from meetpoint.node.cluster.replication import Replicate
from meetpoint.placement.messages import OfferRange, RangeTaken
from tests.placement.small_world import MeetWorld, free, home, symbols_between
from tests.placement.test_races import US, Lost, on


def owed(world: MeetWorld) -> list[str]:
    """What homes still have to give, or to tell that they took it; nothing, when all is quiet."""
    return [
        f"{each.hex()}: {owned.given} {owned.taken}"
        for number in world.nodes
        for each, owned in world.scheme(number)._ownership.owned_ranges.items()
        if owned.given or owned.taken
    ]


def test_a_gap_is_not_taken_by_one_whose_list_is_not_complete() -> None:
    """Home 8 has an arc, and home 7 has not heard of it; those who have list home 7 as well."""
    world = MeetWorld(4, gossip_us=1000 * US)
    world.run(2)
    upper = {1, 2, 8}
    lost = Lost(
        world, lambda source, to, message: isinstance(message, Sync | Synced) and (source in upper) != (to in upper)
    )
    world.weather = lost
    world.start(8, contacts=[1])
    world.nodes[8].home_manager.kept_disk = True  # else it would wait until it has asked the others whether it is new
    world.run(8)
    assert world.arcs()[home(8)]
    world.start(7, contacts=[3])
    world.nodes[7].home_manager.kept_disk = True
    world.run(3)
    node = world.nodes[7]
    assert node.state == "ready"
    assert node.directory.get(home(8)) is None
    for number in (1, 2):
        other = world.nodes[number]
        effects = other._runtime.begin(world.local(number))
        other.directory.learn([Listed(home(7), 1, node.me)])
        world._apply(number, other, effects)
    world.run(8)
    assert home(7) not in world.arcs()
    lost.until = world.now
    world.run(20)
    world.check_arcs()


def lose(world: MeetWorld, number: int) -> None:
    """A node crashes, and with its disk all copies of its home are lost."""
    world.crash(number, lose_disk=True)
    for other, node in world.nodes.items():
        world.disks[other] = {key: each for key, each in world.disks[other].items() if key[0] != home(number)}
        node.home_manager.replicas._held.pop(home(number), None)


def test_a_home_that_lost_everything_counts_its_arcs_on() -> None:
    """A publisher knows what home 1 held long ago. Home 1 loses all; what it holds now has another number."""
    world = MeetWorld(4)
    world.run(2)
    one = on(world, 2, 7000, 1000, "one")
    world.publish(3, "before", symbol=one)
    world.run(2)
    world.start(7, contacts=[2])
    world.run(5)
    other = on(world, 4, 4000, 7000, "other", "color", 45)
    lose(world, 1)
    world.start(1, contacts=[2])
    world.run(60)
    world.check_arcs()
    again = on(world, 2, 7000, 1000, "again", "shape", 45)
    world.publish(3, "first", shape=again)
    world.run(3)
    world.publish(3, "second", color=other)
    world.run(10)
    assert ("other", "second") in world.came()


def test_nobody_hears_of_a_gift_that_is_not_on_two_disks() -> None:
    world = MeetWorld(4)
    world.run(3)
    world.weather = lost = Lost(world, lambda source, to, message: isinstance(message, Replicate) and source == 1)
    world.start(7, contacts=[2])
    world.run(8)
    assert home(7) not in world.arcs()
    world.crash(1, lose_disk=True)
    lost.until = world.now
    world.run(1)
    world.start(1, contacts=[2])
    world.run(30)
    world.check_arcs()
    assert owed(world) == []


def test_nobody_hears_that_a_gift_is_forgotten_before_it_is_on_two_disks() -> None:
    world = MeetWorld(4)
    world.run(3)
    seen: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, RangeTaken) and to == 1:
            seen.append(world.now)
        return () if seen and isinstance(message, Replicate) and source == 1 else None

    world.weather = weather
    world.start(7, contacts=[2])
    world.run(3)
    assert seen
    world.crash(1, lose_disk=True)
    world.weather = lambda source, to, message: None
    world.run(1)
    world.start(1, contacts=[2])
    world.run(40)
    world.check_arcs()
    assert owed(world) == []


def test_who_took_an_arc_says_so_also_after_a_restart() -> None:
    world = MeetWorld(4)
    world.run(3)
    world.weather = lost = Lost(world, lambda source, to, message: isinstance(message, RangeTaken))
    world.start(7, contacts=[2])
    world.run(5)
    assert lost.count
    assert owed(world)
    world.crash(7)
    lost.until = world.now
    world.run(0.5)
    world.start(7, contacts=[2])
    world.run(30)
    world.check_arcs()
    assert owed(world) == []


def test_an_heir_that_ended_before_it_heard_leaves_the_arc_where_it_was() -> None:
    world = MeetWorld(4, holding_us=1000 * US)
    world.run(2)
    world.ask(4, Leave())
    world.run(20)
    node = world.nodes[1]
    assert home(4) in node.home_manager.homes
    world.weather = lost = Lost(world, lambda source, to, message: isinstance(message, OfferRange) and source == 3)
    free(world, 3)  # to home 4
    free(world, 1, home(4))  # to home 1
    world.run(3)
    assert lost.count
    effects = node._runtime.begin(world.local(1))
    assert world.scheme(1)._ownership.is_free(node.home_manager.homes[home(4)])
    node._runtime.start("dissolve", node.home_manager._dissolve(home(4)))
    world._apply(1, node, effects)
    lost.until = world.now
    world.run(30)
    world.check_arcs()
    assert owed(world) == []


@pytest.mark.parametrize("order", [(3, 4), (4, 3), (4, 1, 2), (2, 3, 4)])
def test_all_may_give_at_once(order: tuple[int, ...]) -> None:
    world = MeetWorld(4)
    world.run(3)
    value = on(world, 2, 2000, 3000, "s")
    for number in order:
        free(world, number)
    world.run(60)
    world.check_arcs()
    assert owed(world) == []
    world.publish(1, "e", symbol=value)
    world.run(10)
    assert world.came() == [("s", "e")]


def test_an_errand_that_comes_to_two_who_do_not_hold_its_key_finds_the_third() -> None:
    world = MeetWorld(2, seed=3)
    world.run(12)
    symbol, other = symbols_between(1000, 2000)[:2]
    world.subscribed(2, "first", f"symbol = '{symbol}'")
    world.start(3, contacts=(1, 2))
    free(world, 2)  # to node 1, while routing goes on leading its keys to node 2
    world.run(2)
    world.subscribed(3, "second", f"symbol = '{other}'", 15)
