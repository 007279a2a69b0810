"""What every store of records must do, simulated or real: one suite, a rig for each.

A test file brings a `rig` fixture and inherits from `StoreConformance`:

    class TestDisk(StoreConformance):
        @pytest.fixture
        def rig(self) -> Rig: ...
"""

from __future__ import annotations

import itertools
from typing import Protocol

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meetpoint.api.ids import HomeId
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record

Kept = dict[tuple[bytes, str], Record]


class Rig(Protocol):
    """One store, and the power to kill the process that has it."""

    def persist(self, effect: Persist) -> None:
        """Take a ticket, as a driver does; it need not be on disk yet."""

    def settle(self) -> list[int]:
        """Wait until all is on disk; the tickets that were answered since the last time, in that order."""

    def restart(self) -> tuple[Record, ...]:
        """Kill the process, whatever it was doing, start it again, and recover."""

    def renew(self) -> None:
        """Forget everything: an empty disk."""


HOME, OTHER = HomeId(b"\x01" * 20), HomeId(b"\xff" * 20)


def record(name: str, value: bytes | None = b"v", home: HomeId = HOME, version: int = 1) -> Record:
    return Record(home, name, version, value)


def applied(effects: list[Persist]) -> Kept:
    """What is on disk after these, by the book."""
    kept: Kept = {}
    for effect in effects:
        kept.update({(each.home, each.name): each for each in effect.records})
        for at in effect.erased:
            kept.pop(at, None)
    return kept


def as_kept(records: tuple[Record, ...]) -> Kept:
    return {(each.home, each.name): each for each in records}


_NAMES = st.sampled_from(["a", "b", "queue/ff/1/2", "ü\n'\"; --", "x" * 200])
_RECORDS = st.builds(
    Record,
    st.sampled_from([HOME, OTHER, HomeId(b"")]),
    _NAMES,
    st.integers(0, 2**62),
    st.none() | st.binary(max_size=40),
)


@st.composite
def tickets(draw: st.DrawFn) -> list[Persist]:
    """Some tickets, none of which writes and erases one name."""
    effects = []
    for ticket in range(1, draw(st.integers(1, 8)) + 1):
        records = {(each.home, each.name): each for each in draw(st.lists(_RECORDS, max_size=4))}
        names = [(HOME, name) for name in draw(st.lists(_NAMES, max_size=3, unique=True))]
        erased = [at for at in names if at not in records]
        effects.append(Persist(ticket, tuple(records.values()), tuple(erased)))
    return effects


class StoreConformance:
    """The suite."""

    def test_an_empty_store_recovers_nothing(self, rig: Rig) -> None:
        assert rig.restart() == ()

    def test_what_was_answered_survives_a_kill(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("a"), record("b"))))
        assert rig.settle() == [1]
        assert as_kept(rig.restart()) == as_kept((record("a"), record("b")))

    def test_the_last_write_of_a_name_wins_whatever_its_version(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("a", b"first", version=9),)))
        rig.persist(Persist(2, (record("a", b"last", version=3),)))
        rig.settle()
        assert rig.restart() == (record("a", b"last", version=3),)

    def test_a_deleted_name_is_remembered_and_an_erased_one_is_not(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("deleted"), record("erased"))))
        rig.persist(Persist(2, (record("deleted", None, version=2),), ((HOME, "erased"),)))
        rig.settle()
        assert rig.restart() == (record("deleted", None, version=2),)

    def test_an_erased_name_can_be_written_again(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("a"),)))
        rig.persist(Persist(2, (), ((HOME, "a"), (HOME, "unknown"))))
        rig.persist(Persist(3, (record("a", b"again"),)))
        rig.settle()
        assert rig.restart() == (record("a", b"again"),)

    def test_names_of_two_homes_are_two_names(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("a", b"1"), record("a", b"2", OTHER))))
        rig.persist(Persist(2, (), ((OTHER, "a"),)))
        rig.settle()
        assert rig.restart() == (record("a", b"1"),)

    def test_tickets_are_answered_once_and_in_order(self, rig: Rig) -> None:
        for ticket in (5, 6, 9):
            rig.persist(Persist(ticket, (record(f"n{ticket}"),)))
        answered = rig.settle()
        rig.persist(Persist(12, ()))  # which has nothing to write, and is answered all the same
        assert answered + rig.settle() == [5, 6, 9, 12]
        assert rig.settle() == []

    def test_records_are_recovered_by_home_and_name(self, rig: Rig) -> None:
        names = ["b", "a", "ä", "Z"]
        rig.persist(Persist(1, tuple(record(n, home=home) for home, n in itertools.product((OTHER, HOME), names))))
        rig.settle()
        recovered = rig.restart()
        assert [(each.home, each.name) for each in recovered] == sorted((each.home, each.name) for each in recovered)

    def test_large_values_and_many_records_are_kept(self, rig: Rig) -> None:
        effect = Persist(1, (record("large", b"\x00\xff" * 200_000), *(record(f"n{i:04}") for i in range(2000))))
        rig.persist(effect)
        rig.settle()
        assert as_kept(rig.restart()) == applied([effect])

    def test_a_restart_recovers_the_same_again(self, rig: Rig) -> None:
        rig.persist(Persist(1, (record("a"),)))
        rig.settle()
        assert rig.restart() == rig.restart()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors])
    @given(effects=tickets(), settled=st.integers(0, 8))
    def test_a_kill_keeps_a_first_part_of_the_tickets_each_whole(
        self, rig: Rig, effects: list[Persist], settled: int
    ) -> None:
        """Whatever was answered, and then any number of further tickets, none of them in part and none left out."""
        rig.renew()
        for effect in effects[:settled]:
            rig.persist(effect)
        assert rig.settle() == [effect.ticket for effect in effects[:settled]]
        for effect in effects[settled:]:
            rig.persist(effect)
        recovered = as_kept(rig.restart())
        allowed = [applied(effects[:kept]) for kept in range(min(settled, len(effects)), len(effects) + 1)]
        assert recovered in allowed
