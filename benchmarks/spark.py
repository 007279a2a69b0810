"""Spark's speed of matching, beside a cross join and DuckDB in one run: `python -m benchmarks.spark [--json]
[--quick]`.

The cross join is the query that one writes without an index: the constraints of a subscription in columns, NULL where
there is none, and a condition over all of them. It is timed on fewer events and scaled where it would not end, and
says so. Everything is written to Spark's `noop` sink, and has found the same pairs before anything is measured. Times
are by the clock, medians of warm runs with their range; the first run, which starts workers and maps the index, is not
counted. DuckDB runs in this process with one thread. Bytes of shuffles are those of Spark's own event log.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.figures import Figure, asked, clock, figure, tell
from meetpoint.lab.bench.matcher import PEERS
from meetpoint.lab.workloads.generator import generate
from meetpoint.lab.workloads.long_form import Workload
from meetpoint.lab.workloads.on_spark import generate as generate_on_spark
from meetpoint.spark import Subscriptions, match, session

GOALS = {10_000: 20.0, 100_000: 100.0}
"""The least ratio of the cross join's time, by the number of subscriptions."""
GOAL_FLAT = 1.25
"""The largest cost of an event at four times as many events, to that at once as many."""
STRATEGIES = ("broadcast", "partitioned", "join")
SLOW = ("join",)
"""The parts that are run once where the cross join is scaled, since they take so much longer."""
PARTS = ("cross", "large")
SEED = 7
_TEXT_TESTS = {
    "eq": "e.`{a}` = s.`{a} text`",
    "prefix": "startswith(e.`{a}`, s.`{a} text`)",
    "suffix": "endswith(e.`{a}`, s.`{a} text`)",
    "contains": "contains(e.`{a}`, s.`{a} text`)",
}


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of a run; `crossed` are the events that the cross join gets, by the number of subscriptions."""

    crossed: dict[int, int]
    events: int
    large_subscriptions: int
    large_events: tuple[int, ...]
    rounds: int = 5


FULL = Sizes({10_000: 20_000, 100_000: 1_000}, 20_000, 1_000_000, (250_000, 500_000, 1_000_000))
QUICK = Sizes({300: 400, 1_000: 100}, 400, 2_000, (1_000, 2_000), rounds=1)


class Bench:
    """A session, its event log, and a folder for compiled subscriptions and tables."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self._log = folder / "events"
        self._log.mkdir()
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.driver.memory": "4g",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        }
        self.spark = session(f"local[{min(os.cpu_count() or 1, 2)}]", app="meetpoint benchmark", config=settings)
        self._read = 0

    def table(self, name: str, data: pa.Table) -> Any:
        """Return a table as Spark reads it from Parquet, in as many parts as there are cores."""
        path = self.folder / name
        path.mkdir()
        half = -(-data.num_rows // 2)
        for part, at in enumerate(range(0, data.num_rows, half)):
            pq.write_table(data.slice(at, half), path / f"{part}.parquet")
        return self.spark.read.parquet(str(path))

    def written(self, frame: Any, rounds: int | None = None) -> list[float]:
        """Return seconds of warm runs that write everything nowhere."""
        work = frame.write.format("noop").mode("overwrite").save
        work()
        return [clock(work) for _ in range(rounds or self.rounds)]

    def shuffled(self) -> int:
        """Return the bytes that shuffles have written since the last call."""
        total = 0
        for log in self._log.iterdir():
            for line in log.read_text(encoding="utf-8").splitlines():
                if '"Shuffle Bytes Written"' in line:
                    metrics = json.loads(line).get("Task Metrics") or {}
                    total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
        since, self._read = total - self._read, total
        return since


def agree(name: str, found: int, expected: int) -> None:
    """Stop where two ways to match find another number of pairs."""
    if found != expected:
        raise SystemExit(f"benchmarks.spark: {name} finds {found:,} pairs, not {expected:,}: report it")


# -- beside the cross join ---------------------------------------------------------------------------------------------


def cross(bench: Bench, sizes: Sizes) -> Iterator[Figure]:
    for (subscriptions, crossed), goal in zip(sizes.crossed.items(), GOALS.values(), strict=True):
        work = generate("ticks", subscriptions, sizes.events, SEED)
        label = f"{subscriptions:,} x {sizes.events:,}"
        events = bench.table(f"events-{subscriptions}", work.events)
        drawn = generate_on_spark(bench.spark, "ticks", subscriptions=subscriptions, events=1, seed=SEED).subscriptions
        path = str(bench.folder / f"subscriptions-{subscriptions}")
        drawn.write.parquet(path)
        made = partial(_compile, bench, path, work.events, bench.folder / f"index-{subscriptions}")
        held = made()
        yield figure(f"{label}: compile", [clock(made) for _ in range(bench.rounds)], "s")
        assert held.version is not None
        yield figure(f"{label}: the index", [held.version.index_bytes / 1e6], "MB")
        expected, peer_s = _duckdb(work, bench.rounds)
        some = bench.table(f"some-{subscriptions}", work.events.slice(0, crossed))
        naive = _cross_join(bench, work, some)
        agree("the cross join", naive.count(), match(some, held).count())
        scale = sizes.events / crossed
        naive_s = [scale * one for one in bench.written(naive)]
        told = "" if scale == 1 else f", timed on {crossed:,} events and scaled"
        yield figure(f"{label}: cross join{told}", naive_s, "s", events_per_s=(sizes.events / _median(naive_s),))
        for strategy in STRATEGIES:
            hits = match(events, held, strategy=strategy)
            agree(strategy, hits.count(), expected)
            bench.shuffled()
            ours = bench.written(hits, 1 if strategy in SLOW and scale > 1 else None)
            moved = bench.shuffled() / (len(ours) + 1)
            yield figure(f"{label}: {strategy}", ours, "s", events_per_s=(sizes.events / _median(ours),))
            yield figure(f"{label}: {strategy}, shuffled", [moved / 1e6], "MB")
            each = [a / b for a, b in zip(naive_s, ours, strict=False)]
            wanted: dict[str, Any] = {"goal": goal} if strategy == "broadcast" else {}
            value = _median(naive_s) / _median(ours)
            yield Figure(f"{label}: cross join to {strategy}", value, min(each), max(each), "x", **wanted)
        yield figure(f"{label}: DuckDB, one thread", peer_s, "s", events_per_s=(sizes.events / _median(peer_s),))


def _compile(bench: Bench, path: str, events: pa.Table, directory: Path) -> Subscriptions:
    return Subscriptions.from_dataframe(bench.spark.read.parquet(path)).compile(directory, sample=events)


def _duckdb(work: Workload, rounds: int) -> tuple[int, list[float]]:
    """Return how many pairs DuckDB finds, and its seconds."""
    peer = PEERS["duckdb"](work.subscriptions, work.events)
    peer.load()
    peer.prepare()
    peer.stage(work.events)
    found = peer.match(work.events)
    return found, [clock(partial(peer.match, work.events)) for _ in range(rounds)]


def _cross_join(bench: Bench, work: Workload, events: Any) -> Any:
    """Join every event with every subscription, under a condition that asks all constraints."""
    long = work.subscriptions
    wide = pa.table({"subscription": pc.unique(long["subscription"])})
    conditions = []
    for attribute in sorted(set(long["attribute"].to_pylist())):
        mine = long.filter(pc.equal(long["attribute"], attribute))
        names = {"op": f"{attribute} op", "low": f"{attribute} low", "high": f"{attribute} high"}
        names |= {"text": f"{attribute} text"}
        part = mine.select(["subscription", *names]).rename_columns(["subscription", *names.values()])
        wide = wide.join(part, "subscription")
        if pa.types.is_string(work.events.schema.field(attribute).type):
            tests = [
                f"(s.`{attribute} op` = '{op}' AND {test.format(a=attribute)})"
                for op, test in _TEXT_TESTS.items()
                if pc.any(pc.equal(mine["op"], op)).as_py()
            ]
            test = " OR ".join(tests)
        else:
            test = f"e.`{attribute}` BETWEEN s.`{attribute} low` AND s.`{attribute} high`"
        conditions.append(f"(s.`{attribute} op` IS NULL OR {test})")
    subscriptions = bench.table(f"wide-{wide.num_rows}", wide)
    joined = "SELECT /*+ BROADCAST(s) */ e.*, s.subscription FROM {e} e CROSS JOIN {s} s"
    return bench.spark.sql(
        f"{joined} WHERE {' AND '.join(conditions)}",
        e=events,
        s=subscriptions,
    )


# -- a million by a million --------------------------------------------------------------------------------------------


def large(bench: Bench, sizes: Sizes) -> Iterator[Figure]:
    """Measure a selective mix, whose cost per event must not grow with the events."""
    count = sizes.large_subscriptions
    drawn = generate_on_spark(bench.spark, "selective", subscriptions=count, events=max(sizes.large_events), seed=SEED)
    path = str(bench.folder / "subscriptions")
    drawn.subscriptions.write.parquet(path)
    events_path = str(bench.folder / "events-large")
    drawn.events.write.parquet(events_path)
    sample = bench.spark.read.parquet(events_path).limit(10_000).toArrow().drop_columns(["event"])
    held: list[Subscriptions] = []
    made = partial(_compile, bench, path, sample, bench.folder / "index")
    took = [clock(lambda: held.append(made())) for _ in range(min(bench.rounds, 3))]
    yield figure(f"{count:,} subscriptions: compile", took, "s")
    compiled = held[-1].version
    assert compiled is not None
    yield figure(f"{count:,} subscriptions: the index", [compiled.index_bytes / 1e6], "MB")
    costs = []
    for events in sizes.large_events:
        frame = bench.spark.read.parquet(events_path).where(f"event < {events}")
        hits = match(frame, held[-1])
        pairs = hits.count()
        bench.shuffled()
        spent = bench.written(hits)
        label = f"{count:,} x {events:,}"
        yield figure(f"{label}: broadcast", spent, "s", events_per_s=(events / _median(spent),))
        yield figure(f"{label}: matches an event", [pairs / events], "")
        yield figure(f"{label}: shuffled", [bench.shuffled() / (bench.rounds + 1) / 1e6], "MB")
        costs.append([one / events for one in spent])
    each = [b / a for a, b in zip(costs[0], costs[-1], strict=True)]
    value = _median(costs[-1]) / _median(costs[0])
    name = f"cost of an event, {sizes.large_events[-1]:,} to {sizes.large_events[0]:,}"
    yield Figure(name, value, min(each), max(each), "x", goal=GOAL_FLAT, at_most=True)
    work = generate("selective", count, min(sizes.large_events[0], 20_000), SEED)
    _, peer_s = _duckdb(work, min(bench.rounds, 3))
    rate = work.events.num_rows / _median(peer_s)
    yield figure(f"{count:,} x {work.events.num_rows:,}: DuckDB, one thread", peer_s, "s", events_per_s=(rate,))


def _median(values: Sequence[float]) -> float:
    return figure("", values, "").value


# -- the run -----------------------------------------------------------------------------------------------------------


def run(bench: Bench, sizes: Sizes, parts: Sequence[str]) -> Iterator[Figure]:
    works: dict[str, Callable[[Bench, Sizes], Iterator[Figure]]] = {"cross": cross, "large": large}
    for part in PARTS:
        if part in parts:
            yield from works[part](bench, sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, PARTS, arguments)
    sizes = QUICK if told.quick else FULL
    here = {name: version(name) for name in ("pyspark", "duckdb", "numba", "pyarrow")}
    with tempfile.TemporaryDirectory(prefix="meetpoint-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), sizes.rounds)
        try:
            if told.json:
                figures = [msgspec.to_builtins(one) for one in run(bench, sizes, told.parts)]
                sys.stdout.write(json.dumps({"machine": here | {"cores": os.cpu_count()}, "figures": figures}) + "\n")
            else:
                said = ", ".join(f"{name} {number}" for name, number in here.items())
                sys.stdout.write(f"{said}, {os.cpu_count()} cores\n")
                tell(run(bench, sizes, told.parts), not told.quick)
        finally:
            bench.spark.stop()


if __name__ == "__main__":
    main()
