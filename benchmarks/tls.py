"""The cost of TLS: `python -m benchmarks.tls [--json] [--quick] [--brokers 3]`.

Two networks run at the same time, the one with certificates and the other without, each of brokers that are processes
with a disk; a publisher and a subscriber at different brokers. They alternate: so many events go through the one, then
through the other, and a round's ratio is of two runs that follow each other. A rate is events a second from the first
that is handed in to the last that has come and was acknowledged; the work is microseconds that all brokers of a network
were busy per event, which other load on the machine changes less. Before that TLS is measured alone, both ends in this
process: processor time of a handshake in which both show certificates, and of a message that is sealed and opened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import msgspec

from meetpoint import connect
from meetpoint.broker import run
from meetpoint.broker.config import BrokerConfig, Tls
from meetpoint.broker.transport.tls import TlsPipe, TlsPolicy
from meetpoint.client import Network, Subscription
from meetpoint.lab.bench.brokers.ours import BROKER, wait_ready
from meetpoint.lab.bench.brokers.servers import HOST, free_port, running
from meetpoint.security import Authority

SIZES = (100, 2_000)
"""Bytes of text in an event."""
EVENTS = 10_000
ROUNDS = 7


class Cell(msgspec.Struct, frozen=True):
    """The measurements of one size of events."""

    brokers: int
    bytes: int
    rates: Compared
    work: Compared


class Compared(msgspec.Struct, frozen=True):
    """Medians of both, and their ratio in a round: its median, the least and the most."""

    plain: float
    other: float
    ratio: float
    least: float
    most: float


class Started(msgspec.Struct, frozen=True):
    """Running brokers."""

    addresses: list[str]
    processes: list[int]

    def busy_s(self) -> float:
        """Return how long their processors were busy for them so far."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class Pair:
    """A publisher and a subscriber of one network."""

    def __init__(self, brokers: Started, publisher: Network, subscription: Subscription) -> None:
        self._brokers = brokers
        self._publisher = publisher
        self._subscription = subscription

    async def run(self, events: int, text: str) -> tuple[float, float]:
        """Publish so many events; return the rate, and microseconds of work for each."""
        begun, busy_s = time.perf_counter(), self._brokers.busy_s()
        sending = asyncio.ensure_future(self._publisher.publish_many({"n": n, "text": text} for n in range(events)))
        came = 0
        async for _ in self._subscription:
            came += 1
            if came == events:
                break
        await sending
        spent_s = time.perf_counter() - begun
        return events / spent_s, 1e6 * (self._brokers.busy_s() - busy_s) / events


def start(stack: ExitStack, folder: Path, brokers: int, options_of: Callable[[str], list[str]]) -> Started:
    """Start brokers of one network, each with options by its name; they serve when this returns."""
    addresses: list[str] = []
    processes: list[int] = []
    for number in range(brokers):
        name, port, admin = f"b{number}", free_port(), free_port()
        options = ["--name", name, "--listen", f"{HOST}:{port}", "--admin", f"{HOST}:{admin}"]
        options += ["--data", str(folder / name), *(word for at in addresses for word in ("--join", at))]
        options += options_of(name)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{name}.log"
        process = stack.enter_context(running([*BROKER, *options], log, {}))
        wait_ready(admin, process, log)
        addresses.append(f"{HOST}:{port}")
        processes.append(process.pid)
    return Started(addresses, processes)


def compare(pairs: list[tuple[float, float]]) -> Compared:
    """Compare the rounds of both."""
    plain, other = zip(*pairs, strict=True)
    ratios = [with_it / without for without, with_it in pairs]
    return Compared(
        statistics.median(plain), statistics.median(other), statistics.median(ratios), min(ratios), max(ratios)
    )


async def open_pair(
    stack: AsyncExitStack, brokers: Started, filter_: str, scheme: str = "mp", **settings: Any
) -> Pair:  # fmt: skip
    """Open a publisher at the first broker and a subscriber at the last one, for as long as the stack lasts."""
    publisher, subscriber = [
        await stack.enter_async_context(connect(f"{scheme}://{address}", **settings))
        for address in (brokers.addresses[0], brokers.addresses[-1])
    ]
    return Pair(brokers, publisher, await subscriber.subscribe(filter_, durable="all"))


