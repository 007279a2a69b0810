"""The cost of an attack to a broker and its other clients: `python -m benchmarks.hostile [--json] [--quick]`.

A broker runs as a process with a disk. Another process sends a million random, changed and invented frames, as nobody,
as a client and as a broker, over some connections, as fast as the broker takes them. It has a lower priority: an
attacker has a machine of its own. The frames follow from a seed.

`rate`: one client publishes, with as many events under way as it takes, and receives them again. Each round has a time
without and a time with the attack, and the events with it are divided by those without: `GOAL` of it must be left.
`memory`: then the attack goes on alone until all frames are sent; the broker's memory in the last third of that time
is divided by that in the first, and must not have grown. `lies`: well-formed messages with any values, as a client and
as a broker. A peer that is let in as a broker is believed, so that events may wait; but the broker must not end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, figure, tell
from meetpoint.broker import BrokerConfig, run
from meetpoint.client import connect
from meetpoint.client.network import Network
from meetpoint.lab.bench.brokers.ours import WatchedBroker, watch
from meetpoint.lab.bench.hostile import Attacker, attacks

FRAMES = 1_000_000
LIES = 100_000
GOAL = 0.8
GROWTH_MAX = 1.1
ROUNDS = 12
SEGMENT_S = 4.0
UNDER_WAY = 256
"""Events that the client has published and not heard of."""
PLACES = 64
"""Connections of the attacker at one time."""
SAMPLE_S = 1.0
"""The interval at which the broker's memory is read."""
STILL_S = 120.0
"""The longest silence of an attacker; after it something is wrong."""
_NICE = 5


class Measured(msgspec.Struct, frozen=True):
    """The measurements of one run."""

    frames: int
    connections: int
    alone_per_s: list[float]
    attacked_per_s: list[float]
    held_bytes: list[int]
    """The broker's memory, second by second."""
    lies: int
    counted: dict[str, float]
    """The broker's counters of the attack."""


# -- the attacker's process --------------------------------------------------------------------------------------------


def attack(address: str, seed: int, frames: int) -> None:
    """Attack while the last line on standard input says `on`; print the progress on standard output."""
    os.nice(_NICE)
    host, port = address.rsplit(":", 1)
    attacker = Attacker(host, int(port), attacks(seed), "meetpoint", BrokerConfig().way)
    said = ["off"]

    def listen() -> None:
        lines = os.read(sys.stdin.fileno(), 1 << 16)  # all that have come: of those that a file holds back none is told
        if not lines:
            sys.exit("nobody listens any more")
        said[0] = lines.split()[-1].decode()

    async def tell() -> None:
        while True:
            await asyncio.sleep(SAMPLE_S / 4)
            sys.stdout.write(f"{attacker.frames} {attacker.connections}\n")
            sys.stdout.flush()

    async def main() -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), listen)
        telling = asyncio.create_task(tell())
        await attacker.attack(frames, PLACES, lambda: said[0] == "on")
        await asyncio.sleep(SAMPLE_S)
        telling.cancel()

    run(main())


class _Attacking:
    """The attacker's process, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._frames = 0
        self._connections = 0

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def come(self) -> tuple[int, int]:
        """Return the numbers of frames and connections so far."""
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            self._frames, self._connections = map(int, line.split())
        return self._frames, self._connections


@contextlib.contextmanager
def _attacking(broker: WatchedBroker, seed: int, frames: int) -> Iterator[_Attacking]:
    command = [sys.executable, "-m", "benchmarks.hostile", "--attack", broker.address]
    command += ["--seed", str(seed), "--frames", str(frames)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield _Attacking(process)
        finally:
            process.kill()


# -- the client --------------------------------------------------------------------------------------------------------


class _Client:
    """A client that publishes and receives without pause, and counts its events."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self.received = 0
        self._number = 0

    async def publish(self) -> None:
        while True:
            self._number += 1
            await self._net.publish({"kind": "good", "n": self._number})

    async def receive(self) -> None:
        async for _ in await self._net.subscribe("kind = 'good'", durable="good"):
            self.received += 1

    async def per_s(self, seconds: float) -> float:
        """Return the events a second."""
        before, begin = self.received, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.received - before) / (time.perf_counter() - begin)


@contextlib.asynccontextmanager
async def _client(broker: WatchedBroker) -> AsyncIterator[_Client]:
    async with connect(f"mp://{broker.address}", "good", timeout=60.0) as net:
        client = _Client(net)
        tasks = [asyncio.create_task(client.receive())]
        await asyncio.sleep(0.5)
        tasks += [asyncio.create_task(client.publish()) for _ in range(UNDER_WAY)]
        try:
            yield client
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for each in ended:
                if isinstance(each, Exception):
                    raise each


