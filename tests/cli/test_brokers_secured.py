"""`up --secure`, and every command that talks to brokers by TLS and with a token; `broker --insecure`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meetpoint.cli.network.network_folder import NetworkKeys
from tests.cli.conftest import Command
from tests.cli.test_brokers_up import COMMAND, PATIENCE_S, Up, running, states, until
from tests.ports import reserve_ports


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("secured")
    with running(folder / "data", reserve_ports(), "--brokers", "3", "--secure", str(folder / "keys")) as found:
        yield found


@pytest.fixture
def inside(up: Up, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment that `up` prints; returns the folder of keys."""
    exported = dict(line.split()[1].split("=", 1) for line in up.out.splitlines() if "export " in line)
    assert set(exported) == {"MEETPOINT_AT", "MEETPOINT_CA", "MEETPOINT_TOKEN_FILE"}
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    return up.data.parent / "keys"


def test_all_commands_talk_to_a_secured_network_with_what_up_prints(
    up: Up, inside: Path, meetpoint: Command, tmp_path: Path
) -> None:
    assert f"broker-1    mps://127.0.0.1:{up.port}" in up.out
    assert meetpoint("sub", "price > 120", "--durable", "alerts", "--timeout", "0.05").code == 0
    published = meetpoint("pub", '{"price": 121.5}')
    assert published.code == 0, published.err
    read = meetpoint("sub", "price > 120", "--durable", "alerts", "--count", "1")
    assert json.loads(read.out)["attributes"] == {"price": 121.5}
    schema = tmp_path / "schema.yaml"
    schema.write_text("attributes: {price: decimal, kind: string, n: integer}\n", encoding="utf-8")
    for command in (
        ("subs", "list"),
        ("subs", "export"),
        ("dead", "list"),
        ("top", "--once", "--interval", "0.1"),
        ("schema", "add", schema),
        ("schema", "show"),
    ):
        ran = meetpoint(*command)
        assert ran.code == 0, (command, ran.err)
    until(lambda: states(meetpoint, f"mps://127.0.0.1:{up.port}") == ["ready"] * 3)


def test_a_broker_that_is_killed_comes_back_by_tls_and_nothing_is_lost(
    up: Up, inside: Path, meetpoint: Command
) -> None:
    url = f"mps://127.0.0.1:{up.port}"
    assert meetpoint("sub", "kind = 'kept'", "--durable", "kept", "--timeout", "0.05").code == 0
    os.kill(up.pid(2), signal.SIGKILL)
    for n in range(3):
        assert meetpoint("pub", json.dumps({"kind": "kept", "n": n})).code == 0
    until(lambda: "broker-2 was killed by SIGKILL" in up.err)
    until(lambda: states(meetpoint, url) == ["ready"] * 3)
    read = meetpoint("sub", "kind = 'kept'", "--durable", "kept", "--count", "3")
    assert [json.loads(line)["attributes"]["n"] for line in read.out.splitlines()] == [0, 1, 2]


def test_whoever_lacks_something_is_told_what(
    up: Up, inside: Path, meetpoint: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (inside / "operator.token").stat().st_mode & 0o077 == 0
    assert (inside / "ca" / "ca.key").stat().st_mode & 0o077 == 0
    token = (inside / "operator.token").read_text(encoding="ascii").strip()
    both = meetpoint("top", "--once", "--token", token)
    assert (both.code, "--token-file too" in both.err) == (2, True)
    monkeypatch.delenv("MEETPOINT_TOKEN_FILE")
    assert meetpoint("schema", "show", "--token", token).code == 0
    none = meetpoint("schema", "show")
    assert none.code == 2
    assert "token" in none.err
    gone = meetpoint("schema", "show", "--token-file", tmp_path / "gone")
    assert (gone.code, "gone: no such file or directory" in gone.err) == (2, True)
    monkeypatch.delenv("MEETPOINT_CA")
    distrusted = meetpoint("schema", "show", "--token", token)
    assert (distrusted.code, "give the authority's with ca= (--ca)" in distrusted.err) == (2, True)
    plain = meetpoint("schema", "show", "--token", token, "--at", f"mp://127.0.0.1:{up.port}")
    assert (plain.code, "this port speaks TLS only: connect by mps://" in plain.err) == (2, True)


def test_who_may_not_watch_is_told_so_and_not_that_all_brokers_are_silent(
    up: Up, inside: Path, meetpoint: Command, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.token"
    issued = meetpoint(
        "token", "issue", inside / "tokens", "--client", "ann", "--publish", "*", "--expires", "1h", "--out", plain
    )
    assert issued.code == 0, issued.err
    watched = meetpoint("top", "--once", "--interval", "0.1", "--token-file", plain)
    assert (watched.code, watched.out) == (2, "")
    assert "ask for a token with that role" in watched.err


def test_keys_that_are_there_are_taken_and_those_that_end_are_made_anew(
    up: Up, inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads((up.data / "network.json").read_bytes())["secure"] == str(inside)  # so that it comes up again so

    def made() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "keys").rglob("*") if path.is_file()}

    keys = NetworkKeys(tmp_path / "keys")
    keys.make(["broker-1"])
    before = made()
    keys.make(["broker-1"])
    assert made() == before
    keys.make(["broker-1", "broker-2"])
    assert before.items() - made().items() <= {each for each in before.items() if each[0].endswith("issued.jsonl")}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 86_400)
    keys.make(["broker-1"])
    token = {name for name, content in made().items() if before.get(name, content) != content}
    assert {Path(name).name for name in token} == {"operator.token", "issued.jsonl"}
    monkeypatch.setattr(time, "time", lambda: now + 360 * 86_400)
    keys.make(["broker-1"])
    changed = {Path(name).name for name, content in made().items() if before.get(name, content) != content}
    assert changed == {"operator.token", "issued.jsonl", "certificate.pem", "key.pem"}


def test_a_broker_opens_to_other_machines_only_where_it_is_told_to(meetpoint: Command) -> None:
    refused = meetpoint("broker", "--listen", "10.255.255.1:7400")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "listen: 10.255.255.1:7400 can be reached from other machines, and there is no certificate" in refused.err
    assert "--insecure" in refused.err
    told = subprocess.run(
        [*COMMAND, "broker", "--listen", "10.255.255.1:7400", "--insecure"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 2
    assert "listen 10.255.255.1:7400: " in told.stderr  # no address of this machine: it got as far as that
    one = meetpoint("broker", "--certificate", "c.pem")
    assert (one.code, "tls.key: is missing" in one.err) == (2, True)


def test_a_broker_leaves_by_tls_and_a_token(up: Up, inside: Path, meetpoint: Command) -> None:
    url = f"mps://127.0.0.1:{up.port + 2}"
    left = meetpoint("leave", url)
    assert (left.code, left.out) == (0, f"{url} has handed everything over, and stops\n")
