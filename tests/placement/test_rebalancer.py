"""Custody follows an overlay that says whose keys are: whatever that says, and whenever nodes crash or messages are
lost, no two homes ever hold a key, nothing placed is lost, and when the overlay stays as it is, all is where it leads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Leave, Unsubscribe
from meetpoint.node.cluster.replication import Replicate, ReplicateAck
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import (
    ClaimRange,
    ClaimReply,
    NotOwner,
    OfferAccepted,
    OfferRange,
    PullRange,
    PullReply,
    RangeForgotten,
    RangeTaken,
)
from meetpoint.placement.ownership.range_store import GivenRange, OwnedRanges, cut
from tests.placement.rebalancing_world import EVERYTHING, FollowingWorld, arc
from tests.placement.small_world import RING, free, home
from tests.placement.test_races import US, Lost, forget_custody, on, restart_all, value_between

QUARTERS = ((16000, 1), (32000, 2), (48000, 3), (0, 4))
SWAPPED = ((16000, 1), (32000, 3), (48000, 2), (0, 4))
"""Nodes 2 and 3 have each other's keys."""
ATTRIBUTES = ("symbol", "color", "shape", "size")


def settled(*cuts: tuple[int, int], nodes: int | None = None, seed: int = 1, **settings: int) -> FollowingWorld:
    """A world in which a subscription is placed in each quarter of the circle, under an attribute of its own."""
    world = FollowingWorld(*cuts, nodes=nodes, seed=seed, **settings)
    world.run(2)
    for at, attribute in enumerate(ATTRIBUTES):
        on(world, at % len(world.nodes) + 1, 16000 * at, 16000 * (at + 1), attribute, attribute, 6)
    return world


def values() -> dict[str, str]:
    return {each: value_between(16000 * at, 16000 * (at + 1), each) for at, each in enumerate(ATTRIBUTES)}


def assert_all_come(world: FollowingWorld, at: int = 1) -> None:
    """One event for each subscription comes to it, and no other."""
    before = len(world.came())
    for attribute, value in values().items():
        world.publish(at, f"{attribute}{world.now}", **{attribute: value})
    now = world.now
    world.run(8)
    assert sorted(world.came()[before:]) == sorted((each, f"{each}{now}") for each in ATTRIBUTES)


# -- while nothing fails -----------------------------------------------------------------------------------------------


def test_founders_hold_what_the_overlay_says_and_who_has_no_keys_holds_nothing() -> None:
    world = FollowingWorld((20000, 3), (50000, 1), (0, 4), nodes=5)
    world.run(3)
    world.assert_quiet()
    assert world.arcs()[home(2)] == world.arcs()[home(5)] == ()
    assert world.looks == 0


def test_what_the_overlay_leads_elsewhere_goes_there_with_all_that_is_placed() -> None:
    world = settled(*QUARTERS)
    world.lead((8000, 4), (16000, 1), (40000, 3), (0, 2))
    world.run(20)
    world.assert_quiet()
    assert_all_come(world)
    looks = world.looks
    world.run(20)
    assert world.looks == looks, "nobody looks for what is where it belongs"


def test_a_newcomer_gets_what_it_is_led_to_and_nothing_for_having_come() -> None:
    world = settled(*QUARTERS)
    world.start(5, contacts=[2])
    world.run(20)
    world.assert_quiet()
    assert world.scheme(5)._ownership.owned_ranges[home(5)].placed
    world.lead((4000, 1), (12000, 5), (32000, 2), (48000, 5), (0, 4))
    world.run(20)
    world.assert_quiet()
    assert_all_come(world, 5)


def test_one_who_stands_by_gives_all_it_has() -> None:
    world = settled(*QUARTERS)
    world.lead((32000, 1), (48000, 3), (0, 3))
    world.run(20)
    world.assert_quiet()
    assert world.arcs()[home(2)] == world.arcs()[home(4)] == ()
    assert_all_come(world, 4)


def test_one_who_has_yet_to_find_its_place_gives_nothing() -> None:
    world = settled(*QUARTERS)
    world.lost = {2}
    world.lead(*SWAPPED)
    world.run(20)
    assert world.held()[home(2)] == (arc(16000, 48000),)
    world.lost = set()
    world.run(20)
    world.assert_quiet()


