"""The store's speed of acknowledging: `python -m benchmarks.store [--json] [--quick] [--only PARTS]`.

A producer hands in one record and waits until it is told that it is on disk, and so on; producers share one event loop,
as a broker's clients do. The baseline is a bare loop over SQLite in the same run and on the same disk: one transaction
after another with as many such rows as there are producers, synced as the store syncs, without queues, threads, event
loops or checksums. It runs before and after the store in each round, as the speed of a disk changes with what else it
does. The store must reach `GOAL` of it, and with slow disks comes near it, as both wait for the same syncs. Beside it:
how long a sync of the disk takes, how long a producer waits, what noting lines in the journal at the same time costs,
how long a ticket takes beside a thread that never lets go of the interpreter by itself, and how long opening takes with
many records.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, asked, clock, figure, tell
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.broker.storage import Store, StoreState
from meetpoint.node.runtime.effects import Trace
from meetpoint.node.runtime.records import Record

PARTS = ("disk", "appends", "journal", "busy", "open")
GOAL = 0.5
ROUNDS = 5
PRODUCERS = (64, 256)
HOME = HomeId(b"\x01" * 20)
VALUE = b"x" * 200
LINES_PER_APPEND = 3


def name(number: int) -> str:
    return f"queue/{HOME.hex()}/1/{number:012}"


def bare_per_s(folder: Path, producers: int, seconds: float) -> float:
    """Return rows a second, in transactions of so many."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    with contextlib.closing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE rows (home BLOB, name TEXT, version INTEGER, value BLOB, PRIMARY KEY (home, name))"
        )
        begin = time.perf_counter()
        number = 0
        while time.perf_counter() < begin + seconds:
            rows = [(HOME, name(number + i), number, VALUE) for i in range(producers)]
            number += producers
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
        return number / (time.perf_counter() - begin)


