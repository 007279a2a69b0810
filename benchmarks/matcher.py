"""How fast the index matches, beside DuckDB in the same run: `python -m benchmarks.matcher [--json] [--quick]`.

Machines differ, so that the goals are ratios wherever they can be. One thread; the index and DuckDB (its peer `duckdb`,
see `meetpoint.bench.duckdb_peer`) get the same subscriptions and events, take turns, and have found the same pairs
before anything is measured. A ratio is that of the medians of CPU seconds, its range that of the rounds. Threads,
single events, changes and files are measured by the clock. `--quick` is a smoke test: it is too small to judge goals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
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

from meetpoint.bench.matcher import PEERS
from meetpoint.bench.measuring import (
    TURN_S,
    Engine,
    MismatchError,
    agree,
    latencies,
    measure_threads,
    single_rows,
    take_turns,
)
from meetpoint.language.filters import Filter, FilterParser
from meetpoint.matching.index import Index
from meetpoint.matching.index.kernels.simd import has_avx512
from meetpoint.workloads.generating import MIXES, default_subscriptions, generate
from meetpoint.workloads.longform import Workload, filter_texts

GOALS = {"avx512": (12.0, 28.0, 60.0), "portable": (7.0, 12.0, 20.0)}
"""Ratios to DuckDB on ticks, by path, for each of the sizes."""
GOAL_FAR = 120.0
"""What the best path may come to at the largest size some day."""
GOAL_MIX = 5.0
GOAL_BYTES = 100.0
GOAL_BUILD = 15.0
GOAL_THREADS = 1.7
GOAL_CHANGES = 50_000.0
GOAL_MATCH_MS = 50.0
GOAL_OPEN_S = 1.0

PARTS = ("ticks", "threads", "single", "file", "changes", "mixes")
SEED = 7
LOAD_ROUNDS = 3
THREADS = 2
_CHECKED_EVENTS = 200


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured; `mix` are the subscriptions of the other mixes, None where each has its own number."""

    ticks: tuple[int, int, int] = (10_000, 100_000, 1_000_000)
    mix: int | None = None
    events: int = 20_000
    rounds: int = 5
    turn_s: float = TURN_S
    batch: int = 2_000
    batches: int = 25


FULL = Sizes()
QUICK = Sizes(ticks=(300, 1_000, 4_000), mix=500, events=300, rounds=2, turn_s=0.0, batch=100, batches=3)