def test_what_leads_elsewhere_for_a_moment_stays() -> None:
    world = settled(*QUARTERS)
    for _ in range(6):
        world.lead(*SWAPPED)
        world.run(3)
        world.lead(*QUARTERS)
        world.run(7)
    assert world.looks
    assert world.observed.get("arc_followed", 0) == 0
    world.assert_quiet()


def test_what_leads_from_one_to_the_next_waits_until_that_ends() -> None:
    world = settled(*QUARTERS, nodes=6)
    for turn in range(12):
        world.lead((16000, 1), (32000, 5 + turn % 2), (48000, 3), (0, 4))
        world.run(3)
    assert world.observed.get("arc_followed", 0) == 0
    world.run(15)
    world.assert_quiet()


def test_who_is_led_to_passes_on_what_comes_before_it_has_the_keys() -> None:
    world = settled(*QUARTERS, nodes=6)
    told: list[tuple[int, int]] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, NotOwner) and message.number == 0:
            told.append((source, to))
            assert message.homes == ((home(2), world.arcs()[home(2)]),)
        return () if isinstance(message, OfferRange) else None

    world.weather = weather
    world.lead((16000, 1), (32000, 6), (48000, 3), (0, 4))
    world.run(3)
    assert set(told) == {(2, 6)}
    owner_cache = world.scheme(6)._owner_cache
    assert owner_cache.guess(bytes(RING.key(20000)), ()) == home(2)


def test_a_home_that_was_adopted_gives_everything_and_ends() -> None:
    world = settled(*QUARTERS, holding_us=2 * US)
    world.ask(2, Unsubscribe("color"))
    world.run(2)
    world.ask(2, Leave())
    world.run(2)
    world.lead((16000, 1), (32000, 3), (40000, 1), (48000, 3), (0, 4))
    world.run(40)
    world.assert_quiet()
    assert all(home(2) not in node.home_manager.homes for node in world.nodes.values())
    assert all(node.directory.host(home(2)) is None for node in world.nodes.values())


def test_a_home_with_subscribers_that_was_adopted_holds_nothing_and_stays() -> None:
    world = settled(*QUARTERS, holding_us=2 * US)
    world.ask(2, Leave())
    world.run(2)
    world.lead((16000, 1), (32000, 3), (48000, 3), (0, 4))
    world.run(40)
    world.assert_quiet()
    host = next(node for node in world.nodes.values() if home(2) in node.home_manager.homes)
    assert host.me.id != RING.node(2000)
    assert_all_come(world)


def test_a_home_that_is_to_end_leaves_what_it_holds_to_that_of_its_node() -> None:
    world = settled(*QUARTERS, nodes=5, holding_us=1000 * US)
    world.lead((32000, 2), (0, 2))
    world.run(12)
    for number in (2, 3):
        world.ask(number, Leave())
        world.run(4)
    node = world.nodes[4]
    assert sorted(node.home_manager.homes) == [home(2), home(3), home(4)]
    assert world.held()[home(2)] == (EVERYTHING,)
    free(world, 4, home(2))
    world.run(1)
    assert world.arcs()[home(2)] == ()
    assert world.held() == {home(4): (EVERYTHING,)}, "not home 3, which is the next, and about to end itself"


def test_nothing_goes_to_a_home_that_is_not_where_the_overlay_leads() -> None:
    """Node 2 has gone, and its home serves elsewhere; the overlay has not noticed."""
    world = settled(*QUARTERS)
    gone = world.nodes[2].me
    world.ask(2, Leave())
    world.run(5)
    world.lead((48000, 3), (0, 4))
    world.run(20)
    followed = world.observed["arc_followed"]
    world.members[gone.id] = gone
    world.lead((48000, 3), (0, 2))
    world.run(20)
    assert world.observed["arc_followed"] == followed


# -- what a scheme gives and keeps -------------------------------------------------------------------------------------


