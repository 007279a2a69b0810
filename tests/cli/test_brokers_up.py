"""`meetpoint up`, `broker`, `leave` and `store` as processes; and README's ten lines, as they are printed."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meetpoint.broker.storage.folder import is_in_use
from meetpoint.cli.network.supervisor import READY_S
from tests.cli.conftest import Command
from tests.ports import reserve_ports

COMMAND = [sys.executable, "-m", "meetpoint.cli"]
README = Path(__file__).resolve().parents[2] / "README.md"
PORT = 7400
PATIENCE_S = 180.0


def until(holds: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


class Up:
    """`meetpoint up` that runs."""

    def __init__(self, data: Path, port: int, *options: str) -> None:
        self.data, self.port = data, port
        self.url = f"mp://127.0.0.1:{port}"
        self._out, self._err = data.with_suffix(".out"), data.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, "up", "--data", str(data), "--port", str(port), *options], stdout=out, stderr=err
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self) -> None:
        """For longer than it waits itself: it says what is wrong."""
        end = time.monotonic() + READY_S + PATIENCE_S
        while "Ctrl-C stops them" not in self.out:
            assert self.process.poll() is None, self.err
            assert time.monotonic() < end, self.err
            time.sleep(0.02)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def pid(self, number: int) -> int:
        return int((self.data / f"broker-{number}" / "lock").read_text())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)  # which does nothing to one that has ended
        return self.process.wait(PATIENCE_S)


@contextmanager
def running(data: Path, port: int, *options: str) -> Iterator[Up]:
    up = Up(data, port, *options)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()


def states(meetpoint: Command, url: str) -> list[str]:
    ran = meetpoint("top", "--once", "--json", "--interval", "0.1", "--at", url)
    return [row["state"] for row in json.loads(ran.out)["brokers"]] if ran.code == 0 else []


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A broker that is this process sets up the logging of its process."""
    logger = logging.getLogger("meetpoint")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


def test_the_ten_lines_of_the_readme_and_a_network_that_loses_brokers(meetpoint: Command, tmp_path: Path) -> None:
    (block,) = [
        block for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
        if "mp.connect(" in block
    ]  # fmt: skip
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    port = reserve_ports(PORT)
    with running(tmp_path / "data", port, "--brokers", "3") as up:
        assert f"broker-3    mp://127.0.0.1:{port + 2}" in up.out
        text = block if port == PORT else block.replace(str(PORT), str(port))
        ran = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "OTE 121.5 ('alerts',)\n", "")

        os.kill(up.pid(1), signal.SIGKILL)  # where the subscription is
        until(lambda: "broker-1 was killed by SIGKILL; it is started again now" in up.err)
        until(lambda: states(meetpoint, f"{up.url},127.0.0.1:{port + 1}") == ["ready"] * 3)
        assert meetpoint("pub", '{"symbol": "OTE", "price": 130}', "--at", up.url).code == 0
        read = meetpoint("sub", "price > 120", "--durable", "alerts", "--count", "1", "--at", up.url)
        assert json.loads(read.out)["attributes"]["price"] == 130

        os.kill(up.pid(2), signal.SIGTERM)  # it drains, and ends well; yet nobody has taken over what it holds
        until(lambda: "broker-2 was stopped; it is started again now" in up.err)
        until(lambda: states(meetpoint, up.url) == ["ready"] * 3)

        left = meetpoint("leave", f"127.0.0.1:{port + 2}")
        assert left == (0, f"127.0.0.1:{port + 2} has handed everything over, and stops\n", "")
        until(lambda: "broker-3 has left the network" in up.err)
        assert json.loads((up.data / "network.json").read_text())["brokers"] == [1, 2]
        assert up.stop() == 0
    assert up.err.count("\n") == 3


def test_a_network_comes_back_and_can_be_looked_into(meetpoint: Command, tmp_path: Path) -> None:
    port, data = reserve_ports(), tmp_path / "data"
    with running(data, port, "--brokers", "1", "--scheme", "flood") as up:
        assert meetpoint("sub", "TRUE", "--durable", "all", "--timeout", "0.05", "--at", up.url).code == 0
        assert meetpoint("pub", '{"a": 1}', "--at", up.url).code == 0
        again = meetpoint("up", "--data", data, "--port", port)
        assert (again.code, again.out) == (2, "")
        assert again.err.startswith(f"meetpoint: port {port} on 127.0.0.1: address already in use; stop what uses it")
        again = meetpoint("up", "--data", data, "--port", reserve_ports())
        assert "a broker runs with it" in again.err
        backup = meetpoint("store", "backup", data / "broker-1", tmp_path / "copy")
        assert (backup.code, backup.out.endswith("sound\n")) == (0, True)
        assert ", in use\n" in meetpoint("store", "check", data / "broker-1").out
        up.process.kill()  # and so, without a word: its brokers stop by themselves
        up.process.wait(PATIENCE_S)
        until(lambda: not is_in_use(data / "broker-1"))

    fewer = meetpoint("up", "--data", data, "--scheme", "meet")
    assert "holds a network of scheme flood, not meet" in fewer.err
    with running(data, port) as up:
        read = meetpoint("sub", "TRUE", "--durable", "all", "--count", "1", "--at", up.url)
        assert json.loads(read.out)["attributes"] == {"a": 1}
        assert up.stop() == 0

    assert "name one of them: broker-1" in meetpoint("store", "check", data).err
    told = json.loads(meetpoint("store", "check", tmp_path / "copy", "--json").out)
    assert (told["sound"], told["identity"]["name"], told["records"]["subscription"]) == (True, "broker-1", 1)
    refused = meetpoint("store", "restore", tmp_path / "copy", data / "broker-1")
    assert (refused.code, refused.out) == (2, "")
    restored = meetpoint("store", "restore", tmp_path / "copy", tmp_path / "new")
    assert restored.out.endswith(f"restored; start broker broker-1 with --data {tmp_path / 'new'}\n")
    file = tmp_path / "new" / "store.db"
    content = bytearray(file.read_bytes())
    content[content.index(b"subscription") + 1] ^= 1
    file.write_bytes(content)
    damaged = meetpoint("store", "check", tmp_path / "new")
    assert (damaged.code, damaged.out.endswith("NOT sound\n")) == (1, True)
    assert damaged.err.startswith("meetpoint: ")