async def take_turns(pairs: Sequence[Pair], events: int, size: int, rounds: int) -> list[list[tuple[float, float]]]:
    """Run rounds in which all alternate, after a short one that does not count."""
    text = "x" * size
    for pair in pairs:
        await pair.run(events // 4, text)
    return [[await pair.run(events, text) for pair in pairs] for _ in range(rounds)]


async def measure(plain: Started, secured: Started, ca: Path, events: int, rounds: int) -> list[Cell]:
    """Measure rounds of all sizes."""
    async with AsyncExitStack() as stack:
        pairs = []
        for scheme, brokers, trusted in (("mp", plain, None), ("mps", secured, ca)):
            pairs.append(await open_pair(stack, brokers, "TRUE", scheme, ca=trusted))
        cells = []
        for size in SIZES:
            found = await take_turns(pairs, events, size, rounds)
            rates = compare([(one[0], other[0]) for one, other in found])
            work = compare([(one[1], other[1]) for one, other in found])
            cells.append(Cell(len(plain.addresses), size, rates, work))
        return cells


def handshake(tls_policy: TlsPolicy) -> tuple[TlsPipe, TlsPipe]:
    """Return both ends of a completed TLS handshake."""
    dialler, dialled = tls_policy.dial(), tls_policy.accept()
    assert dialler is not None, "there are certificates"
    assert dialled is not None, "there are certificates"
    said = dialler.begin()
    while not (dialler.is_ready and dialled.is_ready):
        dialled.feed(said)
        dialler.feed(dialled.pending())
        said = dialler.pending()
    return dialler, dialled


def alone(folder: Path, authority: Authority, rounds: int) -> str:
    """Measure TLS itself."""
    own = authority.issue("alone", (HOST,)).write_to(folder / "alone")
    files = Tls(certificate=str(own / "certificate.pem"), key=str(own / "key.pem"), ca=str(own / "ca.pem"))
    tls_policy = TlsPolicy(BrokerConfig(name="alone", tls=files))
    dialler, dialled = handshake(tls_policy)

    def median_us(work: Callable[[], object], times: int) -> float:
        found = []
        for _ in range(rounds):
            begun = time.process_time()
            for _ in range(times):
                work()
            found.append((time.process_time() - begun) / times)
        return 1e6 * statistics.median(found)

    parts = [f"a handshake {median_us(lambda: handshake(tls_policy), 100) / 1000:.1f} ms"]
    for size in (100, 2_000, 65_536):
        data = bytes(size)
        took = median_us(lambda data=data: dialled.feed(dialler.wrap(data)), 2_000)  # type: ignore[misc]
        parts.append(f"{size:,} bytes {took:.1f} µs")
    return f"TLS alone, both ends: {', '.join(parts)}"


def shown(compared: Compared, unit: str, what: str) -> str:
    """Return one comparison in words."""
    spread = f"{compared.least:.2f} to {compared.most:.2f}"
    return (
        f"{compared.plain:,.0f} {unit} plain, {compared.other:,.0f} with {what}, ratio {compared.ratio:.2f} ({spread})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object a size")
    parser.add_argument("--quick", action="store_true", help="few events, to see that everything runs")
    parser.add_argument("--brokers", type=int, default=3, help="of each of the two networks")
    told = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="meetpoint-tls-") as where, ExitStack() as stack:
        folder = Path(where)
        authority = Authority.create(folder / "ca", "meetpoint")

        def certificate(name: str) -> list[str]:
            own = authority.issue(name, (HOST,)).write_to(folder / f"{name}-keys")
            files = {"--certificate": "certificate.pem", "--key": "key.pem", "--ca": "ca.pem"}
            return [word for option, file in files.items() for word in (option, str(own / file))]

        if not told.json:
            sys.stdout.write(alone(folder, authority, 1 if told.quick else ROUNDS) + "\n")
        plain = start(stack, folder / "plain", told.brokers, lambda name: [])
        secured = start(stack, folder / "tls", told.brokers, certificate)
        events, rounds = (200, 1) if told.quick else (EVENTS, ROUNDS)
        cells = run(measure(plain, secured, folder / "ca" / "ca.pem", events, rounds))
    for cell in cells:
        if told.json:
            sys.stdout.write(json.dumps(msgspec.to_builtins(cell)) + "\n")
        else:
            rates, work = shown(cell.rates, "events/s", "TLS"), shown(cell.work, "µs/event", "TLS")
            sys.stdout.write(f"{cell.brokers} brokers, {cell.bytes:,} bytes: {rates}; {work}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
