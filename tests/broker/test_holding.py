"""How much memory bad input holds, measured in a broker that is a process of its own, on the real clock.

What waits is held as its bytes, never more than twice of them; what is refused leaves nothing behind. While a message
is decoded its objects are there for a moment too: of one message, for the whole broker, at a time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from meetpoint.api.client_messages import Request, StatusRequest
from meetpoint.api.outcomes import Published
from meetpoint.broker import run as run_on_real_clock
from meetpoint.lab.bench.brokers.ours import WatchedBroker, watch
from tests.broker.talking import FROM_BROKER, Caller, calling, event, raw, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process has is read from /proc")

MIB = 1 << 20
CONNECTIONS = 20
ROOM = 16 * MIB
"""Memory that a broker needs beside: connections, answers, and freed memory that the interpreter keeps."""


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    settings = {"scheme": "flood", "journal_lines": 0}
    with watch(tmp_path_factory.mktemp("broker"), settings) as broker:
        run_on_real_clock(_serves(broker))
        yield broker
        run_on_real_clock(_serves(broker))
        assert broker.is_alive


async def _serves(broker: WatchedBroker) -> None:
    async with calling(broker.address) as client:
        for answer in await client.publish(*[event(number, x=1, body="y" * 1000) for number in range(200)]):
            assert isinstance(answer, Published)


@contextlib.asynccontextmanager
async def many(broker: WatchedBroker) -> AsyncIterator[list[Caller]]:
    """Clients, all connected at one time."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(calling(broker.address)) for _ in range(CONNECTIONS)]


async def all_read(broker: WatchedBroker, callers: list[Caller]) -> None:
    """Wait until the broker has read all that was written: no buffer holds any of it, here or in the kernel."""
    for caller in callers:
        caller.writer.transport.set_write_buffer_limits(high=0)
        await caller.writer.drain()
    await until(lambda: not in_kernel(broker), "all is read")


def in_kernel(broker: WatchedBroker) -> int:
    """Return how many bytes wait in the kernel on connections to the broker, at either end."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, own, other, _, queues, *_ = line.split()
        if broker.port in (int(own.rpartition(":")[2], 16), int(other.rpartition(":")[2], 16)):
            found += sum(int(queue, 16) for queue in queues.split(":"))
    return found


def headed(data: bytes) -> bytes:
    return (len(data) + 1).to_bytes(4, "big") + b"\x02" + data


def test_frames_that_are_not_complete_hold_no_more_than_twice_their_bytes(watched: WatchedBroker) -> None:
    async def main() -> None:
        async with many(watched) as callers:
            before = watched.held_bytes
            for caller in callers:
                caller.writer.write((MIB).to_bytes(4, "big") + b"\x02" + bytes(MIB - 2))
            await all_read(watched, callers)
            assert watched.held_bytes - before > CONNECTIONS * MIB // 2, "most of it is there"
            assert watched.held_bytes_max - before < 2 * CONNECTIONS * MIB
            most = watched.held_bytes
        async with many(watched) as callers:
            for caller in callers:
                caller.writer.write((MIB).to_bytes(4, "big") + b"\x02" + bytes(MIB - 2))
            await all_read(watched, callers)
            assert watched.held_bytes - most < ROOM, "it was not given back"

    run_on_real_clock(main())


def test_frames_beyond_the_limit_hold_nothing(watched: WatchedBroker) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            before = watched.held_bytes
            strangers = [await stack.enter_async_context(raw(watched.address)) for _ in range(CONNECTIONS)]
            for stranger in strangers:
                stranger.writer.write((5000).to_bytes(4, "big") + b"\x01" + bytes(5000))
            for stranger in strangers:
                assert await stranger.ended()
        async with many(watched) as callers:
            for caller in callers:
                caller.writer.write((1 << 30).to_bytes(4, "big") + b"\x02" + bytes(MIB))
            for caller in callers:
                assert await caller.ended()
            assert watched.held_bytes_max - before < ROOM

    run_on_real_clock(main())


NAMES = [""] * (MIB - 64)
WIDE = {
    "many empty messages": b"\xdd" + (MIB - 64).to_bytes(4, "big") + b"\xc0" * (MIB - 64),
    "many small messages": msgspec.msgpack.encode([["ask", 1, ["tomorrow"]]] * 8192),
    "a wide list in a message": msgspec.msgpack.encode([["ask", 1, ["acknowledge", [b"", 1, 1], [*NAMES, 0]]]]),
    "pairs in a message": msgspec.msgpack.encode([["ask", 1, ["subscribe", "", "", [True, "", [["", 0]] * 300_000]]]]),
    "no message, long": msgspec.msgpack.encode([b"x" * (MIB - 64)]),
    "a kind that is long": msgspec.msgpack.encode([["x" * (MIB - 64), 1]]),
}


def test_frames_that_are_refused_leave_nothing_and_hold_little_meanwhile(watched: WatchedBroker) -> None:
    """They are closed one after another; the most at any time is all their bytes twice, and one being read."""

    async def flooded(frame: bytes) -> None:
        async with many(watched) as callers:
            for caller in callers:
                caller.writer.write(frame)
            for caller in callers:
                assert await caller.ended()

    async def main() -> None:
        before = watched.held_bytes
        for name, data in WIDE.items():
            frame = headed(data)
            assert len(frame) <= MIB + 10
            await flooded(frame)
            assert watched.held_bytes_max - before < 2 * CONNECTIONS * MIB + ROOM, name
        after = watched.held_bytes
        for name, data in WIDE.items():
            await flooded(headed(data))
            assert watched.held_bytes - after < ROOM, name

    run_on_real_clock(main())


def test_answers_that_nobody_reads_hold_little(watched: WatchedBroker) -> None:
    """A question has 14 bytes and its answer some thousand."""

    async def main() -> None:
        asked = [FROM_BROKER.encode(Request(number + 1, StatusRequest())) for number in range(8000)]
        frame = headed(b"\xdc" + len(asked).to_bytes(2, "big") + b"".join(asked))
        async with many(watched) as callers:
            before = watched.held_bytes
            for caller in callers[:10]:
                caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
                caller.writer.write(frame)
            for _ in range(20):
                await callers[-1].get(StatusRequest())
            assert watched.held_bytes_max - before < 10 * 4 * MIB + ROOM

    run_on_real_clock(main())
