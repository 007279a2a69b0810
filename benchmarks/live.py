"""Spark's speed of reading from brokers and publishing to them: `python -m benchmarks.live [--quick] [--json] [--only
…]`.

One broker, a process with a disk and an archive, and Spark on the same machine, `local[2]`. Both sides alternate in
rounds; each figure is a ratio to a baseline of the same round.

    table     all events as a table, with their attributes added up, to `read_archive` on the same files without brokers
    stream    the same as a stream with `availableNow`, which plans, keeps offsets and commits as well
    sink      rows of a table published, each once per query and batch, to `publish_many` of one client
    delay     from when an event is published, one every 10 ms, until a running stream has it in a batch
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import meetpoint as mp
from benchmarks.figures import Figure, asked, clock, figure, ratio, tell
from meetpoint.client.sync import connect_sync
from meetpoint.lab.bench.brokers.ours import WatchedBroker, watch
from meetpoint.spark.archives import read_archive

PARTS = ("table", "stream", "sink", "delay")
FLUSH_S = 0.2
SCHEMA = "attributes:\n  n: {type: integer}\n  symbol: {type: string}\n  price: {type: float}\n"
WAIT_S = 120.0


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of a run."""

    events: int = 50_000
    published: int = 10_000
    delayed: int = 500
    rounds: int = 5


QUICK = Sizes(events=500, published=100, delayed=20, rounds=1)


def drawn(count: int) -> Iterator[dict[str, object]]:
    """Draw events with three attributes."""
    return ({"n": n, "symbol": f"S{n % 997}", "price": n / 7} for n in range(count))