# -- both --------------------------------------------------------------------------------------------------------------


async def measure(broker: WatchedBroker, seed: int, frames: int, rounds: int, segment_s: float, lies: int) -> Measured:
    """Measure all parts, one after the other."""
    alone: list[float] = []
    attacked: list[float] = []
    held: list[int] = []
    with _attacking(broker, seed, frames) as attacker:
        async with _client(broker) as client:
            await client.per_s(segment_s)
            for _ in range(rounds):
                alone.append(await client.per_s(segment_s))
                attacker.say("on")
                await client.per_s(segment_s / 4)
                attacked.append(await client.per_s(segment_s))
                attacker.say("off")
                await client.per_s(segment_s / 4)
                _show(f"{attacker.come()[0]:,} frames, {attacked[-1]:,.0f} to {alone[-1]:,.0f} events/s", broker)
        attacker.say("on")
        since, before = time.monotonic(), -1
        while (now := attacker.come()[0]) < frames:
            if now != before:
                since, before = time.monotonic(), now
            assert time.monotonic() - since < STILL_S, f"the attacker stands still at {now:,} frames; see {broker.log}"
            await asyncio.sleep(SAMPLE_S)
            held.append(broker.held_bytes)
            _show(f"{now:,} frames", broker)
        said, connections = attacker.come()
    interesting = ("wire_errors", "refus", "step_errors", "messages_in", "requests_total", "stalls")
    counted = {name: n for name, n in broker.counted().items() if n and any(each in name for each in interesting)}
    liar = Attacker(broker.host, broker.port, attacks(seed, ("asker", "liar")), "meetpoint", BrokerConfig().way)
    await liar.attack(lies, PLACES)
    _show(f"{liar.frames:,} lies", broker)
    return Measured(said, connections, alone, attacked, held or [broker.held_bytes], liar.frames, counted)


def _show(progress: str, broker: WatchedBroker) -> None:
    assert broker.is_alive, f"the broker ended with code {broker.process.returncode}; see {broker.log}"
    sys.stderr.write(f"{progress}, {broker.held_bytes >> 20} MiB\n")


def figures(measured: Measured) -> Iterator[Figure]:
    """Yield the measurements as ratios with their goals."""
    ratios = [b / a for a, b in zip(measured.alone_per_s, measured.attacked_per_s, strict=True)]
    name = "a client's events under attack to those without"
    rates = (statistics.median(measured.attacked_per_s), statistics.median(measured.alone_per_s))
    yield Figure(name, statistics.median(ratios), min(ratios), max(ratios), "x", goal=GOAL, events_per_s=rates)
    third = max(1, len(measured.held_bytes) // 3)
    first, last = measured.held_bytes[:third], measured.held_bytes[-third:]
    growth = statistics.median(last) / statistics.median(first)
    yield Figure("the broker's memory, the last third to the first", growth, growth, growth, "x", GROWTH_MAX, True)
    yield figure("the broker's memory under attack", [each / 2**20 for each in measured.held_bytes], "MiB")
    yield figure("hostile frames", [float(measured.frames)], "")
    yield figure("lies, and what a client may ask", [float(measured.lies)], "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="some thousand frames, to see that everything runs")
    parser.add_argument("--frames", type=int, default=FRAMES, help="how many are said")
    parser.add_argument("--seed", type=int, default=12, help="which frames")
    parser.add_argument("--attack", metavar="ADDRESS", help=argparse.SUPPRESS)
    told = parser.parse_args(arguments)
    if told.attack:
        attack(told.attack, told.seed, told.frames)
        return 0
    frames, rounds, segment_s, lies = told.frames, ROUNDS, SEGMENT_S, LIES
    if told.quick:
        frames, rounds, segment_s, lies = min(frames, 5_000), 1, 0.5, 500
    with tempfile.TemporaryDirectory() as folder, watch(Path(folder)) as broker:
        measured = run(measure(broker, told.seed, frames, rounds, segment_s, lies))
    if told.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(measured)) + "\n")
        return 0
    sys.stdout.write(f"seed {told.seed}, {measured.connections:,} connections of an attacker\n")
    tell(figures(measured), judge=not told.quick)
    for name, number in sorted(measured.counted.items()):
        sys.stdout.write(f"{name:<70}{number:>14,.0f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
