"""Says hostile frames to a broker, over some connections at one time, and counts what it said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from meetpoint.lab.bench.hostile.frames import Attack

__all__ = ["Attacker"]

_PAUSE_S = 0.02
_ANSWER_S = 20.0
"""How long a broker may take with what an attacker said: it has others to serve first."""


class Attacker:
    """Goes on with attacks, one connection after the other at each of some places, until it has said enough."""

    def __init__(self, host: str, port: int, attacks: Iterator[Attack], network: str, way: str) -> None:
        self._address = host, port
        self._attacks = attacks
        self._network = network
        self._way = way
        self.frames = 0
        """How many were written."""
        self.connections = 0
        self.failures = 0
        """Connections that the broker did not take."""

    async def attack(self, frames: int, places: int = 4, is_on: Callable[[], bool] = lambda: True) -> None:
        """Say so many frames, while it `is_on`."""
        until = self.frames + frames

        async def some() -> None:
            while self.frames < until:
                if is_on():
                    await self._once(next(self._attacks))
                else:
                    await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*(some() for _ in range(places)))

    async def _once(self, attack: Attack) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._address)
        except OSError:
            self.failures += 1
            await asyncio.sleep(0.05)
            return
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._say(attack, reader, writer), _ANSWER_S)
        writer.transport.abort()

    async def _say(self, attack: Attack, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = attack.hello(self._network, self._way)
        if hello is not None:
            writer.write(hello)
            await reader.read(1)
        for each in attack.frames:
            if writer.transport.is_closing():
                break
            writer.write(each)
            self.frames += 1
            await writer.drain()
            await asyncio.sleep(0)  # what the broker has closed is noticed here
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
