"""Keys under which many lie: further ones go to children, and to children of those; events find all of them."""

from __future__ import annotations

from itertools import count

import pytest

from meetpoint.api.messages import Message
from meetpoint.api.requests import Subscribe
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.meet import MeetSettings
from meetpoint.schemes.meet.entries import KeyEntry, place_of, read_key_entry
from meetpoint.schemes.meet.messages import SummaryUpdate
from tests.placement.eyes import misplaced, parts
from tests.placement.small_world import RING, MeetWorld, home
from tests.schemes import busy


def network(crowded: int, children: int, nodes: int, seed: int, faults: str = "none", lease_s: int = 5) -> Network:
    meet = MeetSettings(crowded=crowded, children=children, lease_us=lease_s * 1_000_000)
    return busy.network(NetworkConfig(scheme="meet", meet=meet), nodes, seed, faults, timing=Timing())


def paths(net: Network) -> list[tuple[int, ...]]:
    """Of all conjunctions that are placed, how they came from their key to where they are."""
    entries = [
        each for _, custody, _, _ in parts(net) for placed in custody.entries.values() for each in placed.values()
    ]
    filed = [read_key_entry(entry.body) for entry in entries]
    return [each.path for each in filed if each is not None and each.text]


@pytest.mark.parametrize(("crowded", "children"), [(2, 2), (3, 8)])
def test_events_reach_all_under_a_crowded_key(crowded: int, children: int) -> None:
    net = network(crowded, children, 6, seed=4)
    names = [net.subscribe("symbol = 'A'") for _ in range(30)]
    other = net.subscribe("symbol = 'B'")
    event = net.publish({"symbol": "A"}, phase="after")
    net.run()
    assert net.notifications == {**{name: [event] for name in names}, other: []}
    found = paths(net)
    assert len(found) == 31
    assert sum(not path for path in found) == crowded + 1
    assert max(map(len, found)) >= (3 if children == 2 else 1)
    assert misplaced(net) == []
    assert net.report().good


def test_where_paths_end_there_is_no_crowd() -> None:
    net = network(1, 1, 4, seed=2)
    names = [net.subscribe("symbol = 'A'") for _ in range(14)]
    event = net.publish({"symbol": "A"}, phase="after")
    net.run()
    assert net.notifications == {name: [event] for name in names}
    assert sorted(map(len, paths(net))) == [0, 1, 2, 3, 4, 5, 6, *[7] * 7]


@pytest.mark.parametrize("faults", ["churn", "all"])
def test_few_keys_and_many_faults(faults: str) -> None:
    net = network(2, 3, 8, seed=11, faults=faults)
    names = [net.subscribe(f"symbol = '{'AB'[number % 2]}'") for number in range(24)]
    for number, name in enumerate(names[:6]):
        net.update(name, f"symbol = '{'BA'[number % 2]}' AND price > 1", phase="faults")
    for name in names[6:9]:
        net.unsubscribe(name, phase="faults")
    for number in range(6):
        net.subscribe(f"symbol = '{'AB'[number % 2]}'", phase="faults")
    for number in range(24):
        phase = ("faults", "recovery", "after")[number % 3]
        net.publish({"symbol": "AB"[number % 2], "price": number}, phase=phase)  # type: ignore[arg-type]
    net.run()
    report = net.report()
    assert report.counts == dict.fromkeys(report.counts, 0), report.problems
    assert any(paths(net))


def test_what_lies_under_a_child_is_not_acknowledged_before_publishers_know_its_parent() -> None:
    """A publisher that passes the key by, as its summary says, hears of no children either."""
    second = 1_000_000
    world = MeetWorld(4, meet=MeetSettings(lease_us=8 * second, crowded=1, children=1))
    world.run(2)
    parent, child = (KeyRange(bytes(RING.key(low)), bytes(RING.key(low + 1000))) for low in (1000, 3000))
    keys = (MeetKey(KeySort.VALUE, "symbol", "string", 0, 0, f"V{number}") for number in count())
    value = next(
        key.text for key in keys if parent.holds(place_of(RING, key)) and child.holds(place_of(RING, key, (0,)))
    )
    world.publish(1, "before", symbol=value)
    world.run(1)
    assert world.scheme(1)._summaries.arcs(home(2)), "the publisher knows what is in use at the parent: nothing"
    world.scheme(1)._summaries.forget(home(4))
    lost = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, SummaryUpdate) and (source, to) == (2, 1):
            lost.append(message)
            return ()
        return None

    world.weather = weather
    world.ask(3, Subscribe("first", f"symbol = '{value}'"))
    world.run(0.3)
    request = world.ask(3, Subscribe("second", f"symbol = '{value}'"))
    for _ in range(200):
        world.run(0.1)
        if request in world.answers:
            break
    assert lost
    assert [each.path for each in filed_at(world, 4)] == [(0,)]
    world.publish(1, "after", symbol=value)
    world.run(10)
    assert ("second", "after") in world.came()


def filed_at(world: MeetWorld, number: int) -> list[KeyEntry]:
    """What lies at a node."""
    entries = world.scheme(number)._ownership.entries.values()
    return [
        filed for there in entries for entry in there.values() if (filed := read_key_entry(entry.body)) and filed.text
    ]
