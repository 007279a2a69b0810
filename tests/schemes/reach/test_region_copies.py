"""A copy that is good lacks nothing that was acknowledged (`lending`); and mutants' copies do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Reply
from meetpoint.placement.messages import Entry
from meetpoint.schemes.reach import region_copies
from meetpoint.schemes.reach.messages import CopyReply, CopyUpdate, CopyUpdateAck
from meetpoint.schemes.reach.region_copies import RegionCopies, RegionCopy
from tests.schemes.reach.copy_world import Story, World, entry_at
from tests.schemes.reach.lease_stories import BrokenError, is_caught, owing_nothing, ready_at_once


@pytest.fixture(autouse=True)
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_copies, "PAGE_MAX", 2)
    monkeypatch.setattr(region_copies, "PAUSE_US", 300_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 20, 5))
def test_a_copy_that_is_good_lacks_nothing(seed: int) -> None:
    good = 0
    for each in range(seed, seed + 5):
        story = Story(each)
        story.live(20)
        good += story.world.good
    assert good > 1_000, "nothing was copied"


class AtOnce(RegionCopies):
    """Acknowledges an entry before copies have it."""

    def put(self, home: HomeId, name: str, entry: Entry, point: int, then: Callable[[], None]) -> None:
        super().put(home, name, entry, point, lambda: None)
        then()


class NotTold(RegionCopies):
    """Takes what comes, and does not put it into its copy."""

    def _copy_update(self, source: Peer, message: CopyUpdate) -> None:
        self._runtime.send(source, CopyUpdateAck(message.request))


class NotSpoilt(RegionCopies):
    """Believes a first page that was overtaken by news."""

    def _copy_update(self, source: Peer, message: CopyUpdate) -> None:
        super()._copy_update(source, message)
        for loan in self._copies.values():
            loan.spoilt = False


class FromTheAnswer(RegionCopies):
    """Counts the time from when the last page came."""

    def _count_from(self, loan: RegionCopy, asked_at: int, us: int) -> None:
        super()._count_from(loan, self._runtime.now, us)


class HalfAPage(RegionCopies):
    """Is content with the first page."""

    def _fetched(self, loan: RegionCopy, reply: Reply | None) -> None:
        if isinstance(reply, CopyReply):
            reply = CopyReply(reply.request, reply.number, reply.us, reply.entries, False)
        super()._fetched(loan, reply)


MUTANTS: list[type[RegionCopies]] = [
    AtOnce, NotTold, NotSpoilt, FromTheAnswer, owing_nothing(RegionCopies), ready_at_once(RegionCopies), HalfAPage,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", MUTANTS)
def test_a_mutant_is_seen(kind: type[RegionCopies]) -> None:
    assert any(is_caught(Story(seed, kind)) for seed in range(1_000, 1_150))


# -- what is rare, by hand ---------------------------------------------------------------------------------------------


class RenewedAfterAMove(RegionCopies):
    """Renews a copy though the arc was away meanwhile, and something may have come there."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        self._granted.began(home, owed_us)


def goes_and_comes_back(kind: type[RegionCopies]) -> None:
    """An entry comes to an arc while it is away, and waits there for copies of before; then the arc comes back."""

    class Mine(World):
        pass

    Mine.kind = kind
    world = Mine(1)
    world.calm = True
    first, second = world.homes[0], world.homes[1]
    (arc,) = first.arcs
    point = 0
    world.use(4, point)
    world.run(0.2)
    world.give(first, second, arc)
    world.run(0.5)
    name, entry = entry_at(1, point)
    world.wanted[name] = entry
    second.add(name, entry)
    node = world.nodes[second.node]
    world.step(node, lambda: node.part.put(second.id, name, entry, point, lambda: world.acked.update({name: entry})))
    world.give(second, first, arc)
    for _ in range(40):
        world.use(4, point)
        world.run(0.1)
    assert name in world.acked
    assert name in first.entries


def test_what_has_come_while_an_arc_was_away_is_in_no_copy_that_is_renewed() -> None:
    goes_and_comes_back(RegionCopies)
    with pytest.raises(BrokenError):
        goes_and_comes_back(RenewedAfterAMove)
