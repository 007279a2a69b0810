"""The index's speed of matching, beside DuckDB in the same run: `python -m benchmarks.matcher [--json] [--quick]`.

Machines differ, so that the goals are ratios wherever they can be. One thread; the index and DuckDB (its peer `duckdb`,
see `meetpoint.lab.bench.duckdb_peer`) get the same subscriptions and events, alternate, and have found the same pairs
before anything is measured. A ratio is that of the medians of CPU seconds, its range that of the rounds. Threads,
single events, changes and files are measured by the clock. `--quick` is a smoke test: it is too small to judge goals.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import msgspec
import numpy as np

from benchmarks.figures import Figure, asked, clock, figure, ratio, tell
from meetpoint.lab.bench.matcher import PEERS
from meetpoint.lab.bench.rounds import (
    SLICE_S,
    Engine,
    MismatchError,
    check_agreement,
    latencies,
    measure_in_rounds,
    measure_threads,
    single_rows,
)
from meetpoint.lab.workloads.generator import default_subscriptions, generate
from meetpoint.lab.workloads.long_form import Workload, filter_texts
from meetpoint.lab.workloads.mixes import MIXES
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.matching.index import Index
from meetpoint.matching.index.kernels.jit import has_avx512

GOALS = {"avx512": (12.0, 28.0, 60.0), "portable": (7.0, 12.0, 20.0)}
"""Ratios to DuckDB on ticks, by path, for each of the sizes."""
GOAL_FAR = 120.0
"""The ratio that the best path may reach at the largest size some day."""
GOAL_MIX = 5.0
GOAL_BYTES = 100.0
GOAL_BUILD = 15.0
GOAL_THREADS = 1.7
GOAL_CHANGES = 50_000.0
GOAL_MATCH_MS = 50.0
EVENT_PAUSE_S = 0.002
"""The pause between two events that are matched while subscriptions change: nearly 500 a second."""
GOAL_OPEN_S = 1.0

PARTS = ("ticks", "threads", "single", "file", "changes", "mixes")
SEED = 7
LOAD_ROUNDS = 3
THREADS = 2
_CHECKED_EVENTS = 200


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of a run; `mix` are the subscriptions of the other mixes, None where each has its own number."""

    ticks: tuple[int, int, int] = (10_000, 100_000, 1_000_000)
    mix: int | None = None
    events: int = 20_000
    rounds: int = 5
    turn_s: float = SLICE_S
    batch: int = 2_000
    batches: int = 25


FULL = Sizes()
QUICK = Sizes(ticks=(300, 1_000, 4_000), mix=500, events=300, rounds=2, turn_s=0.0, batch=100, batches=3)


# -- beside DuckDB -----------------------------------------------------------------------------------------------------


class Compared(msgspec.Struct, frozen=True):
    """CPU seconds of rounds, by path and DuckDB's, to match, and to build the index or load the raw long form."""

    index: Index[int]
    paths: dict[str, list[float]]
    duckdb: list[float]
    build: list[float]
    raw_load: list[float]


def compare(workload: Workload, paths: Sequence[str], sizes: Sizes) -> Compared:
    events = workload.events
    peer = PEERS["duckdb"](workload.subscriptions, events)
    built = Engine(lambda: Index.from_columns(workload.subscriptions, sample=events), "auto")
    build, raw_load = measure_in_rounds([built.load, peer.load], LOAD_ROUNDS)
    engines = [Engine(lambda: built.index, path) for path in paths]
    peer.prepare()
    peer.stage(events)
    expected = peer.digest(events)
    for engine in engines:
        engine.load()
        check_agreement(engine.digest(events), expected, peer.name)
    works = [partial(engine.match, events) for engine in engines]
    *ours, theirs = measure_in_rounds([*works, partial(peer.match, events)], sizes.rounds, sizes.turn_s)
    return Compared(built.index, dict(zip(paths, ours, strict=True)), theirs, build, raw_load)


def ticks(sizes: Sizes, paths: Sequence[str], keep: Callable[[Workload, Index[int]], object]) -> Iterator[Figure]:
    """Yield the ratios for each size; the last index is handed on."""
    for at, subscriptions in enumerate(sizes.ticks):
        workload = generate("ticks", subscriptions, sizes.events, SEED)
        found = compare(workload, paths, sizes)
        last = at == len(sizes.ticks) - 1
        for path, times in found.paths.items():
            far = GOAL_FAR if last and path == "avx512" else None
            name = f"ticks, {subscriptions:,} subscriptions, {path}"
            yield ratio(name, times, found.duckdb, sizes.events, goal=GOALS[path][at], far=far)
    each = found.index.nbytes / len(found.index)
    yield figure("bytes a subscription", [each], "B", goal=GOAL_BYTES, at_most=True)
    yield ratio("CPU to build, to DuckDB's raw load", found.raw_load, found.build, goal=GOAL_BUILD, at_most=True)
    keep(workload, found.index)


