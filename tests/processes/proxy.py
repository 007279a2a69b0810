"""A network that can be cut: each broker is reached through a door that this process owns and may close.

Broker i listens at an address of its own on loopback (`host_of`), and dials from it, so that whoever comes to a door is
known by the address it comes from; clients come from 127.0.0.1. Another process that runs this has other addresses. It
takes Linux, where all of 127.0.0.0/8 is there. A way from one to another is open, cut (connections
break, new ones are refused) or stalled (connections stay, nothing passes, as when cables are pulled; what was under
way goes on when they are plugged in again).

Doors also see in which version of the wire is spoken, apart from what brokers say of it: a frame is four bytes of
length and one of version.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum

__all__ = ["CLIENTS", "Doors", "Way", "host_of"]

CLIENTS = -1
"""Where whoever is no broker comes from."""
_STREET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}."
_HOST = "127.0.0.1"
_CHUNK = 65_536
_HEAD = 5


class Way(Enum):
    """How a way from one to another is."""

    OPEN = "open"
    CUT = "cut"
    STALLED = "stalled"


def host_of(broker: int) -> str:
    """The address that a broker listens at and dials from."""
    return f"{_STREET}{1 + broker}"


def _comes_from(host: str) -> int:
    return int(host.removeprefix(_STREET)) - 1 if host.startswith(_STREET) else CLIENTS


class Doors:
    """The doors of all brokers."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int], Way] = {}
        self._servers: list[asyncio.Server] = []
        self._passages: set[_Passage] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.spoken: Counter[tuple[int, int, int]] = Counter()
        """By source, target and version, how many frames passed after the first in either direction."""
        self.refused = 0
        """How many connections were refused because their way was cut."""

    async def open(self, broker: int, port: int) -> str:
        """A door to a broker that listens at a port; gives the address to advertise."""

        def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._pass(broker, port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(arrived, _HOST, 0)
        self._servers.append(server)
        return f"{_HOST}:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close all doors and all that passes."""
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    def set(self, sources: Iterable[int], targets: Iterable[int], way: Way) -> None:
        """What the ways from some to some are from now on."""
        targets = tuple(targets)
        for source in sources:
            for target in targets:
                if source != target:
                    self._ways[source, target] = way
        for passage in tuple(self._passages):
            passage.set(self._way(passage.source, passage.target))

    def part(self, some: Iterable[int], others: Iterable[int], way: Way) -> None:
        """The same in both directions."""
        some, others = tuple(some), tuple(others)
        self.set(some, others, way)
        self.set(others, some, way)

    def heal(self) -> None:
        """All ways are open again."""
        self._ways.clear()
        for passage in tuple(self._passages):
            passage.set(Way.OPEN)

    def connections(self, source: int, target: int) -> int:
        """How many connections pass from one to another."""
        return sum((passage.source, passage.target) == (source, target) for passage in self._passages)

    def _way(self, source: int, target: int) -> Way:
        return self._ways.get((source, target), Way.OPEN)

    async def _pass(
        self, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:  # fmt: skip
        source = _comes_from(writer.get_extra_info("peername")[0])
        passage = _Passage(source, target, self._way(source, target))
        passage.add(writer)
        self._passages.add(passage)
        try:
            if passage.is_cut():
                self.refused += 1
                return
            await passage.may_pass.wait()
            try:
                to_broker = await asyncio.open_connection(host_of(target), port)
            except OSError:
                return
            passage.add(to_broker[1])
            if not passage.is_cut():
                await asyncio.wait(
                    [
                        asyncio.ensure_future(passage.carry(reader, to_broker[1], _Ear(self.spoken, source, target))),
                        asyncio.ensure_future(passage.carry(to_broker[0], writer, _Ear(self.spoken, source, target))),
                    ]
                )
        finally:
            self._passages.discard(passage)
            passage.abort()


class _Ear:
    """Hears the versions of the frames of one direction of a connection."""

    def __init__(self, spoken: Counter[tuple[int, int, int]], source: int, target: int) -> None:
        self._spoken = spoken
        self._way = (source, target)
        self._head = bytearray()
        self._skip = 0
        self._is_first = True

    def hear(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._skip:
                passed = min(self._skip, len(data) - at)
                self._skip -= passed
                at += passed
                continue
            more = data[at : at + _HEAD - len(self._head)]
            self._head += more
            at += len(more)
            if len(self._head) == _HEAD:
                self._skip = int.from_bytes(self._head[:-1], "big") - 1
                if not self._is_first:
                    self._spoken[(*self._way, self._head[-1])] += 1
                self._is_first = False
                self._head.clear()


class _Passage:
    """A connection through a door."""

    def __init__(self, source: int, target: int, way: Way) -> None:
        self.source = source
        self.target = target
        self.way = way
        self.may_pass = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self.set(way)

    def add(self, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def set(self, way: Way) -> None:
        self.way = way
        if way is Way.STALLED:
            self.may_pass.clear()
        else:
            self.may_pass.set()
        if way is Way.CUT:
            self.abort()

    def is_cut(self) -> bool:
        return self.way is Way.CUT

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ear: _Ear) -> None:
        """One direction, until either end is closed."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                ear.hear(data)
                await self.may_pass.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            await self.may_pass.wait()
            if writer.can_write_eof():
                writer.write_eof()