def test_what_is_pinned_stays_until_it_is_not() -> None:
    world = settled(*QUARTERS)
    pinned = {home(2): (arc(19999, 24000),), home(1): (arc(60000, 100),)}
    for number in world.nodes:
        world.scheme(number)._ownership._listener.pinned = lambda each: pinned.get(each, ())
    assert world.give(home(2), arc(29999, 30000), home(4))
    pinned[home(4)] = (arc(29999, 30000),)
    world.lead(*SWAPPED)
    world.run(40)
    world.assert_whole()
    held = world.held()
    assert held[home(2)] == (arc(19999, 24000), arc(32000, 48000))
    assert held[home(4)] == (arc(29999, 30000), arc(48000, 65535))
    assert [each.hex() for each in world.held()] == [home(n).hex() for n in (1, 2, 3, 4)]
    assert world.scheme(3)._owner_cache.guess(bytes(RING.key(30000)), ()) == home(4), "who is led to is told"
    assert_all_come(world)
    pinned.clear()
    world.run(20)
    world.assert_quiet()


def test_an_arc_is_given_as_a_whole_or_not_at_all() -> None:
    world = settled(*QUARTERS)
    stranger = HomeId(bytes(RING.node(7)))
    before = world.arcs()
    assert not world.give(home(2), arc(15999, 20000), home(3))  # begins before what is held
    assert not world.give(home(2), arc(30000, 32001), home(3))
    assert not world.give(home(2), EVERYTHING, home(3))
    assert not world.give(home(2), arc(20000, 21000), home(2))
    assert not world.give(home(2), arc(20000, 21000), stranger)
    assert world.arcs() == before
    assert world.give(home(2), arc(20000, 21000), home(3))
    assert not world.give(home(2), arc(20000, 21000), home(3))
    assert world.held()[home(2)] == (arc(16000, 20000), arc(21000, 32000))
    world.run(3)
    assert world.held()[home(3)] == (arc(20000, 21000), arc(32000, 48000))
    world.run(15)
    world.assert_quiet()


def test_what_has_come_is_given_on_only_when_its_giver_has_forgotten_it() -> None:
    """Home 3 has got an arc of home 2 and lost it with all its copies; home 2, which has not heard, gives it again."""
    world = settled(*QUARTERS)
    lost = Lost(world, lambda source, to, message: isinstance(message, RangeTaken))
    world.weather = lost
    world.lead((16000, 1), (20000, 2), (21000, 3), (32000, 2), (48000, 3), (0, 4))
    assert world.give(home(2), arc(20000, 21000), home(3))
    world.run(3)
    assert world.held()[home(3)] == (arc(20000, 21000), arc(32000, 48000))
    assert not world.give(home(3), arc(20000, 21000), home(4))
    assert not world.give(home(3), arc(40000, 41000), home(4))
    lost.until = world.now
    world.run(3)
    assert world.give(home(3), arc(20000, 21000), home(4))
    world.run(3)
    assert world.held()[home(4)] == (arc(20000, 21000), arc(48000, 65535))


def test_only_a_few_arcs_are_on_their_way_at_a_time() -> None:
    world = settled(*QUARTERS)
    world.weather = Lost(world, lambda source, to, message: isinstance(message, OfferRange))
    given = [world.give(home(2), arc(low, low + 100), home(3)) for low in range(20000, 21000, 200)]
    assert given == [True] * 4 + [False]


def test_what_a_home_holds_and_is_not_safe_yet_is_not_part_of_its_arc() -> None:
    world = settled(*QUARTERS)
    assert world.give(home(3), arc(32000, 36000), home(2))
    world.weather = Lost(world, lambda source, to, message: isinstance(message, Replicate) and source == 2)
    world.run(0.5)
    ownership = world.scheme(2)._ownership
    assert world.held()[home(2)] == (arc(16000, 36000),)
    assert ownership.holder(bytes(RING.key(33000))) is None
    assert ownership.arc(home(2), bytes(RING.key(20000))) == arc(16000, 32000)
    world.weather = lambda source, to, message: None
    world.run(3)
    assert ownership.arc(home(2), bytes(RING.key(20000))) == arc(16000, 36000)


# -- crashes -----------------------------------------------------------------------------------------------------------