class Live:
    """A broker with events in its archive, and a session."""

    def __init__(self, spark: Any, broker: WatchedBroker, folder: Path, sizes: Sizes) -> None:
        self.spark = spark
        self.url = f"mp://{broker.address}"
        self.folder = folder
        self.sizes = sizes
        self._queries = 0

    def fill(self) -> None:
        """Publish the events, and wait until they are in files."""
        with connect_sync(self.url) as net:
            net.declare(SCHEMA)
            net.publish_many(drawn(self.sizes.events))
        until = time.monotonic() + WAIT_S
        while sum(1 for _ in mp.read_archive(self.folder / "archive")) < self.sizes.events:
            if time.monotonic() > until:
                raise SystemExit(f"not all events are in the archive after {WAIT_S:g} s")
            time.sleep(FLUSH_S)

    def archived(self) -> Any:
        """Return the files, read by Spark itself."""
        return read_archive(self.spark, str(self.folder / "archive"), mp.Schema.from_yaml(SCHEMA)).good

    def table(self) -> Any:
        """Return the same events, read through the broker."""
        return self.spark.read.format("meetpoint").option("url", self.url).load().select("attributes.*")

    def add_up(self, frame: Any) -> None:
        """Read every attribute; the sum is known."""
        (found,) = frame.selectExpr("count(*) AS rows", "sum(n) AS n", "max(price)").collect()
        events = self.sizes.events
        assert (found["rows"], found["n"]) == (events, events * (events - 1) // 2), found

    def stream(self) -> None:
        """Read all of it, as a stream that ends."""
        seen: list[int] = []
        source = self.spark.readStream.format("meetpoint").options(url=self.url, since="earliest").load()
        query = source.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
        self._to_end(query.option("checkpointLocation", self._checkpoint()))
        assert sum(seen) == self.sizes.events, seen

    def sink(self, rows: Any) -> None:
        """Publish the rows of a file."""
        source = self.spark.readStream.schema(rows.schema).parquet(str(self.folder / "rows.parquet"))
        self._queries += 1
        query = source.writeStream.format("meetpoint").options(url=self.url, publisher=f"bench{self._queries}")
        self._to_end(query.option("checkpointLocation", self._checkpoint()))

    def _to_end(self, query: Any) -> None:
        running = query.trigger(availableNow=True).start()
        if not running.awaitTermination(int(WAIT_S)):
            raise SystemExit("a query does not end")

    def _checkpoint(self) -> str:
        return tempfile.mkdtemp(dir=self.folder, prefix="checkpoint-")

    def publish(self) -> None:
        """Publish the same events as the sink, by one client."""
        with connect_sync(self.url) as net:
            net.publish_many(drawn(self.sizes.published))

    def delays(self) -> list[float]:
        """Return milliseconds until each event is in a batch."""
        came: dict[int, float] = {}
        source = self.spark.readStream.format("meetpoint").options(url=self.url, since="latest", filter="price < 0")

        def note(batch: Any, _: int) -> None:
            numbers = [row["n"] for row in batch.selectExpr("attributes.n AS n").collect()]
            now = time.perf_counter()
            came.update((n, now) for n in numbers)

        query = source.load().writeStream.foreachBatch(note).option("checkpointLocation", self._checkpoint()).start()
        try:
            with connect_sync(self.url) as net:
                self._until(lambda: net.publish({"n": -1, "price": -1.0}) and -1 in came)  # it has begun
                sent = {}
                for n in range(self.sizes.delayed):
                    sent[n] = time.perf_counter()
                    net.publish({"n": n, "price": -1.0})
                    time.sleep(0.01)
                self._until(lambda: len(came) > self.sizes.delayed)
        finally:
            query.stop()
        return [1000 * (came[n] - at) for n, at in sent.items()]

    def _until(self, is_done: Callable[[], object]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_done():
            if time.monotonic() > until:
                raise SystemExit("events do not come")
            time.sleep(0.1)


def measure(live: Live, parts: Sequence[str]) -> Iterator[Figure]:
    """Yield the figures, as they are ready."""
    sizes = live.sizes
    plain: list[float] = []
    if "table" in parts or "stream" in parts:
        live.fill()
        tables, streams = [], []
        live.add_up(live.archived())
        live.add_up(live.table())
        for _ in range(sizes.rounds):
            plain.append(clock(lambda: live.add_up(live.archived())))
            tables.append(clock(lambda: live.add_up(live.table())))
            if "stream" in parts:
                streams.append(clock(live.stream))
        if "table" in parts:
            yield ratio("a table from a broker, to its files", tables, plain, sizes.events)
        if "stream" in parts:
            yield ratio("a stream from a broker, to its files as a table", streams, plain, sizes.events)
    if "sink" in parts:
        rows = live.spark.createDataFrame([(e["n"], e["symbol"], e["price"]) for e in drawn(sizes.published)], _ROW)
        rows.coalesce(1).write.parquet(str(live.folder / "rows.parquet"))
        live.sink(rows)
        live.publish()
        ours, theirs = [], []
        for _ in range(sizes.rounds):
            theirs.append(clock(live.publish))
            ours.append(clock(lambda: live.sink(rows)))
        yield ratio("rows published by the sink, to publish_many", ours, theirs, sizes.published)
    if "delay" in parts:
        found = live.delays()
        yield Figure("from published to a batch, median", statistics.median(found), min(found), max(found), "ms")
        yield figure("the slowest hundredth", sorted(found)[-max(1, len(found) // 100) :], "ms")


_ROW = "n BIGINT, symbol STRING, price DOUBLE"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen parts."""
    from meetpoint.spark import session

    told = asked(__doc__, PARTS, arguments)
    spark = session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"archive.folder": str(folder / "archive"), "archive.flush_s": FLUSH_S}
        with watch(folder / "broker", settings) as broker:
            live = Live(spark, broker, folder, QUICK if told.quick else Sizes())
            figures = measure(live, told.parts)
            if told.json:
                sys.stdout.write(msgspec.json.encode(list(figures)).decode() + "\n")
            else:
                sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%d}, local[2], archive flushed every {FLUSH_S:g} s\n")
                tell(figures, judge=not told.quick)
        spark.stop()


if __name__ == "__main__":
    main()
