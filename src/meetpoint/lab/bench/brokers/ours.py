"""Meetpoint's own brokers as processes: a side of the comparison, and a broker whose memory is watched.

`Meetpoint` runs brokers with a disk each, through the client that users have. Every subscription is a durable one of
its own, and is acknowledged by itself. Consumer i is connected to broker i, if there are so many; the publisher to the
first.

`watch` runs one broker; its memory and its counters are read from outside.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from time import monotonic_ns
from typing import Any

from meetpoint.client import connect
from meetpoint.client.network import Network
from meetpoint.client.subscription import Subscription
from meetpoint.errors import SetupError
from meetpoint.lab.bench.brokers.servers import HOST, START_S, STOP_S, free_port, running
from meetpoint.lab.bench.brokers.sides import Address, Equalities, OfferedLoad, OnDelivery, Publisher, filter_text

BROKER = (sys.executable, "-m", "meetpoint.cli", "broker")
"""The command that runs a broker."""
TIMEOUT_S = 120.0
_ASKING = 256
"""The number of a consumer's subscriptions that are requested at a time."""
SUBSCRIPTIONS_MAX = 1_000_000
"""The limit of a consumer's subscriptions: far above the default."""


class Meetpoint:
    """Our side, with one broker or several."""

    kept = "disk"

    def __init__(self, brokers: int, scheme: str = "meet") -> None:
        self.brokers = brokers
        self.name = f"meetpoint × {brokers}"
        self.kept = "disk" if brokers == 1 else "2 disks"
        self._scheme = scheme

    @contextmanager
    def servers(self, folder: Path) -> Iterator[Address]:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            addresses: list[str] = []
            for number in range(self.brokers):
                port, admin = free_port(), free_port()
                config = folder / f"broker-{number}.toml"
                said = {
                    "listen": f"{HOST}:{port}", "admin": f"{HOST}:{admin}", "data": str(folder / f"broker-{number}"),
                    "join": addresses[:3], "scheme": self._scheme,
                }  # fmt: skip
                written = "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())
                config.write_text(f"{written}[limits]\nsubscriptions_per_client = {SUBSCRIPTIONS_MAX}\n")
                log = folder / f"broker-{number}.log"
                process = stack.enter_context(running([*BROKER, "--config", str(config)], log, {}))
                wait_ready(admin, process, log)
                addresses.append(f"{HOST}:{port}")
            yield tuple(addresses)

    @asynccontextmanager
    async def receiving(self, address: Address, offered: OfferedLoad, seen: OnDelivery) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            nets = [
                await stack.enter_async_context(connect(_url(address, consumer), f"c{consumer}", timeout=TIMEOUT_S))
                for consumer in range(offered.consumers)
            ]
            readers: list[asyncio.Task[None]] = []
            try:
                made = [_subscribe(net, offered.of(number), seen, readers) for number, net in enumerate(nets)]
                await asyncio.gather(*made)
                yield
            finally:
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)

    @asynccontextmanager
    async def publishing(self, address: Address) -> AsyncIterator[Publisher]:
        async with connect(_url(address, 0), "publisher", timeout=TIMEOUT_S) as net:
            yield _OurPublisher(net)

    def targets(self, offered: OfferedLoad, matched: list[int]) -> int:
        return len(matched)


def _url(address: Address, consumer: int) -> str:
    at = consumer % len(address)
    return "mp://" + ",".join(address[at:] + address[:at])


async def _subscribe(
    net: Network, subscriptions: list[tuple[int, Equalities]], seen: OnDelivery, readers: list[asyncio.Task[None]]
) -> None:
    left = iter(subscriptions)

    async def some() -> None:
        for number, subscription in left:
            made = await net.subscribe(filter_text(subscription), durable=f"s{number}")
            readers.append(asyncio.create_task(_read(made, number, seen)))

    await asyncio.gather(*(some() for _ in range(_ASKING)))


async def _read(subscription: Subscription, number: int, seen: OnDelivery) -> None:
    async for event in subscription:
        attributes = event.attributes
        seen(attributes["n"], attributes["at"], number)  # type: ignore[arg-type]


class _OurPublisher:
    def __init__(self, net: Network) -> None:
        self._net = net

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._publish({**event, "n": number, "at": monotonic_ns()}))

    async def _publish(self, event: dict[str, object]) -> None:
        await self._net.publish(event)


def wait_ready(admin: int, process: Popen[bytes], log: Path) -> None:
    """Wait until a broker that was started serves."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SetupError(f"a broker ended with code {process.returncode} when it was started; see {log}")
        ready = f"http://{HOST}:{admin}/readyz"
        with suppress(OSError), urllib.request.urlopen(ready, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    raise SetupError(f"a broker is not ready after {START_S:.0f} s; see {log}")


# -- a watched broker --------------------------------------------------------------------------------------------------


class WatchedBroker:
    """A broker's process, seen from outside."""

    def __init__(self, process: Popen[bytes], port: int, admin: int, log: Path) -> None:
        self.process = process
        self.host = HOST
        self.port = port
        self.log = log
        self._admin = f"http://{HOST}:{admin}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def held_bytes(self) -> int:
        """The resident memory in bytes (Linux only)."""
        return self._status("VmRSS:")

    @property
    def held_bytes_max(self) -> int:
        """The highest resident memory so far, in bytes."""
        return self._status("VmHWM:")

    def _status(self, field: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

    def counted(self) -> dict[str, float]:
        """Return the broker's metrics by their names."""
        with urllib.request.urlopen(f"{self._admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[:1] != "#"}


@contextmanager
def watch(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[WatchedBroker]:
    """Start a broker and yield it once it is ready, with its data below `folder`; `settings` are keys of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    port, admin = free_port(), free_port()
    said = {
        "name": "watched", "listen": f"{HOST}:{port}", "admin": f"{HOST}:{admin}", "data": str(folder / "data"),
        **(settings or {}),
    }  # fmt: skip
    config = folder / "broker.toml"
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items()))
    log = folder / "broker.log"
    command = [*BROKER, "--attached", "--config", str(config)]  # it ends with this process, however that ends
    with log.open("ab") as out, Popen(command, stdin=PIPE, stdout=out, stderr=out, start_new_session=True) as process:
        watched = WatchedBroker(process, port, admin, log)
        try:
            wait_ready(admin, process, log)
            yield watched
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except TimeoutExpired:
                process.kill()