def mixes(sizes: Sizes, path: str) -> Iterator[Figure]:
    """Yield the ratio of every other mix, and the worst."""
    figures = []
    for mix in MIXES:
        if mix != "ticks":
            subscriptions = sizes.mix or default_subscriptions(mix)
            found = compare(generate(mix, subscriptions, sizes.events, SEED), [path], sizes)
            name = f"{mix}, {subscriptions:,} subscriptions, {path}"
            figures.append(ratio(name, found.paths[path], found.duckdb, sizes.events, goal=GOAL_MIX))
            yield figures[-1]
    worst = min(figures, key=lambda one: one.value)
    yield msgspec.structs.replace(worst, name=f"the worst mix is {worst.name.split(',')[0]}", goal=None)


# -- the largest index on its own --------------------------------------------------------------------------------------


def threads(index: Index[int], workload: Workload, rounds: int) -> Iterator[Figure]:
    engine = Engine(lambda: index, "auto")
    engine.load()
    found = measure_threads(engine, workload.events, THREADS, rounds)
    low, high = min(found.speedups), max(found.speedups)
    yield Figure(f"{THREADS} threads to one", found.speedup, low, high, "x", goal=GOAL_THREADS)


def single(index: Index[int], workload: Workload, paths: Sequence[str]) -> Iterator[Figure]:
    rows = single_rows(workload.events)
    for path in paths:
        times = [latencies(index, rows, path) / 1000 for _ in range(LOAD_ROUNDS)]
        for percent in (50, 99):
            name = f"a single event, {path}, {percent}th percentile"
            yield figure(name, [float(np.percentile(some, percent)) for some in times], "ms")


def file(index: Index[int], workload: Workload, rounds: int) -> Iterator[Figure]:
    """Measure saving, and opening from a file that the system has in memory; the first match may have to read it."""
    row = single_rows(workload.events)[0]
    some = workload.events.slice(0, _CHECKED_EVENTS)
    expected = index.counts(some)
    opened, first = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        saved = clock(partial(index.save, path))
        size = path.stat().st_size
        for _ in range(rounds):
            begin = time.perf_counter()
            held = Index.open(path)
            opened.append(time.perf_counter() - begin)
            first.append(1000 * clock(partial(held.match, row)))
            if not np.array_equal(held.counts(some), expected):
                raise SystemExit("the index that was saved and opened finds other matches: report it")
            del held  # some systems remove no file that is mapped
    yield figure("saving", [saved], "s")
    yield figure("the file", [size / 1e6], "MB")
    yield figure("opening", opened, "s", goal=GOAL_OPEN_S, at_most=True)
    yield figure("the first match after opening", first, "ms")


def changes(index: Index[int], workload: Workload, sizes: Sizes) -> Iterator[Figure]:
    """Measure adding, changing and removing batches of parsed filters, while another thread matches.

    The goals are for an event every `EVENT_PAUSE_S`. With a thread that matches without any pause the two share the
    interpreter, and the rest for changes is reported too.
    """
    count = sizes.batch * sizes.batches
    if 4 * count > len(index):
        raise SystemExit(f"{len(index):,} subscriptions are too few to change {4 * count:,} of them")
    rows = single_rows(workload.events)
    fresh = iter(_filters(4 * count + sizes.batch))
    gone = iter(np.random.default_rng(SEED).permutation(len(index)).tolist())
    came = itertools.count(len(index))
    expected = len(index) + sizes.batch
    gc.collect()  # the filters were made here: a fifth of a second to look through them would count as a change's
    before = latencies(index, rows, "auto") / 1000
    with _Watch(index, rows, EVENT_PAUSE_S) as watch:
        began = clock(lambda: index.add_many(zip(itertools.islice(came, sizes.batch), fresh, strict=False)))
    yield figure(f"the first change, of {sizes.batch:,}", [1000 * began], "ms")
    yield figure("the longest match during the first change", [max(watch.times)], "ms")
    yield from _latencies("before", before)
    for pause, name in ((EVENT_PAUSE_S, "while matching"), (0.0, "while matching without pause")):
        works: dict[str, Callable[[list[Any]], object]] = {
            "added": lambda some: index.add_many(zip(itertools.islice(came, len(some)), some, strict=True)),
            "updated": lambda some: index.update_many(zip(itertools.islice(gone, len(some)), some, strict=False)),
            "removed": index.remove_many,
        }
        with _Watch(index, rows, pause) as watch:
            spent: dict[str, list[float]] = {work: [] for work in works}
            for work, change in works.items():
                source = gone if work == "removed" else fresh
                for _ in range(sizes.batches):
                    spent[work].append(clock(partial(change, list(itertools.islice(source, sizes.batch)))))
        goal: dict[str, Any] = {"goal": GOAL_CHANGES} if pause else {}
        for work, times in spent.items():
            each = [sizes.batch / one for one in times]
            yield Figure(f"{work} {name}", count / sum(times), min(each), max(each), "/s", **goal)
        longest: dict[str, Any] = {"goal": GOAL_MATCH_MS, "at_most": True} if pause else {}
        yield from _latencies("during" if pause else "without pause during", np.array(watch.times), **longest)
    if len(index) != expected:
        raise SystemExit(f"after all changes {len(index):,} subscriptions are held, not {expected:,}: report it")