STEPS: dict[str, Callable[[int, int, Message], bool]] = {
    "given": lambda source, to, message: isinstance(message, Replicate) and source == 2,
    "told": lambda source, to, message: isinstance(message, OfferRange),
    "heard": lambda source, to, message: isinstance(message, OfferAccepted),
    "asked": lambda source, to, message: isinstance(message, PullRange),
    "pulled": lambda source, to, message: isinstance(message, PullReply),
    "got": lambda source, to, message: isinstance(message, Replicate) and source == 3,
    "safe": lambda source, to, message: isinstance(message, ReplicateAck) and to == 3,
    "took": lambda source, to, message: isinstance(message, RangeTaken),
    "forgotten": lambda source, to, message: isinstance(message, RangeForgotten),
}


@pytest.mark.parametrize("lose_disk", [False, True], ids=["", "without its disk"])
@pytest.mark.parametrize("who", [(2,), (3,), (2, 3)], ids=["giver", "taker", "both"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_delays_and_nothing_else(step: str, who: tuple[int, ...], lose_disk: bool) -> None:
    world = settled((16000, 1), (32000, 2), (48000, 3), (56000, 4), (0, 5))
    lost = Lost(world, STEPS[step])
    assert world.give(home(2), arc(16000, 24000), home(3))
    world.weather = lost
    world.run(0.7)
    assert lost.count
    for number in who:
        world.crash(number, lose_disk=lose_disk and number == who[-1])
    world.run(1)
    lost.until = world.now
    for number in who:
        world.start(number, contacts=[1, 4])
    world.lead((16000, 1), (24000, 3), (32000, 2), (48000, 3), (56000, 4), (0, 5))
    world.run(30)
    world.assert_quiet()
    assert_all_come(world, 4)


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_two_that_give_each_other_their_keys(order: tuple[int, int]) -> None:
    world = settled(*QUARTERS)
    quarters = {2: arc(16000, 32000), 3: arc(32000, 48000)}
    one, other = order
    assert world.give(home(one), quarters[one], home(other))
    assert world.give(home(other), quarters[other], home(one))
    world.lead(*SWAPPED)
    world.run(20)
    world.assert_quiet()
    assert_all_come(world)


def test_many_give_to_one_and_one_to_many_all_at_once() -> None:
    world = settled(*QUARTERS)
    world.lead((0, 3))
    world.run(9)
    world.assert_quiet()
    world.lead(*QUARTERS)
    world.run(9)
    world.assert_quiet()
    assert_all_come(world)


def test_a_home_that_ends_while_something_is_on_its_way_to_it() -> None:
    world = settled(*QUARTERS, holding_us=2 * US)
    world.ask(4, Unsubscribe("size"))
    world.run(2)
    world.weather = lost = Lost(world, lambda source, to, message: isinstance(message, OfferRange))
    assert world.give(home(3), arc(40000, 48000), home(4))
    world.ask(4, Leave())
    world.lead((16000, 1), (32000, 2), (0, 3))
    world.run(2)
    lost.until = world.now + 25 * US
    world.run(60)
    assert lost.count
    world.assert_quiet()


@pytest.mark.parametrize("gone", [(1,), (2, 3), (1, 2, 3, 4)])
def test_whatever_is_lost_every_key_has_its_holder_again(gone: tuple[int, ...]) -> None:
    world = FollowingWorld(*QUARTERS)
    world.run(3)
    for number in (1, 2, 3, 4):
        world.crash(number)
    forget_custody(world, *gone)
    restart_all(world, 1, 2, 3, 4)
    world.run(60)
    world.assert_quiet()
    assert world.observed["arc_lost"] >= 1


def seeking(world: FollowingWorld, *numbers: int) -> Lost:
    """Some homes have lost all, and nobody hears that they seek."""
    world.run(3)
    for number in sorted(world.nodes):
        world.crash(number)
    forget_custody(world, *numbers)
    world.weather = lost = Lost(world, lambda source, to, message: isinstance(message, ClaimRange))
    restart_all(world, *sorted(world.disks))
    world.run(15)
    assert all(home(number) not in world.arcs() for number in numbers)
    assert lost.count
    return lost


@pytest.mark.parametrize("seed", range(8))
def test_two_that_hold_something_and_seek_do_not_both_take_what_is_missing(seed: int) -> None:
    world = FollowingWorld(*QUARTERS, seed=seed)
    lost = seeking(world, 1, 2)
    world.lead((16000, 1), (32000, 2), (40000, 1), (48000, 2), (0, 4))
    world.run(15)
    assert world.held() == {home(1): (arc(32000, 40000),), home(2): (arc(40000, 48000),), home(4): (arc(48000, 65535),)}
    lost.until = world.now
    world.run(30)
    world.assert_quiet()


@pytest.mark.parametrize("when", ["given", "told"])
@pytest.mark.parametrize("turn", range(1, 4))
def test_what_a_home_gives_while_it_seeks_is_not_missing(turn: int, when: str) -> None:
    """Home 1 has asked home 2, and waits for home 4, when home 2 gets what home 1 gave it, now or long before."""
    world = FollowingWorld(*QUARTERS)
    seeking(world, 1)
    world.lead((16000, 1), (32000, 2), (48000, 1), (0, 4))
    assert world.give(home(3), arc(32000, 48000), home(1))
    world.run(2)
    given = arc(36000, 40000)
    if when == "told":
        assert world.give(home(1), given, home(2))
    asked: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, ClaimRange) and to == 4:
            asked.append(world.now)
            return [700_000]
        return () if isinstance(message, OfferRange) and when == "told" and len(asked) < turn else None

    world.weather = weather
    while len(asked) < turn and not world.scheme(1)._ownership.owned_ranges[home(1)].placed:
        world.run(0.01)
    if when == "given":
        assert world.give(home(1), given, home(2))
    elif gifts := world.scheme(1)._ownership.owned_ranges[home(1)].given:
        world.say(2, OfferRange(1, home(2), home(1), gifts[0].number, given), world.nodes[1].me)
    world.run(1)
    assert world.twice == []
    world.weather = lambda source, to, message: None
    world.run(30)
    world.assert_quiet()


def test_who_came_while_another_is_down_gives_on_what_it_has_got() -> None:
    """It cannot know whether anything is missing before that one is back."""
    world = settled(*QUARTERS, nodes=5)
    world.crash(4)
    world.start(6, contacts=[1])
    world.run(5)
    world.lead((16000, 1), (32000, 2), (48000, 6), (0, 4))
    world.run(12)
    assert world.held()[home(6)] == (arc(32000, 48000),)
    assert not world.scheme(6)._ownership.owned_ranges[home(6)].placed
    world.lead((16000, 1), (32000, 2), (48000, 5), (0, 4))
    world.run(12)
    assert world.held()[home(5)] == (arc(32000, 48000),)
    world.start(4, contacts=[1])
    world.run(20)
    world.assert_quiet()


def test_what_is_on_its_way_is_not_missing() -> None:
    world = FollowingWorld(*QUARTERS)
    lost = seeking(world, 1)
    assert world.give(home(3), arc(40000, 48000), home(4))
    world.weather = taking = Lost(world, lambda source, to, message: isinstance(message, OfferRange))
    lost.until = world.now
    world.run(10)
    assert taking.count
    assert home(1) not in world.arcs()
    taking.until = world.now
    world.run(30)
    world.assert_quiet()


def test_what_goes_to_one_who_was_asked_from_one_who_was_not_is_not_missing() -> None:
    world = FollowingWorld(*QUARTERS)
    seeking(world, 1)
    heard: list[int] = []
    late: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, ClaimReply) and source == 2:
            heard.append(world.now)
        if isinstance(message, ClaimRange) and to == 3 and heard and not late:
            late.append(world.now)
            return [700_000]
        return None

    world.weather = weather
    while not late:
        world.run(0.01)
    assert world.give(home(3), arc(40000, 48000), home(2))
    world.lead((16000, 1), (32000, 2), (40000, 3), (48000, 2), (0, 4))
    world.run(30)
    world.assert_quiet()