class Appends:
    """Producers that append, each when its last record is on disk."""

    def __init__(self, store: Store, lines: int) -> None:
        self._store = store
        self._lines = lines
        self._ticket = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.waits_s: list[float] = []

    async def run(self, producers: int, seconds: float) -> float:
        """Return appends a second."""
        loop = asyncio.get_running_loop()
        self._store.start(lambda ticket: _hop(loop, self._told, ticket), _refuse)
        begin = time.perf_counter()
        await asyncio.gather(*(self._produce(begin + seconds) for _ in range(producers)))
        return len(self.waits_s) / (time.perf_counter() - begin)

    async def _produce(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while (begin := time.perf_counter()) < until:
            self._ticket += 1
            ticket = self._ticket
            self._waiting[ticket] = loop.create_future()
            self._store.persist(ticket, (Record(HOME, name(ticket), ticket, VALUE),))
            for _ in range(self._lines):
                self._store.note(ticket, Trace(EventKey(HOME, 1, ticket), "taken", HOME, ("alerts",)))
            await self._waiting[ticket]
            self.waits_s.append(time.perf_counter() - begin)

    def _told(self, ticket: int) -> None:
        """Answer a ticket. Tickets wait in their order: a dict keeps it."""
        for waiting in list(self._waiting):
            if waiting > ticket:
                return
            self._waiting.pop(waiting).set_result(None)


def _hop(loop: asyncio.AbstractEventLoop, told: Callable[[int], None], ticket: int) -> None:
    loop.call_soon_threadsafe(told, ticket)


def _refuse(state: StoreState) -> None:
    raise RuntimeError(f"the store cannot write: {state}")


def store_per_s(folder: Path, producers: int, seconds: float, lines: int = 0) -> tuple[float, list[float]]:
    """Return appends a second, and how long each waited."""
    store = Store.open(folder / "store")
    try:
        appends = Appends(store, lines)
        return asyncio.run(appends.run(producers, seconds)), appends.waits_s
    finally:
        store.close()


@contextlib.contextmanager
def fresh() -> Iterator[Path]:
    """Yield a folder on the disk of the temporary files."""
    with tempfile.TemporaryDirectory(prefix="meetpoint-store-") as folder:
        yield Path(folder)


def disk(quick: bool) -> Iterator[Figure]:
    """Measure how long it takes until 8 KiB that were added to a file are on disk."""
    values = []
    with fresh() as folder, (folder / "file").open("wb", buffering=0) as file:
        for _ in range(20 if quick else 300):
            file.write(b"x" * 8192)
            values.append(clock(lambda: os.fdatasync(file.fileno())) * 1000)
    yield figure("a sync of 8 KiB", values, "ms")


def busy(quick: bool) -> Iterator[Figure]:
    """Measure how long a ticket of 256 records takes beside a thread that computes."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(100))

    thread = threading.Thread(target=compute)
    told = threading.Event()
    with fresh() as folder:
        store = Store.open(folder)
        store.start(lambda _: told.set(), _refuse)
        thread.start()
        waits = []
        for ticket in range(1, 10 if quick else 150):
            records = tuple(Record(HOME, name(ticket * 256 + i), ticket, VALUE) for i in range(256))
            told.clear()
            begin = time.perf_counter()
            store.persist(ticket, records)
            told.wait()
            waits.append((time.perf_counter() - begin) * 1000)
        over.set()
        thread.join()
        store.close()
    yield figure("256 records beside a busy thread", waits, "ms")


def appends(quick: bool) -> Iterator[Figure]:
    seconds = 0.2 if quick else 2.0
    for producers in PRODUCERS:
        bare, ours, p50, p99 = [], [], [], []
        for _ in range(2 if quick else ROUNDS):
            with fresh() as one, fresh() as two, fresh() as three:
                before = bare_per_s(one, producers, seconds / 2)
                rate, waits = store_per_s(two, producers, seconds)
                bare.append((before + bare_per_s(three, producers, seconds / 2)) / 2)
            ours.append(rate)
            p50.append(statistics.median(waits) * 1000)
            p99.append(statistics.quantiles(waits, n=100)[98] * 1000)
        shares = [one / other for one, other in zip(ours, bare, strict=True)]
        yield figure(f"{producers} rows a transaction, bare SQLite", bare, "rows/s")
        yield figure(f"{producers} producers", ours, "appends/s")
        yield figure(f"{producers} producers, of the bare loop", shares, "x", goal=GOAL)
        yield figure(f"{producers} producers, a wait, p50", p50, "ms")
        yield figure(f"{producers} producers, a wait, p99", p99, "ms")


def journal(quick: bool) -> Iterator[Figure]:
    seconds = 0.2 if quick else 2.0
    shares = []
    for _ in range(2 if quick else ROUNDS):
        with fresh() as one, fresh() as two, fresh() as three:
            before, _ = store_per_s(one, PRODUCERS[0], seconds / 2)
            noting, _ = store_per_s(two, PRODUCERS[0], seconds, LINES_PER_APPEND)
            after, _ = store_per_s(three, PRODUCERS[0], seconds / 2)
        shares.append(noting * 2 / (before + after))
    yield figure(f"{PRODUCERS[0]} producers, {LINES_PER_APPEND} journal lines each, of none", shares, "x")


def opening(quick: bool) -> Iterator[Figure]:
    count = 10_000 if quick else 500_000
    with fresh() as folder:
        store = Store.open(folder)
        store.start(lambda _: None, _refuse)
        for number in range(0, count, 1000):
            records = tuple(Record(HOME, name(each), each, VALUE) for each in range(number, number + 1000))
            store.persist(number + 1, records)
        store.close()
        values = [clock(lambda: Store.open(folder).close()) for _ in range(3)]
    yield figure(f"opening with {count:,} records", values, "s", goal=5.0, at_most=True)


def figures(quick: bool, parts: Sequence[str]) -> Iterator[Figure]:
    for part, measure in zip(PARTS, (disk, appends, journal, busy, opening), strict=True):
        if part in parts:
            yield from measure(quick)


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, PARTS, arguments)
    found = figures(told.quick, told.parts)
    if told.json:
        sys.stdout.write(msgspec.json.encode(list(found)).decode() + "\n")
    else:
        tell(found, not told.quick)


if __name__ == "__main__":
    main()
