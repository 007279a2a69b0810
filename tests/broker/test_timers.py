"""Many timers on one: each that is still wanted fires once, in order, and none early."""

from __future__ import annotations

import asyncio
import random
import time

from meetpoint.broker.clock import SPARE, Clock, Timers
from tests.broker.talking import run, until


def test_timers_fire_in_their_order_and_cancelled_ones_never() -> None:
    async def main() -> None:
        clock = Clock()
        fired: list[tuple[int, int]] = []
        timers = Timers(asyncio.get_running_loop(), clock, lambda timer: fired.append((timer, clock.now())))
        drawn = random.Random(1)
        begin = clock.now()
        due = {timer: begin + drawn.randrange(200_000) for timer in range(500)}
        for timer, at in due.items():
            timers.set(timer, at)
        for timer in range(0, 500, 3):
            timers.cancel(timer)
            del due[timer]
        await until(lambda: len(timers) == 0, "all have fired")
        assert [timer for timer, _ in fired] == sorted(due, key=lambda timer: (due[timer], timer))
        assert all(now >= due[timer] for timer, now in fired)
        timers.close()

    run(main())


def test_a_timer_set_again_fires_at_its_last_time_only() -> None:
    async def main() -> None:
        clock = Clock()
        fired: list[int] = []
        timers = Timers(asyncio.get_running_loop(), clock, fired.append)
        timers.set(1, clock.now() + 10_000)
        timers.set(1, clock.now() + 30_000)
        timers.set(2, clock.now() + 20_000)
        await until(lambda: len(timers) == 0, "both have fired")
        assert fired == [2, 1]
        timers.close()

    run(main())


def test_what_fires_may_set_and_cancel_others() -> None:
    async def main() -> None:
        clock = Clock()
        fired: list[int] = []

        def fire(timer: int) -> None:
            fired.append(timer)
            if timer < 5:
                timers.set(timer + 1, clock.now())
                timers.cancel(100 + timer)

        timers = Timers(asyncio.get_running_loop(), clock, fire)
        timers.set(1, clock.now())
        for timer in range(101, 106):
            timers.set(timer, clock.now() + 300_000)
        await until(lambda: 105 in fired, "the last one has fired")
        assert fired == [1, 2, 3, 4, 5, 105]
        timers.close()

    run(main())


def test_forgotten_timers_do_not_pile_up() -> None:
    async def main() -> None:
        timers = Timers(asyncio.get_running_loop(), Clock(), lambda timer: None)
        for timer in range(20 * SPARE):
            timers.set(timer, 10**18 + timer)
            timers.cancel(timer)
        assert len(timers._heap) <= SPARE + 2
        timers.close()

    run(main())


def test_the_clock_is_wall_clock_microseconds_and_never_goes_back() -> None:
    async def main() -> None:
        clock = Clock()
        assert clock.now() == time.time_ns() // 1000
        await asyncio.sleep(1.5)
        assert clock.now() == time.time_ns() // 1000

    run(main())
    clock = Clock()
    before = clock.now()
    assert all(before <= (before := clock.now()) for _ in range(1000))
