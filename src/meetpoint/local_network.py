"""Real brokers on loopback, in this process: sockets, stores and all.

    async with mp.local(brokers=3) as here, here.connect() as net:      # in the running event loop
        sub = await net.subscribe("price > 120")
        await net.publish({"price": 121})

    with mp.local(brokers=3) as here, here.connect_sync() as net:       # in a thread of their own
        sub = net.subscribe("price > 120")
        net.publish({"price": 121})

Their stores are in memory, unless there is a folder for them; then a broker that is stopped and started again has its
data. Brokers with data in memory recover from each other: what one loses, two others have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meetpoint.api.limits import SECOND_US
from meetpoint.broker import Broker, BrokerConfig
from meetpoint.catalog import NetworkConfig
from meetpoint.client.errors import NetworkError
from meetpoint.client.network import Connecting, connect
from meetpoint.client.sync import Background, SyncNetwork, connect_sync
from meetpoint.schemes.meet import MeetSettings

__all__ = ["Local", "LocalNetwork", "local"]

READY_S = 60.0
"""The time within which all brokers serve and know each other."""
BROKERS_MAX = 64
LEASE_US = SECOND_US
"""How long the first subscriptions of a new network of the scheme `meet` wait: all brokers are near each other."""


class LocalNetwork:
    """A network of brokers in the running event loop; `async with mp.local(...)` starts one."""

    def __init__(self, brokers: int, scheme: str, data: str | Path | None, settings: dict[str, Any]) -> None:
        if type(brokers) is not int or not 1 <= brokers <= BROKERS_MAX:
            raise NetworkError(f"local: a network of {brokers!r} brokers; give a number from 1 to {BROKERS_MAX}")
        self._data = None if data is None else Path(data)
        self._settings = {"admin": None, "scheme": scheme, "meet": MeetSettings(lease_us=LEASE_US), **settings}
        self._count = brokers
        self._config(0, "127.0.0.1:0")  # what is wrong with the settings is said here
        self._brokers: list[Broker | None] = []
        self._addresses: list[str] = []

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all brokers, and wait until they serve."""
        try:
            for number in range(self._count):
                broker = Broker(self._config(number, "127.0.0.1:0", tuple(self._addresses[:1])))
                await broker.start()
                self._brokers.append(broker)
                self._addresses.append(broker.address)
            await self._wait_ready(range(self._count))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all brokers."""
        running = [broker for broker in self._brokers if broker is not None]
        self._brokers, self._addresses = [], []
        await asyncio.gather(*(broker.stop(drain=False) for broker in running))

    async def stop_broker(self, number: int, *, drain: bool = True) -> None:
        """Stop broker `number`, counted from 0; without `drain` at once, as if it had been killed."""
        broker = self.broker(number)
        self._brokers[number] = None
        await broker.stop(drain=drain)

    async def leave_broker(self, number: int) -> None:
        """Make a broker hand everything over to the others and leave."""
        await self.broker(number).leave()
        self._brokers[number] = None

    async def start_broker(self, number: int) -> None:
        """Start a broker that was stopped, at its old address, and wait until it serves."""
        if self._brokers[number] is not None:
            raise NetworkError(f"local: broker {number} runs already")
        others = tuple(self._addresses[n] for n, broker in enumerate(self._brokers) if broker is not None)
        broker = Broker(self._config(number, self._addresses[number], others))
        await broker.start()
        self._brokers[number] = broker
        await self._wait_ready([number])

    # -- views ---------------------------------------------------------------------------------------------------------

    @property
    def network(self) -> NetworkConfig:
        """The configuration that its brokers' nodes share."""
        return self._config(0, "127.0.0.1:0").network_config()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each broker, stopped ones included."""
        return tuple(self._addresses)

    @property
    def url(self) -> str:
        """The url of all brokers."""
        return "mp://" + ",".join(self._addresses)

    def url_of(self, number: int) -> str:
        """Return the url of broker `number`, counted from 0."""
        return f"mp://{self._addresses[number]}"

    def connect(self, client: str = "", **settings: Any) -> Connecting:
        """Connect a client, for asyncio."""
        return connect(self.url, client, **settings)

    def broker(self, number: int) -> Broker:
        """Return broker `number`, for inspection."""
        broker = self._brokers[number] if number < len(self._brokers) else None
        if broker is None:
            raise NetworkError(f"local: broker {number} is stopped; start it by start_broker({number})")
        return broker

    @property
    def is_quiet(self) -> bool:
        """Whether no event is on its way and none waits for a subscriber."""
        views = [broker.node.snapshot() for broker in self._brokers if broker is not None]
        return not any(view.outbox or view.queued or view.unsafe for view in views)

    # -- details -------------------------------------------------------------------------------------------------------

    def _config(self, number: int, listen: str, join: tuple[str, ...] = ()) -> BrokerConfig:
        data = None if self._data is None else str(self._data / f"broker{number}")
        return BrokerConfig(name=f"local{number}", listen=listen, join=join, data=data, **self._settings)

    async def _wait_ready(self, numbers: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + READY_S
        while late := [number for number in numbers if not self._is_ready(number)]:
            if loop.time() > until:
                raise NetworkError(f"local: brokers {late} do not serve {READY_S:g} s after they started")
            await asyncio.sleep(0.01)

    def _is_ready(self, number: int) -> bool:
        broker = self._brokers[number]
        running = sum(each is not None for each in self._brokers)
        return broker is not None and broker.is_ready and len(broker.node.directory.others()) >= running - 1


class Local:
    """A `LocalNetwork` for callers without asyncio: its brokers run in a thread.

    `with` starts and stops them; `async with` gives a `LocalNetwork` instead, in the caller's loop.
    """

    def __init__(self, network: LocalNetwork) -> None:
        self._inner = network
        self._background: Background | None = None

    def start(self) -> Local:
        """Start all brokers, and wait until they serve."""
        if self._background is None:
            self._background = Background("meetpoint brokers")
            try:
                self._background.run(self._inner.start())
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop all brokers."""
        background, self._background = self._background, None
        if background is not None:
            try:
                background.run(self._inner.stop())
            finally:
                background.stop()

    def __enter__(self) -> Local:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> LocalNetwork:
        await self._inner.start()
        return self._inner

    async def __aexit__(self, *_: object) -> None:
        await self._inner.stop()

    @property
    def network(self) -> NetworkConfig:
        """The configuration that its brokers' nodes share."""
        return self._inner.network

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each broker, stopped ones included."""
        return self._inner.addresses

    @property
    def url(self) -> str:
        """The url of all brokers."""
        return self._inner.url

    def url_of(self, number: int) -> str:
        """Return the url of broker `number`, counted from 0."""
        return self._inner.url_of(number)

    def connect(self, client: str = "", **settings: Any) -> Connecting:
        """Connect a client, for asyncio."""
        return self._inner.connect(client, **settings)

    def connect_sync(self, client: str = "", **settings: Any) -> SyncNetwork:
        """Connect a client, without asyncio."""
        return connect_sync(self.url, client, **settings)

    def stop_broker(self, number: int, *, drain: bool = True) -> None:
        """Stop broker `number`, counted from 0; without `drain` at once, as if it had been killed."""
        self._running.run(self._inner.stop_broker(number, drain=drain))

    def leave_broker(self, number: int) -> None:
        """Make a broker hand everything over to the others and leave."""
        self._running.run(self._inner.leave_broker(number))

    def start_broker(self, number: int) -> None:
        """Start a broker that was stopped, at its old address, and wait until it serves."""
        self._running.run(self._inner.start_broker(number))

    def broker(self, number: int) -> Broker:
        """Return broker `number`, for inspection; its loop runs in another thread."""
        return self._inner.broker(number)

    @property
    def is_quiet(self) -> bool:
        """Whether no event is on its way and none waits for a subscriber."""

        async def look() -> bool:
            return self._inner.is_quiet

        return self._running.run(look())

    @property
    def _running(self) -> Background:
        if self._background is None:
            raise NetworkError("local: the network is not started; use it by `with`, or call start()")
        return self._background


def local(brokers: int = 8, scheme: str = "meet", data: str | Path | None = None, **settings: Any) -> Local:
    """Describe a network of brokers in this process: `with mp.local(brokers=3) as here, here.connect_sync() as net`.

    `with` runs them in a thread, `async with` in the loop of the caller, who then must not block it.
    `data` is a folder for what must survive `stop_broker`; without one it is kept in memory. Other settings are those
    of a broker's configuration (docs/configuration.md).
    """
    return Local(LocalNetwork(brokers, scheme, data, settings))
