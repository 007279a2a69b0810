"""A cell of the table: a side with so many subscriptions, its rate and its latency.

This process publishes, another receives; the servers are others again. The rate is measured with as many events in
flight as `window` lets, from the first event sent to the last acknowledgement and the last delivery, whichever is
later. The latency, from sending an event to having it, is measured apart, at half of that rate, because the latency of
an overloaded network is the length of its queues. Every delivery is counted: a cell in which some did not come, or came
unasked, says so.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench.brokers.sides import Address, OfferedLoad, Publisher, Side


class Effort(msgspec.Struct, frozen=True):
    """The extent of a measurement."""

    rate_s: float = 8.0
    """Seconds of publishing at full speed."""
    latency_s: float = 5.0
    """Seconds of publishing at half of that rate."""
    window: int = 512
    """The most events that may be unacknowledged; fewer where they take long."""
    window_s: float = 0.5
    """The longest window in seconds' worth of events."""
    events_max: int = 200_000
    latency_events_max: int = 20_000
    consumers: int = 8
    setup_s: float = 420.0
    drain_s: float = 30.0


class Cell(msgspec.Struct, frozen=True):
    """The measurements of one cell. `wrong` is empty, or says why the figures mean nothing."""

    side: str
    subscriptions: int
    setup_s: float = 0.0
    events: int = 0
    events_per_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    latency_rate: float = 0.0
    wrong: str = ""


class _Got(msgspec.Struct, frozen=True):
    """The deliveries to the receiver since the last question."""

    deliveries: int
    again: int
    last_ns: int
    latencies_ns: bytes


def measure(side: Side, subscriptions: int, effort: Effort, folder: Path, seed: int) -> Cell:
    """Measure one cell, on servers of its own."""
    offered = OfferedLoad.draw(subscriptions, effort.consumers, seed)
    with side.servers(folder) as address:
        begin = time.perf_counter()
        setup = 0.0
        try:
            with _receiver(side, address, offered, effort) as receiver:
                setup = time.perf_counter() - begin
                return asyncio.run(_measured(side, address, offered, effort, receiver, setup))
        except MeetpointError as error:
            return Cell(side.name, subscriptions, setup, wrong=str(error))


async def _measured(
    side: Side, address: Address, offered: OfferedLoad, effort: Effort, receiver: Receiver, setup: float
) -> Cell:
    finder = offered.finder()
    numbers = count()
    async with side.publishing(address) as publishing:
        phase = _Phase(side, offered, publishing, receiver, numbers, finder, effort)
        # Two short phases find the window: a fixed one would time out where a side is slow.
        first = await phase.run("warm", seconds=1.0, window=4, most=200)
        window = max(4, min(effort.window, int(first.rate * effort.window_s)))
        second = await phase.run("warmer", seconds=1.0, window=window, most=20_000)
        window = max(4, min(effort.window, int(second.rate * effort.window_s)))
        full = await phase.run("rate", seconds=effort.rate_s, window=window, most=effort.events_max)
        pace = full.rate / 2
        calm = await phase.run(
            "latency", seconds=effort.latency_s, window=effort.window, most=effort.latency_events_max, pace=pace
        )
    p50, p99 = np.percentile(calm.latencies_ms, [50, 99]) if len(calm.latencies_ms) else (0.0, 0.0)
    return Cell(
        side.name, len(offered.subscriptions), setup, full.events, full.rate, float(p50), float(p99),
        calm.rate, first.wrong or second.wrong or full.wrong or calm.wrong,
    )  # fmt: skip


class _Ran(msgspec.Struct, frozen=True):
    events: int
    rate: float
    latencies_ms: Any
    wrong: str