class Figure(msgspec.Struct, frozen=True):
    """A figure with its range, and the goal for it, at least or at most; of a ratio also what its two sides match."""

    name: str
    value: float
    low: float
    high: float
    unit: str
    goal: float | None = None
    at_most: bool = False
    far: float | None = None
    events_per_s: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def figure(name: str, values: Sequence[float], unit: str, **goal: Any) -> Figure:
    """The median of values, and their range."""
    return Figure(name, statistics.median(values), min(values), max(values), unit, **goal)


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], events: int = 0, **goal: Any) -> Figure:
    """How many times as long theirs takes as ours, of rounds in which both took turns; for so many events each."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    one, other = statistics.median(ours), statistics.median(theirs)
    rates = (events / one, events / other) if events else None
    return Figure(name, other / one, min(each), max(each), "x", events_per_s=rates, **goal)


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
    build, raw_load = take_turns([built.load, peer.load], LOAD_ROUNDS)
    engines = [Engine(lambda: built.index, path) for path in paths]
    peer.prepare()
    peer.stage(events)
    expected = peer.digest(events)
    for engine in engines:
        engine.load()
        agree(engine.digest(events), expected, peer.name)
    works = [partial(engine.match, events) for engine in engines]
    *ours, theirs = take_turns([*works, partial(peer.match, events)], sizes.rounds, sizes.turn_s)
    return Compared(built.index, dict(zip(paths, ours, strict=True)), theirs, build, raw_load)


def ticks(sizes: Sizes, paths: Sequence[str], keep: Callable[[Workload, Index[int]], object]) -> Iterator[Figure]:
    """The ratios for each size; the last index is handed on."""
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
    """The ratio of every other mix, and which is the worst."""
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
    """Saving, and opening from a file that the system has in memory; the first match may have to read it."""
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
    """Subscriptions come, change and go in batches of parsed filters, while another thread matches all the time."""
    count = sizes.batch * sizes.batches
    drawn = np.random.default_rng(SEED).permutation(len(index))
    if 2 * count > len(drawn):
        raise SystemExit(f"{len(drawn):,} subscriptions are too few to change {2 * count:,} of them")
    first, fresh = len(index), _filters(2 * count + sizes.batch)
    ids = np.arange(first, first + count + sizes.batch)
    rows = single_rows(workload.events)
    before = latencies(index, rows, "auto") / 1000
    with _Watch(index, rows) as watch:
        began = clock(lambda: index.add_many(zip(ids[count:].tolist(), fresh[2 * count :], strict=True)))
        then = len(watch.times)
        spent: dict[str, list[float]] = {"added": [], "updated": [], "removed": []}
        for at in range(0, count, sizes.batch):
            part = slice(at, at + sizes.batch)
            more = list(zip(ids[part].tolist(), fresh[part], strict=True))
            spent["added"].append(clock(partial(index.add_many, more)))
        for at in range(0, count, sizes.batch):
            part = slice(at, at + sizes.batch)
            other = list(zip(drawn[part].tolist(), fresh[count + at : count + at + sizes.batch], strict=True))
            spent["updated"].append(clock(partial(index.update_many, other)))
        for at in range(count, 2 * count, sizes.batch):
            spent["removed"].append(clock(partial(index.remove_many, drawn[at : at + sizes.batch].tolist())))
    if len(index) != first + sizes.batch:
        raise SystemExit(f"after all changes {len(index):,} subscriptions are held: report it")
    for name, times in spent.items():
        each = [sizes.batch / one for one in times]
        overall = count / sum(times)
        yield Figure(f"{name} while matching", overall, min(each), max(each), "/s", goal=GOAL_CHANGES)
    yield figure(f"the first change, of {sizes.batch:,}", [1000 * began], "ms")
    yield figure("the longest match during the first change", [max(watch.times[: then + 1])], "ms")
    for name, some in (("before", before), ("during", np.array(watch.times))):
        for percent in (50, 99):
            yield figure(f"a match {name} changes, {percent}th percentile", [float(np.percentile(some, percent))], "ms")
        goal = {"goal": GOAL_MATCH_MS, "at_most": True} if name == "during" else {}
        yield figure(f"the longest match {name} changes", [float(some.max())], "ms", **goal)


class _Watch:
    """Another thread that matches one event after the other; `times` are in milliseconds."""

    def __init__(self, index: Index[int], rows: Sequence[Mapping[str, object]]) -> None:
        self.times: list[float] = []
        self._index, self._rows = index, rows
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._enough.is_set():
            row = self._rows[len(self.times) % len(self._rows)]
            self.times.append(1000 * clock(partial(self._index.match, row)))

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()
        self._thread.join()


def _filters(count: int) -> list[Filter]:
    parser = FilterParser()
    return [parser.parse(text) for _, text in filter_texts(generate("ticks", count, 1, SEED + 1))]


def clock(work: Callable[[], object]) -> float:
    """Seconds by the clock."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


# -- the run -----------------------------------------------------------------------------------------------------------


def run(sizes: Sizes, parts: Iterable[str] = PARTS) -> Iterator[Figure]:
    """All figures of some parts, one by one."""
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
    """What the figures were measured with."""
    here = {"processor": llvm.get_host_cpu_name(), "cores": os.cpu_count(), "avx512": has_avx512()}
    python = {"python": ".".join(map(str, sys.version_info[:3]))}
    return here | python | {name: version(name) for name in ("duckdb", "numba", "numpy", "pyarrow")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", metavar="PARTS", default=",".join(PARTS), help="some of %(default)s")
    told = parser.parse_args(arguments)
    parts = told.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only {','.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    try:
        (_tell_json if told.json else _tell)(QUICK if told.quick else FULL, parts, not told.quick)
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
    sys.stdout.write(f"{'':<46}{'goal':>12}{'measured':>13}{'range':>22}{'events/s':>23}\n")
    goals = []
    for one in run(sizes, parts):
        met = one.met if judge else None
        goals += [] if met is None else [met]
        sys.stdout.write(_line(one, met) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{sum(goals)} of {len(goals)} goals met\n" if judge else "sizes are too small to judge goals\n")


def _line(one: Figure, met: bool | None) -> str:
    goal = "" if one.goal is None else f"{'at most' if one.at_most else ''} {_number(one.goal)}"
    spread = "" if one.low == one.high else f"{_number(one.low)} … {_number(one.high)}"
    verdict = "" if met is None else "  met" if met else "  NOT met"
    if one.far is not None and met is not None:
        verdict += f" (far goal {_number(one.far)}: {'met' if one.value >= one.far else 'not yet'})"
    sides = "" if one.events_per_s is None else " to ".join(f"{rate:,.0f}" for rate in one.events_per_s)
    return f"{one.name:<46}{goal:>12}{_number(one.value) + ' ' + one.unit:>13}{spread:>22}{sides:>23}{verdict}"


def _number(value: float) -> str:
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"


if __name__ == "__main__":
    main()
