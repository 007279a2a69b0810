"""The simulated disk passes the suite of all stores, and a disk that cheats does not."""

from __future__ import annotations

from random import Random

import pytest

from meetpoint.lab.sim.devices import Disk
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record
from tests.store_conformance import HOME, StoreConformance, record


class SimulatedRig:
    """A disk with a clock that the test moves."""

    def __init__(self, disk: type[Disk] = Disk) -> None:
        self._make = disk
        self._random = Random(1)
        self.renew()

    def renew(self) -> None:
        self.disk = self._make()

    def persist(self, effect: Persist) -> None:
        if self.disk.write(effect):
            self.disk.begin()

    def settle(self) -> list[int]:
        answered: list[int] = []
        while self.disk.busy or self.disk.begin():
            answered += self.disk.end()
        return answered

    def restart(self) -> tuple[Record, ...]:
        self.disk.crash(self._random)
        return self.disk.recover()


class TestDisk(StoreConformance):
    @pytest.fixture
    def rig(self) -> SimulatedRig:
        return SimulatedRig()


def test_a_sync_takes_what_waits_and_leaves_what_comes_later() -> None:
    disk = Disk()
    assert disk.write(Persist(1, (record("a"),)))
    assert disk.begin()
    assert not disk.write(Persist(2, (record("b"),)))
    assert not disk.write(Persist(3, (record("c"),)))
    assert disk.end() == [1]
    assert disk.recover() == (record("a"),)
    assert disk.begin()
    assert disk.end() == [2, 3]
    assert not disk.begin()


def test_every_number_of_waiting_tickets_can_survive_a_crash() -> None:
    survived = set()
    for seed in range(100):
        disk = Disk()
        for ticket in (1, 2, 3):
            disk.write(Persist(ticket, (record(f"n{ticket}"),)))
        lost = disk.crash(Random(seed))
        assert len(disk.recover()) == 3 - lost
        survived.add(3 - lost)
    assert survived == {0, 1, 2, 3}


class TornDisk(Disk):
    """Keeps a part of a ticket."""

    def _apply(self, effect: Persist) -> None:
        super()._apply(Persist(effect.ticket, effect.records[:1], effect.erased))


class HastyDisk(Disk):
    """Answers before anything is on disk."""

    def end(self) -> list[int]:
        done = [effect.ticket for effect in self._syncing]
        self._syncing = []
        return done


class StickyDisk(Disk):
    """Does not forget erased names."""

    def _apply(self, effect: Persist) -> None:
        super()._apply(Persist(effect.ticket, effect.records))


@pytest.mark.parametrize(
    ("disk", "test"),
    [
        (TornDisk, "test_what_was_answered_survives_a_kill"),
        (HastyDisk, "test_what_was_answered_survives_a_kill"),
        (StickyDisk, "test_a_deleted_name_is_remembered_and_an_erased_one_is_not"),
    ],
)
def test_the_suite_finds_a_disk_that_cheats(disk: type[Disk], test: str) -> None:
    assert HOME
    with pytest.raises(AssertionError):
        getattr(StoreConformance(), test)(SimulatedRig(disk))
