"""Records on two disks, message by message."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.node.cluster.replication import (
    FetchReplicas,
    ReplicasFetched,
    ReplicaStore,
    Replicate,
    ReplicateAck,
    Replicator,
)
from meetpoint.node.runtime.effects import Effect, Persist, Send, SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import Record
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from tests.node.world import CODEC, RING

ME, ANN, BOB = (Peer(RING.node(number), f"n{number}", 1) for number in (1, 2, 3))
HOME = HomeId(bytes(ME.id))
Kind = TypeVar("Kind")


class Desk:
    """Services whose effects are looked at one by one."""

    def __init__(self, me: Peer = ME) -> None:
        self.runtime = Runtime(me, RING, CODEC, seed=1)
        self.effects: list[Effect] = []

    def do(self, call: Callable[[], object]) -> list[Effect]:
        self.effects = self.runtime.begin(Instant(0))
        call()
        return self.effects

    def sent(self, kind: type[Kind]) -> list[tuple[Peer, Kind]]:
        return [(e.to, e.message) for e in self.effects if isinstance(e, Send) and isinstance(e.message, kind)]

    def persist(self) -> list[Effect]:
        tickets = [effect.ticket for effect in self.effects if isinstance(effect, Persist)]
        return self.do(lambda: self._persisted(tickets))

    def _persisted(self, tickets: list[int]) -> None:
        for ticket in tickets:
            self.runtime.persisted(ticket)

    def copied(self, peer: Peer, copy: Replicate) -> list[Effect]:
        return self.do(lambda: self.runtime.replied(peer, ReplicateAck(copy.request)))


def directory(alone: bool) -> Any:
    """A directory that lists nobody, or others that are no hosts."""
    return SimpleNamespace(others=lambda: [] if alone else [ANN], digest=b"digest", get=lambda home: None)


def replicator(desk: Desk, *, alone: bool = False, **settings: Any) -> Replicator:
    peers: Any = SimpleNamespace(declined=lambda peer: None)
    return Replicator(HOME, 1, [], desk.runtime, NodeSettings(**settings), directory(alone), peers)


def test_a_write_is_safe_on_the_own_disk_and_one_buddys() -> None:
    desk, safe = Desk(), list[str]()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN, BOB]))
    for peer, copy in desk.sent(Replicate):
        desk.copied(peer, copy)
    desk.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    (to_ann, first), (_to_bob, _) = desk.sent(Replicate)
    desk.persist()
    assert safe == []
    desk.copied(to_ann, first)
    assert safe == ["a"]


def test_a_buddys_disk_alone_is_not_enough() -> None:
    desk, safe = Desk(), list[str]()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    desk.copied(*desk.sent(Replicate)[0])
    persist = desk.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    desk.copied(*desk.sent(Replicate)[0])
    assert safe == []
    desk.effects = persist
    desk.persist()
    assert safe == ["a"]


def test_alone_the_own_disk_is_all_there_is() -> None:
    desk, safe = Desk(), list[str]()
    kept = replicator(desk, alone=True)
    desk.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    assert safe == []
    desk.persist()
    assert safe == ["a"]


def test_one_message_is_on_its_way_and_the_rest_goes_together_the_latest_of_each_name() -> None:
    desk = Desk()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = desk.sent(Replicate)
    for value in (b"1", b"2", b"3"):
        desk.do(lambda value=value: kept.write([("a", value), ("b" + value.decode(), value)], ()))  # type: ignore[misc]
        assert desk.sent(Replicate) == []
    desk.copied(ANN, first)
    ((_, second),) = desk.sent(Replicate)
    assert [(record.name, record.value) for record in second.records] == [
        ("b1", b"1"),
        ("b2", b"2"),
        ("a", b"3"),
        ("b3", b"3"),
    ]


def test_what_nobody_waits_for_goes_to_the_buddies_a_little_later() -> None:
    desk = Desk()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    desk.copied(*desk.sent(Replicate)[0])
    effects = desk.do(lambda: kept.write([("a", b"1")]))
    assert desk.sent(Replicate) == []
    (timer,) = [effect.timer for effect in effects if isinstance(effect, SetTimer)]
    desk.do(lambda: kept.write([("b", b"2")]))
    assert not any(isinstance(effect, SetTimer) for effect in desk.effects)
    desk.do(lambda: desk.runtime.fired(timer))
    ((_, copy),) = desk.sent(Replicate)
    assert [record.name for record in copy.records] == ["a", "b"]


def test_a_buddy_that_restarted_gets_everything_again() -> None:
    desk = Desk()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    desk.copied(*desk.sent(Replicate)[0])
    desk.do(lambda: kept.commit([("a", b"1")]))
    desk.copied(*desk.sent(Replicate)[0])
    desk.do(lambda: kept.keep_at([ANN]))
    assert desk.sent(Replicate) == []
    again = Peer(ANN.id, ANN.address, ANN.incarnation + 1)
    desk.do(lambda: kept.keep_at([again]))
    ((_, copy),) = desk.sent(Replicate)
    assert [record.name for record in copy.records] == ["a"]
    assert copy.begins
    assert copy.ends


def test_a_write_waits_until_a_large_home_has_been_copied_whole() -> None:
    desk, safe = Desk(), list[str]()
    kept = replicator(desk, copy_bytes_max=100)
    desk.do(lambda: kept.write([(f"n{number}", bytes(60)) for number in range(5)], ()))
    desk.persist()
    desk.do(lambda: kept.keep_at([ANN]))
    begins, ends, names = [], [], []
    desk_copy = desk.sent(Replicate)[0][1]
    desk.do(lambda: kept.commit([("last", b"")]).then(lambda _: safe.append("last")))
    desk.persist()
    while True:
        begins.append(desk_copy.begins)
        ends.append(desk_copy.ends)
        names += [record.name for record in desk_copy.records]
        assert safe == []
        desk.copied(ANN, desk_copy)
        if not desk.sent(Replicate):
            break
        desk_copy = desk.sent(Replicate)[0][1]
    assert safe == ["last"]
    assert names == ["n0", "n1", "n2", "n3", "n4", "last"]
    assert begins == [True, False, False]
    assert ends == [False, False, True]


def copy(serial: int, *records: Record, begins: bool = False, ends: bool = False, **changes: object) -> Replicate:
    return Replicate(serial, HOME, 1, serial, records, tuple(changes.get("erased", ())), begins, ends)  # type: ignore[arg-type]


def record(name: str, version: int) -> Record:
    return Record(HOME, name, version, b"v%d" % version)


def holder() -> tuple[Desk, ReplicaStore]:
    desk = Desk(ANN)
    copies = ReplicaStore(desk.runtime, NodeSettings(), directory(alone=False), {})
    return desk, copies


def held(copies: ReplicaStore) -> dict[str, int]:
    return {each.name: each.version for each in copies.records(HOME)}


def test_a_name_that_is_written_again_before_it_was_sent_is_safe_only_when_it_has_been_sent() -> None:
    """The later write goes out last, so that order is kept; the earlier one is not safe before it."""
    desk, safe = Desk(), list[str]()
    kept = replicator(desk, copy_bytes_max=1)  # one record in a message
    desk.do(lambda: kept.keep_at([ANN]))
    ((peer, copy),) = desk.sent(Replicate)
    desk.copied(peer, copy)

    def write(name: str, value: bytes) -> None:
        desk.do(lambda: kept.commit([(name, value)]).then(lambda _: safe.append(f"{name}{value.decode()}")))

    write("x", b"1")
    ((peer, copy),) = desk.sent(Replicate)
    for name, value in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        desk.persist()
        write(name, value)
    desk.persist()
    sent = []
    for _ in range(3):
        desk.copied(peer, copy)
        told = desk.sent(Replicate)
        if told:
            ((peer, copy),) = told
            sent += [(record.name, record.value) for record in copy.records]
            assert safe == ["x1"], "of the others, one is at no buddy yet"
    assert sent == [("b", b"1"), ("a", b"2")]
    assert safe == ["x1", "a1", "b1", "a2"]


def test_copies_are_acknowledged_when_they_are_on_disk() -> None:
    desk, copies = holder()
    desk.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    assert desk.sent(ReplicateAck) == []
    desk.persist()
    assert desk.sent(ReplicateAck) == [(ME, ReplicateAck(1))]


def test_an_older_message_that_comes_late_changes_nothing() -> None:
    desk, copies = holder()
    desk.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    desk.do(lambda: copies._replicate(ME, copy(2, erased=("a",))))
    desk.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    assert held(copies) == {}
    assert desk.sent(ReplicateAck) == [(ME, ReplicateAck(1, later=(1, 1, 2)))]


def test_a_node_that_counts_from_1_again_overtakes_its_earlier_life() -> None:
    desk, safe = Desk(), list[str]()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = desk.sent(Replicate)
    desk.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    desk.persist()
    desk.do(lambda: desk.runtime.replied(ANN, ReplicateAck(first.request, later=(1, 1, 40))))
    ((_, second),) = desk.sent(Replicate)
    assert second.serial == 41
    assert second.begins
    desk.copied(ANN, second)
    desk.copied(*desk.sent(Replicate)[0])
    assert safe == ["a"]


def test_a_later_epoch_is_not_overtaken() -> None:
    desk = Desk()
    kept = replicator(desk)
    desk.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = desk.sent(Replicate)
    desk.do(lambda: desk.runtime.replied(ANN, ReplicateAck(first.request, later=(2, 1, 40))))
    assert desk.sent(Replicate) == []


def test_the_highest_version_stays() -> None:
    desk, copies = holder()
    desk.do(lambda: copies._replicate(ME, copy(1, record("a", 5))))
    desk.do(lambda: copies._replicate(ME, copy(2, record("a", 4), record("b", 1))))
    assert held(copies) == {"a": 5, "b": 1}


def test_names_that_do_not_come_again_with_everything_are_forgotten_at_the_end_and_not_before() -> None:
    desk, copies = holder()
    desk.do(lambda: copies._replicate(ME, copy(1, record("old", 1), record("kept", 1))))
    desk.do(lambda: copies._replicate(ME, copy(2, record("new", 2), begins=True)))
    assert held(copies) == {"old": 1, "kept": 1, "new": 2}
    desk.do(lambda: copies._replicate(ME, copy(3, record("kept", 1), ends=True)))
    assert held(copies) == {"kept": 1, "new": 2}
    assert [effect.erased for effect in desk.effects if isinstance(effect, Persist)] == [((HOME, "old"),)]


def test_copies_are_whole_from_the_end_of_everything_until_it_begins_again() -> None:
    desk, copies = holder()
    copies.recover([record("from an earlier life", 1)])
    told = []
    for each in (copy(1, record("a", 1)), copy(2, begins=True), copy(3, ends=True), copy(4, begins=True)):
        desk.do(lambda each=each: copies._replicate(ME, each))  # type: ignore[misc]
        told.append(copies.is_whole(HOME))
    assert told == [False, False, True, False]


@pytest.mark.parametrize(("after", "names", "more"), [("", ["a", "b"], True), ("b", ["c"], False), ("c", [], False)])
def test_copies_are_given_back_page_by_page(after: str, names: list[str], more: bool) -> None:
    desk = Desk(ANN)
    settings = NodeSettings(copy_bytes_max=30)
    copies = ReplicaStore(desk.runtime, settings, directory(alone=False), {})
    desk.do(lambda: copies._replicate(ME, copy(1, record("c", 1), record("a", 1), record("b", 1))))
    desk.do(lambda: copies._fetch(ME, FetchReplicas(9, HOME, after)))
    ((_, page),) = desk.sent(ReplicasFetched)
    assert ([each.name for each in page.records], page.more) == (names, more)
