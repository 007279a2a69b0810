"""A network in the process: with asyncio and without, stopped and started, and importable in either order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import meetpoint as mp
from meetpoint.errors import MeetpointError
from meetpoint.local_network import Local
from tests.client.running import PATIENCE_S, run, take


def test_without_asyncio() -> None:
    with mp.local(brokers=2) as here, here.connect_sync() as net:
        assert here.url == "mp://" + ",".join(here.addresses)
        assert here.url_of(1) == f"mp://{here.addresses[1]}"
        sub = net.subscribe("price > 120")
        net.publish({"price": 121})
        assert next(iter(sub.events(timeout=PATIENCE_S)))["price"] == 121


def test_with_asyncio() -> None:
    async def main() -> None:
        async with mp.local(brokers=2, scheme="flood") as here, here.connect() as net:
            sub = await net.subscribe("price > 120")
            await net.publish({"price": 121})
            assert [event["price"] for event in await take(sub, 1)] == [121]
            assert len(await net.brokers()) == 2

    run(main())


def test_a_broker_that_keeps_its_data_has_it_again(tmp_path: Path) -> None:
    with mp.local(brokers=1, data=tmp_path) as here:
        with here.connect_sync() as net:
            net.subscribe("n > 0", durable="kept").close()
            net.publish({"n": 1})
        here.stop_broker(0)
        with pytest.raises(mp.NetworkError, match=r"start it by start_broker\(0\)"):
            here.stop_broker(0)
        here.start_broker(0)
        with pytest.raises(mp.NetworkError, match="runs already"):
            here.start_broker(0)
        with here.connect_sync() as net:
            sub = net.subscribe("n > 0", durable="kept")
            assert next(iter(sub.events(timeout=PATIENCE_S)))["n"] == 1
    with mp.local(brokers=1, data=tmp_path) as here, here.connect_sync() as net:
        assert [held.name for held in net.subscriptions()] == ["kept"]
        assert here.broker(0).is_ready
        assert isinstance(here.is_quiet, bool)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(MeetpointError, match="give a number from 1 to 64"):
        mp.local(brokers=0)
    with pytest.raises(MeetpointError, match="there is no 'nothing'; choose from"):
        mp.local(scheme="nothing")
    with pytest.raises(mp.NetworkError, match="local: the network is not started"):
        mp.local(brokers=1).stop_broker(0)


def test_it_starts_and_stops_twice_and_leaves_no_thread() -> None:
    import threading

    before = threading.active_count()
    network = mp.local(brokers=1)
    for _ in range(2):
        with network:
            assert len(network.addresses) == 1
            network.start()
        network.stop()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import meetpoint as mp; mp.local(brokers=1); mp.local(brokers=1)",
        "import meetpoint.local_network, meetpoint as mp; mp.local(brokers=1)",
        "from meetpoint.lab.sim.brokers import Network; import meetpoint as mp; mp.local(brokers=1)",
        "from meetpoint import local; local(brokers=1); from meetpoint.local_network import Local",
    ],
)
def test_local_is_the_function_whatever_was_imported_before(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


def test_importing_meetpoint_does_not_import_asyncio() -> None:
    code = "import sys, meetpoint; print([name for name in ('asyncio', 'meetpoint.client') if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert told.stdout == "[]\n"


def test_blocking_in_the_loops_own_thread_is_refused() -> None:
    async def inside(here: Local) -> str:
        try:
            here.stop_broker(0)
        except mp.NetworkError as error:
            return str(error)
        return ""

    with mp.local(brokers=1) as here:
        assert "would wait for itself" in here._running.run(inside(here))
        assert asyncio.run(asyncio.sleep(0, "others may")) == "others may"
