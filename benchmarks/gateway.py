"""The cost of open streams to publishers: `python -m benchmarks.gateway [--json] [--quick] [--streams 200]`.

Two networks of one broker run at the same time, each with a gateway that is a process of its own. At one of them many
streams of server-sent events are open, read by another process. They alternate: so many events are published by HTTP,
sixteen requests at a time, through the one gateway, then through the other, and a round's ratio is of two runs that
follow each other. Work is microseconds per event that a processor was busy for the gateway, and for its broker.

- dashboards: each stream is that of a browser with the dashboard open, a message a second.
- quiet: a filter of its own for each stream, and no event matches any.
- some: a filter of its own for each stream; every event goes to two of a hundred streams.
- all: every event goes to every stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from benchmarks.tls import Compared, Started, compare, start
from meetpoint.broker import run
from meetpoint.gateway import GatewaySettings, run_gateway

KINDS = ("dashboards", "quiet", "some", "all")
STREAMS = 200
EVENTS = 1_000
ROUNDS = 7
AT_ONCE = 16
GROUPS = 100
READY_S = 60.0
TARGET = 0.8
"""Publishing with the streams open, over publishing without them."""


class Cell(msgspec.Struct, frozen=True):
    """The measurements of one kind of streams."""

    kind: str
    streams: int
    rates: Compared
    work: Compared
    broker_work: Compared
    came: int
    """Events that the streams got."""
    wanted: int
    """Events that they were to get."""


def filter_of(kind: str, number: int) -> str:
    """Return the filter of a stream."""
    if kind == "quiet":
        return f"n < -{number}"
    return f"k = {number % GROUPS} AND n >= -{number}" if kind == "some" else "n >= 0"


async def be_gateway(at: str) -> None:
    """Run a gateway, until it is killed."""
    async with run_gateway(GatewaySettings(at=at, listen="127.0.0.1:0")) as served:
        print(served.url, flush=True)  # noqa: T201 - for the process that started this one
        await asyncio.Event().wait()


async def be_readers(url: str, kind: str, streams: int) -> None:
    """Hold many open streams until the input ends; then print how many events came."""
    where = urlsplit(url)
    came = 0

    async def read(number: int, ready: asyncio.Event) -> None:
        nonlocal came
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        path = "/api/live" if kind == "dashboards" else f"/events?filter={quote(filter_of(kind, number))}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        await reader.readuntil(b"retry: ")
        ready.set()
        while chunk := await reader.read(1 << 16):
            came += chunk.count(b"data: ")

    opened = [asyncio.Event() for _ in range(streams)]
    tasks = [asyncio.create_task(read(number, ready)) for number, ready in enumerate(opened)]
    await asyncio.gather(*(ready.wait() for ready in opened))
    print("ready", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.read)
    print(came, flush=True)  # noqa: T201
    for task in tasks:
        task.cancel()


@contextmanager
def child(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run this file in another process, and yield its first line of output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


class Side:
    """A gateway and its publisher."""

    def __init__(self, url: str, process: int, broker: Started, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._gateway = Started([], [process])
        self._broker = broker
        self._session = session
        self._number = 0

    async def run(self, events: int) -> tuple[float, float, float]:
        """Publish so many events; return the rate, and microseconds of the gateway's and the broker's work for each."""
        numbers = iter(range(self._number, self._number + events))
        self._number += events

        async def publish() -> None:
            for n in numbers:
                body = {"attributes": {"n": n, "k": n % GROUPS, "text": "x" * 100}}
                async with self._session.post(f"{self.url}/events", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()

        both = self._gateway, self._broker
        begun, before_s = time.perf_counter(), [each.busy_s() for each in both]
        await asyncio.gather(*(publish() for _ in range(AT_ONCE)))
        spent_s = time.perf_counter() - begun
        gateway, broker = (1e6 * (each.busy_s() - was) / events for each, was in zip(both, before_s, strict=True))
        return events / spent_s, gateway, broker


async def measure(folder: Path, kind: str, streams: int, events: int, rounds: int) -> Cell:
    """Measure the rounds of one kind."""
    with ExitStack() as stack:
        sides: list[Side] = []
        async with AsyncExitStack() as later:
            session = await later.enter_async_context(aiohttp.ClientSession())
            for name in ("without", "with"):
                broker = start(stack, folder / kind / name, 1, lambda _: [])
                process, url = stack.enter_context(child("--be-gateway", f"mp://{broker.addresses[0]}"))
                sides.append(Side(url, process.pid, broker, session))
            readers, said = stack.enter_context(child("--be-readers", sides[1].url, kind, str(streams)))
            assert said == "ready", said
            for side in sides:
                await side.run(events // 4)
            found = [[await side.run(events) for side in sides] for _ in range(rounds)]
            await asyncio.sleep(2)  # what is on its way comes
            assert readers.stdin is not None
            assert readers.stdout is not None
            readers.stdin.close()
            came = int(readers.stdout.readline())
            readers.stdin = None  # it is closed: `communicate` must not flush it
    rates, work, broker_work = (compare([(one[at], other[at]) for one, other in found]) for at in range(3))
    published = events // 4 + rounds * events
    each = {"dashboards": 0.0, "quiet": 0.0, "some": streams / GROUPS, "all": float(streams)}[kind]
    return Cell(
        kind,
        streams,
        rates,
        work,
        broker_work,
        came,
        round(published * each),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What open streams cost those who publish.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few events, to see that it runs")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--be-gateway", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--be-readers", nargs=3, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.be_gateway:
        run(be_gateway(said.be_gateway))
        return 0
    if said.be_readers:
        url, kind, streams = said.be_readers
        run(be_readers(url, kind, int(streams)))
        return 0
    events, rounds = (200, 2) if said.quick else (EVENTS, ROUNDS)
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in said.kind or KINDS:
            cell = run(measure(Path(folder), kind, said.streams, events, rounds))
            cells.append(cell)
            if not said.json:
                print(told(cell), flush=True)  # noqa: T201
    if said.json:
        print(json.dumps(msgspec.to_builtins(cells)))  # noqa: T201
    return 0


def told(cell: Cell) -> str:
    """Return a cell in words."""
    rates, work, broker = cell.rates, cell.work, cell.broker_work
    return (
        f"{cell.streams} streams, {cell.kind}: {rates.plain:,.0f} events/s without them, {rates.other:,.0f} with, "
        f"ratio {rates.ratio:.2f} ({rates.least:.2f} to {rates.most:.2f}); "
        f"the gateway's work for an event {work.plain:,.0f} µs and {work.other:,.0f} µs, "
        f"its broker's {broker.plain:,.0f} µs and {broker.other:,.0f} µs; "
        + (
            f"{cell.came:,} messages came"
            if cell.kind == "dashboards"
            else f"{cell.came:,} of {cell.wanted:,} events came"
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
