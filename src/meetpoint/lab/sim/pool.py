"""Runs on all cores: each in a process that has nothing in common with the others, their results as they come.

Simulations are long, so that whoever waits may be told how far they have come: a run says `advance`, and whoever
began it hears the sum.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from meetpoint.errors import MeetpointError

__all__ = ["advance", "cores", "in_processes"]

LOOK_S = 0.2
"""How often whoever waits looks how far the runs have come."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_done: Any = None
"""In a process of the pool, the steps that all of them have done."""


def cores() -> int:
    """How many runs may go on at once."""
    return os.cpu_count() or 1


def advance(steps: int) -> None:
    """Say, in a process of the pool, that so many steps were done."""
    if _done is not None:
        with _done.get_lock():
            _done.value += steps


def in_processes(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, step: Callable[[int], None] | None = None
) -> Iterator[Result]:
    """What `work` makes of each item, as it comes; `step` is called with the steps that were done since."""
    context = get_context("spawn")
    done = context.Value("Q", 0)
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(done,))
    ahead = iter(items)
    told = 0
    try:
        running = {pool.submit(work, item) for item in islice(ahead, 2 * workers)}
        while running:
            ready, running = wait(running, None if step is None else LOOK_S, FIRST_COMPLETED)
            if step is not None and (now := done.value) > told:
                step(now - told)
                told = now
            for future in ready:
                running |= {pool.submit(work, item) for item in islice(ahead, 1)}
                yield future.result()
    except BrokenProcessPool:
        raise MeetpointError(
            "sim: a process that simulated was killed, maybe for want of memory; "
            "take fewer nodes, subscriptions or events"
        ) from None
    except BaseException:  # whoever stops us does not want to wait for what is running
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(done: Any) -> None:
    global _done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _done = done
