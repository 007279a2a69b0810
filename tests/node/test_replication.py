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


class Bench:
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


def replicator(bench: Bench, *, alone: bool = False, **settings: Any) -> Replicator:
    peers: Any = SimpleNamespace(declined=lambda peer: None)
    return Replicator(HOME, 1, [], bench.runtime, NodeSettings(**settings), directory(alone), peers)


def test_a_write_is_safe_on_the_own_disk_and_one_replica() -> None:
    bench, safe = Bench(), list[str]()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN, BOB]))
    for peer, copy in bench.sent(Replicate):
        bench.copied(peer, copy)
    bench.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    (to_ann, first), (_to_bob, _) = bench.sent(Replicate)
    bench.persist()
    assert safe == []
    bench.copied(to_ann, first)
    assert safe == ["a"]


def test_a_replica_alone_is_not_enough() -> None:
    bench, safe = Bench(), list[str]()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    bench.copied(*bench.sent(Replicate)[0])
    persist = bench.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    bench.copied(*bench.sent(Replicate)[0])
    assert safe == []
    bench.effects = persist
    bench.persist()
    assert safe == ["a"]


def test_alone_the_own_disk_is_all_there_is() -> None:
    bench, safe = Bench(), list[str]()
    kept = replicator(bench, alone=True)
    bench.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    assert safe == []
    bench.persist()
    assert safe == ["a"]


def test_one_message_is_on_its_way_and_the_rest_goes_together_the_latest_of_each_name() -> None:
    bench = Bench()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = bench.sent(Replicate)
    for value in (b"1", b"2", b"3"):
        bench.do(lambda value=value: kept.write([("a", value), ("b" + value.decode(), value)], ()))  # type: ignore[misc]
        assert bench.sent(Replicate) == []
    bench.copied(ANN, first)
    ((_, second),) = bench.sent(Replicate)
    assert [(record.name, record.value) for record in second.records] == [
        ("b1", b"1"),
        ("b2", b"2"),
        ("a", b"3"),
        ("b3", b"3"),
    ]


def test_what_nobody_waits_for_goes_to_the_peers_a_little_later() -> None:
    bench = Bench()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    bench.copied(*bench.sent(Replicate)[0])
    effects = bench.do(lambda: kept.write([("a", b"1")]))
    assert bench.sent(Replicate) == []
    (timer,) = [effect.timer for effect in effects if isinstance(effect, SetTimer)]
    bench.do(lambda: kept.write([("b", b"2")]))
    assert not any(isinstance(effect, SetTimer) for effect in bench.effects)
    bench.do(lambda: bench.runtime.fired(timer))
    ((_, copy),) = bench.sent(Replicate)
    assert [record.name for record in copy.records] == ["a", "b"]


def test_a_peer_that_restarted_gets_everything_again() -> None:
    bench = Bench()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    bench.copied(*bench.sent(Replicate)[0])
    bench.do(lambda: kept.commit([("a", b"1")]))
    bench.copied(*bench.sent(Replicate)[0])
    bench.do(lambda: kept.keep_at([ANN]))
    assert bench.sent(Replicate) == []
    again = Peer(ANN.id, ANN.address, ANN.incarnation + 1)
    bench.do(lambda: kept.keep_at([again]))
    ((_, copy),) = bench.sent(Replicate)
    assert [record.name for record in copy.records] == ["a"]
    assert copy.begins
    assert copy.ends


def test_a_write_waits_until_a_large_home_has_been_copied_whole() -> None:
    bench, safe = Bench(), list[str]()
    kept = replicator(bench, copy_bytes_max=100)
    bench.do(lambda: kept.write([(f"n{number}", bytes(60)) for number in range(5)], ()))
    bench.persist()
    bench.do(lambda: kept.keep_at([ANN]))
    begins, ends, names = [], [], []
    copied = bench.sent(Replicate)[0][1]
    bench.do(lambda: kept.commit([("last", b"")]).then(lambda _: safe.append("last")))
    bench.persist()
    while True:
        begins.append(copied.begins)
        ends.append(copied.ends)
        names += [record.name for record in copied.records]
        assert safe == []
        bench.copied(ANN, copied)
        if not bench.sent(Replicate):
            break
        copied = bench.sent(Replicate)[0][1]
    assert safe == ["last"]
    assert names == ["n0", "n1", "n2", "n3", "n4", "last"]
    assert begins == [True, False, False]
    assert ends == [False, False, True]


def copy(serial: int, *records: Record, begins: bool = False, ends: bool = False, **changes: object) -> Replicate:
    return Replicate(serial, HOME, 1, serial, records, tuple(changes.get("erased", ())), begins, ends)  # type: ignore[arg-type]


def record(name: str, version: int) -> Record:
    return Record(HOME, name, version, b"v%d" % version)


def store() -> tuple[Bench, ReplicaStore]:
    bench = Bench(ANN)
    copies = ReplicaStore(bench.runtime, NodeSettings(), directory(alone=False), {})
    return bench, copies


def held(copies: ReplicaStore) -> dict[str, int]:
    return {each.name: each.version for each in copies.records(HOME)}


