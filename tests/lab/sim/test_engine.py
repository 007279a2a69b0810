"""The engine: order, time, clocks, timers, disks, and what becomes of messages to the dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.lab.sim.devices import BEGINNING
from meetpoint.lab.sim.engine import Detector, Engine, Process
from meetpoint.node.runtime.effects import Answer, CancelTimer, Effect, Observe, Persist, Send, SetTimer, Stop
from meetpoint.node.runtime.inputs import Input, Instant, PeerUnreachable, Persisted, Received, Started, TimerFired
from tests.store_conformance import record

SECOND = 1_000_000


class Word(Message, frozen=True, array_like=True, gc=False, tag="word"):
    """Something said."""

    text: str


class Scripted:
    """A node that does what it is told, and notes what it sees."""

    def __init__(self, me: Peer, script: Callable[[Input, int], list[Effect]]) -> None:
        self.me = me
        self.script = script
        self.seen: list[tuple[int, Input]] = []

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        self.seen.append((now, item))
        return self.script(item, now)

    def check(self) -> None:
        """Nothing can be wrong."""

    def snapshot(self) -> None:
        """Nothing to see."""

    def inputs(self, kind: type) -> list[Input]:
        return [item for _, item in self.seen if isinstance(item, kind)]


def peer(number: int) -> Peer:
    return Peer(NodeId(Key(bytes([number]))), f"n{number}")


def network(
    *scripts: Callable[[Input, int], list[Effect]], detector: Detector = "imperfect", seed: int = 1
) -> tuple[Engine, list[Scripted], list[Process]]:
    engine = Engine(Codec([Word]), seed, detector)
    processes = [engine.add(peer(number)) for number in range(len(scripts))]
    nodes = [Scripted(process.peer, script) for process, script in zip(processes, scripts, strict=True)]
    return engine, nodes, processes


def silent(item: Input, now: int) -> list[Effect]:
    return []


def at_start(*effects: Effect) -> Callable[[Input, int], list[Effect]]:
    return lambda item, now: list(effects) if isinstance(item, Started) else []


def start(engine: Engine, nodes: list[Scripted], processes: list[Process]) -> None:
    for node, process in zip(reversed(nodes), reversed(processes), strict=True):
        engine.start(process, node)
        engine.feed(process, Started())


def test_messages_of_one_link_arrive_in_the_order_of_sending() -> None:
    words = [Send(peer(1), Word(f"w{number}")) for number in range(20)]
    engine, nodes, processes = network(at_start(*words), silent)
    start(engine, nodes, processes)
    engine.run(BEGINNING + SECOND)
    received = nodes[1].inputs(Received)
    assert [item.message for item in received] == [send.message for send in words]  # type: ignore[union-attr]
    assert all(item.source == peer(0) for item in received)  # type: ignore[union-attr]


def test_a_message_arrives_after_the_delay_of_its_link_the_same_both_ways() -> None:
    def echo(item: Input, now: int) -> list[Effect]:
        return [Send(item.source, Word("back"))] if isinstance(item, Received) else []

    engine, nodes, processes = network(at_start(Send(peer(1), Word("there"))), echo)
    start(engine, nodes, processes)
    engine.run(BEGINNING + SECOND)
    there, back = nodes[1].seen[-1][0] - BEGINNING, nodes[0].seen[-1][0] - BEGINNING
    assert 0 < there < SECOND
    assert back == 2 * there


def test_timers_fire_in_order_at_their_times_and_a_cancelled_one_never() -> None:
    delays = {1: 3 * SECOND, 2: 10, 3: 40_000, 4: 3 * SECOND, 5: 7, 6: 0}
    set_all = [SetTimer(timer, Instant(BEGINNING + delay)) for timer, delay in delays.items()]
    engine, nodes, processes = network(at_start(*set_all, CancelTimer(3), CancelTimer(5), CancelTimer(99)))
    start(engine, nodes, processes)
    engine.run(BEGINNING + 10 * SECOND)
    fired = [(at - BEGINNING, item.timer) for at, item in nodes[0].seen if isinstance(item, TimerFired)]
    assert fired == [(0, 6), (10, 2), (3 * SECOND, 1), (3 * SECOND, 4)]


def test_a_timer_set_again_fires_at_its_new_time_only() -> None:
    later = [SetTimer(1, Instant(BEGINNING + 10)), SetTimer(1, Instant(BEGINNING + SECOND))]
    engine, nodes, processes = network(at_start(*later))
    start(engine, nodes, processes)
    engine.run(BEGINNING + 2 * SECOND)
    assert [at - BEGINNING for at, item in nodes[0].seen if isinstance(item, TimerFired)] == [SECOND]


def test_time_stops_where_it_is_told_to() -> None:
    engine, nodes, processes = network(
        at_start(SetTimer(1, Instant(BEGINNING + 5)), SetTimer(2, Instant(BEGINNING + 6)))
    )
    start(engine, nodes, processes)
    engine.run(BEGINNING + 5)
    assert len(nodes[0].inputs(TimerFired)) == 1
    assert engine.now == BEGINNING + 5
    engine.run(BEGINNING + 6)
    assert len(nodes[0].inputs(TimerFired)) == 2


def test_calls_happen_at_their_times_near_and_far_in_the_order_in_which_they_were_arranged() -> None:
    def script(item: Input, now: int) -> list[Effect]:
        started = isinstance(item, Started)
        return [SetTimer(1, Instant(BEGINNING + 3 * SECOND))] if started else [Answer(1, Stored())]

    engine, nodes, processes = network(script)
    happened: list[tuple[int, str]] = []
    engine.on_answer = lambda process, effect: happened.append((engine.now - BEGINNING, "the timer"))

    def call(at: int, name: str) -> None:
        engine.call(BEGINNING + at, lambda: happened.append((engine.now - BEGINNING, name)))

    call(3 * SECOND, "before the timer")
    start(engine, nodes, processes)
    call(3 * SECOND, "after the timer")
    call(40_000, "far")
    call(0, "now")
    call(7, "near")
    engine.call(BEGINNING + 30_000, call, 40_000, "arranged later")
    engine.run(BEGINNING + 2 * SECOND)
    assert happened == [(0, "now"), (7, "near"), (40_000, "far"), (40_000, "arranged later")]
    happened.clear()
    engine.run(BEGINNING + 3 * SECOND)
    assert happened == [(3 * SECOND, name) for name in ("before the timer", "the timer", "after the timer")]


def test_a_run_ends_when_all_of_its_time_has_happened_and_time_does_not_go_back() -> None:
    engine, _, _ = network(silent)
    happened: list[int] = []
    engine.call(BEGINNING + 5, lambda: engine.call(BEGINNING + 5, happened.append, 1))
    engine.call(BEGINNING + 6, happened.append, 2)
    engine.run(BEGINNING + 5)
    assert happened == [1]
    with pytest.raises(AssertionError, match="what is past is past"):
        engine.run(BEGINNING + 4)
    with pytest.raises(AssertionError, match="what is past is past"):
        engine.call(BEGINNING + 4, happened.append, 3)


def test_a_skewed_clock_shows_its_own_time_and_waits_as_long_as_others() -> None:
    def script(item: Input, now: int) -> list[Effect]:
        return [SetTimer(1, Instant(now + 10 * SECOND))] if isinstance(item, Started) else []

    engine, nodes, processes = network(script, script)
    processes[0].skew_us, processes[0].drift = -30 * SECOND, 1e-4
    start(engine, nodes, processes)
    engine.run(BEGINNING + 9_990_000)
    assert nodes[0].seen[0][0] == BEGINNING - 30 * SECOND
    assert nodes[0].inputs(TimerFired) == nodes[1].inputs(TimerFired) == []
    engine.run(BEGINNING + 10_000_000)
    (at, _) = nodes[0].seen[-1]
    assert abs(at - (BEGINNING - 20 * SECOND)) <= 1  # by its own clock exactly, and 1 ms early by the true one
    assert len(nodes[1].inputs(TimerFired)) == 1


@pytest.mark.parametrize("detector", ["perfect", "imperfect"])
def test_who_sends_to_a_dead_process_is_told_always_or_sometimes(detector: Detector) -> None:
    words = [Send(peer(1), Word("hello"))] * 200
    engine, nodes, processes = network(at_start(*words), silent, detector=detector)
    start(engine, nodes[:1], processes[:1])
    engine.run(BEGINNING + SECOND)
    told = nodes[0].inputs(PeerUnreachable)
    assert set(told) == {PeerUnreachable(peer(1))}
    assert len(told) == 200 if detector == "perfect" else 50 < len(told) < 150
    assert nodes[1].seen == []
    assert engine.undelivered == 200


@pytest.mark.parametrize("detector", ["perfect", "imperfect"])
def test_nobody_is_told_of_the_death_of_the_living(detector: Detector) -> None:
    engine, nodes, processes = network(at_start(*[Send(peer(1), Word("hello"))] * 50), silent, detector=detector)
    start(engine, nodes, processes)
    engine.run(BEGINNING + SECOND)
    assert nodes[0].inputs(PeerUnreachable) == []
    assert len(nodes[1].inputs(Received)) == 50


def test_messages_and_timers_of_an_earlier_life_are_lost() -> None:
    engine, nodes, processes = network(
        at_start(Send(peer(1), Word("for the first life"))), at_start(SetTimer(1, Instant(BEGINNING + SECOND)))
    )
    start(engine, nodes, processes)
    engine.kill(processes[1])
    second = Scripted(peer(1), silent)
    start(engine, [second], processes[1:])
    engine.run(BEGINNING + 2 * SECOND)
    assert [type(item) for _, item in second.seen] == [Started]


def test_what_is_sent_to_a_process_that_is_down_does_not_wait_for_it() -> None:
    engine, nodes, processes = network(at_start(Send(peer(1), Word("too early"))), silent)
    start(engine, nodes[:1], processes[:1])
    start(engine, nodes[1:], processes[1:])
    engine.run(BEGINNING + SECOND)
    assert nodes[1].inputs(Received) == []
    assert engine.undelivered == 1


def test_a_disk_that_writes_nothing_syncs_all_the_same() -> None:
    engine, nodes, processes = network(silent)
    synced: list[Process] = []
    engine.on_sync = lambda process: not synced.append(process)  # type: ignore[func-returns-value]
    start(engine, nodes, processes)
    engine.write_nothing(processes[0])
    engine.run(BEGINNING + SECOND)
    assert synced == processes
    assert processes[0].disk.recover() == ()


def test_a_ticket_is_answered_when_it_is_on_disk_and_not_before() -> None:
    engine, nodes, processes = network(at_start(Persist(7, (record("a"),)), Persist(8, (record("b"),))))
    start(engine, nodes, processes)
    assert nodes[0].inputs(Persisted) == []
    engine.run(BEGINNING + SECOND)
    assert nodes[0].inputs(Persisted) == [Persisted(7), Persisted(8)]
    first, second = (at for at, item in nodes[0].seen if isinstance(item, Persisted))
    assert first < second, "the second waited for a sync of its own"
    assert [each.name for each in processes[0].disk.recover()] == ["a", "b"]


def test_a_process_that_dies_before_its_sync_is_never_answered() -> None:
    engine, nodes, processes = network(at_start(Persist(7, (record("a"),))))
    start(engine, nodes, processes)
    engine.kill(processes[0])
    engine.run(BEGINNING + SECOND)
    assert nodes[0].inputs(Persisted) == []


def test_effects_are_applied_in_order_until_the_node_stops() -> None:
    seen: list[object] = []
    engine, nodes, processes = network(at_start(Answer(1, Stored()), Observe("o", 2, b"x"), Observe("o"), Stop()))
    engine.on_answer = lambda process, effect: seen.append(effect)
    engine.on_stop = lambda process: seen.append("stopped")
    start(engine, nodes, processes)
    assert seen == [Answer(1, Stored()), "stopped"]
    assert engine.observed == {"o": 3}
    assert engine.subjects == {"o": {b"x": 2}}
    assert processes[0].gone
    assert not processes[0].alive


def test_bytes_and_messages_are_counted_as_they_are_sent() -> None:
    words = [Send(peer(1), Word("hello")), Send(peer(1), Word("hi"))]
    engine, nodes, processes = network(at_start(*words), silent)
    start(engine, nodes, processes)
    codec = Codec([Word])
    assert processes[0].bytes_sent == sum(len(codec.encode(send.message)) for send in words)
    assert processes[0].sent == engine.messages == 2
    assert engine.kinds == {Word: 2}


def test_the_digest_sees_every_byte_and_every_instant() -> None:
    def digest(*words: str, late: int = 0) -> str:
        engine, nodes, processes = network(at_start(*[Send(peer(1), Word(word)) for word in words]), silent)
        engine.run(BEGINNING + late)
        start(engine, nodes, processes)
        engine.run(BEGINNING + SECOND)
        return engine.digest

    assert digest("a", "b") == digest("a", "b")
    assert len({digest("a", "b"), digest("b", "a"), digest("a"), digest("a", "b", late=1), digest("a", "c")}) == 5