def test_a_broker_that_cannot_start_ends_it_with_its_last_words(meetpoint: Command, tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder = data / "broker-1"
    folder.mkdir(parents=True)
    (data / "network.json").write_text('{"scheme": "flood", "brokers": [1]}')
    (folder / "store.db").write_text("this is no store, and long enough to be looked at")
    command = [*COMMAND, "up", "--data", str(data), "--port", str(reserve_ports())]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("meetpoint: broker-1 ended with code 2: store ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("notes", "options", "message"),
    [
        (None, ["--scheme", "nope"], "scheme: there is no 'nope'; choose from: "),
        (None, ["--overlay", "nope"], "overlay: there is no 'nope'; choose from: chord, pastry"),
        ('{"scheme": "meet", "brokers": [1]}', ["--overlay", "pastry"], "of overlay chord, not pastry"),
        (
            '{"scheme": "meet", "brokers": [1], "overlay": "pastry"}',
            ["--overlay", "chord"],
            "holds a network of overlay pastry, not chord; give --data another folder",
        ),
        ("", [], "network.json: cannot be read"),
        (
            '{"scheme": "meet", "brokers": [1, 2, 3]}',
            ["--brokers", "2"],
            "holds 3 brokers, and what each has is needed",
        ),
    ],
)
def test_up_refuses_what_cannot_be(
    meetpoint: Command, tmp_path: Path, notes: str | None, options: list[str], message: str
) -> None:
    data = tmp_path / "data"
    if notes is not None:
        data.mkdir()
        (data / "network.json").write_text(notes)
    ran = meetpoint("up", "--data", data, *options)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


def test_up_does_not_mix_with_other_files(meetpoint: Command, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    ran = meetpoint("up", "--data", tmp_path)
    assert (ran.code, ran.err) == (
        2,
        f"meetpoint: {tmp_path}: holds other things; give --data an empty folder, or a new one\n",
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('lissten = "x"', [], "broker.toml: there is no key lissten; did you mean listen?"),
        ("listen = ", [], "broker.toml: "),
        ("", ["--join", "foo"], "join: 'foo' is no address; write HOST:PORT"),
        ("", ["--log-format", "xml"], "log.format"),
        ("", ["--scheme", "nope"], "scheme: there is no 'nope'"),
        ("", ["--overlay", "nope"], "overlay: there is no 'nope'; choose from: chord, pastry"),
        ("", ["--schema", "nope.yaml"], "nope.yaml"),
        (None, [], "broker.toml: No such file or directory; give the path of a TOML file"),
    ],
)
def test_broker_refuses_what_cannot_be(
    meetpoint: Command, tmp_path: Path, text: str | None, options: list[str], message: str
) -> None:
    file = tmp_path / "broker.toml"
    if text is not None:
        file.write_text(text)
    ran = meetpoint("broker", "--config", file, "--listen", "127.0.0.1:0", "--admin", "none", *options)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_broker_says_what_it_does_and_drains(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('listen = "127.0.0.1:1"\nadmin = "none"\ndata = "here"\n[log]\nlevel = "info"\n')
    command = [*COMMAND, "broker", "--config", str(file), "--listen", "127.0.0.1:0", "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        started = json.loads(process.stderr.readline())
        assert (started["event"], started["address"] != "127.0.0.1:1") == ("started", True)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
    assert [json.loads(line)["event"] for line in rest.splitlines()][-2:] == ["draining", "stopped"]
    assert (tmp_path / "here" / "store.db").exists()


def test_leave_where_nobody_is(meetpoint: Command) -> None:
    assert (
        meetpoint("leave", "127.0.0.1:1").err
        == "meetpoint: nothing listens at 127.0.0.1:1; start one with: meetpoint up\n"
    )
    assert "name the one that shall go" in meetpoint("leave", "mp://a:1,b:2").err