def test_one_who_finds_nothing_missing_asks_once() -> None:
    """It need not see that nothing changes meanwhile, which in a large network may take long to come."""
    world = FollowingWorld(*QUARTERS)
    world.run(3)
    asked: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, ClaimRange):
            asked.append(to)
        return None

    world.weather = weather
    world.start(5, contacts=[1])
    world.run(10)
    assert sorted(set(asked)) == [1, 2, 3, 4]
    assert len(asked) <= 8, "more than once only where this home was not listed yet"
    assert world.arcs()[home(5)] == ()


# -- anything at any time ----------------------------------------------------------------------------------------------


class Churn:
    """Tables that change for all or some, nodes that crash, come and go, messages that are lost, late and doubled."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = settled(*QUARTERS, nodes=5, seed=seed, holding_us=3 * US)
        self.world.weather = self.weather
        self.next = 6
        self.down: list[int] = []
        self.events: dict[int, tuple[str, str]] = {}
        self.lost_us = 0  # when a disk was lost last: two at once are more than there are copies
        self.bad = True

    def weather(self, source: int, to: int, message: Message) -> Iterable[int] | None:
        if not self.bad:
            return None
        chance = self.random.random()
        if chance < 0.05:
            return ()
        if chance < 0.12:
            return [self.random.randrange(5_000, 60_000), self.random.randrange(5_000, 4_000_000)]
        return [self.random.randrange(5_000, 900_000)] if chance < 0.2 else None

    def ready(self) -> list[int]:
        return sorted(number for number, node in self.world.nodes.items() if node.state == "ready")

    def cuts(self) -> list[tuple[int, int]]:
        members = self.ready() or sorted(self.world.nodes)
        highs = sorted(self.random.sample(range(1000, 65000), self.random.randrange(1, 6)))
        return [(high, self.random.choice(members)) for high in (*highs, 65535)]

    def step(self) -> None:
        world, ready, chance = self.world, self.ready(), self.random.random()
        if chance < 0.35:
            world.lead(*self.cuts())
        elif chance < 0.45:
            world.lead(*self.cuts(), to=self.random.choice(sorted(world.nodes)))
        elif chance < 0.55:
            world.views.clear()
        elif chance < 0.7 and ready and not self.down:
            self.down.append(self.random.choice(ready))
            lose_disk = self.random.random() < 0.4 and world.now > self.lost_us + 30 * US
            self.lost_us = world.now if lose_disk else self.lost_us
            world.crash(self.down[0], lose_disk=lose_disk)
        elif chance < 0.85 and self.down:
            world.start(self.down.pop(), contacts=sorted(world.nodes))
        elif chance < 0.9 and self.next < 8:
            world.start(self.next, contacts=sorted(world.nodes))
            self.next += 1
        elif chance < 0.93 and len(ready) > 4 and not self.down:
            world.ask(self.random.choice(ready), Leave())
        self.publish()
        world.run(self.random.choice((0.05, 0.5, 2, 6)))

    def publish(self) -> None:
        if ready := self.ready():
            attribute, number = self.random.choice(ATTRIBUTES), self.random.choice(ready)
            event = f"{attribute}-{len(self.events)}"
            request = self.world.publish(number, event, **{attribute: values()[attribute]})
            self.events[request] = (attribute, event)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            assert self.world.twice == []
        self.bad = False
        for number in self.down:
            self.world.start(number, contacts=sorted(self.world.nodes))
        self.world.run(30)
        self.world.views.clear()
        self.world.lead(*self.cuts())
        self.world.run(90)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_overlay_says_and_whoever_crashes(seed: int) -> None:
    churn = Churn(seed)
    churn.run(60)
    churn.world.assert_quiet()
    assert "arc_lost" not in churn.world.observed
    came = {(name, event) for name, event, _ in churn.world.notified}
    answers = churn.world.answers
    assert came <= set(churn.events.values())
    assert {event for number, event in churn.events.items() if isinstance(answers.get(number), Published)} <= came
    assert_all_come(churn.world, min(churn.world.nodes))


# -- the eyes see ------------------------------------------------------------------------------------------------------


def test_a_mutant_that_keeps_what_it_gave_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(
        ring: object, owned: OwnedRanges, part: KeyRange, to: HomeId, *, ending: bool
    ) -> tuple[GivenRange, OwnedRanges]:
        given, after = cut(RING, owned, part, to, ending=ending)
        return given, OwnedRanges(after.version, owned.arcs, after.given, after.taken)

    monkeypatch.setattr("meetpoint.placement.ownership.ownership.cut", wrong)
    world = settled(*QUARTERS)
    world.lead(*SWAPPED)
    world.run(10)
    assert world.twice


def test_cuts_are_in_order() -> None:
    world = FollowingWorld(*QUARTERS)
    assert all(one.last < other.first for (one, _), (other, _) in pairwise(world.table))