class _Phase:
    """A publisher for a while, which then waits until everything has come."""

    def __init__(
        self, side: Side, offered: OfferedLoad, publishing: Publisher, receiver: Receiver, numbers: Iterator[int],
        finder: Any, effort: Effort,
    ) -> None:  # fmt: skip
        self._side = side
        self._offered = offered
        self._publishing = publishing
        self._receiver = receiver
        self._numbers = numbers
        self._finder = finder
        self._effort = effort

    async def run(self, name: str, *, seconds: float, window: int, most: int, pace: float | None = None) -> _Ran:
        drawn = []
        free = asyncio.Semaphore(window)
        unanswered: set[asyncio.Future[None]] = set()
        failed: list[BaseException] = []

        def answered(future: asyncio.Future[None]) -> None:
            unanswered.discard(future)
            free.release()
            if (error := future.exception()) is not None:
                failed.append(error)

        events = self._offered.events(name)
        begin = time.perf_counter()
        begin_ns = time.monotonic_ns()
        for sent, event in enumerate(islice(events, most)):
            if time.perf_counter() - begin > seconds or failed:
                break
            if pace is not None and (early := begin + sent / pace - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            await free.acquire()
            future = self._publishing.publish(next(self._numbers), event)
            unanswered.add(future)
            future.add_done_callback(answered)
            drawn.append(event)
        if unanswered:
            await asyncio.wait(unanswered, timeout=self._effort.drain_s)
        end_ns = time.monotonic_ns()
        if failed:
            raise MeetpointError(f"publishing failed in phase {name}: {failed[0]}")
        if unanswered:
            raise MeetpointError(f"{len(unanswered)} of {len(drawn)} events of phase {name} were not acknowledged")
        expected = sum(self._side.targets(self._offered, self._finder.find(event)) for event in drawn)
        got = await asyncio.to_thread(self._receiver.collect, expected, self._effort.drain_s)
        wrong = ""
        if got.deliveries != expected or got.again:
            wrong = f"phase {name}: {got.deliveries:,} deliveries and {got.again:,} repeats, expected {expected:,}"
        took = (max(end_ns, got.last_ns) - begin_ns) / 1e9
        return _Ran(len(drawn), len(drawn) / took, np.frombuffer(got.latencies_ns, np.int64) / 1e6, wrong)


# -- the other process -------------------------------------------------------------------------------------------------


class Receiver:
    """The receiving process, as seen from here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def collect(self, expected: int, within: float) -> _Got:
        """Return all deliveries since the last call; wait until there are so many."""
        self._connection.send((expected, within))
        got: _Got = self._answer(within + 30)
        return got

    def ready(self, within: float) -> None:
        self._answer(within)

    def _answer(self, within: float) -> Any:
        if not self._connection.poll(within):
            raise MeetpointError(f"the receiver said nothing for {within:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise MeetpointError("the receiver ended") from None
        if isinstance(answer, str):
            raise MeetpointError(answer)
        return answer


@contextmanager
def _receiver(side: Side, address: Address, offered: OfferedLoad, effort: Effort) -> Iterator[Receiver]:
    # A forked child would inherit the threads and sockets of this process.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_receive, args=(side, address, offered, there), daemon=True)
    process.start()
    there.close()
    try:
        receiver = Receiver(here)
        receiver.ready(effort.setup_s)
        yield receiver
    finally:
        here.close()
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _receive(side: Side, address: Address, offered: OfferedLoad, there: Connection) -> None:
    try:
        asyncio.run(_received(side, address, offered, there))
    except MeetpointError as error:
        there.send(f"the receiver: {error}")
    except (EOFError, BrokenPipeError):
        pass  # who asked is gone


async def _received(side: Side, address: Address, offered: OfferedLoad, there: Connection) -> None:
    loop = asyncio.get_running_loop()
    counted: set[tuple[int, int]] = set()
    latencies: list[int] = []
    again = last = 0
    wanted = 0
    enough = asyncio.Event()

    def seen(number: int, sent_ns: int, target: int) -> None:
        nonlocal again, last
        last = time.monotonic_ns()
        key = (number, target)
        if key in counted:
            again += 1
            return
        counted.add(key)
        latencies.append(last - sent_ns)
        if len(latencies) >= wanted:
            enough.set()

    async with side.receiving(address, offered, seen):
        there.send(None)
        while True:
            wanted, within = await loop.run_in_executor(None, there.recv)
            enough.clear()
            if len(latencies) < wanted:
                with suppress(TimeoutError):  # the count tells
                    await asyncio.wait_for(enough.wait(), within)
            there.send(_Got(len(latencies), again, last, np.array(latencies, np.int64).tobytes()))
            latencies.clear()
            again = 0
