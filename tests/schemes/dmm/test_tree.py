"""The tree in a network where nothing goes wrong: what is split, what is not, who is met where, what is asked."""

from __future__ import annotations

import msgspec
import pytest

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Leave, Subscribe, Update
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX
from meetpoint.placement.entries.entry_table import FEW_MAX, StoredEntry
from meetpoint.placement.messages import KeyedRequest
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.schemes.dmm.entries import StoredRegion, read_body, region_entry_name
from meetpoint.schemes.dmm.messages import AddEntry
from meetpoint.schemes.dmm.region_changes import GONE_US, WITHDRAWN_US
from meetpoint.schemes.dmm.space import ROOT
from tests.placement.small_world import CODEC
from tests.schemes.dmm.small_world import EAGER, NUMBERS, DmmWorld

EVERYWHERE = [(a, b) for a in range(1, 15, 4) for b in range(1, 15, 4)]


def world_of(dmm: DmmSettings = EAGER, seed: int = 1) -> DmmWorld:
    world = DmmWorld(seed=seed, dmm=dmm)
    world.run(2)
    return world


def grown(dmm: DmmSettings = EAGER) -> DmmWorld:
    """With a subscription at each of some points, and more leaves than one."""
    world = world_of(dmm)
    for number, (a, b) in enumerate(EVERYWHERE):
        world.want(NUMBERS[number % 6], f"p{number}", a, b)
    world.run(40)
    world.check_quiet()
    return world


def met(world: DmmWorld, event: str) -> set[str]:
    return {name for name, each, _ in world.notified if each == event}


def test_a_tree_grows_where_there_is_much_and_events_find_their_leaf() -> None:
    world = grown()
    assert len(world.leaves()) >= 8
    assert world.observed["region_split"] == len(world.leaves()) - 1
    for number, (a, b) in enumerate(EVERYWHERE):
        world.publish(NUMBERS[-1 - number % 6], f"e{number}", a=a, b=b)
    world.run(5)
    assert {(name, event) for name, event, _ in world.notified} == {(f"p{n}", f"e{n}") for n in range(len(EVERYWHERE))}


def test_a_subscription_that_meets_all_leaves_lies_in_all_and_comes_to_none_twice() -> None:
    world = grown()
    request = world.ask(10, Subscribe("all", "a >= 0 OR a < 0 OR a IS NULL"))
    world.run(5)
    assert world.answers[request] == Stored()
    world.check_quiet()
    for number, (a, b) in enumerate(EVERYWHERE):
        world.publish(40, f"e{number}", a=a, b=b)
    world.publish(40, "no b", a=3)
    world.publish(40, "no a", b=3)
    world.publish(40, "nothing")
    world.run(5)
    assert sorted(event for name, event, _ in world.notified if name == "all") == sorted(
        ["no b", "no a", "nothing", *(f"e{number}" for number in range(len(EVERYWHERE)))]
    )


def test_what_an_event_lacks_has_a_place_of_its_own() -> None:
    world = grown()
    for name, text in (("no a", "a IS NULL"), ("neither", "a IS NULL AND b IS NULL"), ("b", "b = 1"), ("c", "c = 1")):
        world.subscribed(10, name, text)
    world.publish(20, "e0")
    world.publish(20, "e1", b=1)
    world.publish(20, "e2", a=1, b=2)
    world.publish(20, "e3", c=1)
    world.publish(20, "e4", a="of another kind", b=1)
    world.run(5)
    assert [met(world, f"e{number}") for number in range(5)] == [
        {"no a", "neither"}, {"no a", "b"}, set(), {"no a", "neither", "c"}, {"b"},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["a = 3 AND b = 3", "c = 1", "a = 3"])
def test_what_no_split_parts_is_not_split(text: str) -> None:
    """Entries that are all alike: in one cell, over the whole space, or over all of one dimension."""
    settings = msgspec.structs.replace(EAGER, delegation="probed")
    world = world_of(settings)
    for number in range(12):
        world.ask(NUMBERS[number % 6], Subscribe(f"s{number}", text))
    world.run(60)
    assert world.observed.get("region_split", 0) == 0
    assert world.leaves() == [ROOT]
    world.publish(10, "e", a=3, b=3, c=1)
    world.run(5)
    assert met(world, "e") == {f"s{number}" for number in range(12)}
    assert world.observed.get("region_split_refused", 0) <= 8, "it is asked again when it has grown"


def test_the_depth_limit_ends_splitting() -> None:
    world = grown(msgspec.structs.replace(EAGER, depth=2))
    assert world.leaves() == ["00", "01", "10", "11"]
    world = grown(msgspec.structs.replace(EAGER, depth=0))
    assert world.leaves() == [ROOT]


