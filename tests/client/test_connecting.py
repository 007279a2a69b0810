"""Connecting: who is reached, and what is said where nobody is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import meetpoint as mp
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.lab.bench.brokers.servers import free_port
from meetpoint.local_network import LocalNetwork
from tests.client.running import run, take


def test_where_nobody_listens_the_next_step_is_told() -> None:
    port = free_port()

    async def main(url: str) -> None:
        async with mp.connect(url):
            pass

    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(
            NetworkError, match=f"^nothing listens at {host}:{port}; start one with: meetpoint up$"
        ):  # fmt: skip
            run(main(f"mp://{host}:{port}"))
    with pytest.raises(NetworkError, match="none of 2 brokers can be reached: nothing listens at"):
        run(main(f"mp://127.0.0.1:{port},localhost:{port}"))
    with pytest.raises(NetworkError, match="write mp://localhost:7400"):
        mp.connect("http://localhost")
    with pytest.raises(NetworkError, match=r"broker no-such-host\.invalid:1: cannot be reached"):
        run(main("mp://no-such-host.invalid:1"))


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00\x00\x02\x01\xc0", b"\xff" * 40])
def test_what_is_no_broker_is_told_apart(said: bytes) -> None:
    async def main() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NetworkError, match=f"^broker 127.0.0.1:{port}: ") as refused:
                await mp.connect(f"mp://127.0.0.1:{port}")
            assert "\n" not in str(refused.value)

    run(main())


def test_another_network_is_refused_for_good(here: LocalNetwork) -> None:
    async def main() -> None:
        with pytest.raises(RefusedError, match="is of the network 'meetpoint', not of 'other'"):
            await mp.connect(here.url, network="other")
        async with mp.connect(here.url, network="meetpoint") as net:
            assert net.broker is not None

    run(main())


def test_the_first_that_answers_is_taken_and_others_are_learnt(here: LocalNetwork) -> None:
    async def main() -> None:
        async with mp.connect(f"mp://127.0.0.1:{free_port()},{here.addresses[1]}") as net:
            assert net.broker is not None
            assert net.broker.address == here.addresses[1]
            await net.brokers()  # asked after those that the client asked for itself
            assert set(here.addresses) <= set(net.connections.known)
        net = await mp.connect(here.url)
        await net.close()
        await net.close()

    run(main())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(NetworkError, match="in_flight: is 0"):
        mp.connect(in_flight=0)
    with pytest.raises(NetworkError, match="timeout: is 0"):
        mp.connect(timeout=0)


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_of_the_wire_are_spoken(version: int) -> None:
    async def main() -> None:
        async with mp.local(brokers=1, wire_versions=(version, version)) as alone, alone.connect() as net:
            sub = await net.subscribe("n >= 0", durable="versions")
            await net.publish_many({"n": n} for n in range(100))
            assert [event["n"] for event in await take(sub, 100)] == list(range(100))
            assert (await net.connections.main())._version == version

    run(main())


def test_a_broker_that_stops_hearing_is_left(here: LocalNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between client and broker stands a relay that stops passing anything on, and keeps its sockets open."""
    monkeypatch.setattr("meetpoint.client.connection.TICK_S", 0.1)

    async def main() -> None:
        deaf = asyncio.Event()
        relay = await asyncio.start_server(_relay(here.addresses[0], deaf), "127.0.0.1", 0)
        async with relay:
            port = relay.sockets[0].getsockname()[1]
            async with mp.connect(f"mp://127.0.0.1:{port},{here.addresses[1]}") as net:
                assert net.broker is not None
                assert net.broker.address == here.addresses[0]
                await asyncio.sleep(0.6)  # in quiet times it asks now and then, and stays
                assert net.broker is not None
                assert net.broker.address == here.addresses[0]
                deaf.set()
                await net.publish({"k": "deaf"})
                await net.brokers()
                assert net.broker is not None
                assert net.connections.entry is not None
                assert net.connections.entry.address != f"127.0.0.1:{port}"

    run(main())


def _relay(
    address: str, deaf: asyncio.Event
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    host, _, port = address.rpartition(":")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not deaf.is_set():
                writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.wait(
                [
                    asyncio.create_task(pass_on(reader, there_writer)),
                    asyncio.create_task(pass_on(there_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            there_writer.close()
            writer.close()

    return relay