def test_a_name_that_is_written_again_before_it_was_sent_is_safe_only_when_it_has_been_sent() -> None:
    """The later write goes out last, so that order is kept; the earlier one is not safe before it."""
    bench, safe = Bench(), list[str]()
    kept = replicator(bench, copy_bytes_max=1)  # one record in a message
    bench.do(lambda: kept.keep_at([ANN]))
    ((peer, copy),) = bench.sent(Replicate)
    bench.copied(peer, copy)

    def write(name: str, value: bytes) -> None:
        bench.do(lambda: kept.commit([(name, value)]).then(lambda _: safe.append(f"{name}{value.decode()}")))

    write("x", b"1")
    ((peer, copy),) = bench.sent(Replicate)
    for name, value in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        bench.persist()
        write(name, value)
    bench.persist()
    sent = []
    for _ in range(3):
        bench.copied(peer, copy)
        told = bench.sent(Replicate)
        if told:
            ((peer, copy),) = told
            sent += [(record.name, record.value) for record in copy.records]
            assert safe == ["x1"], "of the others, one is at no peer yet"
    assert sent == [("b", b"1"), ("a", b"2")]
    assert safe == ["x1", "a1", "b1", "a2"]


def test_copies_are_acknowledged_when_they_are_on_disk() -> None:
    bench, copies = store()
    bench.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    assert bench.sent(ReplicateAck) == []
    bench.persist()
    assert bench.sent(ReplicateAck) == [(ME, ReplicateAck(1))]


def test_an_older_message_that_comes_late_changes_nothing() -> None:
    bench, copies = store()
    bench.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    bench.do(lambda: copies._replicate(ME, copy(2, erased=("a",))))
    bench.do(lambda: copies._replicate(ME, copy(1, record("a", 1))))
    assert held(copies) == {}
    assert bench.sent(ReplicateAck) == [(ME, ReplicateAck(1, later=(1, 1, 2)))]


def test_a_node_that_counts_from_1_again_overtakes_its_earlier_life() -> None:
    bench, safe = Bench(), list[str]()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = bench.sent(Replicate)
    bench.do(lambda: kept.commit([("a", b"1")]).then(lambda _: safe.append("a")))
    bench.persist()
    bench.do(lambda: bench.runtime.replied(ANN, ReplicateAck(first.request, later=(1, 1, 40))))
    ((_, second),) = bench.sent(Replicate)
    assert second.serial == 41
    assert second.begins
    bench.copied(ANN, second)
    bench.copied(*bench.sent(Replicate)[0])
    assert safe == ["a"]


def test_a_later_epoch_is_not_overtaken() -> None:
    bench = Bench()
    kept = replicator(bench)
    bench.do(lambda: kept.keep_at([ANN]))
    ((_, first),) = bench.sent(Replicate)
    bench.do(lambda: bench.runtime.replied(ANN, ReplicateAck(first.request, later=(2, 1, 40))))
    assert bench.sent(Replicate) == []


def test_the_highest_version_stays() -> None:
    bench, copies = store()
    bench.do(lambda: copies._replicate(ME, copy(1, record("a", 5))))
    bench.do(lambda: copies._replicate(ME, copy(2, record("a", 4), record("b", 1))))
    assert held(copies) == {"a": 5, "b": 1}


def test_names_that_do_not_come_again_with_everything_are_forgotten_at_the_end_and_not_before() -> None:
    bench, copies = store()
    bench.do(lambda: copies._replicate(ME, copy(1, record("old", 1), record("kept", 1))))
    bench.do(lambda: copies._replicate(ME, copy(2, record("new", 2), begins=True)))
    assert held(copies) == {"old": 1, "kept": 1, "new": 2}
    bench.do(lambda: copies._replicate(ME, copy(3, record("kept", 1), ends=True)))
    assert held(copies) == {"kept": 1, "new": 2}
    assert [effect.erased for effect in bench.effects if isinstance(effect, Persist)] == [((HOME, "old"),)]


def test_copies_are_whole_from_the_end_of_everything_until_it_begins_again() -> None:
    bench, copies = store()
    copies.recover([record("from an earlier life", 1)])
    told = []
    for each in (copy(1, record("a", 1)), copy(2, begins=True), copy(3, ends=True), copy(4, begins=True)):
        bench.do(lambda each=each: copies._replicate(ME, each))  # type: ignore[misc]
        told.append(copies.is_whole(HOME))
    assert told == [False, False, True, False]


@pytest.mark.parametrize(("after", "names", "more"), [("", ["a", "b"], True), ("b", ["c"], False), ("c", [], False)])
def test_copies_are_given_back_page_by_page(after: str, names: list[str], more: bool) -> None:
    bench = Bench(ANN)
    settings = NodeSettings(copy_bytes_max=30)
    copies = ReplicaStore(bench.runtime, settings, directory(alone=False), {})
    bench.do(lambda: copies._replicate(ME, copy(1, record("c", 1), record("a", 1), record("b", 1))))
    bench.do(lambda: copies._fetch(ME, FetchReplicas(9, HOME, after)))
    ((_, page),) = bench.sent(ReplicasFetched)
    assert ([each.name for each in page.records], page.more) == (names, more)
