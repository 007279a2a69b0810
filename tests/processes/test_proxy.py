"""The doors between brokers: what passes, what breaks and what waits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from tests.processes.proxy import CLIENTS, Doors, Way, host_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.xdist_group("brokers"),
]

PATIENCE_S = 60.0


async def _dial(address: str, source: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.split(":")
    from_host = "127.0.0.1" if source == CLIENTS else host_of(source)
    return await asyncio.open_connection(host, int(port), local_addr=(from_host, 0))


async def _said(dialled: tuple[asyncio.StreamReader, asyncio.StreamWriter], word: bytes) -> bytes:
    reader, writer = dialled
    writer.write(word)
    return await asyncio.wait_for(reader.read(100), PATIENCE_S)


def _run(script: Callable[[Doors, str], Awaitable[None]]) -> None:
    """A script with the door of broker 0, which answers every word with the same word."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(echo, host_of(0), 0)
        doors = Doors()
        try:
            await script(doors, await doors.open(0, server.sockets[0].getsockname()[1]))
        finally:
            await doors.close()
            server.close()
            await server.wait_closed()

    asyncio.run(asyncio.wait_for(run(), 2 * PATIENCE_S))


async def _is_broken(dialled: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    try:
        return await _said(dialled, b"?") == b""
    except ConnectionError:
        return True


def test_words_pass_and_who_comes_is_known() -> None:
    async def script(doors: Doors, address: str) -> None:
        first, client = await _dial(address, 1), await _dial(address, CLIENTS)
        assert await _said(first, b"hello") == b"hello"
        assert await _said(client, b"hi") == b"hi"
        assert (doors.connections(1, 0), doors.connections(CLIENTS, 0), doors.connections(2, 0)) == (1, 1, 0)
        for _, writer in (first, client):
            writer.close()

    _run(script)


def test_a_cut_breaks_one_way_and_only_that_until_it_heals() -> None:
    async def script(doors: Doors, address: str) -> None:
        one, other = await _dial(address, 1), await _dial(address, 2)
        assert await _said(one, b"a") == await _said(other, b"a")
        doors.part([1], [0], Way.CUT)
        assert await _is_broken(one)
        again = await _dial(address, 1)
        assert await _is_broken(again)
        assert await _said(other, b"b") == b"b"
        assert doors.refused == 1
        doors.heal()
        healed = await _dial(address, 1)
        assert await _said(healed, b"c") == b"c"
        for _, writer in (one, other, again, healed):
            writer.close()

    _run(script)


def test_a_stalled_way_keeps_what_was_said() -> None:
    async def script(doors: Doors, address: str) -> None:
        one = await _dial(address, 1)
        assert await _said(one, b"a") == b"a"
        doors.set([1], [0], Way.STALLED)
        one[1].write(b"b")
        late = await _dial(address, 1)
        late[1].write(b"c")
        other = await _dial(address, 2)
        assert await _said(other, b"now") == b"now"  # a whole turn of words, and nothing of the others
        assert not one[0]._buffer  # type: ignore[attr-defined]
        doors.heal()
        assert await asyncio.wait_for(one[0].read(100), PATIENCE_S) == b"b"
        assert await asyncio.wait_for(late[0].read(100), PATIENCE_S) == b"c"
        for _, writer in (one, late, other):
            writer.close()

    _run(script)


def test_versions_are_heard_however_frames_are_cut() -> None:
    async def script(doors: Doors, address: str) -> None:
        one = await _dial(address, 1)
        said = b"".join((len(body) + 1).to_bytes(4, "big") + bytes([v]) + body for v, body in _FRAMES)
        for at in range(len(said)):
            assert await _said(one, said[at : at + 1]) == said[at : at + 1]
        assert doors.spoken == {(1, 0, 2): 4, (1, 0, 1): 2}  # each was said and answered, the first left out
        one[1].close()

    _run(script)


_FRAMES = ((1, b"hello"), (2, b""), (1, b"abc"), (2, b"\x00" * 300))


def test_a_door_to_a_broker_that_is_down_opens_and_closes() -> None:
    async def script(doors: Doors, _address: str) -> None:
        taken = await asyncio.start_server(lambda _r, _w: None, host_of(3), 0)
        port = taken.sockets[0].getsockname()[1]
        taken.close()
        await taken.wait_closed()
        caller = await _dial(await doors.open(3, port), CLIENTS)
        assert await _is_broken(caller)
        caller[1].close()

    _run(script)