def _latencies(name: str, times: Any, **goal: Any) -> Iterator[Figure]:
    for percent in (50, 99):
        yield figure(f"a match {name} changes, {percent}th percentile", [float(np.percentile(times, percent))], "ms")
    yield figure(f"the longest match {name} changes", [float(times.max())], "ms", **goal)


class _Watch:
    """Another thread that matches one event after the other; `times` are in milliseconds."""

    def __init__(self, index: Index[int], rows: Sequence[Mapping[str, object]], pause: float) -> None:
        self.times: list[float] = []
        self._index, self._rows, self._pause = index, rows, pause
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not (self.times and self._enough.is_set()):  # once at least: a change may be over before this begins
            row = self._rows[len(self.times) % len(self._rows)]
            self.times.append(1000 * clock(partial(self._index.match, row)))
            if self._pause:
                time.sleep(self._pause)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()
        self._thread.join()


def _filters(count: int) -> list[Filter]:
    parser = FilterParser()
    return [parser.parse(text) for _, text in filter_texts(generate("ticks", count, 1, SEED + 1))]


# -- the run -----------------------------------------------------------------------------------------------------------


def run(sizes: Sizes, parts: Iterable[str] = PARTS) -> Iterator[Figure]:
    """Yield all figures of some parts, one by one."""
    paths = ["avx512", "portable"] if has_avx512() else ["portable"]
    wanted = set(parts)
    largest: list[tuple[Workload, Index[int]]] = []
    if "ticks" in wanted:
        yield from ticks(sizes, paths, lambda workload, index: largest.append((workload, index)))
    elif wanted - {"mixes"}:
        made = generate("ticks", sizes.ticks[-1], sizes.events, SEED)
        largest.append((made, Index.from_columns(made.subscriptions, sample=made.events)))
    for workload, index in largest:
        if "threads" in wanted and (os.cpu_count() or 1) >= THREADS:
            yield from threads(index, workload, sizes.rounds)
        if "single" in wanted:
            yield from single(index, workload, paths)
        if "file" in wanted:
            yield from file(index, workload, sizes.rounds)
        if "changes" in wanted:
            yield from changes(index, workload, sizes)
    largest.clear()
    if "mixes" in wanted:
        yield from mixes(sizes, paths[0])


def machine() -> dict[str, Any]:
    """Describe the machine and the libraries of the measurements."""
    here = {"processor": llvm.get_host_cpu_name(), "cores": os.cpu_count(), "avx512": has_avx512()}
    python = {"python": ".".join(map(str, sys.version_info[:3]))}
    return here | python | {name: version(name) for name in ("duckdb", "numba", "numpy", "pyarrow")}


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, PARTS, arguments)
    try:
        (_tell_json if told.json else _tell)(QUICK if told.quick else FULL, told.parts, not told.quick)
    except MismatchError as error:
        raise SystemExit(f"benchmarks.matcher: {error}") from None


def _tell_json(sizes: Sizes, parts: Sequence[str], judge: bool) -> None:
    figures = [{**msgspec.to_builtins(one), "met": one.met if judge else None} for one in run(sizes, parts)]
    sys.stdout.write(json.dumps({"machine": machine(), "events": sizes.events, "figures": figures}) + "\n")


def _tell(sizes: Sizes, parts: Sequence[str], judge: bool) -> None:
    here = machine()
    vectors = "AVX-512 used" if here.pop("avx512") else "no AVX-512, so the portable path only"
    sys.stdout.write(f"{here.pop('processor')}, {here.pop('cores')} cores, {vectors}; ")
    sys.stdout.write(", ".join(f"{name} {said}" for name, said in here.items()) + "\n")
    sys.stdout.write(f"{sizes.events:,} events; x is the ratio to DuckDB where nothing else is said\n")
    tell(run(sizes, parts), judge)


if __name__ == "__main__":
    main()