def test_without_a_schema_there_is_one_region() -> None:
    world = grown(msgspec.structs.replace(EAGER, schema=""))
    assert world.leaves() == [ROOT]
    world.publish(10, "e", a=1, b=1)
    world.run(3)
    assert met(world, "e") == {"p0"}


def test_a_network_that_never_splits_never_does() -> None:
    world = grown(msgspec.structs.replace(EAGER, delegation="never"))
    assert world.leaves() == [ROOT]


@pytest.mark.slow
@pytest.mark.parametrize("coverage", ["covering", "uncovered"])
def test_a_tree_shrinks_to_its_root_and_is_forgotten(coverage: str) -> None:
    world = grown(msgspec.structs.replace(EAGER, coverage=coverage))
    for number in range(len(EVERYWHERE)):
        world.end(NUMBERS[number % 6], f"p{number}")
    world.run(90)
    assert world.leaves() == [ROOT]
    assert world.observed["region_merged"] == world.observed["region_split"]
    world.check_quiet()
    world.run((GONE_US + WITHDRAWN_US) / 1_000_000)
    left = [name for scheme in world.schemes() for entries in scheme._ownership.entries.values() for name in entries]
    assert left == ["region/"], "what was withdrawn and what is gone are remembered for a while only"


def test_withdrawn_entries_do_not_come_back_by_a_late_message() -> None:
    world = world_of()
    kept: list[tuple[int, KeyedRequest]] = []

    def weather(source: int, to: int, message: Message) -> None:
        if isinstance(message, KeyedRequest) and isinstance(CODEC.decode(message.body), AddEntry):
            kept.append((to, message))

    world.weather = weather
    world.subscribed(64, "s", "a = 1")
    world.end(64, "s")
    world.run(25)
    world.check_quiet()
    for to, errand in kept:
        world.say(to, errand)
    world.run(1)
    assert world.observed["entry_late"] == 1
    world.check_quiet()


def test_a_leaf_that_is_known_is_asked_at_once_and_one_that_moved_is_found_again() -> None:
    world = grown()
    point = {"a": 1, "b": 1}

    def asked() -> int:
        before = world.observed.get("regions_asked", 0)
        world.publish(64, f"e{before}", **point)
        world.run(3)
        assert met(world, f"e{before}") == {"p0"}
        return world.observed["regions_asked"] - before

    first = asked()
    assert 1 <= first <= 3, "log2 of the depth"
    assert [asked(), asked()] == [1, 1]
    for number in range(1, len(EVERYWHERE)):
        world.end(NUMBERS[number % 6], f"p{number}")
    world.run(90)
    assert world.leaves() == [ROOT]
    assert asked() >= 2
    assert asked() == 1


def test_an_update_moves_an_entry_from_leaf_to_leaf() -> None:
    world = grown()
    request = world.ask(NUMBERS[0], Update("p0", "a = 13 AND b = 5"))
    world.run(3)
    assert world.answers[request] == Stored()
    world.publish(20, "old", a=1, b=1)
    world.publish(20, "new", a=13, b=5)
    world.run(5)
    assert (met(world, "old"), "p0" in met(world, "new")) == (set(), True)
    world.run(100)
    world.check_quiet()


def test_regions_go_along_with_a_broker_that_leaves() -> None:
    world = grown()
    for number in (20, 30):
        world.ask(number, Leave())
        world.run(60)
        assert number not in world.nodes
    world.run(30)
    world.check_quiet()
    for number, (a, b) in enumerate(EVERYWHERE):
        world.publish(10, f"e{number}", a=a, b=b)
    world.run(10)
    assert {event for name, event, _ in world.notified if name == f"p{event[1:]}"} == {
        f"e{number}" for number in range(len(EVERYWHERE))
    }


def test_a_leaf_with_many_entries_has_an_index() -> None:
    space = world_of().scheme(20)._space
    region = StoredRegion(ROOT)
    names = []
    for number in range(FEW_MAX + 10):
        body = msgspec.msgpack.encode(StoredEntry(number, 0, f"a = {number % 7} AND c >= {number}"))
        read = read_body(body, space)
        assert read is not None
        names.append(region_entry_name(HomeId(b"h"), number, ROOT))
        region.add(names[-1], HomeId(b"h"), read)
    event = {"a": 3, "c": 1_000}
    expected = [number for number in range(1_001) if number % 7 == 3]

    def found() -> list[int]:
        return [subid // CONJUNCTIONS_MAX for subid in region.match(event)[HomeId(b"h")]]

    assert found() == expected
    region.remove(names[3])
    assert found() == expected[1:]
    for name in names[FEW_MAX // 2 - 1 :]:
        region.remove(name)
    assert found() == [number for number in expected[1:] if number < FEW_MAX // 2 - 1]
