"""Penalized connections have the time that others leave, and a small part of the rest."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import cast

import pytest

from meetpoint.api.client_messages import Request
from meetpoint.api.codec import frames
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Publish, Subscribe
from meetpoint.broker import Limits
from meetpoint.broker.transport.cpu_budget import (
    CREDIT_S,
    DEBT_S,
    NEWCOMER_PENALTY,
    PENALIZED_FROM,
    SHARE,
    CpuBudget,
    penalty_after,
)
from tests.broker.talking import broker, calling, event, raw, run, until


def test_a_newcomer_has_a_penalty_until_a_few_things_it_said_were_good() -> None:
    assert NEWCOMER_PENALTY >= PENALIZED_FROM
    assert penalty_after(NEWCOMER_PENALTY, 1, 0) >= PENALIZED_FROM
    assert penalty_after(NEWCOMER_PENALTY, 3, 0) < PENALIZED_FROM


@pytest.mark.parametrize(
    ("refused_of_ten", "is_penalized"), [(0, False), (1, False), (2, False), (4, True), (10, True)]
)
def test_the_penalty_is_about_the_part_that_was_refused(refused_of_ten: int, is_penalized: bool) -> None:
    for penalty in (0.0, 1.0):
        for _ in range(30):
            for number in range(10):
                is_refused = number * refused_of_ten % 10 < refused_of_ten
                penalty = penalty_after(penalty, int(not is_refused), int(is_refused))
        assert (penalty >= PENALIZED_FROM) is is_penalized
        assert 0 <= penalty <= 1


def test_trust_comes_back() -> None:
    assert penalty_after(1.0, 20, 0) < PENALIZED_FROM


class Loop:
    """An event loop of virtual time, in which others may need some."""

    def __init__(self, threads: float) -> None:
        self.now = 0.0
        self.busy_s = 0.0
        self._threads = threads
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._calls, (self.now + delay, self._serial, call))

    @property
    def used(self) -> float:
        """The processor time of the process: of the loop, and of threads that need a part of all time."""
        return self.busy_s + self._threads * self.now

    def run(self, seconds: float, others_s: float) -> None:
        """Let time pass; before each call others need so much."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            at, _, call = heapq.heappop(self._calls)
            self.now = max(self.now, at) + others_s
            self.busy_s += others_s
            call()


class Doubtful:
    """A connection that always has something to process, which takes some time."""

    def __init__(self, loop: Loop, cpu_budget: CpuBudget, costs_s: float) -> None:
        self._loop = loop
        self._allowance = cpu_budget
        self._costs_s = costs_s
        self.had_s = 0.0

    def go_on(self) -> None:
        while True:
            self._loop.now += self._costs_s
            self._loop.busy_s += self._costs_s
            self.had_s += self._costs_s
            self._allowance.spend(self._costs_s)
            if self._allowance.is_spent:
                self._allowance.wait(self.go_on)
                return


def had_of(others_s: float, threads: float = 0.0, count: int = 5, seconds: float = 20.0) -> float:
    """Which part of the time some of them have together, while others need so much between any two looks."""
    loop = Loop(threads)
    cpu_budget = CpuBudget(cast(asyncio.AbstractEventLoop, loop), lambda: loop.now, lambda: loop.used)
    all_of_them = [Doubtful(loop, cpu_budget, 0.0005) for _ in range(count)]
    for each in all_of_them:
        each.go_on()
    loop.run(seconds, others_s)
    had = [each.had_s for each in all_of_them]
    assert max(had) - min(had) <= 2 * CREDIT_S + 0.05 * sum(had), "they take turns"
    return sum(had) / loop.now


def test_where_nobody_else_needs_time_they_have_most_of_it() -> None:
    assert had_of(0.0) > 0.5


def test_others_could_always_have_as_much_again_as_they_need() -> None:
    parts = [had_of(0.0, threads) for threads in (0.1, 0.2, 0.3, 0.4)]
    assert parts == sorted(parts, reverse=True)
    for threads, had in zip((0.1, 0.2, 0.3, 0.4), parts, strict=True):
        assert had <= max(1.0 - 2 * threads, SHARE) + 0.05, threads


def test_a_loop_that_is_never_late_is_busy_where_threads_of_the_process_need_the_time() -> None:
    assert SHARE / 2 < had_of(0.0, threads=0.9) < 1.5 * SHARE


@pytest.mark.parametrize("others_s", [0.005, 0.02, 0.1])
def test_where_others_need_all_of_it_they_have_their_share(others_s: float) -> None:
    assert SHARE / 2 < had_of(others_s) < 1.5 * SHARE


@pytest.mark.parametrize("stopped_s", [0.5, 4.0, 3600.0])
def test_a_turn_in_which_the_process_was_stopped_shuts_nobody_out_for_long(stopped_s: float) -> None:
    loop = Loop(threads=0.0)
    cpu_budget = CpuBudget(cast(asyncio.AbstractEventLoop, loop), lambda: loop.now, lambda: loop.used)
    loop.now += stopped_s
    cpu_budget.spend(stopped_s)
    heard: list[float] = []
    cpu_budget.wait(lambda: heard.append(loop.now - stopped_s))
    loop.run(Limits().dial_s, others_s=0.02)  # while others need all of the time
    assert len(heard) == 1
    assert heard[0] <= 1.5 * DEBT_S / SHARE < Limits().dial_s


def test_a_client_that_is_refused_all_the_time_is_heard_all_the_same() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as bad, calling(one.address) as good:
            for number in range(300):
                bad.ask(Subscribe(f"s{number}", "no filter at all"))
            for number in range(300):
                answers = await good.publish(event(number, x=1))
                assert isinstance(answers[0], Published)
            await bad.told(300)
            (session,) = [each for each in one._clients.sessions if each.connection.penalty >= PENALIZED_FROM]
            assert session.connection.penalty > 0.9
            for number in range(40):
                assert isinstance((await bad.publish(event(1000 + number, x=1)))[0], Published)
            assert session.connection.penalty < PENALIZED_FROM

    run(main())


@pytest.mark.slow
def test_what_was_said_before_a_connection_broke_counts() -> None:
    async def main() -> None:
        async with broker(limits=Limits(unsynced_writes=20)) as one, calling(one.address) as other:
            await other.subscribe("all", "x > 0", window=2000)
            async with calling(one.address) as client:
                await client.publish(*[event(number, x=0) for number in range(20)])
                *_, session = one._clients.sessions
                client.send(*[Request(number, Publish(event(number, x=1))) for number in range(1, 1501)])
                await until(lambda: session.connection._backlog, "what it said waits for the disk")
                client.writer.transport.abort()
            assert len(await other.notified(1500)) == 1500
            await until(lambda: len(one._clients.sessions) == 1, "the one that broke off is gone")
            assert one._scheduler.finishing == 0

    run(main())


def test_what_a_penalized_peer_had_said_is_dropped_with_the_connection() -> None:
    async def main() -> None:
        async with broker() as one:
            for _ in range(100):
                async with raw(one.address) as caller:
                    caller.writer.write(frames([b"\xc1"] * 50, 1))
            async with calling(one.address) as client:
                assert isinstance((await client.publish(event(1, x=1)))[0], Published)
                await until(lambda: not one._listener._waiting, "all others are gone")
            assert one._scheduler.finishing == 0

    run(main())
