"""`meetpoint up` with its dashboard, whose brokers come and go from there; and `meetpoint gateway` beside a network."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import meetpoint as mp
from meetpoint.broker import read_config
from meetpoint.cli.flights import ALERTS_BUSY, ALERTS_IDLE, BROAD, SETTINGS, FlightData, choose_flights, run_flights
from meetpoint.cli.network.connect import ConnectOptions
from meetpoint.cli.network.up import HTTP_ABOVE, _free_http
from tests.cli.conftest import Command
from tests.cli.test_brokers_up import COMMAND, PATIENCE_S, running, until
from tests.ports import reserve_ports


def get(url: str, path: str, **said: Any) -> Any:
    """Return the answer, or why there is none."""
    try:
        return httpx.get(url + path, timeout=20, **said).json()
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        return {"problem": repr(error)}


def states(url: str) -> list[str]:
    return [each["state"] for each in get(url, "/api/network").get("brokers", [])]


def act(url: str, action: str, broker: str | None = None) -> httpx.Response:
    return httpx.post(f"{url}/api/nodes", json={"action": action, "broker": broker}, timeout=PATIENCE_S)


def test_brokers_of_up_join_crash_start_and_leave_from_the_dashboard(tmp_path: Path) -> None:
    port = reserve_ports()
    with running(tmp_path / "data", port, "--brokers", "3", "--archive") as up:
        (url,) = [line.split()[-1].rstrip("/") for line in up.out.splitlines() if line.startswith("Dashboard and API:")]
        page = httpx.get(url + "/", timeout=PATIENCE_S)
        assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
        kept = {"attributes": {"n": 1}, "id": "kept"}
        assert httpx.post(f"{url}/events", json=kept, timeout=PATIENCE_S).json() == {"ids": ["kept"]}
        until(lambda: states(url) == ["ready"] * 3, lambda: get(url, "/api/network"))

        second = f"127.0.0.1:{port + 1}"
        assert act(url, "start", second).status_code == 409, "it runs"
        assert act(url, "crash", second).json()["message"].startswith("broker-2 was killed")
        until(lambda: sorted(states(url)) == ["ready", "ready", "silent"], lambda: get(url, "/api/network"))
        nodes = {each["address"]: each["state"] for each in get(url, "/api/network")["nodes"]}
        assert nodes[second] == "stopped"
        until(lambda: "it stays down until it is started" in up.err, lambda: up.err)
        assert [act(url, action, second).status_code for action in ("crash", "leave")] == [409, 409]
        assert act(url, "start", second).status_code == 200
        until(lambda: states(url) == ["ready"] * 3, lambda: get(url, "/api/network"))

        assert f"broker-4 starts at 127.0.0.1:{port + 3}" in act(url, "join").json()["message"]
        until(lambda: states(url) == ["ready"] * 4, lambda: get(url, "/api/network"))
        assert json.loads((up.data / "network.json").read_text())["brokers"] == [1, 2, 3, 4]
        assert act(url, "leave", second).status_code == 200
        until(lambda: "broker-2 has left the network" in up.err, lambda: up.err)
        until(lambda: states(url) == ["ready"] * 3, lambda: get(url, "/api/network"))
        assert json.loads((up.data / "network.json").read_text())["brokers"] == [1, 3, 4]
        assert act(url, "crash", "127.0.0.1:1").status_code == 404

        wanted = {"filter": "n = 1"}
        until(lambda: httpx.post(f"{url}/api/backtest", json=wanted, timeout=PATIENCE_S).json().get("hits") == 1)
        assert up.stop() == 0
    assert (up.data / "archive").is_dir()


def test_the_dashboard_has_its_port_or_another_or_none(meetpoint: Command, tmp_path: Path) -> None:
    port = reserve_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = str(taken.getsockname()[1])
        ran = meetpoint("up", "--data", tmp_path / "a", "--port", port, "--brokers", "1", "--http", said)
        assert (ran.code, ran.out) == (2, "")
        assert f"port {said} on 127.0.0.1: address already in use; give another --http, or --no-http" in ran.err
        assert not (tmp_path / "a").exists()
    ran = meetpoint("up", "--http", "8400", "--no-http")
    assert ran.code == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + HTTP_ABOVE))
        taken.listen()
        assert _free_http(None, port) != port + HTTP_ABOVE
    assert _free_http(None, port) == port + HTTP_ABOVE
    assert _free_http(None, 65_000) > 0
    with running(tmp_path / "b", port, "--brokers", "1", "--no-http") as up:
        assert "Dashboard" not in up.out


@contextmanager
def beside(*options: str) -> Iterator[str]:
    """`meetpoint gateway` that runs; its address."""
    process = subprocess.Popen(
        [*COMMAND, "gateway", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("dashboard and API: "), process.communicate(timeout=PATIENCE_S)
        yield line.split()[-1].rstrip("/")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()


def test_a_secured_network_has_a_secured_dashboard_and_a_gateway_beside_it(tmp_path: Path) -> None:
    port, keys = reserve_ports(), tmp_path / "keys"
    with running(tmp_path / "data", port, "--brokers", "1", "--secure", str(keys)) as up:
        (url,) = [line.split()[-1].rstrip("/") for line in up.out.splitlines() if line.startswith("Dashboard and API:")]
        assert url.startswith("https://localhost:")
        trust = ssl.create_default_context(cafile=str(keys / "ca" / "ca.pem"))
        token = (keys / "operator.token").read_text().strip()
        operator = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/api/network", verify=trust, timeout=PATIENCE_S).status_code == 401
        seen = partial(get, url, "/api/network", verify=trust, headers=operator)
        until(lambda: [each["state"] for each in seen().get("brokers", [])] == ["ready"], seen)
        found = seen()
        assert found["can_manage"]
        with beside(
            *("--at", f"mps://localhost:{port}", "--ca", str(keys / "ca" / "ca.pem")),
            *("--token-file", str(keys / "operator.token"), "--listen", "127.0.0.1:0"),
            *("--token-keys", str(keys / "tokens" / "tokens.pub")),
        ) as other:
            assert httpx.get(f"{other}/api/network", timeout=PATIENCE_S).status_code == 401
            beyond = httpx.get(f"{other}/api/network", headers=operator, timeout=PATIENCE_S).json()
            assert beyond["brokers"][0]["id"] == found["brokers"][0]["id"]
            assert not beyond["can_manage"]


def test_a_gateway_without_a_network_says_so(meetpoint: Command) -> None:
    ran = meetpoint("gateway", "--at", f"mp://127.0.0.1:{reserve_ports()}", "--listen", "127.0.0.1:0")
    assert ran.code != 0
    assert ran.out == ""
    assert ran.err.count("\n") == 1


# -- flights -----------------------------------------------------------------------------------------------------------


def test_flights_are_published_at_each_broker_and_alerts_end_with_the_feed() -> None:
    flights = [{"carrier": "UA", "dep_delay": number} for number in range(7)]
    alerts = {"flights/late": "dep_delay > 4", "flights/never": "dep_delay > 400", "flights/all": "carrier = 'UA'"}

    async def main() -> None:
        async with mp.local(brokers=2) as here, here.connect() as net:
            took = await net.subscribe("carrier = 'UA'")
            reaches = [ConnectOptions(here.url_of(number)) for number in range(2)]
            async with run_flights(FlightData(flights, alerts), reaches, 100):
                seen = []
                async with asyncio.timeout(PATIENCE_S):
                    async for event in took:
                        seen.append(event.attributes["dep_delay"])
                        if set(seen) == set(range(7)) and len(seen) > 20:
                            break
                hosted = {
                    peer.address: {held.name for held in found or ()} for peer, found in (await net.hosted()).items()
                }
                assert set().union(*hosted.values()) >= alerts.keys()
                assert all(alerts.keys() & names for names in hosted.values()), "each hosts some"
                status = await net.status()
                assert all(told is not None and told.numbers["events_published"] > 0 for told in status.values())
            assert not alerts.keys() & {held.name for held in await net.subscriptions()}

    asyncio.run(main())


def test_drawn_alerts_are_told_things_and_a_few_never(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    drawn = choose_flights()
    assert len(drawn.alerts) == len(BROAD) + ALERTS_BUSY + ALERTS_IDLE
    accept = {name: mp.parse_filter(text).accepts for name, text in drawn.alerts.items()}
    told = {name: sum(map(accepts, drawn.flights[:: len(drawn.flights) // 200])) for name, accepts in accept.items()}
    assert sum(count > 0 for count in told.values()) >= ALERTS_BUSY // 2
    met = sum(any(accepts(flight) for accepts in accept.values()) for flight in drawn.flights)
    assert 0.4 < met / len(drawn.flights) < 0.8, "about every second flight meets an alert"
    (tmp_path / "brokers.toml").write_text(SETTINGS)
    made = read_config(tmp_path / "brokers.toml", scheme="dmm")
    assert "distance" in made.dmm.schema
    assert "dest" in made.reach.schema
