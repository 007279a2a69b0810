"""Live in, Spark between, live out: `format("meetpoint")` in Spark itself, against the oracle, also when all die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import meetpoint as mp
from meetpoint.language import parse_filter
from meetpoint.matching import Scan
from meetpoint.spark import Subscriptions, match, register
from tests.processes.fleet import Fleet
from tests.spark import network_job
from tests.spark.lives import Life
from tests.spark.network_job import ALERTS, SCHEMA
from tests.spark.network_scenes import PATIENCE_S, all_before_markers, brokers
from tests.tiers import SOAK

KILLS = 6 if SOAK else 1
RUN_S = 3_600 if SOAK else 900
BEYOND = 1_000_000
"""The number of markers: no event has it."""
MARKERS = {
    "cheap": {"kind": "in", "n": BEYOND, "price": 1.0, "symbol": "B"},
    "dear": {"kind": "in", "n": BEYOND, "price": 100.0, "symbol": "C"},
    "some": {"kind": "in", "n": BEYOND, "price": 100.0, "symbol": "A"},
    "out": {"kind": "out", "n": BEYOND, "alert": "none"},
}
"""By durable subscription: an event that it alone accepts."""


def event(n: int) -> dict[str, Any]:
    rng = random.Random(n)
    return {"kind": "in", "n": n, "price": rng.randrange(200) / 2, "symbol": rng.choice(("A", "AB", "B", "C"))}


def oracle(numbers: Any) -> Counter[tuple[int, str]]:
    """Which events which alerts accept."""
    scan: Scan[str] = Scan()
    for name, text in ALERTS.items():
        scan.add(name, parse_filter(text))
    return Counter((n, name) for n in numbers for name in scan.match(event(n)))


def prepare(url: str) -> None:
    """A network with alerts, whose answers wait, and with one who hears what comes out."""
    with mp.connect_sync(url, "alerts", timeout=PATIENCE_S) as net:
        net.declare(SCHEMA)
        for name, text in ALERTS.items():
            net.subscribe(text, durable=name)
        net.subscribe("kind = 'out'", durable="out", owner="test")


def answers(
    url: str, addresses: Sequence[str], wanted: Counter[tuple[int, str]]
) -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
    """What brokers matched, and what came out of Spark; what is wanted is waited for, and then a marker."""
    counts = Counter(name for _, name in wanted.elements())
    live: Counter[tuple[int, str]] = Counter()
    with mp.connect_sync(url, "alerts", timeout=PATIENCE_S) as net:
        for name, text in ALERTS.items():
            alert = net.subscribe(text, durable=name)
            found = all_before_markers(alert, counts[name], addresses, MARKERS[name])
            live.update((each["n"], name) for each in found)  # type: ignore[misc]
        out = net.subscribe("kind = 'out'", durable="out", owner="test")
        found = all_before_markers(out, wanted.total(), addresses, MARKERS["out"])
        return live, Counter((each["n"], each["alert"]) for each in found)  # type: ignore[misc]


def test_what_comes_out_is_what_brokers_and_the_oracle_match_and_a_restart_goes_on(spark: Any, tmp_path: Path) -> None:
    register(spark)  # which a session of ours does itself
    with brokers(tmp_path, 2) as here, here.connect_sync(timeout=PATIENCE_S) as net:
        prepare(here.url)
        net.publish_many(event(n) for n in range(60))
        subscriptions = Subscriptions.from_network(here.url, owner="alerts", spark=spark)
        assert subscriptions.count == len(ALERTS)
        assert {
            (row["id"], row["filter"], row["subscriber"]) for row in subscriptions.filters.toArrow().to_pylist()
        } == {(name, text, "alerts") for name, text in ALERTS.items()}
        for upto in (60, 70):
            if upto > 60:
                net.publish_many(event(n) for n in range(60, upto))
            query = network_job.start(spark, tmp_path, here.url, 40, availableNow=True)
            assert query.awaitTermination(PATIENCE_S)
            read = [progress["numInputRows"] for progress in query.recentProgress]
            assert sum(read) == (60 if upto == 60 else 10)
            assert max(read) <= 40
        table = spark.read.format("meetpoint").option("url", here.url).load()
        found = table.where("attributes.kind = 'in'").select("attributes.*", "id").toArrow().to_pylist()
        assert sorted(row["n"] for row in found) == list(range(70))
        assert all(event(row["n"]).items() <= row.items() for row in found)
        wanted = oracle(range(70))
        assert answers(here.url, here.addresses, wanted) == (wanted, wanted)
        with pytest.raises(PySparkException, match="option sinse: there is none of that name; did you mean since"):
            spark.read.format("meetpoint").options(url=here.url, sinse="latest").load()


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
GUIDE_SCHEMA = "attributes: {kind: string, symbol: string, price: float, alert: string}\n"


def test_the_guides_stream_does_what_the_guide_says(spark: Any, tmp_path: Path) -> None:
    register(spark)
    section = GUIDE.read_text(encoding="utf-8").partition("## Live")[2]
    block = section.partition("```python\n")[2].partition("```")[0]
    with brokers(tmp_path, 2) as here, here.connect_sync(timeout=PATIENCE_S) as net:
        net.declare(GUIDE_SCHEMA)
        net.subscribe("price > 120", durable="dear").close()
        out = net.subscribe("kind = 'alert'")
        net.publish_many({"kind": "tick", "symbol": "OTE", "price": float(price)} for price in range(115, 125))
        said = block.replace("mp://one:7400,two:7400", here.url).replace('"state"', repr(str(tmp_path / "state")))
        assert said.count(here.url) == 1, "the guide names another network"
        before = set(spark.streams.active)
        exec(said, {"spark": spark, "match": match, "Subscriptions": Subscriptions, "F": F})
        (query,) = set(spark.streams.active) - before
        try:
            found = [(each["price"], each["alert"]) for each in islice(out.events(timeout=PATIENCE_S), 4)]
            query.processAllAvailable()  # what it published is there to be read by now, and goes round no further
        finally:
            query.stop()
        more = all_before_markers(out, 0, here.addresses, {"kind": "alert", "price": 0.0, "alert": "none"})
        found += [(each["price"], each["alert"]) for each in more]
        assert sorted(found) == [(121.0, "dear"), (122.0, "dear"), (123.0, "dear"), (124.0, "dear")]


@contextmanager
def living(*arguments: Any) -> Iterator[Life]:
    life = Life("tests.spark.network_job", *arguments)
    try:
        yield life
    finally:
        life.kill()
        assert not life.processes()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
def test_with_driver_and_brokers_killed_nothing_is_lost_and_nothing_comes_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        (tmp_path / "fleet").mkdir()
        said = {"archive.folder": str(tmp_path / "archive"), "archive.flush_s": 0.2}
        fleet = Fleet(tmp_path / "fleet", settings=said)
        try:
            await fleet.begin(3)
            url = "mp://" + ",".join(each.address for each in fleet.members)
            await asyncio.to_thread(prepare, url)
            is_over = asyncio.Event()
            publishing = asyncio.create_task(_keep_publishing(url, is_over))
            rng = random.Random(5)
            for kill in range(KILLS):
                with living(tmp_path, url) as life:
                    await asyncio.to_thread(_wait_for_batches, life, tmp_path, 1)
                    victim = fleet.members[kill % 3]
                    fleet.kill([victim])
                    await asyncio.sleep(rng.uniform(0, 1))
                    fleet.start(victim)
                    await fleet.wait_ready([victim])
                    await asyncio.to_thread(_wait_for_batches, life, tmp_path, 1)
                    await asyncio.sleep(rng.uniform(0, 0.5))
                    life.kill()
            is_over.set()
            count = await publishing
            with living(tmp_path, url, "availableNow") as life:
                await asyncio.to_thread(life.wait_for, lambda: False, RUN_S / 2)
            wanted = oracle(range(count))
            live, out = await asyncio.to_thread(answers, url, [each.address for each in fleet.members], wanted)
            assert live == wanted
            assert out == wanted
            with capsys.disabled():
                print(f"\n{KILLS} kills of the driver and of a broker: {count:,} events in, {out.total():,} out, "  # noqa: T201
                      f"{_batches(tmp_path) + 1} batches, 0 lost, 0 duplicate")  # fmt: skip
        finally:
            await fleet.close()

    asyncio.run(asyncio.wait_for(main(), RUN_S))


def _wait_for_batches(life: Life, folder: Path, more: int) -> None:
    done = _batches(folder)
    life.wait_for(lambda: _batches(folder) >= done + more)


def _batches(folder: Path) -> int:
    """The last batch that Spark knows as done."""
    commits = folder / "checkpoint" / "commits"
    found = [int(path.name) for path in commits.iterdir() if path.name.isdecimal()] if commits.exists() else []
    return max(found, default=-1)


async def _keep_publishing(url: str, is_over: asyncio.Event) -> int:
    """Events in their order until it is over; how many."""
    count = 0
    async with mp.connect(url, timeout=120) as net:
        while not is_over.is_set():
            made = [net.publish_nowait(event(n)) for n in range(count, count + 5)]
            for each in made:
                await each
            count += 5
            await asyncio.sleep(0.3)
    return count
