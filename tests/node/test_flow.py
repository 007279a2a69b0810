"""Flows: what a coroutine of the node may wait for, in which order it goes on, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from meetpoint.api.codec import Codec
from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.requests import Leave
from meetpoint.node.cluster.subscription_locator import LocateSubscription, SubscriptionLocation
from meetpoint.node.message_kinds import MESSAGES
from meetpoint.node.runtime.effects import Effect, Observe, Persist, Send, SetTimer
from meetpoint.node.runtime.flow import DONE, Signal, all_set
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from tests.node.world import World

RING = Ring(16)
PEER = Peer(RING.node(2), "n2", 1)
HOME = HomeId(bytes(RING.node(5)))
SECOND = 1_000_000


class Bench:
    """A runtime, and what its flows noted."""

    def __init__(self, seed: int = 1) -> None:
        self.runtime = Runtime(Peer(RING.node(1), "n1", 1), RING, Codec(MESSAGES), seed)
        self.noted: list[Any] = []
        self.effects: list[Effect] = self.runtime.begin(Instant(0))

    def step(self, now: int = 0) -> None:
        self.effects = self.runtime.begin(Instant(now))

    def fire(self, now: int) -> None:
        """Fire all timers that the last step set."""
        timers = [effect.timer for effect in self.effects if isinstance(effect, SetTimer)]
        self.step(now)
        for timer in timers:
            self.runtime.fired(timer)

    def names(self) -> list[str]:
        return [flow.name for flow in self.runtime.flows]


async def noting(bench: Bench, *waits: Signal[Any], name: str = "") -> None:
    for each in waits:
        bench.noted.append((name, await each))


def test_a_flow_runs_at_once_to_its_first_wait() -> None:
    bench = Bench()
    signal: Signal[int] = Signal()

    async def flow() -> None:
        bench.noted.append("begins")
        bench.noted.append(await signal)

    bench.runtime.start("one", flow())
    assert bench.noted == ["begins"]
    signal.set(7)
    assert bench.noted == ["begins", 7]
    assert bench.names() == []


def test_a_signal_that_is_set_is_not_waited_for() -> None:
    bench = Bench()
    bench.runtime.start("one", noting(bench, DONE, DONE))
    assert bench.noted == [("", None), ("", None)]


def test_those_who_wait_go_on_in_the_order_in_which_they_came() -> None:
    bench = Bench()
    signal: Signal[int] = Signal()
    bench.runtime.start("a", noting(bench, signal, name="a"))
    signal.then(lambda value: bench.noted.append(("callback", value)))
    bench.runtime.start("b", noting(bench, signal, name="b"))
    signal.set(1)
    assert bench.noted == [("a", 1), ("callback", 1), ("b", 1)]


def test_a_signal_is_set_once() -> None:
    signal: Signal[int] = Signal()
    signal.set(1)
    with pytest.raises(AssertionError):
        signal.set(2)


def test_all_set_waits_for_each_in_any_order() -> None:
    bench = Bench()
    first: Signal[int] = Signal()
    second: Signal[str] = Signal()
    bench.runtime.start("all", noting(bench, all_set([first, second, DONE])))
    second.set("x")
    assert bench.noted == []
    first.set(1)
    assert bench.noted == [("", None)]
    assert all_set([]) is DONE


def test_effects_come_in_the_order_in_which_the_flow_says_them() -> None:
    bench = Bench()
    runtime = bench.runtime

    async def flow() -> None:
        await runtime.persist([Record(LOCAL, "note", 1, b"x")])
        reply = await runtime.ask(PEER, LocateSubscription(0, "s"), SECOND)
        bench.noted.append(reply)
        await runtime.sleep(SECOND)
        runtime.observe("over")

    runtime.start("in order", flow())
    (persist,) = bench.effects
    assert isinstance(persist, Persist)
    bench.step()
    runtime.persisted(persist.ticket)
    timer, send = bench.effects
    assert isinstance(timer, SetTimer)
    assert isinstance(send, Send)
    assert isinstance(send.message, LocateSubscription)
    bench.step(5)
    runtime.replied(PEER, SubscriptionLocation(send.message.request, False, "", b""))
    assert isinstance(bench.noted[0], SubscriptionLocation)
    bench.fire(SECOND + 5)
    assert bench.effects == [Observe("over")]
    assert runtime.waiting == 0


def test_a_reply_after_the_timeout_is_ignored() -> None:
    bench = Bench()
    bench.runtime.start("asks", noting(bench, bench.runtime.ask(PEER, LocateSubscription(0, "s"), SECOND)))
    request = next(effect.message.request for effect in bench.effects if isinstance(effect, Send))  # type: ignore[attr-defined]
    bench.fire(SECOND)
    assert bench.noted == [("", None)]
    bench.step()
    bench.runtime.replied(PEER, SubscriptionLocation(request, True, "", b""))
    assert bench.noted == [("", None)]
    assert bench.effects == [Observe("reply_unexpected")]


def test_a_reply_of_another_peer_is_ignored() -> None:
    bench = Bench()
    bench.runtime.start("asks", noting(bench, bench.runtime.ask(PEER, LocateSubscription(0, "s"), SECOND)))
    request = next(effect.message.request for effect in bench.effects if isinstance(effect, Send))  # type: ignore[attr-defined]
    bench.runtime.replied(Peer(RING.node(3), "n3", 1), SubscriptionLocation(request, True, "", b""))
    assert bench.noted == []
    bench.runtime.lost(PEER)
    assert bench.noted == [("", None)]


def test_what_a_home_began_ends_with_it() -> None:
    bench = Bench()
    runtime = bench.runtime

    async def flow(name: str) -> None:
        try:
            await runtime.sleep(SECOND)
            bench.noted.append((name, "went on"))
        finally:
            bench.noted.append((name, "closed"))

    runtime.start("of the home", flow("home"), HOME)
    runtime.start("of the node", flow("node"))
    runtime.end_flows(HOME)
    assert bench.noted == [("home", "closed")]
    assert bench.names() == ["of the node"]
    bench.fire(SECOND)
    assert bench.noted == [("home", "closed"), ("node", "went on"), ("node", "closed")]


def test_a_flow_that_ends_its_own_home_ends_at_its_next_wait() -> None:
    bench = Bench()
    runtime = bench.runtime

    async def flow() -> None:
        runtime.end_flows(HOME)
        bench.noted.append("says the rest")
        await runtime.sleep(SECOND)
        bench.noted.append("goes on")

    runtime.start("its own", flow(), HOME)
    assert bench.names() == []
    bench.fire(SECOND)
    assert bench.noted == ["says the rest"]


def test_an_exception_leaves_the_call_that_resumed_the_flow() -> None:
    bench = Bench()
    signal: Signal[None] = Signal()

    async def flow() -> None:
        await signal
        raise ZeroDivisionError

    bench.runtime.start("fails", flow())
    with pytest.raises(ZeroDivisionError):
        signal.set(None)
    assert bench.names() == []

    async def at_once() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        bench.runtime.start("fails at once", at_once())
    assert bench.names() == []


def test_a_flow_says_since_when_it_runs() -> None:
    bench = Bench()
    bench.step(3)
    bench.runtime.start("waits", noting(bench, bench.runtime.sleep(SECOND)), HOME)
    bench.step(9)
    bench.runtime.start("waits too", noting(bench, bench.runtime.sleep(SECOND)))
    assert [(flow.name, flow.since, flow.home) for flow in bench.runtime.flows] == [
        ("waits", 3, HOME),
        ("waits too", 9, None),
    ]


def test_a_run_with_the_same_inputs_is_the_same_run() -> None:
    def run() -> Iterator[list[Effect]]:
        bench = Bench(seed=7)
        runtime = bench.runtime

        async def flow(name: str) -> None:
            for _ in range(runtime.random.randrange(3, 6)):
                runtime.observe(name)
                await runtime.sleep(runtime.random.randrange(SECOND))
                await runtime.persist([])

        for name in ("a", "b", "c"):
            runtime.start(name, flow(name))
        now = 0
        while runtime.flows:
            yield bench.effects
            now += SECOND
            due, before = bench.effects, runtime.flows
            bench.step(now)
            for effect in due:
                if isinstance(effect, SetTimer):
                    runtime.fired(effect.timer)
                elif isinstance(effect, Persist):
                    runtime.persisted(effect.ticket)
            assert before

    assert list(run()) == list(run())


def test_a_node_lists_its_flows_and_a_home_that_moves_leaves_none() -> None:
    world = World(3)
    world.run(5)
    node = world.nodes[2]
    assert {name for name, _ in node.snapshot().flows} == {"gossip", "release replicas"}
    home = next(iter(node.home_manager.homes))
    node._runtime.start("of the home", noting(Bench(), Signal()), home)
    world.ask(2, Leave())
    world.run(20)
    assert node.state == "left"
    assert {name for name, _ in node.snapshot().flows} == {"gossip", "release replicas"}
