"""Meetpoint's own brokers, as processes with a disk each, through the client that users have.

Every subscription is a durable one of its own, and is acknowledged by itself. Consumer i is connected to broker i, if
there are so many; the publisher to the first.
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
from subprocess import Popen
from time import monotonic_ns

from meetpoint.client import connect
from meetpoint.client.network import Network
from meetpoint.client.subscription import Subscription
from meetpoint.errors import SetupError
from meetpoint.lab.bench.brokers.offered import Equalities, Offered, filter_text
from meetpoint.lab.bench.brokers.servers import HOST, START_S, free_port, running
from meetpoint.lab.bench.brokers.sides import Address, Publishing, Seen

__all__ = ["BROKER", "Meetpoint", "wait_ready"]

BROKER = (sys.executable, "-m", "meetpoint.cli", "broker")
"""The command that runs a broker."""
TIMEOUT_S = 120.0
_ASKING = 256
"""How many subscriptions of a consumer are asked for at a time."""
SUBSCRIPTIONS_MAX = 1_000_000
"""How many a consumer may have: far more than by default."""


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
    async def receiving(self, address: Address, offered: Offered, seen: Seen) -> AsyncIterator[None]:
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
    async def publishing(self, address: Address) -> AsyncIterator[Publishing]:
        async with connect(_url(address, 0), "publisher", timeout=TIMEOUT_S) as net:
            yield _Publisher(net)

    def targets(self, offered: Offered, matched: list[int]) -> int:
        return len(matched)


def _url(address: Address, consumer: int) -> str:
    at = consumer % len(address)
    return "mp://" + ",".join(address[at:] + address[:at])


async def _subscribe(
    net: Network, subscriptions: list[tuple[int, Equalities]], seen: Seen, readers: list[asyncio.Task[None]]
) -> None:
    left = iter(subscriptions)

    async def some() -> None:
        for number, subscription in left:
            made = await net.subscribe(filter_text(subscription), durable=f"s{number}")
            readers.append(asyncio.create_task(_read(made, number, seen)))

    await asyncio.gather(*(some() for _ in range(_ASKING)))


async def _read(subscription: Subscription, number: int, seen: Seen) -> None:
    async for event in subscription:
        attributes = event.attributes
        seen(attributes["n"], attributes["at"], number)  # type: ignore[arg-type]


class _Publisher:
    def __init__(self, net: Network) -> None:
        self._net = net

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._publish({**event, "n": number, "at": monotonic_ns()}))

    async def _publish(self, event: dict[str, object]) -> None:
        await self._net.publish(event)


def wait_ready(admin: int, process: Popen[bytes], log: Path) -> None:
    """Until a broker that was started serves."""
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
