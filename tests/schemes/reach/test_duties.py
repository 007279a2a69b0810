"""Duties on a running network: every required place once, whatever is lost, late or twice."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published, Stored
from meetpoint.api.requests import Subscribe, Update
from meetpoint.language import clean_attributes, parse_filter
from meetpoint.matching.scan import Scan
from meetpoint.overlays.hypercube import Region
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US
from meetpoint.placement.entries.placement import RETAIN_US
from meetpoint.placement.messages import DeliverToHome, KeyedReply
from meetpoint.schemes.reach.duties import DELIVER_US, HEARD_US
from meetpoint.schemes.reach.ids import is_required
from meetpoint.schemes.reach.messages import DutyReply
from tests.placement.small_world import CODEC, free, home
from tests.schemes.reach.small_world import (
    NAMES,
    PLAIN,
    SIXTEEN,
    UNEVEN,
    ReachWorld,
    answer_in,
    attributes,
    handle_in,
)

SIGNED = msgspec.structs.replace(PLAIN, ids="signatures", width=8)
UNTOLD = msgspec.structs.replace(SIGNED, schema="")
SECOND = 1_000_000


# -- when all is quiet -------------------------------------------------------------------------------------------------


def test_the_nodes_are_the_sixteen_regions_of_four_bits() -> None:
    world = ReachWorld()
    world.run(2)
    assert sorted(region for _, region in world.regions()) == [Region(bits, 4) for bits in range(16)]
    assert len({number for number, _ in world.regions()}) == 16


def test_the_event_of_figure_2_takes_2_to_the_b_less_1_sends_and_0000_has_it() -> None:
    """One more from where it is published: in this overlay every way is one hop."""
    world = ReachWorld()
    world.run(2)
    zeros, root = world.holder(0), world.holder(0b100111)
    world.subscribed(8, "all", "TRUE")
    publisher = next(number for number in world.others(root))
    world.publish(publisher, "e", **attributes(0b100111))
    world.run(2)
    assert world.came() == [("all", "e")]
    assert len(world.handed) == 2**3 - 1 + 1
    by_node = dict(world.regions())
    assert sorted(by_node[to].bits for _, to, _, _ in world.handed) == list(range(8)), "each once"
    assert zeros in {to for _, to, _, _ in world.handed}
    below = sorted(to for source, to, _, _ in world.handed if source == root)
    assert {(by_node[to].bits ^ 0b111).bit_count() for to in below} == {1}, "to neighbours"
    assert len(below) == 3
    assert world.observed["event_hops"] == sum((4 - bits.bit_count()) for bits in range(8)), (
        "one more for each bit less"
    )


@pytest.mark.parametrize("numbers", [SIXTEEN, UNEVEN, (65,), (1, 33)], ids=["even", "uneven", "alone", "two"])
def test_when_all_is_quiet_each_required_region_serves_an_event_once(numbers: tuple[int, ...]) -> None:
    world = ReachWorld(numbers)
    world.run(2)
    world.subscribed(numbers[0], "all", "TRUE")
    regions = list(world.regions())
    events = range(0, 1 << len(NAMES), 3)
    for event in events:
        publisher = numbers[event % len(numbers)]
        if numbers == UNEVEN:  # the first one tells how short regions are
            world.publish_as("q", event, publisher, f"first {event}", **attributes(event))
            world.run(1)
        world.handed.clear()
        served = world.observed.get("reach_served", 0)
        world.publish_as("p", event, publisher, f"e{event}", **attributes(event))
        world.run(1)
        required = [region for _, region in regions if is_required(region, event)]
        assert world.observed["reach_served"] - served == len(required), f"{event:06b}"
        if numbers in (SIXTEEN, (65,)):
            here = world.holder(event) == publisher
            assert len(world.handed) == len(required) - 1 + (not here)
        assert len(set(world.handed)) == len(world.handed), "no duty goes anywhere twice"
    assert len([each for _, each in world.came() if each.startswith("e")]) == len(events)
    assert "reach_left" not in world.observed
    assert world.under_way() == []


def test_a_short_region_that_an_answer_tells_of_counts_for_a_while() -> None:
    """A tree turns only as many bits as the shortest region has, also of those that are far away."""
    world = _begun()
    root = world.holder(0b111)
    scheme = world.scheme(root)
    assert scheme._duties.floor == 4

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedReply) and to == root and isinstance(answer := answer_in(message), DutyReply):
            short = CODEC.encode(msgspec.structs.replace(answer, shortest=2))
            world.say(root, msgspec.structs.replace(message, body=short))
            return ()
        return None

    world.weather = weather
    world.publish(40, "e", **attributes(0b111))
    world.run(2)
    assert scheme._duties.floor == 2
    world.run(HEARD_US / SECOND)
    assert scheme._duties.floor == 4


# -- as the oracle says ------------------------------------------------------------------------------------------------


def _filter(random: Random) -> str:
    def one() -> str:
        name = random.choice(NAMES)
        return random.choice(
            (
                f"{name} = {random.randrange(3)}",
                f"{name} > {random.randrange(3)}",
                f"{name} IS NULL",
                f"{name} != 1",
                f"{name} IN (0, 2)",
                f"NOT ({name} = 2)",
                "TRUE",
            )
        )

    both = [" AND ".join(one() for _ in range(random.randrange(1, 4))) for _ in range(random.randrange(1, 3))]
    return " OR ".join(f"({each})" for each in both)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PLAIN, SIGNED, UNTOLD], ids=["attributes", "signatures", "no schema"])
@pytest.mark.parametrize("numbers", [SIXTEEN, UNEVEN, (7, 19, 30, 41, 62)], ids=["even", "uneven", "odd"])
def test_what_comes_is_what_the_oracle_accepts(numbers: tuple[int, ...], settings: object) -> None:
    random = Random(f"{numbers}")
    world = ReachWorld(numbers, reach=settings)  # type: ignore[arg-type]
    world.run(2)
    oracle: Scan[str] = Scan()
    for number in range(40):
        text = _filter(random)
        world.ask(random.choice(numbers), Subscribe(f"s{number}", text))
        oracle.add(f"s{number}", parse_filter(text))
    world.run(4)
    due = []
    for number in range(60):
        event: dict[str, Any] = {name: random.randrange(3) for name in NAMES if random.random() < 0.5}
        world.publish_as("p", number, random.choice(numbers), f"e{number}", **event)
        due += [(name, f"e{number}") for name in oracle.match(clean_attributes(event))]
    world.run(4)
    assert len(due) > 200
    assert sorted(world.came()) == sorted(due)


# -- twice, late, lost -------------------------------------------------------------------------------------------------


def _begun() -> ReachWorld:
    """A network in which node 8 wants everything, of which the entry lies at 0000; 40 is to publish."""
    world = ReachWorld()
    world.run(2)
    world.subscribed(8, "all", "TRUE")
    world.subscribed(16, "some", "a = 1 AND b = 1")
    return world


DUE = [("all", "e"), ("some", "e")]


def _is_settled(world: ReachWorld, number: int) -> bool:
    return not world.scheme(number)._dissemination.waiting


def test_what_comes_twice_is_handled_once() -> None:
    world = _begun()
    world.weather = lambda source, to, message: (10_000, 30_000, 5 * SECOND)
    request = world.publish(40, "e", **attributes(0b111))
    world.run(3)
    assert sorted(world.came()) == DUE
    assert isinstance(world.answers[request], Published)
    assert world.observed["reach_served"] == 8
    world.weather = lambda source, to, message: None
    world.run(20)
    assert sorted(world.came()) == DUE
    assert world.observed["reach_served"] == 8, "late ones get the same answer"
    assert world.under_way() == []


def test_a_duty_that_comes_again_joins_the_one_under_way() -> None:
    """Each answer takes longer than whoever waits for it: it asks again."""
    world = _begun()

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        return (1_200_000,) if isinstance(message, KeyedReply) and isinstance(answer_in(message), DutyReply) else None

    world.weather = weather
    world.publish(40, "e", **attributes(0b111))
    world.run(12)
    assert sorted(world.came()) == DUE
    assert world.observed["errand_again"] > 3
    assert world.observed["reach_served"] == 8
    assert _is_settled(world, 40)


def test_an_answer_that_is_lost_is_given_again() -> None:
    world = _begun()
    lost: dict[tuple[int, int], None] = {}

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedReply) and isinstance(answer_in(message), DutyReply) and (source, to) not in lost:
            lost[source, to] = None
            return ()
        return None

    world.weather = weather
    world.publish(40, "e", **attributes(0b111))
    world.run(10)
    assert len(lost) == 8
    assert world.observed["reach_served"] == 8
    assert _is_settled(world, 40)
    assert sorted(world.came()) == DUE


def test_a_duty_of_a_former_attempt_that_comes_late_brings_nothing_twice() -> None:
    world = _begun()

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        return (20_000, 30 * SECOND) if handle_in(message) is not None else None

    world.weather = weather
    world.publish(40, "e", **attributes(0b111))
    world.run(3)
    world.crash(40)  # and nobody who answered remembers it
    for number in world.others():
        world.crash(number)
    for number in SIXTEEN:
        world.start(number, contacts=[each for each in SIXTEEN if each != number])
    world.run(60)
    assert sorted(world.came()) == DUE
    assert world.under_way() == []


@pytest.mark.parametrize("at", [0b111, 0b110, 0b100, 0])
@pytest.mark.parametrize("after", [0.03, 0.06, 0.1])
def test_whoever_crashes_with_a_duty_it_is_handled_all_the_same(at: int, after: float) -> None:
    world = _begun()
    relay = world.holder(at)
    world.publish(40, "e", **attributes(0b111))
    world.run(after)
    world.crash(relay)
    world.run(4)
    world.start(relay, contacts=world.others())
    world.run(40)
    assert sorted(set(world.came())) == DUE
    assert _is_settled(world, 40)
    assert world.under_way() == []


def test_a_duty_that_cannot_be_handled_is_given_up_and_tried_again() -> None:
    world = _begun()
    zeros = world.holder(0)
    world.weather = lambda source, to, message: () if zeros in (source, to) else None
    world.publish(40, "e", **attributes(0b111))
    world.run(ATTEMPT_US / SECOND + 6)
    assert world.observed["event_again"] == 1
    assert world.observed["reach_given_up"] >= 3
    assert len(set(_attempts(world))) <= 2, "former attempts are given up everywhere"
    assert sorted(world.came()) == [("some", "e")]
    world.weather = lambda source, to, message: None
    world.run(12)
    assert sorted(world.came()) == DUE
    assert world.under_way() == []
    world.run(ATTEMPT_US / SECOND)
    assert [world.scheme(number)._rpc.waiting for number in world.others()] == [0] * 16


def test_another_attempt_looks_again_where_one_before_it_was() -> None:
    """A subscription changes between attempts: its old entry is gone before the event finds it, its new one came after
    the event had been there.
    """
    world = ReachWorld()
    world.run(2)
    world.subscribed(16, "s", "c = 1")
    old = world.holder(0b100)
    world.weather = lambda source, to, message: () if to == old and handle_in(message) is not None else None
    world.publish(40, "e", **attributes(0b111))
    world.run(1)
    world.ask(16, Update("s", "a = 1 AND b = 1"))
    world.run(1.5 * RETAIN_US / SECOND)
    assert len(world.scheme(old)._tables.at(home(old))) == 0
    assert world.came() == [("s", "e")]
    world.weather = lambda source, to, message: None
    world.run(10)
    assert _is_settled(world, 40)


def _attempts(world: ReachWorld) -> list[int]:
    return [key.attempt for number in world.others() for key in world.scheme(number)._duties._working]


# -- homes that are slow -----------------------------------------------------------------------------------------------


def test_a_home_that_is_slow_is_left_to_the_origin() -> None:
    world = _begun()
    bringers: list[int] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, DeliverToHome) and to == 8:
            bringers.append(source)
            return () if world.now < until else None
        return None

    until = world.now + 4 * SECOND
    world.weather = weather
    world.publish(40, "e", **attributes(0b111))
    world.run(0.3)
    (event,) = {key.event for number in world.others() for key in world.scheme(number)._duties._working}
    scheme = world.scheme(40)
    assert scheme.may_reach(event, home(20)), "nobody knows yet"
    world.run(DELIVER_US / SECOND + 0.5)
    assert sorted(world.came()) == [("some", "e")]
    assert world.observed["reach_left"] == 1
    assert world.under_way() == [], "the tree does not wait"
    assert scheme.may_reach(event, home(8))
    assert not scheme.may_reach(event, home(20))
    assert not scheme.may_reach(event, home(16)), "it has it"
    assert "errand_again" not in world.observed, "nor does anyone ask again"
    world.run(4)
    assert sorted(world.came()) == DUE
    assert bringers[0] == world.holder(0)
    assert bringers[-1] == 40
    assert _is_settled(world, 40)
    assert "event_again" not in world.observed
    assert world.observed["reach_served"] == 8


def test_homes_that_several_places_wait_for_are_named_once() -> None:
    world = _begun()
    world.subscribed(8, "more", "c = 1")
    world.cut_off(8)
    world.publish(40, "e", **attributes(0b111))
    world.run(4)
    assert world.observed["reach_left"] == 1
    world.heal()
    world.run(10)
    assert sorted(world.came()) == [("all", "e"), ("more", "e"), ("some", "e")]
    assert _is_settled(world, 40)


# -- arcs that move ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [0b111, 0b011, 0])
@pytest.mark.parametrize("after", [0, 0.03, 0.05, 0.08])
def test_whatever_arc_moves_while_an_event_is_on_its_way_nothing_is_missed(moved: int, after: float) -> None:
    world = _begun()
    world.publish(40, "e", **attributes(0b111))
    world.run(after)
    free(world, world.holder(moved))
    world.run(8)
    assert sorted(set(world.came())) == DUE
    assert _is_settled(world, 40)
    world.publish_as("p", 2, 57, "f", **attributes(0b1011))
    world.run(5)
    assert sorted(world.came()) == [("all", "e"), ("all", "f"), ("some", "e"), ("some", "f")]


def test_what_a_new_subscription_is_told_to_be_safe_every_later_event_meets() -> None:
    """Acknowledged, while the place where it lies moves."""
    world = ReachWorld()
    world.run(2)
    place = world.holder(0b11)
    request = world.ask(16, Subscribe("some", "a = 1 AND b = 1"))
    world.run(0.02)
    free(world, place)
    number = 0
    while world.answers.get(request) != Stored():
        world.run(0.01)
    for number in range(1, 30):
        world.publish_as("p", number, SIXTEEN[number % 16], f"e{number}", **attributes(0b11))
        world.run(0.02)
    world.run(8)
    assert len(world.came()) == 29
