"""Measurements of the benchmarks: the index as a side, CPU seconds in rounds, latencies, threads."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench.peers import Digest, digest_of
from meetpoint.lab.workloads.long_form import Array
from meetpoint.language.events.arrow import attributes_from_arrow

if TYPE_CHECKING:
    from meetpoint.matching.index import Index

SINGLE_EVENTS = 2000
"""Events that are matched one at a time for the latencies; a tenth of them before, to warm up."""
SLICE_S = 0.25
"""The least CPU seconds of a slice of matching."""
_PATH_VARIABLE = "MEETPOINT_KERNEL"

_Build: TypeAlias = Callable[[], "Index[int]"]


class MismatchError(MeetpointError):
    """The index and a peer find different pairs: one of them is wrong, and no figure means anything."""


class EventRates(msgspec.Struct, frozen=True):
    """Events a second of several rounds."""

    median: float
    best: float
    worst: float


class Threads(msgspec.Struct, frozen=True):
    """Events a second by the clock: of one thread, and of several with a part of the events each.

    `speedups` are those of the rounds; `speedup` is of the medians.
    """

    count: int
    one: float
    all: float
    speedups: tuple[float, ...]

    @property
    def speedup(self) -> float:
        return self.all / self.one


class Engine:
    """The index as one side of a measurement; its ids are the numbers of the subscriptions from 0."""

    name = "meetpoint"

    def __init__(self, build: _Build, path: str) -> None:
        self._build = build
        self._path = path
        self.index: Index[int]

    def load(self) -> None:
        self.index = self._build()

    def match(self, events: pa.Table) -> int:
        """Materialise all pairs, each as two numbers in arrays."""
        found = 0
        for pairs in self.index.pairs(events, path=self._path):
            assert len(pairs.events) == len(pairs.subscriptions)
            found += len(pairs.subscriptions)
        return found

    def digest(self, events: pa.Table) -> Digest:
        total = digest_of(np.zeros(0, np.int64), np.zeros(0, np.int64), events.num_rows)
        for pairs in self.index.pairs(events, path=self._path):
            some = digest_of(pairs.events, np.asarray(pairs.ids)[pairs.subscriptions], events.num_rows)
            total = Digest(total.counts + some.counts, total.sums + some.sums)
        return total


def check_agreement(ours: Digest, theirs: Digest, name: str) -> None:
    """Raise MismatchError where a peer finds other pairs than the index."""
    event = ours.difference(theirs)
    if event is None:
        return
    a, b = ((int(digest.counts[event]), int(digest.sums[event])) for digest in (ours, theirs))
    raise MismatchError(
        f"event {event}: meetpoint finds {a[0]:,} subscriptions, whose numbers add up to {a[1]:,}, and {name} {b[0]:,} "
        f"and {b[1]:,}; one of the two is wrong, so nothing is measured: keep the input and report it"
    )


def measure_in_rounds(works: Sequence[Callable[[], object]], rounds: int, least: float = 0.0) -> list[list[float]]:
    """Measure the CPU seconds of each work, round by round.

    In a slice that would be shorter than `least`, a work is done several times and the mean counts: else a short work
    would pay most for caches that the one before it has emptied.
    """
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, times in zip(works, spent, strict=True):
            turn = [seconds(work)]
            # At least 1 µs counts, or a work that the clock does not see would never end.
            while sum(turn) < least:
                turn.append(max(seconds(work), 1e-6))
            times.append(statistics.fmean(turn))
    return spent


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for a work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def rates_of(events: int, times: Sequence[float]) -> EventRates:
    """Return events a second, where so many took these times."""
    safe = [max(spent, 1e-9) for spent in times]
    return EventRates(events / statistics.median(safe), events / min(safe), events / max(safe))


@contextmanager
def kernel_path(path: str) -> Iterator[None]:
    """Name this path in the environment, which single events obey, for as long as they are measured."""
    before = os.environ.get(_PATH_VARIABLE)
    if path != "auto":
        os.environ[_PATH_VARIABLE] = path
    try:
        yield
    finally:
        if path != "auto":
            del os.environ[_PATH_VARIABLE]
            os.environ.update({} if before is None else {_PATH_VARIABLE: before})


def single_rows(events: pa.Table) -> list[dict[str, object]]:
    """Return the first events, each as its attributes."""
    return [dict(row) for row in attributes_from_arrow(_readable(events).slice(0, SINGLE_EVENTS))]


def latencies(index: Index[int], rows: Sequence[Mapping[str, object]], path: str) -> Array:
    """Return microseconds by the clock from each event's attributes to the list of ids; some events come first to warm
    up.
    """
    times = []
    with kernel_path(path):
        for row in rows[: len(rows) // 10 + 1]:
            index.match(row)
        for row in rows:
            begin = time.perf_counter_ns()
            index.match(row)
            times.append(time.perf_counter_ns() - begin)
    return np.array(times) / 1000


def _readable(events: pa.Table) -> pa.Table:
    """Return the columns that a single event can have: a list or a date is no attribute."""
    names = []
    for name in events.column_names:
        with suppress(MeetpointError):
            attributes_from_arrow(events.select([name]).slice(0, SINGLE_EVENTS))
            names.append(name)
    return events.select(names)


def measure_threads(engine: Engine, events: pa.Table, count: int, rounds: int) -> Threads:
    """Measure by the clock, since CPU seconds do not show the gain of two threads."""
    size = -(-events.num_rows // count)
    parts = [events.slice(at, size) for at in range(0, events.num_rows, size)]
    one: list[float] = []
    several: list[float] = []
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(engine.match, parts))
        for _ in range(rounds):
            begin = time.perf_counter()
            engine.match(events)
            between = time.perf_counter()
            list(pool.map(engine.match, parts))
            one.append(between - begin)
            several.append(time.perf_counter() - between)
    speedups = tuple(alone / together for alone, together in zip(one, several, strict=True))
    rate, rate_all = (events.num_rows / statistics.median(times) for times in (one, several))
    return Threads(count, rate, rate_all, speedups)
