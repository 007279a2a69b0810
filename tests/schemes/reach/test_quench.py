"""Quenching never costs a match, whatever becomes of messages, nodes, homes and arcs (`idling`); and mutants do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube.regions import WHOLE, Region, key_of
from meetpoint.schemes.reach import quench
from meetpoint.schemes.reach.ids import below, is_below, meets_below, pieces, rank
from meetpoint.schemes.reach.leases import RegionLease, RegionLeases
from meetpoint.schemes.reach.messages import IdleQuery, IdleReply, RevokeIdleAck
from meetpoint.schemes.reach.quench import Quench
from tests.schemes.reach.idle_world import Story, World
from tests.schemes.reach.lease_stories import BrokenError, is_caught, owing_nothing, ready_at_once

SEEDS = 32


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, SEEDS, 8))
def test_no_region_is_idle_where_an_entry_was_acknowledged(seed: int) -> None:
    idle = told = 0
    for each in range(seed, seed + 8):
        story = Story(each)
        story.live(20)
        idle += story.idle
        told += story.world.seen.get("reach_awake_told", 0)
    assert idle > 200, "nothing was quenched"
    assert told > 50, "nothing was taken back"


# -- mutants -----------------------------------------------------------------------------------------------------------


class AtOnce(Quench):
    """Acknowledges an entry before those who were told know."""

    def put(self, home: HomeId, point: int, then: Callable[[], None]) -> None:
        super().put(home, point, lambda: None)
        then()


class BeforeThoseAbove(Quench):
    """Answers before those who know by it know."""

    def _revoke_below(self, region: Region, then: Callable[[], None]) -> None:
        super()._revoke_below(region, lambda: None)
        then()


class FromTheAnswer(Quench):
    """Counts the time from when the answer came, and not from the question."""

    def _learn(self, region: Region, question: quench._IdleQuestion, us: int) -> None:
        question.asked_at = self._runtime.now
        super()._learn(region, question, us)


class LongerThanThoseBelow(Quench):
    """Promises more than it was promised itself."""

    def _answer(self, question: IdleQuery, region: Region, us: int, answer: Callable[[Message], None]) -> None:
        super()._answer(question, region, self._lease_us if us else 0, answer)


class AnyLife(Quench):
    """One that began anew answers for the life before, in which it may have told others."""

    def _revoke_idle(self, source: object, message: object) -> None:
        self._life, life = message.life, self._life  # type: ignore[attr-defined]
        super()._revoke_idle(source, message)  # type: ignore[arg-type]
        self._life = life


class NotSpoilt(Quench):
    """Believes an answer that was overtaken by news."""

    def _revoke_below(self, region: Region, then: Callable[[], None]) -> None:
        question = self._asking.pop(region, None)
        super()._revoke_below(region, then)
        if question is not None:
            self._asking[region] = question


class OnlyOwnEntries(Quench):
    """Says that a region is idle, and does not know what lies below it."""

    def _look(self, *args: object) -> tuple[int, list[Region]]:
        us, missing = super()._look(*args)  # type: ignore[arg-type]
        return (us, []) if us or not missing else (self._lease_us, [])


class HeldOnce(Quench):
    """Answers for what it held when it was asked."""

    def _holds(self, *args: object) -> bool:
        return True


MUTANTS: list[type[Quench]] = [
    AtOnce, BeforeThoseAbove, NotSpoilt, owing_nothing(Quench), ready_at_once(Quench), OnlyOwnEntries,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", MUTANTS)
def test_a_mutant_is_seen(kind: type[Quench]) -> None:
    assert any(is_caught(Story(seed, kind)) for seed in range(1_000, 1_200))


# -- what is rare, by hand: node 1 hosts 000, 2 hosts 100, 3 hosts 010, 4 hosts 110, 5 hosts 001, …, 8 hosts 111 -------

TOP, MIDDLE, BOTTOM = Region.read("110"), Region.read("010"), Region.read("000")


def a_world(kind: type[Quench] = Quench) -> World:
    class Mine(World):
        pass

    Mine.kind = kind
    world = Mine(1, 8, aligned=True)
    world.calm = True
    return world


def wish(world: World, node: int, region: Region) -> None:
    for _ in range(quench.WISHES):
        world.wish(node, region)


def put(world: World, point: int) -> str:
    name = f"e{len(world.wanted) + 1}"
    world.want(name, point)
    return name


def knows(world: World, node: int, region: Region) -> bool:
    return any(
        region == each and lease.until > world.local(node)
        for each, lease in world.nodes[node].part._idle.items()
    )  # fmt: skip


def test_who_asks_once_knows_all_the_way_down() -> None:
    world = a_world()
    wish(world, 8, TOP)
    world.run(1)
    assert all(knows(world, *each) for each in ((8, TOP), (4, MIDDLE), (3, BOTTOM)))
    name = put(world, 0)
    world.run(1)
    assert name in world.acked
    assert not any(knows(world, *each) for each in ((8, TOP), (4, MIDDLE), (3, BOTTOM)))
    world.withdraw(name)
    for _ in range(40):  # it comes back by itself while events come by
        wish(world, 8, TOP)
        world.run(0.5)
    assert knows(world, 8, TOP)


def test_an_entry_apart_does_not_matter() -> None:
    world = a_world()
    name = put(world, 0b1001)
    world.run(1)
    assert name in world.acked
    wish(world, 8, TOP)
    world.run(1)
    assert knows(world, 8, TOP)


def waits_for_a_life_that_is_over(kind: type[Quench]) -> None:
    """Node 4 told node 8, crashed and came back: node 8 relies on what nobody else knows."""
    world = a_world(kind)
    wish(world, 8, TOP)
    world.run(1)
    world.crash(4)
    world.start(4)
    world.run(0.1)
    name = put(world, 0b0010)
    world.run(1.5)
    assert name not in world.acked
    world.run(4)
    assert name in world.acked


def test_a_life_that_is_over_counts_until_its_time_is_over() -> None:
    waits_for_a_life_that_is_over(Quench)
    with pytest.raises(BrokenError):
        waits_for_a_life_that_is_over(AnyLife)


def hears_late(kind: type[Quench]) -> None:
    """An answer takes long, and an entry comes when its time is over at the one who gave it."""
    world = a_world(kind)

    def slow(message: Message) -> list[int] | None:
        if isinstance(message, IdleQuery):
            return [] if world.now else None  # it is asked once
        return [2_000_000] if isinstance(message, IdleReply) else None

    world.slow = slow
    wish(world, 2, BOTTOM)
    world.run(2.5)
    assert knows(world, 2, BOTTOM)
    world.run(1.7)
    name = put(world, 0)
    world.run(1)
    assert name in world.acked


def test_the_time_counts_from_the_question() -> None:
    hears_late(Quench)
    with pytest.raises(BrokenError):
        hears_late(FromTheAnswer)


def hears_of_what_is_old(kind: type[Quench]) -> None:
    """Node 4 knows something since a while when node 8 asks it; then an entry comes that nobody need tell of."""
    world = a_world(kind)
    for region in (MIDDLE, Region.read("100")):
        wish(world, 4, region)
    world.run(1.4)  # later than half a lease it would ask anew before it answers
    wish(world, 8, TOP)
    world.run(0.2)
    assert knows(world, 8, TOP)
    world.run(2.6)
    name = put(world, 0b1010)
    world.run(1)
    assert name in world.acked


def test_nobody_promises_more_than_it_was_promised() -> None:
    hears_of_what_is_old(Quench)
    with pytest.raises(BrokenError):
        hears_of_what_is_old(LongerThanThoseBelow)


def answers_late(kind: type[Quench]) -> None:
    """What was held when a question came is given away before it is answered, and an entry comes there."""
    world = a_world(kind)
    world.slow = lambda message: [400_000] if isinstance(message, IdleReply) else None
    wish(world, 8, TOP)
    world.run(0.1)
    home = world.homes[3]
    world.give(home, world.homes[6], home.arcs[0])
    world.run(0.8)
    assert not knows(world, 8, TOP)
    assert len(world.homes[6].arcs) == 2
    put(world, 0b0110)
    world.run(10)


def test_who_answers_late_answers_for_what_it_holds() -> None:
    answers_late(Quench)
    with pytest.raises(BrokenError):
        answers_late(HeldOnce)


def lets_go_and_asks_again() -> None:
    """Node 8 lets go of what it knew, and is told the same anew before its answer arrives."""
    world = a_world()
    wish(world, 8, TOP)
    world.run(1)
    world.slow = lambda message: [900_000] if isinstance(message, RevokeIdleAck) else None
    name = put(world, 0b0110)
    world.run(0.1)
    world.withdraw(name)
    for _ in range(8):
        wish(world, 8, TOP)
        world.run(0.1)
    assert knows(world, 8, TOP)
    world.run(0.2)
    name = put(world, 0b0110)
    world.run(4)
    assert name in world.acked


def test_a_promise_that_is_taken_back_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    lets_go_and_asks_again()
    grant = RegionLeases.grant

    def renewed(self: RegionLeases, *args: object) -> RegionLease | None:
        for each in self._table.granted.values():
            each.ended = False
        return grant(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RegionLeases, "grant", renewed)
    with pytest.raises(BrokenError):
        lets_go_and_asks_again()


# -- geometry ----------------------------------------------------------------------------------------------------------


def test_pieces_are_the_ids_between_two_keys() -> None:
    ring, width = Ring(8), 5
    keys = {point: key_of(ring, point, width) for point in range(1 << width)}
    for first in range(0, 256, 3):
        for last in range(first, 256, 5):
            found = list(pieces(ring, width, bytes(ring.key(first)), bytes(ring.key(last))))
            inside = [point for point, key in keys.items() if ring.key(first) <= key <= ring.key(last)]
            hosted = [[point for point in keys if region.hosts(point)] for region in found]
            assert sorted(point for each in hosted for point in each) == sorted(inside)
            assert len(found) <= 2 * width
    assert list(pieces(ring, width, bytes(ring.key(0)), bytes(ring.key(255)))) == [WHOLE]


def test_subsets_lie_in_a_region_or_below_it() -> None:
    width = 5
    regions = [Region(bits, length) for length in range(width + 1) for bits in range(1 << length)]
    for region in regions:
        ids = [point for point in range(1 << width) if region.hosts(point)]
        subsets = {point for point in range(1 << width) if any(point & ~each == 0 for each in ids)}
        assert subsets == {point for point in range(1 << width) if is_below(point, region)}
        lower = below(region)
        assert subsets == set(ids) | {point for point in range(1 << width) for each in lower if is_below(point, each)}
        assert all(rank(each, width) < rank(region, width) for each in lower)
        for other in regions:
            has = any(other.hosts(point) for point in subsets)
            assert meets_below(other, region) == has
            assert not region.holds(other) or rank(other, width) <= rank(region, width)
