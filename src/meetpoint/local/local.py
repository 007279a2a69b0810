"""Real brokers on loopback, in a thread of this process: sockets, stores and all.

    with mp.local(brokers=3) as here, here.connect_sync() as net:
        sub = net.subscribe("price > 120")
        net.publish({"price": 121})

Their stores are in memory, unless there is a folder for them; then a broker that is stopped and started again has what
it had. Brokers that keep their data in memory survive in each other: what one loses, two others have.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from meetpoint.catalog import NetworkConfig
from meetpoint.client.background import Background
from meetpoint.client.errors import NetworkError
from meetpoint.client.network import Connecting, connect
from meetpoint.client.sync import SyncNetwork, connect_sync
from meetpoint.net import Broker, BrokerConfig
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.schemes.meet import MeetSettings

__all__ = ["Local", "local"]

READY_S = 60.0
"""Within this all brokers serve and know each other."""
BROKERS_MAX = 64
LEASE_US = MICROSECONDS
"""How long the first subscriptions of a new network of the scheme `meet` wait: all brokers are near each other."""


class Local:
    """A network of brokers in this process. `with` and `async with` start and stop it."""

    def __init__(self, brokers: int, scheme: str, data: str | Path | None, settings: dict[str, Any]) -> None:
        if type(brokers) is not int or not 1 <= brokers <= BROKERS_MAX:
            raise NetworkError(f"local: a network of {brokers!r} brokers; give a number from 1 to {BROKERS_MAX}")
        self._data = None if data is None else Path(data)
        self._settings = {"admin": None, "scheme": scheme, "meet": MeetSettings(lease_us=LEASE_US), **settings}
        self._count = brokers
        self._config(0, "127.0.0.1:0")  # what is wrong with the settings is said here
        self._brokers: list[Broker | None] = []
        self._addresses: list[str] = []
        self._background: Background | None = None

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def start(self) -> Local:
        """Start all brokers, and wait until they serve."""
        if self._background is None:
            self._background = Background("meetpoint brokers")
            try:
                self._background.run(self._start())
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop all brokers."""
        background, self._background = self._background, None
        if background is not None:
            try:
                background.run(self._stop())
            finally:
                background.stop()
                self._brokers, self._addresses = [], []

    def __enter__(self) -> Local:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Local:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def network(self) -> NetworkConfig:
        """What its brokers' nodes are made of."""
        return self._config(0, "127.0.0.1:0").network_config()

    # -- using it ------------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where each broker listens, or did and will again."""
        return tuple(self._addresses)

    @property
    def url(self) -> str:
        """The url of all of them."""
        return "mp://" + ",".join(self._addresses)

    def url_of(self, number: int) -> str:
        """The url of one of them, the first is 0."""
        return f"mp://{self._addresses[number]}"

    def connect(self, client: str = "", **settings: Any) -> Connecting:
        """A client of this network, for asyncio."""
        return connect(self.url, client, **settings)

    def connect_sync(self, client: str = "", **settings: Any) -> SyncNetwork:
        """A client of this network, without asyncio."""
        return connect_sync(self.url, client, **settings)

    def stop_broker(self, number: int, *, drain: bool = True) -> None:
        """Stop one broker, the first is 0; without `drain` at once, as if it had been killed."""
        self._running.run(self._stop_one(number, drain))

    def leave_broker(self, number: int) -> None:
        """Have one broker hand everything over to the others and go."""
        self._running.run(self._leave_one(number))

    def start_broker(self, number: int) -> None:
        """Start a broker that was stopped, at its old address, and wait until it serves."""
        self._running.run(self._restart(number))

    def broker(self, number: int) -> Broker:
        """One of the brokers, to look at; its loop runs in another thread."""
        broker = self._brokers[number]
        if broker is None:
            raise NetworkError(f"local: broker {number} is stopped; start it by start_broker({number})")
        return broker

    @property
    def is_quiet(self) -> bool:
        """Whether no event is on its way and none waits for a subscriber."""
        return self._running.run(self._look_quiet())

    @property
    def _running(self) -> Background:
        if self._background is None:
            raise NetworkError("local: the network is not started; use it by `with`, or call start()")
        return self._background

    # -- in the loop of the brokers ------------------------------------------------------------------------------------

    def _config(self, number: int, listen: str, join: tuple[str, ...] = ()) -> BrokerConfig:
        data = None if self._data is None else str(self._data / f"broker{number}")
        return BrokerConfig(name=f"local{number}", listen=listen, join=join, data=data, **self._settings)

    async def _start(self) -> None:
        for number in range(self._count):
            broker = Broker(self._config(number, "127.0.0.1:0", tuple(self._addresses[:1])))
            await broker.start()
            self._brokers.append(broker)
            self._addresses.append(broker.address)
        await self._wait_ready(range(self._count))

    async def _stop(self) -> None:
        running = [broker for broker in self._brokers if broker is not None]
        await asyncio.gather(*(broker.stop(drain=False) for broker in running))

    async def _stop_one(self, number: int, drain: bool) -> None:
        broker = self.broker(number)
        self._brokers[number] = None
        await broker.stop(drain=drain)

    async def _leave_one(self, number: int) -> None:
        await self.broker(number).leave()
        self._brokers[number] = None

    async def _restart(self, number: int) -> None:
        if self._brokers[number] is not None:
            raise NetworkError(f"local: broker {number} runs already")
        others = tuple(self._addresses[n] for n, broker in enumerate(self._brokers) if broker is not None)
        broker = Broker(self._config(number, self._addresses[number], others))
        await broker.start()
        self._brokers[number] = broker
        await self._wait_ready([number])

    async def _wait_ready(self, numbers: Any) -> None:
        until = time.monotonic() + READY_S
        while True:
            late = [number for number in numbers if not self._is_ready(number)]
            if not late:
                return
            if time.monotonic() > until:
                raise NetworkError(f"local: brokers {late} do not serve {READY_S:g} s after they started")
            await asyncio.sleep(0.01)

    def _is_ready(self, number: int) -> bool:
        broker = self._brokers[number]
        running = sum(each is not None for each in self._brokers)
        return broker is not None and broker.is_ready and len(broker.node.directory.others()) >= running - 1

    async def _look_quiet(self) -> bool:
        views = [broker.node.snapshot() for broker in self._brokers if broker is not None]
        return not any(view.outbox or view.queued or view.unsafe for view in views)


def local(brokers: int = 8, scheme: str = "meet", data: str | Path | None = None, **settings: Any) -> Local:
    """A network of brokers in this process: `with mp.local(brokers=3) as here, here.connect_sync() as net`.

    `data` is a folder for what must survive `stop_broker`; without one it is kept in memory. Other settings are those
    of a broker's configuration (docs/configuration.md).
    """
    return Local(brokers, scheme, data, settings)
